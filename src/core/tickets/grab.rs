//! The times of tickets of `putex grab`.

use std::time::Duration;

use super::earlier_keys::last_element;
use super::times::LockTiming;
use crate::core::timing::{COUNT_MAX, R_MAX, Refused};

/// Bounds of the lifetime of a ticket: one for longer could not be read by others.
pub const LIFETIME_MIN: Duration = Duration::from_secs(1);
/// See [`LIFETIME_MIN`].
pub const LIFETIME_MAX: Duration = Duration::from_secs(R_MAX.as_secs() * COUNT_MAX as u64);

/// A request has an answer within this time, or is made again. A ticket that waits is written
/// again as often.
pub const STEP_MAX: Duration = Duration::from_secs(5);

/// How long the marker of the end of a ticket stays at least, besides twice the lifetime of the
/// ticket: for servers whose clocks differ, and for writes that are under way. An entry that is
/// stored by a clock that is ahead by more has no age.
pub const CLOCKS_MARGIN: Duration = Duration::from_secs(10);

/// Returns how long the marker of its end has to stay for a ticket of this lifetime that any
/// process of its requester may continue.
pub fn marker_time(lifetime: Duration) -> Duration {
    lifetime * 2 + CLOCKS_MARGIN
}

/// How the last elements of the keys of such tickets begin. The others begin with a digit of a
/// random number.
pub(super) const ELEMENT_PREFIX: char = 'g';

/// Returns whether this is the key of such a ticket.
pub fn is_key_of_script(key: &str) -> bool {
    last_element(key).starts_with(ELEMENT_PREFIX)
}

/// Returns the times of a ticket of this lifetime, from [`LIFETIME_MIN`] to [`LIFETIME_MAX`].
///
/// # Errors
///
/// The bound that it breaks.
pub fn timing(lifetime: Duration, drift_ppm: u32) -> Result<LockTiming, Refused> {
    // Both divide a millisecond, so T is the lifetime exactly.
    let parts = if lifetime <= R_MAX * 4 { 4 } else { COUNT_MAX };
    LockTiming::new(lifetime / parts, parts, drift_ppm, Duration::ZERO)
}
