//! The tickets before the own one: whether it is granted, and what it waits for.

use super::{LONG, Phase, TicketOwner};
use crate::core::record::Revision;
use crate::core::tickets::ticket::blockers;
use crate::core::tickets::{StoredTicket, ToFront};
use crate::core::time::Instant;

/// Describes who holds the lock or waits before this ticket, for people.
fn describe(blockers: &[StoredTicket]) -> String {
    let first = blockers.first().map(StoredTicket::describe).unwrap_or_default();
    match blockers.len() {
        0 | 1 => format!("held by {first}"),
        more => format!("held by {first}; {} wait before this one", more - 1),
    }
}

impl TicketOwner {
    pub(super) fn listed(&mut self, standing: Vec<StoredTicket>, last: Revision, now: Instant) {
        let Some(own) = self.own else {
            self.phase = Phase::ReadingMark;
            return;
        };
        if !own.is_reached_by(last) || last < self.hinted {
            return self.failed("the listing is old".to_owned(), Phase::Listing, now);
        }
        let key = self.key_element();
        let is_own = |other: &StoredTicket| other.key.ends_with(&key);
        if last >= own.revision && !standing.iter().any(is_own) {
            return self.gone("its ticket was removed", now);
        }
        let blockers = blockers(&self.ticket, own.number, standing);
        self.note_unmoved(&blockers, now);
        let Some(latest) = blockers.last() else {
            let times = self.timing.kill_times(own.valid_until(self.timing));
            if times.terminate_at < now.after(self.timing.renewal()) {
                self.phase = Phase::Writing;
            } else {
                self.granted();
            }
            return;
        };
        let why = describe(&blockers);
        if let Some(dead) = blockers.iter().find(|other| self.removal_at(other) <= now) {
            self.phase = Phase::Removing(Box::new(dead.clone()));
        } else if !self.gave_up(&why, now) {
            let removals = blockers.iter().map(|other| self.removal_at(other));
            let until = removals.fold(own.renew_at(self.timing), Instant::min);
            self.phase = if self.watched.as_ref() == Some(&latest.key) {
                Phase::Resting(until, Box::new(Phase::Listing))
            } else {
                Phase::Watching(latest.key.clone())
            };
            self.tell(ToFront::Waiting { ahead: blockers.len() as u64, why });
        }
    }

    /// Notes since when the tickets before this one have not moved.
    pub(super) fn note_unmoved(&mut self, blockers: &[StoredTicket], now: Instant) {
        let known = std::mem::take(&mut self.unmoved);
        self.unmoved = blockers
            .iter()
            .map(|other| {
                let before = known.get(&other.key).filter(|known| known.0 == other.revision);
                (other.key.clone(), before.copied().unwrap_or((other.revision, now)))
            })
            .collect();
    }

    /// Returns when this ticket of another may be removed.
    pub(super) fn removal_at(&self, other: &StoredTicket) -> Instant {
        let lifetime = match &other.ticket {
            Ok(ticket) => ticket.lifetime,
            Err(unreadable) => unreadable.lifetime.unwrap_or(self.timing.lifetime()),
        };
        let wait = self.timing.removal_wait(lifetime);
        self.unmoved.get(&other.key).map_or_else(|| self.began.after(LONG), |it| it.1.after(wait))
    }

    /// A wait is over.
    pub(super) fn rested(&mut self, now: Instant) {
        if let Phase::Young(until, _) = &self.phase
            && now < *until
        {
            self.gave_up("the bucket is new: nobody is granted a lock yet", now);
        } else if let Phase::Resting(until, then) = &self.phase
            && now >= self.earlier(*until)
        {
            let renew_at = self.own.map(|own| own.renew_at(self.timing));
            let is_due = **then == Phase::Listing && renew_at.is_some_and(|at| now >= at);
            self.phase = if is_due { Phase::Writing } else { (**then).clone() };
        }
    }
}
