//! Instants of one host, and how durations are shown.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant on this host's clock that counts suspend, as the time since boot.
///
/// Not `std::time::Instant`, which stands still while a Linux host is suspended.
/// Instants of two hosts, or of two boots, mean nothing to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Instant(Duration);

impl Instant {
    /// Returns the instant that lies `since_boot` after the host's boot.
    pub const fn from_boot(since_boot: Duration) -> Instant {
        Instant(since_boot)
    }

    /// Returns the time from boot to this instant.
    pub const fn since_boot(self) -> Duration {
        self.0
    }

    /// Returns the time from `earlier` to this instant, zero when `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the instant `wait` after this one.
    pub fn after(self, wait: Duration) -> Instant {
        Instant(self.0.saturating_add(wait))
    }

    /// Returns the instant `lead` before this one, not before boot.
    pub fn before(self, lead: Duration) -> Instant {
        Instant(self.0.saturating_sub(lead))
    }
}

/// A time by the clock of the store, as the time since the Unix epoch. The clock may go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoreTime(pub Duration);

impl StoreTime {
    /// Returns the time `wait` after this one.
    pub fn after(self, wait: Duration) -> StoreTime {
        StoreTime(self.0.saturating_add(wait))
    }

    /// Returns the time `lead` before this one, not before the epoch.
    pub fn before(self, lead: Duration) -> StoreTime {
        StoreTime(self.0.saturating_sub(lead))
    }
}

/// Shows a duration in milliseconds or seconds, as a person would write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ms(pub Duration);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        if micros < 10_000 && !micros.is_multiple_of(1000) {
            return write!(f, "{}.{} ms", micros / 1000, micros % 1000 / 100);
        }
        let ms = self.0.as_millis();
        if ms < 1000 {
            return write!(f, "{ms} ms");
        }
        let (s, thousandths) = (ms / 1000, ms % 1000);
        if thousandths == 0 {
            return write!(f, "{s} s");
        }
        let digits = format!("{thousandths:03}");
        write!(f, "{s}.{} s", digits.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_as_a_person_writes_them() {
        let shown = |micros| Ms(Duration::from_micros(micros)).to_string();
        assert_eq!(shown(0), "0 ms");
        assert_eq!(shown(1_500), "1.5 ms");
        assert_eq!(shown(470_099), "470 ms");
        assert_eq!(shown(1_485_000), "1.485 s");
        assert_eq!(shown(3_000_000), "3 s");
    }
}
