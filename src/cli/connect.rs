//! From a location to a store. Reads contexts and files with secrets and certificates;
//! connects to nothing. The agent and `putex check` both use it, so they cannot disagree.

use std::path::{Path, PathBuf};

use super::access::{Access, ServerAccess};
use super::context::{self, Context};
use super::{AgentArgs, Location, Lookup, Refusal};
use crate::core::text::sanitize;
use crate::exit::Exit;
use crate::nats::{self, Client, Login, Server};
use crate::store::LockKey;
use crate::store::dir::{DirStore, default_base};
use crate::store::nats::{NatsSettings, NatsStore};
use crate::sys;

/// The store that a location stands for.
#[derive(Debug)]
pub enum Endpoint {
    /// Servers.
    Nats(Box<Servers>),
    /// A directory with directories of buckets in it.
    Dir(PathBuf),
}

/// Servers and the access to them.
#[derive(Clone, Debug)]
pub struct Servers {
    /// Their addresses.
    pub servers: Vec<Server>,
    /// Login and TLS.
    pub access: nats::ConnectOptions,
    /// The subject prefix of the JetStream API, if it is not the default.
    pub api: Option<String>,
    /// The context that gave a part of these settings.
    pub context: Context,
}

/// Returns the directory for files of this user's putex that do not outlive a boot.
#[must_use]
pub fn runtime_base() -> PathBuf {
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR");
    default_base(sys::user_id(), runtime_dir.as_deref(), &std::env::temp_dir())
}

/// Resolves a location; opens nothing. Returns the endpoint, `None` if it cannot be known,
/// and all faults of its settings.
#[must_use]
pub fn endpoint(
    location: &Location,
    access: &Access,
    var: Lookup<'_>,
) -> (Option<Endpoint>, Vec<Refusal>) {
    let urls = match location {
        Location::Nats(urls) => Some(urls),
        Location::Context => None,
        Location::Dir(dir) => return (Some(Endpoint::Dir(dir.clone())), Vec::new()),
        Location::DefaultDir => return (Some(Endpoint::Dir(runtime_base())), Vec::new()),
    };
    let context = match &access.context {
        Some(name) => context::load(name, var),
        None => Ok(Context::default()),
    };
    let context = match context {
        Ok(context) => context,
        Err(text) => return (None, vec![refusal(text, Exit::Unsafe)]),
    };
    let (urls, origin) = match (urls, &context.url) {
        (Some(urls), _) => (urls, "--nats"),
        (None, Some(urls)) => (urls, "--context"),
        (None, None) => {
            let text = "--context: it names no server; see --nats".to_owned();
            return (None, vec![refusal(text, Exit::Usage)]);
        }
    };
    let servers = match Server::parse_list(urls) {
        Ok(servers) => servers,
        Err(error) => {
            let refused = refusal(format!("{origin}: {error}"), Exit::Usage);
            return (None, vec![refused]);
        }
    };
    let ServerAccess { access, api } = access.clone().complete(context.clone());
    // A file that cannot be read is better reported before anything runs.
    let login = access.login.read().err();
    let wanted = access.tls.is_wanted() || servers.iter().any(|server| server.tls);
    let tls = wanted.then(|| access.tls.check().err()).flatten();
    let faults = [login, tls].into_iter().flatten();
    let faults = faults.map(|text| refusal(text, Exit::Unsafe)).collect();
    let servers = Servers { servers, access, api, context };
    (Some(Endpoint::Nats(Box::new(servers))), faults)
}

