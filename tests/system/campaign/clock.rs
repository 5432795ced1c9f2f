//! The wall clock, which all of a machine shares: it is stepped only when asked for, and
//! put back.

use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

/// Steps this machine's wall clock.
pub(crate) fn step_clock(seconds: i64) -> Result<(), String> {
    let at = clock_gettime(ClockId::Realtime);
    set(at.tv_sec + seconds, at.tv_nsec)
}

/// Returns by how much the wall clock is ahead of the clock that nobody can set, in nanoseconds.
pub(crate) fn wall_offset() -> i64 {
    nanos(ClockId::Realtime) - nanos(ClockId::Boottime)
}

/// Sets the wall clock to the time that it would show if nobody had stepped it.
pub(crate) fn put_back(offset: i64) -> Result<(), String> {
    let at = nanos(ClockId::Boottime) + offset;
    set(at.div_euclid(1_000_000_000), at.rem_euclid(1_000_000_000))
}

fn nanos(clock: ClockId) -> i64 {
    let at = clock_gettime(clock);
    at.tv_sec * 1_000_000_000 + at.tv_nsec
}

fn set(tv_sec: i64, tv_nsec: i64) -> Result<(), String> {
    clock_settime(ClockId::Realtime, Timespec { tv_sec, tv_nsec })
        .map_err(|error| format!("the wall clock: {error}"))
}
