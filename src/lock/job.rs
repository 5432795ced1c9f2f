//! The command as a job on a terminal: it is sent the signals of the front, has the terminal, is
//! stopped and goes on with the front, and is waited for with its process group.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use libc::{SIGCHLD, SIGCONT, SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH};
use rustix::process::Pid;

use super::account::Ending;
use super::command::{self, Event};
use super::protocol::OfTerminal;
use super::signals::is_deadly;
use super::terminal::Terminal;
use crate::core::Instant;
use crate::exit::Exit;
use crate::sys::raw;

/// How often it is inspected whether the group is empty: first, and at last.
const INSPECT_MIN: Duration = Duration::from_millis(20);
const INSPECT_MAX: Duration = Duration::from_secs(1);

/// The cause of the stop of the leader, with which this process was to stop.
pub(super) enum Stop {
    /// The terminal: the command goes on with this process, also where that was not stopped.
    ByTerminal,
    /// A program, which lets the command go on itself unless this process was stopped.
    ByProgram,
}

/// A command, and the terminal of its session.
#[derive(Default)]
pub(super) struct Job {
    /// The process group of the command, when it was started; its number is also the leader's.
    pub(super) group: Option<Pid>,
    /// The number of the error of a command that could not be executed.
    pub(super) error: Option<i32>,
    /// How the leader has ended.
    pub(super) ended: Option<Ending>,
    /// The signal by which the leader was stopped last.
    pub(super) stopped_by: Option<i32>,
    terminal: Option<Terminal>,
    /// The command is to have the terminal when this process's group has it.
    wants_terminal: bool,
    /// The last signal that was passed on, of those that end a process.
    passed_on: Option<i32>,
    /// Whether the command's group had the terminal when the leader had ended; `None` before.
    had_terminal: Option<bool>,
}

impl Job {
    /// Returns the job of a command that was not started yet.
    pub(super) fn new() -> Job {
        let terminal = Terminal::open();
        let wants_terminal = terminal.as_ref().is_some_and(Terminal::is_for_command);
        Job { terminal, wants_terminal, ..Job::default() }
    }

    /// Returns the command's hold of the terminal when it begins.
    pub(super) fn of_terminal(&self) -> OfTerminal {
        match &self.terminal {
            Some(_) if self.wants_terminal => OfTerminal::All,
            Some(terminal) if terminal.is_own() => OfTerminal::WhenItReads,
            Some(_) | None => OfTerminal::Nothing,
        }
    }

