//! The command lines of `putex pause` and `putex resume`.

use std::time::Duration;

use log::Level;

use super::settings::{Faults, Settings};
use super::table::{Name, Subcommand};
use super::value::{long_time, wait};
use super::{BucketArgs, Environment, Invocation, resolve};
use crate::core::PAUSE_MAX;
use crate::exit::Refusal;
use crate::pause::{Action, Request};

/// The arguments of `putex pause` or `putex resume`, each of them valid.
#[derive(Debug)]
pub struct PauseArgs {
    /// The bucket.
    pub bucket: BucketArgs,
    /// What is asked for.
    pub request: Request,
}

/// The shortest pause: it takes some time until all have acknowledged it.
const LASTS_MIN: Duration = Duration::from_secs(1);

/// The longest reason, in bytes.
const REASON_BYTES_MAX: usize = 200;

/// Returns the invocation with these options and words.
pub(super) fn invocation(
    of: Subcommand,
    settings: Settings,
    words: Vec<String>,
    environment: &Environment<'_>,
) -> Result<Invocation, Refusal> {
    let resumes = of == Subcommand::Resume;
    let usual = if resumes { "putex resume KEY" } else { "putex pause --for TIME KEY" };
    let key = resolve::only_key(&words, usual)?;
    let resolve = |faults: &mut Faults<'_>| resolve(faults, resumes, key, environment);
    let args = resolve::all(settings, environment, resolve)?;
    Ok(Invocation::Pause(Box::new(args)))
}

/// Resolves the settings; `None` if there is a fault.
fn resolve(
    faults: &mut Faults<'_>,
    resumes: bool,
    key: String,
    environment: &Environment<'_>,
) -> Option<PauseArgs> {
    let bucket = resolve::existing_bucket(faults, environment.var);
    let action = if resumes { Some(Action::Resume) } else { pause(faults) };
    let wait = faults.parse(Name::PauseWait, wait);
    let level = resolve::level(faults.settings, Level::Warn);
    let (bucket, source) = bucket?;
    let by = resolve::requester(environment);
    let request = Request { source, key, action: action?, wait: wait?, by, level };
    Some(PauseArgs { bucket, request })
}

/// Resolves what a pause is.
fn pause(faults: &mut Faults<'_>) -> Option<Action> {
    if faults.settings.get(Name::PauseFor).is_none() {
        return faults.usage(Name::PauseFor, "is missing; write --for TIME, as in --for 2h");
    }
    let lasts = faults.parse(Name::PauseFor, long_time)?;
    if !(LASTS_MIN..=PAUSE_MAX).contains(&lasts) {
        return faults.usage(Name::PauseFor, "write 1s to 7d");
    }
    let reason = faults.settings.text(Name::Reason).unwrap_or_default().trim().to_owned();
    if reason.len() > REASON_BYTES_MAX || reason.chars().any(char::is_control) {
        return faults.usage(Name::Reason, "write one line of at most 200 bytes");
    }
    // Records have whole milliseconds.
    let lasts = Duration::from_millis(lasts.as_millis() as u64);
    Some(Action::Pause { lasts, reason })
}

#[cfg(test)]
mod tests;
