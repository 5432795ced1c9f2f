//! The command lines of `putex grab` and `putex release`.

use std::time::Duration;

use log::Level;

use super::settings::{Faults, Settings};
use super::table::{Name, Subcommand};
use super::value::{drift_ppm, long_time, seconds, status};
use super::{BucketArgs, Environment, Invocation, lock, resolve, usage};
use crate::core::tickets::{self, LockTiming, Mode, grab};
use crate::exit::{Exit, Refusal};
use crate::grab::{Limits, Request, Task};

/// The arguments of `putex grab` or `putex release`, each of them valid.
#[derive(Debug)]
pub struct GrabArgs {
    /// The bucket.
    pub bucket: BucketArgs,
    /// What is asked for.
    pub request: Request,
}

/// Returns the invocation with these options and words.
pub(super) fn invocation(
    of: Subcommand,
    settings: Settings,
    words: Vec<String>,
    environment: &Environment<'_>,
) -> Result<Invocation, Refusal> {
    let name = match &words[..] {
        [name] => name,
        [] => return Err(usage(format!("NAME is missing; write putex {} NAME", of.name()))),
        [_, more, ..] => {
            let why = "unexpected argument; a lock has one name";
            return Err(usage(format!("{more}: {why}")));
        }
    };
    let name = lock::name(name)?;
    let resolve = |faults: &mut Faults<'_>| resolve(of, faults, name, environment);
    let args = resolve::all(settings, environment, resolve)?;
    Ok(Invocation::Grab(Box::new(args)))
}

/// Resolves the settings; `None` if there is a fault.
fn resolve(
    of: Subcommand,
    faults: &mut Faults<'_>,
    name: tickets::Name,
    environment: &Environment<'_>,
) -> Option<GrabArgs> {
    let settings = faults.settings;
    let bucket = resolve::bucket(faults, environment.var);
    let who = resolve::who(faults, Name::As, environment);
    let task = match of == Subcommand::Release {
        true => release(faults),
        false => grab(faults),
    };
    let level = resolve::level(settings, Level::Warn);
    Some(GrabArgs { bucket: bucket?, request: Request { name, who: who?, task: task?, level } })
}

fn grab(faults: &mut Faults<'_>) -> Option<Task> {
    let settings = faults.settings;
    let busy_status = faults.parse(Name::BusyStatus, status);
    let wait = faults.parse(Name::Wait, seconds);
    let timing = timing(faults);
    let withdraws = settings.is_on(Name::NoQueue);
    let wait = wait.filter(|_| !withdraws).unwrap_or(Duration::ZERO);
    let mode = match settings.is_on(Name::Shared) {
        true => Mode::Shared,
        false => Mode::Exclusive,
    };
    let limits = Limits { wait, withdraws };
    Some(Task::Grab { mode, timing: timing?, limits, busy_status: busy_status? })
}

/// Resolves T and the drift.
fn timing(faults: &mut Faults<'_>) -> Option<LockTiming> {
    let lifetime = faults.parse(Name::For, long_time);
    let drift = faults.parse(Name::Drift, drift_ppm);
    match grab::timing(lifetime?, drift?) {
        Ok(timing) => Some(timing),
        Err(refused) => resolve::attribute(faults, Subcommand::Grab, Name::For, &refused.0),
    }
}

fn release(faults: &mut Faults<'_>) -> Option<Task> {
    let is_forced = faults.settings.is_on(Name::Force);
    match (is_forced, faults.settings.get(Name::Holder)) {
        (false, None) => Some(Task::Release),
        (true, Some(_)) => faults.text(Name::Holder).map(Task::Break),
        (true, None) => {
            let why = "write --holder WHO too, the holder that is to lose it";
            faults.refuse(Name::Force, Exit::Usage, why)
        }
        (false, Some(_)) => {
            let why = "needs --force, which takes the lock away from its holder";
            faults.refuse(Name::Holder, Exit::Usage, why)
        }
    }
}

#[cfg(test)]
mod tests;