    /// Returns the terminal if the command is to have it from the beginning.
    pub(super) fn terminal_given(&self) -> Option<BorrowedFd<'_>> {
        self.terminal.as_ref().filter(|_| self.wants_terminal).map(|it| it.file.as_fd())
    }

    /// Takes in an event of the command.
    pub(super) fn note(&mut self, event: Event) {
        match event {
            Event::Started(group) => self.group = Pid::from_raw(group),
            Event::Stopped(signal) => self.stopped_by = Some(signal),
            Event::Ended(ending) => {
                self.ended = Some(ending);
                self.stopped_by = None;
            }
            Event::NotStarted(error) => self.error = error,
            Event::NothingLeft => {}
        }
    }

    /// Returns whether the leader has ended and nobody is in the group any more.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some() && self.group.is_none_or(command::is_empty)
    }

    pub(super) fn send(&self, signal: i32) {
        if let Some(group) = self.group {
            command::send(group, signal);
        }
    }

    /// Passes a signal on to the command.
    pub(super) fn pass_on(&mut self, signal: i32) {
        match signal {
            SIGCONT => self.go_on(),
            SIGTSTP if self.ended.is_some() => {
                self.send(signal);
                raw::act_by_default(signal);
            }
            SIGTSTP | SIGWINCH => self.send(signal),
            SIGCHLD | SIGTTOU => {}
            _ if is_deadly(signal) => {
                self.passed_on = Some(signal);
                self.send(signal);
            }
            _ => {}
        }
    }

    /// The leader was stopped: this process's group stops too, as it would if the command were in
    /// it. A shell that runs a script does not look for stopped processes: the shell that has
    /// started that shell has to see it stopped. Where no shell does, nobody would let the command
    /// go on. Returns, when this process goes on, the cause of the stop of the leader; `None` if
    /// this process was not to stop.
    pub(super) fn stop(&mut self, signal: i32) -> Option<Stop> {
        let terminal = self.terminal.as_ref()?;
        let reads = matches!(signal, SIGTTIN | SIGTTOU);
        if reads && terminal.is_own() {
            // The command wants the terminal, and can have it.
            self.wants_terminal = true;
            self.go_on();
            return None;
        }
        let is_of_terminal = reads || signal == SIGTSTP;
        if !is_of_terminal && !self.group.is_some_and(|group| terminal.is_of(group)) {
            return None;
        }
        self.take_terminal_back();
        // SIGSTOP would stop this group also where no shell watches it, and for ever: a program
        // that stops the command, and lets the command go on, does not know this process. The
        // kernel ignores SIGTSTP there.
        raw::act_by_default_with_group(if is_of_terminal { signal } else { SIGTSTP });
        Some(if is_of_terminal { Stop::ByTerminal } else { Stop::ByProgram })
    }

    /// The leader has ended. Takes the terminal back, as a shell would then: the signals of the
    /// terminal come to this process, and the rest of the group is in the background.
    pub(super) fn leader_has_ended(&mut self) {
        let terminal = self.terminal.as_ref();
        let has_it = || terminal.zip(self.group).is_some_and(|(it, group)| it.is_of(group));
        self.had_terminal = Some(self.had_terminal.unwrap_or_else(has_it));
        self.take_terminal_back();
    }

    /// The command has ended, and the terminal is taken back. Returns how this process ends: as the
    /// command, if that was interrupted at a terminal. A shell ends a script, or a line, if it got
    /// the signal itself and what it waits for ended by it.
    pub(super) fn end(&mut self) -> Ending {
        self.leader_has_ended();
        let ended = self.ended.unwrap_or(Ending::Status(Exit::Lost as u8));
        if let Ending::Signal(signal @ (SIGINT | SIGQUIT)) = ended
            && self.terminal.as_ref().is_some_and(Terminal::is_own)
            && !raw::is_ignored(signal)
        {
            let is_typed = self.had_terminal == Some(true) && self.passed_on != Some(signal);
            return if is_typed { Ending::Typed(signal) } else { ended };
        }
        Ending::Status(ended.status())
    }

    /// Lets a command go on that was stopped: a stop that was noted before is over.
    pub(super) fn go_on(&mut self) {
        self.stopped_by = None;
        self.give_terminal();
        self.send(SIGCONT);
    }

    pub(super) fn give_terminal(&self) {
        if let Some(terminal) = &self.terminal
            && self.wants_terminal
            && self.had_terminal.is_none()
            && let Some(group) = self.group
        {
            terminal.give(group);
        }
    }

    pub(super) fn take_terminal_back(&self) {
        if let (Some(terminal), Some(group)) = (&self.terminal, self.group) {
            terminal.take_back(group);
        }
    }

    /// Takes the terminal back from a command that could not be executed.
    pub(super) fn reclaim_terminal(&self) {
        if self.wants_terminal {
            self.terminal.iter().for_each(Terminal::reclaim);
        }
    }
}

/// When a group is inspected, after the end of its leader.
#[derive(Default)]
pub(super) struct Inspection {
    /// When it is due; `None` if it was not begun.
    pub(super) at: Option<Instant>,
    pause: Duration,
}

impl Inspection {
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.at.is_none_or(|at| now >= at)
    }

    /// Sets when it is due next. Returns, once, whether that is as late as it will ever be: then
    /// this process seems to hang.
    pub(super) fn repeat(&mut self, now: Instant) -> bool {
        let was_longest = self.pause == INSPECT_MAX;
        self.pause = (self.pause * 2).clamp(INSPECT_MIN, INSPECT_MAX);
        self.at = Some(now.after(self.pause));
        !was_longest && self.pause == INSPECT_MAX
    }
}
