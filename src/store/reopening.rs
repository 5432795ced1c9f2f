//! The pauses between the attempts of an agent to open its store.
//!
//! Thousands of agents lose a server at the same moment, and it can open the store for about two
//! thousand a second. So that no lock runs out meanwhile:
//!
//! 1. Every pause is random.
//! 2. A holder has a short one. An agent that holds nothing waits longer, and until then adds
//!    nothing to the load: what it knows of the lock counts on.
//! 3. Each attempt that has waited for an answer in vain makes the next pause longer: a server that
//!    gets more requests than it answers would never catch up.

use std::time::Duration;

use crate::core::Timing;

/// Longest pause of a holder at first.
const HOLDER_MAX: Duration = Duration::from_secs(2);

/// Shortest pause of another agent, where R is not shorter, and its longest at first, where T is
/// not.
const STANDBY_MIN: Duration = Duration::from_secs(3);
const STANDBY_MAX: Duration = Duration::from_secs(9);

/// The longest pause of all.
const PAUSE_MAX: Duration = Duration::from_secs(16);

/// An attempt that fails sooner did not wait for an answer: the server refused it.
const WAITED: Duration = Duration::from_millis(200);

/// How long an agent pauses before it opens its store again.
#[derive(Clone, Debug)]
pub struct Reopening {
    timing: Timing,
    /// The attempts in a row that have waited for an answer in vain.
    waits: u32,
}

impl Reopening {
    /// Returns the pauses of an agent with this timing.
    pub fn new(timing: Timing) -> Reopening {
        Reopening { timing, waits: 0 }
    }

    /// Notes that the store was opened.
    pub fn opened(&mut self) {
        self.waits = 0;
    }

    /// Notes that the store was not opened, after this time.
    pub fn failed(&mut self, after: Duration) {
        if after >= WAITED {
            self.waits += 1;
        }
    }

    /// Returns the pause before the next attempt, a random one by this number.
    pub fn pause(&self, is_holder: bool, random: u128) -> Duration {
        let (renewal, lock_time) = (self.timing.renewal(), self.timing.lock_time());
        let (least, most) = match is_holder {
            true => (Duration::ZERO, HOLDER_MAX.min(renewal / 2)),
            false => (STANDBY_MIN.min(renewal), STANDBY_MAX.min(lock_time)),
        };
        let most = most.saturating_mul(2u32.saturating_pow(self.waits)).min(PAUSE_MAX);
        let spread = most.saturating_sub(least).as_micros() + 1;
        least + Duration::from_micros(u64::try_from(random % spread).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::DRIFT_PPM_DEFAULT;

    fn reopening(renewal_ms: u64) -> Reopening {
        let renewal = Duration::from_millis(renewal_ms);
        Reopening::new(Timing::new(renewal, 3, 1, DRIFT_PPM_DEFAULT).expect("a timing"))
    }

    /// The shortest pause and the longest, in milliseconds.
    fn range(reopening: &Reopening, is_holder: bool) -> (u128, u128) {
        let pauses = || (0..17_000).map(|ms| reopening.pause(is_holder, ms * 1000));
        let (least, most) = (pauses().min(), pauses().max());
        (least.expect("some").as_millis(), most.expect("some").as_millis())
    }

    #[test]
    fn a_holder_is_back_before_the_agents_that_wait_for_its_lock() {
        let (usual, quick, slow) = (reopening(3000), reopening(100), reopening(60_000));
        assert_eq!((range(&usual, true), range(&usual, false)), ((0, 1500), (3000, 9000)));
        assert_eq!((range(&quick, true), range(&quick, false)), ((0, 50), (100, 300)));
        assert_eq!((range(&slow, true), range(&slow, false)), ((0, 2000), (3000, 9000)));
    }

    #[test]
    fn a_server_that_does_not_answer_is_tried_less_often_than_one_that_refuses() {
        let mut reopening = reopening(3000);
        reopening.failed(Duration::from_millis(1));
        assert_eq!(range(&reopening, true), (0, 1500), "refused");
        reopening.failed(Duration::from_secs(2));
        assert_eq!(
            (range(&reopening, true), range(&reopening, false)),
            ((0, 3000), (3000, 16_000))
        );
        for _ in 0..100 {
            reopening.failed(Duration::from_secs(2));
        }
        assert_eq!(
            (range(&reopening, true), range(&reopening, false)),
            ((0, 16_000), (3000, 16_000))
        );
        reopening.opened();
        assert_eq!(range(&reopening, true), (0, 1500));
    }
}
