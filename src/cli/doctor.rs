//! The command line of `putex doctor`.

use super::line::Line;
use super::settings::Faults;
use super::table::Name;
use super::value::{device, within};
use super::{BucketArgs, Invocation, resolve};
use crate::core::Timing;
use crate::exit::Refusal;

/// The arguments of `putex doctor`, each of them valid.
#[derive(Debug)]
pub struct DoctorArgs {
    /// The bucket.
    pub bucket: BucketArgs,
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
pub const FINDINGS: [&str; 18] = [
    "reachable", "server", "bucket", "replicas", "election", "fsync", "read", "write", "agents",
    "standby", "agreement", "active", "twins", "service", "pause", "clock", "watchdog", "cgroup",
];

const ONE_KEY: &str = "one KEY, or none for all";

/// Returns the invocation of a line. A refusal of the settings is in it: a plugin of a monitoring
/// system reports that too.
pub(super) fn invocation(line: Line<'_>) -> Result<Invocation, Refusal> {
    let is_json = line.has(Name::Json);
    if line.words.len() > 1 {
        line.agents_key(ONE_KEY)?;
    }
    let args = Box::new(line.complete().and_then(|line| args(&line)));
    Ok(Invocation::Doctor { is_json, args })
}

fn args(line: &Line<'_>) -> Result<DoctorArgs, Refusal> {
    let settings = &line.settings;
    let key = match line.words[..] {
        [] => None,
        _ => Some(line.agents_key(ONE_KEY)?),
    };
    let bucket = line.bucket()?;
    let mut faults = Faults::default();
    let timing = resolve::timing(settings, &mut faults);
    let known = |name: &str| {
        let why = || format!("{name}: no finding has this name; see putex help doctor");
        FINDINGS.into_iter().find(|known| *known == name).ok_or_else(why)
    };
    let names = settings.nonblank(Name::Ignore)?.unwrap_or_default();
    let names = names.split(',').filter(|_| line.has(Name::Ignore)).map(known);
    let ignored = names.collect::<Result<_, _>>();
    Ok(DoctorArgs {
        bucket,
        key,
        timing: faults.or_first(timing)?,
        is_timing_given: [Name::Renewal, Name::Failures, Name::Confirmations]
            .into_iter()
            .any(|name| line.has(name)),
        device: settings.parse(Name::Watchdog, device)?,
        ignored: ignored.map_err(|why| settings.usage(Name::Ignore, &why))?,
        samples: settings.value(Name::Samples, "", within(10..=10_000))?,
        is_strict: settings.is_on(Name::Strict),
    })
}

#[cfg(test)]
mod tests;
