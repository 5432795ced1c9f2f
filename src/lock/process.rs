//! The command as a process group: how it is spawned, sent signals and reaped.

use std::env;
use std::ffi::{CString, NulError, OsStr, OsString};
use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use crate::sys::{self, raw};

/// What is added to the number of a signal that has ended the command.
const BY_SIGNAL: u8 = 128;

/// The command with its process group.
pub(super) struct Process {
    /// The process group; its number is also the leader's.
    pub(super) group: Pid,
    /// How the leader has ended.
    pub(super) status: Option<u8>,
    /// The signal by which the leader was stopped last.
    stopped_by: Option<i32>,
}

/// A command that was spawned and has not begun before it is released.
pub(super) struct Start {
    /// Becomes readable when the leader has ended.
    pub(super) pidfd: OwnedFd,
    release: Option<PipeWriter>,
    failure: Option<PipeReader>,
}

/// Returns the words of a command, as system calls take them.
fn words_of(words: &[OsString]) -> Result<Vec<CString>, NulError> {
    words.iter().map(|word| CString::new(word.as_bytes())).collect()
}

/// Returns an inherited environment with these variables in the place of inherited ones.
fn environment(own: &[(&str, OsString)]) -> Result<Vec<CString>, NulError> {
    let is_own = |name: &OsStr| own.iter().any(|(own, _)| name == *own);
    let inherited = env::vars_os().filter(|(name, _)| !is_own(name));
    let own = own.iter().map(|(name, value)| (OsString::from(name), value.clone()));
    let variable = |(name, value): (OsString, OsString)| {
        CString::new([name.as_bytes(), b"=", value.as_bytes()].concat())
    };
    inherited.chain(own).map(variable).collect()
}

/// A process that has not ended.
struct Alive {
    process: Pid,
    parent: Option<Pid>,
    group: Option<Pid>,
}

impl Alive {
    /// Reads a line of `/proc/PID/stat`. A process that is about to disappear has the group -1.
    fn of_stat(process: Pid, stat: &str) -> Option<Alive> {
        // The name before, in brackets, may have any character.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let has_ended = matches!(fields.next()?, "Z" | "X");
        let mut number = || fields.next()?.parse().ok().filter(|number| *number >= 0);
        let (parent, group) = (Pid::from_raw(number()?), Pid::from_raw(number()?));
        (!has_ended).then_some(Alive { process, parent, group })
    }
}

/// Returns all processes that can be seen and have not ended.
fn alive() -> impl Iterator<Item = Alive> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| {
        let process = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        Alive::of_stat(process, &fs::read_to_string(entry.path().join("stat")).ok()?)
    })
}

/// Returns the processes that descend from this one, but for the renewer: what the command has
/// started and left behind becomes a child of this process.
pub(super) fn descendants(renewer: Option<Pid>) -> Vec<Pid> {
    let this = rustix::process::getpid();
    // A number may be given to a new process while the list is read: this process would then
    // seem to descend from itself.
    let is_counted = |it: &Alive| it.process != this && Some(it.process) != renewer;
    let alive: Vec<Alive> = alive().filter(is_counted).collect();
    let mut found = vec![this];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let children = alive.iter().filter(|it| it.parent == Some(parent));
        found.extend(children.map(|it| it.process));
        next += 1;
    }
    found.split_off(1)
}

/// Returns whether nobody is in a process group any more but zombies, whose parent is slow.
pub(super) fn is_empty(group: Pid) -> bool {
    match rustix::process::test_kill_process_group(group) {
        Err(Errno::SRCH) => true,
        // Where processes of others are hidden, one of them may be in the group.
        Ok(()) if fs::metadata("/proc/1").is_ok() => alive().all(|it| it.group != Some(group)),
        Ok(()) | Err(_) => false,
    }
}

impl Start {
    /// Lets the command begin.
    pub(super) fn release(&mut self) {
        if let Some(mut release) = self.release.take() {
            // One that was killed meanwhile reads nothing.
            let _ = release.write_all(b"\n");
        }
    }

    /// Returns whether it was let begin.
    pub(super) fn has_begun(&self) -> bool {
        self.release.is_none()
    }

    /// Returns what becomes readable when the command was executed, or could not be.
    pub(super) fn failure_fd(&self) -> Option<BorrowedFd<'_>> {
        self.failure.as_ref().map(AsFd::as_fd)
    }

    /// Returns why the command could not be executed, once.
    pub(super) fn take_failure(&mut self) -> Option<io::Error> {
        let mut number = [0; size_of::<i32>()];
        match self.failure.as_mut()?.read(&mut number) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            read => {
                self.failure = None;
                let is_whole = read.is_ok_and(|length| length == number.len());
                is_whole.then(|| io::Error::from_raw_os_error(i32::from_ne_bytes(number)))
            }
        }
    }
}

