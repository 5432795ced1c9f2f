//! Signals that must not end a process. They do nothing then, and that only here: one that
//! is ignored would be ignored by what this process starts too.

use std::io;
use std::sync::Arc;

use signal_hook::flag;

use super::raw;

/// All that end or stop a process, but for SIGKILL, SIGSTOP, what says that the process
/// itself is broken, and SIGPIPE and SIGXFSZ, which are seen to for every process.
const DEADLY: [i32; 18] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGSTKFLT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGXCPU,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
];

/// Goes on whatever signal comes, real-time ones too.
///
/// # Errors
///
/// When the system does not take it.
pub fn heed_none() -> io::Result<()> {
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    DEADLY.into_iter().chain(real_time).try_for_each(heed_not)?;
    // The agent has blocked those that it takes itself.
    raw::unblock_signals()
}

/// Goes on where a file has reached the size that it may have: the write fails instead. A
/// log there costs lines, and not the process.
///
/// # Errors
///
/// When the system does not take it.
pub fn outlive_full_files() -> io::Result<()> {
    heed_not(libc::SIGXFSZ)
}

fn heed_not(signal: i32) -> io::Result<()> {
    flag::register(signal, Arc::default()).map(drop)
}
