//! A signal that must not end a process, and the signals that must end one for which the kernel
//! does not do that.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use libc::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use rustix::process::Pid;
use signal_hook::flag;

use super::{next_signal, now, raw};
use crate::core::Instant;

/// Signals within this time are one request: timeout(1) sends a command two, and a shell that loses
/// its terminal too.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// Handles SIGXFSZ: a write to a file of the largest permitted size fails, and does not end
/// the process. A log in such a file loses lines. An ignored signal, unlike a handled one, would
/// stay ignored in the commands that this process starts.
///
/// # Errors
///
/// If the system refuses a handler.
pub fn outlive_full_files() -> io::Result<()> {
    flag::register(libc::SIGXFSZ, Arc::default()).map(drop)
}

/// Lets signals end this process if it is the first of a container: for such a process the kernel
/// has no default action, and a command would wait on whatever signal it is sent. The process ends
/// with 128 and the number of the signal, as a shell tells of a process that was ended by one. A
/// signal that is ignored stays ignored.
///
/// # Errors
///
/// If the system refuses a handler.
pub fn end_first_process() -> io::Result<()> {
    if rustix::process::getpid() != Pid::INIT {
        return Ok(());
    }
    let ending = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2].into_iter();
    ending.filter(|signal| !raw::is_ignored(*signal)).try_for_each(|signal| {
        let always = Arc::new(AtomicBool::new(true));
        flag::register_conditional_shutdown(signal, 128 + signal, always).map(drop)
    })
}

/// The signals that end a command which has something to undo. A signal that is ignored stays
/// ignored.
#[derive(Debug)]
pub struct Endings {
    taken: OwnedFd,
    /// When the first one was read.
    first_at: Option<Instant>,
}

impl Endings {
    /// Takes over the signals. Called before any thread is started.
    ///
    /// # Errors
    ///
    /// If the system has no descriptor to give.
    pub fn open() -> io::Result<Endings> {
        let ending = [SIGTERM, SIGINT, SIGHUP].into_iter();
        let ending: Vec<_> = ending.filter(|signal| !raw::is_ignored(*signal)).collect();
        Ok(Endings { taken: raw::take_signals(&ending)?, first_at: None })
    }

    /// Returns whether a request to end has come since the last call.
    pub fn read(&mut self) -> bool {
        while next_signal(&self.taken).is_some() {
            if self.first_at.is_none_or(|at| now().since(at) >= ONE_REQUEST) {
                self.first_at.get_or_insert_with(now);
                return true;
            }
        }
        false
    }
}

impl AsFd for Endings {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.taken.as_fd()
    }
}
