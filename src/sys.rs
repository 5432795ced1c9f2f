//! Direct uses of the kernel: the clock that counts suspend, random numbers, names of this host,
//! waits on descriptors.

pub mod host_clock;
pub mod private_file;
mod processes;
pub mod raw;
pub mod safe_path;
pub mod signals;
mod threads;
#[cfg(test)]
#[path = "sys/tests/until.rs"]
mod until;

use std::array;
use std::cell::Cell;
use std::fmt::Display;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{self, Path, PathBuf};
use std::time::Duration;

pub use self::processes::{check_proc, end_session, is_ending, kill_with_group, start_ticks};
pub use self::threads::{
    NICE_MIN, come_first, run_beside_each_other, start_small_thread, start_thread,
};
#[cfg(test)]
pub(crate) use self::until::{PATIENCE, until};
pub use rustix::event::PollFlags;
use rustix::event::{EventfdFlags, PollFd, Timespec, epoll};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mm::MlockAllFlags;
use rustix::process::{Pid, PidfdFlags, Resource, Signal, WaitOptions};
use rustix::rand::GetRandomFlags;
use rustix::thread::CapabilitySet;
use rustix::time::{ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};

use self::host_clock::BOOT_ID;
use crate::core::Instant;

/// Returns the present instant of CLOCK_BOOTTIME, which goes on during suspend.
pub fn now() -> Instant {
    // The clock is never before its beginning.
    let now = rustix::time::clock_gettime(ClockId::Boottime).try_into();
    Instant::from_boot(now.unwrap_or_default())
}

/// Returns the time of CLOCK_MONOTONIC, which a service manager counts by. No
/// deadline is on it: it stands still during suspend.
pub fn monotonic() -> Duration {
    rustix::time::clock_gettime(ClockId::Monotonic).try_into().unwrap_or_default()
}

/// Returns 128 bits that nobody else has.
///
/// # Errors
///
/// When the kernel has no random numbers to give.
pub fn random() -> io::Result<u128> {
    let mut bytes = [0u8; 16];
    // The kernel gives up to 256 bytes as a whole or not at all.
    rustix::rand::getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    Ok(u128::from_le_bytes(bytes))
}

/// Returns the absolute form of a path. The file itself is not looked up.
pub fn absolute(path: &Path) -> PathBuf {
    path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns a function that has the text of an error begin with its subject.
pub fn named(subject: impl Display) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{subject}: {error}"))
}

/// Returns the kernel's name of this host.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the kernel's random name of this boot. A container may have been given a name of its own
/// at its start, by a file that is mounted there: the name counts, because none of the processes
/// from before that start are left, as after a boot. A caller that compares instants of the clock
/// with those of other containers uses [`host_clock::boot`], to which such a name tells nothing.
///
/// # Errors
///
/// When the name cannot be read. Then it is not known whether a note is of this boot.
pub fn boot_id() -> io::Result<String> {
    let text = fs::read_to_string(BOOT_ID).map_err(named(BOOT_ID))?;
    Ok(text.trim().to_owned())
}

/// As [`lock_within`], exclusively, by a record lock of fcntl(2). The lock is this process's: a
/// child does not have it, even before it has executed its program. The lock keeps out other
/// processes, not threads, and ends when the process closes any descriptor of the file.
///
/// # Errors
///
/// As those of [`lock_within`].
pub fn lock_record_within(file: &File, within: Duration, every: Duration) -> io::Result<bool> {
    let how = FlockOperation::NonBlockingLockExclusive;
    lock_within(|| rustix::fs::fcntl_lock(file, how), within, every)
}

/// Tries a lock, by a call that does not block, at once and then now and then; returns whether it
/// was got in time.
///
/// # Errors
///
/// When the file system has no locks, or the process no descriptor left.
pub fn lock_within(
    lock: impl Fn() -> rustix::io::Result<()>,
    within: Duration,
    every: Duration,
) -> io::Result<bool> {
    let until = now().after(within);
    loop {
        match lock() {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK | Errno::ACCESS) if now() < until => {}
            Err(Errno::WOULDBLOCK | Errno::ACCESS) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        pause(every.min(until.since(now())));
    }
}

