//! Makes the store of a location. Reads files with secrets and certificates; connects to nothing.
//! All commands use it, with the same result.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::access::Access;
use super::{AgentArgs, BucketArgs, Location, Request};
use crate::command::Commands;
use crate::core::Incarnation;
use crate::core::lease::command::REQUEST_MAX;
use crate::exit::{Exit, Refusal};
use crate::guard::{Identity, digest};
use crate::nats::micro::Service;
use crate::nats::{Client, ConnectOptions, Login, Server};
use crate::status::{ANSWER_MAX, Source};
use crate::store::dir::{DirStore, default_base};
use crate::store::nats::micro::{BUCKET, KEY, SERVICE};
use crate::store::nats::{API, NatsSettings, NatsStore};
use crate::store::{Bucket, LockKey, StoreError, StoreErrorKind};
use crate::sys;

impl Location {
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
fn location_id(location: &Location) -> String {
    let text = match location {
        Location::Dir(path) => format!("{:?}", sys::absolute(path)),
        Location::Nats(access) => access_text(access),
    };
    digest(&text, LOCATION_ID_BYTES)
}

/// Returns the servers, the login and the JetStream API as a text without secrets.
fn access_text(access: &Access) -> String {
    let Access { servers, login, tls, api, .. } = access;
    let owner = login.as_ref().map(Login::owner);
    let certificate = tls.certificate.as_ref().map(|(certificate, _)| sys::absolute(certificate));
    let named = |server: &Server| format!("{server} {}", server.login.owner());
    let mut servers: Vec<_> = servers.iter().map(named).collect();
    servers.sort();
    servers.dedup();
    format!("{servers:?} {owner:?} {certificate:?} {api:?}")
}

/// Returns where a bucket is that is only looked at.
pub fn source(bucket: &BucketArgs) -> Source {
    let location = bucket.is_local().then(|| location_id(&bucket.location));
    Source { bucket: bucket.name.clone(), location, base: runtime_base() }
}

/// Long enough that no two locations of a host ever have the same.
const LOCATION_ID_BYTES: usize = 8;

/// Returns the properties that all instances of an agent share.
pub fn identity(args: &AgentArgs) -> Identity {
    Identity {
        location: location_id(&args.bucket.location),
        bucket: args.bucket.name.clone(),
        key: args.guard.commands.key.clone(),
        token: args.guard.commands.token.clone(),
    }
}

/// The part of R that a read may take which the agent does not wait for, as a divisor.
const READ_SHARE: u32 = 2;

/// Returns the store of a command that ends by itself, not yet opened.
///
/// # Errors
///
/// The first fault of the location, also a file that is missing.
pub fn store(bucket: &BucketArgs, request: &Request) -> Result<Box<dyn Bucket>, Refusal> {
    refuse_faults(&bucket.location, |_| true)?;
    let (name, renewal) = match request {
        Request::Lock(it) => (format!("lock {} {}", it.name, it.token), it.timing.renewal()),
        Request::Grab(it) => (format!("grab {} {}", it.name, it.who), it.answer_time()),
        Request::Lease(it) => (format!("lease {} {}", it.subject(), it.who), REQUEST_MAX),
        Request::Put(it) => (format!("put {} {}", it.key, it.holder), REQUEST_MAX),
        Request::Init => ("init".to_owned(), ANSWER_MAX),
        Request::Status(_) => ("status".to_owned(), ANSWER_MAX),
        Request::Switchover(it) => (format!("switchover {}", it.key), ANSWER_MAX),
        Request::Pause(it) => (format!("pause {}", it.key), ANSWER_MAX),
    };
    let for_locks = matches!(
        request,
        Request::Lock(_) | Request::Grab(_) | Request::Lease(_) | Request::Put(_)
    );
    Ok(match &bucket.location {
        Location::Nats(access) => {
            let mut store = nats_store(bucket, access, &name, renewal);
            store.settings.for_locks = for_locks;
            Box::new(store)
        }
        Location::Dir(base) => Box::new(DirStore::new(base.clone(), &bucket.name)),
    })
}

/// Refuses a location whose files cannot be used, for the first fault of those that count.
///
/// # Errors
///
/// That fault.
pub(crate) fn refuse_faults(
    location: &Location,
    counts: impl Fn(&StoreError) -> bool,
) -> Result<(), Refusal> {
    // Only an agent waits for a file that is missing.
    let fault = location.faults().into_iter().find(counts);
    fault.map_or(Ok(()), |fault| Err(Refusal::new(Exit::Unsafe, fault.text)))
}

/// Returns the store for an agent, not yet opened.
///
/// # Errors
///
/// The first fault.
pub fn agent_store(args: &AgentArgs, incarnation: Incarnation) -> Result<LockKey, Refusal> {
    // A file that is missing may be put there later.
    let is_lasting = |fault: &StoreError| fault.kind == StoreErrorKind::Unsafe;
    refuse_faults(&args.bucket.location, is_lasting)?;
    let store: Box<dyn Bucket> = match &args.bucket.location {
        Location::Nats(access) => Box::new(agent_nats_store(args, access, incarnation)),
        Location::Dir(base) => Box::new(DirStore::new(base.clone(), &args.bucket.name)),
    };
    let read_max = args.guard.timing.renewal() / READ_SHARE;
    Ok(LockKey::new(store, &args.guard.commands.key, args.config.seats, read_max))
}

/// Returns the store in NATS for this instance of an agent, which is a service for clients of NATS
/// micro services, not yet opened.
pub(crate) fn agent_nats_store(
    args: &AgentArgs,
    access: &Access,
    incarnation: Incarnation,
) -> NatsStore {
    let Commands { key, token, .. } = &args.guard.commands;
    let (bucket, host) = (&args.bucket.name, sys::host_name());
    let service = Service {
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
    };
    let (name, renewal) = (format!("{key} {token}"), args.guard.timing.renewal());
    nats_store(&args.bucket, access, &name, renewal).with_service(service)
}

/// Returns a store in NATS, not yet opened. `name` is that of the connection, for people who look
/// at the server, and an answer that takes longer than `renewal` comes too late.
pub(crate) fn nats_store(
    bucket: &BucketArgs,
    access: &Access,
    name: &str,
    renewal: Duration,
) -> NatsStore {
    let BucketArgs { name: bucket, replicas, allow_memory, .. } = bucket.clone();
    let Access { servers, login, tls, inbox, api, .. } = access.clone();
    let mut options =
        ConnectOptions::new(login.unwrap_or_default(), format!("putex {name}"), renewal);
    options.refuse_alone = access.refuse_alone();
    options.tls = tls;
    options.inbox = inbox.unwrap_or(options.inbox);
    let api = api.unwrap_or_else(|| API.to_owned());
    let settings = NatsSettings { bucket, replicas, allow_memory, for_locks: false, api };
    NatsStore::new(Client::new(servers, options), settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nats::{Secret, Tls};

    fn id_of_access(access: Access) -> String {
        location_id(&Location::Nats(Box::new(access)))
    }

    fn servers(urls: &str) -> Vec<Server> {
        Server::parse_list(urls).expect("servers")
    }

    fn id_of(urls: &str, login: Option<Login>) -> String {
        id_of_access(Access { servers: servers(urls), login, ..Access::default() })
    }

    #[test]
    fn the_id_does_not_depend_on_how_a_location_is_written() {
        let one = id_of("nats://a:4222,b", None);
        assert_eq!(one, id_of("b:4222, a,nats://b", None));
        assert_eq!(id_of("u:old@a", None), id_of("u:new@a", None));
        let here = std::env::current_dir().expect("there is one");
        let dir = |dir: PathBuf| location_id(&Location::Dir(dir));
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
        let certificate = Some(("/cert".into(), "/key".into()));
        let tls = Tls { certificate, ..Tls::default() };
        let certificate = Access { servers: servers("a"), tls, ..Access::default() };
        let plain = |location: Location| location_id(&location);
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
            id_of_access(certificate),
            plain(Location::Dir("/one".into())),
            plain(Location::Dir("/two".into())),
        ];
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(id), "the one at {at}");
        }
    }
}
