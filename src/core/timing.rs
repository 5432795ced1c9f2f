//! R, F, C and every duration that follows from them.
//!
//! ```text
//!  holder      sent                      V             dead by
//!  -------------+------------------------+----------------+-----> its clock
//!               |<----- T * (1 - e) ---->|<-stop budget ->|
//!
//!  challenger     first seen                    take           start
//!  ---------------+-----------------------------+--------------+-> its clock
//!                 |<------- T * (1 + e) ------->|<--- C * R -->|
//! ```
//!
//! With both clocks running at a rate within `1 ± e` of true time, V comes at
//! most T after `sent` and the take at least T after it, because nobody sees a
//! renewal before it was sent. From then on the holder has C·R of the
//! challenger's clock to be dead. Only durations are compared, never instants of
//! two hosts: Gray and Cheriton, "Leases: an efficient fault-tolerant mechanism
//! for distributed file cache consistency", 1989, with the bound on clock rates
//! made explicit.

use std::fmt;
use std::time::Duration;

use displaydoc::Display;
use serde::{Deserialize, Serialize};

use crate::core::time::Ms;

/// Part of the stop budget that is kept back: the agent or its guard may wake this late, and the
/// kernel needs a moment to tear a killed process group down.
///
/// 20 ms: a loaded two-core machine was seen to wake a sleeper up to 10 ms late; the rest is for
/// SIGKILL to take effect. A smaller value gives stop more time, and puts the promise at risk. A
/// process that wakes later than this logs it, with the number.
pub const SLACK: Duration = Duration::from_millis(20);

/// Shortest time that a request is given: a loaded host needs a few milliseconds
/// for a round trip.
const ATTEMPT_MIN: Duration = Duration::from_millis(10);

/// Shortest time in which a guard has to answer: a loaded host needs so long to start a process.
const GUARD_ANSWER_MIN: Duration = Duration::from_millis(250);

/// How long the next instance of an agent, and a guard that it starts, may take to begin.
const NEXT_BEGINS_WITHIN: Duration = Duration::from_millis(100);

/// Shortest renewal interval that is accepted. Below it one stroke's processes
/// and round trips no longer fit.
pub const R_MIN: Duration = Duration::from_millis(10);
/// Longest renewal interval that is accepted: a failover is at least two of them.
pub const R_MAX: Duration = Duration::from_secs(60);
/// Largest F and largest C that are accepted.
pub const COUNT_MAX: u32 = 100;
/// Largest clock rate error that can be asked for, in parts per million. chrony
/// slews by at most 83333 ppm.
pub const DRIFT_PPM_MAX: u32 = 200_000;
/// Longest pause that can be asked for: a week.
pub const PAUSE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Clock rate error that is assumed unless asked otherwise: 1 %.
pub const DRIFT_PPM_DEFAULT: u32 = 10_000;
/// A NATS leader election takes 4 to 8 s; below this T it can cost the lock.
pub const ELECTION_T_MIN: Duration = Duration::from_secs(10);

/// How long a command tries to reach its store. The election of a leader takes up to 8 s, and a
/// resolver whose first name server is dead asks the second one after 5 s.
pub const REACH_MAX: Duration = Duration::from_secs(10);

/// R, F, C and the clock rate error: all that an operator chooses about time.
///
/// Made by [`Timing::new`] alone, so no value breaks an inequality that is checked there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(Duration, u32, u32, u32)", into = "(Duration, u32, u32, u32)")]
pub struct Timing {
    renewal: Duration,
    failures: u32,
    confirmations: u32,
    drift_ppm: u32,
}

/// Why a combination of R, F, C and drift is refused, with the violated inequality.
#[derive(Clone, Debug, Display, PartialEq, Eq)]
#[displaydoc("{0}")]
pub struct Refused(pub String);

impl TryFrom<(Duration, u32, u32, u32)> for Timing {
    type Error = Refused;

