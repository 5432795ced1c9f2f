//! Resolves settings to the values that an agent runs with: parses them, fills in the
//! defaults, and lists every fault.

use log::Level;

use std::time::Duration;

use super::access;
use super::config::{self, Config};
use super::connect::location_id;
use super::settings::{Faults, Settings};
use super::table::{Flag, Name, Subcommand};
use super::value::{
    agents, check_failures, count, descriptor, device, drift_ppm, failback, file, grace, priority,
    renewal, replicas, seats,
};
use super::{AgentArgs, BucketArgs, Environment, Location, Lookup, usage};
use crate::command::Commands;
use crate::core::{Instant, Priority, Seat, Timing, wanted_timeout};
use crate::exit::{Exit, Refusal};
use crate::guard::protocol;
use crate::status::Source;
use crate::store::name::{valid_agents_key, valid_bucket, valid_token};
use crate::sys;

/// Refuses an agent whose user named no location. If it had a lock of its own on each host
/// instead, a forgotten variable would make every host active.
const NO_LOCATION: &str = "is missing; write --nats URL, or nats = URL in putex.conf(5), or \
                           --dir DIR for a lock that covers this host only";

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

/// Returns the arguments that `resolve` makes of the settings of the command line, with those of
/// the environment and of the file added.
///
/// # Errors
///
/// The first fault of the settings.
pub(super) fn all<T>(
    mut settings: Settings,
    environment: &Environment<'_>,
    resolve: impl FnOnce(&mut Faults<'_>) -> Option<T>,
) -> Result<T, Refusal> {
    settings.add_environment(environment.var)?;
    let Config { settings: of_file, faults, .. } = config::load(&settings, environment.read);
    settings.add(of_file);
    let mut faults = Faults { settings: &settings, found: faults };
    // The settings that seem to be missing are in a file that could not be read.
    let args = match faults.found.is_empty() {
        true => resolve(&mut faults),
        false => None,
    };
    match args {
        Some(args) if faults.found.is_empty() => Ok(args),
        // Without arguments there is a fault.
        Some(_) | None => Err(faults.found.swap_remove(0)),
    }
}

/// Resolves the name of the host or script that asks: that of the option, or the token.
pub(super) fn who(
    faults: &mut Faults<'_>,
    option: Name,
    environment: &Environment<'_>,
) -> Option<String> {
    let who = faults.settings.text(option).or(faults.settings.text(Name::Token));
    let who = who.map_or_else(|| valid_host(environment.host), valid_token);
    faults.collect(option, who)
}

/// Returns the key of agents that is the only word of a command which is used so.
pub(super) fn only_key(words: &[String], usual: &str) -> Result<String, Refusal> {
    match words {
        [key] => agents_key(key).map(|()| key.clone()),
        [] => Err(usage(format!("KEY is missing; write {usual}"))),
        [_, more, ..] => Err(usage(format!("{more}: unexpected argument; write {usual}"))),
    }
}

/// Checks the key of agents on a command line.
pub(super) fn agents_key(key: &str) -> Result<(), Refusal> {
    valid_agents_key(key).map_err(|why| usage(format!("KEY: {why}")))
}

/// Returns who asks, for people.
pub(super) fn requester(environment: &Environment<'_>) -> String {
    let user = (environment.var)("USER").and_then(|user| user.into_string().ok());
    let user = user.unwrap_or_else(|| match sys::user_id() {
        0 => "root".to_owned(),
        other => format!("user {other}"),
    });
    format!("{user}@{}", environment.host)
}

/// Resolves settings. `found` are the faults that were found before.
pub(super) fn resolve(
    settings: &Settings,
    environment: &Environment<'_>,
    found: Vec<Refusal>,
) -> Resolved {
    let mut faults = Faults { settings, found };
    let location = location(&mut faults, environment.var);
    let bucket = bucket_at(location.clone(), &mut faults);
    let key = required(&mut faults, Name::Key);
    let key = key.and_then(|it| faults.collect(Name::Key, valid_agents_key(&it).map(|()| it)));
    let timing = timing(&mut faults);
    let token = settings.text(Name::Token);
    let token = token.map_or_else(|| valid_host(environment.host), valid_token);
    let token = faults.collect(Name::Token, token);
    let device = faults.parse(Name::Watchdog, device);
    if let (Some((_, true)), Some(Err(why))) = (&device, timing.map(wanted_timeout)) {
        faults.refuse::<()>(Name::Watchdog, Exit::Unsafe, &why);
    }
    let commands = commands(&mut faults, key.as_ref().zip(token.as_ref()));
    let priority = faults.parse(Name::Priority, priority);
    let failback = faults.parse(Name::Failback, failback);
    let seats = faults.parse(Name::Seats, seats);
    let last_key = key.as_ref().zip(seats).map(|(key, seats)| Seat(seats - 1).key(key));
    last_key.and_then(|key| faults.collect(Name::Key, valid_agents_key(&key)));
    let agents = faults.parse(Name::Agents, agents);
    let check_failures = faults.parse(Name::CheckFailures, check_failures);
    let start_grace = faults.parse(Name::StartGrace, grace);
    let metrics_file = faults.text(Name::MetricsFile).and_then(|path| {
        faults.collect(Name::MetricsFile, file(&path).map_err(|why| format!("{path}: {why}")))
    });
    let notify_fd = faults.parse(Name::NotifyFd, descriptor);
    let args = || {
        // `putex finish` needs the arguments even if a setting that stop does not need is
        // faulty.
        Some(AgentArgs {
            bucket: bucket?,
            metrics_file,
            priority: priority.unwrap_or(Priority::FIRST),
            failback: failback.flatten(),
            seats: seats.unwrap_or(1),
            agents,
            observes: settings.is_on(Name::Observe),
            check_failures: check_failures.unwrap_or(1),
            start_grace: start_grace.unwrap_or_default(),
            notify_fd,
            guard: protocol::Settings {
                dir: String::new(),
                timing: timing?,
                commands: commands?,
                device: device.clone(),
                level: level(settings, Level::Info),
                syslog: settings.is_on(Name::Syslog),
                clock: Instant::from_boot(Duration::ZERO),
            },
        })
    };
    let args: Option<AgentArgs> = args();
    if args.as_ref().is_some_and(|args| !args.guard.fits_a_packet()) {
        let why = "the commands together are too long for the guard; put them into scripts";
        faults.refuse::<()>(Name::Start, Exit::Usage, why);
    }
    let faults = faults.found;
    Resolved { args, location, device, faults }
}

/// Resolves the commands of an agent with this key and token.
fn commands(faults: &mut Faults<'_>, agent: Option<(&String, &String)>) -> Option<Commands> {
    let (start, stop) = (required(faults, Name::Start), required(faults, Name::Stop));
    let check = faults.text(Name::Healthcheck);
    let (last_resort, on_change) = (faults.text(Name::LastResort), faults.text(Name::OnChange));
    let (key, token) = agent?;
    Some(Commands {
        check,
        start: start?,
        stop: stop?,
        last_resort,
        on_change,
        key: key.clone(),
        token: token.clone(),
        environment: None,
    })
}

/// Resolves the bucket of a command.
pub(super) fn bucket(faults: &mut Faults<'_>, var: Lookup<'_>) -> Option<BucketArgs> {
    let location = location(faults, var);
    bucket_at(location, faults)
}

/// Resolves a bucket that is only looked at: none is made, and one in memory is as good.
pub(super) fn existing_bucket(
    faults: &mut Faults<'_>,
    var: Lookup<'_>,
) -> Option<(BucketArgs, Source)> {
    let bucket = BucketArgs { allow_memory: true, ..bucket(faults, var)? };
    let dir = match &bucket.location {
        Location::Dir(dir) => Some((dir.clone(), location_id(&bucket.location, var))),
        Location::Nats(_) => None,
    };
    let source = Source { bucket: bucket.name.clone(), dir };
    Some((bucket, source))
}

/// Resolves a bucket in this location, if there is one.
fn bucket_at(location: Option<Location>, faults: &mut Faults<'_>) -> Option<BucketArgs> {
    let name = faults.settings.text_or_default(Name::Bucket)?.to_owned();
    let name = faults.collect(Name::Bucket, valid_bucket(&name).map(|()| name));
    // `putex finish` needs no number of replicas. All others refuse a fault.
    let replicas = faults.parse(Name::Replicas, replicas).unwrap_or(1);
    let allow_memory = faults.settings.is_on(Name::AllowMemory);
    Some(BucketArgs { location: location?, name: name?, replicas, allow_memory })
}

/// Returns the location of the lock: that of `--nats`, `--dir` and `--context` which has the
/// highest precedence. A context beside a server only adds to it.
pub(super) fn location(faults: &mut Faults<'_>, var: Lookup<'_>) -> Option<Location> {
    let settings = faults.settings;
    let [nats, dir, context] =
        [Name::Nats, Name::Dir, Name::Context].map(|name| settings.precedence(name));
    if dir.is_some() && dir == nats {
        return faults.usage(Name::Dir, "the lock is kept in --nats or in --dir, not in both");
    }
    if dir > nats && dir >= context {
        let dir = faults.text(Name::Dir)?;
        if !dir.starts_with('/') {
            let path = sys::absolute(dir.as_ref());
            let why = "it is relative: from another working directory it is another lock; write";
            return faults.usage(Name::Dir, &format!("{dir}: {why} {}", path.display()));
        }
        return access::refuse_beside_dir(faults).map(|()| Location::Dir(dir.into()));
    }
    if nats.is_none() && context.is_none() {
        return faults.refuse(Name::Nats, Exit::Unsafe, NO_LOCATION);
    }
    access::for_servers(faults, var).map(|access| Location::Nats(Box::new(access)))
}

fn required(faults: &mut Faults<'_>, name: Name) -> Option<String> {
    match faults.settings.get(name) {
        Some(_) => faults.text(name),
        None => {
            let Flag { long, value, .. } = name.flag();
            let (shown, value) = (name.flag().shown(), value.to_uppercase());
            let why =
                format!("is missing; write {shown} {value}, or {long} = {value} in putex.conf(5)");
            faults.usage(name, &why)
        }
    }
}

/// Resolves R, F, C and drift.
pub(super) fn timing(faults: &mut Faults<'_>) -> Option<Timing> {
    let renewal = faults.parse(Name::Renewal, renewal);
    let failures = faults.parse(Name::Failures, count);
    let confirmations = faults.parse(Name::Confirmations, count);
    let drift = faults.parse(Name::Drift, drift_ppm);
    match Timing::new(renewal?, failures?, confirmations?, drift?) {
        Ok(timing) => Some(timing),
        Err(refused) => attribute(faults, Subcommand::Agent, Name::Renewal, &refused.0),
    }
}

/// Attributes a refusal of the arithmetic to the option of a command that it begins with. If
/// that option has its default, R is the one that does not fit.
pub(super) fn attribute<T>(
    faults: &mut Faults<'_>,
    of: Subcommand,
    renewal: Name,
    text: &str,
) -> Option<T> {
    let named = text.split_once(": ");
    let named = named.and_then(|(written, why)| Some((Flag::find(written, of)?.name, why)));
    let (name, why) = named.unwrap_or((renewal, text));
    let is_set = faults.settings.get(name).is_some();
    faults.refuse(if is_set { name } else { renewal }, Exit::Unsafe, why)
}

/// Returns the name of the host if it is a token of its own. Names that many hosts have are not.
pub(super) fn valid_host(host: &str) -> Result<String, String> {
    let is_shared = ["", "(none)", "localhost", "localhost.localdomain"].contains(&host);
    let token = valid_token(host).ok().filter(|_| !is_shared);
    token.ok_or_else(|| format!("is missing, and the host name {host:?} is not this host's own"))
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
