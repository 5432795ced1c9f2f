//! Tickets of a requester that have run out, or seem so where the clocks of servers differ.

use super::*;

/// A server whose clock is ahead of that of the one before took over: the ticket seemed to have run
/// out, and another had the lock while the requester relied on it.
#[test]
fn nor_does_the_ticket_that_follows_one_that_has_run_out() {
    let mut grabber = process(false, 60, at(1));
    let run_out = standing("ge", 9, 7, Ticket { lifetime: 60 * SECOND, ..ticket() });
    list(&mut grabber, &[aged(run_out, 61)], 20, at(1));
    let written = write(&mut grabber, 0, 21, at(1));
    assert_eq!(written.lifetime, 60 * SECOND);
    let shorter = standing("ge", 9, 7, Ticket { lifetime: SECOND, ..ticket() });
    let mut grabber = process(false, 60, at(1));
    list(&mut grabber, &[aged(shorter, 61)], 20, at(1));
    assert_eq!(write(&mut grabber, 0, 21, at(1)).lifetime, 10 * SECOND);
}

/// As above: another process had renewed the ticket after the own one was written, for longer. The
/// own one was removed before that one had run out, where its process had died.
#[test]
fn a_ticket_that_seems_to_have_run_out_is_removed_behind_a_later_write_of_the_own_one() {
    for (revision, lifetime, is_removed) in
        [(9, 10 * SECOND, true), (22, 10 * SECOND, false), (9, 60 * SECOND, false)]
    {
        let mut grabber = process(false, 10, at(1));
        list(&mut grabber, &[], 20, at(1));
        let new = standing(NEW, 21, 21, write(&mut grabber, 0, 21, at(1)));
        let old = standing("ge", revision, 7, Ticket { lifetime, ..ticket() });
        list(&mut grabber, &[aged(old, 61), new], 22, at(1));
        match (grabber.next(at(1)), is_removed) {
            (Step::Remove(..), true) => {}
            (Step::WriteAndList(_, _, written, ..), false) => {
                assert_eq!(written.lifetime, lifetime);
            }
            (step, _) => panic!("{revision} {lifetime:?}: {step:?}"),
        }
    }
}

/// The ticket that a server restores when it is killed was continued: two had the lock. Where the
/// clocks of servers differ, it may look young.
#[test]
fn a_ticket_that_has_run_out_is_not_continued_and_is_removed_once_the_names_are_had() {
    for (age, is_granted, replaces) in [(10, false, 0), (9, false, 9), (9, true, 0)] {
        let mut grabber = process(false, 10, at(1));
        let old = aged(standing("ge", 9, 7, ticket()), age);
        let later = Ticket { incarnation: Incarnation(2), is_granted, ..ticket() };
        list(&mut grabber, &[old, standing("later", 8, 8, later)], 20, at(1));
        write(&mut grabber, replaces, 21, at(1));
    }
    // A process of the same requester does not wait for the ticket. Others may wait for it.
    for other in [None, Some(other(6))] {
        let mut grabber = process(false, 10, at(1));
        let old = aged(standing("ge", 9, 7, ticket()), 10);
        let before: Vec<_> = other.clone().into_iter().chain([old.clone()]).collect();
        list(&mut grabber, &before, 20, at(1));
        let new = standing(NEW, 21, 21, write(&mut grabber, 0, 21, at(1)));
        let behind: Vec<_> = before.into_iter().chain([new.clone()]).collect();
        list(&mut grabber, &behind, 21, at(1));
        if other.is_some() {
            assert!(matches!(grabber.next(at(1)), Step::WriteNotes(..)), "it waits");
            continue;
        }
        let Step::Remove(removed, _) = grabber.next(at(1)) else { panic!("it stays") };
        assert_eq!(removed, old);
        grabber.handle(Input::Written(Written::Stored(Revision(22))), at(1));
        list(&mut grabber, &[new], 22, at(1));
        grant(&mut grabber, (21, 21), at(1));
    }
}
