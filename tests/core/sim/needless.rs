//! Whether an agent has a reason to stop its service, and may take a lock.

use putex::core::AgentStatus;
use putex::core::command::Outcome;
use putex::core::event::{Event, PauseEntry, Written};
use putex::core::protocol::{Grant, ServiceState};
use putex::core::pump::{Pump, Since};
use putex::core::record::{KeyState, RecordState, Revision};
use putex::core::seat::Seat;

use super::agent::{Agent, LockRequest};
use super::counters::Sometimes;
use super::faults::Kind;
use super::store::Entry;
use super::world::World;

impl World<'_> {
    /// An agent has decided that the service must go; whether the store lost something.
    pub fn judge_stopping(&mut self, id: usize, old: &'static str, event: &Event, loss: bool) {
        let site = self.agents[id].site;
        if old == "active" && self.is_another(id, event) {
            self.sites[site].losing = Some(self.now);
        }
        let reason = match (old, event) {
            (_, Event::Shutdown(_) | Event::Rejected(_)) => true,
            ("active", _) => {
                loss || self.check_is_over(id, event)
                    || self.is_another(id, event)
                    || self.guard_objects(id)
                    || self.lock_is_over(site)
                    || self.is_switched_over(id, event)
            }
            ("looking" | "taking", _) => !self.could_be_adopted(id),
            _ => false,
        };
        if !reason {
            let text = format!("{site} stops its service, {old}, after {event:?}");
            self.fail("needless", text);
        }
    }

    /// Whether an operator wants another agent to have this very lock, in time.
    fn is_switched_over(&self, id: usize, event: &Event) -> bool {
        let Event::SwitchoverRequested(request) = event else { return false };
        let site = self.agents[id].site;
        let in_time = self.clock(site) < request.until;
        // A store that has lost its entries does not tell the term any more.
        let lost = !self.store.losses.is_empty();
        let is_own = lost || self.last_term(id).is_some_and(|term| term == request.term);
        in_time
            && is_own
            && request.seat == self.sites[site].seat
            && request.to != self.sc.sites[site].token
    }

    /// Returns the term of the last record of this agent that was stored.
    fn last_term(&self, id: usize) -> Option<Revision> {
        let me = self.agents[id].me;
        self.store.log.iter().rev().find_map(|entry| {
            let lease = entry.value.lease().filter(|lease| lease.incarnation == me)?;
            Some(lease.term.unwrap_or(Revision(entry.revision)))
        })
    }

    /// An agent requests a lock: it must have stood by, and been fit, for long enough, and go
    /// before the holder that it was shown.
    pub fn judge_lock_request(&mut self, id: usize, request: LockRequest) {
        let agent = &self.agents[id];
        let (site, clock) = (agent.site, self.host(agent.site).clock);
        let fit_since = agent.state_since.max(agent.unfit_at);
        let fit = clock.at(self.now).since(clock.at(fit_since));
        let own = &self.sc.sites[site];
        let long_enough = own.failback.is_some_and(|least| fit >= least);
        let of_lower = |entry: &Entry| {
            let lease = entry.value.lease();
            let term = lease.map(|lease| lease.term.unwrap_or(Revision(entry.revision)));
            term == Some(request.term) && lease.is_some_and(|it| it.priority > own.priority)
        };
        let lost = !self.store.losses.is_empty();
        let goes_first = lost || self.store.log.iter().any(of_lower);
        if agent.state != "standby" || !long_enough || !goes_first {
            let text =
                format!("{site} requests a lock, {}, after {fit:?}: {request:?}", agent.state);
            return self.fail("failback", text);
        }
        self.count(Sometimes::Failback);
    }

    /// An agent was told of a pause, or that there is none. It has to ignore what is not new.
    pub fn on_pause(&mut self, id: usize, entry: &PauseEntry, pump: &Pump) {
        let known = &mut self.agents[id].pause;
        if entry.serial > known.serial {
            known.clone_from(entry);
        }
        let site = self.agents[id].site;
        if self.status_of(site, pump).paused != self.is_paused(id) {
            self.fail("pause", format!("{site} observes another pause than it was told of"));
        }
    }

    /// A guard lets start begin. No agent of its site may have acknowledged a pause before.
    pub fn judge_acknowledged_pause(&mut self, site: usize) {
        let acknowledges = |agent: &Agent| {
            let is_idle = matches!(agent.state, "standby" | "confirming" | "active");
            let pump = agent.pump.as_ref().filter(|_| agent.site == site && is_idle);
            pump.is_some_and(|pump| {
                let status = self.status_of(site, pump);
                status.paused && !status.start_pending
            })
        };
        if self.agents.iter().any(acknowledges) {
            self.fail("pause", format!("{site} begins start after it has acknowledged a pause"));
        }
    }

    fn status_of(&self, site: usize, pump: &Pump) -> AgentStatus {
        let now = self.clock(site);
        let since = Since { state: now, why: String::new(), service: (pump.service(), now) };
        pump.status(&since, now)
    }

    /// Whether an agent knows of a pause.
    pub fn is_paused(&self, id: usize) -> bool {
        let agent = &self.agents[id];
        agent.pause.pause.as_ref().is_some_and(|pause| self.clock(agent.site) < pause.until)
    }

    /// An agent takes a lock: it must be able to start the service, and have stopped it. An agent
    /// that takes none may have had a lock as the previous instance.
    pub fn judge_take(&mut self, id: usize) {
        let site = self.agents[id].site;
        if self.is_paused(id) {
            self.fail("pause", format!("{site} takes a lock in a pause"));
        }
        if !self.sc.sites[site].priority.is_candidate() && self.sites[site].acked.is_none() {
            self.fail("take", format!("{site} takes a lock and is to take none"));
        }
        let view = &self.agents[id].view;
        let report = view.report.as_ref();
        let report = report.filter(|report| report.heard == view.said);
        let down = report.is_some_and(|report| report.service == ServiceState::Down);
        let unfit = report.is_some_and(|report| report.unfit.is_some());
        let up = self.may_come_up(site) && !self.lies_are_excused(site);
        if !down || unfit || up {
            let text = format!("{site} takes the lock: down {down}, unfit {unfit}, up {up}");
            self.fail("take", text);
        }
    }

    fn lock_is_over(&self, site: usize) -> bool {
        let Some(over) = self.lock_over(site) else { return true };
        self.now >= over
    }

    fn check_is_over(&self, id: usize, event: &Event) -> bool {
        let agent = &self.agents[id];
        let setup = &self.sc.sites[agent.site];
        match event {
            Event::CheckEnded(Outcome::Failed(_)) if self.is_paused(id) => false,
            Event::CheckEnded(Outcome::Failed(_)) => {
                let asserted = agent.view.asserted_at;
                let grace = asserted.map(|at| at.after(setup.start_grace));
                let in_grace = grace.is_some_and(|until| self.clock(agent.site) < until);
                let in_grace = in_grace && !agent.view.adopted;
                let enough = agent.writing.failures >= setup.check_failures;
                let started = asserted.is_some() || agent.view.adopted;
                !in_grace && (enough || !started)
            }
            Event::CheckEnded(Outcome::Overran) => !self.is_paused(id),
            _ => agent.check.is_over(self.clock(agent.site)),
        }
    }

    /// Whether an event tells that the lock is another's, or that the store has lost it.
    fn is_another(&self, id: usize, event: &Event) -> bool {
        let me = self.agents[id].me;
        // After a loss, or a purge, an earlier record of its own may stand there again.
        let lost = !self.store.losses.is_empty() || self.store.was_purged();
        let foreign = |key_state: &KeyState| {
            lost || key_state.value.lease().is_none_or(|lease| lease.incarnation != me)
        };
        match event {
            Event::Opened(opened) => opened.key_states.iter().all(foreign),
            Event::Read(Ok(key_state)) => foreign(key_state),
            Event::Written(Written::Moved(_)) => true,
            _ => false,
        }
    }

    fn guard_objects(&self, id: usize) -> bool {
        let view = &self.agents[id].view;
        let report = view.report.as_ref();
        let report = report.filter(|report| report.heard == view.said);
        report.is_some_and(|report| {
            let up = matches!(report.service, ServiceState::Up(..));
            !up || report.unfit.is_some()
        })
    }

    /// Whether the lock of the previous instance still stands, and this agent was told of it.
    pub fn could_be_adopted(&self, id: usize) -> bool {
        let agent = &self.agents[id];
        let view = &agent.view;
        // An act that was due before the first report came is done first.
        let Some(report) = view.report.as_ref().filter(|_| view.met_at < self.now) else {
            return false;
        };
        let ServiceState::Up(grant, _) = &report.service else {
            return false;
        };
        // Or the previous instance has written once more meanwhile.
        let stale = [Kind::StaleOpen, Kind::StaleRead, Kind::LateRequest, Kind::Rejected];
        let blind = stale.iter().any(|kind| self.sc.kinds.has(*kind));
        let over = self.clock(agent.site) >= grant.valid_until;
        let seat = grant.context.seat.unwrap_or(Seat::FIRST);
        // An agent that is started with fewer seats gives up the service of another.
        let known = seat.0 < self.sites[agent.site].seats;
        let stands = known && is_granted(&self.store.current(seat), grant);
        stands && !over && !blind && self.store.losses.is_empty()
    }
}

/// Whether a record is of the term of the grant: the instance that the guard names wrote it, or
/// one that adopted the service and died before its first grant.
fn is_granted(current: &KeyState, grant: &Grant) -> bool {
    current.value.lease().is_some_and(|lease| {
        let term = lease.term.unwrap_or(current.revision);
        lease.state == RecordState::Active && grant.context.term == Some(term)
    })
}
