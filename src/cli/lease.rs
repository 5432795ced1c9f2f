//! The command lines of `putex lease` and `putex put`.

use std::time::Duration;

use log::Level;

use super::resolve;
use super::settings::{Faults, Settings};
use super::table::{Name, Subcommand, nearest};
use super::value::{drift_ppm, long_time, seconds};
use super::{BucketArgs, Environment, Invocation, usage};
use crate::core::Percent;
use crate::core::lease::LeaseTask;
use crate::core::tickets;
use crate::core::tickets::grab::LIFETIME_MAX;
use crate::core::timing::DRIFT_PPM_MAX;
use crate::exit::{Exit, Refusal};
use crate::lease::{Put, Request, Task};
use crate::store::name::{is_own, valid_key};

/// What is done with leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseSubcommand {
    /// A lease is claimed.
    Claim,
    /// It is made to end later.
    Extend,
    /// Whether it stands is asked.
    Check,
    /// One that has run out is removed.
    Expire,
    /// All of them are listed.
    List,
}

impl LeaseSubcommand {
    /// All of them, in the order of the help text.
    pub const ALL: [LeaseSubcommand; 5] = [
        LeaseSubcommand::Claim,
        LeaseSubcommand::Extend,
        LeaseSubcommand::Check,
        LeaseSubcommand::Expire,
        LeaseSubcommand::List,
    ];

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            LeaseSubcommand::Claim => "claim",
            LeaseSubcommand::Extend => "extend",
            LeaseSubcommand::Check => "check",
            LeaseSubcommand::Expire => "expire",
            LeaseSubcommand::List => "list",
        }
    }

    /// Returns the subcommand of this name.
    pub fn of(name: &str) -> Option<LeaseSubcommand> {
        LeaseSubcommand::ALL.into_iter().find(|subcommand| subcommand.name() == name)
    }
}

/// The shortest lease.
const FOR_MIN: Duration = Duration::from_secs(1);

/// The longest time for which a lease is asked for: with the drift, it stays below
/// [`LIFETIME_MAX`].
const FOR_MAX: Duration = Duration::from_secs(75 * 60);

/// The arguments of `putex lease` or `putex put`, each of them valid.
#[derive(Debug)]
pub struct LeaseArgs {
    /// The bucket.
    pub bucket: BucketArgs,
    /// What is asked for.
    pub action: Action,
}

/// What is asked for.
#[derive(Debug)]
pub enum Action {
    /// Something with leases.
    Lease(Request),
    /// A write under a lease.
    Put(Put),
}

/// The words of the line.
enum Words {
    Lease(LeaseSubcommand, Option<tickets::Name>),
    Put(String, Option<String>),
}

/// Returns the invocation with these options and words.
pub(super) fn invocation(
    of: Subcommand,
    settings: Settings,
    words: Vec<String>,
    environment: &Environment<'_>,
) -> Result<Invocation, Refusal> {
    let words = if of == Subcommand::Put { put_words(words)? } else { lease_words(words)? };
    let resolve = |faults: &mut Faults<'_>| resolve(faults, words, environment);
    let args = resolve::all(settings, environment, resolve)?;
    Ok(Invocation::Lease(Box::new(args)))
}

fn lease_words(words: Vec<String>) -> Result<Words, Refusal> {
    let mut words = words.into_iter();
    let all = "write putex lease claim, extend, check or expire NAME, or putex lease list";
    let Some(word) = words.next() else { return Err(usage(all.to_owned())) };
    let Some(subcommand) = LeaseSubcommand::of(&word) else {
        let instead = match &*word {
            "keep" | "refresh" | "renew" => "write putex lease extend NAME --for TIME".to_owned(),
            "put" | "set" => "write putex put --lease NAME KEY VALUE".to_owned(),
            "give" | "release" | "revoke" | "unlock" => {
                let why = "no lease is given back early";
                format!("{why}; putex lease expire NAME removes one that has run out")
            }
            _ => {
                let nearest = nearest(
                    &word,
                    LeaseSubcommand::ALL.map(|subcommand| subcommand.name().to_owned()),
                );
                format!("no such command{nearest}; {all}")
            }
        };
        return Err(usage(format!("lease {word}: {instead}")));
    };
    let (name, more) = (words.next(), words.next());
    if let Some(more) = more {
        return Err(usage(format!("{more}: unexpected argument; one name at a time")));
    }
    let parse = |text: String| {
        tickets::Name::parse(&text).map_err(|why| usage(format!("NAME: {text}: {why}")))
    };
    let name = name.map(parse).transpose()?;
    if name.is_none() && subcommand != LeaseSubcommand::List {
        return Err(usage(format!(
            "NAME is missing; write putex lease {} NAME",
            subcommand.name()
        )));
    }
    Ok(Words::Lease(subcommand, name))
}

fn put_words(words: Vec<String>) -> Result<Words, Refusal> {
    let mut words = words.into_iter();
    let (key, value, more) = (words.next(), words.next(), words.next());
    if let Some(more) = more {
        return Err(usage(format!("{more}: unexpected argument; quote a value with blanks")));
    }
    let key = key.ok_or_else(|| {
        usage("KEY is missing; write putex put --lease NAME KEY VALUE".to_owned())
    })?;
    valid_key(&key).map_err(|why| usage(format!("KEY: {why}")))?;
    if is_own(&key) {
        let why = "putex keeps locks, leases and notes below it; write another key";
        return Err(usage(format!("KEY: {key}: {why}")));
    }
    Ok(Words::Put(key, value))
}

