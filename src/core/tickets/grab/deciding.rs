//! What a listing tells: whether the ticket stands, whether it is granted, and who comes first.

use std::collections::BTreeSet;

use super::{Grabbed, Grabber, Own, Phase};
use crate::core::record::Revision;
use crate::core::tickets::decision::{Decision, decide, describe, some_of_dead};
use crate::core::tickets::seen::{BUCKET, Seen};
use crate::core::tickets::ticket::StoredTicket;
use crate::core::tickets::{EarlierKeys, Mark};
use crate::core::time::Instant;

impl Grabber {
    pub(super) fn listed(&mut self, standing: Vec<StoredTicket>, last: Revision, now: Instant) {
        let element = self.key_element();
        let is_own = |other: &StoredTicket| other.key.rsplit('.').next() == Some(&*element);
        let is_old = self.own.as_ref().is_some_and(|own| !own.is_reached_by(last));
        if is_old || last < self.hinted {
            self.hinted = self.hinted.min(last);
            return self.failed("the listing is old".to_owned(), Phase::Listing, now);
        }
        if let Some(own) = &mut self.own {
            own.earlier_keys.learn(&element, own.number, &standing);
        }
        let (mut own, others): (Vec<_>, Vec<_>) = standing.into_iter().partition(is_own);
        match (&self.own, own.pop()) {
            (None, found) => self.find(found, &others, now),
            // Another process of the requester has released it and begun anew.
            (Some(known), Some(found)) if found.number != known.number => {
                self.own = None;
                self.find(Some(found), &others, now);
            }
            (Some(known), None) if last >= known.revision => {
                self.own = None;
                self.phase = Phase::Closed;
            }
            (Some(Own { sent: None, .. }), Some(_) | None) => self.phase = Phase::Writing,
            (Some(Own { number, sent: Some(sent), .. }), Some(_) | None) => {
                let (number, sent) = (*number, *sent);
                let (blockers, watched) = match decide(&self.ticket, number, &others) {
                    Decision::Wait { blockers, watched } => (blockers, watched),
                    // A ticket for slots is not asked for here.
                    Decision::Granted | Decision::Slot(_) | Decision::OtherCount(_) => {
                        (Vec::new(), BTreeSet::new())
                    }
                };
                let valid_until = sent.after(self.timing.validity());
                self.decide(number, valid_until, &blockers, watched, now);
            }
        }
    }

    /// Nothing is known of the own ticket yet: this one stands, or none.
    fn find(&mut self, own: Option<StoredTicket>, others: &[StoredTicket], now: Instant) {
        let is_of_requester = |other: &&StoredTicket| {
            let ticket = other.ticket.as_ref();
            ticket.is_ok_and(|it| it.incarnation == self.ticket.incarnation)
        };
        // One for the same name is of an earlier epoch: it holds up others until it runs out.
        let overlaps = |other: &&StoredTicket| {
            let name = &self.ticket.name;
            let ticket = other.ticket.as_ref();
            ticket.is_ok_and(|it| it.name.overlaps(name) && it.name != *name)
        };
        let differs =
            |own: &&StoredTicket| own.ticket.as_ref().is_ok_and(|own| own.mode != self.ticket.mode);
        let other = others.iter().filter(is_of_requester).find(overlaps);
        if let Some(other) = other.or(own.as_ref().filter(differs)) {
            return self.end(Grabbed::Overlaps(of_requester(other)));
        }
        self.phase = Phase::Writing;
        match own {
            None => {}
            Some(StoredTicket { revision, number, ticket: Ok(ticket), .. }) => {
                self.own = Some(Own {
                    number,
                    revision,
                    sent: None,
                    earlier_keys: EarlierKeys::default(),
                });
                self.was_found = true;
                self.ticket.lifetime = ticket.lifetime.max(self.timing.lifetime());
                self.seen.learn(&ticket.seen, now);
            }
            // It cannot keep its place: nobody knows what it asks for.
            Some(StoredTicket { revision, ticket: Err(_), .. }) => self.free_at = revision,
        }
    }

