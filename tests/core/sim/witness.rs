//! Knowledge of the oracles: what agents write, run, hear and report.

use std::time::Duration;

use putex::core::command::{LockContext, Outcome};
use putex::core::event::Event;
use putex::core::record::{Incarnation, KeyState, KeyValue, Record, RecordState, Revision};
use putex::core::report::{FreeReason, LockLoss, Reason, Report};
use putex::core::seat::Seat;

use super::agent::Agent;
use super::clock::True;
use super::counters::Sometimes;
use super::scenario::SEATS;
use super::store::Loss;
use super::world::{Acked, World};

/// A write of an agent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Writing {
    nonce: u64,
    /// The key that it writes.
    seat: Option<Seat>,
    /// When its first copy was sent.
    first: True,
    last: True,
    releases: bool,
    /// The term that it wrote last.
    term: Option<Revision>,
    /// Its writer knows that it was stored.
    acked: bool,
    /// The last lock was had by going on with that of the previous instance.
    pub adopts: bool,
    /// Health checks that failed since one passed.
    pub failures: u32,
}

/// The terms under which start was run.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    epoch: String,
    /// Of each seat.
    highest: [u64; SEATS],
    site: [usize; SEATS],
    /// Revisions were given twice: nothing can be told from them.
    spoilt: bool,
}

/// Returns what tells one record from another.
pub fn mark(value: &KeyValue) -> u64 {
    match value {
        KeyValue::Absent => 0,
        KeyValue::Marker => 1,
        KeyValue::Record(record) => match &record.lease {
            Some(lease) => mark_of(lease.incarnation, lease.nonce),
            None => 2 + record.token.len() as u64,
        },
    }
}

fn mark_of(incarnation: Incarnation, nonce: u64) -> u64 {
    (incarnation.0 as u64).rotate_left(17) ^ nonce
}

