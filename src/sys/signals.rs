//! Signals that must not end a process. Each gets a handler that does nothing: an ignored
//! signal, unlike a handled one, would stay ignored in the commands that this process starts.

use std::io;
use std::sync::Arc;

use libc::{
    SIGABRT, SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGPWR, SIGQUIT, SIGSTKFLT, SIGTERM, SIGTRAP,
    SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU,
};
use signal_hook::flag;

use super::raw;

/// All signals that end or stop a process, except SIGKILL, SIGSTOP, those of a defect of the
/// process itself, and SIGPIPE and SIGXFSZ, which every process of this program handles.
const DEADLY: [i32; 18] = [
    SIGHUP, SIGINT, SIGQUIT, SIGTRAP, SIGABRT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGSTKFLT,
    SIGTSTP, SIGTTIN, SIGTTOU, SIGXCPU, SIGVTALRM, SIGPROF, SIGIO, SIGPWR,
];

/// Handles all signals that would end or stop this process, real-time signals too.
///
/// # Errors
///
/// If the system refuses a handler.
pub fn handle_deadly() -> io::Result<()> {
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    DEADLY.into_iter().chain(real_time).try_for_each(handle)?;
    // The agent has blocked those that it takes itself.
    raw::unblock_signals()
}

/// Handles SIGXFSZ: a write to a file of the largest permitted size fails, and does not end
/// the process. A log in such a file loses lines.
///
/// # Errors
///
/// If the system refuses a handler.
pub fn outlive_full_files() -> io::Result<()> {
    handle(libc::SIGXFSZ)
}

fn handle(signal: i32) -> io::Result<()> {
    flag::register(signal, Arc::default()).map(drop)
}
