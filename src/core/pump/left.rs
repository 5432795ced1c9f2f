//! Under which lock a service that has to be stopped was left running, and what follows
//! from that for its end.

use super::Hold;
use super::facts::Facts;
use crate::core::command::LockContext;
use crate::core::guard::Inherited;
use crate::core::time::Instant;
use crate::core::timing::Timing;

/// The lock under which the service was left running.
#[derive(Clone, Debug)]
pub(super) enum Left {
    /// None: stop is run to make sure.
    Nothing,
    /// This agent's.
    Hold(Hold),
    /// One of a previous life of this agent.
    Inherited(Inherited),
}

impl Left {
    /// Returns the stop budget of an agent that ends the service of its own accord: when it
    /// begins, and when the service must be dead. Of a previous life's lock it is what is
    /// left of it, but not more than a loss that was noticed now would have.
    pub(super) fn span(&self, timing: Timing, now: Instant) -> (Instant, Instant) {
        let budget = timing.stop_budget();
        match self {
            Left::Nothing => (now, now.after(budget)),
            Left::Hold(hold) => (hold.valid_until, hold.valid_until.after(budget)),
            Left::Inherited(Inherited { fence, .. }) => (
                fence.valid_until.min(now),
                fence.dead_by.min(now.after(budget)),
            ),
        }
    }

    /// Returns V + C·R, although an earlier end holds since another wrote.
    pub(super) fn bound(&self, timing: Timing, dead_by: Instant) -> Instant {
        match self {
            Left::Nothing => dead_by,
            Left::Hold(hold) => hold.valid_until.after(timing.stop_budget()),
            Left::Inherited(inherited) => inherited.fence.dead_by,
        }
    }

    /// Returns whether a last resort has succeeded already.
    pub(super) fn is_resorted(&self) -> bool {
        match self {
            Left::Nothing | Left::Hold(_) => false,
            Left::Inherited(inherited) => inherited.fence.resorted,
        }
    }

    /// Returns what commands are told of that lock.
    pub(super) fn under(&self, facts: &Facts) -> LockContext {
        match self {
            Left::Nothing => facts.under(None),
            Left::Hold(hold) => facts.under(Some(hold)),
            Left::Inherited(inherited) => inherited.under.clone(),
        }
    }
}
