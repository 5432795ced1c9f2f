//! Functions that rustix does not offer: the only unsafe code. Each function is one act.

#![expect(unsafe_code, reason = "rustix does not offer it")]

mod child;
mod descriptors;
mod file_lock;
mod kernel_state;
mod signals;

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::io::{Errno, FdFlags};
use rustix::ioctl::{Getter, Updater, ioctl, opcode};
use rustix::process::Pid;

pub use self::child::{Child, set_up_on_terminal};
pub use self::descriptors::keep_only;
pub use self::file_lock::{
    FileLock, is_shared_by_others, lock_byte, record_lock_holder, try_lock_file,
};
pub use self::kernel_state::{ClockRate, acknowledged_ago, clock_rate};
pub use self::signals::{
    act_by_default, act_by_default_with_group, block_signals, is_ignored, restore_default,
    take_signals, unblock_signals,
};

/// WDIOC_SETTIMEOUT and WDIOC_GETTIMEOUT of linux/watchdog.h.
const SET_TIMEOUT: rustix::ioctl::Opcode = opcode::read_write::<i32>(b'W', 6);
const GET_TIMEOUT: rustix::ioctl::Opcode = opcode::read::<i32>(b'W', 7);

/// Asks a watchdog device for a timeout of whole seconds. It may choose another.
///
/// # Errors
///
/// When the device cannot do that, or is no watchdog device.
pub fn set_watchdog_timeout(device: impl AsFd, mut seconds: i32) -> io::Result<()> {
    // SAFETY: linux/watchdog.h: WDIOC_SETTIMEOUT reads and writes one int.
    unsafe { ioctl(device, Updater::<SET_TIMEOUT, i32>::new(&mut seconds)) }?;
    Ok(())
}

/// Returns the timeout that a watchdog device really has.
///
/// # Errors
///
/// When the device is no watchdog device.
pub fn watchdog_timeout(device: impl AsFd) -> io::Result<Duration> {
    // SAFETY: linux/watchdog.h: WDIOC_GETTIMEOUT writes one int.
    let seconds = unsafe { ioctl(device, Getter::<GET_TIMEOUT, i32>::new()) }?;
    Ok(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Returns a descriptor by its number. Calls fail on a descriptor that is not open.
fn borrowed(number: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the descriptor is used at once, and by calls that touch no memory.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Takes over a descriptor that is open, and that nothing in this process owns.
fn owned(number: RawFd) -> OwnedFd {
    // SAFETY: the callers make sure that the descriptor is open and that nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Takes over a descriptor that this process was started with, by its number, and keeps it from the
/// processes that this one starts. Called once, before anything is opened: a descriptor of that
/// number is the caller's then, and nobody else's here.
///
/// # Errors
///
/// When no such descriptor is open.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(Errno::BADF.into());
    }
    rustix::io::fcntl_setfd(borrowed(number), FdFlags::CLOEXEC)?;
    Ok(owned(number))
}

/// Returns a copy of a descriptor of this number, which the processes that this one starts do not
/// get.
///
/// # Errors
///
/// When no such descriptor was open when this process was started, or no other is left.
pub fn copied(number: RawFd) -> io::Result<OwnedFd> {
    // A descriptor that this process has opened itself is closed at exec.
    if number < 0 || rustix::io::fcntl_getfd(borrowed(number))?.contains(FdFlags::CLOEXEC) {
        return Err(Errno::BADF.into());
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(borrowed(number), 3)?)
}

/// Closes the descriptors that this process was started with, but for stdin, stdout and stderr.
/// Those that it has opened itself are closed at exec, which tells them from the others.
pub fn close_inherited() {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    for number in numbers.filter(|number| *number > 2).collect::<Vec<_>>() {
        // Nothing in this process owns a descriptor that it was started with.
        if rustix::io::fcntl_getfd(borrowed(number)).is_ok_and(|flags| flags.is_empty()) {
            drop(owned(number));
        }
    }
}

/// Has the threads that are started from now on take memory from one heap: a heap of its own
/// costs a thread 132 KiB where memory is locked.
#[cfg(target_env = "gnu")]
pub fn share_heap() {
    // SAFETY: mallopt(3) takes two numbers.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Copies this process; `None` in the copy. Called before there are threads: the copy has none of
/// them, but the locks that they held stay locked.
///
/// # Errors
///
/// When the system has no process or memory to give.
pub fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: there is no other thread, which could hold a lock of the library.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        process => Ok(Pid::from_raw(process)),
    }
}

/// Ends a copy of this process that was made beside other threads: a lock that one of them held
/// stays locked there, and [`std::process::exit`] takes one that each new thread takes too.
#[cfg(test)]
pub fn end_copy(status: u8) -> ! {
    // SAFETY: _exit(2) takes a number, and does not return.
    unsafe { libc::_exit(status.into()) }
}

/// Returns the session of a process; `None` if its leader is in another PID namespace.
///
/// # Errors
///
/// When there is no such process.
pub fn session_of(process: Pid) -> rustix::io::Result<Option<Pid>> {
    // SAFETY: getsid(2) takes a number. rustix takes 0 for an impossible answer.
    match unsafe { libc::getsid(process.as_raw_pid()) } {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
        session => Ok(Pid::from_raw(session)),
    }
}
