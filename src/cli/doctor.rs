//! The command line of `putex doctor`.

use super::settings::{Faults, Settings};
use super::table::{Name, nearest};
use super::value::{device, samples};
use super::{BucketArgs, Environment, Invocation, resolve, usage};
use crate::core::Timing;
use crate::exit::Refusal;
use crate::status::Source;
use crate::store::name::valid_key;

/// The arguments of `putex doctor`, each of them valid.
#[derive(Debug)]
pub struct DoctorArgs {
    /// The bucket.
    pub bucket: BucketArgs,
    /// Where it is.
    pub source: Source,
    /// The key of the agents; `None` for all of the bucket.
    pub key: Option<String>,
    /// R, F, C and drift.
    pub timing: Timing,
    /// Whether R, F or C is given: if not, those of the agents count.
    pub is_timing_given: bool,
    /// The watchdog device of this host's agent, and whether it is required.
    pub device: Option<(String, bool)>,
    /// The names of findings that do not make anything unfit.
    pub ignored: Vec<&'static str>,
    /// So many reads and so many writes are measured.
    pub samples: u32,
    /// Whether a warning has an exit status of its own.
    pub is_strict: bool,
}

/// The names of all findings. They stay: others rely on them.
pub const FINDINGS: [&str; 20] = [
    "reachable", "server", "bucket", "replicas", "election", "fsync", "read", "write", "agents",
    "standby", "agreement", "active", "twins", "guards", "start", "stop", "pause", "clock",
    "watchdog", "cgroup",
];

/// Returns the invocation with these options and words. A refusal of the settings is in it: a
/// plugin of a monitoring system reports that too.
pub(super) fn invocation(
    settings: Settings,
    words: Vec<String>,
    environment: &Environment<'_>,
) -> Result<Invocation, Refusal> {
    if let [_, more, ..] = &words[..] {
        return Err(usage(format!("{more}: unexpected argument; write one KEY, or none for all")));
    }
    let is_json = settings.get(Name::Json).is_some();
    let key = words.into_iter().next();
    let args = match key.as_deref().map_or(Ok(()), check_key) {
        Ok(()) => resolve::all(settings, environment, |faults| resolve(faults, key, environment)),
        Err(refusal) => Err(refusal),
    };
    Ok(Invocation::Doctor { is_json, args: Box::new(args) })
}

fn check_key(key: &str) -> Result<(), Refusal> {
    valid_key(key).map_err(|why| usage(format!("KEY: {why}; write none for all keys")))?;
    resolve::agents_key(key)
}

/// Resolves the settings; `None` if there is a fault.
fn resolve(
    faults: &mut Faults<'_>,
    key: Option<String>,
    environment: &Environment<'_>,
) -> Option<DoctorArgs> {
    let bucket = resolve::existing_bucket(faults, environment.var);
    let timing = resolve::timing(faults);
    let is_given = |name| faults.settings.get(name).is_some();
    let is_timing_given =
        [Name::Renewal, Name::Failures, Name::Confirmations].into_iter().any(is_given);
    let device = match faults.settings.get(Name::Watchdog) {
        Some(_) => faults.parse(Name::Watchdog, device).map(Some),
        None => Some(None),
    };
    let samples = faults.parse(Name::Samples, samples);
    let ignored = ignored(faults);
    let (bucket, source) = bucket?;
    Some(DoctorArgs {
        bucket,
        source,
        key,
        timing: timing?,
        is_timing_given,
        device: device?,
        ignored: ignored?,
        samples: samples?,
        is_strict: faults.settings.is_on(Name::Strict),
    })
}

/// Resolves the names of the findings that do not count.
fn ignored(faults: &mut Faults<'_>) -> Option<Vec<&'static str>> {
    let Some(text) = faults.text(Name::Ignore) else {
        return faults.settings.get(Name::Ignore).is_none().then(Vec::new);
    };
    let known = |name: &str| FINDINGS.into_iter().find(|known| *known == name);
    let why = |name: &str| {
        let nearest = nearest(name, FINDINGS.map(str::to_owned));
        format!("{name}: no finding has this name{nearest}; see putex help doctor")
    };
    let names = text.split(',').map(|name| known(name).ok_or_else(|| why(name)));
    faults.collect(Name::Ignore, names.collect::<Result<Vec<_>, _>>())
}

#[cfg(test)]
mod tests;
