//! Resolves settings to the values that an agent runs with: parses them, fills in the
//! defaults, and lists every fault.

use log::Level;

use std::time::Duration;

use super::settings::{Faults, Settings};
use super::table::{Flag, Name, Subcommand};
use super::value::{
    count, descriptor, device, drift_ppm, failback, file, grace, priority, renewal, within,
};
use super::{AgentArgs, BucketArgs, Environment, Location, access};
use crate::command::Commands;
use crate::core::{
    Config, GuardConfig, Instant, Priority, SEATS_MAX, Seat, Timing, wanted_timeout,
};
use crate::exit::{Exit, Refusal};
use crate::guard::protocol;
use crate::store::name::{valid_agents_key, valid_bucket, valid_token};
use crate::sys;

/// Refuses an agent whose user named no location. If it had a lock of its own on each host
/// instead, a forgotten variable would make every host active.
const NO_LOCATION: &str = "is missing; write --nats URL, set NATS_URL, or write nats = URL in \
                           putex.conf(5), or --dir DIR for a lock that covers this host only";

/// The values of settings, and their faults.
#[derive(Debug, Default)]
pub struct Resolved {
    /// The arguments of an agent, if none of the settings that they need is faulty. An
    /// agent runs with them only if there are no faults at all.
    pub args: Option<AgentArgs>,
    /// The location of the lock, if its settings are without faults.
    pub location: Option<Location>,
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
    let mut faults = Faults(found);
    let location = location(settings, &mut faults);
    let bucket = bucket_at(location.clone(), settings, &mut faults);
    let key = faults.note(required(settings, Name::Key));
    let refuse_key = |why: String| settings.usage(Name::Key, &why);
    let key = key.filter(|key| faults.note(valid_agents_key(key).map_err(refuse_key)).is_some());
    let timing = timing(settings, &mut faults);
    let token = faults.note(token(settings, Name::Token, environment.host));
    let device = faults.parse(settings, Name::Watchdog, device);
    if let (Some((_, true)), Some(Err(why))) = (&device, timing.map(wanted_timeout)) {
        faults.0.push(settings.refusal(Name::Watchdog, Exit::Unsafe, &why));
    }
    let commands = commands(settings, &mut faults, key.clone().zip(token));
    let priority = faults.parse(settings, Name::Priority, priority);
    let failback = faults.parse(settings, Name::Failback, failback);
    let seats = faults.parse(settings, Name::Seats, within(1..=SEATS_MAX));
    let last_key = key.zip(seats).map(|(key, seats)| Seat(seats - 1).key(&key));
    let fits = last_key.map_or(Ok(()), |key| valid_agents_key(&key));
    faults.note(fits.map_err(refuse_key));
    let agents = faults.parse(settings, Name::Agents, within(1..=AGENTS_MAX));
    let check_failures = within(1..=CHECK_FAILURES_MAX);
    let check_failures = faults.parse(settings, Name::CheckFailures, check_failures);
    let start_grace = faults.parse(settings, Name::StartGrace, grace);
    let metrics_file = faults.parse(settings, Name::MetricsFile, file);
    let notify_fd = faults.parse(settings, Name::NotifyFd, descriptor);
    let guard = timing.zip(commands).map(|(timing, commands)| protocol::Settings {
        dir: String::new(),
        timing,
        commands,
        device: device.clone(),
        level: level(settings, Level::Info),
        syslog: settings.is_on(Name::Syslog),
        clock: Instant::from_boot(Duration::ZERO),
    });
    if guard.as_ref().is_some_and(|guard| !guard.fits_a_packet()) {
        let why = "the commands together are too long for the guard; put them into scripts";
        faults.0.push(settings.usage(Name::Start, why));
    }
    // `putex finish` needs the arguments even if a setting that stop does not need is faulty.
    let args = bucket.zip(guard).map(|(bucket, guard)| {
        let GuardConfig { timing, last_resort, device } = guard.config();
        let config = Config {
            timing,
            check: guard.commands.check.is_some(),
            start_grace: start_grace.unwrap_or_default(),
            check_failures: check_failures.unwrap_or(1),
            priority: priority.unwrap_or(Priority::FIRST),
            failback: failback.flatten(),
            seats: seats.unwrap_or(1),
            observes: settings.is_on(Name::Observe),
            agents,
            last_resort,
            device,
        };
        AgentArgs { bucket, config, metrics_file, notify_fd, guard }
    });
    Resolved { args, location, device, faults: faults.0 }
}

/// Resolves the commands of an agent with this key and token.
fn commands(
    settings: &Settings,
    faults: &mut Faults,
    agent: Option<(String, String)>,
) -> Option<Commands> {
    let check = faults.nonblank(settings, Name::Healthcheck);
    let last_resort = faults.nonblank(settings, Name::LastResort);
    let on_change = faults.nonblank(settings, Name::OnChange);
    let [start, stop] = [Name::Start, Name::Stop].map(|name| faults.note(required(settings, name)));
    let (key, token) = agent?;
    let (start, stop) = (start?, stop?);
    Some(Commands { check, start, stop, last_resort, on_change, key, token, environment: None })
}

/// Most agents of a key that are known to be due.
const AGENTS_MAX: u32 = 1000;

/// Most failing health checks in a row.
const CHECK_FAILURES_MAX: u32 = 100;

/// Most copies of a bucket: a stream has no more.
const REPLICAS_MAX: u32 = 5;

