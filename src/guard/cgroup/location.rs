//! The control group of this process, and whether this process may divide it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process;

use crate::sys;

/// Where the hierarchy is mounted: alone, or beside those of v1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// A directory that is there when systemd manages the host or container; `sd_booted` tells it in
/// the same way.
const SYSTEMD: &str = "/run/systemd/system";

/// The marks of a group that systemd has delegated (`Delegate=yes`): the first since version 251,
/// the second before that.
const MARKS: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// Returns the directory of this process's control group if it may be divided.
///
/// A user who may write to the group was given it by root. For root itself the permissions say
/// nothing. If systemd runs, it is the only writer of the hierarchy, and may move, limit or remove
/// a group that it has not marked as delegated. Without systemd, nobody else uses the groups below
/// our own. The root of the whole hierarchy needs no rule of its own: systemd never marks it.
///
/// # Errors
///
/// Why the group may not be divided, in words.
pub fn delegated() -> Result<PathBuf, String> {
    let own = find().ok_or("no cgroup v2 hierarchy with this process in it is mounted")?;
    let procs = own.join("cgroup.procs");
    // Only a process that can write here may move commands out of here. The trial writes nothing.
    if let Err(error) = File::options().write(true).open(&procs) {
        return Err(format!("{}: {error}", procs.display()));
    }
    if sys::user_id() == 0 && Path::new(SYSTEMD).exists() && !is_marked(&own) {
        return Err(format!("{} is systemd's: Delegate=yes is not set", own.display()));
    }
    Ok(own)
}

fn is_marked(own: &Path) -> bool {
    MARKS.iter().any(|mark| {
        let mut value = [0; 8];
        matches!(rustix::fs::getxattr(own, *mark, &mut value), Ok(1) if value[0] == b'1')
    })
}

/// Returns the directory of this process's cgroup v2 control group; `None` where the hierarchy is
/// mounted elsewhere, or this process is outside of the part that is mounted.
pub fn find() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    find_below(&MOUNTS.map(Path::new), own, process::id())
}

/// Returns the directory below one of the mounts that lists a process of the control group `own`. A
/// container may see a part of the hierarchy alone: then the first names of `own` are missing.
fn find_below(mounts: &[&Path], own: &str, process: u32) -> Option<PathBuf> {
    let names: Vec<_> = own.split('/').filter(|name| !name.is_empty()).collect();
    let process = process.to_string();
    let lists_process = |dir: &PathBuf| {
        let list = fs::read_to_string(dir.join("cgroup.procs"));
        list.is_ok_and(|list| list.lines().any(|line| line == process))
    };
    let below = |mount: &Path, first: usize| -> PathBuf {
        mount.iter().chain(names[first..].iter().map(OsStr::new)).collect()
    };
    let mut dirs =
        mounts.iter().flat_map(|mount| (0..=names.len()).map(|first| below(mount, first)));
    dirs.find(lists_process)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a hierarchy in which this directory lists process 7; returns the path that is found,
    /// below it.
    fn found(name: &str, dir: &str, own: &str) -> Option<String> {
        let mount = std::env::temp_dir().join(format!("putex-{name}-{}", process::id()));
        fs::create_dir_all(mount.join(dir)).expect("there is room");
        fs::write(mount.join("cgroup.procs"), "1\n77\n").expect("there is room");
        fs::write(mount.join(dir).join("cgroup.procs"), "6\n7\n").expect("there is room");
        let found = find_below(&[Path::new("/nonexistent"), &mount], own, 7);
        let below = found.map(|found| found.strip_prefix(&mount).expect("below it").to_owned());
        fs::remove_dir_all(&mount).expect("it is there");
        below.map(|below| below.display().to_string())
    }

    #[test]
    fn the_own_group_is_found_below_the_mount() {
        let own = "/system.slice/putex.service";
        assert_eq!(found("slice", &own[1..], own).as_deref(), Some(&own[1..]));
    }

    #[test]
    fn a_container_with_a_namespace_of_its_own_is_in_its_root() {
        assert_eq!(found("namespace", "", "/").as_deref(), Some(""));
        assert_eq!(found("outside", "other/7", "/../other"), None, "it is outside of the mount");
    }

    #[test]
    fn a_container_without_one_sees_a_part_of_the_hierarchy() {
        assert_eq!(found("part", "", "/docker/4f0").as_deref(), Some(""));
        assert_eq!(found("inner", "inner", "/docker/4f0/inner").as_deref(), Some("inner"));
        assert_eq!(found("another", "4f01", "/docker/4f0"), None);
    }
}
