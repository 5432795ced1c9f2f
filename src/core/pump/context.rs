//! The context of every state: who this agent is, what it knows, and the effects of the turn. Each
//! event passes through [`Context::receive`] first.

use std::time::Duration;

use super::guard_view::GuardView;
use super::hold::Hold;
use super::pause::Pauses;
use super::store_view::{Seen, StoreView};
use super::takeover::Takeover;
use super::{AgentId, Config};
use crate::core::command::{Command, LockContext, Role, Run};
use crate::core::event::{Effect, Event, Opened, Written};
use crate::core::protocol::{Grant, Stake, StopOrder, ToGuard};
use crate::core::record::{KeyState, KeyValue, Lease, Revision};
use crate::core::report::{LockName, Report, Rollback};
use crate::core::seat::Seat;
use crate::core::text::sanitize_field;
use crate::core::time::Instant;
use crate::core::timing::Timing;

/// How often two live agents with one token are reported again.
const DUPLICATE_EVERY: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) config: Config,
    pub(super) id: AgentId,
    pub(super) store: StoreView,
    pub(super) guard: GuardView,
    pub(super) pauses: Pauses,
    /// A health check runs, or was killed and has not ended.
    pub(super) check_runs: bool,
    /// When another live agent with the token of this one was reported last.
    pub(super) duplicate_reported_at: Option<Instant>,
    /// The number of the last write of this incarnation.
    pub(super) nonce: u64,
    /// The effects of this turn, in their order.
    pub(super) effects: Vec<Effect>,
}

impl Context {
    /// Returns the context of an agent whose guard was given these times by the previous instance.
    pub(super) fn new(config: Config, id: AgentId, times: Option<Timing>, now: Instant) -> Context {
        Context {
            store: StoreView::new(config.seats, config.timing),
            guard: GuardView::new(&config, times, now),
            config,
            id,
            pauses: Pauses::default(),
            check_runs: false,
            duplicate_reported_at: None,
            nonce: 0,
            effects: Vec::new(),
        }
    }

    /// Takes in an event as far as it concerns the store, the guard, the pauses or the check.
    pub(super) fn receive(&mut self, event: &Event, now: Instant) {
        let Context { id, store, guard, pauses, effects, .. } = self;
        store.rolled_back = false;
        pauses.advance(effects, now);
        if let Event::Read(_) | Event::Written(_) = event {
            store.answered();
        }
        match event {
            Event::Opened(Opened { bucket, key_states, pause }) => {
                store.opened(bucket, effects, now);
                for (seat, key_state) in Seat::all(self.config.seats).zip(key_states) {
                    self.observe(seat, key_state, now);
                }
                self.pauses.read(pause, &mut self.effects, now);
            }
            Event::PauseRead(pause) => pauses.read(pause, effects, now),
            Event::Closed(why) => store.closed(why, effects),
            Event::Rejected(rejection) => store.rejected(rejection, effects),
            Event::Read(Ok(key_state)) => self.observe(self.store.seat, key_state, now),
            Event::Read(Err(why)) => self.report(Report::ReadUnanswered(why.clone())),
            Event::Written(Written::Stored(revision)) => store.stored(*revision, effects, now),
            Event::Written(Written::Moved(Some(revision))) => store.key_mut().show(*revision),
            Event::Hint(seat, revision) => {
                let key = store.key_of_mut(*seat);
                key.hinted = key.hinted.max(revision.unwrap_or(Revision(u64::MAX)));
            }
            Event::CheckEnded(_) => self.check_runs = false,
            Event::Guard(number, event) => {
                guard.receive(*number, event, id.incarnation, effects, now);
            }
            Event::Tick
            | Event::Written(Written::Moved(None) | Written::Denied(_) | Written::Unknown(_))
            | Event::SwitchoverRequested(_)
            | Event::StatusRequested
            | Event::Shutdown(_) => {}
        }
    }

    /// Takes in the state of the key of a seat, as a read has shown it. A revision below a known
    /// one is a stale read, of which only the times of the holder count: a rollback shows at the
    /// next write or opening, or at once if a known revision has another record.
    fn observe(&mut self, seat: Seat, key_state: &KeyState, now: Instant) {
        let key = self.store.key_of_mut(seat);
        if let Some(Seen { key_state: known, .. }) = &key.seen {
            if key_state.revision < known.revision || key_state == known {
                // If the read shows a rollback, the holder in it may live: its times count too.
                return key.holders.observe(key_state, true);
            }
            if key_state.revision == known.revision {
                self.roll_back(Rollback::NumberAgain(key_state.revision), now);
            }
        }
        let before = self.store.key_of_mut(seat).seen.take();
        if before.is_some() {
            // The store has taken a record: its next refusal is reported anew.
            self.store.refused = None;
            if key_state.value == KeyValue::Marker {
                self.report(Report::KeyDeleted);
            }
        }
        self.report_duplicate(before.as_ref(), key_state, now);
        let takeover = Takeover::decide(self, seat, key_state, now);
        self.store.show(key_state.revision);
        self.store.key_of_mut(seat).observe(key_state, takeover, now);
    }

