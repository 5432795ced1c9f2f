//! Makes the store of a location. Reads contexts and files with secrets and certificates;
//! connects to nothing. All commands use it, with the same result.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::access::Access;
use super::lease::Action;
use super::{AgentArgs, BucketArgs, DoctorArgs, Location, Lookup, context};
use crate::command::Commands;
use crate::core::Incarnation;
use crate::core::lease::command::REQUEST_MAX;
use crate::exit::{Exit, Refusal};
use crate::guard::{Identity, digest, protocol};
use crate::nats::micro::Service;
use crate::nats::{Client, ConnectOptions, Login, Server};
use crate::status::ANSWER_MAX;
use crate::store::dir::{DirStore, default_base};
use crate::store::nats::micro::{BUCKET, KEY, SERVICE};
use crate::store::nats::{API, NatsSettings, NatsStore};
use crate::store::{Bucket, LockKey, StoreError, StoreErrorKind};
use crate::{grab, lock, sys};

impl Location {
    /// Returns the location with the settings of its context; opens nothing.
    ///
    /// # Errors
    ///
    /// The context cannot be used, or names no valid servers when no others are named.
    pub fn complete(&self, var: Lookup<'_>) -> Result<Location, Refusal> {
        let Location::Nats(access) = self else { return Ok(self.clone()) };
        let context = access.context.as_ref().map(|name| context::load(name, var)).transpose();
        let setting = access.context_setting.as_deref().unwrap_or("--context");
        let refuse = |exit, why: &str| Refusal::new(exit, format!("{setting}: {why}"));
        let context = context.map_err(|why| refuse(Exit::Unsafe, &why))?;
        let mut access = Access::clone(access).complete(context.unwrap_or_default());
        if access.servers.is_empty() {
            let url = access.url.as_ref();
            let no_url = || refuse(Exit::Usage, "it names no server; see --nats");
            let servers = Server::parse_list(url.ok_or_else(no_url)?);
            access.servers = servers.map_err(|why| refuse(Exit::Usage, &why))?;
        }
        Ok(Location::Nats(Box::new(access)))
    }

    /// Returns the faults of the files with secrets and certificates, which are reported before
    /// any command runs, each with the setting that names the file.
    pub fn faults(&self) -> Vec<StoreError> {
        let Location::Nats(access) = self else { return Vec::new() };
        let Access { servers, login, tls, .. } = &**access;
        let login = login.as_ref().and_then(|login| login.read().err());
        let wants_tls = tls.is_wanted() || servers.iter().any(|server| server.tls);
        let tls = wants_tls.then(|| tls.check().err()).flatten();
        login.into_iter().chain(tls).map(|fault| access.with_setting(fault)).collect()
    }
}

/// Returns the directory for files of this user's putex that do not outlive a boot.
pub fn runtime_base() -> PathBuf {
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR");
    default_base(sys::user_id(), runtime_dir.as_deref(), &std::env::temp_dir())
}

/// Returns a digest of a location: of the servers and the login, or of the directory. Agents
/// with one bucket, key and token are instances of one agent only if it is the same. It
/// depends on the settings alone: no file is read, and no secret goes into it.
pub fn location_id(location: &Location, var: Lookup<'_>) -> String {
    let text = match location {
        Location::Dir(path) => format!("{:?}", sys::absolute(path)),
        Location::Nats(access) => access_text(access, var),
    };
    digest(&text, LOCATION_ID_BYTES)
}

/// Returns the servers, the login and the JetStream API as a text without secrets.
fn access_text(access: &Access, var: Lookup<'_>) -> String {
    let Access { servers, login, tls, context, api, .. } = access;
    let owner = login.as_ref().map(Login::owner);
    let certificate = tls.certificate.as_ref().map(|(certificate, _)| sys::absolute(certificate));
    let path = |name: &String| context::path_of(name, var).map(|path| sys::absolute(&path));
    let context = context.as_ref().map(path);
    let text = format!("{owner:?} {certificate:?} {context:?} {api:?}");
    if servers.is_empty() {
        return text;
    }
    let named = |server: &Server| format!("{server} {}", server.login.owner());
    let mut servers: Vec<_> = servers.iter().map(named).collect();
    servers.sort();
    servers.dedup();
    format!("{servers:?} {text}")
}

/// Long enough that no two locations of a host ever have the same.
const LOCATION_ID_BYTES: usize = 8;

/// Returns the properties that all instances of an agent share.
pub fn identity(args: &AgentArgs, var: Lookup<'_>) -> Identity {
    Identity {
        location: location_id(&args.bucket.location, var),
        bucket: args.bucket.name.clone(),
        key: args.guard.commands.key.clone(),
        token: args.guard.commands.token.clone(),
    }
}

