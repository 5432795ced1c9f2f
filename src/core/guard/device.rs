//! When the watchdog device is opened, kicked and closed.
//!
//! The device resets the host unless it is kicked in time. While the service may run, the device is
//! never kicked so late that it would reset the host after the service must be down. The device is
//! closed, so that it stops, only while the service is down.

use std::time::Duration;

use crate::core::protocol::DeviceUse;
use crate::core::time::Instant;
use crate::core::watchdog_timeout::latest_reset;

/// How often the device is kicked within its timeout, besides at every grant.
const KICKS: u32 = 3;

/// The watchdog device, as the guard knows it.
#[derive(Clone, Debug)]
pub(super) struct Device {
    wanted: DeviceUse,
    state: DeviceState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum DeviceState {
    /// The device was not tried.
    Untried,
    /// The device was opened and closed again: it can be used.
    Closed,
    /// The device runs. `requested` is the timeout that was requested of it.
    Open { timeout: Duration, requested: Duration, kicked_at: Instant },
    /// The device cannot be used; why.
    Failed(String),
}

/// Returns the last instant at which a device of this timeout may be kicked while a service must be
/// down by `dead_by`; `None` if any instant will do, as while the service is down.
fn last_kick(dead_by: Option<Instant>, timeout: Duration) -> Option<Instant> {
    dead_by.map(|dead_by| dead_by.before(latest_reset(timeout)))
}

impl Device {
    pub(super) fn new(wanted: DeviceUse) -> Device {
        Device { wanted, state: DeviceState::Untried }
    }

    /// Takes in how an instance of the agent wants to use the device. A device that runs stays.
    pub(super) fn configure(&mut self, wanted: DeviceUse) {
        self.wanted = wanted;
        if !self.is_open() {
            self.state = DeviceState::Untried;
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, DeviceState::Open { .. })
    }

    /// Whether the device is to be opened and closed once, so that it is known whether it can be
    /// used. A device that is required and failed is tried again.
    pub(super) fn wants_trial(&self) -> bool {
        match self.state {
            DeviceState::Untried => self.wanted != DeviceUse::None,
            DeviceState::Failed(_) => self.wanted == DeviceUse::Required,
            DeviceState::Closed | DeviceState::Open { .. } => false,
        }
    }

    /// Whether the device is to be opened before the service is started, or a device that runs is
    /// to get this timeout, since R, F or C have changed. To open a device is to kick it, and a
    /// dead guard may have left it running: it is not opened when it is too late for a kick.
    pub(super) fn wants_opening(
        &self,
        dead_by: Option<Instant>,
        timeout: Duration,
        now: Instant,
    ) -> bool {
        let differs = match self.state {
            DeviceState::Untried | DeviceState::Closed => self.wanted != DeviceUse::None,
            DeviceState::Open { requested, .. } => requested != timeout,
            DeviceState::Failed(_) => false,
        };
        differs && last_kick(dead_by, timeout).is_none_or(|last| now <= last)
    }

    /// Why the service must not be started, if so.
    pub(super) fn unfit(&self) -> Option<&str> {
        let DeviceState::Failed(why) = &self.state else { return None };
        (self.wanted == DeviceUse::Required).then_some(why)
    }

    /// Whether start may be run, as far as the device goes.
    pub(super) fn allows_start(&self) -> bool {
        match self.wanted {
            DeviceUse::None => true,
            DeviceUse::Optional => !matches!(self.state, DeviceState::Untried),
            DeviceUse::Required => self.is_open(),
        }
    }

    /// The device was opened, or has got another timeout, which kicks it.
    pub(super) fn opened(&mut self, timeout: Duration, requested: Duration, now: Instant) {
        let kicked_at = now;
        self.state = DeviceState::Open { timeout, requested, kicked_at };
    }

    /// The device was closed and does not run any more.
    pub(super) fn closed(&mut self) {
        self.state = DeviceState::Closed;
    }

    /// A device that could not be used is tried again.
    pub(super) fn retry(&mut self) {
        if let DeviceState::Failed(_) = self.state {
            self.state = DeviceState::Untried;
        }
    }

    /// The device cannot be used.
    pub(super) fn failed(&mut self, why: String) {
        self.state = DeviceState::Failed(why);
    }

    /// Returns when the device is to be kicked next; `None` when it must not be.
    pub(super) fn kick_at(&self, dead_by: Option<Instant>) -> Option<Instant> {
        let DeviceState::Open { timeout, kicked_at, .. } = self.state else {
            return None;
        };
        let rest = kicked_at.after(timeout / KICKS);
        match last_kick(dead_by, timeout) {
            None => Some(rest),
            Some(last) => (kicked_at < last).then(|| rest.min(last)),
        }
    }

    /// Notes a kick; returns whether it is allowed: a kick that is too late must not be made.
    pub(super) fn kick(&mut self, dead_by: Option<Instant>, now: Instant) -> bool {
        let DeviceState::Open { timeout, kicked_at, .. } = &mut self.state else {
            return false;
        };
        let last = last_kick(dead_by, *timeout);
        *kicked_at = last.unwrap_or(now).min(now);
        last.is_none_or(|last| now <= last)
    }
}
