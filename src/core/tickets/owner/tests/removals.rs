//! In which order the tickets of dead owners are removed.

use super::*;

/// Returns an owner of this number before whose ticket so many others stand, and the instant at
/// which it was renewed last: then they have not moved for long enough.
fn behind_dead(nonce: u128, count: u64) -> (TicketOwner, Instant) {
    let (mut owner, begin) = opened();
    owner.nonce = (nonce, 0);
    let wait = owner.timing.removal_wait(owner.timing.lifetime());
    let dead_at = begin.after(wait);
    let (number, mut revision) = (Revision(100), Revision(100));
    for now in [begin, begin.after(wait / 2), dead_at] {
        owner.phase = Phase::Writing;
        assert!(matches!(owner.next(now), Step::Write(..)));
        owner.handle(Input::Written(Written::Stored(revision)), now);
        owner.handle(listed(&owner, (number, revision), count), now);
        revision = Revision(revision.0 + 1);
    }
    (owner, dead_at)
}

/// Returns a listing in which so many others stand before the own ticket, of this number, at this
/// revision.
fn listed(owner: &TicketOwner, (number, revision): (Revision, Revision), count: u64) -> Input {
    let (key, ticket) = (format!("lock.a.{}", owner.key_element()), owner.ticket().clone());
    let own = StoredTicket { key, revision, number, stored_at: None, ticket: Ok(ticket.clone()) };
    let other = |number| StoredTicket {
        key: format!("lock.a.{number}"),
        revision: Revision(number),
        number: Revision(number),
        stored_at: None,
        ticket: Ok(Ticket { incarnation: Incarnation(9), ..ticket.clone() }),
    };
    Input::Listed(listing((1..=count).map(other).chain([own]).collect(), revision))
}

/// Returns the tickets that an owner removes before it does something else.
fn removed(owner: &mut TicketOwner, now: Instant) -> Vec<u64> {
    let mut removed = Vec::new();
    while let Step::Remove(other, _) = owner.next(now) {
        removed.push(other.number.0);
        owner.handle(Input::Written(Written::Stored(Revision(200))), now);
    }
    removed
}

/// Dozens of owners removed the same ticket, one of them did, and they listed again: hundreds that
/// crashed hosts had left kept everybody waiting.
#[test]
fn owners_begin_with_different_ones_and_remove_many_before_they_list_again() {
    let firsts: BTreeSet<u64> = (0..20)
        .map(|nonce| {
            let (mut owner, now) = behind_dead(nonce, 40);
            let removed = removed(&mut owner, now);
            assert_eq!(removed.len(), 16);
            assert!(matches!(owner.next(now), Step::List(..)));
            removed[0]
        })
        .collect();
    assert_eq!(firsts.len(), 20);
    let (mut owner, now) = behind_dead(3, 5);
    let mut all = removed(&mut owner, now);
    all.sort_unstable();
    assert_eq!(all, [1, 2, 3, 4, 5]);
}

#[test]
fn the_own_ticket_is_renewed_in_time_however_many_are_to_be_removed() {
    let (mut owner, now) = behind_dead(3, 40);
    assert!(matches!(owner.next(now), Step::Remove(..)));
    let due = now.after(owner.timing.renewal());
    owner.handle(Input::Written(Written::Moved(None)), due);
    assert!(matches!(owner.next(due), Step::Write(..)));
}

/// A server that was behind showed the same old entry again and again: the removal of a ticket that
/// had moved was tried as often.
#[test]
fn what_has_moved_is_not_removed_again_because_an_old_listing_shows_it_unmoved() {
    let (mut owner, now) = behind_dead(3, 1);
    assert!(matches!(owner.next(now), Step::Remove(..)));
    owner.handle(Input::Written(Written::Moved(None)), now);
    let Step::Rest(later) = owner.next(now) else { panic!("no pause") };
    owner.handle(Input::Rested, later);
    assert!(matches!(owner.next(later), Step::List(..)));
    owner.handle(listed(&owner, (Revision(100), Revision(102)), 1), later);
    assert!(!matches!(owner.next(later), Step::Remove(..)));
}
