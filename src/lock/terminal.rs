//! The terminal, which one process group has at a time: a process of another group that reads it is
//! stopped.

use std::fs::File;
use std::io::{self, IsTerminal};

use libc::SIGTTIN;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::process::Pid;

use crate::sys::raw;

/// The terminal of this session.
pub(super) struct Terminal {
    pub(super) file: File,
    own: Pid,
}

impl Terminal {
    /// Opens the terminal, if the session has one. A command that reads it in the background is
    /// stopped then, and given it: a shell may have arranged that such a read fails, for the
    /// commands in `$(...)`.
    pub(super) fn open() -> Option<Terminal> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
        let terminal = Terminal { file: file.into(), own: rustix::process::getpgrp() };
        if terminal.is_own() {
            raw::restore_default(SIGTTIN);
        }
        Some(terminal)
    }

    /// Returns whether the command is to have it from the beginning: its stdin is a terminal, and
    /// its stdout no pipe to another process of the foreground group, such as a pager.
    pub(super) fn is_for_command(&self) -> bool {
        let stdout = rustix::fs::fstat(io::stdout());
        let is_pipe = stdout.is_ok_and(|it| FileType::from_raw_mode(it.st_mode).is_fifo());
        self.is_own() && io::stdin().is_terminal() && !is_pipe
    }

    /// Returns whether this process's group has it.
    pub(super) fn is_own(&self) -> bool {
        self.is_of(self.own)
    }

    /// Returns whether this group has it.
    pub(super) fn is_of(&self, group: Pid) -> bool {
        rustix::termios::tcgetpgrp(&self.file) == Ok(group)
    }

    /// Gives it to a group, if this process's group has it. SIGTTOU is blocked.
    pub(super) fn give(&self, group: Pid) {
        if self.is_own() {
            // A group that has ended needs none.
            let _ = rustix::termios::tcsetpgrp(&self.file, group);
        }
    }

    /// Takes it back from a group, if that has it.
    pub(super) fn take_back(&self, group: Pid) {
        if self.is_of(group) {
            // Without it the shell takes it itself.
            let _ = rustix::termios::tcsetpgrp(&self.file, self.own);
        }
    }

    /// Takes it back from a command that could not be executed.
    pub(super) fn reclaim(&self) {
        if !self.is_own() {
            let _ = rustix::termios::tcsetpgrp(&self.file, self.own);
        }
    }
}