impl World<'_> {
    pub fn on_write(&mut self, id: usize, seat: Seat, record: &Record) {
        let now = self.now;
        let site = self.agents[id].site;
        let Some(lease) = &record.lease else { return };
        let releases = lease.state == RecordState::Released;
        let writing = &mut self.agents[id].writing;
        let new = writing.nonce != lease.nonce;
        // Only the first write of an instance can do that.
        writing.adopts = lease.term.is_some() && (writing.adopts || writing.nonce == 0);
        if new {
            writing.nonce = lease.nonce;
            writing.seat = Some(seat);
            writing.acked = false;
            writing.first = now;
        }
        writing.last = now;
        let term = std::mem::replace(&mut writing.term, lease.term);
        if term.is_some() && lease.term.is_some() && term != lease.term {
            let text = format!("{site} writes {:?} after {term:?}", lease.term);
            self.fail("term", text);
        }
        if new && lease.term.is_none() {
            self.judge_take(id);
        }
        if let Some(Revision(term)) = lease.term
            && !self.sites[site].terms.contains(&term)
        {
            self.fail("term", format!("{site} writes {term}, which it never had"));
        }
        let writing = &mut self.agents[id].writing;
        writing.releases = releases;
        if !releases {
            return;
        }
        self.sites[site].acked = None;
        let starting = self.starting(site);
        let (up, stopped) = (self.sites[site].up, self.sites[site].stopped);
        if up && !self.lies_are_excused(site) || starting || !stopped {
            let text = format!("{site} releases: up {up}, stopped {stopped}, starting {starting}");
            self.fail("release", text);
        }
        self.count(Sometimes::Release);
    }

    pub fn acknowledged(&mut self, id: usize, revision: u64) {
        let Writing { last, releases, nonce, .. } = self.agents[id].writing;
        self.agents[id].writing.acked = true;
        let own = mark_of(self.agents[id].me, nonce);
        self.agents[id].marks.push((self.now, revision, own));
        if !releases {
            self.acked(id, last);
        }
    }

    /// A read shows that a write was stored: the first copy counts.
    pub fn resolved(&mut self, id: usize, nonce: u64) {
        let writing = self.agents[id].writing;
        if writing.nonce == nonce && !writing.releases {
            if !writing.acked {
                self.agents[id].writing.acked = true;
                self.count(Sometimes::ResolvedHeld);
            }
            self.acked(id, writing.first);
        }
    }

    fn acked(&mut self, id: usize, sent: True) {
        let site = self.agents[id].site;
        self.check_outlived(site);
        let place = &mut self.sites[site];
        place.seat = self.agents[id].writing.seat.unwrap_or(Seat::FIRST);
        if place.acked.is_none_or(|acked| acked.sent < sent) {
            place.acked = Some(Acked { sent, timing: place.timing });
            place.lost_at = None;
            place.losing = None;
        }
    }

    /// A write took the place of a record. After a loss a number is given again: then
    /// its writer may never have been shown that record, or before it was written.
    pub fn on_replaced(&mut self, id: usize, replaced: &KeyState, stood_since: True, sent: True) {
        let Agent { site, marks, .. } = &self.agents[id];
        let mut before = marks.iter().rev().skip_while(|(at, ..)| *at > sent);
        let shown = before.find(|(_, revision, _)| *revision == replaced.revision.0);
        let stands = (replaced.revision.0, mark(&replaced.value));
        let earliest =
            |(at, number, shown): &(_, _, _)| *at < stood_since && (*number, *shown) == stands;
        let blind =
            shown.is_some_and(|(.., shown)| *shown != stands.1) || marks.iter().any(earliest);
        let lease = match &replaced.value {
            KeyValue::Record(record) => record.lease.as_ref(),
            KeyValue::Absent | KeyValue::Marker => None,
        };
        let writer = lease.map(|lease| lease.incarnation);
        let own = writer == Some(self.agents[id].me);
        self.sites[*site].blind = blind || self.sites[*site].blind && own;
        // Whose lock that was cannot know it either, nor who follows.
        let other = self.agents.iter().rev().find(|agent| Some(agent.me) == writer);
        if let Some(other) = other.filter(|_| blind) {
            self.sites[other.site].blind = true;
        }
    }

    /// A write was stored, whether its writer learns of it or not.
    pub fn on_stored(&mut self, id: usize, seat: Seat, revision: u64, sent: True) {
        let site = self.agents[id].site;
        let record = self.store.current(seat);
        // A copy that was lost had the same number, and was seen: the oracles cannot tell.
        let own = mark(&record.value);
        let shown = |(_, at, shown): &(_, _, _)| (*at, *shown) == (revision, own);
        let seen = |agent: &Agent| agent.marks.iter().any(shown);
        let again = !self.store.losses.is_empty() && self.agents.iter().any(seen);
        self.sites[site].blind |= again;
        self.sites[site].written = revision;
        if let KeyValue::Record(Record { lease: Some(lease), .. }) = &record.value
            && lease.term.is_none()
        {
            self.two_locks(site, seat);
            self.sites[site].term_at = self.now;
            self.sites[site].term = revision;
            self.sites[site].terms.push(revision);
            let mixed = self.lock_times_differ;
            for loss in &mut self.store.losses {
                let term = if mixed { loss.lost_to } else { 0 };
                loss.taken |= !loss.may_be_known_to(id, term) || sent < loss.at;
            }
        }
        self.note(Some(site), || {
            let lease = match &record.value {
                KeyValue::Record(record) => record.lease.as_ref(),
                _ => None,
            };
            let state = lease.map(|lease| lease.state);
            format!("stored {revision}: {state:?}")
        });
    }

    /// An agent takes the lock: no other agent may still count on it. After a loss a take may be
    /// stored that its writer does not believe; but an agent that follows it believes it.
    fn two_locks(&mut self, newer: usize, seat: Seat) {
        let believed = self.store.losses.is_empty();
        for older in (0..self.sites.len()).filter(|older| *older != newer) {
            if self.sites[older].seat != seat {
                continue;
            }
            let agent = self.sites[older].agent.map(|agent| &self.agents[agent]);
            let state = agent.filter(|agent| agent.alive);
            let state = state.map_or("", |agent| agent.state);
            let holds = state == "active" || state == "confirming";
            // The guard does it for an agent that is dead.
            let stops = state == "stopping" || self.sites[older].up;
            let Some(acked) = self.sites[older].acked.filter(|_| holds || stops) else {
                continue;
            };
            let (clock, timing) = (self.host(older).clock, acked.timing);
            let validity = timing.validity();
            let budget = timing.stop_budget();
            let within = if holds { validity } else { validity + budget };
            let valid = clock.when(clock.at(acked.sent).after(within));
            // An agent that stops may still have its service up, which is judged when another is.
            let early = self.now + 10 < valid && !self.spreads_unknown(older, newer);
            if early && holds && believed {
                let early = Duration::from_nanos(valid - self.now);
                let text = format!("{newer} takes what {older} holds for {early:?} more");
                self.fail("two-locks", text);
            }
        }
    }

    /// The guard lets a start begin.
    pub fn on_start(&mut self, guard: usize, context: &LockContext) {
        let site = self.guards[guard].site;
        let over = self.lock_over(site);
        if over.is_none_or(|over| self.now > over) {
            self.fail("no-lock", format!("{site} starts without a lock"));
        }
        self.sites[site].stopped = false;
        self.sites[site].late_said_at = None;
        if !self.sites[site].up && !self.starting(site) {
            self.forgive(site);
        }
        self.check_term(site, context);
    }

    fn check_term(&mut self, site: usize, context: &LockContext) {
        let (Some(term), Some(epoch)) = (context.term, context.epoch.as_ref()) else {
            return self.fail("term", format!("{site} starts without a term"));
        };
        if self.terms.spoilt {
            return;
        }
        if *epoch != self.store.id().epoch {
            // Made anew behind a connection that stands: it goes on under the old name.
            return self.count(Sometimes::OldEpoch);
        }
        if self.terms.epoch != *epoch {
            self.terms.epoch.clone_from(epoch);
            self.terms.highest = Default::default();
        }
        let seat = self.sites[site].seat;
        if context.seat.is_some_and(|told| told != seat) {
            return self.fail("seat", format!("{site} starts for {:?}, not {seat}", context.seat));
        }
        let (highest, of) = (self.terms.highest[seat.index()], self.terms.site[seat.index()]);
        if term.0 < highest && self.unknowable(site, of) {
            return self.count(Sometimes::ExcusedOverlap);
        }
        if term.0 < highest || term.0 == highest && of != site {
            let text = format!("{site} starts under {term}, {of} did under {highest}");
            return self.fail("term", text);
        }
        if seat != Seat::FIRST {
            self.count(Sometimes::OtherSeat);
        }
        self.terms.highest[seat.index()] = term.0;
        self.terms.site[seat.index()] = site;
    }

    pub fn on_event(&mut self, id: usize, event: &Event) {
        let writing = &mut self.agents[id].writing;
        if let Event::CheckEnded(outcome) = event {
            let failed = *outcome != Outcome::Succeeded;
            writing.failures = if failed { writing.failures + 1 } else { 0 };
            self.agents[id].check.ended();
        }
    }

    /// Counts the event that an agent reports.
    pub fn on_report(&mut self, site: usize, report: &Report) {
        let what = match report {
            Report::Service(_) => return self.on_late(site),
            Report::Moved { why, .. } => return self.on_reason(why),
            Report::RolledBack(_) => Sometimes::RollbackSeen,
            Report::DuplicateToken { .. } => Sometimes::TwinsSeen,
            Report::OwnToken { .. } => Sometimes::OwnTokenSeen,
            Report::NotReleased => Sometimes::NotReleased,
            Report::KeyDeleted => Sometimes::MarkerSeen,
            Report::IsFree { free: FreeReason::Blanked, .. } => Sometimes::PlainBlankSeen,
            Report::IsFree { free: FreeReason::Gone, .. } => Sometimes::PurgeSeen,
            Report::NotCandidate(_) | Report::CheckExcused(..) => Sometimes::UnfitSeen,
            _ => return,
        };
        self.count(what);
    }

    /// Counts why an agent's state has changed.
    fn on_reason(&mut self, why: &Reason) {
        let what = match why {
            Reason::Adopted(_) => Sometimes::Adoption,
            Reason::PredecessorOver => Sometimes::AdoptedTooLate,
            Reason::NotTaken(loss) => {
                self.count(Sometimes::NotTaken);
                return self.on_lock_loss(loss);
            }
            Reason::Lost(loss) | Reason::LostUnconfirmed(loss) => return self.on_lock_loss(loss),
            Reason::Free(FreeReason::Released(_)) => Sometimes::ReleaseHandover,
            Reason::Free(FreeReason::ReleasedToThis(_)) => Sometimes::FailbackTaken,
            Reason::TakeUnanswered(_) => Sometimes::TakeUnanswered,
            Reason::CheckFailed(_) => Sometimes::UnfitSeen,
            _ => return,
        };
        self.count(what);
    }

    /// Counts how an agent has lost its lock.
    fn on_lock_loss(&mut self, loss: &LockLoss) {
        match loss {
            LockLoss::NotRenewed(_) => self.count(Sometimes::Expired),
            LockLoss::Overwritten(..) => self.count(Sometimes::ResolvedLost),
            _ => {}
        }
    }

    /// The store forgets acknowledged writes down to `kept`.
    pub fn on_loss(&mut self, kept: u64, lost_to: u64) {
        // The agent's knowledge of another bucket says nothing of this one.
        let bucket = Some(self.store.id());
        let knows =
            |agent: &Agent| agent.known > kept && agent.known_key > 0 && agent.bucket == bucket;
        let agents = self.agents.iter().enumerate();
        let informed = agents.filter(|(_, agent)| agent.alive && knows(agent));
        let informed = informed.map(|(id, agent)| (id, agent.known_key)).collect();
        let agents = self.agents.iter().enumerate();
        let watching = agents.filter(|(_, agent)| agent.alive && agent.known_key == 0);
        let watching = watching.map(|(id, _)| id).collect();
        self.store.losses.push(Loss {
            at: self.now,
            lost_to,
            all: kept == 0,
            watching,
            informed,
            taken: false,
        });
        if kept > 0 {
            self.terms.spoilt = true;
        }
    }
}
