//! Nothing is known yet: the key is read, and the guard that may have outlived the previous
//! instance of this agent is asked.

use super::context::Context;
use super::deadline::{Deadline, Timer};
use super::standby::Standby;
use super::stopping::{ServiceLock, Stopping};
use super::taking::Taking;
use super::{Next, State, end};
use crate::core::level::Level;
use crate::core::protocol::{Grant, ServiceState};
use crate::core::report::Reason;
use crate::core::time::Instant;

/// The state of an agent that has just started.
#[derive(Clone, Debug)]
pub(super) struct Looking {
    /// A store that cannot be read by then counts as another's.
    until: Instant,
    /// From here on the guard has its time to answer: whether it lets a service run that could be
    /// adopted is not known before.
    since: Instant,
}

impl Looking {
    pub(super) fn new(context: &Context, now: Instant) -> Looking {
        Looking { until: now.after(context.config.timing.renewal()), since: now }
    }

    pub(super) fn turn(self, context: &mut Context, now: Instant) -> Next {
        let over = now >= self.until(context);
        let guard_known = context.guard.is_known();
        // What becomes of the service depends on the guard.
        if let Some(ending) = context.rejected()
            && (guard_known || over)
        {
            if context.guard.is_down() {
                return end(context, ending);
            }
            let lock = ServiceLock::inherited(inherited(context));
            return Stopping::to_end(context, lock, ending, Reason::Refused, now);
        }
        match inherited(context) {
            Some(grant) if over => {
                let lock = ServiceLock::Inherited(grant);
                Stopping::begin(context, lock, Reason::PredecessorOver, now)
            }
            Some(grant) if context.is_open() => Taking::adopt(context, grant, now),
            None if guard_known && context.is_open() => {
                let standby = Standby::informed(context, now);
                Next::Go(State::Standby(standby), Reason::Open, Level::Info)
            }
            None if over => {
                let standby = Standby::new(context, now);
                Next::Go(State::Standby(standby), Reason::NotRead, Level::Info)
            }
            Some(_) | None => Next::Stay(State::Looking(self)),
        }
    }

    pub(super) fn deadline(&self, context: &Context) -> Option<Deadline> {
        Some(Timer::LookingOver.at(self.until(context)))
    }

    /// Until when this agent looks: a service that the previous instance left running has until
    /// its lock runs out.
    fn until(&self, context: &Context) -> Instant {
        match inherited(context) {
            Some(grant) => grant.valid_until,
            None if context.guard.is_known() => self.until,
            None => self.until.max(self.since.after(context.guard_answer_time())),
        }
    }
}

/// Returns the grant under which the previous instance left the service running.
pub(super) fn inherited(context: &Context) -> Option<Grant> {
    match context.guard.service()? {
        ServiceState::Up(grant, _) => Some(grant.clone()),
        ServiceState::Unknown | ServiceState::Down | ServiceState::Stopping { .. } => None,
    }
}
