//! How often requests come: those of a loop to its store, each of which is up to four messages, or
//! those of others to a service.
//!
//! What a loop asks next depends on the last answer. A server that contradicts itself with each
//! answer would be asked thousands of times a second.

use std::time::Duration;

use crate::core::Instant;
use crate::sys::{self, Alarm};

/// The longest time from one request to the next in the long run.
const EVERY_MAX: Duration = Duration::from_millis(100);

/// So many requests may come at once.
const BURST: u32 = 32;

/// The requests of one loop, or to one service.
pub(crate) struct Pace {
    /// How often they may come in the long run.
    every: Duration,
    /// When all requests so far would be over if each took that time.
    over_at: Instant,
}

impl Pace {
    /// Returns the pace of a loop that makes up to four requests in each interval.
    pub(crate) fn new(interval: Duration) -> Pace {
        Pace::of((interval / 4).min(EVERY_MAX), sys::now())
    }

    /// Returns the pace of requests that come so often in the long run, from now on.
    pub(crate) fn of(every: Duration, now: Instant) -> Pace {
        Pace { every, over_at: now }
    }

    /// Counts a request, and waits until it may be made: as a rule not at all.
    pub(crate) fn wait(&mut self) {
        let now = sys::now();
        let wait = self.count(1, now).saturating_sub(self.every * BURST);
        if !wait.is_zero() {
            // A wait that fails is a short wait.
            let _ = Alarm::new().and_then(|alarm| alarm.wait([], Some(now.after(wait))));
        }
    }

    /// Counts so many requests, and returns how much too early they come for the long run.
    pub(crate) fn count(&mut self, requests: u32, now: Instant) -> Duration {
        let early = self.over_at.since(now);
        self.over_at = self.over_at.max(now).after(self.every.saturating_mul(requests));
        early
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
            now = now.after(pace.count(1, now).saturating_sub(pace.every * BURST));
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
                assert_eq!(pace.count(1, now), Duration::ZERO, "{number}");
            }
        }
    }
}
