//! The one clock of the tests, CLOCK_BOOTTIME, and waiting for events with a deadline
//! on it.

use std::thread;
use std::time::Duration;

use rustix::time::ClockId;

/// An instant, as the time since boot.
pub(crate) type At = Duration;

/// How long a read of a lock key may take that its caller has not requested.
pub(crate) const READ_MAX: Duration = Duration::from_millis(250);

/// How long an event that must happen may take, on a loaded machine. Only a test that
/// fails waits for so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// How often a state is looked at again that cannot be waited for.
const POLL: Duration = Duration::from_millis(2);

/// Returns the present instant.
pub(crate) fn now() -> At {
    let at = rustix::time::clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(at.tv_sec).expect("time since boot is positive");
    let nanos = u32::try_from(at.tv_nsec).expect("nanoseconds are below 10^9");
    Duration::new(seconds, nanos)
}

/// Looks until there is something to see; `None` when `deadline` passes first.
pub(crate) fn wait_until<T>(deadline: At, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        if let Some(seen) = probe() {
            return Some(seen);
        }
        if now() >= deadline {
            return None;
        }
        thread::sleep(POLL);
    }
}

/// Looks until there is something to see, and returns it.
///
/// # Panics
///
/// When nothing is seen within [`PATIENCE`]; `what` names the event.
#[track_caller]
pub(crate) fn until<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    match wait_until(now() + PATIENCE, probe) {
        Some(seen) => seen,
        None => panic!("{what}: not within {PATIENCE:?}"),
    }
}

/// Waits until a condition holds.
///
/// # Panics
///
/// When the condition does not hold within [`PATIENCE`]; `what` names it.
#[track_caller]
pub(crate) fn until_true(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || holds().then_some(()));
}

/// Lets `window` pass while something else is observed.
pub(crate) fn observe_for(window: Duration) {
    thread::sleep(window);
}

/// Returns the milliseconds of `time`, with their fraction.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
