//! Locks of bytes of a file, which an open file description has: they end with its last
//! descriptor.

use std::ffi::{c_int, c_short};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

#[cfg(target_pointer_width = "64")]
const SYS_FCNTL: libc::c_long = libc::SYS_fcntl;
#[cfg(not(target_pointer_width = "64"))]
const SYS_FCNTL: libc::c_long = libc::SYS_fcntl64;

/// How a byte of a file is locked by an open file description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteLock {
    /// With others that do so too.
    Shared,
    /// Alone.
    Exclusive,
    /// Not any more.
    Unlocked,
}

/// Calls fcntl(2) with a range of a file, which it may change. The system call, because the
/// library converts the range on some architectures.
fn lock_range(file: BorrowedFd<'_>, what: c_int, range: &mut libc::flock64) -> io::Result<()> {
    // SAFETY: fcntl(2) reads and writes one such range for these operations.
    let result = unsafe { libc::syscall(SYS_FCNTL, file.as_raw_fd(), what, &raw mut *range) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn range(kind: c_int, from: u64, bytes: u64) -> io::Result<libc::flock64> {
    let number = |number: u64| i64::try_from(number).map_err(io::Error::other);
    // SAFETY: it is plain data, and zero is a value of each of its fields.
    let mut range: libc::flock64 = unsafe { MaybeUninit::zeroed().assume_init() };
    range.l_type = kind as c_short;
    range.l_whence = libc::SEEK_SET as c_short;
    (range.l_start, range.l_len) = (number(from)?, number(bytes)?);
    Ok(range)
}

/// Locks a byte of a file, which need not be there, for the open file description. `wait` waits
/// for it; else a byte that another one has locked is [`io::ErrorKind::WouldBlock`].
///
/// # Errors
///
/// That, or when the file system has no such locks.
pub fn lock_byte(file: BorrowedFd<'_>, how: ByteLock, at: u64, wait: bool) -> io::Result<()> {
    let kind = match how {
        ByteLock::Shared => libc::F_RDLCK,
        ByteLock::Exclusive => libc::F_WRLCK,
        ByteLock::Unlocked => libc::F_UNLCK,
    };
    let what = if wait { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK };
    let mut range = range(kind, at, 1)?;
    loop {
        match lock_range(file, what, &mut range) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// A part of a file that another open file description, or another process, has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundLock {
    /// How: shared or exclusive.
    pub how: ByteLock,
    /// The first byte.
    pub from: u64,
    /// The number of bytes; 0 reach to the end of all files.
    pub bytes: u64,
}

/// Returns a lock that others have within a range; `None` if there is none. 0 bytes reach to the
/// end of all files.
///
/// # Errors
///
/// When the file system has no such locks.
pub fn find_lock(file: BorrowedFd<'_>, from: u64, bytes: u64) -> io::Result<Option<FoundLock>> {
    let mut range = range(libc::F_WRLCK, from, bytes)?;
    lock_range(file, libc::F_OFD_GETLK, &mut range)?;
    let number = |number: i64| u64::try_from(number).map_err(io::Error::other);
    let how = match c_int::from(range.l_type) {
        libc::F_UNLCK => return Ok(None),
        libc::F_RDLCK => ByteLock::Shared,
        _ => ByteLock::Exclusive,
    };
    Ok(Some(FoundLock { how, from: number(range.l_start)?, bytes: number(range.l_len)? }))
}
