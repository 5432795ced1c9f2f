//! The tickets before the own one: whether it is granted, and what it waits for.

use std::collections::BTreeSet;

use super::{Asker, Goal, Phase, TicketOwner};
use crate::core::event::{StoreError, Written};
use crate::core::tickets::decision::{
    Decision, decide, describe, last_waits_for_all, some_of_dead,
};
use crate::core::tickets::key::last_element;
use crate::core::tickets::{End, Mark, StoredTicket, TicketsListed, ToFront};
use crate::core::time::Instant;

/// Why the lock was not granted in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaving {
    /// Number of tickets that come first.
    ahead: usize,
    why: String,
}

impl TicketOwner {
    pub(super) fn listed(&mut self, listed: TicketsListed, now: Instant) {
        let TicketsListed { standing, last, at, .. } = listed;
        let reaches = self.own.as_ref().map_or(last >= self.last, |own| own.is_reached_by(last));
        if !reaches || last < self.hinted {
            // Anybody can send a hint: one that the next listing does not reach either is ignored.
            self.hinted = self.hinted.min(last);
            return self.unanswered("the listing is old", Phase::Listing, now);
        }
        self.renews_alone = false;
        // The notes of a host are for all its processes: a ticket that does not block this one
        // stays in them. So does a later ticket, which a listing of earlier keys does not show.
        let restricted = self.own.as_ref().filter(|own| own.earlier_keys.0.is_some());
        let later = restricted.map(|own| self.noted.1.after(own.number));
        let standing_now = standing.iter().map(|other| other.revision);
        self.seen.retain(standing_now.chain(later.into_iter().flatten()));
        let element = self.key_element();
        if let Some(own) = &mut self.own {
            own.earlier_keys.learn(&element, own.number, &standing);
        }
        let is_own = |other: &StoredTicket| last_element(&other.key) == element;
        let (owns, rest): (Vec<_>, Vec<_>) = standing.into_iter().partition(is_own);
        let is_continued = |it: &&StoredTicket| {
            self.is_of_requester(it) && !it.has_run_out(at) && !it.had_ended(&rest)
        };
        let continued: Vec<_> = rest.iter().filter(is_continued).map(|it| it.revision).collect();
        let (mut mine, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|it| continued.contains(&it.revision));
        mine.sort_by_key(|other| other.number);
        if let Asker::Script { .. } = self.asker {
            self.stood_at = at;
        }
        let Some(own) = &self.own else {
            return match self.asker {
                Asker::Command(_) if self.is_soft(now) => self.probe(others, at, now),
                Asker::Command(_) => self.phase = Phase::Writing,
                Asker::Script { .. } => self.find(mine, now),
            };
        };
        if last >= own.revision && owns.is_empty() {
            return self.gone("its ticket was removed", now);
        }
        if let Some(first) = mine.first().filter(|first| first.number < own.number) {
            return self.give_way(first, now);
        }
        match decide(&self.ticket, own.number, &others) {
            Decision::Wait { .. } if self.is_soft(now) => self.phase = Phase::Ending,
            Decision::Wait { blockers, watched } => {
                let why = describe(&blockers, at);
                self.wait_for(&blockers, watched, why, now);
            }
            Decision::Granted | Decision::Slot(_) if self.missing_mark.is_some() => {
                self.wait_for(&[], BTreeSet::new(), String::new(), now);
            }
            Decision::Slot(slot) => {
                self.ticket.slot = Some(slot);
                self.phase = Phase::Writing;
            }
            Decision::Granted => self.come_first(now),
        }
    }

    /// No ticket comes before the own one.
    fn come_first(&mut self, now: Instant) {
        let Some(valid_until) = self.valid_until() else { return };
        let times = self.timing.kill_times(valid_until);
        match self.asker {
            Asker::Script { .. } => {
                self.ticket.is_granted = true;
                self.phase = Phase::Writing;
            }
            Asker::Command(_) if times.terminate_at < now.after(self.timing.renewal()) => {
                self.phase = Phase::Writing;
            }
            Asker::Command(_) => self.granted(),
        }
    }