    fn try_from(
        (renewal, failures, confirmations, drift_ppm): (Duration, u32, u32, u32),
    ) -> Result<Timing, Refused> {
        Timing::new(renewal, failures, confirmations, drift_ppm)
    }
}

impl From<Timing> for (Duration, u32, u32, u32) {
    fn from(timing: Timing) -> (Duration, u32, u32, u32) {
        (timing.renewal, timing.failures, timing.confirmations, timing.drift_ppm)
    }
}

impl Timing {
    /// Checks a combination and returns it. The error names all faults.
    ///
    /// # Errors
    ///
    /// When a value is out of its range, when the lock would run out before the
    /// next renewal, or when no time is left to stop the service in. The text
    /// spells the violated inequality out with its numbers.
    pub fn new(
        renewal: Duration,
        failures: u32,
        confirmations: u32,
        drift_ppm: u32,
    ) -> Result<Timing, Refused> {
        let timing = Timing { renewal, failures, confirmations, drift_ppm };
        let (r, mut faults) = (Ms(renewal), Vec::new());
        if renewal < R_MIN {
            faults.push(format!(
                "-r: {r} is shorter than the minimum of {}; with no unit it is milliseconds: \
                 write 3s for seconds",
                Ms(R_MIN)
            ));
        }
        if renewal > R_MAX {
            faults.push(format!("-r: {r} is longer than the maximum of {}", Ms(R_MAX)));
        }
        for (flag, count) in [("-f", failures), ("-c", confirmations)] {
            if count > COUNT_MAX {
                faults.push(format!("{flag}: {count} is more than the maximum of {COUNT_MAX}"));
            }
        }
        if drift_ppm > DRIFT_PPM_MAX {
            let (given, most) = (Percent(drift_ppm), Percent(DRIFT_PPM_MAX));
            faults.push(format!("--drift: {given} is more than the maximum of {most}"));
        }
        // The checks that follow depend on these.
        let is_in_range = faults.is_empty();
        if failures < 2 {
            faults.push(format!(
                "-f: {failures} is less than 2: the lock would be valid for F*R*(1 - drift) = {} \
                 and renewed only every R = {r}; F*R*(1 - drift) > R must hold; write -f 2 or more",
                Ms(timing.validity())
            ));
        }
        if is_in_range && timing.stop_budget().is_zero() {
            let is_enough =
                |more: &u32| !Timing { confirmations: *more, ..timing }.stop_budget().is_zero();
            let enough = (confirmations..=COUNT_MAX).find(is_enough);
            let advice = enough.map(|enough| format!("; write -c {enough} or more"));
            faults.push(format!(
                "-c: no time is left to stop the service: C*R - drift - slack = \
                 {confirmations} * {r} - {} - {} is not more than 0; \
                 C*R > drift + slack must hold{}",
                Ms(timing.drift_share()),
                Ms(SLACK),
                advice.unwrap_or_default()
            ));
        }
        if !faults.is_empty() {
            return Err(Refused(faults.join("; ")));
        }
        Ok(timing)
    }

    /// Returns R, the time from one renewal to the next.
    pub fn renewal(self) -> Duration {
        self.renewal
    }

    /// Returns F, the renewals that must be missed before a takeover.
    pub fn failures(self) -> u32 {
        self.failures
    }

    /// Returns C, the renewals between a takeover and the start.
    pub fn confirmations(self) -> u32 {
        self.confirmations
    }

    /// Returns e, the assumed bound on a clock's rate error, in parts per million.
    pub fn drift_ppm(self) -> u32 {
        self.drift_ppm
    }

    /// Returns T = F·R.
    pub fn lock_time(self) -> Duration {
        self.renewal * self.failures
    }

    /// Returns T·(1 − e), rounded down: how long after sending a renewal its
    /// holder may act on the lock.
    pub fn validity(self) -> Duration {
        self.validity_of(self.lock_time())
    }

    /// Returns how long a lock has to be valid when the program is executed anew: if the guard
    /// hangs from then on, the next instance kills it and starts another one, which stops the
    /// service.
    pub fn upgrade_time(self) -> Duration {
        guard_answer_time(self.renewal, None) + NEXT_BEGINS_WITHIN
    }

