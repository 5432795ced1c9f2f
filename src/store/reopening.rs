//! The pauses between the attempts of an agent to open its store.
//!
//! Thousands of agents lose a server at the same moment, and it can open the store for about two
//! thousand a second. So that no lock runs out meanwhile:
//!
//! 1. Every pause is random.
//! 2. A holder has a short one. An agent that holds nothing waits longer, and until then adds
//!    nothing to the load: its knowledge of the lock counts on. Pauses of T/2 - R/4 to T - R/2 were
//!    too short: after a restart under 10,000 agents, 1317, 652 and 639 renewals came too late, and
//!    42, 64 and 467 with these.

use std::time::Duration;

use crate::core::Timing;

/// Longest pause of a holder.
const HOLDER_MAX: Duration = Duration::from_secs(3);

/// Longest pause of another agent, where T is not shorter.
const STANDBY_MAX: Duration = Duration::from_secs(9);

/// Returns how long an agent with this timing pauses before it opens its store again: a random
/// time, by this number.
pub fn pause(timing: &Timing, is_holder: bool, random: u128) -> Duration {
    let lock_time = timing.lock_time();
    let (least, most) = match is_holder {
        true => (Duration::ZERO, HOLDER_MAX.min(lock_time / 3)),
        false => {
            let most = STANDBY_MAX.min(lock_time);
            (most / 2, most)
        }
    };
    let spread = (most - least).as_micros() + 1;
    least + Duration::from_micros(u64::try_from(random % spread).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::DRIFT_PPM_DEFAULT;

    /// The shortest pause and the longest, in milliseconds.
    fn range(renewal_ms: u64, is_holder: bool) -> (u128, u128) {
        let renewal = Duration::from_millis(renewal_ms);
        let timing = Timing::new(renewal, 3, 1, DRIFT_PPM_DEFAULT).expect("a timing");
        let pauses = || (0..9001).map(|ms| pause(&timing, is_holder, ms * 1000));
        let (least, most) = (pauses().min(), pauses().max());
        (least.expect("some").as_millis(), most.expect("some").as_millis())
    }

    #[test]
    fn a_holder_is_back_before_the_agents_that_wait_for_its_lock() {
        assert_eq!((range(3000, true), range(3000, false)), ((0, 3000), (4500, 9000)));
        assert_eq!((range(100, true), range(100, false)), ((0, 100), (150, 300)));
        assert_eq!((range(60_000, true), range(60_000, false)), ((0, 3000), (4500, 9000)));
    }
}
