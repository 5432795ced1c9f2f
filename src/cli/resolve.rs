//! What an agent is asked for: settings made into values, defaults put in, and every
//! fault of them told.

use std::path::PathBuf;
use std::time::Duration;

use log::LevelFilter;

use super::access::{self, Access};
use super::settings::{Fault, Faults, Rank, Settings};
use super::table::Name;
use super::value::{count, descriptor, device, drift_ppm, duration, replicas};
use super::{AgentArgs, Place, Refusal, World};
use crate::core::timing::{DRIFT_PPM_DEFAULT, Timing};
use crate::core::watchdog_timeout::wanted_timeout;
use crate::nats::Server;
use crate::store::name::{valid_bucket, valid_key};

/// Longest token that is accepted: a host name has at most 64 bytes on Linux, a
/// domain name 253.
const TOKEN_BYTES_MAX: usize = 255;

/// What settings come to.
#[derive(Debug, Default)]
pub struct Asked {
    /// All of it, where nothing that it takes is wrong. An agent runs by it only if
    /// nothing at all is.
    pub args: Option<AgentArgs>,
    /// Where the lock is and how that is reached, where nothing is wrong with that.
    pub way: Option<(Place, Access)>,
    /// The watchdog device, and whether it is required.
    pub device: Option<(String, bool)>,
    /// Everything that is wrong.
    pub faults: Vec<Refusal>,
}

/// Makes values of settings. `faults` are those that were found already.
pub(super) fn asked(settings: &Settings, world: &World<'_>, faults: Vec<Refusal>) -> Asked {
    let mut faults = Faults {
        settings,
        found: faults,
    };
    let place = place(&mut faults);
    let access = place.as_ref().and_then(|place| match place {
        Place::Nats(_) | Place::Context => access::with_server(&mut faults, world.var),
        Place::Dir(_) | Place::DefaultDir => access::without_server(&mut faults),
    });
    let way = place.zip(access);
    let bucket = bucket(&mut faults);
    let key = key(&mut faults);
    let timing = timing(&mut faults);
    let token = token(&mut faults, world.host);
    let device = faults.read(Name::Watchdog, device);
    if let (Some((_, true)), Some(timing)) = (&device, timing) {
        let fits = wanted_timeout(timing);
        faults.take(fits.map_err(|why| Fault::unsafe_to_use(Name::Watchdog, why)));
    }
    let (start, stop) = (
        needed(&mut faults, Name::Start),
        needed(&mut faults, Name::Stop),
    );
    let check = faults.text(Name::Healthcheck);
    let last_resort = faults.text(Name::LastResort);
    let copies = faults.read(Name::Replicas, replicas);
    let notify_fd = faults.read(Name::NotifyFd, descriptor);
    let whole = || {
        let (place, access) = way.clone()?;
        Some(AgentArgs {
            place,
            access,
            bucket: bucket?,
            key: key?,
            token: token?,
            check,
            start: start?,
            stop: stop?,
            last_resort,
            device: device.clone(),
            realtime: settings.is_on(Name::Realtime),
            timing: timing?,
            replicas: copies.unwrap_or(1),
            allow_memory: settings.is_on(Name::AllowMemory),
            notify_fd,
            syslog: settings.is_on(Name::Syslog),
            level: level(settings),
        })
    };
    let args = whole();
    let faults = faults.found;
    Asked {
        args,
        way,
        device,
        faults,
    }
}

/// Of a server, a directory and a context, the strongest says where the lock is. What is
/// of a context comes after all else, so that one beside a server adds to it.
fn place(faults: &mut Faults<'_>) -> Option<Place> {
    let settings = faults.settings;
    let [nats, dir, context] =
        [Name::Nats, Name::Dir, Name::Context].map(|name| settings.rank(name));
    if dir.is_some() && dir == nats {
        let why = "the lock is kept in --nats or in --dir, not in both";
        return faults.take(Err(Fault::usage(Name::Dir, why)));
    }
    if dir > nats && dir >= context {
        return faults
            .text(Name::Dir)
            .map(|dir| Place::Dir(PathBuf::from(dir)));
    }
    match settings.text(Name::Nats) {
        Some(urls) => {
            let servers = Server::parse_list(urls);
            let named = servers.map(|_| Place::Nats(urls.to_owned()));
            faults.take(named.map_err(|error| Fault::usage(Name::Nats, error.to_string())))
        }
        None if context.is_some() => Some(Place::Context),
        None => Some(Place::DefaultDir),
    }
}

