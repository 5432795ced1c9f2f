//! The tickets before the own one: whether it is granted, and what it waits for.

use std::collections::BTreeSet;

use super::notes::Waited;
use super::{Phase, TicketOwner};
use crate::core::record::Revision;
use crate::core::tickets::decision::{Decision, decide, describe, some_of_dead};
use crate::core::tickets::{StoredTicket, ToFront};
use crate::core::time::Instant;

impl TicketOwner {
    pub(super) fn listed(&mut self, standing: Vec<StoredTicket>, last: Revision, now: Instant) {
        if self.phase == Phase::Probing {
            return self.probed(standing, last, now);
        }
        let key = self.key_element();
        let Some(own) = &mut self.own else {
            self.phase = Phase::ReadingMark;
            return;
        };
        if !own.is_reached_by(last) || last < self.hinted {
            // Of a hint that the next listing does not reach either, nobody knows who sent it.
            self.hinted = self.hinted.min(last);
            return self.failed("the listing is old".to_owned(), Phase::Listing, now);
        }
        let is_own = |other: &StoredTicket| other.key.ends_with(&key);
        if last >= own.revision && !standing.iter().any(is_own) {
            return self.gone("its ticket was removed", now);
        }
        own.earlier_keys.learn(&key, own.number, &standing);
        let number = own.number;
        let others: Vec<_> = standing.into_iter().filter(|other| !is_own(other)).collect();
        match decide(&self.ticket, number, &others) {
            Decision::Granted => {
                let times = self.timing.kill_times(own.valid_until(self.timing));
                if times.terminate_at < now.after(self.timing.renewal()) {
                    self.phase = Phase::Writing;
                } else {
                    self.granted();
                }
            }
            Decision::Slot(slot) => {
                self.ticket.slot = Some(slot);
                self.phase = Phase::Writing;
            }
            Decision::Wait { .. } if self.is_soft(now) => self.phase = Phase::Withdrawing,
            Decision::Wait { blockers, watched } => {
                self.wait_for(&blockers, watched, now);
            }
        }
    }

    /// The ticket waits for others, of which the watched ones are heard of.
    fn wait_for(&mut self, blockers: &[StoredTicket], watched: BTreeSet<String>, now: Instant) {
        let why = describe(blockers);
        if self.removes_dead(blockers, now) || self.leaves(&why, Waited::for_tickets(blockers), now)
        {
            return;
        }
        let removals = blockers.iter().filter_map(|other| self.removal_at(other));
        let renew_at = self.own.as_ref().map_or(now, |own| own.renew_at(self.timing));
        let until = removals.fold(renew_at, Instant::min);
        self.phase = if watched.is_subset(&self.watched) {
            Phase::Resting(until, Box::new(Phase::Listing))
        } else {
            Phase::Watching(watched)
        };
        self.tell(ToFront::Waiting { ahead: blockers.len() as u64, why });
    }

    /// Begins to remove tickets that have not moved for too long, if there are some.
    pub(super) fn removes_dead(&mut self, blockers: &[StoredTicket], now: Instant) -> bool {
        self.seen.see(blockers.iter().map(|other| other.revision), now);
        let is_dead = |other: &&StoredTicket| self.removal_at(other).is_some_and(|at| at <= now);
        let dead = blockers.iter().filter(is_dead).cloned().collect();
        let Some(dead) = some_of_dead(dead, self.nonce.0) else { return false };
        self.phase = Phase::Removing(dead);
        true
    }

    /// A ticket was removed, by this owner or another. The next one follows, unless the own ticket
    /// is to be renewed.
    pub(super) fn next_removal(&mut self, now: Instant) {
        if let Phase::Removing(dead) = &mut self.phase {
            dead.pop();
            let is_over = dead.is_empty();
            let next = self.listing_or_renewal(now);
            if is_over || next == Phase::Writing {
                self.phase = next;
            }
        }
    }

    /// Returns when this ticket of another may be removed; `None` if it was not seen.
    fn removal_at(&self, other: &StoredTicket) -> Option<Instant> {
        let lifetime = match &other.ticket {
            Ok(ticket) => ticket.lifetime,
            Err(unreadable) => unreadable.lifetime.unwrap_or(self.timing.lifetime()),
        };
        let since = self.seen.since(other.revision)?;
        Some(since.after(self.timing.removal_wait(lifetime)))
    }

    /// A wait is over.
    pub(super) fn rested(&mut self, now: Instant) {
        if let Phase::Young(until, mark) = &self.phase
            && now < *until
        {
            let why = "the bucket is new: nobody is granted a lock yet";
            self.leaves(why, Waited::ForBucket(mark.clone()), now);
        } else if let Phase::Resting(until, then) = &self.phase
            && now >= self.earlier(*until)
        {
            let is_listing = **then == Phase::Listing;
            self.phase = if is_listing { self.listing_or_renewal(now) } else { (**then).clone() };
        }
    }
}
