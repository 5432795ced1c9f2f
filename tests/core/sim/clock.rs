//! True time, and the clock of a host that runs at a rate of its own.

use std::time::Duration;

use putex::core::time::Instant;

/// True time in nanoseconds since the run began. No agent ever sees it.
pub type True = u64;

pub const MS: u64 = 1_000_000;
const ONE: u64 = 1_000_000;

/// A host's clock that counts suspend. It never jumps: only its rate and its zero
/// are its own.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Shown time for a million units of true time.
    rate: u64,
    /// When the host booted, and what the clock showed then.
    booted: True,
    first_reading: u64,
}

impl Clock {
    pub fn new(off_ppm: i64, first_reading: u64) -> Clock {
        let rate = ONE.saturating_add_signed(off_ppm);
        Clock { rate, booted: 0, first_reading }
    }

    /// The host is booted again: its clock begins anew at the same rate.
    pub fn boot(&mut self, now: True) {
        self.booted = now;
        self.first_reading = MS;
    }

    /// Returns what the clock shows.
    pub fn at(&self, now: True) -> Instant {
        let since = now.saturating_sub(self.booted) * self.rate / ONE;
        Instant::from_boot(Duration::from_nanos(self.first_reading + since))
    }

    /// Returns when the clock shows `at` for the first time.
    pub fn when(&self, at: Instant) -> True {
        let reading = nanos(at.since_boot());
        let since = reading.saturating_sub(self.first_reading);
        let since = (u128::from(since) * u128::from(ONE)).div_ceil(u128::from(self.rate));
        self.booted + u64::try_from(since).unwrap_or(u64::MAX / 2)
    }
}

/// Returns whole nanoseconds, of which half the range is more than any run lasts.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).map_or(u64::MAX / 2, |nanos| nanos.min(u64::MAX / 2))
}
