//! The times of tickets of `putex grab`.

use std::time::Duration;

use super::times::LockTiming;
use crate::core::timing::{COUNT_MAX, R_MAX, Refused};

/// Bounds of the lifetime of a ticket: others could not read a longer one.
pub const LIFETIME_MIN: Duration = Duration::from_secs(1);
/// See [`LIFETIME_MIN`].
pub const LIFETIME_MAX: Duration = Duration::from_secs(R_MAX.as_secs() * COUNT_MAX as u64);

/// A request has an answer within this time, or is made again. A ticket that waits is written
/// again as often.
pub const STEP_MAX: Duration = Duration::from_secs(5);

/// How much longer than twice the lifetime of a ticket the marker of its end stays: for servers
/// whose clocks differ, and for writes that are under way. An entry whose time is in the future by
/// more than this has no known age.
pub const CLOCKS_MARGIN: Duration = Duration::from_secs(10);

/// Returns how long the marker of the end of a script's ticket of this lifetime has to stay.
pub fn marker_time(lifetime: Duration) -> Duration {
    lifetime * 2 + CLOCKS_MARGIN
}

/// Returns the times of a ticket of this lifetime, from [`LIFETIME_MIN`] to [`LIFETIME_MAX`].
///
/// # Errors
///
/// The bound that the lifetime breaks.
pub fn timing(lifetime: Duration, drift_ppm: u32) -> Result<LockTiming, Refused> {
    // A ticket says whole milliseconds: its holder would count on a part of one more than others.
    let part = Duration::from_nanos(u64::from(lifetime.subsec_nanos() % 1_000_000));
    let lifetime = lifetime.saturating_sub(part);
    // Both divide a millisecond, so T is the lifetime exactly.
    let parts = if lifetime <= R_MAX * 4 { 4 } else { COUNT_MAX };
    LockTiming::new(lifetime / parts, parts, drift_ppm, Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_has_whole_milliseconds() {
        for (nanos, millis) in [(2_666_666_700, 2666), (1_000_000_999, 1000), (1_500_000_000, 1500)]
        {
            let timing = timing(Duration::from_nanos(nanos), 0).expect("a time");
            assert_eq!(timing.lifetime(), Duration::from_millis(millis));
        }
    }
}
