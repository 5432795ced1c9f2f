//! What every state needs: the configuration, the store as it is known, the guard, the health
//! check, and the effects of the turn. Each event passes through [`Context::handle_event`] first.

use super::guard_view::GuardView;
use super::hold::Hold;
use super::store_view::{KeyView, StoreView};
use super::{AgentId, Config};
use crate::core::command::{Command, LockContext, Role, Run};
use crate::core::event::{Effect, Ending, Event, Pause, StoreError, Written};
use crate::core::protocol::{Grant, Stake, StopOrder};
use crate::core::record::{KeyState, KeyValue, Record, Revision};
use crate::core::report::{LockName, Report};
use crate::core::seat::Seat;
use crate::core::time::Instant;

/// The way to the store: at most one request is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connection {
    /// The store is out of reach.
    Closed,
    /// No request is under way.
    Idle,
    /// A read is under way.
    Reading,
    /// A write is under way.
    Writing,
}

#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) config: Config,
    pub(super) id: AgentId,
    pub(super) connection: Connection,
    pub(super) store: StoreView,
    /// The seat of the last request: the one of this agent, or on standby the one that was read.
    pub(super) seat: Seat,
    pub(super) guard: GuardView,
    /// A health check runs, or was killed and has not ended.
    pub(super) check_runs: bool,
    /// The term of the grant that an earlier instance of this agent gave to the guard.
    pub(super) predecessor_term: Option<Revision>,
    /// The pause that the agents of this key observe.
    pub(super) pause: Option<Pause>,
    /// The number of the last pause that has ended.
    pub(super) ended_pause: Option<u64>,
    /// When two agents with one token were reported last.
    pub(super) duplicate_reported_at: Option<Instant>,
    /// Why the store refuses this agent, since it was open last.
    pub(super) rejection: Option<StoreError>,
    nonce: u64,
    effects: Vec<Effect>,
}

impl Context {
    pub(super) fn new(config: Config, id: AgentId, now: Instant) -> Context {
        let (store, guard) = (StoreView::new(config.seats), GuardView::new(config.observes, now));
        Context {
            config,
            id,
            connection: Connection::Closed,
            store,
            seat: Seat::FIRST,
            guard,
            check_runs: false,
            predecessor_term: None,
            pause: None,
            ended_pause: None,
            duplicate_reported_at: None,
            rejection: None,
            nonce: 0,
            effects: Vec::new(),
        }
    }

    /// Takes in what an event says of the world.
    pub(super) fn handle_event(&mut self, event: &Event, now: Instant) {
        self.store.rolled_back = false;
        self.end_pause(now);
        match event {
            Event::Opened(opened) => self.handle_opened(opened, now),
            Event::Closed(why) => {
                if self.is_open() {
                    self.report(Report::StoreLost(why.clone()));
                }
                self.connection = Connection::Closed;
            }
            Event::Read(answer) => {
                self.answered();
                match answer {
                    Ok(key_state) => self.observe(self.seat, key_state, now),
                    Err(why) => self.report(Report::ReadUnanswered(why.clone())),
                }
            }
            Event::Written(written) => {
                self.answered();
                match written {
                    Written::Stored(revision) => self.handle_stored(*revision, now),
                    Written::Moved(Some(revision)) => self.key_mut().show(*revision),
                    Written::Moved(None) | Written::Denied(_) | Written::Unknown(_) => {}
                }
            }
            Event::Hint(seat, revision) => {
                let named = revision.unwrap_or(Revision(u64::MAX));
                let key = &mut self.store.keys[seat.index()];
                key.hinted = key.hinted.max(named);
            }
            Event::Changed(seat, key_state) => self.observe(*seat, key_state, now),
            Event::CheckEnded(_) => self.check_runs = false,
            Event::Guard(number, event) => self.handle_guard_event(*number, event, now),
            Event::Rejected(rejection) => {
                if self.store.bucket.is_some() && self.rejection.as_ref() != Some(rejection) {
                    self.report(Report::StoreRefuses(rejection.to_string()));
                }
                self.rejection = Some(rejection.clone());
            }
            Event::PauseRead(pause) => self.handle_pause(pause.as_ref(), now),
            Event::Tick
            | Event::SwitchoverRequested(_)
            | Event::StatusRequested
            | Event::Shutdown(_) => {}
        }
    }