    /// Decides by the tickets that come first, as a listing behind the last write shows them.
    fn decide(
        &mut self,
        number: Revision,
        valid_until: Instant,
        blockers: &[StoredTicket],
        watched: BTreeSet<String>,
        now: Instant,
    ) {
        self.seen.note(blockers.iter().map(|other| other.revision), now);
        let dead = blockers.iter().filter(|it| self.may_remove(it, now)).cloned().collect();
        if let Some(dead) = some_of_dead(dead, u128::from(self.ticket.attempt)) {
            self.phase = Phase::Removing(dead);
            return;
        }
        let believed_at = self.believed_at(now);
        if believed_at.is_some_and(|at| at <= now) {
            self.phase = Phase::WritingMark;
            return;
        }
        let ahead = (blockers.len() + usize::from(believed_at.is_some())) as u64;
        if ahead == 0 {
            match now < valid_until {
                true => self.end(Grabbed::Granted { term: number.0, valid_until }),
                // This process was stopped for long.
                false => self.phase = Phase::Writing,
            }
            return;
        }
        let why = match (blockers, believed_at) {
            ([], Some(at)) => Mark::why_missing(at.since(now)),
            (_, _) => describe(blockers),
        };
        self.why_waiting.clone_from(&why);
        if now >= self.limit {
            let term = number.0;
            // Whoever has come first all the time has kept the ticket from being granted.
            let was_never_granted =
                blockers.iter().any(|it| it.number < number && it.ticket.is_ok());
            let withdraws = self.withdraws && (was_never_granted || !self.was_found);
            return self.leave(Grabbed::Queued { term, ahead, valid_until, why }, withdraws);
        }
        let removals = blockers.iter().filter_map(|other| self.removal_at(other));
        let write_at = valid_until.before(self.timing.validity()).after(self.step());
        let until = removals.chain(believed_at).fold(write_at.min(self.limit), Instant::min);
        self.phase = match watched.is_subset(&self.watched) {
            true => Phase::Resting(until, Box::new(Phase::Listing)),
            false => Phase::Watching(watched),
        };
    }

    /// Ends a process whose ticket is not granted: withdraws it, or notes what was seen.
    fn leave(&mut self, queued: Grabbed, withdraws: bool) {
        if withdraws {
            self.phase = Phase::Recalling;
        } else if self.seen == self.ticket.seen {
            self.end(queued);
        } else {
            self.leaving = Some(queued);
            self.phase = Phase::Writing;
        }
    }

    /// The notes were read that other processes of this host have left, or could not be. What they
    /// know of the tickets that come first may be enough to remove one.
    pub(super) fn recalled(&mut self, notes: Option<(Revision, Seen)>, now: Instant) {
        self.phase = match notes {
            Some((_, noted)) if self.seen.is_told_more(&noted, now) => Phase::Listing,
            Some((revision, _)) => Phase::Noting(revision),
            None => Phase::Withdrawing,
        };
    }

    /// Returns when the mark may be written that is missing; `None` if none is.
    fn believed_at(&mut self, now: Instant) -> Option<Instant> {
        let wait = self.timing.removal_wait(self.missing_mark.as_ref()?.lifetime);
        self.seen.note_bucket(now);
        self.seen.since(BUCKET).map(|since| since.after(wait))
    }

    /// Returns when this ticket of another may be removed; `None` if it is not noted.
    fn removal_at(&self, other: &StoredTicket) -> Option<Instant> {
        let lifetime = match &other.ticket {
            Ok(ticket) => ticket.lifetime,
            Err(unreadable) => unreadable.lifetime.unwrap_or(self.timing.lifetime()),
        };
        let since = self.seen.since(other.revision)?;
        Some(since.after(self.timing.removal_wait(lifetime)))
    }

    /// A ticket was removed, or not. The next one follows, unless the own one is to be renewed.
    pub(super) fn next_removal(&mut self, now: Instant) {
        if let Phase::Removing(dead) = &mut self.phase {
            dead.pop();
            let is_over = dead.is_empty();
            match self.is_due(now) {
                true => self.phase = Phase::Writing,
                false if is_over => self.phase = Phase::Listing,
                false => {}
            }
        }
    }

    fn may_remove(&self, other: &StoredTicket, now: Instant) -> bool {
        self.removal_at(other).is_some_and(|at| at <= now)
    }
}

/// Describes another ticket of the requester.
pub fn of_requester(other: &StoredTicket) -> String {
    match &other.ticket {
        Ok(ticket) => format!("{} has {}", other.describe(), ticket.name),
        Err(_) => other.describe(),
    }
}
