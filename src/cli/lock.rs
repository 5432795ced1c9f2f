//! The command line of `putex lock`: options, a name, and the words of a command, which are
//! its own. It is that of flock(1) as far as that makes sense.

use std::ffi::OsString;
use std::time::Duration;

use super::line::Line;
use super::resolve::attribute;
use super::table::Name;
use super::usage;
use super::value::{count, drift_ppm, is_number, renewal, seconds, within};
use crate::core::tickets::{self, LockTiming, Mode, SLOTS_MAX, Soft};
use crate::exit::Refusal;
use crate::lock::Request;
use crate::store::name::valid_token;

const NO_COMMAND: &str = "COMMAND is missing; write putex lock NAME COMMAND [ARG ...], or \
                          putex lock NAME -c STRING";

const NO_NAME: &str = "NAME is missing; write putex lock NAME COMMAND [ARG ...]";

pub(super) const LIVES_AS_COMMAND: &str = "a lock of putex lives as long as its command, and \
                                           putex stays beside it; for a lock without a command \
                                           write putex grab NAME and putex release NAME";

const ONE_NAME: &str = "a lock has one name; take one lock inside another, or lock a name above, \
                        as in db for db/users and db/orders";

/// Returns what the line asks for.
pub(super) fn request(line: &Line<'_>) -> Result<Request, Refusal> {
    let settings = &line.settings;
    // First the options: one that takes a value may have taken the name or the command.
    let limit = settings.parse(Name::Wait, seconds)?;
    let hold = settings.parse(Name::Hold, seconds)?.unwrap_or_default();
    let timing = timing(line)?;
    let [text] = &line.words[..] else { return Err(usage(NO_NAME.to_owned())) };
    if line.rest.is_empty() && is_number(text) {
        return Err(usage(format!("{text}: a descriptor cannot be locked: {LIVES_AS_COMMAND}")));
    }
    let name = match name(text) {
        // A command stands where the name has to be.
        Err(_) if line.rest.is_empty() && text.contains(['/', ' ']) => {
            return Err(usage(format!("NAME is missing; write putex lock NAME {text}")));
        }
        name => name?,
    };
    let command = command(line)?;
    let of_host = || {
        let host = line.environment.host;
        valid_token(host).map_err(|why| settings.usage(Name::Token, &format!("{host:?}: {why}")))
    };
    Ok(Request {
        name,
        mode: mode(line)?,
        soft: soft(line)?,
        wait: if settings.is_on(Name::NoWait) { Some(Duration::ZERO) } else { limit },
        timing,
        busy_status: settings.value(Name::BusyStatus, "", within(0..=u8::MAX))?,
        token: settings.parse(Name::Token, valid_token)?.map_or_else(of_host, Ok)?,
        closes: settings.is_on(Name::Close),
        hold,
        report: settings.nonblank(Name::Report)?,
        command,
        level: line.level(),
    })
}

pub(super) fn name(text: &str) -> Result<tickets::Name, Refusal> {
    let parsed = match text.contains(',') {
        true => Err(ONE_NAME.to_owned()),
        false => tickets::Name::parse(text),
    };
    parsed.map_err(|why| refuse_name(text, &why))
}

/// Returns the refusal of a name of a lock or lease.
pub(super) fn refuse_name(text: &str, why: &str) -> Refusal {
    usage(if text.is_empty() { format!("NAME {why}") } else { format!("NAME: {text}: {why}") })
}

fn command(line: &Line<'_>) -> Result<Vec<OsString>, Refusal> {
    let no_command = || usage(NO_COMMAND.to_owned());
    let [first, others @ ..] = &line.rest[..] else { return Err(no_command()) };
    let option = first.to_str().filter(|word| word.starts_with('-'));
    match (option, others) {
        (None, _) => Ok(line.rest.clone()),
        (Some("--"), []) => Err(no_command()),
        (Some("--"), command) => Ok(command.to_vec()),
        (Some("-c" | "--command"), [string]) => {
            let shell = (line.environment.var)("SHELL").filter(|shell| !shell.is_empty());
            Ok(vec![shell.unwrap_or_else(|| "/bin/sh".into()), "-c".into(), string.clone()])
        }
        (Some(option @ ("-c" | "--command")), _) => {
            Err(usage(format!("{option}: write one word behind it, the whole command")))
        }
        (Some(option), _) => Err(usage(format!(
            "{option}: options come before the name; write -- before a command that begins with -"
        ))),
    }
}

/// Returns whether others may hold the lock at the same time.
pub(super) fn mode_of(line: &Line<'_>) -> Mode {
    if line.settings.is_on(Name::Shared) { Mode::Shared } else { Mode::Exclusive }
}

/// Returns how many may hold the lock.
fn mode(line: &Line<'_>) -> Result<Mode, Refusal> {
    match line.settings.parse(Name::Slots, within(1..=SLOTS_MAX))? {
        None => Ok(mode_of(line)),
        Some(_) if line.has(Name::Shared) || line.has(Name::Exclusive) => {
            let why = "cannot be with -s or -x; a lock with slots is held by so many at once";
            Err(line.settings.usage(Name::Slots, why))
        }
        Some(count) => Ok(Mode::Slots(count)),
    }
}

/// Returns whether others go first; `None` without an option for that.
fn soft(line: &Line<'_>) -> Result<Option<Soft>, Refusal> {
    let settings = &line.settings;
    let given =
        [Name::QuietFor, Name::HardAfter, Name::Soft].into_iter().find(|name| line.has(*name));
    let Some(name) = given else { return Ok(None) };
    let conflict = if settings.is_on(Name::Shared) {
        "cannot be with -s; shared locks do not exclude each other"
    } else if line.has(Name::Slots) {
        "cannot be with -j; write one of them"
    } else if name == Name::HardAfter && !line.has(Name::Soft) {
        "says when --soft or --quiet-for ends; write one of them too"
    } else {
        let quiet_for = settings.parse(Name::QuietFor, seconds)?.unwrap_or_default();
        let hard_after = settings.parse(Name::HardAfter, seconds)?;
        return Ok(Some(Soft { quiet_for, hard_after }));
    };
    Err(settings.usage(name, conflict))
}

/// Returns R, F, drift, and the time between the two signals.
fn timing(line: &Line<'_>) -> Result<LockTiming, Refusal> {
    let settings = &line.settings;
    let kill_after = settings.value(Name::KillAfter, "", seconds)?;
    let renewal = settings.value(Name::LockRenewal, "", renewal)?;
    let failures = settings.value(Name::LockFailures, "", count)?;
    let drift = settings.value(Name::Drift, "", drift_ppm)?;
    let timing = LockTiming::new(renewal, failures, drift, kill_after);
    timing.map_err(|refused| {
        // F stands for C, too, which a lock does not have.
        let of_lock = refused.0.split("; -c: ").next().unwrap_or_default();
        attribute(settings, line.of, Name::LockRenewal, of_lock)
    })
}

#[cfg(test)]
mod tests;
