//! Watchdog devices, as guards and the kernel use them.

use putex::core::guard::News;

use super::clock::True;
use super::counters::Sometimes;
use super::world::{Happening, World};

/// A watchdog device that runs.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    pub kicked_at: True,
    /// By the kernel, when its guard died.
    pub again_at: True,
    timeout: True,
    /// Which guard has it open, dead or alive.
    pub guard: usize,
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

    /// The clocks of devices are coarse: one may bite a sixteenth late.
    pub fn arm_device(&mut self, id: usize) {
        let setup = &self.sc.sites[self.guards[id].site];
        let Some(timeout) = setup.device else {
            return self.guard_hears(id, News::NoDevice(None));
        };
        let kicked_at = self.now;
        let shortest = super::clock::nanos(timeout);
        let bites = self.chance.between(shortest, shortest + shortest / 16);
        self.hosts[setup.host].device = Some(Device {
            kicked_at,
            again_at: 0,
            timeout: bites,
            guard: id,
        });
        self.after(bites, Happening::Bite(setup.host));
        self.guard_hears(id, News::Device(timeout));
    }

    /// Resets the host, unless the device was kicked or closed meanwhile.
    pub fn bite(&mut self, host: usize) {
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
