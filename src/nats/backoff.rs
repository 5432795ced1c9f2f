//! The pause before the next attempt to connect.

use std::io;
use std::time::Duration;

use crate::core::Instant;
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

    /// Schedules the next attempt after a failure: after half to all of the present pause. The
    /// pause doubles.
    pub(super) fn failed(&mut self, now: Instant) {
        let half = self.wait / 2;
        let jitter = Duration::from_nanos((random() % (half.as_nanos() + 1)) as u64);
        self.not_before = Some(now.after(half + jitter));
        self.wait = (self.wait * 2).min(BACKOFF_MAX);
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

/// Puts the items in a random order.
pub(super) fn shuffle<T>(items: &mut [T]) {
    items.sort_by_cached_key(|_| random());
}

/// Returns a random number, 0 when the kernel has none: then no connection is made either.
fn random() -> u128 {
    sys::random().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_with_jitter() {
        let mut backoff = Backoff::new();
        let now = sys::now();
        let mut expected = BACKOFF_MIN;
        for _ in 0..12 {
            backoff.failed(now);
            let wait = backoff.not_before.expect("failed").since(now);
            assert!(wait >= expected / 2 && wait <= expected, "{wait:?} of {expected:?}");
            expected = (expected * 2).min(BACKOFF_MAX);
        }
        assert_eq!(expected, BACKOFF_MAX);
        let passed = backoff.pass(sys::now()).expect("a descriptor");
        assert!(!passed, "the deadline comes first");
        let passed = Backoff::new().pass(sys::now());
        assert!(passed.expect("a descriptor"), "the first attempt is due at once");
    }

    #[test]
    fn random_numbers_reach_everything() {
        let mut seen = [0u32; 5];
        for _ in 0..600 {
            let (mut backoff, now) = (Backoff::new(), sys::now());
            backoff.failed(now);
            let jitter = backoff.not_before.expect("failed").since(now) - BACKOFF_MIN / 2;
            seen[usize::try_from(jitter.as_millis() / 5).expect("small").min(4)] += 1;
        }
        assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
        let mut items: Vec<u8> = (0..20).collect();
        shuffle(&mut items);
        assert_ne!(items, (0..20).collect::<Vec<u8>>());
        items.sort_unstable();
        assert_eq!(items, (0..20).collect::<Vec<u8>>());
    }
}