/// Returns a digest of a location: of the servers and the login, or of the directory. Agents
/// with one bucket, key and token are instances of one agent only if it is the same. It
/// depends on the settings alone: no file is read, and no secret goes into it.
#[must_use]
pub fn location_id(location: &Location, access: &Access, var: Lookup<'_>) -> String {
    let dir = |dir: &Path| format!("{:?}", sys::absolute(dir));
    let text = match location {
        Location::Dir(path) => dir(path),
        Location::DefaultDir => dir(&runtime_base()),
        Location::Nats(urls) => {
            let servers = Server::parse_list(urls).unwrap_or_default();
            let named = |server: &Server| format!("{server} {}", server.login.owner());
            let mut servers: Vec<_> = servers.iter().map(named).collect();
            servers.sort();
            servers.dedup();
            format!("{servers:?} {}", access_text(access, var))
        }
        Location::Context => access_text(access, var),
    };
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let bytes = digest.as_ref().iter().take(LOCATION_ID_BYTES);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the login and the JetStream API as a text without secrets.
fn access_text(access: &Access, var: Lookup<'_>) -> String {
    let Access { login, tls_certificate, context, api, .. } = access;
    let owner = login.as_ref().map(Login::owner);
    let certificate = tls_certificate.as_ref().map(|(certificate, _)| sys::absolute(certificate));
    let path = |name: &String| context::path_of(name, var).map(|path| sys::absolute(&path));
    let context = context.as_ref().map(path);
    format!("{owner:?} {certificate:?} {context:?} {api:?}")
}

/// Long enough that no two locations of a host ever have the same.
const LOCATION_ID_BYTES: usize = 8;

/// Returns the warning for an agent whose user named no location. If the servers were
/// forgotten, each host has a lock of its own, and every host becomes active.
#[must_use]
pub fn default_dir_warning(location: &Location) -> Option<String> {
    (*location == Location::DefaultDir).then(|| {
        let base = runtime_base().display().to_string();
        format!(
            "no --nats: the lock is in {}, and other hosts do not see it; \
             give --dir if that is meant",
            sanitize(&base)
        )
    })
}

fn refusal(text: String, exit: Exit) -> Refusal {
    Refusal { text, exit }
}

/// Returns the store for an agent, not yet opened.
///
/// # Errors
///
/// The first fault.
pub fn store(args: &AgentArgs, var: Lookup<'_>) -> Result<LockKey, Refusal> {
    let (endpoint, faults) = endpoint(&args.location, &args.access, var);
    if let Some(fault) = faults.into_iter().next() {
        return Err(fault);
    }
    match endpoint {
        Some(Endpoint::Nats(servers)) => {
            let store = nats_store(args, *servers);
            Ok(LockKey::new(Box::new(store), &args.key))
        }
        Some(Endpoint::Dir(base)) => Ok(LockKey::new(Box::new(dir_store(args, base)), &args.key)),
        None => Err(refusal("there is no way to the lock".to_owned(), Exit::Usage)),
    }
}

/// Returns a store in a directory, not yet opened.
#[must_use]
pub fn dir_store(args: &AgentArgs, base: PathBuf) -> DirStore {
    DirStore::new(base, &args.bucket)
}

/// Returns a store in NATS, not yet opened.
#[must_use]
pub fn nats_store(args: &AgentArgs, servers: Servers) -> NatsStore {
    let name = format!("putex {} {}", args.key, args.token);
    // A connection that is used every R needs no pings before R is over.
    let quiet = args.timing.renewal() + args.timing.renewal() / 4;
    let client = Client::new(servers.servers, servers.access, name, quiet);
    let settings = NatsSettings {
        bucket: args.bucket.clone(),
        replicas: args.replicas,
        allow_memory: args.allow_memory,
        api: servers.api,
    };
    NatsStore::new(client, settings)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::nats::Secret;

    fn home(name: &str) -> Option<OsString> {
        (name == "HOME").then(|| "/home".into())
    }

    fn id_of(urls: &str, login: Option<Login>) -> String {
        let access = Access { login, ..Access::default() };
        location_id(&Location::Nats(urls.to_owned()), &access, &home)
    }

    #[test]
    fn the_id_does_not_depend_on_how_a_location_is_written() {
        let one = id_of("nats://a:4222,b", None);
        assert_eq!(one, id_of("b:4222, a,nats://b", None));
        assert_eq!(id_of("u:old@a", None), id_of("u:new@a", None));
        let here = std::env::current_dir().expect("there is one");
        let dir = |dir: PathBuf| location_id(&Location::Dir(dir), &Access::default(), &home);
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
        let in_context = |location: Location, name: &str, var: Lookup<'_>| {
            let context = Some(name.to_owned());
            let access = Access { context, ..Access::default() };
            location_id(&location, &access, var)
        };
        let other = |_: &str| Some("/other".into());
        let certificate =
            Access { tls_certificate: Some(("/cert".into(), "/key".into())), ..Access::default() };
        let plain = |location: Location| location_id(&location, &Access::default(), &home);
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
            location_id(&Location::Nats("a".to_owned()), &certificate, &home),
            in_context(Location::Context, "one", &home),
            in_context(Location::Context, "one", &other),
            in_context(Location::Context, "./one", &home),
            in_context(Location::Nats("a".to_owned()), "one", &home),
            plain(Location::Dir("/one".into())),
            plain(Location::Dir("/two".into())),
            plain(Location::DefaultDir),
        ];
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(id), "the one at {at}");
        }
    }
}
