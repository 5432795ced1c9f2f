//! A signal that must not end a process, and the signals that must end one for which the kernel
//! does not do that.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use libc::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use rustix::process::Pid;
use signal_hook::flag;

use super::raw;

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

/// Has the first signal that ends a command set a flag, which is returned: the command has
/// something to undo. The second one ends this process. A signal that is ignored stays ignored.
///
/// # Errors
///
/// If the system refuses a handler.
pub fn note_first_ending() -> io::Result<Arc<AtomicBool>> {
    let noted = Arc::new(AtomicBool::new(false));
    ending().try_for_each(|signal| {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&noted))?;
        flag::register(signal, Arc::clone(&noted)).map(drop)
    })?;
    Ok(noted)
}

/// Returns the signals that end a command, but for those that are ignored.
fn ending() -> impl Iterator<Item = i32> {
    [SIGTERM, SIGINT, SIGHUP].into_iter().filter(|signal| !raw::is_ignored(*signal))
}

/// Takes over the signals that end a command, but for those that are ignored: the command has
/// something to undo. Called before any thread is started.
///
/// # Errors
///
/// If the system has no descriptor to give.
pub fn take_ending() -> io::Result<OwnedFd> {
    raw::take_signals(&ending().collect::<Vec<_>>())
}