/// Resolves a bucket in this location, if there is one.
pub(super) fn bucket_at(
    location: Option<Location>,
    settings: &Settings,
    faults: &mut Faults,
) -> Option<BucketArgs> {
    let name = settings.text(Name::Bucket).or_else(|| Name::Bucket.flag().default_value());
    let name = name.unwrap_or_default();
    let valid = valid_bucket(name).map(|()| name.to_owned());
    let name = faults.note(valid.map_err(|why| settings.usage(Name::Bucket, &why)));
    // `putex finish` needs no number of replicas. All others refuse a fault.
    let replicas = faults.parse(settings, Name::Replicas, within(1..=REPLICAS_MAX));
    let allow_memory = settings.is_on(Name::AllowMemory);
    let (location, name) = (location?, name?);
    Some(BucketArgs { location, name, replicas: replicas.unwrap_or(1), allow_memory })
}

/// Returns the location of the lock. A context beside a server only adds to it.
pub(super) fn location(settings: &Settings, faults: &mut Faults) -> Option<Location> {
    if settings.is_in_directory() {
        return faults.note(directory(settings));
    }
    let [nats, dir, context] =
        [Name::Nats, Name::Dir, Name::Context].map(|name| settings.precedence(name));
    let refusal = match nats {
        Some(_) if dir == nats => {
            settings.usage(Name::Dir, "the lock is kept in --nats or in --dir, not in both")
        }
        Some(_) => {
            let access = access::for_servers(settings, faults);
            return access.map(|access| Location::Nats(Box::new(access)));
        }
        // The one that cannot be read may name servers.
        None if context.is_some() && !faults.0.is_empty() => return None,
        None if context.is_some() => {
            let context = settings.text(Name::Context).unwrap_or_default();
            let why = format!("{context}: its url is missing or blank; write it there, or --nats");
            settings.refusal(Name::Context, Exit::Unsafe, &why)
        }
        None => settings.refusal(Name::Nats, Exit::Unsafe, NO_LOCATION),
    };
    faults.note(Err(refusal))
}

fn directory(settings: &Settings) -> Result<Location, Refusal> {
    let dir = settings.nonblank(Name::Dir)?.unwrap_or_default();
    if !dir.starts_with('/') {
        let path = sys::absolute(dir.as_ref());
        let why = match dir.starts_with('~') {
            true => "the shell expands ~ behind a blank only; write it so, not",
            false => "it is relative: from another working directory it is another lock; write",
        };
        return Err(settings.usage(Name::Dir, &format!("{dir}: {why} {}", path.display())));
    }
    access::refuse_beside_dir(settings)?;
    Ok(Location::Dir(dir.into()))
}

/// Returns a setting that every agent has.
fn required(settings: &Settings, name: Name) -> Result<String, Refusal> {
    let Flag { long, value, .. } = name.flag();
    let value = value.to_uppercase();
    let why = format!("is missing; write --{long} {value}, or {long} = {value} in putex.conf(5)");
    settings.nonblank(name)?.ok_or_else(|| settings.usage(name, &why))
}

/// Resolves R, F, C and drift.
pub(super) fn timing(settings: &Settings, faults: &mut Faults) -> Option<Timing> {
    let renewal = faults.note(settings.value(Name::Renewal, "", renewal));
    let failures = faults.note(settings.value(Name::Failures, "", count));
    let confirmations = faults.note(settings.value(Name::Confirmations, "", count));
    let drift = faults.note(settings.value(Name::Drift, "", drift_ppm));
    let timing = Timing::new(renewal?, failures?, confirmations?, drift?);
    let attribute = |text: &str| attribute(settings, Subcommand::Agent, Name::Renewal, text);
    faults.note(timing.map_err(|refused| attribute(&refused.0)))
}

/// Attributes a refusal of the arithmetic to the option of a command that it begins with. If
/// that option has its default, R is the one that does not fit.
pub(super) fn attribute(settings: &Settings, of: Subcommand, renewal: Name, text: &str) -> Refusal {
    let named = text.split_once(": ");
    let named = named.and_then(|(written, why)| Some((Flag::find(written, of)?.name, why)));
    let (name, why) = named.unwrap_or((renewal, text));
    let is_set = settings.get(name).is_some();
    settings.refusal(if is_set { name } else { renewal }, Exit::Unsafe, why)
}

/// Returns the token of a setting, or else the name of the host, if it is this host's own: names
/// that many hosts have are not.
pub(super) fn token(settings: &Settings, name: Name, host: &str) -> Result<String, Refusal> {
    let is_shared = ["", "(none)", "localhost", "localhost.localdomain"].contains(&host);
    let own = || {
        let token = valid_token(host).ok().filter(|_| !is_shared);
        let with_value = name.flag().with_value(&name.flag().shown());
        let why = format!(
            "is missing, and the host name {host:?} is not this host's own; write {with_value}"
        );
        token.ok_or_else(|| settings.usage(name, &why))
    };
    settings.parse(name, valid_token)?.map_or_else(own, Ok)
}

/// Returns the number of the log level, which is `usual` without `-v` and `-q`. Of the two the one
/// with the higher precedence counts.
pub(super) fn level(settings: &Settings, usual: Level) -> u64 {
    let steps = |name| match settings.text(name) {
        Some("yes") if !settings.is_overridden(name) => 1,
        Some("twice") if !settings.is_overridden(name) => 2,
        Some(_) | None => 0,
    };
    let level = (usual as u64 + steps(Name::Verbose)).saturating_sub(steps(Name::Quiet));
    level.clamp(Level::Error as u64, Level::Debug as u64)
}
