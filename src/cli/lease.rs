//! The command lines of `putex lease` and `putex put`.

use std::time::Duration;

use super::line::Line;
use super::lock::refuse_name;
use super::settings::Settings;
use super::table::Name;
use super::value::{drift_ppm, seconds, time_within};
use super::{unexpected, usage};
use crate::core::Percent;
use crate::core::lease::LeaseTask;
use crate::core::tickets;
use crate::core::tickets::grab::LIFETIME_MAX;
use crate::core::timing::DRIFT_PPM_MAX;
use crate::exit::{Exit, Refusal};
use crate::lease::{Put, Request, Task};
use crate::store::name::{is_own, valid_key};

/// The actions of `putex lease`, in the order of the help text.
pub const ACTIONS: [&str; 5] = ["claim", "extend", "check", "expire", "list"];

/// The shortest lease.
const FOR_MIN: Duration = Duration::from_secs(1);

/// The longest time for which a lease is asked for: with the drift, it stays below
/// [`LIFETIME_MAX`].
const FOR_MAX: Duration = Duration::from_secs(75 * 60);

const ALL: &str = "write putex lease claim, extend, check or expire NAME, or putex lease list";

/// Returns what a line of `putex lease` asks for.
pub(super) fn request(line: &Line<'_>) -> Result<Request, Refusal> {
    let (action, name) = match &line.words[..] {
        [] => return Err(usage(ALL.to_owned())),
        [back, ..] if ["release", "revoke"].contains(&&**back) => {
            let why = "a lease is not given back, it runs out; for a lock that is, see putex grab";
            return Err(usage(format!("lease {back}: {why}")));
        }
        [wrong, ..] if !ACTIONS.contains(&&**wrong) => {
            return Err(usage(format!("lease {wrong}: no such command; {ALL}")));
        }
        [action] => (&**action, None),
        [action, name] => {
            let name = tickets::Name::parse(name).map_err(|why| refuse_name(name, &why))?;
            (&**action, Some(name))
        }
        [action, _, more, ..] => {
            return Err(unexpected(more, &format!("write {}", usual(action))));
        }
    };
    if name.is_none() && action != "list" {
        // An option that takes a value may have taken the name.
        line.settings.parse(Name::LeaseFor, seconds)?;
        line.settings.parse(Name::Wait, seconds)?;
        return Err(usage(format!("NAME is missing; write {}", usual(action))));
    }
    let who = line.who()?;
    let drift_ppm = drift(&line.settings)?;
    let task = task(line, action, name, who.clone())?;
    Ok(Request { task, who, drift_ppm, level: line.level() })
}

/// Returns a line with this action.
fn usual(action: &str) -> String {
    let with_time = if matches!(action, "claim" | "extend") { " --for 60s" } else { "" };
    format!("putex lease {action}{with_time} NAME")
}

/// Returns what a line of `putex put` asks for.
pub(super) fn put(line: &Line<'_>) -> Result<Put, Refusal> {
    let usual = "putex put --lease NAME KEY VALUE";
    let (key, value) = match &line.words[..] {
        [] => return Err(usage(format!("KEY is missing; write {usual}"))),
        [key] => (key, None),
        [key, value] => (key, Some(value.clone())),
        [_, _, more, ..] => {
            return Err(unexpected(more, "quote a value with blanks"));
        }
    };
    valid_key(key).map_err(|why| usage(format!("KEY: {why}")))?;
    if is_own(key) {
        let why = "putex keeps locks, leases and notes below it; write another key";
        return Err(usage(format!("KEY: {key}: {why}")));
    }
    let holder = line.who()?;
    let lease = line.settings.value(Name::Lease, usual, tickets::Name::parse)?;
    Ok(Put { lease, holder, key: key.clone(), value, level: line.level() })
}

fn task(
    line: &Line<'_>,
    action: &str,
    name: Option<tickets::Name>,
    holder: String,
) -> Result<Task, Refusal> {
    let settings = &line.settings;
    for (option, takers) in [
        (Name::LeaseFor, &["claim", "extend"][..]),
        (Name::As, &["claim", "extend", "check"]),
        (Name::Wait, &["expire"]),
    ] {
        if line.has(option) && !takers.contains(&action) {
            let why = format!("not an option of putex lease {action}");
            return Err(settings.usage(option, &why));
        }
    }
    let (Some(name), false) = (name.clone(), action == "list") else { return Ok(Task::List(name)) };
    let bounds = "write 1s to 75m; whoever needs a lease for longer extends it";
    let time = time_within(FOR_MIN..=FOR_MAX, bounds);
    let at_least = || settings.value(Name::LeaseFor, &usual(action), time);
    let task = match action {
        "claim" => LeaseTask::Claim { holder, at_least: at_least()? },
        "extend" => LeaseTask::Extend { holder, at_least: at_least()? },
        "expire" => {
            let wait = settings.parse(Name::Wait, seconds)?.unwrap_or_default();
            LeaseTask::Expire { wait }
        }
        _ => LeaseTask::Check { holder: line.has(Name::As).then_some(holder) },
    };
    Ok(Task::One(name, task))
}

/// Returns how far clocks may be off.
fn drift(settings: &Settings) -> Result<u32, Refusal> {
    let drift_ppm = settings.value(Name::Drift, "", drift_ppm)?;
    if drift_ppm <= DRIFT_PPM_MAX {
        return Ok(drift_ppm);
    }
    let (given, most) = (Percent(drift_ppm), Percent(DRIFT_PPM_MAX));
    let why = format!("{given} is more than the maximum of {most}");
    Err(settings.refusal(Name::Drift, Exit::Unsafe, &why))
}

const _: () = assert!(FOR_MAX.as_secs() * 5 / 4 <= LIFETIME_MAX.as_secs());

#[cfg(test)]
mod tests;
