//! The settings in force, each with its value and its origin. Possible secrets are hidden.

use std::fmt::Write as _;

use crate::cli::connect::{Endpoint, Servers};
use crate::cli::settings::Settings;
use crate::cli::table::{FLAGS, Flag, Name};
use crate::cli::{CheckArgs, Location};
use crate::core::text::sanitize;
use crate::core::time::Ms;
use crate::nats::{self, Login, Secret, Server};

/// Shown instead of a secret.
const HIDDEN: &str = "(hidden)";

/// A line of the output.
struct Row {
    name: &'static str,
    value: String,
    origin: String,
}

/// The material of the output.
struct View<'a> {
    settings: &'a Settings,
    location: Option<&'a Location>,
    endpoint: Option<&'a Endpoint>,
    /// The name of this host.
    host: &'a str,
}

/// Returns all settings, a line each.
pub(super) fn settings(args: &CheckArgs, endpoint: Option<&Endpoint>, host: &str) -> String {
    let view = View {
        settings: &args.settings,
        location: args.resolved.location.as_ref().map(|(location, _)| location),
        endpoint,
        host,
    };
    let mut text = String::new();
    let file = args.config.as_ref().map(|path| Row {
        name: "config",
        value: path.clone(),
        origin: view.origin(Name::Config, "default"),
    });
    let rows = FLAGS.iter().flat_map(|flag| view.rows(flag));
    for row in file.into_iter().chain(rows).chain(calculated(args)) {
        let Row { name, value, origin } = row;
        let value = sanitize(&value);
        // Writing into a String cannot fail.
        let _ = writeln!(text, "{name:<16} {value}  [{origin}]");
    }
    text
}

/// Returns the times that follow from R, F, C and drift.
fn calculated(args: &CheckArgs) -> Vec<Row> {
    let Some(timing) = args.resolved.args.as_ref().map(|args| args.timing) else {
        return Vec::new();
    };
    let failover = timing.takeover_wait(timing.lock_time()) + timing.confirmation();
    [("(stop budget)", timing.stop_budget()), ("(failover)", failover)]
        .into_iter()
        .map(|(name, value)| Row {
            name,
            value: Ms(value).to_string(),
            origin: "from R, F, C and drift".to_owned(),
        })
        .collect()
}

