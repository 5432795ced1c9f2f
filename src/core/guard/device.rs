//! When the watchdog device is kicked.

use std::time::Duration;

use super::{Act, Fence, Guard, Phase, Watch};
use crate::core::time::Instant;
use crate::core::watchdog_timeout::longest_bite;

/// The device is kicked at every word of the agent, and so often within its timeout.
const KICKS: u32 = 3;

/// A watchdog device that runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Device {
    pub(super) timeout: Duration,
    pub(super) kicked_at: Instant,
}

/// Returns after when a device of this timeout must not be kicked any more.
pub(super) fn last_kick(fence: Fence, timeout: Duration) -> Instant {
    fence.dead_by.before(longest_bite(timeout))
}

impl Guard {
    /// Kicks the device, unless it is too late for that: then it bites.
    pub(super) fn kick(&mut self, now: Instant) {
        let last = self.last_kick_at();
        if let Some(device) = &mut self.device {
            let allowed = last.is_none_or(|last| now <= last);
            device.kicked_at = last.unwrap_or(now).min(now);
            if allowed {
                self.act(Act::Kick);
            }
        }
    }

    /// Returns after when the device must not be kicked any more.
    fn last_kick_at(&self) -> Option<Instant> {
        match (self.watch, self.device) {
            (Watch::MayRun(fence), Some(device)) => Some(last_kick(fence, device.timeout)),
            (Watch::Down | Watch::MayRun(_), _) => None,
        }
    }

    /// Returns when the device is to be kicked next; `None` when it must not be.
    pub(super) fn kick_at(&self) -> Option<Instant> {
        let device = self.device?;
        if self.phase == Phase::Left {
            return None;
        }
        let rest = device.kicked_at.after(device.timeout / KICKS);
        match self.last_kick_at() {
            None => Some(rest),
            Some(last) => (device.kicked_at < last).then(|| rest.min(last)),
        }
    }
}