    /// Reports another live agent with the token of this one. Two incarnations with one token are
    /// two agents, or one that was restarted: only a record that moves while it is watched proves
    /// that the other agent lives.
    fn report_duplicate(&mut self, before: Option<&Seen>, key_state: &KeyState, now: Instant) {
        let Some(theirs) = self.duplicate_in(key_state) else { return };
        let (token, host) = (self.id.token.clone(), sanitize_field(&theirs.host));
        let before = before.and_then(|seen| self.duplicate_in(&seen.key_state));
        if before.map(|lease| lease.incarnation) != Some(theirs.incarnation) {
            // The guard may yet tell that the other one was the previous instance.
            if self.guard.has_reported() {
                self.report(Report::OwnToken { token, host });
            }
        } else if self.duplicate_reported_at.is_none_or(|at| now.since(at) >= DUPLICATE_EVERY) {
            self.duplicate_reported_at = Some(now);
            let incarnation = theirs.incarnation.to_string();
            self.report(Report::DuplicateToken { token, host, incarnation });
        }
    }

    fn duplicate_in<'a>(&self, key_state: &'a KeyState) -> Option<&'a Lease> {
        let is_predecessors = self.predecessor_term_in(key_state).is_some();
        self.id.namesake(key_state).filter(|_| !is_predecessors)
    }

    /// Returns the term of a record that an earlier instance of this agent wrote, if the guard runs
    /// the service of this term: that instance is dead, or the guard would not serve this one. An
    /// instance that adopted the service and died before its first grant counts too: the guard does
    /// not know it.
    pub(super) fn predecessor_term_in(&self, key_state: &KeyState) -> Option<Revision> {
        let lease = self.id.namesake(key_state).filter(|lease| lease.boot == self.id.boot)?;
        let term = lease.term.unwrap_or(key_state.revision);
        (self.guard.predecessor_term == Some(term)).then_some(term)
    }

    /// Returns the state of the present seat's key in an event, if this instance did not write it.
    pub(super) fn foreign_key<'a>(&self, event: &'a Event) -> Option<&'a KeyState> {
        event.key_state(self.store.seat).filter(|key_state| !self.id.wrote(key_state))
    }

    /// Takes in that the store has lost writes.
    pub(super) fn roll_back(&mut self, how: Rollback, now: Instant) {
        self.store.roll_back(how, &mut self.effects, now);
    }

    /// Returns the seat of a grant if the settings have no such seat any more.
    pub(super) fn seat_gone(&self, grant: &Grant) -> Option<Seat> {
        grant.context.seat.filter(|seat| seat.0 >= self.config.seats)
    }

    /// Returns the name of a seat's lock in a text.
    pub(super) fn lock_name(&self, seat: Seat) -> LockName {
        match self.config.seats {
            1 => LockName::Only,
            _ => LockName::Seat(seat),
        }
    }

    pub(super) fn report(&mut self, report: Report) {
        self.want(Effect::Report(report));
    }

    pub(super) fn want(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(super) fn tell_guard(&mut self, message: ToGuard, now: Instant) {
        self.guard.tell(message, &mut self.effects, now);
    }

    /// Reads the key of the present seat. The store is idle.
    pub(super) fn read(&mut self, now: Instant) {
        let Context { store, effects, .. } = self;
        store.key_mut().hinted = Revision(0);
        let deadline = now.after(self.config.timing.attempt());
        store.request(Effect::Read { seat: store.seat, deadline }, effects);
    }

    /// Runs the health check, which must not be running; `starting` tells that the first start
    /// of the term runs.
    pub(super) fn run_check(
        &mut self,
        role: Role,
        deadline: Instant,
        starting: bool,
        hold: Option<&Hold>,
    ) {
        self.check_runs = true;
        let context = self.lock_context(hold);
        let command = Command::Check;
        self.want(Effect::RunCheck(Run { command, role, deadline, starting, context }));
    }

    pub(super) fn kill_check(&mut self) {
        if self.check_runs {
            self.want(Effect::KillCheck);
        }
    }

    /// Returns an order to make sure that the service is down: no lock of this agent is at
    /// stake.
    pub(super) fn stop_order(&self, now: Instant) -> StopOrder {
        StopOrder {
            dead_by: now.after(self.config.timing.stop_budget()),
            stake: Stake::Assurance,
            context: self.lock_context(None),
        }
    }

    /// Returns why this agent can take no lock now, even if its service is down and its health
    /// check passes.
    pub(super) fn obstacle(&self) -> Option<&str> {
        if self.pauses.is_paused() {
            Some("paused")
        } else if !self.store.is_open() {
            Some("the store is out of reach")
        } else {
            self.guard.unfit()
        }
    }

    /// Returns the lock as a command is told it.
    pub(super) fn lock_context(&self, hold: Option<&Hold>) -> LockContext {
        LockContext {
            term: hold.map(|hold| hold.term),
            epoch: self.store.bucket.as_ref().map(|bucket| bucket.epoch.clone()),
            previous: hold.and_then(|hold| hold.previous.clone()),
            seat: hold.map(|_| self.store.seat).filter(|_| self.config.seats > 1),
        }
        .tellable()
    }
}
