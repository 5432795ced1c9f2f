//! The command as a job on a terminal: it is sent the signals of the front, has the terminal, is
//! stopped and goes on with the front, and is waited for with its process group.

use std::time::Duration;

use libc::{SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH};

use super::process::Process;
use super::signals::is_deadly;
use super::terminal::Terminal;
use crate::core::Instant;
use crate::sys::raw;

/// How often it is inspected whether the group is empty: first, and at last.
const INSPECT_MIN: Duration = Duration::from_millis(20);
const INSPECT_MAX: Duration = Duration::from_secs(1);

/// A command, and the terminal of its session.
pub(super) struct Job {
    pub(super) process: Process,
    terminal: Option<Terminal>,
    /// The command is to have the terminal when this process's group has it.
    wants_terminal: bool,
}

impl Job {
    /// Returns the job of a command that was spawned, and whether it is to have the terminal.
    pub(super) fn new(process: Process, terminal: Option<Terminal>, wants_terminal: bool) -> Job {
        Job { process, terminal, wants_terminal }
    }

    /// Passes a signal on to the command.
    pub(super) fn pass_on(&self, signal: i32) {
        match signal {
            SIGCONT => {
                self.give_terminal();
                self.process.send(SIGCONT);
            }
            SIGTSTP | SIGWINCH => self.process.send(signal),
            SIGCHLD | SIGTTOU => {}
            _ if is_deadly(signal) => self.process.send(signal),
            _ => {}
        }
    }

    /// The leader was stopped: this process stops too, so that the shell sees it. Where no shell
    /// does, nobody would let it go on. Returns whether it has stopped and goes on.
    pub(super) fn stop(&mut self, signal: i32) -> bool {
        let Some(terminal) = &self.terminal else { return false };
        let reads = matches!(signal, SIGTTIN | SIGTTOU);
        if reads && terminal.is_own() {
            // It wants the terminal, and can have it.
            self.wants_terminal = true;
            self.give_terminal();
            self.process.send(SIGCONT);
            return false;
        }
        let stops = reads || signal == SIGTSTP || terminal.is_of(self.process.group);
        if stops {
            self.take_terminal_back();
            if signal == SIGSTOP {
                // It cannot be blocked, nor its action changed.
                let own = rustix::process::getpid();
                let _ = rustix::process::kill_process(own, rustix::process::Signal::STOP);
            } else {
                raw::act_by_default(signal);
            }
        }
        stops
    }

    pub(super) fn give_terminal(&self) {
        if let Some(terminal) = &self.terminal
            && self.wants_terminal
        {
            terminal.give(self.process.group);
        }
    }

    pub(super) fn take_terminal_back(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.process.group);
        }
    }
}

/// When a group is inspected, after the end of its leader.
#[derive(Default)]
pub(super) struct Inspection {
    at: Option<Instant>,
    pause: Duration,
}

impl Inspection {
    /// Returns when it is due; `None` if it was not begun.
    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }

    pub(super) fn is_first(&self) -> bool {
        self.at.is_none()
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.at.is_none_or(|at| now >= at)
    }

    /// Sets when it is due next.
    pub(super) fn repeat(&mut self, now: Instant) {
        self.pause = (self.pause * 2).clamp(INSPECT_MIN, INSPECT_MAX);
        self.at = Some(now.after(self.pause));
    }
}
