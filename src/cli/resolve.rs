//! Resolves settings to the values that an agent runs with: parses them, fills in the
//! defaults, and lists every fault.

use std::path::PathBuf;
use std::time::Duration;

use log::LevelFilter;

use super::access::{self, Access};
use super::settings::{Fault, Faults, Precedence, Settings};
use super::table::Name;
use super::value::{
    check_failures, count, descriptor, device, drift_ppm, duration, grace, replicas,
};
use super::{AgentArgs, Environment, Location, Refusal};
use crate::core::timing::{DRIFT_PPM_DEFAULT, Timing};
use crate::core::watchdog_timeout::wanted_timeout;
use crate::nats::Server;
use crate::store::name::{valid_bucket, valid_key};

/// Longest token that is accepted: a host name has at most 64 bytes on Linux, a
/// domain name 253.
const TOKEN_BYTES_MAX: usize = 255;

/// The values of settings, and their faults.
#[derive(Debug, Default)]
pub struct Resolved {
    /// The arguments of an agent, if none of the settings that they need is faulty. An
    /// agent runs with them only if there are no faults at all.
    pub args: Option<AgentArgs>,
    /// The location of the lock and the access to it, if both are without faults.
    pub location: Option<(Location, Access)>,
    /// The watchdog device, and whether it is required.
    pub device: Option<(String, bool)>,
    /// All faults.
    pub faults: Vec<Refusal>,
}

/// Resolves settings. `found` are the faults that were found before.
pub(super) fn resolve(
    settings: &Settings,
    environment: &Environment<'_>,
    found: Vec<Refusal>,
) -> Resolved {
    let mut faults = Faults::new(settings, found);
    let location = location(&mut faults);
    let access = location.as_ref().and_then(|location| match location {
        Location::Nats(_) | Location::Context => access::for_servers(&mut faults, environment.var),
        Location::Dir(_) | Location::DefaultDir => access::for_dir(&mut faults),
    });
    let location = location.zip(access);
    let bucket = bucket(&mut faults);
    let key = key(&mut faults);
    let timing = timing(&mut faults);
    let token = token(&mut faults, environment.host);
    let device = faults.parse(Name::Watchdog, device);
    if let (Some((_, true)), Some(timing)) = (&device, timing) {
        let fits = wanted_timeout(timing);
        faults.collect(fits.map_err(|why| Fault::unsafe_to_use(Name::Watchdog, why)));
    }
    let (start, stop) = (required(&mut faults, Name::Start), required(&mut faults, Name::Stop));
    let check = faults.text(Name::Healthcheck);
    let check_failures = faults.parse(Name::CheckFailures, check_failures);
    let start_grace = faults.parse(Name::StartGrace, grace);
    let last_resort = faults.text(Name::LastResort);
    let replicas = faults.parse(Name::Replicas, replicas);
    let notify_fd = faults.parse(Name::NotifyFd, descriptor);
    let args = || {
        let (location, access) = location.clone()?;
        Some(AgentArgs {
            location,
            access,
            bucket: bucket?,
            key: key?,
            token: token?,
            check,
            check_failures: check_failures.unwrap_or(1),
            start_grace: start_grace.unwrap_or(Duration::ZERO),
            start: start?,
            stop: stop?,
            last_resort,
            device: device.clone(),
            realtime: settings.is_on(Name::Realtime),
            timing: timing?,
            replicas: replicas.unwrap_or(1),
            allow_memory: settings.is_on(Name::AllowMemory),
            notify_fd,
            syslog: settings.is_on(Name::Syslog),
            level: level(settings),
        })
    };
    let args = args();
    let faults = faults.found;
    Resolved { args, location, device, faults }
}

/// Returns the location of the lock: that of `--nats`, `--dir` and `--context` which has the
/// highest precedence. A context beside a server only adds to it.
fn location(faults: &mut Faults<'_>) -> Option<Location> {
    let settings = faults.settings;
    let [nats, dir, context] =
        [Name::Nats, Name::Dir, Name::Context].map(|name| settings.precedence(name));
    if dir.is_some() && dir == nats {
        let why = "the lock is kept in --nats or in --dir, not in both";
        return faults.collect(Err(Fault::usage(Name::Dir, why)));
    }
    if dir > nats && dir >= context {
        return faults.text(Name::Dir).map(|dir| Location::Dir(PathBuf::from(dir)));
    }
    match settings.text(Name::Nats) {
        Some(urls) => {
            let servers = Server::parse_list(urls);
            let location = servers.map(|_| Location::Nats(urls.to_owned()));
            faults.collect(location.map_err(|error| Fault::usage(Name::Nats, error.to_string())))
        }
        None if context.is_some() => Some(Location::Context),
        None => Some(Location::DefaultDir),
    }
}

