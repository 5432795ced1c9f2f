//! What rustix does not offer: the only unsafe code. Each function is one act.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use rustix::ioctl::{Getter, Updater, ioctl, opcode};

/// WDIOC_SETTIMEOUT and WDIOC_GETTIMEOUT of linux/watchdog.h.
const SET_TIMEOUT: rustix::ioctl::Opcode = opcode::read_write::<i32>(b'W', 6);
const GET_TIMEOUT: rustix::ioctl::Opcode = opcode::read::<i32>(b'W', 7);

/// Asks a watchdog device for a timeout of whole seconds. It may choose another.
///
/// # Errors
///
/// When the device cannot do that, or is no watchdog device.
#[expect(unsafe_code, reason = "an ioctl")]
pub fn set_watchdog_timeout(device: impl AsFd, seconds: i32) -> io::Result<()> {
    let mut value = seconds;
    // SAFETY: linux/watchdog.h: WDIOC_SETTIMEOUT reads and writes one int.
    unsafe { ioctl(device, Updater::<SET_TIMEOUT, i32>::new(&mut value)) }?;
    Ok(())
}

/// Returns the timeout that a watchdog device really has.
///
/// # Errors
///
/// When it is no watchdog device.
#[expect(unsafe_code, reason = "an ioctl")]
pub fn watchdog_timeout(device: impl AsFd) -> io::Result<Duration> {
    // SAFETY: linux/watchdog.h: WDIOC_GETTIMEOUT writes one int.
    let seconds = unsafe { ioctl(device, Getter::<GET_TIMEOUT, i32>::new()) }?;
    Ok(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Lets the calling thread run before all that have no real-time priority. What it
/// starts, threads and processes, does not inherit that.
///
/// # Errors
///
/// When that is not permitted.
#[expect(unsafe_code, reason = "a system call that rustix lacks")]
pub fn set_realtime() -> io::Result<()> {
    let lowest: libc::c_int = 1;
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // The kernel's call, since musl's function of this name always fails.
    let call = libc::SYS_sched_setscheduler;
    // SAFETY: sched_setscheduler(2) reads one sched_param, which for the kernel is one
    // int; 0 is the calling thread.
    let result = unsafe { libc::syscall(call, 0, policy, &raw const lowest) };
    if result == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Takes over a descriptor that this process was started with, by its number, and
/// keeps it from what this process starts. Called once, before anything is opened:
/// a descriptor of that number is the caller's then, and nobody else's here.
///
/// # Errors
///
/// When no such descriptor is open.
#[expect(unsafe_code, reason = "a descriptor that is known by its number")]
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl(2) with F_SETFD touches no memory, and fails on what is not open.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and nothing in this process owns it yet.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Has a write into a pipe without a reader fail, and not end this process.
#[expect(unsafe_code, reason = "rustix does not set what signals do")]
pub fn ignore_broken_pipes() {
    // SAFETY: to ignore is no function of ours, and SIGPIPE a signal that can be ignored.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Lets this process and what it starts hear of the end of their children, whatever
/// whoever started it did: where SIGCHLD is ignored they vanish, and no command could
/// be seen to succeed. Called once, before there are threads.
#[expect(unsafe_code, reason = "rustix does not set what signals do")]
pub fn hear_of_children() {
    // SAFETY: the default is no function of ours, and SIGCHLD a signal that has one.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Has the threads that are started from now on take memory from one heap: a heap of its own
/// costs a thread 132 KiB where memory is locked.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "a setting of the C library")]
pub fn share_heap() {
    // SAFETY: mallopt(3) takes two numbers.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Has a command run in a session of its own, as its leader and that of a process group.
#[expect(unsafe_code, reason = "a call between fork and exec")]
pub fn in_new_session(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: setsid(2) is async-signal-safe; the closure allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
}

/// Has a program that is executed in the place of this one find these signals blocked: one
/// that comes before it can take them waits, and does not end it.
#[expect(unsafe_code, reason = "a call between the reset of signals and exec")]
pub fn block_signals_before_exec(command: &mut std::process::Command, signals: &[i32]) {
    use std::os::unix::process::CommandExt;
    let set = signal_set(signals);
    // SAFETY: pthread_sigmask(3) is async-signal-safe; the closure allocates nothing and takes
    // no lock.
    unsafe {
        command.pre_exec(move || change_mask(libc::SIG_BLOCK, &set));
    }
}

/// Takes signals that this thread was started with as blocked.
///
/// # Errors
///
/// When the system does not take it.
pub fn unblock_signals(signals: &[i32]) -> io::Result<()> {
    change_mask(libc::SIG_UNBLOCK, &signal_set(signals))
}

#[expect(unsafe_code, reason = "rustix has no signal sets")]
fn signal_set(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) fills the set, which the other calls change.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

#[expect(unsafe_code, reason = "rustix does not set the signal mask")]
fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: pthread_sigmask(3) reads one set; where the old one goes may be null.
    match unsafe { libc::pthread_sigmask(how, set, ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
