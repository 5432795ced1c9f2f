//! Tickets of a requester that have run out, or seem so where the clocks of servers differ.

use super::super::simulated_bucket::{Bucket, Chances};
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
    let [short, long] = [10 * SECOND, 60 * SECOND];
    for (revision, lifetime, is_removed) in
        [(22, short, true), (24, short, false), (22, long, false)]
    {
        let mut grabber = process(false, 10, at(1));
        list(&mut grabber, &[], 20, at(1));
        let new = standing(NEW, 21, 21, write(&mut grabber, 0, 21, at(1)));
        let old = |revision, lifetime| {
            aged(standing("ge", revision, 7, Ticket { lifetime, ..ticket() }), 61)
        };
        list(&mut grabber, &[old(22, short), new], 22, at(1));
        let new = write(&mut grabber, 21, 23, at(1));
        list(&mut grabber, &[old(revision, lifetime), standing(NEW, 23, 21, new)], 24, at(1));
        match (grabber.next(at(1)), is_removed) {
            (Step::Remove(..), true) => {}
            (Step::Write(_, _, written, ..), false) => assert_eq!(written.lifetime, lifetime),
            (step, _) => panic!("{revision} {lifetime:?}: {step:?}"),
        }
    }
}

/// An earlier ticket was restored, or the process that was to remove it was killed. The requester
/// had been told of the later one: the term went back.
#[test]
fn a_ticket_that_was_granted_is_neither_given_up_nor_withdrawn_for_an_earlier_one() {
    let first = standing("ge", 9, 7, ticket());
    let granted = Ticket { is_granted: true, ..ticket() };
    // There is no mark yet for the time that is asked for now.
    let mut grabber = process(true, 9, at(1));
    list(&mut grabber, &[first.clone(), standing("g2", 8, 8, granted)], 20, at(1));
    let own = write(&mut grabber, 8, 21, at(1));
    list(&mut grabber, &[first.clone(), standing("g2", 21, 8, own)], 21, at(1));
    assert!(matches!(grabber.next(at(1)), Step::Remove(removed, _) if removed == first));
    let denied = Written::Denied("a full stream".to_owned());
    grabber.handle(Input::Written(denied.clone()), at(1));
    rest(&mut grabber, at(2));
    list(&mut grabber, &[first.clone(), standing("g2", 21, 8, ticket())], 21, at(2));
    assert!(matches!(grabber.next(at(2)), Step::Remove(..)));
    grabber.handle(Input::Written(denied), at(6));
    let ended = ended(&grabber);
    assert!(matches!(ended, Some(ToFront::Ended(End::Refused(..)))), "{ended:?}");
}

/// An attempt in a loop left a ticket each time, until one had the names.
#[test]
fn a_process_that_waits_removes_earlier_tickets_of_its_requester_that_are_dead() {
    let old = aged(standing("ge", 9, 7, ticket()), 61);
    let after = |noted: (Revision, Observed), now: Instant| {
        let mut grabber = process_of(ticket(), ("boot", noted), false, 10, now);
        list(&mut grabber, &[other(6), old.clone()], 20, now);
        let own = standing(NEW, 21, 21, write(&mut grabber, 0, 21, now));
        list(&mut grabber, &[other(6), old.clone(), own], 21, now);
        grabber
    };
    let mut first = after(nothing(), at(1));
    let mut seen = noted(&mut first, at(1));
    assert_eq!(queued(&first), (21, 1));
    seen.forget(Revision(6));
    let mut later = after((Revision(22), seen), at(1).after(Duration::from_millis(10_100)));
    let removal = later.next(at(12));
    assert!(matches!(&removal, Step::Remove(removed, _) if *removed == old), "{removal:?}");
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
        let new = standing(NEW, 22, 21, write(&mut grabber, 21, 22, at(1)));
        list(&mut grabber, &[old.clone(), new.clone()], 22, at(1));
        let Step::Remove(removed, _) = grabber.next(at(1)) else { panic!("it stays") };
        assert_eq!(removed, old);
        grabber.handle(Input::Written(Written::Stored(Revision(23))), at(1));
        list(&mut grabber, &[new], 23, at(1));
        grant(&mut grabber, (22, 21), at(1));
    }
}

/// Performs the steps of a process on a bucket, until it ends or the next step is of this kind.
fn perform(grabber: &mut TicketOwner, bucket: &mut Bucket, now: Instant, until: fn(&Step) -> bool) {
    bucket.now = now.since_boot().as_micros() as u64;
    for _ in 0..30 {
        let step = grabber.next(now);
        if step == Step::Exit || until(&step) {
            return;
        }
        let element = grabber.key_element();
        let answer = bucket.answer(step, &element, Chances::default()).0;
        grabber.handle(answer, now);
    }
    panic!("it does not end: {:?}", grabber.next(now));
}

/// The process that had removed the ticket was killed before it was told of its own one, and a
/// process that keeps no place withdrew that: others had the lock while the first process of the
/// requester had it.
#[test]
fn nobody_withdraws_a_ticket_that_protects_another_process_of_the_requester() {
    let mut bucket = Bucket::new(1);
    let mark = Mark { revision: Revision(0), epoch: "1".to_owned(), lifetime: 10 * SECOND };
    bucket.answer(Step::WriteMark(mark, at(0)), "", Chances::default());
    let begin = |nonce: u128, seconds: u32, requester: u128, withdraws: bool, now: Instant| {
        let timing = timing(seconds * SECOND, 10_000).expect("times");
        let (lifetime, incarnation) = (seconds * SECOND, Incarnation(requester));
        let ticket = Ticket { lifetime, incarnation, attempt: (nonce as u64) << 9, ..ticket() };
        let owner = TicketOwner::new(timing, ticket, nonce, Some(Duration::ZERO), now);
        owner.for_script(withdraws).with_notes("boot")
    };
    let never = |_: &Step| false;
    let mut first = begin(1, 10, 1, false, at(1));
    perform(&mut first, &mut bucket, at(1), never);
    let valid_until = first.valid_until().expect("a ticket");
    assert!(matches!(ended(&first), Some(ToFront::Granted { .. })) && valid_until > at(10));
    // Another server leads, whose clock is ahead.
    bucket.ahead = 9_000_000;
    let mut second = begin(2, 10, 1, false, at(3));
    perform(&mut second, &mut bucket, at(3), |step| matches!(step, Step::Remove(..)));
    let removal = second.next(at(3));
    assert!(matches!(removal, Step::Remove(..)), "{removal:?}");
    bucket.answer(removal, "", Chances::default());
    // There is no mark for 20 s.
    perform(&mut begin(3, 20, 1, true, at(4)), &mut bucket, at(4), never);
    let mut other = begin(4, 10, 2, false, at(5));
    perform(&mut other, &mut bucket, at(5), never);
    assert!(matches!(ended(&other), Some(ToFront::Waiting { .. })), "{:?}", ended(&other));
}
