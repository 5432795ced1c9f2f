//! All control groups in which the service may be, and whether a start enters one.
//!
//! Start is asserted every R, and to enter the group delays start, and every fork on the host, by
//! some 10 ms. So start enters only if a service may come of it: at the first start of a term, and
//! when the service that the last start left in the group has died. If a start succeeds and leaves
//! no process there, another program runs the service, such as an init system or a container
//! engine, and later starts stay outside until a stop is run.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use super::cgroup::ServiceCgroup;

/// The control groups of a guard.
pub(super) struct Cgroups {
    /// The control group of this guard first, then those that previous guards have used.
    open: Vec<ServiceCgroup>,
    /// The control groups of previous guards that could not be opened, as on a file system that
    /// is read-only now, and why: the service may live there. Each is tried again.
    unopened: Vec<(PathBuf, io::Error)>,
    /// The start that runs has entered.
    entered: bool,
    /// The last start that entered and succeeded has left a process there. `None` before there was
    /// one, or after a stop.
    inhabited: Option<bool>,
}

impl Cgroups {
    /// Takes this guard's own control group, and opens those of `noted` that are not known to be
    /// empty.
    pub(super) fn new(own: Option<ServiceCgroup>, noted: &[PathBuf]) -> Cgroups {
        let is_other = |dir: &&PathBuf| own.as_ref().is_none_or(|own| own.dir != **dir);
        let others = noted.iter().filter(is_other).cloned().collect();
        let (open, unopened) = (own.into_iter().collect(), Vec::new());
        let mut cgroups = Cgroups { open, unopened, entered: false, inhabited: None };
        cgroups.open_others(others);
        for (dir, error) in &cgroups.unopened {
            log::warn!("{}: {error}: the service may live in it", dir.display());
        }
        cgroups
    }

    /// Opens the control groups of previous guards, but for those in which nothing lives.
    fn open_others(&mut self, dirs: Vec<PathBuf>) {
        for dir in dirs {
            match ServiceCgroup::open(&dir) {
                Ok(other) if other.is_populated().unwrap_or(true) => self.open.push(other),
                Ok(_) => {}
                Err(_) if ServiceCgroup::is_known_empty(&dir) => {}
                Err(error) => self.unopened.push((dir, error)),
            }
        }
    }

    /// Returns the control group that start enters.
    pub(super) fn own(&self) -> Option<&ServiceCgroup> {
        self.open.first()
    }

    /// Returns the script by which the next start enters a control group, if it does.
    pub(super) fn entry(&mut self) -> Option<&str> {
        let own = self.open.first()?;
        self.entered = match self.inhabited {
            None => true,
            Some(false) => false,
            Some(true) => !own.is_populated().unwrap_or(false),
        };
        self.entered.then_some(&own.entry)
    }

    pub(super) fn start_succeeded(&mut self) {
        if let Some(own) = self.open.first().filter(|_| self.entered) {
            self.inhabited = Some(own.is_populated().unwrap_or(true));
        }
    }

    /// Has the next start enter.
    pub(super) fn forget_start(&mut self) {
        self.entered = false;
        self.inhabited = None;
    }

    /// Returns the directories of all control groups.
    pub(super) fn dirs(&self) -> Vec<PathBuf> {
        let unopened = self.unopened.iter().map(|(dir, _)| dir);
        self.open.iter().map(|it| &it.dir).chain(unopened).cloned().collect()
    }

    /// Returns the files that have an exceptional condition, as poll(2) calls it, when a control
    /// group may have become empty.
    pub(super) fn events(&self) -> impl Iterator<Item = &File> {
        self.open.iter().map(|it| &it.events)
    }

    /// Kills all processes of the control groups that are open.
    pub(super) fn kill(&self) {
        for cgroup in &self.open {
            // A control group that is gone holds no process.
            let _ = cgroup.kill();
        }
    }

    /// Returns whether no process lives in any control group.
    pub(super) fn are_empty(&mut self) -> bool {
        let again = self.unopened.drain(..).map(|(dir, _)| dir).collect();
        self.open_others(again);
        self.unopened.is_empty() && ServiceCgroup::are_empty(&self.open)
    }

    /// Forgets all but this guard's own, when all are empty.
    pub(super) fn forget_others(&mut self) {
        self.open.truncate(1);
    }

    /// Removes the control groups that are empty.
    pub(super) fn remove(&mut self) {
        self.open.drain(..).for_each(ServiceCgroup::remove);
    }
}
