//! Stories of slots, of circles of waits, and of tickets that let others go first.

use super::super::*;
use super::{listing, opened};
use crate::core::event::Written;
use crate::core::record::Incarnation;
use crate::core::tickets::Mode;

/// Performs the write that is next, which gets this number, beside a listing of these tickets.
fn write_beside(owner: &mut TicketOwner, number: u64, others: &[StoredTicket], now: Instant) {
    let Step::Write(_, known, ticket, ..) = owner.next(now) else { panic!("no write") };
    let key = format!("lock.a.{}", owner.key_element());
    let revision = Revision(number);
    let own = StoredTicket {
        key,
        revision,
        number: known.unwrap_or(revision),
        stored_at: None,
        ticket: Ok(ticket),
    };
    let listed = listing([others, &[own]].concat(), revision);
    owner.handle(Input::Written(Written::Stored(revision)), now);
    owner.handle(Input::Listed(listed), now);
}

/// Returns another's ticket with this number: that of `owner`, after `change`.
fn other(owner: &TicketOwner, number: u64, change: impl FnOnce(&mut Ticket)) -> StoredTicket {
    let mut ticket = Ticket { incarnation: Incarnation(9), ..owner.ticket.clone() };
    change(&mut ticket);
    let (key, number) = (format!("lock.a.other{number}"), Revision(number));
    StoredTicket { key, revision: number, number, stored_at: None, ticket: Ok(ticket) }
}

/// A process that lists the tickets later sees which slot is free.
#[test]
fn a_slot_is_written_into_the_ticket_before_it_is_granted() {
    let (mut owner, begin) = opened();
    owner.ticket.mode = Mode::Slots(2);
    let holder = other(&owner, 5, |ticket| ticket.slot = Some(0));
    write_beside(&mut owner, 7, std::slice::from_ref(&holder), begin);
    assert_eq!(owner.take_messages(), []);
    let Step::Write(_, _, ticket, ..) = owner.next(begin) else { panic!("not written") };
    assert_eq!(ticket.slot, Some(1));
    write_beside(&mut owner, 8, &[holder], begin);
    let granted = owner.take_messages();
    assert!(
        matches!(granted[..], [ToFront::Granted { slot: Some(1), term: 7, .. }]),
        "{granted:?}"
    );
}

#[test]
fn a_ticket_that_is_begun_anew_has_no_slot_yet() {
    let (mut owner, begin) = opened();
    (owner.ticket.mode, owner.ticket.slot) = (Mode::Slots(2), Some(1));
    owner.own = Some(Own {
        element: owner.key_element(),
        number: Revision(7),
        revision: Revision(7),
        lifetime: owner.timing.lifetime(),
        valid_until: begin.after(owner.validity()),
        renew_at: begin.after(owner.step()),
        earlier_keys: EarlierKeys::default(),
    });
    owner.phase = Phase::Listing;
    owner.handle(Input::Listed(listing(Vec::new(), Revision(9))), begin);
    let Step::Write(_, None, ticket, ..) = owner.next(begin) else { panic!("not anew") };
    assert_eq!(ticket.slot, None);
}

/// The owner of such a ticket was refused, also when the holder was dead: then for ever.
#[test]
fn a_dead_holder_of_another_number_of_slots_is_removed() {
    let (mut owner, begin) = opened();
    owner.ticket.mode = Mode::Slots(2);
    let holder = other(&owner, 5, |ticket| ticket.mode = Mode::Slots(3));
    write_beside(&mut owner, 7, std::slice::from_ref(&holder), begin);
    let told = owner.take_messages();
    assert!(matches!(told[..], [ToFront::Waiting { ahead: 1, .. }]), "{told:?}");
    assert!(matches!(owner.next(begin), Step::Watch(_)));
    owner.handle(Input::Subscribed, begin);
    let mut now = begin;
    for number in 8..12 {
        now = now.after(owner.timing.renewal());
        owner.handle(Input::Rested, now);
        write_beside(&mut owner, number, std::slice::from_ref(&holder), now);
    }
    assert!(matches!(owner.next(now), Step::Remove(it, _) if it == holder));
}

/// Returns an owner that lets others go first, and the time.
fn soft(quiet_for: u64, hard_after: Option<u64>) -> (TicketOwner, Instant) {
    let (mut owner, begin) = opened();
    let hard_after = hard_after.map(Duration::from_secs);
    let soft = Soft { quiet_for: Duration::from_secs(quiet_for), hard_after };
    owner.asker = Asker::Command(Some(soft));
    owner.begin(begin);
    (owner, begin)
}

/// Has the owner probe, where these tickets stand, before it has one.
fn probe(owner: &mut TicketOwner, standing: &[StoredTicket], now: Instant) {
    if let Step::Rest(_) = owner.next(now) {
        owner.handle(Input::Rested, now);
    }
    assert!(matches!(owner.next(now), Step::List(EarlierKeys(None), _)));
    owner.handle(Input::Listed(listing(standing.to_vec(), Revision(5))), now);
}

