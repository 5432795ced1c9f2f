//! From what is asked for to a store: contexts, and files with secrets and
//! certificates, are read. Agent and check go this way, so that they cannot disagree.

use std::path::{Path, PathBuf};

use crate::cli::access::{Access, Settled};
use crate::cli::{AgentArgs, Lookup, Place, Refusal};
use crate::context::{self, Context};
use crate::exit::Exit;
use crate::nats::{self, Client, Login, Server};
use crate::store::Store;
use crate::store::dir::{DirStore, default_base};
use crate::store::nats::{NatsStore, Settings};
use crate::sys;

/// What there is on the way to the lock.
#[derive(Debug)]
pub enum Reach {
    /// Servers.
    Nats(Box<Servers>),
    /// A directory with directories of buckets in it.
    Dir(PathBuf),
}

/// Servers, and what is needed to talk to them.
#[derive(Clone, Debug)]
pub struct Servers {
    /// Where they are.
    pub servers: Vec<Server>,
    /// Who we are to them.
    pub access: nats::Access,
    /// Where JetStream's API is, if not in the usual place.
    pub api: Option<String>,
    /// What of it is said by a context alone.
    pub context: Context,
}

/// Returns where this user's putex keeps what does not outlive the host's boot.
#[must_use]
pub fn own_base() -> PathBuf {
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR");
    default_base(
        sys::user_id(),
        runtime_dir.as_deref(),
        &std::env::temp_dir(),
    )
}

/// Finds the way; nothing is opened yet. Returns it if there is one, and everything
/// that is wrong with it.
#[must_use]
pub fn reach(place: &Place, access: &Access, var: Lookup<'_>) -> (Option<Reach>, Vec<Refusal>) {
    let urls = match place {
        Place::Nats(urls) => Some(urls),
        Place::Context => None,
        Place::Dir(dir) => return (Some(Reach::Dir(dir.clone())), Vec::new()),
        Place::DefaultDir => return (Some(Reach::Dir(own_base())), Vec::new()),
    };
    let context = match &access.context {
        Some(name) => context::load(name, var),
        None => Ok(Context::default()),
    };
    let context = match context {
        Ok(context) => context,
        Err(text) => return (None, vec![refusal(text, Exit::Unsafe)]),
    };
    let (urls, from) = match (urls, &context.url) {
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
            let refused = refusal(format!("{from}: {error}"), Exit::Usage);
            return (None, vec![refused]);
        }
    };
    let Settled { access, api } = access.clone().settle(context.clone());
    // What cannot be read now is better told before anything runs.
    let login = access.login.read().err();
    let wanted = access.tls.is_wanted() || servers.iter().any(|server| server.tls);
    let tls = wanted.then(|| access.tls.check().err()).flatten();
    let faults = [login, tls].into_iter().flatten();
    let faults = faults.map(|text| refusal(text, Exit::Unsafe)).collect();
    let found = Servers {
        servers,
        access,
        api,
        context,
    };
    (Some(Reach::Nats(Box::new(found))), faults)
}

/// Returns a short name of the place where the lock is kept: the servers and who we are to
/// them, or the directory. Agents of one bucket, key and token are lives of one agent only
/// where it is the same. It is what was asked for: nothing is read, and no secret is in it.
#[must_use]
pub fn place_name(place: &Place, access: &Access, var: Lookup<'_>) -> String {
    let dir = |dir: &Path| format!("{:?}", sys::absolute(dir));
    let asked = match place {
        Place::Dir(path) => dir(path),
        Place::DefaultDir => dir(&own_base()),
        Place::Nats(urls) => {
            let servers = Server::parse_list(urls).unwrap_or_default();
            let named = |server: &Server| format!("{server} {}", server.login.owner());
            let mut servers: Vec<_> = servers.iter().map(named).collect();
            servers.sort();
            servers.dedup();
            format!("{servers:?} {}", who(access, var))
        }
        Place::Context => who(access, var),
    };
    let digest = ring::digest::digest(&ring::digest::SHA256, asked.as_bytes());
    let bytes = digest.as_ref().iter().take(PLACE_BYTES);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Says who we are to the servers, and which JetStream of theirs is meant.
fn who(access: &Access, var: Lookup<'_>) -> String {
    let Access {
        login,
        tls_certificate,
        context,
        api,
        ..
    } = access;
    let owner = login.as_ref().map(Login::owner);
    let certificate = tls_certificate
        .as_ref()
        .map(|(certificate, _)| sys::absolute(certificate));
    let found = |name: &String| context::place(name, var).map(|path| sys::absolute(&path));
    let context = context.as_ref().map(found);
    format!("{owner:?} {certificate:?} {context:?} {api:?}")
}

/// Enough for the places of one host never to have one name.
const PLACE_BYTES: usize = 8;

/// Returns what there is to be warned of where nobody said where the lock is: whoever
/// forgot the servers gets a lock, and an active host, of each host's own.
#[must_use]
pub fn unasked(place: &Place) -> Option<String> {
    (*place == Place::DefaultDir).then(|| {
        let base = own_base().display().to_string();
        format!(
            "no --nats: the lock is in {}, and other hosts do not see it; \
             give --dir if that is meant",
            base.replace(char::is_control, "?")
        )
    })
}

fn refusal(text: String, exit: Exit) -> Refusal {
    Refusal { text, exit }
}

/// Prepares the store for an agent; nothing is opened yet.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn store(args: &AgentArgs, var: Lookup<'_>) -> Result<Box<dyn Store>, Refusal> {
    let (reach, faults) = reach(&args.place, &args.access, var);
    if let Some(fault) = faults.into_iter().next() {
        return Err(fault);
    }
    match reach {
        Some(Reach::Nats(servers)) => Ok(Box::new(nats_store(args, *servers))),
        Some(Reach::Dir(base)) => Ok(Box::new(dir_store(args, base))),
        None => Err(refusal(
            "there is no way to the lock".to_owned(),
            Exit::Usage,
        )),
    }
}