/// Resolves the settings; `None` if there is a fault.
fn resolve(
    faults: &mut Faults<'_>,
    words: Words,
    environment: &Environment<'_>,
) -> Option<LeaseArgs> {
    let settings = faults.settings;
    let bucket = resolve::bucket(faults, environment.var);
    let level = resolve::level(settings, Level::Warn);
    let action = match words {
        Words::Lease(subcommand, name) => {
            let who = resolve::who(faults, Name::LeaseAs, environment);
            let drift_ppm = drift(faults);
            let task = task(faults, subcommand, name, who.as_deref());
            let (task, who, drift_ppm) = (task?, who?, drift_ppm?);
            Action::Lease(Request { task, who, drift_ppm, level })
        }
        Words::Put(key, value) => {
            let holder = resolve::who(faults, Name::As, environment);
            let lease = lease(faults);
            let (lease, holder) = (lease?, holder?);
            Action::Put(Put { lease, holder, key, value, level })
        }
    };
    Some(LeaseArgs { bucket: bucket?, action })
}

fn task(
    faults: &mut Faults<'_>,
    subcommand: LeaseSubcommand,
    name: Option<tickets::Name>,
    who: Option<&str>,
) -> Option<Task> {
    for (option, takers) in [
        (Name::LeaseFor, &[LeaseSubcommand::Claim, LeaseSubcommand::Extend][..]),
        (Name::LeaseAs, &[LeaseSubcommand::Claim, LeaseSubcommand::Extend, LeaseSubcommand::Check]),
        (Name::ExpireWait, &[LeaseSubcommand::Expire]),
    ] {
        if faults.settings.get(option).is_some() && !takers.contains(&subcommand) {
            let why = match (option, subcommand) {
                (Name::ExpireWait, LeaseSubcommand::Claim | LeaseSubcommand::Extend) => {
                    "nobody waits for a lease; for a queue, see putex grab".to_owned()
                }
                _ => format!("not an option of putex lease {}", subcommand.name()),
            };
            return faults.usage(option, &why);
        }
    }
    let Some(name) = name else { return Some(Task::List(None)) };
    let task = match subcommand {
        LeaseSubcommand::Claim => {
            let at_least = at_least(faults, subcommand);
            LeaseTask::Claim { holder: who?.to_owned(), at_least: at_least? }
        }
        LeaseSubcommand::Extend => {
            let at_least = at_least(faults, subcommand);
            LeaseTask::Extend { holder: who?.to_owned(), at_least: at_least? }
        }
        LeaseSubcommand::Expire => {
            let wait = faults.settings.get(Name::ExpireWait).is_some();
            let wait = match wait {
                true => faults.parse(Name::ExpireWait, seconds)?,
                false => Duration::ZERO,
            };
            LeaseTask::Expire { wait }
        }
        LeaseSubcommand::Check => {
            let holder = faults.settings.get(Name::LeaseAs).and(who).map(str::to_owned);
            LeaseTask::Check { holder }
        }
        LeaseSubcommand::List => return Some(Task::List(Some(name))),
    };
    Some(Task::One(name, task))
}

/// Resolves for how long a lease is asked for.
fn at_least(faults: &mut Faults<'_>, subcommand: LeaseSubcommand) -> Option<Duration> {
    if faults.settings.get(Name::LeaseFor).is_none() {
        let why = format!("is missing; write putex lease {} NAME --for 60s", subcommand.name());
        return faults.refuse(Name::LeaseFor, Exit::Usage, &why);
    }
    time_of_lease(faults, Name::LeaseFor)
}

/// Resolves how far clocks may be off.
pub(super) fn drift(faults: &mut Faults<'_>) -> Option<u32> {
    let drift_ppm = faults.parse(Name::Drift, drift_ppm)?;
    if drift_ppm <= DRIFT_PPM_MAX {
        return Some(drift_ppm);
    }
    let (given, most) = (Percent(drift_ppm), Percent(DRIFT_PPM_MAX));
    let why = format!("{given} is more than the maximum of {most}");
    faults.refuse(Name::Drift, Exit::Unsafe, &why)
}

/// Resolves the time of a lease in this option.
pub(super) fn time_of_lease(faults: &mut Faults<'_>, option: Name) -> Option<Duration> {
    let time = faults.parse(option, long_time)?;
    if (FOR_MIN..=FOR_MAX).contains(&time) {
        return Some(time);
    }
    let why = "write 1s to 75m; whoever needs a lease for longer extends it";
    faults.usage(option, why)
}

/// Resolves the lease of a write.
fn lease(faults: &mut Faults<'_>) -> Option<tickets::Name> {
    if faults.settings.get(Name::Lease).is_none() {
        let why = "is missing; write putex put --lease NAME KEY VALUE";
        return faults.refuse(Name::Lease, Exit::Usage, why);
    }
    let text = faults.text(Name::Lease)?;
    let name = tickets::Name::parse(&text).map_err(|why| format!("{text}: {why}"));
    faults.collect(Name::Lease, name)
}

const _: () = assert!(FOR_MAX.as_secs() * 5 / 4 <= LIFETIME_MAX.as_secs());

#[cfg(test)]
mod tests;
