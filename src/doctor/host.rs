//! Findings about this host: its clock, its watchdog device, its control groups.

use super::finding::{Finding, Level};
use crate::core::{Percent, Timing, wanted_timeout};
use crate::guard::{cgroup, inspect_device};
use crate::sys::raw::{ClockRate, clock_rate};

const GET_DEVICE: &str = "load the driver of the watchdog, or softdog, and name its device";

/// Returns all findings about this host.
pub(super) fn judge(timing: Timing, device: Option<&(String, bool)>) -> Vec<Finding> {
    let clock = match clock_rate() {
        Ok(rate) => clock(rate, timing.drift_ppm()),
        Err(error) => {
            let text = format!("the kernel does not tell the rate of its clock: {error}");
            Finding::unknown("clock", text, "see what forbids adjtimex(2) here")
        }
    };
    let fault = device.and_then(|(path, _)| {
        let of_device = inspect_device(path).err().map(|why| (why, GET_DEVICE));
        of_device.or_else(|| Some((wanted_timeout(timing).err()?, "take -r longer")))
    });
    let delegated = cgroup::delegated().map(|path| path.display().to_string());
    vec![clock, watchdog(device, fault), cgroups(delegated)]
}

/// Judges the rate of the clock: all agents assume that no clock is off by more than drift.
pub(super) fn clock(rate: ClockRate, drift_ppm: u32) -> Finding {
    let ClockRate { correction_ppm: correction, is_synchronised } = rate;
    let how = if is_synchronised { "synchronised" } else { "not synchronised" };
    let drift = Percent(drift_ppm);
    let text = format!("{how}, corrected by {correction} ppm; --drift is {drift}");
    let level = match correction {
        _ if correction > drift_ppm => Level::Critical,
        _ if correction > drift_ppm / 2 => Level::Warning,
        _ => Level::Ok,
    };
    let advice = "see what changes the clock so fast, or give all agents a larger --drift";
    Finding::new("clock", level, text, advice)
}

/// Judges the watchdog device. `fault`: why the one of the settings cannot be used, and what to do.
pub(super) fn watchdog(device: Option<&(String, bool)>, fault: Option<(String, &str)>) -> Finding {
    let Some((path, is_required)) = device else {
        let advice = "load its driver, or softdog, and write --watchdog /dev/watchdog";
        let text = "no device is set: nothing resets a host whose agent and guard hang";
        return Finding::new("watchdog", Level::Warning, text, advice);
    };
    let level = if *is_required { Level::Critical } else { Level::Warning };
    match fault {
        None => Finding::ok("watchdog", format!("{path} is there")),
        Some((fault, advice)) => Finding::new("watchdog", level, fault, advice),
    }
}

/// Judges whether an agent that runs where this process does has a control group for start.
pub(super) fn cgroups(delegated: Result<String, String>) -> Finding {
    let advice = "run the agent by a unit with Delegate=yes, or see that stop ends all";
    match delegated {
        Ok(path) => Finding::ok("cgroup", format!("an agent here can divide {path}")),
        Err(why) => {
            Finding::new("cgroup", Level::Warning, format!("no control group here: {why}"), advice)
        }
    }
}
