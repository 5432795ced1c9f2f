//! All control groups in which the service may be.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use super::cgroup::ServiceCgroup;

/// The control groups of a guard.
pub(super) struct Cgroups {
    /// The control group of this guard first, then those that previous guards have used.
    open: Vec<ServiceCgroup>,
    /// The control groups of previous guards that could not be opened, as on a file system that
    /// is read-only now: the service may live there. Each is tried again.
    unopened: Vec<PathBuf>,
}

impl Cgroups {
    /// Takes this guard's own control group, and opens those of `noted` that are not known to be
    /// empty.
    pub(super) fn new(own: Option<ServiceCgroup>, noted: &[PathBuf]) -> Cgroups {
        let open: Vec<_> = own.into_iter().collect();
        let is_other = |dir: &&PathBuf| open.iter().all(|own| own.dir != **dir);
        let unopened = noted.iter().filter(is_other).cloned().collect();
        let mut cgroups = Cgroups { open, unopened };
        for (dir, error) in cgroups.open_others() {
            log::warn!("{}: {error}: the service may live in it", dir.display());
        }
        cgroups
    }

    /// Opens others, but for those in which nothing lives. Returns why others cannot be opened.
    fn open_others(&mut self) -> Vec<(PathBuf, io::Error)> {
        let mut failed = Vec::new();
        for dir in std::mem::take(&mut self.unopened) {
            match ServiceCgroup::open(&dir) {
                Ok(other) if other.is_populated().unwrap_or(true) => self.open.push(other),
                Ok(_) => {}
                Err(_) if ServiceCgroup::is_known_empty(&dir) => {}
                Err(error) => failed.push((dir, error)),
            }
        }
        self.unopened = failed.iter().map(|(dir, _)| dir.clone()).collect();
        failed
    }

    /// Returns the one that start enters.
    pub(super) fn own(&self) -> Option<&ServiceCgroup> {
        self.open.first()
    }

    /// Returns where the service may be.
    pub(super) fn dirs(&self) -> Vec<PathBuf> {
        self.open.iter().map(|it| &it.dir).chain(&self.unopened).cloned().collect()
    }

    /// Returns what has an exceptional condition when one may have become empty.
    pub(super) fn events(&self) -> impl Iterator<Item = &File> {
        self.open.iter().map(|it| &it.events)
    }

    /// Kills all that lives in them.
    pub(super) fn kill(&self) {
        for cgroup in &self.open {
            // A control group that is gone holds no process.
            let _ = cgroup.kill();
        }
    }

    /// Returns whether nothing lives in any of them.
    pub(super) fn are_empty(&mut self) -> bool {
        self.open_others();
        self.unopened.is_empty() && ServiceCgroup::are_empty(&self.open)
    }

    /// Forgets all but this guard's own, when all are empty.
    pub(super) fn forget_others(&mut self) {
        self.open.truncate(1);
    }

    /// Removes those that are empty.
    pub(super) fn remove(&mut self) {
        self.open.drain(..).for_each(ServiceCgroup::remove);
    }
}
