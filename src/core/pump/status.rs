//! The status of the agent, from the state of the pump.

use super::active::Active;
use super::context::Context;
use super::hold::Hold;
use super::taking::Confirming;
use super::{Pump, State};
use crate::core::agent_status::{AgentStatus, ServiceStatus, seconds};
use crate::core::command::LockContext;
use crate::core::time::Instant;

/// The parts of a status that a [`Pump`] does not remember.
#[derive(Clone, Debug)]
pub struct Since {
    /// When the state has changed last.
    pub state: Instant,
    /// Why the state has changed.
    pub why: String,
    /// The last status of the service, and since when it has been so.
    pub service: (ServiceStatus, Instant),
}

impl Pump {
    /// Returns the status of this agent.
    pub fn status(&self, since: &Since, now: Instant) -> AgentStatus {
        let Pump { state, context } = self;
        let (config, id) = (&context.config, &context.id);
        let hold = state.hold();
        AgentStatus {
            token: id.token.clone(),
            host: id.host.clone(),
            incarnation: id.incarnation.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: state.name(),
            state_seconds: seconds(now.since(since.state)),
            why: since.why.clone(),
            service: since.service.0,
            service_seconds: seconds(now.since(since.service.1)),
            seats: config.seats,
            agents: config.agents,
            seat: hold.filter(|_| config.seats > 1).map(|_| context.store.seat.0),
            term: hold.map(|hold| hold.term.0),
            priority: config.priority.to_string(),
            not_candidate_why: state.why_no_candidate(context),
            paused: context.pauses.is_paused(),
            pause: context.pauses.serial(),
            epoch: context.store.bucket.as_ref().map(|id| id.epoch.clone()).unwrap_or_default(),
            store_up: context.store.is_open(),
            guard_up: context.guard.is_up(),
            start_pending: context.guard.start_may_begin,
            start_failure: context.guard.start_failure().map(str::to_owned),
            renewal_seconds: seconds(config.timing.renewal()),
            failures: config.timing.failures(),
            confirmations: config.timing.confirmations(),
        }
    }

    /// Returns until when the lock is valid, while this agent holds it.
    pub fn valid_until(&self) -> Option<Instant> {
        self.state.hold().map(|hold| hold.valid_until)
    }

    /// Returns the status of the service.
    pub fn service(&self) -> ServiceStatus {
        let guard = &self.context.guard;
        match &self.state {
            State::Stopping(stopping) if stopping.may_still_run() => ServiceStatus::Overdue,
            _ if guard.is_down() => ServiceStatus::Down,
            State::Stopping(_) => ServiceStatus::Stopping,
            _ if guard.has_started() => ServiceStatus::Up,
            State::Active(active) if !active.is_start_asserted() => ServiceStatus::Down,
            State::Active(_) if guard.knows_of_start() => ServiceStatus::Starting,
            // The lost guard may have run start.
            State::Active(_) => ServiceStatus::Unknown,
            State::Looking(_) | State::Standby(_) | State::Taking(_) => ServiceStatus::Unknown,
            State::Confirming(_) | State::Ended => ServiceStatus::Unknown,
        }
    }

    /// Returns the lock that this agent holds, or under which its service is being stopped, as a
    /// command is told it.
    pub fn lock_context(&self) -> LockContext {
        if let State::Stopping(stopping) = &self.state {
            return stopping.order.context.clone();
        }
        self.context.lock_context(self.state.hold())
    }
}

impl State {
    fn hold(&self) -> Option<&Hold> {
        match self {
            State::Confirming(Confirming { hold, .. }) | State::Active(Active { hold, .. }) => {
                Some(hold)
            }
            State::Looking(_) | State::Standby(_) | State::Taking(_) => None,
            State::Stopping(_) | State::Ended => None,
        }
    }

    /// Returns why this agent does not take the lock; `None` if it does, or holds it.
    fn why_no_candidate(&self, context: &Context) -> Option<String> {
        let why = match self {
            State::Standby(standby) => standby.why_no_candidate(context)?,
            State::Looking(_) => "the key has not been read yet",
            State::Stopping(_) => "the service is being stopped",
            State::Ended => "it ends",
            State::Taking(_) | State::Confirming(_) | State::Active(_) => return None,
        };
        Some(why.to_owned())
    }
}
