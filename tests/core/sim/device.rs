//! Watchdog devices, as guards and the kernel use them.

use putex::core::guard::GuardInput;
use putex::core::watchdog_timeout::wanted_timeout;

use super::clock::{True, nanos};
use super::counters::Sometimes;
use super::faults::Kind;
use super::world::{Happening, World};

/// A watchdog device that runs.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    kicked_at: True,
    /// By the kernel, when its guard died.
    again_at: True,
    timeout: True,
    /// Which guard has it open, dead or alive.
    guard: usize,
}

impl Device {
    /// Returns when it resets the host, if it is not kicked before.
    pub fn bites_at(&self) -> True {
        self.kicked_at.max(self.again_at) + self.timeout
    }

    /// Returns when it would, as its guard kicked it.
    pub fn meant_to_bite_at(&self) -> True {
        self.kicked_at + self.timeout
    }
}

impl World<'_> {
    pub fn device_of(&mut self, id: usize) -> Option<&mut Device> {
        let host = self.sc.sites[self.guards[id].site].host;
        let device = self.hosts[host].device.as_mut();
        device.filter(|device| device.guard == id)
    }

    fn device_fails(&mut self, id: usize) -> bool {
        if self.strikes(Kind::DeviceFail) {
            self.count(Sometimes::DeviceFailed);
            return true;
        }
        self.sc.sites[self.guards[id].site].device.is_none()
    }

    /// Tries the device. A device that the previous guard left running is stopped by that.
    pub fn try_device(&mut self, id: usize) -> GuardInput {
        if self.device_fails(id) {
            return GuardInput::DeviceFailed("1".to_owned());
        }
        self.stop_device(id);
        GuardInput::DeviceClosed
    }

    /// Opens the device, or gives the one that runs another timeout. The clocks of devices are
    /// coarse: one may bite a sixteenth late.
    pub fn open_device(&mut self, id: usize) -> GuardInput {
        let setup = &self.sc.sites[self.guards[id].site];
        let timing = self.guards[id].core.as_ref().map(|guard| guard.config().timing);
        let timeout = timing.and_then(|timing| wanted_timeout(timing).ok()).unwrap_or_default();
        if self.device_of(id).is_none() && self.device_fails(id) {
            return GuardInput::DeviceFailed("1".to_owned());
        }
        let kicked_at = self.now;
        let shortest = nanos(timeout);
        let bites = self.chance.between(shortest, shortest + shortest / 16);
        self.hosts[setup.host].device =
            Some(Device { kicked_at, again_at: 0, timeout: bites, guard: id });
        self.after(bites, Happening::Bite(setup.host));
        GuardInput::DeviceOpened(timeout)
    }

    pub fn kick_device(&mut self, id: usize) {
        let at = self.now;
        if let Some(device) = self.device_of(id) {
            device.kicked_at = at;
        }
    }

    pub fn close_device(&mut self, id: usize) -> Option<GuardInput> {
        self.device_of(id)?;
        self.stop_device(id);
        Some(GuardInput::DeviceClosed)
    }

    /// The device does not run any more: the service must be down.
    fn stop_device(&mut self, id: usize) {
        let site = self.guards[id].site;
        let host = self.sc.sites[site].host;
        let ran = self.hosts[host].device.take().is_some();
        if ran && self.may_come_up(site) && !self.lies_are_excused(site) {
            let text = format!("that of {site} is stopped while the service may be up");
            self.fail("device", text);
        }
    }

    /// The guard that has it open dies: the kernel kicks it once more.
    pub fn forsake_device(&mut self, id: usize) {
        let at = self.now;
        if let Some(device) = self.device_of(id) {
            device.again_at = at;
        }
    }

    /// Resets the host, unless the device was kicked or closed meanwhile.
    pub fn reset_host(&mut self, host: usize) {
        let Some(device) = self.hosts[host].device else {
            return;
        };
        if self.now < device.bites_at() {
            return self.at(device.bites_at(), Happening::Bite(host));
        }
        if self.hosts[host].asleep {
            return self.after(device.timeout / 4, Happening::Bite(host));
        }
        self.count(Sometimes::DeviceBit);
        self.power_loss(host);
    }
}
