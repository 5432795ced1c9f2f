//! Contexts of the nats command: files with the servers, the login and TLS.

use std::fmt;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::Lookup;
use super::access::{Access, api_of};
use crate::nats::encode::valid_subject;
use crate::nats::{Login, Secret, Tls, file};

/// Fields that would change the login or the route, and are not supported.
const NOT_SUPPORTED: [&str; 4] = ["nsc", "socks_proxy", "user_jwt", "user_seed"];

/// Fields that name files, or may do so.
const FILES: [&str; 7] = ["password", "token", "creds", "nkey", "ca", "cert", "key"];

/// Reads a context: one of this user's by its name, or any by a path. A path has a slash.
///
/// # Errors
///
/// The file cannot be used. The message holds nothing of its content.
pub fn load(name: &str, var: Lookup<'_>) -> Result<Access, String> {
    let path = path_of(name, var)?;
    let shown = path.display();
    let text = file::read_public(&path);
    let text = text.map_err(|error| error.text)?;
    let fields: Map<String, Value> = serde_json::from_slice(text.as_bytes())
        .map_err(|_| format!("{shown}: is not a context, which is a JSON object"))?;
    let mut context = read(&fields, var).map_err(|why| format!("{shown}: {why}"))?;
    for (written, _) in &mut context.files {
        *written = format!("{shown}: {written}");
    }
    let holds_secret = matches!(
        context.login,
        Some(Login::User { password: Secret::Given(_), .. } | Login::Token(Secret::Given(_)))
    );
    if holds_secret || context.url.as_ref().is_some_and(|url| url.contains('@')) {
        file::read_secret(&path).map_err(|error| error.text)?;
    }
    Ok(context)
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

fn read(fields: &Map<String, Value>, var: Lookup<'_>) -> Result<Access, String> {
    for name in NOT_SUPPORTED {
        if field(fields, name)?.is_some() {
            return Err(format!("{name} is not supported"));
        }
    }
    let file = |name: &str| parsed(fields, name, |text| expand(text, var));
    let certificate = match (file("cert")?, file("key")?) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (Some(_), None) => return Err("cert: needs key".to_owned()),
        (None, Some(_)) => return Err("key: needs cert".to_owned()),
    };
    let domain = parsed(fields, "jetstream_domain", api_of)?;
    // A password or a token that is no URI is the secret itself.
    let is_secret = |name: &str| {
        let text = field(fields, name).ok().flatten();
        ["password", "token"].contains(&name) && !text.is_some_and(|text| is_uri(&text))
    };
    let named = |name: &str| Some((name.to_owned(), file(name).ok()??));
    Ok(Access {
        url: field(fields, "url")?,
        login: login(fields, &file)?,
        tls: Tls {
            ca: file("ca")?,
            certificate,
            first: fields.get("tls_first") == Some(&Value::Bool(true)),
        },
        inbox: parsed(fields, "inbox_prefix", valid_subject)?,
        api: parsed(fields, "jetstream_api_prefix", valid_subject)?.or(domain),
        files: FILES.into_iter().filter(|name| !is_secret(name)).filter_map(named).collect(),
        ..Access::default()
    })
}

/// Returns the value of a field, parsed; `None` if it is missing, null or blank.
fn parsed<T, E: fmt::Display>(
    fields: &Map<String, Value>,
    name: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Option<T>, String> {
    let text = field(fields, name)?;
    text.map(|text| parse(&text).map_err(|why| format!("{name}: {why}"))).transpose()
}

/// Returns the login. Of several, the nats command takes the same.
fn login(
    fields: &Map<String, Value>,
    file: &dyn Fn(&str) -> Result<Option<PathBuf>, String>,
) -> Result<Option<Login>, String> {
    let secret = |name: &str| match field(fields, name)? {
        Some(text) if !is_uri(&text) => Ok(Some(Secret::Given(text))),
        Some(_) | None => file(name).map(|path| path.map(Secret::File)),
    };
    if let Some(name) = field(fields, "user")? {
        let password = secret("password")?.unwrap_or_else(|| Secret::Given(String::new()));
        return Ok(Some(Login::User { name, password }));
    }
    if let Some(path) = file("creds")? {
        return Ok(Some(Login::Creds(path)));
    }
    match file("nkey")? {
        Some(path) => Ok(Some(Login::Nkey(path))),
        None => Ok(secret("token")?.map(Login::Token)),
    }
}

/// Returns the text of a field; `None` if it is missing, null or blank.
fn field(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    let value = fields.get(name).filter(|value| !value.is_null());
    let text = value.map(|value| value.as_str().ok_or_else(|| format!("{name} is not text")));
    Ok(text.transpose()?.filter(|text| !text.is_empty()).map(str::to_owned))
}

/// The beginnings of values that are neither a secret itself nor a path.
const SCHEMES: [&str; 5] = ["file://", "env://", "data:", "op://", "nsc://"];

fn is_uri(text: &str) -> bool {
    SCHEMES.iter().any(|scheme| text.starts_with(scheme))
}

/// Replaces `~/` by the home and `$NAME` and `${NAME}` by their values.
fn expand(text: &str, var: Lookup<'_>) -> Result<PathBuf, String> {
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
    Ok(out.into())
}

#[cfg(test)]
mod tests;
