//! The end of the own ticket.

use super::*;

#[test]
fn the_end_of_a_ticket_is_repeated_until_it_has_an_answer() {
    let (mut owner, begin) = waiting();
    owner.handle(Input::Done, begin);
    assert!(matches!(owner.next(begin), Step::End(Revision(8), ..)));
    let unknown = Written::Unknown("no answer".to_owned());
    owner.handle(Input::Written(unknown), begin);
    let later = begin.after(Duration::from_secs(1));
    owner.handle(Input::Rested, later);
    assert!(matches!(owner.next(later), Step::End(Revision(8), ..)));
    owner.handle(Input::Written(Written::Stored(Revision(11))), later);
    assert_eq!(owner.next(later), Step::Exit);
    assert_eq!(owner.take_messages().last(), Some(&ToFront::Ended(End::Released)));
}

fn end_finds_another_revision(owner: &mut TicketOwner, at: Revision, now: Instant) {
    assert!(matches!(owner.next(now), Step::End(expected, ..) if expected == at));
    owner.handle(Input::Written(Written::Moved(None)), now);
    assert!(matches!(owner.next(now), Step::ReadOwn(_)));
}

/// The ticket of a command that ended before its next renewal had been broken. The lock was said to
/// be released.
#[test]
fn a_lock_that_was_broken_before_its_release_is_not_said_to_be_released() {
    for is_granted in [false, true] {
        for has_answer in [true, false] {
            let (mut owner, begin) = waiting();
            owner.ticket.is_granted = is_granted;
            owner.handle(Input::Done, begin);
            let later = begin.after(Duration::from_millis(500));
            if !has_answer {
                // This copy may have ended the ticket.
                assert!(matches!(owner.next(begin), Step::End(Revision(8), ..)));
                owner.handle(Input::Written(Written::Unknown("no answer".to_owned())), begin);
                owner.handle(Input::Done, begin);
                owner.handle(Input::Rested, later);
            }
            end_finds_another_revision(&mut owner, Revision(8), later);
            owner.handle(Input::Own(Ok((Revision(12), None))), later);
            assert_eq!(owner.next(later), Step::Exit);
            let text = "its ticket was removed or replaced, another may have had the lock";
            let due = match has_answer && is_granted {
                true => End::Lost(text.to_owned()),
                false => End::Released,
            };
            assert_eq!(owner.take_messages().last(), Some(&ToFront::Ended(due)));
        }
    }
}

/// A renewal without an answer was looked for before the server stored it. Its ticket was not
/// ended, and the next process waited until it ran out.
#[test]
fn a_ticket_whose_renewal_is_stored_behind_its_back_is_ended_all_the_same() {
    let (mut owner, begin) = waiting();
    owner.ticket.is_granted = true;
    let sent = owner.ticket.clone();
    owner.handle(Input::Done, begin);
    end_finds_another_revision(&mut owner, Revision(8), begin);
    owner.handle(Input::Own(Ok((Revision(8), Some(sent.clone())))), begin);
    assert!(matches!(owner.next(begin), Step::Rest(_)), "the read is old");
    let later = begin.after(Duration::from_secs(1));
    owner.handle(Input::Rested, later);
    end_finds_another_revision(&mut owner, Revision(8), later);
    owner.handle(Input::Own(Ok((Revision(12), Some(sent)))), later);
    assert!(matches!(owner.next(later), Step::End(Revision(12), ..)));
    owner.handle(Input::Written(Written::Stored(Revision(13))), later);
    assert_eq!(owner.next(later), Step::Exit);
    assert_eq!(owner.take_messages().last(), Some(&ToFront::Ended(End::Released)));
}

/// Otherwise its ticket could stand, and hold up the others until it runs out.
#[test]
fn who_withdraws_while_the_first_write_has_no_answer_inspects_whether_it_was_stored() {
    let (mut owner, begin) = opened();
    let Step::Write(_, _, sent, ..) = owner.next(begin) else { panic!("not written") };
    let unknown = Written::Unknown("no answer".to_owned());
    owner.handle(Input::Written(unknown), begin);
    owner.handle(Input::Done, begin);
    assert!(matches!(owner.next(begin), Step::ReadOwn(_)));
    owner.handle(Input::Own(Ok((Revision(7), Some(sent)))), begin);
    assert!(matches!(owner.next(begin), Step::End(Revision(7), ..)));
}