impl View<'_> {
    fn rows(&self, flag: &Flag) -> Vec<Row> {
        let Some(name) = flag.key() else {
            return Vec::new();
        };
        let row = |(value, origin)| Row { name, value, origin };
        let secret = self.secret(flag.name);
        self.value(flag).map(row).into_iter().chain(secret).collect()
    }

    /// Returns the value of a setting and its origin; `None` if it is not in force.
    fn value(&self, flag: &Flag) -> Option<(String, String)> {
        let name = flag.name;
        let given = self.settings.get(name).map(|given| given.text.clone());
        let origin = |other: &str| self.origin(name, other);
        match (self.location, name) {
            (Some(Location::Nats(_)) | None, Name::Nats) => {
                Some((servers(&given?), origin("default")))
            }
            (Some(Location::Dir(dir)), Name::Dir) => {
                Some((dir.display().to_string(), origin("default")))
            }
            (Some(Location::DefaultDir), Name::Dir) => match self.endpoint? {
                Endpoint::Dir(base) => Some((base.display().to_string(), "default".to_owned())),
                Endpoint::Nats(_) => None,
            },
            (Some(Location::Context), Name::Nats) => {
                let url = self.servers()?.context.url.as_deref()?;
                Some((servers(url), self.context()))
            }
            (Some(_), Name::Nats | Name::Dir) => None,
            (Some(Location::Dir(_) | Location::DefaultDir), name) if is_for_servers(name) => None,
            // Only the one with the higher precedence is in force.
            (_, Name::Verbose | Name::Quiet) if self.settings.is_overridden(name) => {
                Some(("no".to_owned(), "default".to_owned()))
            }
            (_, Name::Token) if given.is_none() => {
                Some((self.host.to_owned(), "default".to_owned()))
            }
            (Some(_), name) if self.servers().is_some() && name.is_of_access() => {
                self.of_access(flag)
            }
            _ => {
                let other = match (flag.value, flag.default) {
                    ("", _) => Some("no".to_owned()),
                    (_, "") => None,
                    (_, default) => Some(default.to_owned()),
                };
                Some((given.or(other)?, origin("default")))
            }
        }
    }

    fn servers(&self) -> Option<&Servers> {
        match self.endpoint? {
            Endpoint::Nats(servers) => Some(servers),
            Endpoint::Dir(_) => None,
        }
    }

    /// Returns the origin of a setting, or `other` if it is not set.
    fn origin(&self, name: Name, other: &str) -> String {
        let given = self.settings.get(name);
        given.map_or_else(|| other.to_owned(), |given| given.origin.to_string())
    }

    fn context(&self) -> String {
        let name = self.settings.text(Name::Context).unwrap_or_default();
        format!("context {name}")
    }

    /// Returns the value of an option for servers, from the settings or from a context, and
    /// its origin.
    fn of_access(&self, flag: &Flag) -> Option<(String, String)> {
        let nats::ConnectOptions { login, tls, inbox } = &self.servers()?.access;
        let path = |path: &std::path::Path| path.display().to_string();
        let file = |secret: &Secret| match secret {
            Secret::File(file) => Some(path(file)),
            Secret::Given(_) => None,
        };
        let value = match (flag.name, login) {
            (Name::User, Login::User { name, .. }) => Some(name.clone()),
            (Name::PasswordFile, Login::User { password, .. }) => file(password),
            (Name::AuthTokenFile, Login::Token(token)) => file(token),
            (Name::Nkey, Login::Nkey(file)) | (Name::Creds, Login::Creds(file)) => Some(path(file)),
            (Name::TlsCa, _) => tls.ca.as_deref().map(path),
            (Name::TlsCert, _) => tls.certificate.as_ref().map(|(file, _)| path(file)),
            (Name::TlsKey, _) => tls.certificate.as_ref().map(|(_, file)| path(file)),
            (Name::TlsFirst, _) => tls.first.then(|| "yes".to_owned()),
            (Name::InboxPrefix, _) => Some(inbox.clone()).filter(|inbox| inbox != flag.default),
            (Name::JsDomain, _) if self.has_domain() => {
                self.settings.text(Name::JsDomain).map(str::to_owned)
            }
            (Name::JsApiPrefix, _) if !self.has_domain() => self.servers()?.api.clone(),
            _ => None,
        };
        match value {
            Some(value) => Some((value, self.origin(flag.name, &self.context()))),
            None if flag.name == Name::TlsFirst => Some(("no".to_owned(), "default".to_owned())),
            None if flag.default.is_empty()
                || flag.name == Name::JsApiPrefix && self.has_domain() =>
            {
                None
            }
            None => Some((flag.default.to_owned(), self.origin(flag.name, "default"))),
        }
    }

    fn has_domain(&self) -> bool {
        self.settings.precedence(Name::JsDomain) > self.settings.precedence(Name::JsApiPrefix)
    }

    /// Returns a line about a secret that is not in a file.
    fn secret(&self, name: Name) -> Option<Row> {
        let login = &self.servers()?.access.login;
        let (name, variable) = match (name, login) {
            (Name::User, Login::User { password: Secret::Given(word), .. }) if !word.is_empty() => {
                ("(password)", "NATS_PASSWORD")
            }
            (Name::AuthTokenFile, Login::Token(Secret::Given(_))) => ("(auth token)", "NATS_TOKEN"),
            _ => return None,
        };
        let origin = match self.servers()?.context.access.login.as_ref() == Some(login) {
            true => self.context(),
            false => variable.to_owned(),
        };
        let value = HIDDEN.to_owned();
        Some(Row { name, value, origin })
    }
}

/// Returns whether a setting makes sense with a server only.
fn is_for_servers(name: Name) -> bool {
    name.is_of_access() || matches!(name, Name::Context | Name::Replicas | Name::AllowMemory)
}

/// Returns a list of servers without the part before the @ of a URL.
fn servers(list: &str) -> String {
    if Server::parse_list(list).is_err() && list.contains('@') {
        return HIDDEN.to_owned();
    }
    let shown = list.split(',').map(|entry| match entry.rsplit_once('@') {
        Some((before, host)) => {
            let scheme = before.find("://").map_or(0, |at| at + 3);
            format!("{}...@{host}", &before[..scheme])
        }
        None => entry.to_owned(),
    });
    shown.collect::<Vec<_>>().join(",")
}
