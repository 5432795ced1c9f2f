//! What a listing tells: whether the ticket stands, whether it is granted, and who comes first.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Grabbed, Grabber, Own, Phase};
use crate::core::observed::Observed;
use crate::core::record::Revision;
use crate::core::tickets::decision::{Decision, decide, describe, some_of_dead};
use crate::core::tickets::ticket::{StoredTicket, Ticket};
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
        let (own, rest): (Vec<_>, Vec<_>) = standing.into_iter().partition(is_own);
        let (mut mine, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|other| self.is_of_requester(other));
        mine.sort_by_key(|other| other.number);
        let (run_out, mine): (Vec<_>, Vec<_>) =
            mine.into_iter().partition(|it| it.has_run_out() || it.had_ended(&others));
        let Some(known) = &self.own else { return self.find(mine, run_out, now) };
        if own.is_empty() && last >= known.revision {
            self.take_new_key();
            self.phase = Phase::Closed;
            return;
        }
        if let Some(first) = mine.iter().find(|first| first.number < known.number) {
            let other = (!self.is_alike(first)).then(|| Grabbed::Overlaps(of_requester(first)));
            self.phase = Phase::Withdrawing(other);
            return;
        }
        if !known.is_written {
            self.phase = Phase::Writing;
            return;
        }
        let (number, valid_until) = (known.number, known.valid_until());
        let (blockers, watched) = match decide(&self.ticket, number, &others) {
            Decision::Wait { blockers, watched } => (blockers, watched),
            // A ticket for slots is not asked for here.
            Decision::Granted | Decision::Slot(_) => (Vec::new(), BTreeSet::new()),
        };
        match blockers.is_empty() && !run_out.is_empty() && self.is_believed(now) {
            true => self.phase = Phase::Removing(run_out),
            false => self.decide(number, valid_until, &blockers, watched, now),
        }
    }

    /// Returns whether this is another ticket of the requester for a name that overlaps.
    fn is_of_requester(&self, other: &StoredTicket) -> bool {
        let is_its = |it: &Ticket| {
            it.incarnation == self.ticket.incarnation && it.name.overlaps(&self.ticket.name)
        };
        other.ticket.as_ref().is_ok_and(is_its)
    }

    /// Returns whether a ticket is for the same name in the same mode.
    fn is_alike(&self, other: &StoredTicket) -> bool {
        let own = &self.ticket;
        let is_like = |it: &Ticket| it.mode == own.mode && it.name == own.name;
        other.ticket.as_ref().is_ok_and(is_like)
    }

    /// There is no own ticket yet. These of the requester stand, the first one first, and those
    /// have run out.
    fn find(&mut self, mine: Vec<StoredTicket>, run_out: Vec<StoredTicket>, now: Instant) {
        for ticket in mine.iter().chain(&run_out).filter_map(|it| it.ticket.as_ref().ok()) {
            self.seen.learn(&ticket.seen, now);
        }
        if let Some(other) = mine.iter().find(|other| !self.is_alike(other)) {
            return self.end(Grabbed::Overlaps(of_requester(other)));
        }
        self.phase = Phase::Writing;
        let Some(StoredTicket { key, revision, number, age, ticket: Ok(ticket) }) =
            mine.into_iter().next()
        else {
            return;
        };
        let element = key.rsplit('.').next().unwrap_or_default().to_owned();
        self.ticket.is_granted = ticket.is_granted;
        self.own = Some(Own {
            element,
            number,
            revision,
            sent: self.requested.before(age.unwrap_or_default()),
            // Until then no server restores it if it ends, and a write finds it only if it stands.
            // Then no process of the requester relies on it any more, and it may be ended.
            validity: self.timing.validity_of(ticket.lifetime * 2),
            is_written: false,
            earlier_keys: EarlierKeys::default(),
        });
        self.ticket.lifetime = ticket.lifetime.max(self.timing.lifetime());
    }

    /// Returns for how long a write of the ticket is valid.
    pub(super) fn validity(&self) -> Duration {
        self.timing.validity_of(self.ticket.lifetime)
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
        self.seen.see(blockers.iter().map(|other| other.revision), now);
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
        if ahead == 0 && !self.ticket.is_granted {
            self.ticket.is_granted = true;
            self.phase = Phase::Writing;
            return;
        }
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
            return self.leave(Grabbed::Queued { term, ahead, valid_until, why });
        }
        let removals = blockers.iter().filter_map(|other| self.removal_at(other));
        let write_at = valid_until.before(self.validity()).after(self.step());
        let until = removals.chain(believed_at).fold(write_at.min(self.limit), Instant::min);
        self.phase = match watched.is_subset(&self.watched) {
            true => Phase::Resting(until, Box::new(Phase::Listing)),
            false => Phase::Watching(watched),
        };
    }

    /// Ends a process whose ticket is not granted: withdraws it, or notes what was seen.
    fn leave(&mut self, queued: Grabbed) {
        if self.withdraws {
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
    pub(super) fn recalled(&mut self, notes: Option<(Revision, Observed)>, now: Instant) {
        self.phase = match notes {
            Some((_, noted)) if self.seen.is_told_more(&noted, now) => Phase::Listing,
            Some((revision, _)) => Phase::Noting(revision),
            None => return self.leave_without_ticket(),
        };
    }

    /// The ticket is not granted, and does not stay.
    pub(super) fn leave_without_ticket(&mut self) {
        self.phase = Phase::Withdrawing(Some(Grabbed::Withdrawn(self.why_waiting.clone())));
    }

    fn is_believed(&mut self, now: Instant) -> bool {
        self.believed_at(now).is_none()
    }

    /// Returns when the mark may be written that is missing; `None` if none is.
    fn believed_at(&mut self, now: Instant) -> Option<Instant> {
        if self.ticket.is_granted {
            return None;
        }
        let wait = self.timing.removal_wait(self.missing_mark.as_ref()?.lifetime);
        Some(self.seen.see_bucket(now).after(wait))
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
