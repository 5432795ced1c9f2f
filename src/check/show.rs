//! The settings in force, each with its value and its origin. Possible secrets are hidden.

use crate::cli::settings::Settings;
use crate::cli::table::{FLAGS, Flag, Name};
use crate::cli::{CheckArgs, Location, Lookup, context, without_secret};
use crate::core::{Ms, sanitize};
use crate::nats::{Login, Secret, Server};

/// Shown instead of a secret.
const HIDDEN: &str = "(hidden)";

/// Returns all settings, a line each: as they were given, or their defaults.
pub(super) fn settings(args: &CheckArgs, var: Lookup<'_>, host: &str) -> String {
    let CheckArgs { settings, config, resolved } = args;
    let mut lines = Vec::new();
    if let Some(path) = config {
        let origin = settings.get(Name::Config).map_or("default", |given| &given.origin);
        lines.push(line("config", path, origin));
    }
    lines.extend(FLAGS.iter().filter_map(|flag| setting(flag, args, var, host)));
    if let Some(Location::Nats(access)) = &resolved.location {
        lines.extend(access.login.as_ref().and_then(|login| secret(login, settings)));
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

/// Returns the line of a setting; `None` if it is not in force.
fn setting(flag: &Flag, args: &CheckArgs, var: Lookup<'_>, host: &str) -> Option<String> {
    let (key, name, settings) = (flag.key()?, flag.name, &args.settings);
    let given = settings.get(name).filter(|_| !settings.is_overridden(name));
    let is_in_force = match &args.resolved.location {
        None => true,
        Some(Location::Dir(_)) => !is_for_servers(name),
        Some(Location::Nats(access)) => match (name, &access.login) {
            (Name::User, Some(Login::User { .. }))
            | (Name::PasswordFile, Some(Login::User { password: Secret::File(_), .. }))
            | (Name::AuthTokenFile, Some(Login::Token(Secret::File(_))))
            | (Name::Nkey, Some(Login::Nkey(_)))
            | (Name::Creds, Some(Login::Creds(_))) => true,
            (Name::User | Name::PasswordFile | Name::AuthTokenFile, _)
            | (Name::Nkey | Name::Creds | Name::Dir, _) => false,
            _ => true,
        },
    };
    let default = match (name, flag.value) {
        (Name::Token, _) => host,
        (Name::JsApiPrefix, _) if settings.is_overridden(name) => "",
        (_, "") => "no",
        _ => flag.default,
    };
    match given {
        _ if !is_in_force => None,
        Some(given) => Some(line(key, &display(name, &given.text, var), &given.origin)),
        None => (!default.is_empty()).then(|| line(key, default, "default")),
    }
}

/// Returns whether a setting makes sense with a server only.
fn is_for_servers(name: Name) -> bool {
    name.is_of_store() && !matches!(name, Name::Config | Name::Dir | Name::Bucket)
}

/// Returns the value of a setting: a list of servers without the secrets of the URLs, and the
/// path of a context beside its name.
fn display(name: Name, text: &str, var: Lookup<'_>) -> String {
    if name == Name::Context
        && !text.contains('/')
        && let Ok(path) = context::path_of(text, var)
    {
        return format!("{text}, which is {}", path.display());
    }
    if name != Name::Nats {
        return text.to_owned();
    }
    if Server::parse_list(text).is_err() && text.contains(['@', '?']) {
        return HIDDEN.to_owned();
    }
    text.split(',').map(without_secret).collect::<Vec<_>>().join(",")
}

/// Returns a line about a secret that is in no file of its own.
fn secret(login: &Login, settings: &Settings) -> Option<String> {
    let name = match login {
        Login::User { password: Secret::Given(word), .. } if !word.is_empty() => Name::Password,
        Login::Token(Secret::Given(_)) => Name::AuthToken,
        Login::None | Login::User { .. } | Login::Token(_) | Login::Nkey(_) | Login::Creds(_) => {
            return None;
        }
    };
    settings.get(name).map(|given| line(name.flag().long, HIDDEN, &given.origin))
}