    /// Waits for `blockers`, and for the missing mark. Dead blockers are removed.
    pub(super) fn wait_for(
        &mut self,
        blockers: &[StoredTicket],
        watched: BTreeSet<String>,
        why: String,
        now: Instant,
    ) {
        self.seen.see(blockers.iter().map(|other| other.revision), now);
        let dead = blockers.iter().filter(|other| self.is_dead(other, now)).cloned().collect();
        if let Some(dead) = some_of_dead(dead, self.nonce.0) {
            self.phase = Phase::Removing(dead);
            return;
        }
        let believed_at = self.believed_at(now);
        if let Some(mark) = &self.missing_mark
            && believed_at.is_some_and(|at| at <= now)
        {
            self.phase = Phase::WritingMark(mark.clone());
            return;
        }
        let why = match (&self.missing_mark, blockers) {
            (Some(mark), []) => Mark::why_missing(self.timing.removal_wait(mark.lifetime)),
            (_, _) => why,
        };
        let limit = if let Goal::Get(limit) = self.goal { limit } else { None };
        if limit.is_some_and(|limit| now >= limit) {
            let leaving = Leaving { ahead: blockers.len(), why };
            self.seen.shorten(blockers.iter().map(|other| other.revision));
            match self.seen.clock().is_empty() || self.seen == self.noted.1 {
                true => self.leave(leaving, now),
                false => self.phase = Phase::Noting(leaving),
            }
            return;
        }
        let removals = blockers.iter().filter_map(|other| self.removal_at(other));
        let next_at = self.own.as_ref().map_or_else(|| self.probe_at(now), |own| own.renew_at);
        let due = removals.chain(believed_at).chain(limit).min().unwrap_or(next_at);
        let only_last_counts = self.own.is_some() && last_waits_for_all(blockers);
        self.list_at = if only_last_counts { due } else { due.min(next_at) };
        match self.own.is_none() || watched.is_subset(&self.watched) {
            true => self.rest_to_list(),
            false => self.phase = Phase::Watching(watched),
        }
        // A request without a ticket has no place in the queue.
        let ahead = if self.own.is_some() { blockers.len() } else { 0 };
        self.tell(ToFront::Waiting { ahead, why });
    }

    /// Returns when this earlier ticket may be removed; `None` if it was not seen. A ticket that
    /// this host wrote names the instant.
    fn removal_at(&self, other: &StoredTicket) -> Option<Instant> {
        let (lifetime, runs_out) = match &other.ticket {
            Ok(ticket) => (ticket.lifetime, ticket.runs_out.as_ref()),
            Err(unreadable) => (unreadable.lifetime.unwrap_or(self.timing.lifetime()), None),
        };
        let noted = runs_out.filter(|it| it.clock == self.seen.clock()).map(|it| it.at);
        let since = self.seen.since(other.revision);
        let unchanged = since.map(|since| since.after(self.timing.removal_wait(lifetime)));
        noted.into_iter().chain(unchanged).min()
    }

    fn is_dead(&self, other: &StoredTicket, now: Instant) -> bool {
        let is_old = || self.is_of_requester(other) && other.has_run_out_everywhere(self.stood_at);
        self.removal_at(other).is_some_and(|at| at <= now) || is_old()
    }

    /// Returns when the missing mark may be written; `None` if none is missing.
    pub(super) fn believed_at(&mut self, now: Instant) -> Option<Instant> {
        let wait = self.timing.removal_wait(self.missing_mark.as_ref()?.lifetime);
        Some(self.seen.see_bucket(now).after(wait))
    }

    /// Takes the answer to the removal of the last of these tickets.
    pub(super) fn removed(&mut self, blockers: Vec<StoredTicket>, written: Written, now: Instant) {
        let at = blockers.last().map(|dead| dead.revision).unwrap_or_default();
        match written {
            Written::Stored(_) => self.next_removal(now),
            // The ticket was renewed, or others have removed it. The read that has shown it unmoved
            // was old.
            Written::Moved(_) => {
                self.seen.forget(at);
                match blockers.len() {
                    // A server that is behind shows the same ticket again.
                    ..=1 => self.rest(now, Phase::Listing),
                    _ => self.next_removal(now),
                }
            }
            // Others may remove the ticket, or this owner later: the store would refuse again now.
            Written::Denied(StoreError { text: why, .. }) => {
                self.seen.forget(at);
                match matches!(self.goal, Goal::Get(Some(limit)) if now >= limit) {
                    true => self.leave(Leaving { ahead: blockers.len(), why }, now),
                    false => self.rest(now, Phase::Listing),
                }
            }
            Written::Unknown(why) => self.unanswered(why, Phase::Listing, now),
        }
    }

    /// Removes the next dead ticket, unless the own one is to be renewed.
    fn next_removal(&mut self, now: Instant) {
        if let Phase::Removing(dead) = &mut self.phase {
            dead.pop();
            let is_over = dead.is_empty();
            let next = self.listing_or_renewal(now);
            if is_over || next == Phase::Writing {
                self.phase = next;
            }
        }
    }

    /// Ends the wait: the lock was not granted in time.
    pub(super) fn leave(&mut self, Leaving { ahead, why }: Leaving, now: Instant) {
        if let Asker::Script { withdraws: false } = self.asker {
            // The ticket keeps its place.
            self.phase = Phase::Done;
            return self.tell(ToFront::Waiting { ahead, why });
        }
        self.end(End::NotHad(why), now);
    }
}
