//! The pause before the next attempt to connect.

use std::io;
use std::time::Duration;

use crate::core::time::Instant;
use crate::sys::{self, Alarm};

/// Pause after the first failed round of all servers. Shorter than an election, long
/// enough that thousands of agents do not overload a server that returns.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(50);

/// Longest pause between two rounds, so the longest time until a returned server is
/// noticed. A connection that lasts as long resets the backoff.
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// A pause that doubles, with jitter.
#[derive(Debug)]
pub(super) struct Backoff {
    wait: Duration,
    not_before: Option<Instant>,
}

impl Backoff {
    pub(super) fn new() -> Backoff {
        Backoff { wait: BACKOFF_MIN, not_before: None }
    }

    /// Notes a failure: the next attempt is due after half of the present pause or up to
    /// all of it, and the pause doubles.
    pub(super) fn failed(&mut self, now: Instant, rng: &mut Rng) {
        let half = self.wait / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        let jitter = Duration::from_nanos(rng.below(nanos.saturating_add(1)));
        self.not_before = Some(now.after(half + jitter));
        self.wait = (self.wait * 2).min(BACKOFF_MAX);
    }

    /// Notes the end of a good connection: the next attempt is due at once.
    pub(super) fn reset(&mut self) {
        *self = Backoff::new();
    }

    /// Waits until the next attempt is due and returns true, or until an earlier
    /// `deadline` and returns false.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left: another attempt would have none either.
    pub(super) fn pass(&mut self, deadline: Instant) -> io::Result<bool> {
        let Some(due) = self.not_before else {
            return Ok(true);
        };
        Alarm::new()?.wait([], Some(due.min(deadline)))?;
        if due <= deadline {
            self.not_before = None;
        }
        Ok(due <= deadline)
    }
}

/// A random number generator for numbers that need not be secret: the order of the
/// servers and the jitter.
#[derive(Debug)]
pub(super) struct Rng(u64);

impl Rng {
    /// Seeds the generator from the kernel, or from the clock when that fails.
    pub(super) fn new() -> Rng {
        let clock = sys::now().since_boot().as_nanos();
        Rng::seeded(sys::random().unwrap_or(clock))
    }

    pub(super) fn seeded(seed: u128) -> Rng {
        let [low, high] = [seed, seed >> 64].map(|half| half & u128::from(u64::MAX));
        // Zero would stay zero.
        Rng(u64::try_from(low ^ high).unwrap_or(1).max(1))
    }

    /// Returns a number from 0 to `limit` - 1; 0 when `limit` is 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        // xorshift64, Marsaglia 2003.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.checked_rem(limit).unwrap_or(0)
    }

    /// Puts the items in a random order (Fisher and Yates).
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(u64::try_from(last + 1).unwrap_or(u64::MAX));
            items.swap(last, usize::try_from(other).unwrap_or(last));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_with_jitter() {
        let (mut backoff, mut rng) = (Backoff::new(), Rng::seeded(7));
        let now = sys::now();
        let mut expected = BACKOFF_MIN;
        for _ in 0..12 {
            backoff.failed(now, &mut rng);
            let wait = backoff.not_before.expect("failed").since(now);
            assert!(wait >= expected / 2 && wait <= expected, "{wait:?} of {expected:?}");
            expected = (expected * 2).min(BACKOFF_MAX);
        }
        assert_eq!(expected, BACKOFF_MAX);
        let passed = backoff.pass(sys::now()).expect("a descriptor");
        assert!(!passed, "the deadline comes first");
        backoff.reset();
        let passed = backoff.pass(sys::now().after(BACKOFF_MIN));
        assert!(passed.expect("a descriptor"));
    }

    #[test]
    fn random_numbers_reach_everything() {
        let mut rng = Rng::seeded(0);
        let mut seen = [0u32; 6];
        for _ in 0..600 {
            seen[usize::try_from(rng.below(6)).expect("small")] += 1;
        }
        assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
        let mut items: Vec<u8> = (0..20).collect();
        rng.shuffle(&mut items);
        assert_ne!(items, (0..20).collect::<Vec<u8>>());
        items.sort_unstable();
        assert_eq!(items, (0..20).collect::<Vec<u8>>());
    }
}