/// The part of R that a read may take which the agent does not wait for, as a divisor.
const READ_SHARE: u32 = 2;

/// What a store depends on besides its location.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// The bucket.
    pub bucket: String,
    /// The number of replicas of a bucket that putex creates.
    pub replicas: u32,
    /// Whether a bucket in memory is accepted.
    pub allow_memory: bool,
    /// Whether tickets and leases are kept in it.
    pub for_locks: bool,
    /// The name of the connection, for people who look at the server.
    pub name: String,
    /// R: an answer that takes longer comes too late.
    pub renewal: Duration,
    /// What clients of NATS micro services find; nothing of a command.
    pub service: Option<Service>,
}

impl StoreSettings {
    /// Returns those of this instance of an agent.
    pub fn of_agent(args: &AgentArgs, incarnation: Incarnation) -> StoreSettings {
        let protocol::Settings { timing, commands, .. } = &args.guard;
        let Commands { key, token, .. } = commands;
        let name = format!("{key} {token}");
        let (bucket, host) = (&args.bucket.name, sys::host_name());
        let service = Some(Service {
            name: SERVICE,
            id: incarnation.to_string(),
            version: env!("CARGO_PKG_VERSION"),
            description: format!("{bucket}/{key}: agent {token} on host {host}"),
            metadata: [
                (BUCKET, bucket.clone()),
                (KEY, key.clone()),
                ("token", token.clone()),
                ("host", host),
            ]
            .into(),
            started: SystemTime::now(),
        });
        StoreSettings { service, ..StoreSettings::new(&args.bucket, &name, timing.renewal()) }
    }

    /// Returns those of a connection of this name.
    fn new(bucket: &BucketArgs, name: &str, renewal: Duration) -> StoreSettings {
        let BucketArgs { name: bucket, replicas, allow_memory, .. } = bucket;
        StoreSettings {
            bucket: bucket.clone(),
            replicas: *replicas,
            allow_memory: *allow_memory,
            for_locks: false,
            name: format!("putex {name}"),
            renewal,
            service: None,
        }
    }
}

/// What a command other than the agent has a store for.
#[derive(Clone, Debug)]
pub struct Use {
    /// The name of the connection, for people who look at the server.
    pub name: String,
    /// How long a request to the store may take.
    pub answer_time: Duration,
    /// Whether tickets and leases are kept in it.
    pub for_locks: bool,
}

impl Use {
    /// Returns that of a command which keeps neither tickets nor leases.
    pub fn without_locks(name: String) -> Use {
        Use { name, answer_time: ANSWER_MAX, for_locks: false }
    }

    /// Returns that of `putex lock`.
    pub fn of_lock(lock::Request { name, token, timing, .. }: &lock::Request) -> Use {
        let name = format!("lock {name} {token}");
        Use { name, answer_time: timing.renewal(), for_locks: true }
    }

    /// Returns that of `putex grab` and `putex release`.
    pub fn of_grab(request: &grab::Request) -> Use {
        let name = format!("grab {} {}", request.name, request.who);
        Use { name, answer_time: request.answer_time(), for_locks: true }
    }

    /// Returns that of `putex lease` and `putex put`.
    pub fn of_lease(action: &Action) -> Use {
        let name = match action {
            Action::Lease(request) => format!("lease {} {}", request.subject(), request.who),
            Action::Put(put) => format!("put {} {}", put.key, put.holder),
        };
        Use { name, answer_time: REQUEST_MAX, for_locks: true }
    }
}

/// Returns the store of a command other than the agent, not yet opened.
///
/// # Errors
///
/// The first fault; also a file that is missing: a command is not kept waiting for it.
pub fn store(args: &BucketArgs, of: &Use, var: Lookup<'_>) -> Result<Box<dyn Bucket>, Refusal> {
    let location = args.location.complete(var)?;
    if let Some(fault) = location.faults().into_iter().next() {
        return Err(fault.into());
    }
    let Use { name, answer_time, for_locks } = of;
    let settings = StoreSettings::new(args, name, *answer_time);
    Ok(bucket(location, StoreSettings { for_locks: *for_locks, ..settings }))
}

/// Returns the store for an agent, not yet opened.
///
/// # Errors
///
/// The first fault.
pub fn agent_store(
    args: &AgentArgs,
    incarnation: Incarnation,
    var: Lookup<'_>,
) -> Result<LockKey, Refusal> {
    let location = args.bucket.location.complete(var)?;
    // A file that is missing may be put there later.
    let is_lasting = |fault: &StoreError| fault.kind == StoreErrorKind::Unsafe;
    if let Some(fault) = location.faults().into_iter().find(is_lasting) {
        return Err(fault.into());
    }
    let store = bucket(location, StoreSettings::of_agent(args, incarnation));
    let read_max = args.guard.timing.renewal() / READ_SHARE;
    Ok(LockKey::with_seats(store, &args.guard.commands.key, args.seats).with_reads_of(read_max))
}

