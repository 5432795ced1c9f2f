//! Contexts of the nats command: files with the servers, the login and TLS. A context is one more
//! origin of settings, the one with the lowest precedence.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::settings::{Precedence, Setting, Settings};
use super::table::Name;
use super::{Environment, Lookup};
use crate::core::sanitize;
use crate::exit::{Exit, Refusal};

/// Fields that would change the login or the route, and are not supported.
const NOT_SUPPORTED: [&str; 4] = ["nsc", "socks_proxy", "user_jwt", "user_seed"];

/// Fields that are options of putex under another name.
const FIELDS: [(&str, Name); 5] = [
    ("url", Name::Nats),
    ("user", Name::User),
    ("inbox_prefix", Name::InboxPrefix),
    ("jetstream_domain", Name::JsDomain),
    ("jetstream_api_prefix", Name::JsApiPrefix),
];

/// Fields that name files. A value of `password` or `token` that is no URI is the secret itself.
const FILES: [(&str, Name); 7] = [
    ("creds", Name::Creds),
    ("nkey", Name::Nkey),
    ("ca", Name::TlsCa),
    ("cert", Name::TlsCert),
    ("key", Name::TlsKey),
    ("password", Name::PasswordFile),
    ("token", Name::AuthTokenFile),
];

/// Returns the settings of the context that these settings name: one of this user's by its name, or
/// any by a path, which has a slash. None for a lock in a directory.
pub(super) fn load(
    settings: &Settings,
    environment: &Environment<'_>,
) -> Result<Settings, Refusal> {
    let name = settings.nonblank(Name::Context)?.filter(|_| !settings.is_in_directory());
    let Some(name) = name else { return Ok(Settings::default()) };
    let loaded = load_file(&name, environment);
    loaded.map_err(|why| settings.refusal(Name::Context, Exit::Unsafe, &why))
}

fn load_file(name: &str, environment: &Environment<'_>) -> Result<Settings, String> {
    let path = path_of(name, environment.var)?;
    let file = (environment.read)(&path)?;
    let shown = sanitize(&path.display().to_string());
    let file = file.ok_or_else(|| format!("{shown}: no such file or directory"))?;
    let fields: Map<String, Value> = serde_json::from_slice(&file.bytes)
        .map_err(|_| format!("{shown}: is not a context, which is a JSON object"))?;
    let found = read(&fields, &shown, environment.var);
    let found = found.map_err(|why| format!("{shown}: {why}"))?;
    let in_url = found.text(Name::Nats).is_some_and(|url| url.contains('@'));
    let has_secret = [Name::Password, Name::AuthToken].map(|name| found.get(name).is_some());
    match file.others_read && (in_url || has_secret.contains(&true)) {
        true => Err(format!("{shown}: others can read this secret; chmod o= {shown}")),
        false => Ok(found),
    }
}

/// Returns the path of a context, whether the file exists or not.
///
/// # Errors
///
/// Neither XDG_CONFIG_HOME nor HOME is set.
pub fn path_of(name: &str, var: Lookup<'_>) -> Result<PathBuf, String> {
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    let set = |name: &str| var(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    let base = base.ok_or("there is no HOME to find it in; give a path")?;
    Ok(base.join(format!("nats/context/{name}.json")))
}

/// Returns the settings in these fields of the context in this file.
fn read(fields: &Map<String, Value>, file: &str, var: Lookup<'_>) -> Result<Settings, String> {
    for name in NOT_SUPPORTED {
        if field(fields, name)?.is_some() {
            return Err(format!("{name} is not supported"));
        }
    }
    let mut found = Settings::default();
    let setting = |field: &str, text: String| {
        let (origin, written) = (file.to_owned(), format!("{file}: {field}"));
        Setting { text, precedence: Precedence::Context, origin, written }
    };
    for (name, option) in FIELDS {
        if let Some(text) = field(fields, name)? {
            found.set(option, setting(name, text));
        }
    }
    if found.get(Name::JsApiPrefix).is_some() {
        found.by_name.remove(&Name::JsDomain);
    }
    if fields.get("tls_first") == Some(&Value::Bool(true)) {
        found.set(Name::TlsFirst, setting("tls_first", "yes".to_owned()));
    }
    for (name, option) in FILES {
        let Some(text) = field(fields, name)? else { continue };
        if option == Name::PasswordFile && found.get(Name::User).is_none() {
            continue;
        }
        if ["password", "token"].contains(&name) && !is_uri(&text) {
            let secret = if name == "token" { Name::AuthToken } else { Name::Password };
            found.set(secret, setting(name, text));
        } else {
            let path = expand(&text, var).map_err(|why| format!("{name}: {why}"))?;
            found.set(option, setting(name, path));
        }
    }
    Ok(found)
}

/// Returns the text of a field; `None` if it is missing, null or blank.
fn field(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    let value = fields.get(name).filter(|value| !value.is_null());
    let text = value.map(|value| value.as_str().ok_or_else(|| format!("{name} is not text")));
    Ok(text.transpose()?.filter(|text| !text.trim().is_empty()).map(str::to_owned))
}

/// The beginnings of values that are neither a secret itself nor a path.
const SCHEMES: [&str; 5] = ["file://", "env://", "data:", "op://", "nsc://"];

fn is_uri(text: &str) -> bool {
    SCHEMES.iter().any(|scheme| text.starts_with(scheme))
}

/// Replaces `~/` by the home and `$NAME` and `${NAME}` by their values.
fn expand(text: &str, var: Lookup<'_>) -> Result<String, String> {
    let path = text.strip_prefix("file://");
    if path.is_none() && is_uri(text) {
        return Err("only paths and file:// are supported".to_owned());
    }
    let text = path.unwrap_or(text);
    let value = |name: &str| {
        let value = var(name).ok_or_else(|| format!("${name} is not set"))?;
        value.into_string().map_err(|_| format!("${name}: its value is not UTF-8"))
    };
    let (mut out, mut rest) = match text.strip_prefix('~') {
        Some(after) if after.is_empty() || after.starts_with('/') => (value("HOME")?, after),
        Some(_) | None => (String::new(), text),
    };
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let (name, left) = match after.strip_prefix('{').and_then(|name| name.split_once('}')) {
            Some(both) => both,
            None => after.split_at(after.find(|c| !is_of_name(c)).unwrap_or(after.len())),
        };
        out.push_str(&value(name)?);
        rest = left;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests;
