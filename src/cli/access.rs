//! Who this agent is to the servers and how they are talked to: options, then the
//! environment, then a context. Only names and paths are on a command line; what is
//! secret is in files or in the environment.

use std::path::PathBuf;

use super::table::{Flag, Name};
use super::{Lookup, Refusal, usage};
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

/// What was typed.
#[derive(Debug, Default)]
pub(super) struct Typed {
    user: Option<String>,
    password_file: Option<String>,
    auth_token_file: Option<String>,
    nkey: Option<String>,
    creds: Option<String>,
    tls_ca: Option<String>,
    tls_cert: Option<String>,
    tls_key: Option<String>,
    tls_first: Option<String>,
    inbox_prefix: Option<String>,
    js_domain: Option<String>,
    js_api_prefix: Option<String>,
    context: Option<String>,
    /// The first of them, for messages.
    first: Option<String>,
}

impl Typed {
    /// Takes in one flag, which is one of these, and its value.
    pub(super) fn set(&mut self, flag: &Flag, text: String) -> Result<(), Refusal> {
        let shown = flag.shown();
        if text.is_empty() && !flag.value.is_empty() {
            return Err(usage(format!("{shown}: is empty")));
        }
        let slot = match flag.name {
            Name::User => &mut self.user,
            Name::PasswordFile => &mut self.password_file,
            Name::AuthTokenFile => &mut self.auth_token_file,
            Name::Nkey => &mut self.nkey,
            Name::Creds => &mut self.creds,
            Name::TlsCa => &mut self.tls_ca,
            Name::TlsCert => &mut self.tls_cert,
            Name::TlsKey => &mut self.tls_key,
            Name::TlsFirst => &mut self.tls_first,
            Name::InboxPrefix => &mut self.inbox_prefix,
            Name::JsDomain => &mut self.js_domain,
            Name::JsApiPrefix => &mut self.js_api_prefix,
            Name::Context => &mut self.context,
            Name::Nats
            | Name::Dir
            | Name::Bucket
            | Name::Key
            | Name::Token
            | Name::Healthcheck
            | Name::Start
            | Name::Stop
            | Name::LastResort
            | Name::Watchdog
            | Name::Realtime
            | Name::NotifyFd
            | Name::Renewal
            | Name::Failures
            | Name::Confirmations
            | Name::Drift
            | Name::Replicas
            | Name::AllowMemory
            | Name::Syslog
            | Name::Verbose
            | Name::Quiet
            | Name::Help
            | Name::Version => return Ok(()),
        };
        *slot = Some(text);
        self.first.get_or_insert(shown);
        Ok(())
    }

    pub(super) fn has_context(&self) -> bool {
        self.context.is_some()
    }

    /// With the lock in a directory there is nobody to log in to. Whoever typed how
    /// to has forgotten the server, and must not get a lock that covers one host.
    pub(super) fn without_server(&self) -> Result<Access, Refusal> {
        match &self.first {
            None => Ok(Access::default()),
            Some(shown) => Err(usage(format!(
                "{shown}: is for a server, and the lock would be kept in a directory; see --nats"
            ))),
        }
    }

    /// Fills what was not typed from the environment.
    pub(super) fn complete(mut self, var: Lookup<'_>) -> Result<Access, Refusal> {
        let set = |name: &str| var(name).filter(|value| !value.is_empty());
        let login = match self.login(set("NATS_PASSWORD"))? {
            None => login_of(&set),
            typed => typed,
        };
        let cert = self.tls_cert.take().or_else(|| set("NATS_CERT"));
        let key = self.tls_key.take().or_else(|| set("NATS_KEY"));
        let tls_certificate = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            (None, None) => None,
            (Some(_), None) => return Err(usage("--tlscert: needs --tlskey".to_owned())),
            (None, Some(_)) => return Err(usage("--tlskey: needs --tlscert".to_owned())),
        };
        let api = match (&self.js_domain, self.js_api_prefix.take()) {
            (Some(_), Some(_)) => {
                let text = "--js-domain: not together with --js-api-prefix";
                return Err(usage(text.to_owned()));
            }
            (Some(domain), None) => {
                Some(api_of(domain).map_err(|why| usage(format!("--js-domain: {why}")))?)
            }
            (None, prefix) => prefix,
        };
        for (shown, subject) in [
            ("--inbox-prefix", &self.inbox_prefix),
            ("--js-api-prefix", &api),
        ] {
            if let Some(subject) = subject {
                valid_subject(subject)
                    .map_err(|why| usage(format!("{shown}: {subject}: {why}")))?;
            }
        }
        Ok(Access {
            login,
            tls_ca: self.tls_ca.or_else(|| set("NATS_CA")).map(PathBuf::from),
            tls_certificate,
            tls_first: self.tls_first.is_some(),
            inbox: self.inbox_prefix,
            api,
            context: self.context.or_else(|| set("NATS_CONTEXT")),
        })
    }

    /// The one way to log in that was typed. `password` is the environment's.
    fn login(&mut self, password: Option<String>) -> Result<Option<Login>, Refusal> {
        let ways = [
            ("--user", &self.user),
            ("--auth-token-file", &self.auth_token_file),
            ("--nkey", &self.nkey),
            ("--creds", &self.creds),
        ];
        let mut typed = ways.iter().filter(|(_, value)| value.is_some());
        if let (Some((one, _)), Some((two, _))) = (typed.next(), typed.next()) {
            return Err(usage(format!("{two}: not together with {one}")));
        }
        let password = match (self.password_file.take(), &self.user) {
            (Some(path), Some(_)) => Secret::File(path.into()),
            (Some(_), None) => return Err(usage("--password-file: needs --user".to_owned())),
            (None, _) => Secret::Given(password.unwrap_or_default()),
        };
        Ok(if let Some(name) = self.user.take() {
            Some(Login::User { name, password })
        } else if let Some(path) = self.auth_token_file.take() {
            Some(Login::Token(Secret::File(path.into())))
        } else if let Some(path) = self.nkey.take() {
            Some(Login::Nkey(path.into()))
        } else {
            self.creds.take().map(|path| Login::Creds(path.into()))
        })
    }
}

/// The way to log in that the environment has, in the nats command's order.
fn login_of(set: &dyn Fn(&str) -> Option<String>) -> Option<Login> {
    if let Some(name) = set("NATS_USER") {
        let password = Secret::Given(set("NATS_PASSWORD").unwrap_or_default());
        return Some(Login::User { name, password });
    }
    if let Some(path) = set("NATS_CREDS") {
        return Some(Login::Creds(path.into()));
    }
    if let Some(path) = set("NATS_NKEY") {
        return Some(Login::Nkey(path.into()));
    }
    set("NATS_TOKEN").map(|token| Login::Token(Secret::Given(token)))
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
