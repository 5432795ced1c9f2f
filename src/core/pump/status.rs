//! What the agent says of itself: when it is asked for its status, and in its metrics.

use std::time::Duration;

use super::context::Context;
use super::hold::Hold;
use super::{Pump, State};
use crate::core::agent_status::{AgentStatus, seconds};
use crate::core::command::LockContext;
use crate::core::event::Pause;
use crate::core::seat::Seat;
use crate::core::time::Instant;

/// The state of an agent at one moment, as far as its metrics tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The name of the state.
    pub state: &'static str,
    /// The seat of the lock that it holds.
    pub held: Option<Seat>,
    /// It holds the lock, or takes it when that may be had.
    pub candidate: bool,
    /// A pause of the service is known to it.
    pub paused: bool,
    /// Its store is open.
    pub store_up: bool,
    /// Its guard answers.
    pub guard_up: bool,
    /// The last start of its term has failed.
    pub start_failing: bool,
}

impl Pump {
    /// Returns the status of this agent, which has been in its state since `moved_at` for the
    /// reason `why`.
    pub fn status(&self, moved_at: Instant, why: &str, now: Instant) -> AgentStatus {
        let Pump { state, context } = self;
        let (config, id) = (&context.config, &context.id);
        let hold = state.hold();
        let not_candidate_why = state.why_no_candidate(context);
        AgentStatus {
            token: id.token.clone(),
            host: id.host.clone(),
            incarnation: id.incarnation.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: state.name().to_owned(),
            state_seconds: seconds(now.since(moved_at)),
            why: why.to_owned(),
            seat: hold.filter(|_| config.seats > 1).map(|_| context.seat.0),
            term: hold.map(|hold| hold.term.0),
            valid_seconds: hold.map(|hold| seconds(hold.valid_until.since(now))),
            priority: config.priority.to_string(),
            failback_seconds: config.failback.map(seconds),
            candidate: not_candidate_why.is_none(),
            not_candidate_why,
            pause: state.observed_pause(context).map(|pause| pause.revision.0),
            store_up: context.is_open(),
            guard_up: context.has_guard(),
            start_failure: context.guard.start_failure().map(str::to_owned),
            start_runs_seconds: state.start_runs_for(context, now).map(seconds),
            may_still_run: matches!(state, State::Stopping(stopping) if stopping.may_still_run()),
            service_down: context.guard.is_down(),
            renewal_seconds: seconds(config.timing.renewal()),
            failures: config.timing.failures(),
            confirmations: config.timing.confirmations(),
        }
    }

    /// Returns how this agent is now, and until when its lock is valid.
    pub fn moment(&self) -> (Moment, Option<Instant>) {
        let Pump { state, context } = self;
        let hold = state.hold();
        let moment = Moment {
            state: state.name(),
            held: hold.map(|_| context.seat),
            candidate: state.why_no_candidate(context).is_none(),
            paused: context.pause.is_some(),
            store_up: context.is_open(),
            guard_up: context.has_guard(),
            start_failing: context.guard.start_failure().is_some(),
        };
        (moment, hold.map(|hold| hold.valid_until))
    }

    /// Returns what a command is told of the lock that this agent holds, or under which its
    /// service is being stopped.
    pub fn lock_context(&self) -> LockContext {
        if let State::Stopping(stopping) = &self.state {
            return stopping.order().context.clone();
        }
        self.context.lock_context(self.state.hold())
    }
}

impl State {
    fn hold(&self) -> Option<&Hold> {
        match self {
            State::Confirming(confirming) => Some(&confirming.hold),
            State::Active(active) => Some(&active.hold),
            State::Looking(_)
            | State::Standby(_)
            | State::Taking(_)
            | State::Stopping(_)
            | State::Ended => None,
        }
    }

    /// Returns for how long the first start of this term has been running, if it runs.
    fn start_runs_for(&self, context: &Context, now: Instant) -> Option<Duration> {
        match self {
            State::Active(active) => active.start_runs_for(context, now),
            State::Looking(_)
            | State::Standby(_)
            | State::Taking(_)
            | State::Confirming(_)
            | State::Stopping(_)
            | State::Ended => None,
        }
    }

    /// Returns the pause that this agent observes.
    fn observed_pause<'a>(&self, context: &'a Context) -> Option<&'a Pause> {
        match self {
            State::Standby(_) | State::Taking(_) | State::Confirming(_) | State::Active(_) => {
                context.pause.as_ref()
            }
            // It is looking for a service to adopt, or stops one.
            State::Looking(_) | State::Stopping(_) | State::Ended => None,
        }
    }

    /// Returns why this agent does not take the lock; `None` if it does, or holds it.
    fn why_no_candidate(&self, context: &Context) -> Option<String> {
        match self {
            State::Standby(standby) => standby.why_no_candidate(context),
            State::Looking(_) => Some("the key has not been read yet".to_owned()),
            State::Stopping(_) => Some("the service is being stopped".to_owned()),
            State::Ended => Some("it ends".to_owned()),
            State::Taking(_) | State::Confirming(_) | State::Active(_) => None,
        }
    }
}