#[test]
fn a_soft_ticket_is_not_written_while_others_hold_the_name() {
    let (mut owner, begin) = soft(0, None);
    let reader = other(&owner, 5, |ticket| ticket.mode = Mode::Shared);
    for seconds in 0..2 {
        let now = begin.after(Duration::from_secs(seconds));
        probe(&mut owner, std::slice::from_ref(&reader), now);
        let Step::Rest(until) = owner.next(now) else { panic!("it does not wait") };
        let told = owner.last_message.clone();
        assert!(matches!(told, Some(ToFront::Waiting { ahead: 0, .. })), "it has no place");
        assert!(until.since(now) <= Duration::from_millis(500));
    }
    let now = begin.after(Duration::from_secs(2));
    probe(&mut owner, &[], now);
    write_beside(&mut owner, 7, &[], now);
    assert!(matches!(owner.take_messages()[..], [.., ToFront::Granted { term: 7, .. }]));
}

/// Somebody was faster: a reader that comes now must not wait behind this ticket.
#[test]
fn a_soft_ticket_that_is_not_granted_at_once_is_withdrawn() {
    let (mut owner, begin) = soft(0, None);
    probe(&mut owner, &[], begin);
    let (reader, key) = (other(&owner, 6, |_| ()), owner.key_element());
    write_beside(&mut owner, 7, std::slice::from_ref(&reader), begin);
    assert!(matches!(owner.next(begin), Step::End(Revision(7), ..)));
    owner.handle(Input::Written(Written::Stored(Revision(8))), begin);
    let now = begin.after(Duration::from_secs(1));
    owner.handle(Input::Rested, now);
    assert!(matches!(owner.next(now), Step::List(EarlierKeys(None), _)));
    assert_ne!(owner.key_element(), key, "the old key has a tombstone");
}

#[test]
fn a_name_has_to_be_quiet_for_the_whole_time_before_a_ticket_is_written() {
    let (mut owner, begin) = soft(2, None);
    let at = |millis| begin.after(Duration::from_millis(millis));
    let reader = other(&owner, 5, |ticket| ticket.mode = Mode::Shared);
    probe(&mut owner, &[], at(0));
    probe(&mut owner, &[], at(1_000));
    probe(&mut owner, &[reader], at(1_500));
    probe(&mut owner, &[], at(2_000));
    probe(&mut owner, &[], at(3_999));
    assert_eq!(owner.next(at(3_999)), Step::Rest(at(4_000)));
    probe(&mut owner, &[], at(4_000));
    assert!(matches!(owner.next(at(4_000)), Step::Write(..)));
}

#[test]
fn a_soft_ticket_queues_after_its_time_and_stays_in_the_queue() {
    let (mut owner, begin) = soft(0, Some(3));
    let reader = other(&owner, 5, |ticket| ticket.mode = Mode::Shared);
    probe(&mut owner, std::slice::from_ref(&reader), begin);
    let now = begin.after(Duration::from_secs(3));
    probe(&mut owner, std::slice::from_ref(&reader), now);
    write_beside(&mut owner, 7, &[reader], now);
    assert!(matches!(owner.next(now), Step::Watch(_)));
}

#[test]
fn a_soft_ticket_gives_up_when_its_time_to_wait_is_over() {
    let (mut owner, begin) = soft(0, None);
    let limit = begin.after(Duration::from_secs(2));
    owner.goal = Goal::Get(Some(limit));
    let reader = other(&owner, 5, |ticket| ticket.mode = Mode::Shared);
    probe(&mut owner, std::slice::from_ref(&reader), begin);
    probe(&mut owner, &[reader], limit);
    assert_eq!(owner.next(limit), Step::Exit);
    let ended = owner.take_messages().pop();
    assert_eq!(ended, Some(ToFront::Ended(End::NotHad("behind alpha, shared".to_owned()))));
}

/// Without the removal it would let a dead holder go first for ever.
#[test]
fn a_soft_ticket_removes_a_dead_holder_and_probes_again() {
    let (mut owner, begin) = soft(0, None);
    let dead = other(&owner, 5, |_| ());
    probe(&mut owner, std::slice::from_ref(&dead), begin);
    let later = begin.after(owner.timing.removal_wait(owner.timing.lifetime()));
    probe(&mut owner, std::slice::from_ref(&dead), later);
    assert!(matches!(owner.next(later), Step::Remove(removed, _) if removed == dead));
    owner.handle(Input::Written(Written::Stored(Revision(6))), later);
    probe(&mut owner, &[], later);
    assert!(matches!(owner.next(later), Step::Write(..)));
}
