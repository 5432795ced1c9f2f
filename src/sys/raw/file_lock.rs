//! Locks of a file, which an open file description has: they end with its last descriptor. And the
//! process that has a record lock.

use std::ffi::{c_int, c_short};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use rustix::process::Pid;

#[cfg(target_pointer_width = "64")]
const SYS_FCNTL: libc::c_long = libc::SYS_fcntl;
#[cfg(not(target_pointer_width = "64"))]
const SYS_FCNTL: libc::c_long = libc::SYS_fcntl64;

/// F_GETLK, or F_GETLK64 of 32-bit systems, in asm-generic/fcntl.h.
const GET_RECORD_LOCK: c_int = if cfg!(target_pointer_width = "64") { 5 } else { 12 };

/// How a file is locked by an open file description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileLock {
    /// Beside other shared locks; the description can read.
    Shared = libc::F_RDLCK as isize,
    /// Beside no other lock; the description can write.
    Exclusive = libc::F_WRLCK as isize,
}

/// Calls fcntl(2) with a lock of a whole file, or of one byte of it, which the call may change. The
/// system call is made directly, because the library converts the structure on some architectures.
fn call(
    file: impl AsFd,
    what: c_int,
    how: FileLock,
    byte: Option<i64>,
) -> io::Result<libc::flock64> {
    // SAFETY: the structure is plain data, and zero is a value of each of its fields.
    let mut lock: libc::flock64 = unsafe { MaybeUninit::zeroed().assume_init() };
    (lock.l_type, lock.l_whence) = (how as c_short, libc::SEEK_SET as c_short);
    if let Some(at) = byte {
        (lock.l_start, lock.l_len) = (at, 1);
    }
    let file = file.as_fd().as_raw_fd();
    loop {
        // SAFETY: fcntl(2) reads and writes one such structure for these operations.
        if unsafe { libc::syscall(SYS_FCNTL, file, what, &raw mut lock) } != -1 {
            return Ok(lock);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Locks one byte of a file exclusively for the open file description; the byte may be behind the
/// end of the file. Waits until no other description has locked the byte or the whole file.
///
/// # Errors
///
/// When the file system has no such locks.
pub fn lock_byte(file: impl AsFd, at: u32) -> io::Result<()> {
    call(file, libc::F_OFD_SETLKW, FileLock::Exclusive, Some(i64::from(at))).map(drop)
}

/// Locks a file for the open file description; returns whether no other one has it locked.
///
/// # Errors
///
/// When the file system has no such locks.
pub fn try_lock_file(file: impl AsFd, how: FileLock) -> io::Result<bool> {
    match call(file, libc::F_OFD_SETLK, how, None) {
        Ok(_) => Ok(true),
        // The second error is the one of other systems.
        Err(error) if [libc::EAGAIN, libc::EACCES].map(Some).contains(&error.raw_os_error()) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Returns whether another open file description has a shared lock of a file.
///
/// # Errors
///
/// When the file system has no such locks.
pub fn is_shared_by_others(file: impl AsFd) -> io::Result<bool> {
    let found = call(file, libc::F_OFD_GETLK, FileLock::Exclusive, None)?;
    Ok(c_int::from(found.l_type) == libc::F_RDLCK)
}

/// Returns the other process that has a record lock of a file; `None` if there is none, or if it is
/// in another PID namespace.
///
/// # Errors
///
/// When the file system has no such locks.
pub fn record_lock_holder(file: impl AsFd) -> io::Result<Option<Pid>> {
    let found = call(file, GET_RECORD_LOCK, FileLock::Exclusive, None)?;
    let is_locked = c_int::from(found.l_type) != libc::F_UNLCK;
    // A lock of an open file description has no process.
    let process = Some(found.l_pid).filter(|process| is_locked && *process > 0);
    Ok(process.and_then(Pid::from_raw))
}
