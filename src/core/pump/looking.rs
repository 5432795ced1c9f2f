//! The first state: the agent knows nothing yet, reads the key, and asks the guard that may have
//! outlived the previous instance of this agent.

use log::Level;

use super::context::Context;
use super::deadline::{Timer, Timers};
use super::standby::Standby;
use super::stopping::{ServiceLock, Stopping};
use super::taking::Taking;
use super::{Next, State, end};
use crate::core::report::Reason;
use crate::core::time::Instant;

/// The state of an agent that has just started.
#[derive(Clone, Debug)]
pub(super) struct Looking {
    pub(super) since: Instant,
}

impl Looking {
    pub(super) fn turn(self, context: &mut Context, now: Instant) -> Next {
        let over = now >= self.until(context);
        let has_answered = context.guard.has_answered();
        // The ending depends on whether the guard lets the service run.
        if let Some(ending) = context.store.ending()
            && (has_answered || over)
        {
            if context.guard.is_down() {
                return end(context, ending);
            }
            let lock = ServiceLock::inherited(context.guard.grant());
            return Stopping::to_end(context, lock, ending, Reason::Refused, now);
        }
        match context.guard.grant() {
            Some(grant) if over => {
                let lock = ServiceLock::Lost(grant);
                Stopping::begin(context, lock, Reason::PredecessorOver, now)
            }
            Some(grant) if context.store.is_open() => Taking::adopt(context, grant, now),
            None if has_answered && context.store.is_open() => {
                // The keys were read just now.
                let read_at = now.after(context.config.timing.renewal());
                let standby = Standby::new(context, read_at, now);
                Next::Go(State::Standby(standby), Reason::Open, Level::Info)
            }
            None if over => Standby::begin(context, Reason::NotRead, now),
            Some(_) | None => Next::Stay(State::Looking(self)),
        }
    }

    pub(super) fn set_timers(&self, timers: &mut Timers, context: &Context) {
        timers.set(Timer::LookingOver, self.until(context));
    }

    /// Returns until when this agent looks. A service that the previous instance left running has
    /// until its lock runs out. A lock that cannot be read within R counts as another agent's, but
    /// the guard has its time to answer: only its answer tells whether such a service runs.
    fn until(&self, context: &Context) -> Instant {
        let renewal = context.config.timing.renewal();
        match context.guard.grant() {
            Some(grant) => grant.valid_until,
            None if context.guard.has_answered() => self.since.after(renewal),
            None => self.since.after(renewal.max(context.guard.answer_time())),
        }
    }
}
