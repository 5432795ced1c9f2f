//! The command lines of `putex grab` and `putex release`.

use std::time::Duration;

use super::line::Line;
use super::lock::{mode_of, name};
use super::resolve::attribute;
use super::table::{Name, Subcommand};
use super::value::{drift_ppm, seconds, time_within, within};
use crate::core::tickets::grab;
use crate::exit::Refusal;
use crate::grab::{Request, Task};

/// Returns what the line asks for.
pub(super) fn request(line: &Line<'_>) -> Result<Request, Refusal> {
    // First the options: one that takes a value may have taken the name.
    let task = if line.of == Subcommand::Release { release(line)? } else { grab(line)? };
    let who = line.who()?;
    let usual = match line.of == Subcommand::Release {
        true => "putex release NAME",
        false => "putex grab NAME, or putex lock NAME COMMAND",
    };
    let name = name(line.only_word("NAME", usual)?)?;
    Ok(Request { name, who, task, level: line.level() })
}

fn grab(line: &Line<'_>) -> Result<Task, Refusal> {
    let settings = &line.settings;
    let busy_status = settings.value(Name::BusyStatus, "", within(0..=u8::MAX))?;
    let wait = settings.parse(Name::Wait, seconds)?;
    let bounds = "write 1s to 100m; whoever needs a lock for longer grabs it again";
    let lifetime = time_within(grab::LIFETIME_MIN..=grab::LIFETIME_MAX, bounds);
    let lifetime = settings.value(Name::For, "", lifetime)?;
    let drift = settings.value(Name::Drift, "", drift_ppm)?;
    let timing = grab::timing(lifetime, drift);
    let timing = timing.map_err(|refused| attribute(settings, line.of, Name::For, &refused.0))?;
    let withdraws = settings.is_on(Name::NoWait);
    let wait = wait.filter(|_| !withdraws).unwrap_or(Duration::ZERO);
    Ok(Task::Grab { mode: mode_of(line), timing, wait, withdraws, busy_status })
}

fn release(line: &Line<'_>) -> Result<Task, Refusal> {
    let settings = &line.settings;
    match (settings.is_on(Name::Force), settings.nonblank(Name::Holder)?) {
        (false, None) => Ok(Task::Release),
        (true, Some(holder)) => Ok(Task::Break(holder)),
        (true, None) => {
            let why = "write --holder WHO too, the holder that is to lose it";
            Err(settings.usage(Name::Force, why))
        }
        (false, Some(_)) => {
            let why = "needs --force, which takes the lock away from its holder";
            Err(settings.usage(Name::Holder, why))
        }
    }
}

#[cfg(test)]
mod tests;