/// Reads the next signal from a descriptor of [`raw::take_signals`], if there is one.
pub fn next_signal(descriptor: impl AsFd) -> Option<i32> {
    let mut signal = [0; SIGNAL_BYTES];
    rustix::io::read(descriptor, &mut signal).ok()?;
    let (number, _) = signal.split_first_chunk()?;
    Some(i32::from_ne_bytes(*number))
}

/// The size of the record that is read of one signal.
const SIGNAL_BYTES: usize = 128;

/// Opens a child that was spawned just now; its descriptor becomes readable when it has ended.
///
/// # Errors
///
/// When the process has no descriptor left. Then the child is killed, with the process group that
/// it leads, if it leads one: the end of the child would go unnoticed.
pub fn open_spawned(child: Pid) -> io::Result<OwnedFd> {
    let opened = rustix::process::pidfd_open(child, PidfdFlags::empty());
    Ok(opened.inspect_err(|_| {
        let _ = rustix::process::kill_process_group(child, Signal::KILL);
        let _ = rustix::process::kill_process(child, Signal::KILL);
        let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
    })?)
}

/// Returns whether something can be read now. A descriptor of a process becomes readable when the
/// process ends.
pub fn is_ready(fd: impl AsFd) -> bool {
    is_ready_soon(fd, Duration::ZERO)
}

/// Waits until something can be read, for so long at the most; returns whether it can. The time
/// stands still while the host is suspended: no deadline is waited for in this way.
pub fn is_ready_soon(fd: impl AsFd, within: Duration) -> bool {
    is_ready_for(fd, PollFlags::IN, within)
}

/// As [`is_ready_soon`], for something else than reading: `OUT` if something can be written.
pub fn is_ready_for(fd: impl AsFd, flags: PollFlags, within: Duration) -> bool {
    let mut fds = [PollFd::new(&fd, flags)];
    let within = Timespec::try_from(within).unwrap_or(LATEST);
    poll_for(&mut fds, Some(&within)).is_ok() && !fds[0].revents().is_empty()
}

/// Pauses this thread, which has no deadline: the time stands still while the host is suspended.
pub fn pause(time: Duration) {
    let time = Timespec::try_from(time).unwrap_or(LATEST);
    let _ = rustix::io::retry_on_intr(|| rustix::event::poll(&mut [], Some(&time)));
}

