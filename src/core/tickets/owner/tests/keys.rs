//! Which key the ticket of an owner has.

use super::*;

/// Others may have removed a ticket that was stored without an answer, and the store its tombstone.
/// The key was written again then: a waiter that read the tombstone from a server that was behind
/// was granted the lock beside the new ticket.
#[test]
fn a_key_whose_first_write_has_no_answer_for_too_long_is_not_written_again() {
    let (mut owner, begin) = opened();
    let keys_at = |owner: &mut TicketOwner, now| {
        let Step::Write(at, None, ..) = owner.next(now) else { panic!("it is written") };
        assert_eq!(at, Revision(0));
        owner.handle(Input::Written(Written::Unknown("no answer".to_owned())), now);
        owner.handle(Input::Rested, now.after(Duration::from_millis(500)));
        owner.key_element()
    };
    let validity = owner.validity();
    let first = keys_at(&mut owner, begin);
    let still = keys_at(&mut owner, begin.after(validity - Duration::from_millis(1)));
    let next = keys_at(&mut owner, begin.after(validity));
    assert_eq!(first, still);
    assert_ne!(first, next);
    // Nor does the answer to a write count that comes too late.
    let late = begin.after(validity * 2);
    owner.handle(Input::Written(Written::Stored(Revision(7))), late);
    ends_and_begins_anew(&mut owner, 7, late);
}

/// Expects that the own ticket is ended at this revision, and another one is written.
fn ends_and_begins_anew(owner: &mut TicketOwner, revision: u64, now: Instant) {
    let key = owner.key_element();
    let Step::End(at, ..) = owner.next(now) else { panic!("{:?}", owner.phase) };
    assert_eq!(at, Revision(revision));
    owner.handle(Input::Written(Written::Stored(Revision(revision + 1))), now);
    owner.handle(Input::Rested, now.after(Duration::from_secs(1)));
    let now = now.after(Duration::from_secs(1));
    owner.handle(Input::Listed(listing(Vec::new(), Revision(revision + 1))), now);
    let Step::Write(Revision(0), None, ..) = owner.next(now) else { panic!("{:?}", owner.phase) };
    assert_ne!(owner.key_element(), key);
}

/// Others had removed it, and were granted the lock. A server that was killed restored it: the
/// renewal was stored, and its owner was granted the lock beside them.
#[test]
fn a_renewal_whose_answer_comes_after_v_of_the_one_before_does_not_count() {
    let owner = waiting().0;
    let (early, late) = (owner.timing.renewal(), owner.validity());
    for (sent, answered) in [(early, early * 2), (early, late)] {
        let is_late = answered >= late;
        let (mut owner, begin) = waiting();
        let (sent, now) = (begin.after(sent), begin.after(answered));
        owner.handle(Input::Rested, sent);
        assert!(matches!(owner.next(sent), Step::Write(..)));
        owner.handle(Input::Written(Written::Stored(Revision(9))), now);
        match is_late {
            true => ends_and_begins_anew(&mut owner, 9, now),
            false => assert!(matches!(owner.next(now), Step::List(..))),
        }
    }
}

#[test]
fn a_holder_has_lost_its_lock_if_a_renewal_is_answered_after_v_of_the_one_before() {
    let owner = waiting().0;
    let (renewal, validity) = (owner.timing.renewal(), owner.validity());
    for (after, is_late) in [(validity, true), (renewal * 2, false)] {
        let (mut owner, begin) = waiting();
        let sent = begin.after(renewal);
        (owner.goal, owner.phase) = (Goal::Keep, Phase::Writing);
        owner.ticket.is_granted = true;
        assert!(matches!(owner.next(sent), Step::Write(..)));
        owner.handle(Input::Written(Written::Stored(Revision(9))), begin.after(after));
        let told = owner.take_messages().pop();
        assert_eq!(matches!(told, Some(ToFront::Lost(_))), is_late, "{told:?}");
    }
}

/// The bucket was restored from a backup, or its last writes are lost.
#[test]
fn a_ticket_whose_number_is_below_a_known_revision_is_refused() {
    for (revision, is_refused) in [(8, true), (9, false)] {
        let (mut owner, begin) = opened();
        owner.last = Revision(8);
        assert!(matches!(owner.next(begin), Step::Write(..)));
        owner.handle(Input::Written(Written::Stored(Revision(revision))), begin);
        let refused = matches!(owner.goal, Goal::End(End::Refused(..), _));
        assert_eq!(refused, is_refused, "{:?}", owner.goal);
    }
}

/// The key of the ticket was removed, and somebody has written another ticket there.
#[test]
fn the_ticket_of_another_owner_under_the_own_key_is_not_the_own() {
    let (mut owner, begin) = waiting();
    let later = begin.after(owner.timing.renewal());
    owner.handle(Input::Rested, later);
    let Step::Write(_, _, sent, ..) = owner.next(later) else { panic!("not renewed") };
    moves(&mut owner, later);
    let others = Ticket { incarnation: Incarnation(9), ..sent };
    owner.handle(Input::Own(Ok((Revision(12), Some(others)))), later);
    assert_eq!(owner.own, None);
    assert!(matches!(owner.next(later), Step::Write(Revision(0), None, ..)));
}

/// The write that is under way has no answer, and is refused when it is repeated.
fn moves(owner: &mut TicketOwner, now: Instant) {
    owner.handle(Input::Written(Written::Unknown("no answer".to_owned())), now);
    owner.handle(Input::Rested, now.after(Duration::from_secs(1)));
    assert!(matches!(owner.next(now), Step::Write(..)));
    owner.handle(Input::Written(Written::Moved(None)), now);
}

#[test]
fn a_ticket_that_was_removed_while_it_waited_is_begun_anew() {
    let (mut owner, begin) = waiting();
    let key = owner.key_element();
    owner.handle(Input::Ended(None), begin);
    owner.handle(Input::Listed(listing(Vec::new(), Revision(12))), begin);
    let Step::Write(at, None, ..) = owner.next(begin) else { panic!("not begun anew") };
    assert_eq!(at, Revision(0));
    assert_ne!(owner.key_element(), key, "the old key has a tombstone");
}

/// The write before it stands: the answer is older than the write, which may come yet.
#[test]
fn an_earlier_write_does_not_count_as_the_one_without_an_answer() {
    let (mut owner, begin) = waiting();
    let later = begin.after(owner.timing.renewal());
    owner.handle(Input::Rested, later);
    let Step::Write(_, _, sent, ..) = owner.next(later) else { panic!("not renewed") };
    moves(&mut owner, later);
    assert!(matches!(owner.next(later), Step::ReadOwn(_)));
    let before = Ticket { attempt: sent.attempt - 1, ..sent };
    owner.handle(Input::Own(Ok((Revision(8), Some(before)))), later);
    assert!(owner.write.is_some(), "it is not decided");
    assert_eq!(owner.valid_until(), Some(begin.after(owner.validity())), "V does not move");
}
