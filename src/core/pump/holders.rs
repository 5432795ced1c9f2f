//! What the holders before published of their times, which bind whoever follows.

use std::time::Duration;

use crate::core::record::{KeyState, Lease};
use crate::core::time::Instant;
use crate::core::timing::Timing;

/// How long a holder may live on, by what it published.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// Its lock time: F·R, or more.
    pub(super) lock: Duration,
    /// Its C·R, or more.
    pub(super) grace: Duration,
}

impl Times {
    fn of(lease: &Lease) -> Times {
        Times { lock: lease.lock_time, grace: lease.grace }
    }

    /// Returns what covers both.
    fn slower(self, other: Times) -> Times {
        Times { lock: self.lock.max(other.lock), grace: self.grace.max(other.grace) }
    }
}

/// A holder of whose record the store knows nothing any more.
#[derive(Clone, Debug)]
struct LostHolder {
    /// It has ended by then.
    until: Instant,
    times: Times,
}

/// The foreign holders that were seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    /// Those of the last one, still binding when its record has been deleted.
    last: Times,
    /// The last one before a loss.
    lost: Option<LostHolder>,
}

impl Holders {
    /// Takes in what stands under the key, or did before something `older` was shown.
    pub(super) fn observe(&mut self, key_state: &KeyState, older: bool) {
        self.last = self.followed_by(key_state, older);
    }

    /// Returns the times of the last holder once `key_state` is known. An older record does
    /// not make it a faster one.
    fn followed_by(&self, key_state: &KeyState, older: bool) -> Times {
        match key_state.value.lease() {
            Some(lease) if older => self.last.slower(Times::of(lease)),
            Some(lease) => Times::of(lease),
            None => self.last,
        }
    }

    /// The holder that the store has lost may live on for its T + C·R, and nothing is
    /// free so long. Which of those that were shown it was is not known, and it may be
    /// one that was not: the slowest counts.
    pub(super) fn assume_slowest(&mut self, timing: Timing, now: Instant) {
        let own = Times { lock: timing.lock_time(), grace: timing.confirmation() };
        let mut times = self.last.slower(own);
        if let Some(lost) = self.lost.take().filter(|lost| now < lost.until) {
            times = times.slower(lost.times);
        }
        let until = now.after(timing.takeover_wait(times.lock + times.grace));
        self.lost = Some(LostHolder { until, times });
    }

    /// Returns whether one may live of whom the store knows nothing any more.
    pub(super) fn has_lost(&self, now: Instant) -> bool {
        self.lost.as_ref().is_some_and(|lost| now < lost.until)
    }

    /// Returns the times that bind whoever follows: those of the holder that is
    /// shown, or of the last one that was; and after a loss those of the last holder
    /// before it, for as long as it can live.
    pub(super) fn binding(&self, key_state: &KeyState, older: bool, now: Instant) -> Times {
        let times = self.followed_by(key_state, older);
        match &self.lost {
            Some(lost) if now < lost.until => times.slower(lost.times),
            Some(_) | None => times,
        }
    }
}
