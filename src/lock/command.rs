//! The command, for the process that has started it: how it is spawned, and the events of it and of
//! the processes that it has left behind.
//!
//! The process that has started it is a subreaper: every process that the command has started is
//! below it, in whatever group or session, and becomes a child of the subreaper when its parent
//! ends. So nothing is left when the subreaper has no child.

use std::ffi::{CStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::BorrowedFd;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};

use super::account::Ending;
use crate::core::Instant;
use crate::exit::Exit;
use crate::sys::{self, raw};

/// The name of a renewer among processes.
pub(super) const RENEWER: &CStr = c"putex-renewer";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Event {
    /// The command runs; its process group, which is the number of its leader.
    Started(i32),
    /// The command was not started: the number of the error, or the lock is not valid for long
    /// enough.
    NotStarted(Option<i32>),
    /// The leader was stopped by this signal.
    Stopped(i32),
    /// The leader has ended.
    Ended(Ending),
    /// No process is left that the command has started.
    NothingLeft,
}

/// Returns how env(1) ends when it cannot execute a program for this reason; `None` if the system
/// has no process to give.
pub(super) fn exit_of(error: &io::Error) -> Option<Exit> {
    match error.raw_os_error().map(Errno::from_raw_os_error)? {
        Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE => None,
        Errno::NOENT => Some(Exit::NotFound),
        _ => Some(Exit::NotExecutable),
    }
}

/// Spawns the command, which is found in PATH, in a process group of its own, with these variables
/// in the place of inherited ones, the descriptor that it inherits and the terminal that it is
/// given. The kernel kills it when this thread ends.
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
) -> io::Result<Pid> {
    let spawn = |words: &[OsString]| {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).envs(own.iter().cloned());
        raw::set_up_on_terminal(&mut command, inherited, terminal);
        command.spawn()
    };
    let child = spawn(words).or_else(|error| match error.raw_os_error() {
        // A script without a first line `#!`, whose form the kernel does not know. The C library of
        // the static binary does not run it, and users of flock(1) have such.
        Some(number) if number == Errno::NOEXEC.raw_os_error() => {
            let shell = ["/bin/sh", "-c", "exec \"$0\" \"$@\""].map(OsString::from);
            spawn(&[&shell, words].concat())
        }
        _ => Err(error),
    })?;
    Ok(Pid::from_child(&child))
}

pub(super) fn send(group: Pid, signal: i32) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        // A group that is empty already needs no signal.
        let _ = rustix::process::kill_process_group(group, signal);
    }
}

/// Returns whether nobody is in a process group any more.
pub(super) fn is_empty(group: Pid) -> bool {
    rustix::process::test_kill_process_group(group) == Err(Errno::SRCH)
}

/// The children of this process, but for those that it had before the command: a shell may have
/// executed this program after it had started others.
#[derive(Default)]
pub(super) struct Children {
    older: Vec<Pid>,
    /// The list of them, open from the start: it is needed when the system may have no descriptor
    /// left. None where the kernel has no such list.
    list: Option<File>,
    /// No child was left but for older ones when they were reaped last.
    pub(super) are_none: bool,
    /// All children are sent SIGTERM, also those that come to this process later: the children that
    /// were sent it.
    sent_term: Option<Vec<Pid>>,
    /// All children are killed, but renewers not until this instant.
    renewers_until: Option<Instant>,
}

