//! Login, TLS and subjects for the servers. A command line holds only names and paths; secrets
//! are in files or in the environment.

use std::path::{Path, PathBuf};

use super::settings::{Faults, Precedence, Settings};
use super::table::{FLAGS, Flag, Name};
use crate::core::StoreError;
use crate::exit::Refusal;
use crate::nats::encode::valid_subject;
use crate::nats::{Login, RefuseAlone, Secret, Server, Tls};
use crate::store::nats::API;

/// The servers and the settings for a connection. `None`: not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The servers.
    pub servers: Vec<Server>,
    /// How to log in.
    pub login: Option<Login>,
    /// The TLS options.
    pub tls: Tls,
    /// The prefix of subjects for replies.
    pub inbox: Option<String>,
    /// The subject prefix of the JetStream API.
    pub api: Option<String>,
    /// The settings that name files, as the user wrote them, each with its file.
    pub files: Vec<(String, PathBuf)>,
}

impl Access {
    /// Returns when a server in no cluster is refused. In a JetStream domain, the servers are those
    /// of one bucket.
    pub fn refuse_alone(&self) -> RefuseAlone {
        match self.api.as_deref().unwrap_or(API) {
            API if Server::are_several(&self.servers) => RefuseAlone::Always,
            API => RefuseAlone::AfterCluster,
            _ => RefuseAlone::Never,
        }
    }

    /// Returns a fault of a file with the setting that names it in front: a path alone may look
    /// like that of a command.
    pub(super) fn with_setting(&self, fault: StoreError) -> StoreError {
        let is_of = |path: &Path| fault.text.starts_with(&format!("{}: ", path.display()));
        match self.files.iter().find(|(_, path)| is_of(path)) {
            Some((written, _)) => fault.kind.error(format!("{written}: {}", fault.text)),
            None => fault,
        }
    }
}

/// A setting that selects a login, and the login of its value.
type Selector = (Name, fn(String) -> Login);

/// The settings that select a login. Of several of one origin the first counts, as for the nats
/// command.
const LOGINS: [Selector; 5] = [
    (Name::User, |name| Login::User { name, password: Secret::Given(String::new()) }),
    (Name::Creds, |path| Login::Creds(path.into())),
    (Name::Nkey, |path| Login::Nkey(path.into())),
    (Name::AuthTokenFile, |path| Login::Token(Secret::File(path.into()))),
    (Name::AuthToken, |token| Login::Token(Secret::Given(token))),
];

/// Refuses options for a server beside a lock in a directory: the user has forgotten the
/// server, and must not get a lock that covers one host only. Options of a lower
/// precedence than that of the directory are overridden instead, and the environment may
/// be meant for other programs.
pub(super) fn refuse_beside_dir(settings: &Settings) -> Result<(), Refusal> {
    let dir = settings.precedence(Name::Dir);
    let is_meant = |flag: &&Flag| {
        let precedence = settings.precedence(flag.name);
        let is_off = flag.value.is_empty() && !settings.is_on(flag.name);
        precedence >= dir && precedence != Some(Precedence::Env) && !is_off
    };
    let is_for_servers = |flag: &&Flag| flag.name == Name::Context || flag.name.is_of_access();
    let meant = FLAGS.iter().filter(is_for_servers).find(is_meant);
    let why = "is for a server, and the lock is kept in a directory; see --nats";
    meant.map_or(Ok(()), |flag| Err(settings.usage(flag.name, why)))
}

/// Returns the servers and the settings for a connection.
pub(super) fn for_servers(settings: &Settings, faults: &mut Faults) -> Option<Access> {
    let url = faults.note(settings.nonblank(Name::Nats))?;
    let servers = url.as_deref().map(Server::parse_list).transpose();
    let servers = faults.note(servers.map_err(|why| settings.usage(Name::Nats, &why)))?;
    let before = faults.0.len();
    let login = faults.note(login(settings)).flatten();
    let [certificate, key, ca] =
        [Name::TlsCert, Name::TlsKey, Name::TlsCa].map(|name| faults.nonblank(settings, name));
    for (name, other) in [(Name::TlsCert, Name::TlsKey), (Name::TlsKey, Name::TlsCert)] {
        if settings.get(name).is_some() && settings.get(other).is_none() {
            let why = format!("needs {}", other.flag().shown());
            faults.0.push(settings.usage(name, &why));
        }
    }
    let inbox = faults.parse(settings, Name::InboxPrefix, valid_subject);
    let api = faults.note(api(settings)).flatten();
    let files = FLAGS.iter().filter(|flag| flag.name.is_of_access() && flag.value == "file");
    let file = |it: &Flag| Some((settings.written(it.name), settings.text(it.name)?.into()));
    let access = Access {
        servers: servers.unwrap_or_default(),
        login,
        tls: Tls {
            ca: ca.map(Into::into),
            certificate: certificate.zip(key).map(|(cert, key)| (cert.into(), key.into())),
            first: settings.is_on(Name::TlsFirst),
        },
        inbox,
        api,
        files: files.filter_map(file).collect(),
    };
    (faults.0.len() == before).then_some(access)
}

fn api(settings: &Settings) -> Result<Option<String>, Refusal> {
    let [domain, prefix] =
        [Name::JsDomain, Name::JsApiPrefix].map(|name| settings.precedence(name));
    if domain.is_some() && domain == prefix {
        return Err(settings.usage(Name::JsDomain, "not together with --js-api-prefix"));
    }
    match prefix > domain {
        true => settings.parse(Name::JsApiPrefix, valid_subject),
        false => settings.parse(Name::JsDomain, api_of),
    }
}

/// Returns the login. All parts of it come from one origin: the one with the highest
/// precedence that selects a login.
fn login(settings: &Settings) -> Result<Option<Login>, Refusal> {
    let user = settings.precedence(Name::User);
    let password_file = settings.precedence(Name::PasswordFile);
    if password_file > user {
        return Err(settings.usage(Name::PasswordFile, "needs --user"));
    }
    let highest = LOGINS.into_iter().filter_map(|(name, _)| settings.precedence(name)).max();
    let is_given = |name| settings.get(name).is_some() && settings.precedence(name) == highest;
    let mut selected = LOGINS.into_iter().filter(|(name, _)| is_given(*name));
    let Some((name, login)) = selected.next() else { return Ok(None) };
    if let (Some(Precedence::File | Precedence::CommandLine), Some((other, _))) =
        (highest, selected.next())
    {
        let why = format!("not together with {}", name.flag().shown());
        return Err(settings.usage(other, &why));
    }
    let mut login = login(settings.nonblank(name)?.unwrap_or_default());
    if let Login::User { password, .. } = &mut login {
        // A context has a password for its own user only.
        let given = settings
            .get(Name::Password)
            .filter(|it| it.precedence > Precedence::Context || user == Some(Precedence::Context));
        let given = Secret::Given(given.map(|it| it.text.clone()).unwrap_or_default());
        let file = settings.nonblank(Name::PasswordFile)?.filter(|_| password_file == user);
        *password = file.map_or(given, |path| Secret::File(path.into()));
    }
    Ok(Some(login))
}

/// Returns the subject prefix of the JetStream API of a domain.
pub(crate) fn api_of(domain: &str) -> Result<String, &'static str> {
    match domain.contains('.') {
        true => Err("a domain has no dots"),
        false => valid_subject(&format!("$JS.{domain}.API")),
    }
}

#[cfg(test)]
mod tests;
