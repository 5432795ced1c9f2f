//! The timeout with which a watchdog device resets the host before the service must be dead, and
//! does not reset a healthy one.

use std::time::Duration;

use crate::core::time::Ms;
use crate::core::timing::Timing;

/// Returns how long after a kick a device of this timeout resets the host at the latest. The clock
/// of a device is coarse: an i6300esb takes 1024 ms for a second.
pub fn latest_reset(timeout: Duration) -> Duration {
    timeout + timeout / 16
}

/// Returns the timeout that a device is asked for: whole seconds that cover the
/// stop budget, so that a stop which ends in time is not cut short, if a device
/// that is kicked at every renewal can then still reset the host in time.
///
/// # Errors
///
/// When even one second is too long, with the violated inequality.
pub fn wanted_timeout(timing: Timing) -> Result<Duration, String> {
    let second = Duration::from_secs(1);
    let mut wanted = Duration::from_secs(timing.stop_budget().as_secs() + 1);
    while wanted > second && !resets_in_time(wanted, timing) {
        wanted -= second;
    }
    if resets_in_time(wanted, timing) {
        return Ok(wanted);
    }
    Err(too_slow(wanted, timing))
}

/// Returns whether a device of this timeout, kicked at every renewal, resets the
/// host before the service must be dead.
pub fn resets_in_time(timeout: Duration, timing: Timing) -> bool {
    latest_reset(timeout) <= timing.watchdog_timeout_max()
}

/// Says why a device of this timeout cannot reset the host in time.
pub fn too_slow(timeout: Duration, timing: Timing) -> String {
    format!(
        "a timeout of {} cannot bite before V + C*R: {} with its tolerance is more than \
         T*(1 - drift) + stop budget - R = {}",
        Ms(timeout),
        Ms(latest_reset(timeout)),
        Ms(timing.watchdog_timeout_max())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_that_cannot_bite_in_time_is_refused_with_its_inequality() {
        let fast = Timing::new(Duration::from_millis(100), 3, 1, 10_000).expect("it is safe");
        let why = wanted_timeout(fast).expect_err("a second is too long");
        assert!(why.contains("1 s cannot bite before V + C*R"), "{why}");
        assert!(!resets_in_time(Duration::from_secs(60), fast));
    }
}
