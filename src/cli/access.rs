//! Who this agent is to the servers and how they are talked to: options, then the
//! environment, then the file, then a context. Only names and paths are on a command line; what is
//! secret is in files or in the environment.

use std::path::PathBuf;

use super::Lookup;
use super::settings::{Fault, Faults, Rank, Settings, variable};
use super::table::{Name, shown};
use crate::context::Context;
use crate::nats::{self, Login, Secret, Tls};

/// What was found for one of the servers' needs, `None` where nothing was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// How to log in.
    pub login: Option<Login>,
    /// Who may sign a server's certificate.
    pub tls_ca: Option<PathBuf>,
    /// Our certificate and its key.
    pub tls_certificate: Option<(PathBuf, PathBuf)>,
    /// Whether TLS comes first.
    pub tls_first: bool,
    /// Where replies are asked for.
    pub inbox: Option<String>,
    /// Where JetStream's API is.
    pub api: Option<String>,
    /// The context that has the rest.
    pub context: Option<String>,
}

/// What an agent needs to know of the servers but for where they are.
#[derive(Debug, PartialEq, Eq)]
pub struct Settled {
    /// For the connection.
    pub access: nats::Access,
    /// Where JetStream's API is, if not in the usual place.
    pub api: Option<String>,
}

impl Access {
    /// Fills what is missing from a context.
    #[must_use]
    pub fn settle(self, context: Context) -> Settled {
        let Context { access: from, .. } = context;
        let login = self.login.or(from.login).unwrap_or_default();
        let mut access = nats::Access::from(login);
        access.tls = Tls {
            ca: self.tls_ca.or(from.tls_ca),
            certificate: self.tls_certificate.or(from.tls_certificate),
            first: self.tls_first || from.tls_first,
        };
        if let Some(inbox) = self.inbox.or(from.inbox) {
            access.inbox = inbox;
        }
        let api = self.api.or(from.api).filter(|api| api != "$JS.API");
        Settled { access, api }
    }
}

/// Every way to log in, in the order of the nats command, and in that of messages.
const WAYS: [Name; 4] = [Name::User, Name::AuthTokenFile, Name::Nkey, Name::Creds];

/// What is for a server only.
const FOR_SERVERS: [Name; 13] = [
    Name::Context,
    Name::User,
    Name::PasswordFile,
    Name::AuthTokenFile,
    Name::Nkey,
    Name::Creds,
    Name::TlsCa,
    Name::TlsCert,
    Name::TlsKey,
    Name::TlsFirst,
    Name::InboxPrefix,
    Name::JsDomain,
    Name::JsApiPrefix,
];

/// With the lock in a directory there is nobody to log in to. Whoever wrote how to has
/// forgotten the server, and must not get a lock that covers one host. What is weaker
/// than the directory is only overridden, and the environment is for others too.
pub(super) fn without_server(faults: &mut Faults<'_>) -> Option<Access> {
    let settings = faults.settings;
    let dir = settings.rank(Name::Dir);
    let meant = |name: &Name| {
        let rank = settings.rank(*name);
        rank.is_some() && rank != Some(Rank::Env) && rank >= dir && !is_off(settings, *name)
    };
    let forgotten = FOR_SERVERS.into_iter().find(meant);
    let access = forgotten.map_or(Ok(Access::default()), |name| {
        let why = "is for a server, and the lock would be kept in a directory; see --nats";
        Err(Fault::usage(name, why))
    });
    faults.take(access)
}

fn is_off(settings: &Settings, name: Name) -> bool {
    name == Name::TlsFirst && !settings.is_on(name)
}

/// Gathers what is needed to talk to a server.
pub(super) fn with_server(faults: &mut Faults<'_>, var: Lookup<'_>) -> Option<Access> {
    let wrong = faults.found.len();
    let settings = faults.settings;
    let login = login(settings, var);
    let login = faults.take(login).flatten();
    let tls_certificate = match (faults.text(Name::TlsCert), faults.text(Name::TlsKey)) {
        (Some(cert), Some(key)) => Some((cert.into(), key.into())),
        (Some(_), None) if settings.get(Name::TlsKey).is_none() => {
            faults.take(Err(Fault::usage(Name::TlsCert, "needs --tlskey")))
        }
        (None, Some(_)) if settings.get(Name::TlsCert).is_none() => {
            faults.take(Err(Fault::usage(Name::TlsKey, "needs --tlscert")))
        }
        (None, None) | (Some(_), None) | (None, Some(_)) => None,
    };
    let access = Access {
        login,
        tls_ca: faults.text(Name::TlsCa).map(PathBuf::from),
        tls_certificate,
        tls_first: settings.is_on(Name::TlsFirst),
        inbox: subject(faults, Name::InboxPrefix),
        api: api(faults),
        context: faults.text(Name::Context),
    };
    (faults.found.len() == wrong).then_some(access)
}

