//! How often a loop makes requests to its store. Each is up to four messages.
//!
//! What is asked next depends on the last answer. A server that contradicts itself with each answer
//! would be asked thousands of times a second.

use std::time::Duration;

use crate::core::Instant;
use crate::sys::{self, Alarm};

/// The longest time from one request to the next in the long run.
const EVERY_MAX: Duration = Duration::from_millis(100);

/// So many requests may come at once.
const BURST: u32 = 32;

/// The requests of one loop.
pub(crate) struct Pace {
    every: Duration,
    /// When all requests so far would be over if each took that time.
    over_at: Instant,
}

impl Pace {
    /// Returns the pace of a loop that makes up to four requests in each interval.
    pub(crate) fn new(interval: Duration) -> Pace {
        Pace { every: (interval / 4).min(EVERY_MAX), over_at: sys::now() }
    }

    /// Counts a request, and waits until it may be made: as a rule not at all.
    pub(crate) fn wait(&mut self) {
        let now = sys::now();
        let until = self.count(now);
        if until > now {
            // A wait that fails is a short wait.
            let _ = Alarm::new().and_then(|alarm| alarm.wait([], Some(until)));
        }
    }

    /// Counts a request, and returns from when on it may be made.
    fn count(&mut self, now: Instant) -> Instant {
        let until = now.max(self.over_at.before(self.every * BURST));
        self.over_at = self.over_at.max(now).after(self.every);
        until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_without_a_wait_makes_ten_requests_a_second_after_the_first_few() {
        let mut pace = Pace::new(Duration::from_secs(5));
        let begin = sys::now();
        let mut now = begin;
        for number in 1..=132 {
            now = pace.count(now);
            assert_eq!(now == begin, number <= BURST + 1, "{number}");
        }
        let lasted = now.since(begin);
        assert_eq!(lasted.as_millis() / 100, 99, "{lasted:?}");
    }

    #[test]
    fn what_is_asked_now_and_then_never_waits() {
        for (interval_ms, every_ms) in [(5000, 100), (100, 25)] {
            let mut pace = Pace::new(Duration::from_millis(interval_ms));
            let begin = sys::now();
            for number in 0..1000 {
                let now = begin.after(Duration::from_millis(every_ms) * number);
                assert_eq!(pace.count(now), now, "{number}");
            }
        }
    }
}