impl Children {
    /// Has this process adopt the processes that its children leave behind.
    ///
    /// # Errors
    ///
    /// When the system does not let it.
    pub(super) fn adopt() -> io::Result<Children> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        Ok(Children::default())
    }

    /// Opens the list of the children, and takes those that there are for older ones.
    pub(super) fn note_older(&mut self) {
        // A copy of this process has another list. In another PID namespace there is none.
        let own = rustix::process::getpid();
        self.list = File::open(format!("/proc/self/task/{own}/children")).ok();
        self.older = self.listed().unwrap_or_default();
    }

    /// Returns the children, but for older ones; `None` if they are not known.
    fn listed(&mut self) -> Option<Vec<Pid>> {
        let mut text = String::new();
        let list = self.list.as_mut()?;
        list.rewind().and_then(|()| list.read_to_string(&mut text)).ok()?;
        let numbers = text.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?));
        let is_new = |child: &Pid| !self.older.contains(child) && is_child(*child);
        Some(numbers.filter(is_new).collect())
    }

    /// Reaps the children that have ended or were stopped, and sends the others the signals that
    /// are due.
    pub(super) fn reap(&mut self) -> Vec<(Pid, WaitStatus)> {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        let mut heard = Vec::new();
        let has_more = loop {
            match rustix::process::wait(options) {
                Ok(Some(child)) => heard.push(child),
                Ok(None) => break true,
                Err(Errno::INTR) => {}
                Err(error) => break error != Errno::CHILD,
            }
        };
        let have_ended = heard.iter().filter(|(_, status)| !status.stopped());
        let ended: Vec<Pid> = have_ended.map(|(child, _)| *child).collect();
        self.older.retain(|child| !ended.contains(child));
        let has_older = !self.older.is_empty();
        self.are_none = !has_more || has_older && self.listed().is_some_and(|it| it.is_empty());
        self.signal();
        heard
    }

    /// Sends each SIGTERM, and SIGCONT, without which a stopped one would not get it.
    pub(super) fn terminate(&mut self) {
        self.sent_term.get_or_insert_default();
        self.signal();
    }

    /// Kills all children: those that come to this process later, too, whenever it reaps. The
    /// renewers of locks inside of the command have until this instant to end their commands and
    /// release their locks.
    pub(super) fn kill(&mut self, renewers_until: Instant) {
        self.renewers_until.get_or_insert(renewers_until);
        self.signal();
    }

    fn signal(&mut self) {
        if self.sent_term.is_none() && self.renewers_until.is_none() {
            return;
        }
        // Children that are not known now are sent the signal the next time.
        let Some(children) = self.listed() else { return };
        // A child that has ended is reaped next.
        let kill = |child: Pid, signal| {
            let _ = rustix::process::kill_process(child, signal);
        };
        if let Some(until) = self.renewers_until {
            let is_spared = |child: &Pid| sys::now() < until && is_renewer(*child);
            children.iter().filter(|it| !is_spared(it)).for_each(|it| kill(*it, Signal::KILL));
        } else if let Some(sent) = &mut self.sent_term {
            sent.retain(|child| children.contains(child));
            for child in children {
                if !sent.contains(&child) {
                    sent.push(child);
                    kill(child, Signal::TERM);
                    kill(child, Signal::CONT);
                }
            }
        }
    }
}

/// Returns whether a process is a child of this one. A number in a list of another PID namespace
/// is that of a stranger.
fn is_child(process: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    rustix::process::waitid(WaitId::Pid(process), options).is_ok()
}

/// Returns whether a child is the renewer of a lock inside of the command. A renewer ends by itself
/// when its front has ended, after it has released its lock: if it were killed, the lock would have
/// to run out.
fn is_renewer(child: Pid) -> bool {
    let name = fs::read(format!("/proc/{child}/comm"));
    name.is_ok_and(|name| name.trim_ascii_end() == RENEWER.to_bytes())
}

/// Returns the events of the command that leads this group, by these reaped processes.
pub(super) fn events(heard: &[(Pid, WaitStatus)], group: Pid) -> Vec<Event> {
    let of_leader = heard.iter().filter(|(process, _)| *process == group);
    let event = |(_, status): &(Pid, WaitStatus)| match status.stopped() {
        true => status.stopping_signal().map(Event::Stopped),
        false => Some(Event::Ended(ending_of(*status))),
    };
    of_leader.filter_map(event).collect()
}

fn ending_of(status: WaitStatus) -> Ending {
    let by_signal = status.terminating_signal().map(Ending::Signal);
    let exit = status.exit_status().and_then(|status| u8::try_from(status).ok());
    by_signal.or(exit.map(Ending::Status)).unwrap_or(Ending::Status(Exit::Lost as u8))
}

#[cfg(test)]
mod tests;
