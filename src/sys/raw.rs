//! What rustix does not offer: the only unsafe code. Each function is one act.

#![expect(unsafe_code, reason = "rustix does not offer it")]

mod byte_lock;
mod child;
mod descriptors;
mod kernel_state;

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Updater, ioctl, opcode};
use rustix::process::Pid;

pub use self::byte_lock::{ByteLock, FoundLock, find_lock, lock_byte};
pub use self::child::{Child, set_up_on_terminal};
pub use self::descriptors::keep_only;
pub use self::kernel_state::{ClockRate, acknowledged_ago, clock_rate};

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
/// When it is not a watchdog device.
pub fn watchdog_timeout(device: impl AsFd) -> io::Result<Duration> {
    // SAFETY: linux/watchdog.h: WDIOC_GETTIMEOUT writes one int.
    let seconds = unsafe { ioctl(device, Getter::<GET_TIMEOUT, i32>::new()) }?;
    Ok(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Takes over a descriptor that this process was started with, by its number, and
/// keeps it from what this process starts. Called once, before anything is opened:
/// a descriptor of that number is the caller's then, and nobody else's here.
///
/// # Errors
///
/// When no such descriptor is open.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl(2) with F_SETFD touches no memory, and fails on what is not open.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and nothing in this process owns it yet.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Returns a copy of a descriptor of this number, which this process keeps from what it starts.
///
/// # Errors
///
/// When no such descriptor was open when this process was started, or no other is left.
pub fn copied(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl(2) with F_GETFD touches no memory, and fails on what is not open.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    // What this process has opened itself is closed at exec.
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: as above, with F_DUPFD_CLOEXEC.
    match unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: it is new, so nothing else owns it.
        copy => Ok(unsafe { OwnedFd::from_raw_fd(copy) }),
    }
}

/// Closes what this process was started with, but for stdin, stdout and stderr. What it has opened
/// itself is closed at exec, and so is told from that.
pub fn close_inherited() {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    for number in numbers.filter(|number| *number > 2).collect::<Vec<_>>() {
        // SAFETY: fcntl(2) with F_GETFD touches no memory, and fails on what is not open. Nothing
        // in this process owns a descriptor that it was started with.
        unsafe {
            if libc::fcntl(number, libc::F_GETFD) == 0 {
                libc::close(number);
            }
        }
    }
}

/// Lets this process and what it starts hear of the end of their children, whatever
/// whoever started it did: where SIGCHLD is ignored they vanish, and no command could
/// be seen to succeed. Called once, before there are threads.
pub fn hear_of_children() {
    // SAFETY: the default is no function of ours, and SIGCHLD a signal that has one.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Has the threads that are started from now on take memory from one heap: a heap of its own
/// costs a thread 132 KiB where memory is locked.
#[cfg(target_env = "gnu")]
pub fn share_heap() {
    // SAFETY: mallopt(3) takes two numbers.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
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

/// Blocks signals in this thread, and in all that it starts later; returns a descriptor from
/// which they are read without waiting.
///
/// # Errors
///
/// When the process has no descriptor left.
pub fn take_signals(signals: &[i32]) -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) fills the set, which the other calls change or read; where the old
    // mask goes may be null. The descriptor is nobody else's.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut());
        match libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(OwnedFd::from_raw_fd(descriptor)),
        }
    }
}

/// Blocks no signal in this thread any more, nor in what it starts later.
///
/// # Errors
///
/// When the system does not take it.
pub fn unblock_signals() -> io::Result<()> {
    let mut none = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) fills the set, which pthread_sigmask(3) reads; where the old mask
    // goes may be null.
    let error = unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut())
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Spawns a thread that gets no signal of this process, whatever this thread blocks: what the
/// kernel gives to another thread never reaches the descriptor of [`take_signals`].
///
/// # Errors
///
/// When the system has no thread to give.
pub fn spawn_without_signals(
    builder: thread::Builder,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: sigfillset(3) fills the set, which pthread_sigmask(3) reads; that fills the other.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let spawned = builder.spawn(work);
    // SAFETY: the set was filled above; where the old mask goes may be null.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    spawned.map(drop)
}

/// Copies this process; `None` in the copy. Called before there are threads: the copy has none
/// of them, but what they had locked stays locked.
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

/// Ends this process, a copy of another one, which has still to do what is done at an end.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: it ends the process as it is.
    unsafe { libc::_exit(status) }
}

/// Returns the process group of a process; `None` for one of the kernel, which has none.
///
/// # Errors
///
/// When there is no such process.
pub fn group_of(process: Pid) -> rustix::io::Result<Option<Pid>> {
    // SAFETY: getpgid(2) takes a number. rustix takes 0 for an impossible answer.
    number_or_error(unsafe { libc::getpgid(process.as_raw_pid()) })
}

/// Returns the session of a process; `None` if its leader is in another PID namespace.
///
/// # Errors
///
/// When there is no such process.
pub fn session_of(process: Pid) -> rustix::io::Result<Option<Pid>> {
    // SAFETY: getsid(2) takes a number. rustix takes 0 for an impossible answer.
    number_or_error(unsafe { libc::getsid(process.as_raw_pid()) })
}

fn number_or_error(answer: libc::pid_t) -> rustix::io::Result<Option<Pid>> {
    if answer != -1 {
        return Ok(Pid::from_raw(answer));
    }
    let error = Errno::from_io_error(&io::Error::last_os_error());
    Err(error.unwrap_or(Errno::INVAL))
}

/// Lets this process and what it starts be stopped by SIGTTIN, whatever whoever started it did:
/// where that is ignored, a read of the terminal in the background fails.
pub fn stop_at_reading() {
    // SAFETY: the default is no function of ours, and SIGTTIN a signal that has one.
    unsafe { libc::signal(libc::SIGTTIN, libc::SIG_DFL) };
}

/// Does to this process what a signal does by default: the process ends or stops, and goes on
/// after it was stopped.
pub fn act_by_default(signal: i32) {
    send_unblocked(rustix::process::getpid().as_raw_pid(), signal);
}

/// Does so, and sends the signal to the other processes of the group.
pub fn act_by_default_with_group(signal: i32) {
    send_unblocked(0, signal);
}

/// Sends a signal to this process, and to others that a number of kill(2) names. It has its
/// default effect on this one, once. SIGSTOP has that anyway.
fn send_unblocked(to: libc::pid_t, signal: i32) {
    let (mut set, mut mask) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the default is no function of ours. sigemptyset(3) fills the set, which the other
    // calls change or read; pthread_sigmask(3) fills the old mask, and that may go to null.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), mask.as_mut_ptr());
        let before = libc::signal(signal, libc::SIG_DFL);
        libc::kill(to, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
        libc::signal(signal, before);
        libc::pthread_sigmask(libc::SIG_SETMASK, mask.as_ptr(), ptr::null_mut());
    }
}
