//! The command as a process group: how it is spawned, sent signals and reaped.

use std::env;
use std::ffi::{CString, NulError, OsStr, OsString};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::account::Ending;
use super::processes::{Alive, Older, Processes};
use crate::sys::{self, raw};

/// The command with its process group.
pub(super) struct Process {
    /// The process group; its number is also the leader's.
    pub(super) group: Pid,
    /// How the leader has ended.
    pub(super) ended: Option<Ending>,
    /// The signal by which the leader was stopped last.
    stopped_by: Option<i32>,
    processes: Processes,
    older: Older,
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
    fn new(group: Pid, processes: Processes, older: Older) -> Process {
        Process { group, ended: None, stopped_by: None, processes, older }
    }

    /// Spawns the command, which does not begin before it is released. The older children of this
    /// process are no processes of the command.
    ///
    /// # Errors
    ///
    /// When the system has no process or descriptor to give, or a text has a zero in it.
    pub(super) fn spawn_held(
        words: &[OsString],
        own: &[(&str, OsString)],
        (processes, older): (Processes, Older),
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
        Ok((Process::new(group, processes, older), start))
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
        Ok((Process::new(group, Processes::default(), Older::NONE), failure))
    }

    /// Sends a signal to the group.
    pub(super) fn send(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            // One that is empty already needs none.
            let _ = rustix::process::kill_process_group(self.group, signal);
        }
    }

    /// Sends a signal to the group, and to what the command has started outside of it.
    pub(super) fn send_to_all(&self, signal: i32) {
        self.send(signal);
        if let Some(signal) = Signal::from_named_raw(signal) {
            self.descendants().send(signal);
        }
    }

    /// Returns the processes that descend from this one, but for renewers: what the command
    /// has started and left behind becomes a child of this process. Its older children are none of
    /// the command's.
    pub(super) fn descendants(&self) -> Alive {
        self.processes.below(rustix::process::getpid(), &self.older)
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
            self.ended = u8::try_from(exit).ok().map(Ending::Status);
        } else if let Some(signal) = status.terminating_signal() {
            self.ended = Some(Ending::Signal(signal));
        }
    }

    /// Returns the signal by which the leader was stopped, once.
    pub(super) fn take_stop(&mut self) -> Option<i32> {
        self.stopped_by.take()
    }

    /// Returns whether the leader was reaped and nobody is in the group any more.
    pub(super) fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
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
        self.processes.is_empty(self.group)
    }
}
