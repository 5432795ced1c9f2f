//! The time for which a lease is held, as its holder knows it and as others know it.
//!
//! A lease names its holder and its duration, D, and no time of day: clocks of two hosts are never
//! compared. A host knows two instants of its own clock between which a lease was written: see
//! [`WriteBounds`].
//!
//! ```text
//!                            true time ->
//!  holder      sent ------ D·(1 − e) ------> guaranteed until
//!  bucket           | written ------- D ------->|
//!  others    before |       after ------ D·(1 + e) ------> may be expired
//!                   |<----- D·(1 − e) ----->| held for certain until
//! ```
//!
//! The rate of each clock is wrong by at most the share e. So the holder's D·(1 − e) ends before D
//! of true time has passed since the write, and D·(1 + e) of another ends after that.
//!
//! The arithmetic is that of `Skew` in the lease package of juju, with durations in the place of
//! times of day, and with the drift of clocks: <https://pkg.go.dev/github.com/juju/juju>, 2015.
//!
//! | file | part |
//! |---|---|
//! | this one | the arithmetic |
//! | `command` | how a lease is claimed, extended, expired, and asked for |
//! | `step` | the steps of such a command, their results, and its end |

pub mod command;
pub mod step;

use std::time::Duration;

use super::observed::WriteBounds;
use super::record::Revision;
use super::time::Instant;
use super::timing::{lengthened, shortened};

pub use self::command::LeaseCommand;
pub use self::step::{LeaseEnd, LeaseInput, LeaseStep, LeaseTask, LeaseTurn, LeaseView};

/// A lease as its entry in the bucket says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseEntry {
    /// The holder of the lease.
    pub holder: String,
    /// The time for which the lease is held, from its write.
    pub duration: Duration,
    /// The revision of the claim; `None` in the claim itself.
    pub term: Option<Revision>,
}

/// The entry under the key of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLease {
    /// The revision of the entry; 0 without one.
    pub revision: Revision,
    /// The random number of the attempt that has written the entry; 0 if the entry has none.
    pub attempt: u64,
    /// The lease; `None` if it has been expired, or was never claimed. An error says why the entry
    /// cannot be read.
    pub lease: Option<Result<LeaseEntry, String>>,
}

impl LeaseEntry {
    /// Returns the number of the claim, which a lease keeps while it is extended; the entry stands
    /// at this revision.
    pub fn term_at(&self, revision: Revision) -> Revision {
        self.term.unwrap_or(revision)
    }
}

/// A host's knowledge of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// The lease is held: nobody can have expired it.
    Held,
    /// The lease may be held, and somebody may have expired it.
    Unsure,
    /// The lease is not held: its holder knows that, and anybody may expire it.
    RunOut,
}

/// The time for which a lease is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTime {
    /// The duration that the lease says.
    pub duration: Duration,
    /// The largest error of a clock's rate, less than a million.
    pub drift_ppm: u32,
}

impl LeaseTime {
    /// Returns the shortest time, in whole milliseconds, of a lease that its holder has for
    /// `at_least` by its own clock, from any moment before the write.
    pub fn guaranteeing(at_least: Duration, drift_ppm: u32) -> LeaseTime {
        let millionths = u128::from(1_000_000 - drift_ppm);
        // A nanosecond more, since the drift is rounded up where it is taken off.
        let nanos = (at_least.as_nanos() * 1_000_000).div_ceil(millionths) + 1;
        let ms = u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX);
        LeaseTime { duration: Duration::from_millis(ms), drift_ppm }
    }

    /// Returns until when the holder has a lease whose write it sent at `sent`.
    pub fn guaranteed_until(self, sent: Instant) -> Instant {
        sent.after(shortened(self.duration, self.drift_ppm))
    }

    /// Returns until when nobody can have expired the lease; `None` if nothing is known.
    pub fn held_until(self, written: WriteBounds) -> Option<Instant> {
        let counted = shortened(self.duration, self.drift_ppm);
        written.not_before.map(|at| at.after(counted))
    }

    /// Returns from when on the lease may be expired.
    pub fn run_out_at(self, written: WriteBounds) -> Instant {
        written.not_after.after(lengthened(self.duration, self.drift_ppm))
    }

    /// Returns the state of the lease at this instant.
    pub fn state(self, written: WriteBounds, now: Instant) -> LeaseState {
        if now >= self.run_out_at(written) {
            LeaseState::RunOut
        } else if self.held_until(written).is_some_and(|until| now < until) {
            LeaseState::Held
        } else {
            LeaseState::Unsure
        }
    }

    /// Returns the time with which the holder extends this lease now, to have it for `at_least`;
    /// `None` if the holder has it for so long already. `written` are the bounds of the write of
    /// this lease. The lease never runs out earlier than before: others were told that it is held
    /// until then.
    pub fn extended(
        self,
        written: Option<WriteBounds>,
        at_least: Duration,
        now: Instant,
    ) -> Option<LeaseTime> {
        let until = written.and_then(|it| self.held_until(it));
        if until.is_some_and(|until| until >= now.after(at_least)) {
            return None;
        }
        let passed = written.map_or(Duration::ZERO, |it| now.since(it.not_after));
        let rest = self.duration.saturating_sub(shortened(passed, self.drift_ppm));
        let rest = rest.as_nanos().div_ceil(1_000_000);
        let rest = Duration::from_millis(u64::try_from(rest).unwrap_or(u64::MAX));
        let wanted = LeaseTime::guaranteeing(at_least, self.drift_ppm);
        Some(LeaseTime { duration: wanted.duration.max(rest), ..self })
    }
}

#[cfg(test)]
mod tests;
