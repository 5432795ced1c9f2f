//! How long a ticket is valid, and when the command under it is killed.
//!
//! A ticket lives for T = F·R. Its owner counts T·(1 − drift) from the moment before a renewal
//! was sent: until then, V, nobody else is granted the names. Others remove a ticket that has
//! not moved for T·(1 + drift) by their own clock. So the command has to be dead by V: it is
//! told to end in time before that.

use std::time::Duration;

use crate::core::time::{Instant, Ms};
use crate::core::timing::{COUNT_MAX, Refused, Timing};

/// The command is killed so long before V: the kernel needs a moment to end it.
pub const KILL_LEAD: Duration = Duration::from_millis(100);

/// T unless somebody chooses another.
pub const LIFETIME_DEFAULT: Duration = Duration::from_secs(15);

/// The times of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockTiming {
    timing: Timing,
    kill_after: Duration,
}

/// When a command is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillTimes {
    /// When it is sent SIGTERM.
    pub terminate_at: Instant,
    /// When it is sent SIGKILL.
    pub kill_at: Instant,
}

impl LockTiming {
    /// Returns the times for R, F and drift, and the time between SIGTERM and SIGKILL.
    ///
    /// # Errors
    ///
    /// The inequality that does not hold. A ticket must be valid for two renewals at least
    /// before its command is told to end, or one lost answer would end it.
    pub fn new(
        renewal: Duration,
        failures: u32,
        drift_ppm: u32,
        kill_after: Duration,
    ) -> Result<LockTiming, Refused> {
        // C has no use here: the old command is dead by V.
        let timing = Timing::new(renewal, failures, failures, drift_ppm)?;
        if has_time(timing, kill_after) {
            return Ok(LockTiming { timing, kill_after });
        }
        let (validity, k, r) = (Ms(timing.validity()), Ms(kill_after), Ms(renewal));
        let fits = |failures: &u32| {
            let timing = Timing::new(renewal, *failures, *failures, drift_ppm);
            timing.is_ok_and(|timing| has_time(timing, kill_after))
        };
        let more = (failures..=COUNT_MAX).find(fits).map(|least| format!("-f {least} or more"));
        let less = has_time(timing, Duration::ZERO).then(|| "a smaller -k".to_owned());
        let advice = more.or(less).unwrap_or("a larger -r".to_owned());
        let lead = Ms(KILL_LEAD);
        Err(Refused(format!(
            "-k: no time is left to renew the lock: F*R*(1 - drift) - k - {lead} = \
             {validity} - {k} - {lead} is less than 2*R = 2 * {r}; write {advice}"
        )))
    }

    /// Returns R, from one renewal to the next.
    pub fn renewal(self) -> Duration {
        self.timing.renewal()
    }

    /// Returns T, after which others remove a ticket that has not moved.
    pub fn lifetime(self) -> Duration {
        self.timing.lock_time()
    }

    /// Returns how long a ticket of this lifetime is valid after the moment before its renewal was
    /// sent.
    pub fn validity_of(self, lifetime: Duration) -> Duration {
        self.timing.validity_of(lifetime)
    }

    /// Returns how long a ticket of this lifetime has to stand unmoved before it is removed.
    pub fn removal_wait(self, lifetime: Duration) -> Duration {
        self.timing.takeover_wait(lifetime)
    }

    /// Returns when the command of a ticket is told to end if the ticket is not renewed.
    pub fn kill_times(self, valid_until: Instant) -> KillTimes {
        let kill_at = valid_until.before(KILL_LEAD);
        KillTimes { terminate_at: kill_at.before(self.kill_after), kill_at }
    }

    /// Returns when the command of a ticket that is lost now is told to end.
    pub fn kill_times_after_loss(self, now: Instant, valid_until: Instant) -> KillTimes {
        let kill_at = now.after(self.kill_after).min(valid_until.before(KILL_LEAD));
        KillTimes { terminate_at: now, kill_at }
    }
}

/// Returns whether a ticket is valid for two renewals before its command is told to end.
fn has_time(timing: Timing, kill_after: Duration) -> bool {
    timing.validity().saturating_sub(kill_after + KILL_LEAD) >= timing.renewal() * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_command_is_told_to_end_and_killed_before_its_ticket_runs_out() {
        let timing = LockTiming::new(5 * SECOND, 3, 10_000, 2 * SECOND).expect("the defaults");
        let v = Instant::from_boot(100 * SECOND);
        let times = timing.kill_times(v);
        assert_eq!(v.since(times.kill_at), KILL_LEAD);
        assert_eq!(times.kill_at.since(times.terminate_at), 2 * SECOND);
        let now = v.before(SECOND);
        let lost = timing.kill_times_after_loss(now, v);
        assert_eq!((lost.terminate_at, lost.kill_at), (now, v.before(KILL_LEAD)));
        let early = timing.kill_times_after_loss(v.before(9 * SECOND), v);
        assert_eq!(early.kill_at, v.before(7 * SECOND));
    }

    #[test]
    fn times_that_leave_no_room_for_a_lost_answer_are_refused() {
        let Err(Refused(text)) = LockTiming::new(5 * SECOND, 3, 10_000, 5 * SECOND) else {
            panic!("accepted");
        };
        assert!(text.starts_with("-k: no time is left to renew"), "{text}");
        assert!(LockTiming::new(5 * SECOND, 1, 10_000, SECOND).is_err());
        for (renewal_ms, failures, k_ms, advice) in [
            (1000, 3, 2000, "; write -f 5 or more"),
            (1000, 2, 2000, "; write -f 5 or more"),
            (10, 9, 3_600_000, " = 2 * 10 ms; write a larger -r"),
        ] {
            let [renewal, k] = [renewal_ms, k_ms].map(Duration::from_millis);
            let refused = LockTiming::new(renewal, failures, 10_000, k).expect_err(advice).0;
            assert!(refused.ends_with(advice), "{refused}");
        }
        assert!(LockTiming::new(SECOND, 5, 10_000, 2 * SECOND).is_ok());
        assert!(LockTiming::new(SECOND, 4, 10_000, 2 * SECOND).is_err());
        assert!(LockTiming::new(SECOND, 3, 10_000, SECOND / 2).is_ok());
    }
}
