//! Signals that are blocked, discarded, read, and acted on by default.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::ptr;

use libc::sigset_t;

use super::owned;

fn set_of(signals: &[i32]) -> sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) fills the set, which sigaddset(3) changes.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        signals.iter().for_each(|signal| _ = libc::sigaddset(set.as_mut_ptr(), *signal));
        set.assume_init()
    }
}

/// Changes which signals this thread blocks; returns those that it blocked before.
fn mask(how: i32, set: sigset_t) -> io::Result<sigset_t> {
    let mut before = set;
    // SAFETY: pthread_sigmask(3) reads one set and fills the other.
    match unsafe { libc::pthread_sigmask(how, &raw const set, &raw mut before) } {
        0 => Ok(before),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Gives a signal its default action, for this process and those that it starts, whatever the
/// process that started this one did. Returns the action before.
pub fn restore_default(signal: i32) -> libc::sighandler_t {
    // SAFETY: the default is no function of ours.
    unsafe { libc::signal(signal, libc::SIG_DFL) }
}

/// Returns whether this process ignores a signal.
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: sigaction(2) fills in the action, which is plain data, and changes nothing where
    // no new one is given.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Blocks signals in this thread, and in all threads that it starts later; returns a descriptor
/// from which they are read without waiting.
///
/// # Errors
///
/// When the process has no descriptor left.
pub fn take_signals(signals: &[i32]) -> io::Result<OwnedFd> {
    let (set, flags) = (set_of(signals), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
    mask(libc::SIG_BLOCK, set)?;
    // SAFETY: signalfd(2) reads the set.
    match unsafe { libc::signalfd(-1, &raw const set, flags) } {
        -1 => Err(io::Error::last_os_error()),
        descriptor => Ok(owned(descriptor)),
    }
}

/// Blocks no signal in this thread any more, nor in the threads that it starts later.
///
/// # Errors
///
/// When the system does not take the set.
pub fn unblock_signals() -> io::Result<()> {
    mask(libc::SIG_SETMASK, set_of(&[])).map(drop)
}

/// Blocks all signals in this thread, and in all threads that it starts later, those too that the C
/// library keeps for itself: their uses are not needed here, and anybody can send them.
pub fn block_signals() {
    let (all, none) = (u64::MAX, ptr::null_mut::<u64>());
    // SAFETY: rt_sigprocmask(2) reads a set of this size. It fails for a wrong operation only.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const all,
            none,
            size_of_val(&all),
        );
    }
}

/// Discards the signals that wait for this process, and blocks none any more. Takes no memory: the
/// function is for a child before it executes its program.
pub(super) fn discard_pending() {
    let mut pending = set_of(&[]);
    // SAFETY: sigpending(2) fills the set.
    unsafe { libc::sigpending(&raw mut pending) };
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: sigismember(3) reads the set. A signal that is ignored does not wait any more.
        let is_handled = unsafe {
            libc::sigismember(&raw const pending, signal) == 1
                && libc::signal(signal, libc::SIG_IGN) != libc::SIG_IGN
        };
        if is_handled {
            restore_default(signal);
        }
    }
    let _ = unblock_signals();
}

/// Does to this process what a signal does by default: the process ends or stops, and goes on after
/// it was stopped.
pub fn act_by_default(signal: i32) {
    send_unblocked(rustix::process::getpid().as_raw_pid(), signal);
}

/// Acts on this process as a signal does by default, and sends it to the others of the group.
pub fn act_by_default_with_group(signal: i32) {
    send_unblocked(0, signal);
}

/// Sends a signal to this process, and to others that a number of kill(2) names. The signal has its
/// default effect on this process, once. SIGSTOP has that anyway.
fn send_unblocked(to: libc::pid_t, signal: i32) {
    let set = set_of(&[signal]);
    let blocked = mask(libc::SIG_BLOCK, set);
    let before = restore_default(signal);
    // SAFETY: kill(2) takes numbers; signal(2) is given the action that there was.
    unsafe { libc::kill(to, signal) };
    let _ = mask(libc::SIG_UNBLOCK, set);
    // SAFETY: see above.
    unsafe { libc::signal(signal, before) };
    let _ = blocked.and_then(|blocked| mask(libc::SIG_SETMASK, blocked));
}
