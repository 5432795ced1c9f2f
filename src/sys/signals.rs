//! Signals that must not end a process. Each gets a handler that does nothing: an ignored
//! signal, unlike a handled one, would stay ignored in the commands that this process starts.
//!
//! And signals that must end a process for which the kernel does not do that.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use libc::{
    SIGABRT, SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGPWR, SIGQUIT, SIGSTKFLT, SIGTERM, SIGTRAP,
    SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU,
};
use rustix::process::Pid;
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

/// Lets signals end this process if it is the first of a container: for such a process the kernel
/// has no default action, and a command would wait on whatever it is sent. It ends with 128 and
/// the number of the signal, as a shell tells of a process that was ended by one. A signal that is
/// ignored stays ignored.
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

/// Takes over the signals that end a command, but those that are ignored: it has something to undo.
/// Called before any thread is started.
///
/// # Errors
///
/// If the system has no descriptor to give.
pub fn take_ending() -> io::Result<OwnedFd> {
    let taken = [SIGTERM, SIGINT, SIGHUP].into_iter().filter(|signal| !raw::is_ignored(*signal));
    raw::take_signals(&taken.collect::<Vec<_>>())
}

fn handle(signal: i32) -> io::Result<()> {
    flag::register(signal, Arc::default()).map(drop)
}
