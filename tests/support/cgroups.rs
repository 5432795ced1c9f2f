//! Control groups that guards of a test have made beside its own, in the hierarchy of the host.

use std::fs;
use std::path::Path;
use std::time::Duration;

use putex::guard::cgroup::{PREFIX, find};

use super::clock::{now, wait_until};

/// How long processes that were killed may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// Removes the control groups of all agents whose private directories are in `host`, the folder
/// of a sandbox. Their processes were killed.
pub(super) fn remove(host: &Path) {
    let agents = fs::read_dir(host.join("run/putex/.agents")).into_iter().flatten().flatten();
    let names: Vec<_> = agents.map(|agent| agent.file_name()).collect();
    let Some(own) = find().filter(|_| !names.is_empty()) else {
        return;
    };
    for name in names {
        let cgroup = own.join(format!("{PREFIX}{}", name.display()));
        wait_until(now() + GONE_WITHIN, || (prune(&cgroup) || !cgroup.exists()).then_some(()));
    }
}

/// Removes a directory and what is below it; says whether it is gone.
fn prune(cgroup: &Path) -> bool {
    for entry in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            prune(&entry.path());
        }
    }
    fs::remove_dir(cgroup).is_ok()
}