fn bucket(faults: &mut Faults<'_>) -> Option<String> {
    let bucket = faults.settings.text(Name::Bucket).unwrap_or("putex").to_owned();
    let valid = valid_bucket(&bucket).map(|()| bucket);
    faults.collect(valid.map_err(|why| Fault::usage(Name::Bucket, why)))
}

fn key(faults: &mut Faults<'_>) -> Option<String> {
    let key = required(faults, Name::Key)?;
    let valid = valid_key(&key).map(|()| key);
    faults.collect(valid.map_err(|why| Fault::usage(Name::Key, why)))
}

fn required(faults: &mut Faults<'_>, name: Name) -> Option<String> {
    match faults.settings.get(name) {
        Some(_) => faults.text(name),
        None => faults.collect(Err(Fault::usage(name, "is missing; see putex --help"))),
    }
}

/// Resolves R, F, C and drift.
pub(super) fn timing(faults: &mut Faults<'_>) -> Option<Timing> {
    let before = faults.found.len();
    let renewal = faults.parse(Name::Renewal, duration);
    let failures = faults.parse(Name::Failures, count);
    let confirmations = faults.parse(Name::Confirmations, count);
    let drift = faults.parse(Name::Drift, drift_ppm);
    if faults.found.len() > before {
        return None;
    }
    let timing = Timing::new(
        renewal.unwrap_or(Duration::from_secs(3)),
        failures.unwrap_or(3),
        confirmations.unwrap_or(2),
        drift.unwrap_or(DRIFT_PPM_DEFAULT),
    );
    let settings = faults.settings;
    faults.collect(timing.map_err(|unsafe_timing| attribute(unsafe_timing.0, settings)))
}

/// Attributes a refusal of the arithmetic to the option that it begins with. If that
/// option has its default, R is the one that does not fit.
fn attribute(text: String, settings: &Settings) -> Fault {
    let names = [
        ("-r: ", Name::Renewal),
        ("-f: ", Name::Failures),
        ("-c: ", Name::Confirmations),
        ("--drift: ", Name::Drift),
    ];
    let named = names.into_iter().find_map(|(shown, name)| Some((name, text.strip_prefix(shown)?)));
    match named {
        Some((name, why)) if settings.get(name).is_none() => {
            Fault::unsafe_to_use(Name::Renewal, why)
        }
        Some((name, why)) => Fault::unsafe_to_use(name, why),
        None => Fault::unsafe_to_use(Name::Renewal, text),
    }
}

fn token(faults: &mut Faults<'_>, host: &str) -> Option<String> {
    let token = match faults.settings.text(Name::Token) {
        Some(token) => valid_token(token),
        None => host_token(host),
    };
    faults.collect(token.map_err(|why| Fault::usage(Name::Token, why)))
}

fn valid_token(token: &str) -> Result<String, String> {
    if token.trim().is_empty() {
        return Err("is empty".to_owned());
    }
    if token.len() > TOKEN_BYTES_MAX {
        return Err(format!(
            "{} bytes are more than the maximum of {TOKEN_BYTES_MAX}",
            token.len()
        ));
    }
    if token.chars().any(char::is_control) || token.trim() != token {
        return Err(format!("{token:?} has blanks around it or control characters in it"));
    }
    Ok(token.to_owned())
}

/// Returns the name of the host as a token. Names that many hosts have are refused.
fn host_token(host: &str) -> Result<String, String> {
    let is_shared = ["", "(none)", "localhost", "localhost.localdomain"].contains(&host);
    match is_shared || valid_token(host).is_err() {
        true => Err(format!("is missing, and the host name {host:?} is not this host's own")),
        false => Ok(host.to_owned()),
    }
}

/// Returns the log level. Of `-v` and `-q` the one with the higher precedence counts.
fn level(settings: &Settings) -> LevelFilter {
    let precedences = [Name::Verbose, Name::Quiet].map(|name| settings.precedence(name));
    let highest: Option<Precedence> = precedences.into_iter().flatten().max();
    let steps = |name| match settings.text(name) {
        Some("yes") if settings.precedence(name) == highest => 1,
        Some("twice") if settings.precedence(name) == highest => 2,
        Some(_) | None => 0,
    };
    match steps(Name::Verbose) - steps(Name::Quiet) {
        ..=-2 => LevelFilter::Error,
        -1 => LevelFilter::Warn,
        0 => LevelFilter::Info,
        1.. => LevelFilter::Debug,
    }
}
