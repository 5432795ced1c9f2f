//! The settings in force, each with its value and its origin. Possible secrets are hidden.

use std::path::Path;

use crate::cli::access::Access;
use crate::cli::settings::Settings;
use crate::cli::table::{FLAGS, Flag, Name};
use crate::cli::{CheckArgs, Location, without_secret};
use crate::core::{Ms, sanitize};
use crate::nats::{Login, Secret, Server};

/// Shown instead of a secret.
const HIDDEN: &str = "(hidden)";

/// The material of the output.
struct View<'a> {
    settings: &'a Settings,
    location: Option<&'a Location>,
    /// The location with the settings of its context.
    complete: Option<&'a Location>,
    /// The name of this host.
    host: &'a str,
}

/// Returns all settings, a line each.
pub(super) fn settings(args: &CheckArgs, complete: Option<&Location>, host: &str) -> String {
    let CheckArgs { settings, config, resolved } = args;
    let view = View { settings, location: resolved.location.as_ref(), complete, host };
    let mut lines = Vec::new();
    if let Some(path) = config {
        lines.push(line("config", path, &view.origin(Name::Config, "default")));
    }
    for flag in FLAGS {
        lines.extend(view.setting(flag));
        lines.extend(view.secret(flag.name));
    }
    if let Some(timing) = resolved.args.as_ref().map(|args| args.guard.timing) {
        let failover = timing.takeover_wait(timing.lock_time()) + timing.confirmation();
        for (name, value) in [("(stop budget)", timing.stop_budget()), ("(failover)", failover)] {
            lines.push(line(name, &Ms(value).to_string(), "from R, F, C and drift"));
        }
    }
    lines.concat()
}

fn line(name: &str, value: &str, origin: &str) -> String {
    format!("{name:<16} {}  [{origin}]\n", sanitize(value))
}

impl View<'_> {
    /// Returns the line of a setting; `None` if it is not in force.
    fn setting(&self, flag: &Flag) -> Option<String> {
        let (key, name) = (flag.key()?, flag.name);
        let is_in_force = match self.location {
            None => true,
            Some(Location::Nats(_)) => name != Name::Dir,
            Some(Location::Dir(_)) => !is_for_servers(name),
        };
        let access = self.access();
        if !is_in_force || name == Name::JsApiPrefix && access.is_some() && self.has_domain() {
            return None;
        }
        let given = || self.settings.text(name).map(str::to_owned);
        let value = match (name, access) {
            (Name::Nats, Some(access)) => access.url.as_deref().map(servers),
            (Name::Nats, None) => self.settings.text(name).map(servers),
            // Only the one with the higher precedence is in force.
            (Name::Verbose | Name::Quiet, _) if self.settings.is_overridden(name) => None,
            (name, Some(access)) if name.is_of_access() => self.of_access(name, access),
            _ => given(),
        };
        match value {
            Some(value) => Some(line(key, &value, &self.origin(name, &self.context()))),
            None => Some(line(key, &self.default(flag)?, "default")),
        }
    }

    /// Returns the value of a setting that is not set.
    fn default(&self, flag: &Flag) -> Option<String> {
        let default = match (flag.name, flag.value) {
            (Name::Token, _) => self.host,
            (_, "") => "no",
            _ => flag.default,
        };
        Some(default.to_owned()).filter(|default| !default.is_empty())
    }

    /// Returns the settings for a connection, those of a context included.
    fn access(&self) -> Option<&Access> {
        match self.complete? {
            Location::Nats(access) => Some(access),
            Location::Dir(_) => None,
        }
    }

    /// Returns the origin of a setting, or `other` if it is not set.
    fn origin(&self, name: Name, other: &str) -> String {
        self.settings.get(name).map_or_else(|| other.to_owned(), |setting| setting.origin.clone())
    }

    fn context(&self) -> String {
        let name = self.settings.text(Name::Context).unwrap_or_default();
        format!("context {name}")
    }

    /// Returns the value of an option of login, TLS or subjects.
    fn of_access(&self, name: Name, access: &Access) -> Option<String> {
        let Access { login, tls, inbox, api, .. } = access;
        let path = |path: &Path| path.display().to_string();
        let file = |secret: &Secret| match secret {
            Secret::File(file) => Some(path(file)),
            Secret::Given(_) => None,
        };
        match (name, login) {
            (Name::User, Some(Login::User { name, .. })) => Some(name.clone()),
            (Name::PasswordFile, Some(Login::User { password, .. })) => file(password),
            (Name::AuthTokenFile, Some(Login::Token(token))) => file(token),
            (Name::Nkey, Some(Login::Nkey(file))) => Some(path(file)),
            (Name::Creds, Some(Login::Creds(file))) => Some(path(file)),
            (Name::TlsCa, _) => tls.ca.as_deref().map(path),
            (Name::TlsCert, _) => tls.certificate.as_ref().map(|(file, _)| path(file)),
            (Name::TlsKey, _) => tls.certificate.as_ref().map(|(_, file)| path(file)),
            (Name::TlsFirst, _) => tls.first.then(|| "yes".to_owned()),
            (Name::InboxPrefix, _) => inbox.clone(),
            (Name::JsDomain, _) if self.has_domain() => {
                self.settings.text(Name::JsDomain).map(str::to_owned)
            }
            (Name::JsApiPrefix, _) => api.clone(),
            _ => None,
        }
    }

    fn has_domain(&self) -> bool {
        self.settings.precedence(Name::JsDomain) > self.settings.precedence(Name::JsApiPrefix)
    }

    /// Returns a line about a secret that is not in a file.
    fn secret(&self, name: Name) -> Option<String> {
        let (name, variable) = match (name, self.access()?.login.as_ref()?) {
            (Name::User, Login::User { password: Secret::Given(word), .. }) if !word.is_empty() => {
                ("(password)", "NATS_PASSWORD")
            }
            (Name::AuthTokenFile, Login::Token(Secret::Given(_))) => ("(auth token)", "NATS_TOKEN"),
            _ => return None,
        };
        match self.location? {
            Location::Nats(own) if own.login.is_none() => Some(line(name, HIDDEN, &self.context())),
            Location::Nats(_) | Location::Dir(_) => Some(line(name, HIDDEN, variable)),
        }
    }
}

/// Returns whether a setting makes sense with a server only.
fn is_for_servers(name: Name) -> bool {
    name.is_of_access()
        || matches!(name, Name::Nats | Name::Context | Name::Replicas | Name::AllowMemory)
}

/// Returns a list of servers without the part before the @ of a URL.
fn servers(list: &str) -> String {
    if Server::parse_list(list).is_err() && list.contains('@') {
        return HIDDEN.to_owned();
    }
    list.split(',').map(without_secret).collect::<Vec<_>>().join(",")
}