impl Process {
    fn new(group: Pid) -> Process {
        Process { group, status: None, stopped_by: None }
    }

    /// Spawns the command, which does not begin before it is released.
    ///
    /// # Errors
    ///
    /// When the system has no process or descriptor to give, or a text has a zero in it.
    pub(super) fn spawn_held(
        words: &[OsString],
        own: &[(&str, OsString)],
    ) -> io::Result<(Process, Start)> {
        let (arguments, environment) = (words_of(words)?, environment(own)?);
        let (released, release) = io::pipe()?;
        let (failure, failed) = io::pipe()?;
        rustix::io::ioctl_fionbio(&failure, true)?;
        let group = raw::spawn_held(&raw::Held {
            arguments: &arguments,
            environment: &environment,
            release: released.as_fd(),
            releaser: release.as_fd(),
            failure: failed.as_fd(),
        })?;
        let pidfd = sys::open_spawned(group)?;
        let start = Start { pidfd, release: Some(release), failure: Some(failure) };
        Ok((Process::new(group), start))
    }

    /// Spawns the command, with the descriptor that it inherits and the terminal that it is
    /// given. Returns also why it could not be executed.
    ///
    /// # Errors
    ///
    /// As [`Process::spawn_held`].
    pub(super) fn spawn(
        words: &[OsString],
        own: &[(&str, OsString)],
        inherited: Option<BorrowedFd<'_>>,
        terminal: Option<BorrowedFd<'_>>,
    ) -> io::Result<(Process, Option<io::Error>)> {
        let (arguments, environment) = (words_of(words)?, environment(own)?);
        let (group, failure) = raw::spawn(&raw::Spawn {
            arguments: &arguments,
            environment: &environment,
            inherited,
            terminal,
        })?;
        Ok((Process::new(group), failure))
    }

    /// Sends a signal to the group.
    pub(super) fn send(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            // One that is empty already needs none.
            let _ = rustix::process::kill_process_group(self.group, signal);
        }
    }

    /// Sends a signal to the group, and to what the command has started outside of it.
    pub(super) fn send_to_all(&self, signal: i32, renewer: Option<Pid>) {
        self.send(signal);
        for process in descendants(renewer) {
            if let Some(signal) = Signal::from_named_raw(signal) {
                let _ = rustix::process::kill_process(process, signal);
            }
        }
    }

    /// Reaps what has ended: the command, what it has left behind, and the other process of
    /// this program.
    pub(super) fn reap(&mut self) {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        while let Ok(Some((process, status))) = rustix::process::wait(options) {
            self.note(process, status);
        }
    }

    fn note(&mut self, process: Pid, status: WaitStatus) {
        if process != self.group {
            return;
        }
        if let Some(signal) = status.stopping_signal() {
            self.stopped_by = Some(signal);
        } else if let Some(exit) = status.exit_status() {
            self.status = u8::try_from(exit).ok();
        } else if let Some(signal) = status.terminating_signal() {
            self.status = u8::try_from(signal).ok().map(|signal| BY_SIGNAL.wrapping_add(signal));
        }
    }

    /// Returns the signal by which the leader was stopped, once.
    pub(super) fn take_stop(&mut self) -> Option<i32> {
        self.stopped_by.take()
    }

    /// Returns whether the leader was reaped and nobody is in the group any more.
    pub(super) fn has_ended(&mut self) -> bool {
        if self.status.is_none() {
            return false;
        }
        loop {
            let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
            match rustix::process::waitpgid(self.group, options) {
                Ok(Some((process, status))) => self.note(process, status),
                Ok(None) => return false,
                Err(_) => break,
            }
        }
        // A member may have its parent in another group.
        is_empty(self.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns parent and group of a process that has this line, or nothing if it has ended.
    fn parent_and_group(stat: &str) -> Option<(i32, i32)> {
        let alive = Alive::of_stat(Pid::INIT, stat)?;
        Some((Pid::as_raw(alive.parent), Pid::as_raw(alive.group)))
    }

    #[test]
    fn a_process_that_is_about_to_disappear_is_not_counted() {
        assert_eq!(parent_and_group("1 (sh) S 7 8 8 0 -1 4194560"), Some((7, 8)));
        assert_eq!(parent_and_group("1 (a) Z 9 (b) R 0 0 0 0 -1 0"), Some((0, 0)));
        assert_eq!(parent_and_group("1 (sh) Z 7 8 8 0 -1 4194560"), None);
        // The kernel has already taken its parent and group from it.
        assert_eq!(parent_and_group("1 (sh) X 0 -1 -1 0 -1 4194560"), None);
        assert_eq!(parent_and_group("1 (sh) R 0 -1 -1 0 -1 4194560"), None);
    }
}