fn bucket(faults: &mut Faults<'_>) -> Option<String> {
    let bucket = faults
        .settings
        .text(Name::Bucket)
        .unwrap_or("putex")
        .to_owned();
    let valid = valid_bucket(&bucket).map(|()| bucket);
    faults.take(valid.map_err(|why| Fault::usage(Name::Bucket, why)))
}

fn key(faults: &mut Faults<'_>) -> Option<String> {
    let key = needed(faults, Name::Key)?;
    let valid = valid_key(&key).map(|()| key);
    faults.take(valid.map_err(|why| Fault::usage(Name::Key, why)))
}

fn needed(faults: &mut Faults<'_>, name: Name) -> Option<String> {
    match faults.settings.get(name) {
        Some(_) => faults.text(name),
        None => faults.take(Err(Fault::usage(name, "is missing; see putex --help"))),
    }
}

/// Makes R, F, C and drift of settings.
pub(super) fn timing(faults: &mut Faults<'_>) -> Option<Timing> {
    let wrong = faults.found.len();
    let renewal = faults.read(Name::Renewal, duration);
    let failures = faults.read(Name::Failures, count);
    let confirmations = faults.read(Name::Confirmations, count);
    let drift = faults.read(Name::Drift, drift_ppm);
    if faults.found.len() > wrong {
        return None;
    }
    let timing = Timing::new(
        renewal.unwrap_or(Duration::from_secs(3)),
        failures.unwrap_or(3),
        confirmations.unwrap_or(2),
        drift.unwrap_or(DRIFT_PPM_DEFAULT),
    );
    let settings = faults.settings;
    faults.take(timing.map_err(|refused| blame(refused.0, settings)))
}

/// A refusal of the arithmetic begins with the option that it is about. Where that is its
/// default, what does not fit to it is R.
fn blame(text: String, settings: &Settings) -> Fault {
    let names = [
        ("-r: ", Name::Renewal),
        ("-f: ", Name::Failures),
        ("-c: ", Name::Confirmations),
        ("--drift: ", Name::Drift),
    ];
    let about = names
        .into_iter()
        .find_map(|(shown, name)| Some((name, text.strip_prefix(shown)?)));
    match about {
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
    faults.take(token.map_err(|why| Fault::usage(Name::Token, why)))
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
        return Err(format!(
            "{token:?} has blanks around it or control characters in it"
        ));
    }
    Ok(token.to_owned())
}

/// The host's name, unless every host that was not set up has it.
fn host_token(host: &str) -> Result<String, String> {
    let common = ["", "(none)", "localhost", "localhost.localdomain"].contains(&host);
    match common || valid_token(host).is_err() {
        true => Err(format!(
            "is missing, and the host name {host:?} is not this host's own"
        )),
        false => Ok(host.to_owned()),
    }
}

/// Of what makes the log longer or shorter, the strongest counts.
fn level(settings: &Settings) -> LevelFilter {
    let rank = [Name::Verbose, Name::Quiet].map(|name| settings.rank(name));
    let strongest: Option<Rank> = rank.into_iter().flatten().max();
    let steps = |name| match settings.text(name) {
        Some("yes") if settings.rank(name) == strongest => 1,
        Some("twice") if settings.rank(name) == strongest => 2,
        Some(_) | None => 0,
    };
    match steps(Name::Verbose) - steps(Name::Quiet) {
        ..=-2 => LevelFilter::Error,
        -1 => LevelFilter::Warn,
        0 => LevelFilter::Info,
        1.. => LevelFilter::Debug,
    }
}
