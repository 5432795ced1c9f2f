//! Whether a start enters the control group.
//!
//! Start is asserted every R, and to enter the group delays start, and every fork on the host, by
//! some 10 ms. So start enters only if a service may come of it: at the first start of a term, and
//! when the service that the last start left in the group has died. If a start succeeds and leaves
//! no process there, another program runs the service, such as an init system or a container
//! engine, and later starts stay outside until a stop is run.

use super::cgroup::ServiceCgroup;

/// The rule for one guard.
#[derive(Debug, Default)]
pub(super) struct CgroupEntry {
    /// The start that runs has entered.
    entered: bool,
    /// The last start that entered and succeeded has left a process there. `None` before there was
    /// one, or after a stop.
    inhabited: Option<bool>,
}

impl CgroupEntry {
    /// Returns whether the next start enters.
    pub(super) fn enters(&mut self, cgroup: &ServiceCgroup) -> bool {
        self.entered = match self.inhabited {
            None => true,
            Some(false) => false,
            Some(true) => !cgroup.is_populated().unwrap_or(false),
        };
        self.entered
    }

    pub(super) fn start_succeeded(&mut self, cgroup: &ServiceCgroup) {
        if self.entered {
            self.inhabited = Some(cgroup.is_populated().unwrap_or(true));
        }
    }
}
