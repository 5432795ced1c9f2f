//! The watchdog thread: kills the health check's process group when its deadline has
//! come, whatever the other threads do.
//!
//! It waits on nothing that it watches: it reads atomics, takes no lock and
//! allocates nothing. A group is killed only while its leader has not been
//! reaped, so that its number cannot have been given to a stranger: the watchdog
//! marks the slot while it kills, and the check thread empties the slot before it
//! reaps.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::threads::Threads;
use crate::core::time::Instant;
use crate::log::panic_if_asked;
use crate::sys::{self, Alarm, Waker, Want};

/// A killed group is killed again this much later if it still stands: a process
/// may have joined it between the two.
const AGAIN: Duration = Duration::from_millis(100);

/// What the watchdog looks at.
pub(super) struct Watchdog {
    slot: Slot,
    /// Until when the watchdog sleeps: only an earlier deadline wakes it.
    asleep_until_ns: AtomicU64,
    waker: Waker,
}

#[derive(Default)]
struct Slot {
    /// Process group of the running check: 0 when none runs, negative while the
    /// watchdog kills it.
    group: AtomicI32,
    /// When it is killed, in nanoseconds since boot.
    deadline_ns: AtomicU64,
    /// It was killed.
    killed: AtomicBool,
}

impl Watchdog {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or no thread to give.
    pub(super) fn start(threads: Threads) -> io::Result<Arc<Watchdog>> {
        let watchdog = Arc::new(Watchdog {
            slot: Slot::default(),
            asleep_until_ns: AtomicU64::new(u64::MAX),
            waker: Waker::new()?,
        });
        let (own, alarm) = (Arc::clone(&watchdog), Alarm::new()?);
        threads.start("putex-watch", move || own.watch(&alarm))?;
        Ok(watchdog)
    }

    /// Sets the deadline of the check, whether it runs already or is about to.
    pub(super) fn arm(&self, deadline: Instant) {
        let deadline_ns = nanos(deadline);
        self.slot.deadline_ns.store(deadline_ns, SeqCst);
        self.wake_before(deadline_ns);
    }

    /// Returns whether the check's deadline has come.
    pub(super) fn is_over(&self) -> bool {
        self.slot.deadline_ns.load(SeqCst) <= nanos(sys::now())
    }

    /// Kills the check now, or has it killed as soon as it runs.
    pub(super) fn kill(&self) {
        self.arm(Instant::from_boot(Duration::ZERO));
        let slot = &self.slot;
        let group = slot.group.load(SeqCst);
        if group > 0 {
            slot.kill(group);
        }
    }

    /// Names the process group of the check that was started.
    pub(super) fn started(&self, group: i32) {
        let slot = &self.slot;
        slot.killed.store(false, SeqCst);
        slot.group.store(group, SeqCst);
        self.wake_before(slot.deadline_ns.load(SeqCst));
    }

    /// Empties a slot before its process is reaped; says whether it was killed.
    pub(super) fn ended(&self, group: i32) -> bool {
        let slot = &self.slot;
        // Spins for as long as one kill(2) takes.
        while slot.group.compare_exchange(group, 0, SeqCst, SeqCst).is_err() {
            thread::yield_now();
        }
        slot.killed.load(SeqCst)
    }

    /// Wakes the watchdog if it would sleep past `deadline_ns`.
    fn wake_before(&self, deadline_ns: u64) {
        if deadline_ns < self.asleep_until_ns.load(SeqCst) {
            self.waker.wake();
        }
    }

    /// A deadline is slept until even when its check has not been started yet or
    /// has ended already: as a rule a later one stands there by then, and nobody
    /// had to wake the watchdog for it.
    fn watch(&self, alarm: &Alarm) {
        loop {
            panic_if_asked("putex-watch");
            // Whoever changes a slot while it is looked at leaves a wake-up.
            self.asleep_until_ns.store(u64::MAX, SeqCst);
            let now = nanos(sys::now());
            let deadline_ns = self.slot.deadline_ns.load(SeqCst);
            let group = self.slot.group.load(SeqCst);
            let next_ns = if deadline_ns > now {
                deadline_ns
            } else if group > 0 {
                self.slot.kill(group);
                now.saturating_add(nanos_of(AGAIN))
            } else {
                u64::MAX
            };
            self.asleep_until_ns.store(next_ns, SeqCst);
            let next = Instant::from_boot(Duration::from_nanos(next_ns));
            let next = (next_ns != u64::MAX).then_some(next);
            // A kernel that refuses to wait leaves only to look again.
            let woken = alarm.wait([(self.waker.as_fd(), Want::Read)], next);
            if woken.is_ok_and(|[woken]| woken) {
                self.waker.clear();
            }
        }
    }
}

impl Slot {
    fn kill(&self, group: i32) {
        if self.group.compare_exchange(group, -group, SeqCst, SeqCst).is_err() {
            return;
        }
        self.killed.store(true, SeqCst);
        if let Some(pid) = Pid::from_raw(group) {
            // It fails when every member has ended already.
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
        self.group.store(group, SeqCst);
    }
}

fn nanos(at: Instant) -> u64 {
    nanos_of(at.since_boot())
}

fn nanos_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
