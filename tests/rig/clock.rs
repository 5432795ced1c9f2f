//! The rig's one clock, CLOCK_BOOTTIME, and waiting with a deadline on it.

use std::thread;
use std::time::Duration;

use rustix::time::ClockId;

/// An instant, as the time since boot.
pub(crate) type At = Duration;

/// How often something is looked at again that cannot be waited for.
const POLL: Duration = Duration::from_millis(2);

/// Returns the present instant.
pub(crate) fn now() -> At {
    let at = rustix::time::clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(at.tv_sec).expect("time since boot is positive");
    let nanos = u32::try_from(at.tv_nsec).expect("nanoseconds are below 10^9");
    Duration::new(seconds, nanos)
}

/// Looks until there is something to see; `None` when `deadline` passes first.
pub(crate) fn wait_until<T>(deadline: At, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if now() >= deadline {
            return None;
        }
        thread::sleep(POLL);
    }
}

/// Lets `window` pass while something else is observed.
pub(crate) fn observe_for(window: Duration) {
    thread::sleep(window);
}

/// Returns the milliseconds of `time`, with their fraction.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

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
    pub(crate) fn patience(self) -> Duration {
        self.takeover() * 5 + Duration::from_secs(3)
    }
}
