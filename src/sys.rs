//! The few things that the kernel is asked for directly: the clock that counts
//! suspend, random numbers, names of this host, waiting on descriptors.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::rand::GetRandomFlags;
use rustix::time::{ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};

use crate::core::timing::Instant;

/// Returns the present instant of CLOCK_BOOTTIME, which goes on during suspend.
#[must_use]
pub fn now() -> Instant {
    let at = rustix::time::clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(at.tv_sec), u32::try_from(at.tv_nsec));
    Instant::from_boot(Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0)))
}

/// Returns 128 bits that nobody else has.
///
/// # Errors
///
/// When the kernel has no random numbers to give.
pub fn random() -> io::Result<u128> {
    let mut bytes = [0u8; 16];
    let got = rustix::rand::getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    if got != bytes.len() {
        return Err(io::Error::other("getrandom returned too little"));
    }
    Ok(u128::from_le_bytes(bytes))
}

/// Returns the kernel's name of this host.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Returns the kernel's random name of this boot, or a blank when it has none.
#[must_use]
pub fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

/// What a descriptor is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Something to read, or the end.
    Read,
    /// Room to write.
    Write,
}

/// Waits until one of `fds` is ready or `deadline` has passed; `None` waits for
/// ever. Returns which are ready, in order; all false after the deadline.
///
/// # Errors
///
/// When the kernel refuses to wait. An interrupting signal is not an error.
pub fn wait<const N: usize>(
    fds: [(BorrowedFd<'_>, Want); N],
    deadline: Option<Instant>,
) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|(fd, want)| {
        let flags = match want {
            Want::Read => PollFlags::IN,
            Want::Write => PollFlags::OUT,
        };
        PollFd::from_borrowed_fd(fd, flags)
    });
    poll_until(&mut polled, deadline)?;
    Ok(polled.map(|fd| !fd.revents().is_empty()))
}

/// As [`wait`], for any number of prepared descriptors.
///
/// # Errors
///
/// When the kernel refuses to wait.
pub fn poll_until(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<()> {
    loop {
        let timeout = deadline.map(|at| {
            let left = at.since(now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        match rustix::event::poll(fds, timeout.as_ref()) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Becomes readable at an instant of the clock that counts suspend.
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    /// Makes one that is not set.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Alarm(rustix::time::timerfd_create(
            TimerfdClockId::Boottime,
            flags,
        )?))
    }

    /// Sets it anew; `None` is never. An instant that has passed is now.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, which it does not.
    pub fn set(&self, at: Option<Instant>) -> io::Result<()> {
        // A timer of zero is one that is not set.
        let at = at.map_or(Duration::ZERO, |at| {
            at.since_boot().max(Duration::from_nanos(1))
        });
        let never = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let value = Timespec {
            tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(at.subsec_nanos()),
        };
        let timer = Itimerspec {
            it_interval: never,
            it_value: value,
        };
        rustix::time::timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &timer)?;
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Wakes a thread that waits on descriptors, from another that must not block.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub fn new() -> io::Result<Waker> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Waker(rustix::event::eventfd(0, flags)?))
    }

    /// Makes the descriptor readable. A counter that is full already is readable,
    /// so a failure changes nothing.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable until the next [`Waker::wake`].
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the user that this process acts as.
#[must_use]
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}
