//! The command line of `putex lock`: options, a name, and the words of a command, which are
//! its own. It is that of flock(1) as far as that makes sense.

use std::ffi::OsString;
use std::time::Duration;

use log::Level;

use super::settings::{Faults, Settings};
use super::table::{Flag, Name, Subcommand};
use super::value::{count, drift_ppm, renewal, seconds, slots, status};
use super::{BucketArgs, Environment, Invocation, resolve, usage, utf8};
use crate::core::tickets::{self, LockTiming, Mode, Soft};
use crate::exit::Refusal;
use crate::lock::{Request, Wait};
use crate::store::name::valid_token;

/// The arguments of `putex lock`, each of them valid.
#[derive(Debug)]
pub struct LockArgs {
    /// The bucket.
    pub bucket: BucketArgs,
    /// What is asked for.
    pub request: Request,
}

/// Options of flock(1) for a lock that is held by an open file, and not by a process.
const FOR_DESCRIPTORS: [&str; 4] = ["-u", "--unlock", "-F", "--no-fork"];

const NO_COMMAND: &str = "COMMAND is missing; write putex lock NAME COMMAND [ARG ...], or \
                          putex lock NAME -c STRING";

const NO_NAME: &str = "NAME is missing; write putex lock NAME COMMAND [ARG ...]";

const LIVES_AS_COMMAND: &str = "a lock of putex lives as long as its command, and putex stays \
                                beside it; for a lock without a command write putex grab NAME \
                                and putex release NAME";

const ONE_NAME: &str = "a lock has one name; take one lock inside another, or lock a name above, \
                        as in db for db/users and db/orders";

const SHELL: &str = "/bin/sh";

/// Returns the refusal of an option that flock(1) has and putex has not; `None` if it is
/// another one.
pub(super) fn refuse_option(written: &str) -> Option<Refusal> {
    let is_for_descriptors = FOR_DESCRIPTORS.contains(&written);
    is_for_descriptors.then(|| usage(format!("{written}: {LIVES_AS_COMMAND}")))
}

/// Returns the refusal of an option that stands before the name and belongs behind it.
pub(super) fn refuse_early(written: &str) -> Refusal {
    usage(format!("{written}: it comes behind the name; write putex lock NAME -c STRING"))
}

/// Returns the refusal of a line without a name.
pub(super) fn refuse_no_name(settings: &Settings) -> Refusal {
    refuse_missing(settings, usage(NO_NAME.to_owned()))
}

/// Returns the refusal of a line in which a word is missing: an option that takes a value may have
/// taken it.
fn refuse_missing(settings: &Settings, missing: Refusal) -> Refusal {
    let mut faults = Faults { settings, found: Vec::new() };
    for name in [Name::Wait, Name::Hold, Name::KillAfter] {
        faults.parse(name, seconds);
    }
    faults.parse(Name::LockRenewal, renewal);
    faults.found.into_iter().next().unwrap_or(missing)
}

/// Returns the invocation with these options, this name and the words behind it.
pub(super) fn invocation(
    settings: Settings,
    word: OsString,
    rest: Vec<OsString>,
    environment: &Environment<'_>,
) -> Result<Invocation, Refusal> {
    let text = utf8("NAME", word)?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if rest.is_empty() && is_number {
        let why = format!("{text}: a descriptor cannot be locked: {LIVES_AS_COMMAND}");
        return Err(usage(why));
    }
    let name = name(&text)?;
    let command = match rest.is_empty() {
        true => return Err(refuse_missing(&settings, usage(NO_COMMAND.to_owned()))),
        false => command(rest, environment)?,
    };
    let resolve = |faults: &mut Faults<'_>| resolve(faults, name, command, environment);
    let args = resolve::all(settings, environment, resolve)?;
    Ok(Invocation::Lock(Box::new(args)))
}

/// Parses the name of a lock.
pub(super) fn name(text: &str) -> Result<tickets::Name, Refusal> {
    let parsed = match text.contains(',') {
        true => Err(ONE_NAME.to_owned()),
        false => tickets::Name::parse(text),
    };
    parsed.map_err(|why| usage(format!("NAME: {text}: {why}")))
}