/// Returns the settings of the store for `putex doctor`. An answer that takes longer than R comes
/// too late.
pub fn doctor_settings(args: &DoctorArgs, renewal: Duration) -> StoreSettings {
    StoreSettings::new(&args.bucket, "doctor", renewal)
}

/// Returns the location of the bucket for `putex doctor`, complete.
///
/// # Errors
///
/// As of [`store`].
pub fn doctor_location(args: &DoctorArgs, var: Lookup<'_>) -> Result<Location, Refusal> {
    let location = args.bucket.location.complete(var)?;
    location.faults().into_iter().next().map_or(Ok(location), |fault| Err(fault.into()))
}

fn bucket(location: Location, settings: StoreSettings) -> Box<dyn Bucket> {
    match location {
        Location::Nats(access) => Box::new(nats_store(settings, *access)),
        Location::Dir(base) => Box::new(DirStore::new(base, &settings.bucket)),
    }
}

/// Returns a store in NATS, not yet opened.
pub fn nats_store(settings: StoreSettings, access: Access) -> NatsStore {
    let StoreSettings { bucket, replicas, allow_memory, for_locks, name, renewal, service } =
        settings;
    let api = access.api.unwrap_or_else(|| API.to_owned());
    let settings = NatsSettings { bucket, replicas, allow_memory, for_locks, api };
    let login = access.login.unwrap_or_default();
    let mut options = ConnectOptions::new(login, name, renewal);
    options.tls = access.tls;
    options.inbox = access.inbox.unwrap_or(options.inbox);
    let client = Client::new(access.servers, options);
    let store = NatsStore::new(client, settings);
    match service {
        Some(service) => store.with_service(service),
        None => store,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::nats::{Secret, Tls};

    fn home(name: &str) -> Option<OsString> {
        (name == "HOME").then(|| "/home".into())
    }

    fn id_of_access(access: Access, var: Lookup<'_>) -> String {
        location_id(&Location::Nats(Box::new(access)), var)
    }

    fn servers(urls: &str) -> Vec<Server> {
        Server::parse_list(urls).expect("servers")
    }

    fn id_of(urls: &str, login: Option<Login>) -> String {
        id_of_access(Access { servers: servers(urls), login, ..Access::default() }, &home)
    }

    #[test]
    fn the_id_does_not_depend_on_how_a_location_is_written() {
        let one = id_of("nats://a:4222,b", None);
        assert_eq!(one, id_of("b:4222, a,nats://b", None));
        assert_eq!(id_of("u:old@a", None), id_of("u:new@a", None));
        let here = std::env::current_dir().expect("there is one");
        let dir = |dir: PathBuf| location_id(&Location::Dir(dir), &home);
        assert_eq!(dir(here.join("x")), dir(PathBuf::from("x")));
        assert_eq!(one.len(), 2 * LOCATION_ID_BYTES);
        let creds = |path: PathBuf| id_of("a", Some(Login::Creds(path)));
        assert_eq!(creds(here.join("x")), creds(PathBuf::from("x")));
    }

    #[test]
    fn no_two_locations_have_one_id() {
        let user = |name: &str| {
            let (name, password) = (name.to_owned(), Secret::Given(String::new()));
            Some(Login::User { name, password })
        };
        let creds = |path: &str| Some(Login::Creds(path.into()));
        let in_context = |url: Option<&str>, name: &str, var: Lookup<'_>| {
            let (servers, context) = (url.map(servers).unwrap_or_default(), Some(name.to_owned()));
            id_of_access(Access { servers, context, ..Access::default() }, var)
        };
        let other = |_: &str| Some("/other".into());
        let certificate = Some(("/cert".into(), "/key".into()));
        let tls = Tls { certificate, ..Tls::default() };
        let certificate = Access { servers: servers("a"), tls, ..Access::default() };
        let plain = |location: Location| location_id(&location, &home);
        let ids = [
            id_of("a", None),
            id_of("b", None),
            id_of("a:4223", None),
            id_of("a,b", None),
            id_of("u@a", None),
            id_of("a", user("one")),
            id_of("a", user("two")),
            id_of("a", creds("/one")),
            id_of("a", creds("/two")),
            id_of_access(certificate, &home),
            in_context(None, "one", &home),
            in_context(None, "one", &other),
            in_context(None, "./one", &home),
            in_context(Some("a"), "one", &home),
            plain(Location::Dir("/one".into())),
            plain(Location::Dir("/two".into())),
        ];
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(id), "the one at {at}");
        }
    }
}
