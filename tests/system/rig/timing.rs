//! R, F and C of the agents of a rig, and the times that follow from them.

use std::time::Duration;

/// Part of the stop budget that an agent keeps back.
const SLACK: Duration = Duration::from_millis(20);

/// R, F and C of the agents under test, and what the promise makes of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) r: Duration,
    pub(crate) f: u32,
    pub(crate) c: u32,
}

impl Timing {
    /// Returns T = F·R.
    pub(crate) fn lock_time(self) -> Duration {
        self.r * self.f
    }

    /// Returns T + C·R: by then the old holder's service is dead, and not before
    /// then may another's start.
    pub(crate) fn takeover(self) -> Duration {
        self.r * (self.f + self.c)
    }

    /// Returns the least time after which a last resort may follow the last renewal: V
    /// and the stop budget, as the default drift and the agent's slack leave them.
    pub(crate) fn last_resort_min(self) -> Duration {
        let validity = self.lock_time().mul_f64(0.99);
        let budget = (self.r * self.c).mul_f64(1.0 - 0.02 / 1.01);
        validity + budget.saturating_sub(SLACK)
    }

    /// Returns the longest failover that is accepted after a host died.
    pub(crate) fn takeover_max(self) -> Duration {
        self.takeover().mul_f64(1.08) + Duration::from_millis(60)
    }

    /// Returns how long anything may take before the rig gives up on it.
    pub(crate) fn longest_wait(self) -> Duration {
        self.takeover() * 5 + Duration::from_secs(3)
    }
}