    /// Returns what is known of the key of the seat of this agent, or that it asked for last.
    pub(super) fn key(&self) -> &KeyView {
        &self.store.keys[self.seat.index()]
    }

    /// Returns the seat of a grant if this agent has fewer seats.
    pub(super) fn seat_gone(&self, grant: &Grant) -> Option<Seat> {
        grant.context.seat.filter(|seat| seat.0 >= self.config.seats)
    }

    /// Returns the lock of a seat in a text.
    pub(super) fn lock_name(&self, seat: Seat) -> LockName {
        match self.config.seats {
            1 => LockName::Only,
            _ => LockName::Seat(seat),
        }
    }

    pub(super) fn key_mut(&mut self) -> &mut KeyView {
        &mut self.store.keys[self.seat.index()]
    }

    fn answered(&mut self) {
        if self.is_open() {
            self.connection = Connection::Idle;
        }
    }

    /// Returns whether the guard answers, where one is needed.
    pub(super) fn has_guard(&self) -> bool {
        self.config.observes || self.guard.is_up()
    }

    /// Returns whether the store is open.
    pub(super) fn is_open(&self) -> bool {
        self.connection != Connection::Closed
    }

    /// Returns whether a request may be made.
    pub(super) fn is_idle(&self) -> bool {
        self.connection == Connection::Idle
    }

    /// Returns a number that no write of this incarnation had.
    pub(super) fn next_nonce(&mut self) -> u64 {
        self.nonce += 1;
        self.nonce
    }

    pub(super) fn report(&mut self, report: Report) {
        self.want(Effect::Report(report));
    }

    pub(super) fn want(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Reads the key of the present seat. The store is idle.
    pub(super) fn read(&mut self, now: Instant) {
        self.connection = Connection::Reading;
        self.key_mut().hinted = Revision(0);
        let deadline = now.after(self.config.timing.attempt());
        self.want(Effect::Read { seat: self.seat, deadline });
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

    /// Returns how an agent ends that the store has refused from the first.
    pub(super) fn rejected(&self) -> Option<Ending> {
        let rejection = self.rejection.as_ref().filter(|_| self.store.bucket.is_none())?;
        Some(Ending::Rejected(rejection.clone()))
    }

    /// Returns the term of a record that an earlier instance of this agent wrote, if it is the
    /// term of the service with which the guard goes on: that instance is dead, or the guard
    /// would not talk to this one. An instance that adopted the service and died before its
    /// first grant counts too: the guard does not know it.
    pub(super) fn predecessor_term_in(&self, key_state: &KeyState) -> Option<Revision> {
        let KeyValue::Record(Record { token, lease: Some(lease) }) = &key_state.value else {
            return None;
        };
        let same_agent = *token == self.id.token && lease.boot == self.id.boot;
        let other_instance = lease.incarnation != self.id.incarnation;
        let term = lease.term.unwrap_or(key_state.revision);
        (same_agent && other_instance && self.predecessor_term == Some(term)).then_some(term)
    }

    /// Returns what a command is told of the lock.
    pub(super) fn lock_context(&self, hold: Option<&Hold>) -> LockContext {
        LockContext {
            term: hold.map(|hold| hold.term),
            epoch: self.store.bucket.as_ref().map(|bucket| bucket.epoch.clone()),
            previous: hold.and_then(|hold| hold.previous.clone()),
            seat: hold.map(|_| self.seat).filter(|_| self.config.seats > 1),
        }
        .tellable()
    }
}