/// Returns the words of the command.
fn command(rest: Vec<OsString>, environment: &Environment<'_>) -> Result<Vec<OsString>, Refusal> {
    let mut words = rest.into_iter();
    let no_command = || usage(NO_COMMAND.to_owned());
    let first = words.next().ok_or_else(no_command)?;
    let Some(option) = first.to_str().filter(|word| word.starts_with('-')).map(str::to_owned)
    else {
        return Ok([first].into_iter().chain(words).collect());
    };
    if option == "--" {
        let command: Vec<OsString> = words.collect();
        return Some(command).filter(|words| !words.is_empty()).ok_or_else(no_command);
    }
    let is_string =
        Flag::find(&option, Subcommand::Lock).is_some_and(|flag| flag.name == Name::CommandString);
    if !is_string {
        return Err(usage(format!(
            "{option}: options come before the name; write -- before a command that begins with -"
        )));
    }
    let (Some(string), None) = (words.next(), words.next()) else {
        return Err(usage(format!("{option}: write one word behind it, the whole command")));
    };
    let shell = (environment.var)("SHELL").filter(|shell| !shell.is_empty());
    Ok(vec![shell.unwrap_or_else(|| SHELL.into()), "-c".into(), string])
}

/// Resolves the settings; `None` if there is a fault.
fn resolve(
    faults: &mut Faults<'_>,
    name: tickets::Name,
    command: Vec<OsString>,
    environment: &Environment<'_>,
) -> Option<LockArgs> {
    let settings = faults.settings;
    let bucket = resolve::bucket(faults, environment.var);
    let token = settings.text(Name::Token).unwrap_or(environment.host);
    let token = faults.collect(Name::Token, valid_token(token));
    let busy_status = faults.parse(Name::BusyStatus, status);
    let limit = faults.parse(Name::Wait, seconds);
    let wait = match settings.is_on(Name::NoWait) {
        true => Wait::For(Duration::ZERO),
        false => limit.map_or(Wait::Forever, Wait::For),
    };
    let timing = timing(faults);
    let mode = mode(faults);
    let soft = soft(faults);
    let hold = faults.parse(Name::Hold, seconds).unwrap_or_default();
    let report = faults.text(Name::Report);
    let request = Request {
        name,
        mode: mode?,
        soft: soft?,
        wait,
        timing: timing?,
        busy_status: busy_status?,
        token: token?,
        closes: settings.is_on(Name::Close),
        hold,
        report,
        command,
        level: resolve::level(settings, Level::Warn),
    };
    Some(LockArgs { bucket: bucket?, request })
}

/// Resolves how many may hold the lock.
fn mode(faults: &mut Faults<'_>) -> Option<Mode> {
    let is_shared = faults.settings.is_on(Name::Shared);
    if faults.settings.text(Name::Slots).is_none() {
        return Some(if is_shared { Mode::Shared } else { Mode::Exclusive });
    }
    let count = match faults.parse(Name::Slots, slots)? {
        _ if is_shared => Err("cannot be with -s; a lock with slots is held by so many at once"),
        count => Ok(count),
    };
    faults.collect(Name::Slots, count.map_err(str::to_owned)).map(Mode::Slots)
}

/// Resolves whether others go first; `None` in it without an option for that.
fn soft(faults: &mut Faults<'_>) -> Option<Option<Soft>> {
    let settings = faults.settings;
    let given = [Name::QuietFor, Name::HardAfter].map(|name| settings.text(name).is_some());
    let name = match given {
        [true, _] => Name::QuietFor,
        [_, true] => Name::HardAfter,
        _ if settings.is_on(Name::Soft) => Name::Soft,
        _ => return Some(None),
    };
    let conflict = if settings.is_on(Name::Shared) {
        Some("cannot be with -s; shared locks do not exclude each other")
    } else if settings.text(Name::Slots).is_some() {
        Some("cannot be with -j; write one of them")
    } else if name == Name::HardAfter && !settings.is_on(Name::Soft) {
        Some("says when --soft or --quiet-for ends; write one of them too")
    } else {
        None
    };
    if let Some(why) = conflict {
        return faults.collect(name, Err(why.to_owned()));
    }
    let [quiet, hard] = given;
    let quiet_for = if quiet { faults.parse(Name::QuietFor, seconds)? } else { Duration::ZERO };
    let hard_after = if hard { Some(faults.parse(Name::HardAfter, seconds)?) } else { None };
    Some(Some(Soft { quiet_for, hard_after }))
}

/// Resolves R, F, drift, and the time between the two signals.
fn timing(faults: &mut Faults<'_>) -> Option<LockTiming> {
    let renewal = faults.parse(Name::LockRenewal, renewal);
    let failures = faults.parse(Name::LockFailures, count);
    let drift = faults.parse(Name::Drift, drift_ppm);
    let kill_after = faults.parse(Name::KillAfter, seconds);
    match LockTiming::new(renewal?, failures?, drift?, kill_after?) {
        Ok(timing) => Some(timing),
        Err(refused) => resolve::attribute(faults, Subcommand::Lock, Name::LockRenewal, &refused.0),
    }
}

#[cfg(test)]
mod tests;
