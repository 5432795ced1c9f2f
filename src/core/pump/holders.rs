//! The times that previous holders have published, which bind the next holder.

use std::time::Duration;

use crate::core::record::{KeyState, Lease};
use crate::core::time::Instant;
use crate::core::timing::Timing;

/// How long a holder may live on, by the times that it published.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// The holder's lock time: F·R.
    pub(super) lock: Duration,
    /// The holder's C·R, or more.
    pub(super) grace: Duration,
}

impl Times {
    fn of(lease: &Lease) -> Times {
        Times { lock: lease.lock_time(), grace: lease.grace }
    }

    /// Returns the times that cover both.
    fn slower(self, other: Times) -> Times {
        Times { lock: self.lock.max(other.lock), grace: self.grace.max(other.grace) }
    }
}

/// The foreign holders that this agent has seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    /// The times of the last holder, still binding when its record has been deleted.
    last: Times,
    /// The times of a holder whose record the store has lost, and when it has ended.
    lost: Times,
    lost_until: Option<Instant>,
}

impl Holders {
    /// Takes in the state of the key. `older`: a later state was shown before.
    pub(super) fn observe(&mut self, key_state: &KeyState, older: bool) {
        self.last = self.followed_by(key_state, older);
    }

    /// Returns the times of the last holder once `key_state` is known. An older record makes no
    /// time shorter.
    fn followed_by(&self, key_state: &KeyState, older: bool) -> Times {
        match key_state.value.lease() {
            Some(lease) if older => self.last.slower(Times::of(lease)),
            Some(lease) => Times::of(lease),
            None => self.last,
        }
    }

    /// Takes in that the store has lost writes. The holder in a lost record may live on for its T +
    /// C·R, and nothing is free before. That record may be one that was never shown: the longest
    /// times that are known count.
    pub(super) fn assume_slowest(&mut self, timing: Timing, now: Instant) {
        let own = Times { lock: timing.lock_time(), grace: timing.confirmation() };
        let mut times = self.last.slower(own);
        if self.has_lost(now) {
            times = times.slower(self.lost);
        }
        self.lost_until = Some(now.after(timing.takeover_wait(times.lock + times.grace)));
        self.lost = times;
    }

    /// Returns whether a holder may live whose record the store has lost.
    pub(super) fn has_lost(&self, now: Instant) -> bool {
        self.lost_until.is_some_and(|until| now < until)
    }

    /// Returns the times that bind the next holder: those of the holder in `key_state`, or of the
    /// last one that was shown; after a loss, also those of the lost holder, while it may live.
    pub(super) fn binding(&self, key_state: &KeyState, older: bool, now: Instant) -> Times {
        let times = self.followed_by(key_state, older);
        if self.has_lost(now) { times.slower(self.lost) } else { times }
    }
}
