//! Credentials, and the files that they are read from.

use std::fmt;
use std::path::{Path, PathBuf};

use data_encoding::BASE64URL_NOPAD;
use serde_json::{Map, Value};

use super::nkey::KeyPair;
use super::{calendar, file};
use crate::sys;

/// The credentials of a CONNECT line. A closed enum on purpose: another kind of
/// credentials is another variant, and every `match` must then handle it.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// None: the server requires none, or identifies the client by its certificate.
    #[default]
    None,
    /// A user name and its password.
    User {
        /// The name.
        user: String,
        /// The password, perhaps empty.
        password: String,
    },
    /// A token.
    Token(String),
    /// A key whose public part the server knows.
    Nkey(KeyPair),
    /// A JWT signed by an account of the server, and the key of its subject.
    Jwt {
        /// The JWT.
        jwt: String,
        /// The key.
        pair: KeyPair,
    },
}

/// The source of the credentials, read at each connection.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Login {
    /// No credentials.
    #[default]
    None,
    /// A user name and its password.
    User {
        /// The name.
        name: String,
        /// The password.
        password: Secret,
    },
    /// A token.
    Token(Secret),
    /// A file with the seed of an nkey.
    Nkey(PathBuf),
    /// A file with a JWT and the seed of its nkey.
    Creds(PathBuf),
}

/// A password or a token.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The secret itself.
    Given(String),
    /// The file whose only line is the secret.
    File(PathBuf),
}

impl Secret {
    fn read(&self) -> Result<String, String> {
        match self {
            Secret::Given(word) => Ok(word.clone()),
            Secret::File(path) => file::read_line(path),
        }
    }
}

impl Login {
    /// Reads the credentials from their files, at every call.
    ///
    /// # Errors
    ///
    /// Which file cannot be used, and why. The error contains nothing of the file.
    pub fn read(&self) -> Result<Credentials, String> {
        Ok(match self {
            Login::None => Credentials::None,
            Login::User { name, password } => {
                Credentials::User { user: name.clone(), password: password.read()? }
            }
            Login::Token(token) => Credentials::Token(token.read()?),
            Login::Nkey(path) => Credentials::Nkey(nkey_file(path)?),
            Login::Creds(path) => creds_file(path)?,
        })
    }

    /// Returns the part of the login that identifies its owner and is not secret.
    #[must_use]
    pub fn owner(&self) -> String {
        match self {
            Login::None => String::new(),
            Login::User { name, .. } => format!("user {name}"),
            Login::Token(Secret::Given(_)) => "token".to_owned(),
            Login::Token(Secret::File(path)) => format!("token {:?}", sys::absolute(path)),
            Login::Nkey(path) => format!("nkey {:?}", sys::absolute(path)),
            Login::Creds(path) => format!("creds {:?}", sys::absolute(path)),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Login::None => "None",
            Login::User { .. } => "User(..)",
            Login::Token(_) => "Token(..)",
            Login::Nkey(_) => "Nkey(..)",
            Login::Creds(_) => "Creds(..)",
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

/// Reads the first line of a file that begins with S, as seeds do. Other lines, such as
/// the marks of a creds file, are skipped.
fn nkey_file(path: &Path) -> Result<KeyPair, String> {
    let text = file::read_secret(path)?;
    let mut lines = text.lines().map(str::trim);
    let seed = lines.find(|line| line.starts_with('S')).unwrap_or_default();
    let shown = path.display();
    if seed.is_empty() {
        return Err(format!("{shown}: no line of it is the seed of an nkey"));
    }
    KeyPair::from_seed(seed).map_err(|why| format!("{shown}: not the seed of an nkey: {why}"))
}

/// Reads the two marked sections of a creds file: the JWT and the seed.
fn creds_file(path: &Path) -> Result<Credentials, String> {
    let text = file::read_secret(path)?;
    let refuse = |why: &str| format!("{}: not a creds file: {why}", path.display());
    let jwt = between(&text, "NATS USER JWT").ok_or_else(|| refuse("it has no NATS USER JWT"))?;
    let seed =
        between(&text, "USER NKEY SEED").ok_or_else(|| refuse("it has no USER NKEY SEED"))?;
    let pair = KeyPair::from_seed(seed).map_err(|why| refuse(&format!("its seed: {why}")))?;
    let claims = claims(jwt).ok_or_else(|| refuse("its JWT is damaged"))?;
    if claims["sub"].as_str() != Some(pair.public()) {
        return Err(refuse("its JWT is for another nkey than its seed"));
    }
    let jwt = jwt.to_owned();
    Ok(Credentials::Jwt { jwt, pair })
}

/// Returns the first line that is not blank after the mark BEGIN `name`.
fn between<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let is_mark = |line: &str| line.starts_with("---");
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| is_mark(line) && line.contains(&format!("BEGIN {name}")))?;
    let line = lines.find(|line| !line.is_empty())?;
    (!is_mark(line)).then_some(line)
}

/// Returns the claims of a JWT. The server verifies its signature.
fn claims(jwt: &str) -> Option<Value> {
    let mut parts = jwt.split('.');
    let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
    let claims = BASE64URL_NOPAD.decode(claims.as_bytes()).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    (parts.next().is_none() && claims.is_object()).then_some(claims)
}

impl Credentials {
    /// Adds the credentials to the fields of CONNECT. `nonce` is the text that the server
    /// wants signed.
    ///
    /// # Errors
    ///
    /// When there is a key and no nonce.
    pub(super) fn add_to(
        &self,
        connect: &mut Map<String, Value>,
        nonce: Option<&str>,
    ) -> Result<(), &'static str> {
        let mut add = |name: &str, value: &str| {
            connect.insert(name.to_owned(), Value::String(value.to_owned()));
        };
        let nonce = nonce.ok_or("it knows neither nkeys nor JWTs");
        match self {
            Credentials::None => {}
            Credentials::User { user, password } => {
                add("user", user);
                add("pass", password);
            }
            Credentials::Token(token) => add("auth_token", token),
            Credentials::Nkey(pair) => {
                add("nkey", pair.public());
                add("sig", &pair.sign(nonce?)?);
            }
            Credentials::Jwt { jwt, pair } => {
                add("jwt", jwt);
                add("sig", &pair.sign(nonce?)?);
            }
        }
        Ok(())
    }

    /// Returns a likely reason for which a server refused these credentials, as the end of
    /// a message; empty when none is known.
    pub(super) fn refusal_hint(&self) -> String {
        match self {
            Credentials::None => " (nothing was given to log in with)".to_owned(),
            Credentials::User { .. } | Credentials::Token(_) => String::new(),
            Credentials::Nkey(pair) => format!(" (nkey {})", pair.public()),
            Credentials::Jwt { jwt, pair } => {
                let user = pair.public();
                let claims = claims(jwt).unwrap_or_default();
                match (claims["exp"].as_u64(), sys::wall_clock()) {
                    (Some(end), Some(now)) if 0 < end && end <= now => {
                        let end = calendar::utc(end);
                        format!(" (the JWT of user {user} expired at {end})")
                    }
                    _ => {
                        format!(" (JWT of user {user}: revoked, or not of this server's accounts)")
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Credentials::None => "None",
            Credentials::User { .. } => "User(..)",
            Credentials::Token(_) => "Token(..)",
            Credentials::Nkey(_) => "Nkey(..)",
            Credentials::Jwt { .. } => "Jwt(..)",
        })
    }
}

#[cfg(test)]
mod tests;
