//! The control group of this process, and whether this process may divide it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::sys;

/// It is there when systemd manages the host or container. This is how
/// `sd_booted` tells.
const SYSTEMD: &str = "/run/systemd/system";

/// How systemd marks what it has delegated (`Delegate=yes`): the first since
/// version 251, the second before that.
const MARKS: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// Returns the directory of this process's control group if it may be divided, or
/// why not.
///
/// A user who may write there was given it: nobody but root can have done that. For
/// root the permissions say nothing. Where systemd is, it is the one writer of the
/// hierarchy, and what it has not marked as delegated it may move, limit or remove;
/// where it is not, nobody else uses what is below our own control group. The
/// root of the whole hierarchy needs no rule of its own: systemd never marks it.
pub(super) fn own() -> Result<PathBuf, String> {
    // Somebody else's mount may have any name.
    let (cgroups, mounts) = (read("/proc/self/cgroup")?, read("/proc/self/mountinfo")?);
    let own = find(&cgroups, &mounts);
    let own = own.ok_or("no cgroup v2 hierarchy with this process in it is mounted")?;
    let procs = own.join("cgroup.procs");
    // Commands may only be moved out of here by who can write here. Nothing is
    // written by trying.
    if let Err(error) = File::options().write(true).open(&procs) {
        return Err(format!("{}: {error}", procs.display()));
    }
    if sys::user_id() == 0 && Path::new(SYSTEMD).exists() && !is_marked(&own) {
        return Err(format!("{} is systemd's: Delegate=yes is not set", own.display()));
    }
    Ok(own)
}

fn read(path: &str) -> Result<String, String> {
    let bytes = fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn is_marked(own: &Path) -> bool {
    MARKS.iter().any(|mark| {
        let mut value = [0; 8];
        matches!(rustix::fs::getxattr(own, *mark, &mut value), Ok(1) if value[0] == b'1')
    })
}

/// Finds the directory of a process's cgroup v2 control group, from the texts of
/// `/proc/self/cgroup` and `/proc/self/mountinfo`. `None` when the hierarchy is not
/// mounted, or the process is outside of what is mounted.
pub fn find(cgroups: &str, mounts: &str) -> Option<PathBuf> {
    let own = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mounts = mounts.lines().filter_map(Mount::parse);
    let found = mounts.filter_map(|mount| Some((mount.writable, mount.locate(own)?)));
    // The first that is writable, otherwise the first.
    found.min_by_key(|(writable, _)| !writable).map(|(_, path)| path)
}

/// A mount of the cgroup v2 hierarchy.
struct Mount {
    /// What part of the hierarchy it shows.
    root: String,
    /// Where.
    point: String,
    writable: bool,
}

impl Mount {
    /// Fields are separated by single blanks: number, parent, device, root, point,
    /// options, any number of tags, a hyphen, type, source, options of the type.
    fn parse(line: &str) -> Option<Mount> {
        let (mount, kind) = line.split_once(" - ")?;
        if kind.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = mount.split(' ').skip(3);
        Some(Mount {
            root: unescape(fields.next()?),
            point: unescape(fields.next()?),
            writable: fields.next()?.split(',').any(|option| option == "rw"),
        })
    }

    /// Returns where a control group is seen through this mount.
    fn locate(&self, own: &str) -> Option<PathBuf> {
        // What is outside of the cgroup namespace begins with dots.
        if !own.starts_with('/') || own.split('/').any(|part| part == "..") {
            return None;
        }
        let below = Path::new(own).strip_prefix(&self.root).ok()?;
        // Joined one by one: nothing below leaves no slash at the end.
        Some(Path::new(&self.point).components().chain(below.components()).collect())
    }
}

/// Undoes the octal escapes of blanks, tabs, line ends and backslashes.
fn unescape(field: &str) -> String {
    let escapes = [(r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")];
    escapes.iter().fold(field.to_owned(), |text, (escape, letter)| text.replace(escape, letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mounts of a host where systemd uses v2 alone.
    const UNIFIED: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
28 25 0:24 / /sys/fs/cgroup rw,nosuid,nodev shared:9 - cgroup2 cgroup2 rw,nsdelegate";

    fn found(cgroups: &str, mounts: &str) -> Option<String> {
        let path = find(cgroups, mounts)?;
        path.to_str().map(str::to_owned)
    }

    #[test]
    fn systemd_with_v2_alone() {
        let own = "0::/system.slice/putex.service\n";
        let path = "/sys/fs/cgroup/system.slice/putex.service";
        assert_eq!(found(own, UNIFIED).as_deref(), Some(path));
    }

    #[test]
    fn both_hierarchies() {
        let own = "9:name=systemd:/\n4:memory:/user\n0::/\n";
        let mounts = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
        let path = found(own, mounts);
        assert_eq!(path.as_deref(), Some("/sys/fs/cgroup/unified"));
        let (v1, _) = mounts.rsplit_once('\n').expect("three lines");
        assert_eq!(found(own, v1), None, "v2 is there but not mounted");
    }

    #[test]
    fn a_kernel_without_v2() {
        assert_eq!(found("4:memory:/\n1:cpu:/\n", UNIFIED), None);
    }

    #[test]
    fn a_container_with_a_namespace_of_its_own() {
        let mounts = "\
905 901 0:24 / /sys/fs/cgroup ro,nosuid,nodev,noexec - cgroup2 cgroup rw,nsdelegate";
        let path = found("0::/\n", mounts);
        assert_eq!(path.as_deref(), Some("/sys/fs/cgroup"));
        assert_eq!(found("0::/../other\n", mounts), None, "outside of it");
    }

    #[test]
    fn a_container_without_one_sees_a_part() {
        let mounts = "\
905 901 0:24 /docker/4f0 /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate";
        for (own, path) in [
            ("/docker/4f0", Some("/sys/fs/cgroup")),
            ("/docker/4f0/inner", Some("/sys/fs/cgroup/inner")),
            ("/docker/4f01", None),
            ("/", None),
        ] {
            let own = format!("0::{own}\n");
            assert_eq!(found(&own, mounts).as_deref(), path, "{own}");
        }
    }

    #[test]
    fn a_mount_that_can_be_written_goes_before_one_that_cannot() {
        let mounts = "\
40 25 0:24 / /first ro - cgroup2 cgroup2 rw
41 25 0:24 / /a\\040blank rw shared:3 master:2 - cgroup2 cgroup2 rw
42 25 0:24 / /third rw - cgroup2 cgroup2 rw";
        assert_eq!(found("0::/x\n", mounts).as_deref(), Some("/a blank/x"));
    }
}
