//! The signals of the front. They are blocked, and read from a descriptor.

use std::io;
use std::os::fd::OwnedFd;

use libc::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTOU, SIGUSR1, SIGUSR2,
    SIGWINCH,
};

use rustix::process::Signal;

use crate::sys::{self, raw};

/// The signals that end a process that waits for a lock, and that are passed on to a command.
const DEADLY: [i32; 6] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];

/// SIGTTOU would stop the front when it takes the terminal back.
const OTHERS: [i32; 5] = [SIGWINCH, SIGTSTP, SIGCONT, SIGCHLD, SIGTTOU];

/// The signals that the front takes.
pub(crate) struct Signals {
    /// Becomes readable when there is a signal.
    pub(super) fd: OwnedFd,
}

impl Signals {
    /// Takes the signals over. One that is ignored stays ignored, also by the command, as under
    /// nohup(1).
    ///
    /// # Errors
    ///
    /// When the system has no descriptor to give.
    pub(super) fn open() -> io::Result<Signals> {
        let all = DEADLY.into_iter().chain(OTHERS);
        let taken: Vec<_> = all.filter(|signal| !raw::is_ignored(*signal)).collect();
        Ok(Signals { fd: raw::take_signals(&taken)? })
    }

    /// Reads the next signal, if there is one.
    pub(super) fn next(&self) -> Option<i32> {
        sys::next_signal(&self.fd)
    }

    /// Lets a signal be read again: this process sends it to itself, and blocks it.
    pub(super) fn put_back(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            // A process may always send a signal to itself.
            let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
        }
    }

    /// Reads until the next signal that ends a process which waits, if there is one. Stops this
    /// process at a SIGTSTP.
    pub(super) fn next_deadly(&self) -> Option<i32> {
        loop {
            match self.next()? {
                SIGTSTP => raw::act_by_default(SIGTSTP),
                signal if is_deadly(signal) => return Some(signal),
                _ => {}
            }
        }
    }
}

/// Returns whether a signal ends a process that has nothing against it.
pub(super) fn is_deadly(signal: i32) -> bool {
    DEADLY.contains(&signal)
}
