//! Until when a service may run: what an agent tells its guard, and what one life of
//! it leaves to the next.

use crate::core::command::LockContext;
use crate::core::time::Instant;
use crate::core::timing::Timing;

/// How long the service may run, as the agent tells its guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// It is down, or was never started: there is nothing to guard.
    Down,
    /// It may run, within this fence.
    MayRun(Fence),
}

/// Until when a service may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// V. Until then the agent may be gone: another life of it may adopt.
    pub valid_until: Instant,
    /// When an agent that lives but says nothing more has to be replaced.
    pub act_at: Instant,
    /// The same while the agent's stop command runs, which it is left to see to.
    pub stop_until: Option<Instant>,
    /// When the service must be dead.
    pub dead_by: Instant,
    /// The last resort has succeeded already.
    pub resorted: bool,
}

impl Fence {
    /// Returns the fence of a lock that is valid until `valid_until`.
    #[must_use]
    pub fn of_lock(valid_until: Instant, timing: Timing) -> Fence {
        Fence {
            valid_until,
            act_at: valid_until.after(timing.guard_patience()),
            stop_until: None,
            dead_by: valid_until.after(timing.stop_budget()),
            resorted: false,
        }
    }
}

/// What a life of the agent left to the next: the service may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inherited {
    /// Until when.
    pub fence: Fence,
    /// The lock that it runs under.
    pub under: LockContext,
    /// A start was killed as that life had died, and has not ended: its end is told as if
    /// it were this life's.
    pub start_dies: bool,
}
