//! A control group for the start command, so that one write kills all processes that start has
//! left, also those that have left its process group.
//!
//! Only start enters the group. To enter takes a lock of the whole host for 10 to 60 ms, in which
//! every fork and exit on the host waits: a stop, which has a deadline, has no such time.
//!
//! The group needs cgroup v2, and a group that this process may divide. Otherwise there is a reason
//! in words, and the agent goes on with process groups alone. No controller is enabled, so the
//! agent may stay in the directory above.
//!
//! A process that moved itself out, or that another program runs on the command's behalf
//! (`systemctl start`, `systemd-run`, a container engine), is not in the group.

mod location;

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use super::instance_dir::LOCK_EVERY;
use crate::sys;
pub use location::{delegated, find};

/// The beginning of the name of an agent's directory.
pub const PREFIX: &str = "putex-";

/// How long a guard waits while another removes the directory.
pub const REMOVAL_WITHIN: Duration = LOCK_EVERY.saturating_mul(25);

/// The control group. Its files stay open, so that they can be used when there are
/// no descriptors or memory left.
pub struct ServiceCgroup {
    /// The directory, for [`ServiceCgroup::open`] elsewhere.
    pub dir: PathBuf,
    /// The directory, locked by all its users: a guard that was not found may use it too.
    users: File,
    /// A script that enters the control group and becomes the shell of the operator's script.
    /// `sh -c ENTRY putex SCRIPT NAME ROLE` is `sh -c SCRIPT NAME ROLE`, inside.
    ///
    /// The shell enters before anything of the operator's runs, so nothing can stay outside. The
    /// operator's script is handed on as it is: a line before it would move its line numbers and
    /// stand in its syntax errors. When the group cannot be entered, the script runs all the
    /// same, as it does where there is none.
    pub entry: String,
    /// The file `cgroup.kill`: to write `1` to it is [`ServiceCgroup::kill`].
    pub kill_file: File,
    procs: File,
    /// The file `cgroup.events`. It has an exceptional condition, as poll(2) calls it, when
    /// [`ServiceCgroup::is_populated`] has changed.
    pub events: File,
}

impl ServiceCgroup {
    /// Makes a directory `name`, which begins with [`PREFIX`], below this process's group, or uses
    /// the one that is there, with the processes that live in it.
    ///
    /// # Errors
    ///
    /// In words, why this process can have none. The reason is no fault of the host.
    pub fn make(name: &str) -> Result<ServiceCgroup, String> {
        let own = delegated()?;
        let dir = own.join(name);
        let make = || fs::create_dir_all(&dir).and_then(|()| ServiceCgroup::open(&dir));
        // Another guard may have removed the directory before it was locked.
        let made = make().or_else(|_| make());
        // A failure leaves nothing behind.
        let made = made.inspect_err(|_| drop(File::open(&dir).map(|users| prune(&dir, &users))));
        made.map_err(|error| format!("{}: {error}", own.display()))
    }

    /// Returns whether nothing lives in a directory that cannot be opened as a control group. A
    /// control group that cannot be looked at is not known to be empty.
    pub(super) fn is_known_empty(dir: &Path) -> bool {
        match fs::read_to_string(dir.join("cgroup.events")) {
            Ok(events) => events.lines().any(|line| line == "populated 0"),
            // Only an empty control group can be removed.
            Err(error) => {
                error.kind() == ErrorKind::NotFound
                    || Errno::from_io_error(&error) == Some(Errno::NODEV)
            }
        }
    }

    /// Uses a directory that another process made, as the guard does.
    ///
    /// # Errors
    ///
    /// When the directory is gone, is not ours, or the kernel is older than Linux 5.14.
    pub fn open(dir: &Path) -> io::Result<ServiceCgroup> {
        let users = File::open(dir)?;
        // Another guard may remove the directory just now. Any user can hold the lock for ever:
        // then nobody removes it. A removed directory has no files, whatever has its name now.
        let lock = || flock(&users, FlockOperation::NonBlockingLockShared);
        sys::lock_within(lock, REMOVAL_WITHIN, LOCK_EVERY)?;
        let locked = PathBuf::from(format!("/proc/self/fd/{}", users.as_raw_fd()));
        let procs = dir.join("cgroup.procs");
        // Below a threaded control group, nothing can be moved in.
        if fs::read_to_string(locked.join("cgroup.type"))?.trim() != "domain" {
            return Err(io::Error::other("the control group above is threaded"));
        }
        let kill_file = File::options().write(true).open(locked.join("cgroup.kill"));
        let kill_file = kill_file.map_err(|error| {
            if error.kind() == ErrorKind::NotFound && procs.exists() {
                io::Error::other("this kernel has no cgroup.kill: it is older than Linux 5.14")
            } else {
                error
            }
        })?;
        Ok(ServiceCgroup {
            entry: entry_script(&procs)?,
            kill_file,
            procs: File::open(locked.join("cgroup.procs"))?,
            events: File::open(locked.join("cgroup.events"))?,
            dir: dir.to_owned(),
            users,
        })
    }

