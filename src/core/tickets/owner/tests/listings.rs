//! How often a ticket that waits lists the others.

use super::*;

/// Returns an owner whose ticket of number 7 waits for these other ones, and since when. The
/// subscription to the hints of the last of them has been made.
fn waiting_for(others: &[StoredTicket]) -> (TicketOwner, Instant) {
    let (mut owner, begin) = opened();
    renewed(&mut owner, Revision(7), others, begin);
    assert!(matches!(owner.next(begin), Step::Watch(_)));
    owner.handle(Input::Subscribed, begin);
    renewed(&mut owner, Revision(8), others, begin);
    (owner, begin)
}

/// The ticket is written with a listing, which has these others.
fn renewed(owner: &mut TicketOwner, at: Revision, others: &[StoredTicket], now: Instant) {
    let Step::Write(_, _, ticket, ..) = owner.next(now) else { panic!("not listed") };
    let own = StoredTicket { revision: at, ..stored(&owner.key_element(), 7, ticket) };
    let standing = others.iter().cloned().chain([own]).collect();
    owner.handle(Input::Written(Written::Stored(at)), now);
    owner.handle(Input::Listed(listing(standing, at)), now);
}

fn stored(element: &str, number: u64, ticket: Ticket) -> StoredTicket {
    let (key, number) = (format!("lock.a.{element}"), Revision(number));
    StoredTicket { key, revision: number, number, stored_at: None, ticket: Ok(ticket) }
}

/// Returns the ticket of another.
fn other(number: u64, mode: Mode) -> StoredTicket {
    let incarnation = Incarnation(u128::from(number) + 8);
    let lifetime = opened().0.timing.lifetime();
    let ticket = Ticket { mode, incarnation, lifetime, ..Ticket::sample("a") };
    stored(&number.to_string(), number, ticket)
}

/// Each of 66 waiters had all before it read twice in each R: 9,300 messages a second, until the
/// server dropped the requests of everybody.
#[test]
fn a_ticket_behind_a_live_one_that_waits_is_renewed_alone_until_others_may_be_dead() {
    let others = [other(5, Mode::Exclusive), other(6, Mode::Exclusive)];
    let (mut owner, begin) = waiting_for(&others);
    let dead_at = begin.after(owner.timing.removal_wait(owner.timing.lifetime()));
    let (mut now, mut at) = (begin, Revision(8));
    while let Step::Rest(until) = owner.next(now)
        && until < dead_at
    {
        owner.handle(Input::Renewed(None), now);
        assert!(matches!(owner.next(now), Step::Rest(_)), "a renewal changes nothing");
        now = until;
        owner.handle(Input::Rested, now);
        assert!(matches!(owner.next(now), Step::Write(..)), "alone");
        at.0 += 1;
        owner.handle(Input::Written(Written::Stored(at)), now);
    }
    assert_eq!(at, Revision(11), "it was renewed each R");
    owner.handle(Input::Rested, dead_at);
    let step = owner.next(dead_at);
    assert!(matches!(step, Step::List(..)), "{step:?}");
}

#[test]
fn a_ticket_whose_last_one_before_is_silent_or_does_not_wait_for_the_others_lists_each_r() {
    let readers = [other(5, Mode::Shared), other(6, Mode::Shared)];
    let silent = [other(5, Mode::Exclusive), other(6, Mode::Exclusive)];
    for (others, is_heard) in [(readers, true), (silent, false)] {
        let (mut owner, begin) = waiting_for(&others);
        if is_heard {
            owner.handle(Input::Renewed(None), begin);
        }
        let renew_at = begin.after(owner.timing.renewal());
        owner.handle(Input::Rested, renew_at);
        assert!(matches!(owner.next(renew_at), Step::Write(..)), "{others:?}");
        owner.handle(Input::Written(Written::Stored(Revision(9))), renew_at);
        assert!(matches!(owner.next(renew_at), Step::List(..)), "{others:?}");
    }
}

/// A script behind a ticket that was renewed often never listed, so its renewals named an instant
/// long ago, did not count, and its next attempt got a later place.
#[test]
fn a_script_behind_a_live_one_lists_after_each_renewal_so_that_the_next_one_counts() {
    let (mut owner, begin) = waiting_for(&[other(6, Mode::Exclusive)]);
    owner.asker = Asker::Script { withdraws: false };
    owner.stood_at = Some(StoreTime(Duration::from_secs(1000)));
    owner.handle(Input::Renewed(None), begin);
    let renew_at = begin.after(owner.timing.renewal());
    owner.handle(Input::Rested, renew_at);
    assert!(matches!(owner.next(renew_at), Step::Write(..)));
    owner.handle(Input::Written(Written::Stored(Revision(9))), renew_at);
    assert!(matches!(owner.next(renew_at), Step::List(..)));
}

/// Waiters asked a store that did not answer within R again at once, and it never caught up.
#[test]
fn a_store_that_is_too_slow_to_list_is_left_alone_for_as_long_as_it_was_asked() {
    let (mut owner, begin) = waiting_for(&[other(6, Mode::Exclusive)]);
    let step = owner.timing.renewal();
    owner.handle(Input::Ended(None), begin);
    assert!(matches!(owner.next(begin), Step::List(..)));
    let renew_at = begin.after(step);
    owner.handle(Input::Listed(Err("no answer".to_owned())), renew_at);
    assert_eq!(owner.next(renew_at), Step::Rest(renew_at));
    owner.handle(Input::Rested, renew_at);
    assert!(matches!(owner.next(renew_at), Step::Write(..)), "the ticket is kept");
    owner.handle(Input::Written(Written::Stored(Revision(9))), renew_at);
    let list_at = renew_at.after(step);
    assert_eq!(owner.next(renew_at), Step::Rest(list_at));
}

/// A process was stopped for an hour during a listing that had no answer, and asked no more for
/// another hour.
#[test]
fn a_process_that_was_stopped_during_a_listing_asks_again_within_r() {
    let (mut owner, begin) = opened();
    let soft = Soft { quiet_for: Duration::ZERO, hard_after: None };
    owner.asker = Asker::Command(Some(soft));
    owner.begin(begin);
    assert!(matches!(owner.next(begin), Step::List(..)));
    let continued = begin.after(Duration::from_secs(3600));
    owner.handle(Input::Listed(Err("no answer".to_owned())), continued);
    let Step::Rest(until) = owner.next(continued) else { panic!("no rest") };
    assert!(until <= continued.after(owner.timing.renewal()), "{until:?}");
}
