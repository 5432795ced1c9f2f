//! Whether a start enters the control group.
//!
//! Start is asserted every R, and to enter the group costs every fork on the host some 10 ms, and
//! start too. To enter is worth that when a service may come of it: at the first start of a term,
//! and when the service that the last start left inside has died. A start that succeeds and leaves
//! no process there has its service run by another, such as an init system or a container engine,
//! and stays outside until a stop is run.

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
