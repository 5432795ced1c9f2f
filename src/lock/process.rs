//! The command as a process group: how it is spawned, sent signals and reaped.

use std::env;
use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::account::Ending;
use super::processes::{Alive, Older, Processes};
use crate::exit::LockExit;
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

/// What is searched for a program where PATH is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// How a command ends that has not begun: whoever was to release it is dead.
const NOT_RELEASED: i32 = 125;

/// Returns a program with arguments, found in PATH, with these variables in the place of inherited
/// ones.
fn command_of(words: &[OsString], own: &[(&str, OsString)]) -> Command {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map(OsString::as_os_str).unwrap_or_default());
    command.args(words).envs(own.iter().map(|(name, value)| (name, value)));
    command
}

/// Returns the same, run by the shell: a script without a first line `#!`, whose form the kernel
/// does not know. The C library of the static binary does not run it, and users of flock(1) have
/// such.
fn by_shell(words: &[OsString], own: &[(&str, OsString)]) -> Command {
    let program = words.first().map(PathBuf::from).unwrap_or_default();
    let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let is_searched = program.parent() == Some(Path::new(""));
    let found = env::split_paths(&path).map(|dir| dir.join(&program));
    let found = found.filter(|_| is_searched).find(|it| access(it, Access::EXEC_OK).is_ok());
    let file = found.unwrap_or(program).into_os_string();
    let words: Vec<_> =
        ["/bin/sh".into(), file].into_iter().chain(words.iter().skip(1).cloned()).collect();
    command_of(&words, own)
}

/// Returns how env(1) ends when it cannot execute a program for this reason; `None` if the system
/// has no process to give.
pub(super) fn exit_of(error: &io::Error) -> Option<LockExit> {
    match error.raw_os_error().map(Errno::from_raw_os_error)? {
        Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE => None,
        Errno::NOENT => Some(LockExit::NotFound),
        _ => Some(LockExit::NotExecutable),
    }
}

/// The ends of the pipes of a command that waits for its release.
struct Held {
    /// It begins when it has read a byte from here.
    released: PipeReader,
    /// Where it writes why it cannot be executed: the number of the error.
    failed: PipeWriter,
    /// Who is to release it.
    parent: Pid,
}

impl Held {
    /// Becomes the command in this process, a copy of the other one, when it is released.
    fn run(mut self, words: &[OsString], own: &[(&str, OsString)]) -> ! {
        let _ = rustix::process::setpgid(None, None);
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        let has_parent = rustix::process::getppid() == Some(self.parent);
        let _ = raw::unblock_signals();
        if !has_parent || !matches!(self.released.read(&mut [0]), Ok(1)) {
            raw::exit_now(NOT_RELEASED);
        }
        let mut error = command_of(words, own).exec();
        if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) {
            error = by_shell(words, own).exec();
        }
        let number = error.raw_os_error().unwrap_or_default();
        let _ = self.failed.write_all(&number.to_ne_bytes());
        raw::exit_now(exit_of(&error).unwrap_or(LockExit::NotExecutable) as i32)
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
        let (released, release) = io::pipe()?;
        let (failure, failed) = io::pipe()?;
        rustix::io::ioctl_fionbio(&failure, true)?;
        let held = Held { released, failed, parent: rustix::process::getpid() };
        let Some(group) = raw::fork()? else {
            drop(release);
            held.run(words, own)
        };
        // Whoever of the two is first: the group is there when this function returns.
        let _ = rustix::process::setpgid(Some(group), Some(group));
        let pidfd = sys::open_spawned(group)?;
        let start = Start { pidfd, release: Some(release), failure: Some(failure) };
        Ok((Process::new(group, processes, older), start))
    }

    /// Spawns the command, with the descriptor that it inherits and the terminal that it is
    /// given.
    ///
    /// # Errors
    ///
    /// When the system has no process or descriptor to give, or the command cannot be executed: see
    /// [`exit_of`].
    pub(super) fn spawn(
        words: &[OsString],
        own: &[(&str, OsString)],
        inherited: Option<BorrowedFd<'_>>,
        terminal: Option<BorrowedFd<'_>>,
    ) -> io::Result<Process> {
        let spawn = |mut command| {
            raw::set_up_on_terminal(&mut command, inherited, terminal);
            command.spawn()
        };
        let child = spawn(command_of(words, own)).or_else(|error| match error.raw_os_error() {
            Some(number) if number == Errno::NOEXEC.raw_os_error() => spawn(by_shell(words, own)),
            _ => Err(error),
        })?;
        Ok(Process::new(Pid::from_child(&child), Processes::default(), Older::NONE))
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