/// Waits until one of `fds` is ready, for ever if none is. A thread that has a deadline waits with
/// an [`Alarm`].
///
/// # Errors
///
/// When the kernel refuses to wait. An interrupting signal is not an error.
pub fn poll(fds: &mut [PollFd<'_>]) -> io::Result<()> {
    poll_for(fds, None)
}

/// Polls with a timeout, which stands still while the host is suspended: so it is none, zero, or
/// short. After a refusal there is a pause: a loop that waits would take the processor.
fn poll_for(fds: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> io::Result<()> {
    let polled = rustix::io::retry_on_intr(|| rustix::event::poll(fds, timeout));
    if polled.is_err() {
        pause(AFTER_REFUSAL);
    }
    polled.map(drop).map_err(io::Error::from)
}

const ZERO: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The pause after the kernel has refused to wait.
const AFTER_REFUSAL: Duration = Duration::from_millis(1);

/// The last second of a timer.
const LATEST: Timespec = Timespec { tv_sec: i64::MAX, tv_nsec: 0 };

/// Returns a set of descriptors that is readable when one of them is.
///
/// # Errors
///
/// When the process has no descriptor left.
pub fn ready_set() -> io::Result<OwnedFd> {
    Ok(epoll::create(epoll::CreateFlags::CLOEXEC)?)
}

/// Adds a descriptor to a set of [`ready_set`], until it is closed.
///
/// # Errors
///
/// When the kernel has no memory for it.
pub fn add_to_set(set: &OwnedFd, file: &OwnedFd) -> io::Result<()> {
    Ok(epoll::add(set, file, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
}

/// The wait of one thread until a deadline: with a timer on the clock that counts suspend, so that
/// a deadline that passed meanwhile is seen as soon as the host wakes up.
pub struct Alarm {
    timer: OwnedFd,
    /// The instant that the timer was last set to, which need not be set twice.
    set_to: Cell<Option<Instant>>,
}

impl Alarm {
    /// Makes an alarm that is not set.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left, after a pause: a loop that waits with an alarm each
    /// time would take the processor.
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Alarm {
            timer: rustix::time::timerfd_create(TimerfdClockId::Boottime, flags)
                .inspect_err(|_| pause(AFTER_REFUSAL))?,
            set_to: Cell::new(None),
        })
    }

    /// Waits until one of `fds` is ready or `deadline` has passed; `None` waits for ever. Returns
    /// which are ready, in order; all false after the deadline. After a deadline that has passed
    /// already, the descriptors are looked at once.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to wait. An interrupting signal is not an error.
    pub fn wait<const N: usize>(
        &self,
        fds: [(BorrowedFd<'_>, PollFlags); N],
        deadline: Option<Instant>,
    ) -> io::Result<[bool; N]> {
        let mut polled = Vec::with_capacity(N + 1);
        polled.extend(fds.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        self.poll(&mut polled, deadline)?;
        Ok(array::from_fn(|at| !polled[at].revents().is_empty()))
    }

    /// As [`Alarm::wait`], for any number of descriptors that are to be read.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to wait.
    pub fn wait_to_read<'a>(
        &'a self,
        fds: impl Iterator<Item = BorrowedFd<'a>>,
        deadline: Option<Instant>,
    ) -> io::Result<Vec<bool>> {
        let mut polled = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        self.poll(&mut polled, deadline)?;
        Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect())
    }

    /// As [`Alarm::wait`], for any number of prepared descriptors; their results stand in them.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to wait.
    pub fn poll<'a>(
        &'a self,
        fds: &mut Vec<PollFd<'a>>,
        deadline: Option<Instant>,
    ) -> io::Result<()> {
        let Some(at) = deadline else { return poll_for(fds, None) };
        if at <= now() {
            return poll_for(fds, Some(&ZERO));
        }
        self.set(at)?;
        fds.push(PollFd::new(&self.timer, PollFlags::IN));
        let polled = poll_for(fds, None);
        fds.pop();
        polled
    }

    /// Sets the timer unless it is set to `at` already. A timer that has gone off is readable until
    /// it is set again, so nobody has to read it.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to set the timer.
    pub fn set(&self, at: Instant) -> io::Result<()> {
        if self.set_to.get() == Some(at) {
            return Ok(());
        }
        let it_value = Timespec::try_from(at.since_boot()).unwrap_or(LATEST);
        let timer = Itimerspec { it_interval: ZERO, it_value };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &timer)?;
        self.set_to.set(Some(at));
        Ok(())
    }
}

impl AsFd for Alarm {
    /// Becomes readable when the timer goes off.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

/// Wakes a thread that waits on descriptors, from another that must not block.
pub struct Waker(OwnedFd);

impl Waker {
    /// Makes a waker.
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

/// Returns which memory can be locked without harm: under a limit, a process that locks its later
/// memory too would be refused that memory.
pub fn memory_lock() -> MlockAllFlags {
    let limit = rustix::process::getrlimit(Resource::Memlock).current;
    let capabilities = rustix::thread::capabilities(None).map(|sets| sets.effective);
    if limit.is_none() || capabilities.is_ok_and(|held| held.contains(CapabilitySet::IPC_LOCK)) {
        return MlockAllFlags::CURRENT | MlockAllFlags::FUTURE;
    }
    MlockAllFlags::CURRENT
}

/// Returns the user that this process acts as.
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Checks a directory of this user's: others have no rights in it. `metadata` is that of `path`.
///
/// # Errors
///
/// Why the directory is not such a one.
pub fn check_own(path: &Path, metadata: &Metadata) -> Result<(), String> {
    let (path, owner, mode) = (path.display(), metadata.uid(), metadata.mode() & 0o7777);
    if !metadata.is_dir() {
        return Err(format!("{path} is not a directory"));
    }
    if owner != user_id() {
        return Err(format!("{path} belongs to user {owner}"));
    }
    if mode & 0o077 != 0 {
        return Err(format!("{path} is open to others (mode {mode:04o}); chmod go= it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    fn in_ms(ms: u64) -> Instant {
        now().after(Duration::from_millis(ms))
    }

    /// Returns the text of the kernel about an alarm's timer in the line that begins with `name`.
    fn kernel_says(alarm: &Alarm, name: &str) -> String {
        let path = format!("/proc/self/fdinfo/{}", alarm.timer.as_raw_fd());
        let text = fs::read_to_string(path).expect("the kernel tells of descriptors");
        let said = text.lines().find_map(|line| line.strip_prefix(name));
        said.expect(name).trim().to_owned()
    }

    #[test]
    fn an_alarm_counts_suspend() {
        const CLOCK_BOOTTIME: &str = "7";
        let alarm = Alarm::new().expect("a descriptor");
        assert_eq!(kernel_says(&alarm, "clockid:"), CLOCK_BOOTTIME);
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_not_before() {
        let alarm = Alarm::new().expect("a descriptor");
        let waker = Waker::new().expect("a descriptor");
        let fds = || [(waker.as_fd(), PollFlags::IN)];
        // The second wait finds the timer gone off, and nobody has read it.
        for _ in 0..2 {
            let deadline = in_ms(50);
            assert_eq!(alarm.wait(fds(), Some(deadline)).expect("waits"), [false]);
            assert!(now() >= deadline, "it ended early");
            assert_eq!(kernel_says(&alarm, "ticks:"), "1");
        }
        let passed = now();
        assert_eq!(alarm.wait(fds(), Some(passed)).expect("looks"), [false]);
        waker.wake();
        assert_eq!(alarm.wait(fds(), Some(passed)).expect("looks"), [true]);
        assert_eq!(alarm.wait(fds(), Some(now().after(PATIENCE))).expect("waits"), [true]);
        assert_eq!(alarm.wait(fds(), None).expect("waits"), [true]);
    }

    #[test]
    fn what_became_ready_stands_in_its_own_place() {
        let alarm = Alarm::new().expect("a descriptor");
        let (calm, woken) = (Waker::new().expect("one"), Waker::new().expect("another"));
        woken.wake();
        let ready = alarm.wait(
            [
                (calm.as_fd(), PollFlags::IN),
                (woken.as_fd(), PollFlags::IN),
                (calm.as_fd(), PollFlags::OUT),
            ],
            Some(now().after(PATIENCE)),
        );
        assert_eq!(ready.expect("waits"), [false, true, true]);
        let mut fds = vec![PollFd::new(&calm, PollFlags::IN), PollFd::new(&woken, PollFlags::IN)];
        alarm.poll(&mut fds, Some(now().after(PATIENCE))).expect("waits");
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        assert_eq!(ready, [false, true]);
        woken.clear();
        let deadline = in_ms(50);
        alarm.poll(&mut fds, Some(deadline)).expect("waits");
        assert!(now() >= deadline, "it ended early");
        assert!(fds.iter().all(|fd| fd.revents().is_empty()));
    }

    #[test]
    fn a_deadline_that_stays_is_told_to_the_kernel_once() {
        let alarm = Alarm::new().expect("a descriptor");
        let waker = Waker::new().expect("a descriptor");
        waker.wake();
        let wait = |deadline| {
            let ready = alarm.wait([(waker.as_fd(), PollFlags::IN)], Some(deadline));
            assert_eq!(ready.expect("waits"), [true]);
        };
        let deadline = in_ms(60_000);
        wait(deadline);
        // The timer is changed behind the alarm's back, so that a second setting would show.
        let never = Itimerspec { it_interval: ZERO, it_value: ZERO };
        rustix::time::timerfd_settime(&alarm.timer, TimerfdTimerFlags::ABSTIME, &never)
            .expect("a timer");
        wait(deadline);
        assert_eq!(kernel_says(&alarm, "it_value:"), "(0, 0)");
        wait(deadline.after(Duration::from_millis(1)));
        assert_ne!(kernel_says(&alarm, "it_value:"), "(0, 0)");
    }
}
