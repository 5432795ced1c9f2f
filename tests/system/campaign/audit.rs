//! `putex audit` on the logs of a campaign: it must not find what the observer has not seen.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::course::Order;
use super::faults::{Blow, Kind};
use super::testbed::Testbed;
use crate::rig::host::KEY;
use crate::support::clock::now;

/// Faults after which lines have a time that is not theirs, or are lost.
const OF_LOGS: [Kind; 2] = [Kind::LogUnread, Kind::HostDiskFull];

/// After which a service may have ended before the next guard, which cannot know when.
const UNGUARDED: Kind = Kind::Process(Blow::BothKilled);

/// Audits the logs of all hosts, and judges the result if the observer has seen no `overlap`.
pub(crate) fn judge(
    text: &mut String,
    wrong: &mut Vec<String>,
    order: &Order,
    testbed: &Testbed,
    overlap: Duration,
) {
    if order.agent.old || order.extras.step_max > 0 {
        return;
    }
    let logs: Result<Vec<_>, _> =
        testbed.hosts.iter().map(|host| timed(&host.log_path())).collect();
    let report = logs.and_then(|logs| audit(&order.agent.binary, &logs));
    let (status, report) = match report {
        Ok(report) => report,
        Err(why) => return wrong.push(format!("putex audit: {why}")),
    };
    let _ = writeln!(text, "  putex audit: status {status}");
    for line in report.lines().filter(|line| !line.contains("Z  ") && !line.starts_with("TERM")) {
        let _ = writeln!(text, "    {line}");
    }
    let is_blind = |kind| kind == UNGUARDED || OF_LOGS.contains(&kind);
    let is_blind = testbed.happened.iter().any(|fault| is_blind(fault.kind));
    match status {
        0 | 75 => {}
        1 if is_blind || !overlap.is_zero() => {}
        _ => wrong.push(format!("putex audit has status {status}, and nothing overlapped")),
    }
}

/// Writes a log with times instead of milliseconds since boot, which the lines of agents with a
/// pipe have; returns its path.
fn timed(log: &Path) -> Result<PathBuf, String> {
    let failed = |error| format!("{}: {error}", log.display());
    let bytes = fs::read(log).map_err(failed)?;
    let booted = SystemTime::now() - now();
    let line = |line: &str| {
        let (at, rest) = line.split_once(' ')?;
        let at: f64 = at.parse().ok()?;
        let at = booted + Duration::try_from_secs_f64(at / 1000.0).ok()?;
        let is_timed = rest.split(' ').next().is_some_and(|word| word.ends_with('Z'));
        let at = humantime::format_rfc3339_micros(at);
        Some(if is_timed { format!("{rest}\n") } else { format!("{at} {rest}\n") })
    };
    let text: String = String::from_utf8_lossy(&bytes).lines().filter_map(line).collect();
    let path = log.with_extension("timed");
    fs::write(&path, text).map_err(failed)?;
    Ok(path)
}

/// Runs the command; returns its status and its report.
fn audit(putex: &Path, logs: &[PathBuf]) -> Result<(i32, String), String> {
    let mut command = Command::new(putex);
    command.arg("audit").args(logs.iter().flat_map(|log| [Path::new("--log"), log])).arg(KEY);
    let ran = command.env_remove("NATS_URL").env_remove("NATS_CONTEXT").output();
    let ran = ran.map_err(|error| error.to_string())?;
    let status = ran.status.code().ok_or("a signal ended it")?;
    Ok((status, String::from_utf8_lossy(&ran.stdout).into_owned()))
}