/// Prepares a store in a directory.
#[must_use]
pub fn dir_store(args: &AgentArgs, base: PathBuf) -> DirStore {
    DirStore::new(base, &args.bucket, &args.key)
}

/// Prepares a store in NATS.
#[must_use]
pub fn nats_store(args: &AgentArgs, servers: Servers) -> NatsStore {
    let name = format!("putex {} {}", args.key, args.token);
    // A link that is used every R needs no pings: it is asked a little later.
    let quiet = args.timing.renewal() + args.timing.renewal() / 4;
    let client = Client::new(servers.servers, servers.access, name, quiet);
    let settings = Settings {
        bucket: args.bucket.clone(),
        key: args.key.clone(),
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

    fn of(urls: &str, login: Option<Login>) -> String {
        let access = Access {
            login,
            ..Access::default()
        };
        place_name(&Place::Nats(urls.to_owned()), &access, &home)
    }

    #[test]
    fn a_place_is_the_same_however_it_is_written() {
        let one = of("nats://a:4222,b", None);
        assert_eq!(one, of("b:4222, a,nats://b", None));
        assert_eq!(of("u:old@a", None), of("u:new@a", None));
        let here = std::env::current_dir().expect("there is one");
        let dir = |dir: PathBuf| place_name(&Place::Dir(dir), &Access::default(), &home);
        assert_eq!(dir(here.join("x")), dir(PathBuf::from("x")));
        assert_eq!(one.len(), 2 * PLACE_BYTES);
        let creds = |path: PathBuf| of("a", Some(Login::Creds(path)));
        assert_eq!(creds(here.join("x")), creds(PathBuf::from("x")));
    }

    #[test]
    fn no_two_places_have_one_name() {
        let user = |name: &str| {
            let (name, password) = (name.to_owned(), Secret::Given(String::new()));
            Some(Login::User { name, password })
        };
        let creds = |path: &str| Some(Login::Creds(path.into()));
        let in_context = |place: Place, name: &str, var: Lookup<'_>| {
            let context = Some(name.to_owned());
            let access = Access {
                context,
                ..Access::default()
            };
            place_name(&place, &access, var)
        };
        let other = |_: &str| Some("/other".into());
        let certificate = Access {
            tls_certificate: Some(("/cert".into(), "/key".into())),
            ..Access::default()
        };
        let plain = |place: Place| place_name(&place, &Access::default(), &home);
        let names = [
            of("a", None),
            of("b", None),
            of("a:4223", None),
            of("a,b", None),
            of("u@a", None),
            of("a", user("one")),
            of("a", user("two")),
            of("a", creds("/one")),
            of("a", creds("/two")),
            place_name(&Place::Nats("a".to_owned()), &certificate, &home),
            in_context(Place::Context, "one", &home),
            in_context(Place::Context, "one", &other),
            in_context(Place::Context, "./one", &home),
            in_context(Place::Nats("a".to_owned()), "one", &home),
            plain(Place::Dir("/one".into())),
            plain(Place::Dir("/two".into())),
            plain(Place::DefaultDir),
        ];
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "the one at {at}");
        }
    }
}