fn subject(faults: &mut Faults<'_>, name: Name) -> Option<String> {
    let subject = faults.text(name)?;
    let valid = valid_subject(&subject).map(|()| subject.clone());
    faults.take(valid.map_err(|why| Fault::usage(name, format!("{subject}: {why}"))))
}

fn api(faults: &mut Faults<'_>) -> Option<String> {
    let [domain, prefix] =
        [Name::JsDomain, Name::JsApiPrefix].map(|name| faults.settings.rank(name));
    if domain.is_some() && domain == prefix {
        let why = "not together with --js-api-prefix";
        return faults.take(Err(Fault::usage(Name::JsDomain, why)));
    }
    if prefix > domain {
        return subject(faults, Name::JsApiPrefix);
    }
    let api = api_of(&faults.text(Name::JsDomain)?);
    faults.take(api.map_err(|why| Fault::usage(Name::JsDomain, why)))
}

/// The one way to log in. The strongest origin that has any has all of it.
fn login(settings: &Settings, var: Lookup<'_>) -> Result<Option<Login>, Fault> {
    let user = settings.rank(Name::User);
    let password = settings.rank(Name::PasswordFile);
    if password > user {
        return Err(Fault::usage(Name::PasswordFile, "needs --user"));
    }
    if settings.text(Name::PasswordFile) == Some("") {
        return Err(Fault::usage(Name::PasswordFile, "is empty"));
    }
    // What is no text was refused before.
    let set = |name: &str| variable(name, var).unwrap_or_default();
    let token = set("NATS_TOKEN");
    let ranks = WAYS.into_iter().filter_map(|name| settings.rank(name));
    let strongest = ranks.chain(token.is_some().then_some(Rank::Env)).max();
    let has = |name: &Name| settings.rank(*name) == strongest && strongest.is_some();
    let ways: Vec<Name> = WAYS.into_iter().filter(has).collect();
    if strongest != Some(Rank::Env)
        && let [one, two, ..] = ways[..]
    {
        let why = format!("not together with {}", shown(one));
        return Err(Fault::usage(two, why));
    }
    let way = |name: Name| match settings.text(name).filter(|_| ways.contains(&name)) {
        Some("") => Err(Fault::usage(name, "is empty")),
        other => Ok(other),
    };
    if let Some(name) = way(Name::User)? {
        let password = match settings.text(Name::PasswordFile) {
            Some(path) if password == user => Secret::File(path.into()),
            Some(_) | None => Secret::Given(set("NATS_PASSWORD").unwrap_or_default()),
        };
        let name = name.to_owned();
        return Ok(Some(Login::User { name, password }));
    }
    Ok(if let Some(path) = way(Name::Creds)? {
        Some(Login::Creds(path.into()))
    } else if let Some(path) = way(Name::Nkey)? {
        Some(Login::Nkey(path.into()))
    } else if let Some(path) = way(Name::AuthTokenFile)? {
        Some(Login::Token(Secret::File(path.into())))
    } else {
        let token = token.filter(|_| strongest == Some(Rank::Env));
        token.map(|token| Login::Token(Secret::Given(token)))
    })
}

/// Returns where the API of a domain is.
pub(crate) fn api_of(domain: &str) -> Result<String, &'static str> {
    match domain.contains('.') {
        true => Err("a domain has no dots"),
        false => {
            valid_subject(domain)?;
            Ok(format!("$JS.{domain}.API"))
        }
    }
}

/// Checks a subject that others are put behind.
pub(crate) fn valid_subject(text: &str) -> Result<(), &'static str> {
    let bad = |letter: char| letter.is_whitespace() || letter.is_control() || "*>".contains(letter);
    if text.split('.').any(str::is_empty) {
        return Err("is no subject: there must be something around each dot");
    }
    match text.contains(bad) {
        true => Err("is no subject: it has a blank or a wildcard"),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