    /// Returns the time in which a guard that hangs is asked for a report and killed, and the next
    /// one begins to stop the service. So long an agent that was told to end stays after the
    /// service had to be down.
    pub fn guard_replaced_within(self) -> Duration {
        self.upgrade_time() + ask_every(guard_answer_time(self.renewal, None))
    }

    /// Returns how long an agent stays at most that was told to end: until V, for a stop, for
    /// another one if the agent did not run when the service had to be down, and until a guard
    /// that hangs is replaced.
    pub fn ends_within(self) -> Duration {
        self.validity() + self.stop_budget() * 2 + self.guard_replaced_within()
    }

    /// Returns the validity of another lock time.
    pub fn validity_of(self, lock: Duration) -> Duration {
        shortened(lock, self.drift_ppm)
    }

    /// Returns `lock`·(1 + e), rounded up: how long a challenger watches a
    /// revision stand still before it may take over.
    pub fn takeover_wait(self, lock: Duration) -> Duration {
        lengthened(lock, self.drift_ppm)
    }

    /// Returns C·R: how long after its takeover was acknowledged an agent may
    /// start the service.
    pub fn confirmation(self) -> Duration {
        self.renewal * self.confirmations
    }

    /// Returns the time that the holder has, from V on, to be dead: C·R less the
    /// drift of two clocks over it, less [`SLACK`]. Zero when nothing is left.
    pub fn stop_budget(self) -> Duration {
        self.confirmation().saturating_sub(self.drift_share()).saturating_sub(SLACK)
    }

    /// Returns how long one request to the store may take: half a stroke, so that one lost answer
    /// can be made up for within the stroke, but at least 10 ms.
    pub fn attempt(self) -> Duration {
        (self.renewal / 2).max(ATTEMPT_MIN)
    }

    /// Returns the longest timeout with which a watchdog device that is kicked at
    /// every renewal resets the host before the service must be dead, with R to
    /// spare for the next renewal: T·(1 − e) + stop budget − R.
    pub fn watchdog_timeout_max(self) -> Duration {
        (self.validity() + self.stop_budget()).saturating_sub(self.renewal)
    }

    /// The time that two clocks, one slow and one fast, can lose of C·R:
    /// C·R − C·R·(1 − e)/(1 + e) = C·R·2e/(1 + e), rounded up.
    fn drift_share(self) -> Duration {
        let (ppm, one) = (u128::from(self.drift_ppm), 1_000_000u128);
        let lost = (self.confirmation().as_nanos() * 2 * ppm).div_ceil(one + ppm);
        from_nanos(lost)
    }
}

/// Returns `of`·(1 − e), rounded down: a clock whose rate is off by this share counts at least so
/// much while `of` passes on a true clock.
pub(crate) fn shortened(of: Duration, drift_ppm: u32) -> Duration {
    of - share_up(of, drift_ppm)
}

/// Returns `of`·(1 + e), rounded up: such a clock counts at most so much while `of` passes on a
/// true clock.
pub(crate) fn lengthened(of: Duration, drift_ppm: u32) -> Duration {
    of.saturating_add(share_up(of, drift_ppm))
}

fn share_up(of: Duration, ppm: u32) -> Duration {
    from_nanos((of.as_nanos() * u128::from(ppm)).div_ceil(1_000_000))
}

/// Returns a duration. Saturates instead of wrapping: every caller's value is at most a few hours.
fn from_nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Shows parts per million as a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percent(pub u32);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:04}", self.0 % 10_000);
        let digits = digits.trim_end_matches('0');
        if digits.is_empty() {
            return write!(f, "{} %", self.0 / 10_000);
        }
        write!(f, "{}.{digits} %", self.0 / 10_000)
    }
}