    /// Kills all processes in the control group, also those that are being forked in it. Needs no
    /// memory and no descriptor. The processes are dying then, and dead when
    /// [`ServiceCgroup::is_populated`] says so.
    ///
    /// The kernel kills them under a lock that another user can hold for 0.1 s by moving processes
    /// between control groups. So the processes of the list are killed before.
    ///
    /// The shell of a start that was just spawned may not have entered yet, so its process group is
    /// to be killed before this group. In the other order, the shell could enter between the two
    /// kills and leave a child that is in neither.
    ///
    /// # Errors
    ///
    /// When the control group is gone.
    pub fn kill(&self) -> io::Result<()> {
        let mut text = [0; 4096];
        let count = rustix::io::pread(&self.procs, &mut text, 0).unwrap_or(0);
        let lines = text[..count].split_inclusive(|byte| *byte == b'\n');
        // A part of a number that did not fit is not used: it may be the number of another process.
        for line in lines.filter_map(|line| line.strip_suffix(b"\n")) {
            let number = str::from_utf8(line).ok().and_then(|number| number.parse().ok());
            if let Some(process) = number.and_then(Pid::from_raw) {
                let _ = rustix::process::kill_process(process, Signal::KILL);
            }
        }
        rustix::io::write(&self.kill_file, b"1")?;
        Ok(())
    }

    /// Returns whether any process lives in the control group, or below it. A process that has
    /// ended and was not reaped does not count. Takes no lock that entering takes.
    ///
    /// # Errors
    ///
    /// When the kernel does not tell.
    pub fn is_populated(&self) -> io::Result<bool> {
        let mut text = [0; 128];
        let count = match rustix::io::pread(&self.events, &mut text, 0) {
            Ok(count) => count,
            // Only an empty group can be removed.
            Err(Errno::NODEV) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let mut lines = text[..count].split(|byte| *byte == b'\n');
        Ok(!lines.any(|line| line == b"populated 0"))
    }

    /// Returns whether no process lives in any of these. Each one is read: poll(2) reports a change
    /// until it was read.
    pub fn are_empty(all: &[ServiceCgroup]) -> bool {
        all.iter().filter(|it| it.is_populated().unwrap_or(true)).count() == 0
    }

    /// Removes the group if it is empty and nobody else uses it. A service that runs on keeps it.
    pub fn remove(self) {
        prune(&self.dir, &self.users);
    }
}

/// Returns the script that enters a control group. The outer braces hide the error about a file
/// that cannot be opened, which the shell writes before it redirects the output of the inner
/// command.
fn entry_script(procs: &Path) -> io::Result<String> {
    let path = procs.to_str().ok_or_else(|| io::Error::other("its name is not text"))?;
    let path = path.replace('\'', r"'\''");
    Ok(format!(
        "{{ echo $$ >'{path}'; }} 2>/dev/null || \
         echo 'putex: start runs outside of its control group: stop must end all of it' >&2; \
         exec /bin/sh -c \"$@\""
    ))
}

/// Removes the directory of a control group, as far as it is empty, unless another guard has locked
/// it, whose next start could not enter.
fn prune(dir: &Path, users: &File) {
    if flock(users, FlockOperation::NonBlockingLockExclusive).is_ok() {
        remove_empty(dir);
    }
}

/// Removes a directory and those below it, as far as they are empty. The directory of a control
/// group in which a process lives cannot be removed.
fn remove_empty(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&entry.path());
        }
    }
    let _ = fs::remove_dir(dir);
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_processes_of_the_list_are_killed_although_the_kernel_waits() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("a process");
        let list = std::env::temp_dir().join(format!("putex-procs-{}", std::process::id()));
        fs::write(&list, format!("0\n{}\n", child.id())).expect("there is room");
        let null =
            || File::options().read(true).write(true).open("/dev/null").expect("it is there");
        let procs = File::open(&list).expect("it is there");
        fs::remove_file(&list).expect("it is there");
        let (kill_file, events, users) = (null(), null(), null());
        let (dir, entry) = (PathBuf::new(), String::new());
        ServiceCgroup { dir, users, entry, kill_file, procs, events }.kill().expect("written");
        assert_eq!(child.wait().expect("it ends").signal(), Some(Signal::KILL.as_raw()));
    }

    #[test]
    fn the_entry_script_is_quoted() {
        let script = entry_script(Path::new("/a b/it's/cgroup.procs")).expect("text");
        let (enter, _) = script.split_once("||").expect("an alternative");
        assert_eq!(enter, r"{ echo $$ >'/a b/it'\''s/cgroup.procs'; } 2>/dev/null ");
    }
}