/// Returns the time in which a guard has to answer an agent of this R before it is killed: R, but
/// at least 250 ms. `previous` are the times under which the guard may let the service run, if they
/// are known: a larger R gives the guard no more time.
pub fn guard_answer_time(renewal: Duration, previous: Option<Timing>) -> Duration {
    let renewal = previous.map_or(renewal, |previous| previous.renewal.min(renewal));
    renewal.max(GUARD_ANSWER_MIN)
}

/// Returns how often a guard with this time to answer is asked for a report.
pub fn ask_every(answer_time: Duration) -> Duration {
    answer_time / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(r_ms: u64, f: u32, c: u32, ppm: u32) -> Result<Timing, Refused> {
        Timing::new(Duration::from_millis(r_ms), f, c, ppm)
    }

    /// True time that passes while a clock whose rate is off by `ppm` of 1e6 counts
    /// `counted`, scaled by 1e6 * 1e6 to stay whole.
    fn true_time(counted: Duration, rate_ppm: u128) -> u128 {
        counted.as_nanos() * 1_000_000 * 1_000_000 / rate_ppm
    }

    #[test]
    fn a_holder_on_the_slowest_clock_is_dead_before_a_challenger_on_the_fastest_starts() {
        let mut accepted = 0;
        for r_ms in [10, 25, 100, 500, 3000, 60_000] {
            for (f, c) in [(2, 1), (3, 1), (3, 2), (12, 2), (100, 100)] {
                for ppm in [0, 1, 10_000, 83_333, 200_000] {
                    let Ok(timing) = timing(r_ms, f, c, ppm) else {
                        continue;
                    };
                    let e = u128::from(ppm);
                    let (slow, fast) = (1_000_000 - e, 1_000_000 + e);
                    let valid = true_time(timing.validity(), slow);
                    let take = true_time(timing.takeover_wait(timing.lock_time()), fast);
                    assert!(valid <= take, "{timing:?}: taken before it ran out");
                    let dead = valid + true_time(timing.stop_budget() + SLACK, slow);
                    let start = take + true_time(timing.confirmation(), fast);
                    // The divisions above round down by at most one each.
                    assert!(dead <= start + 2, "{timing:?}: dead at {dead}, started at {start}");
                    accepted += 1;
                }
            }
        }
        assert!(accepted > 100, "only {accepted} combinations were accepted");
    }

    #[test]
    fn what_leaves_no_time_is_refused_with_its_inequality() {
        for (given, says) in [
            (timing(3000, 3, 0, 10_000), "C*R > drift + slack must hold"),
            (timing(20, 3, 1, 10_000), "C*R > drift + slack must hold"),
            (timing(3000, 1, 2, 10_000), "F*R*(1 - drift) > R must hold"),
            (timing(9, 3, 2, 10_000), "9 ms is shorter than the minimum of 10 ms"),
            (timing(300_000, 3, 2, 10_000), "300 s is longer than the maximum of 60 s"),
            (timing(3000, 101, 2, 10_000), "101 is more than the maximum of 100"),
            (timing(3000, 3, 2, 200_001), "20.0001 % is more than the maximum of 20 %"),
        ] {
            let Err(Refused(text)) = given else { panic!("accepted instead of: {says}") };
            assert!(text.contains(says), "{text}");
        }
        assert!(timing(21, 3, 1, 10_000).is_ok(), "0.6 ms of stop budget are left");
    }

    #[test]
    fn the_defaults_are_what_the_manual_page_says() {
        let timing = timing(3000, 3, 2, DRIFT_PPM_DEFAULT).expect("the defaults are safe");
        assert_eq!(Ms(timing.validity()).to_string(), "8.91 s");
        assert_eq!(Ms(timing.takeover_wait(timing.lock_time())).to_string(), "9.09 s");
        assert_eq!(Ms(timing.stop_budget()).to_string(), "5.861 s");
        assert_eq!(Ms(timing.ends_within()).to_string(), "24.482 s");
    }

    #[test]
    fn a_clock_rate_is_shown_as_a_percentage() {
        assert_eq!(Percent(10_000).to_string(), "1 %");
        assert_eq!(Percent(500).to_string(), "0.05 %");
    }
}
