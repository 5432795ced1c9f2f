//! Credentials, and the files that they are read from.

use std::fmt;
use std::path::{Path, PathBuf};

use data_encoding::BASE64URL_NOPAD;
use serde_json::{Value, json};

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
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(..)")
    }
}

/// Reads the first line of a file that begins with S, as seeds do. Other lines, such as
/// the marks of a creds file, are skipped.
fn nkey_file(path: &Path) -> Result<KeyPair, String> {
    let text = file::read_secret(path)?;
    let seed = text.lines().map(str::trim).find(|line| line.starts_with('S'));
    let refuse = |why: &str| format!("{}: {why}", path.display());
    let seed = seed.ok_or_else(|| refuse("no line of it is the seed of an nkey"))?;
    KeyPair::from_seed(seed).map_err(|why| refuse(&format!("not the seed of an nkey: {why}")))
}

/// Reads the two marked sections of a creds file: the JWT and the seed.
fn creds_file(path: &Path) -> Result<Credentials, String> {
    let text = file::read_secret(path)?;
    let refuse = |why: &str| format!("{}: not a creds file: {why}", path.display());
    let section = |name| between(&text, name).ok_or_else(|| refuse(&format!("it has no {name}")));
    let (jwt, seed) = (section("NATS USER JWT")?, section("USER NKEY SEED")?);
    let pair = KeyPair::from_seed(seed).map_err(|why| refuse(&format!("its seed: {why}")))?;
    let claims = claims(jwt).ok_or_else(|| refuse("its JWT is damaged"))?;
    if claims["sub"].as_str() != Some(pair.public()) {
        return Err(refuse("its JWT is for another nkey than its seed"));
    }
    Ok(Credentials::Jwt { jwt: jwt.to_owned(), pair })
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
    let parts: Vec<_> = jwt.splitn(4, '.').collect();
    let [_, claims, _] = parts[..] else { return None };
    let claims = BASE64URL_NOPAD.decode(claims.as_bytes()).ok()?;
    serde_json::from_slice(&claims).ok().filter(Value::is_object)
}

impl Credentials {
    /// Adds the credentials to CONNECT, a JSON object. `nonce` is the text that the server
    /// wants signed.
    ///
    /// # Errors
    ///
    /// When there is a key and no nonce.
    pub(super) fn add_to(
        &self,
        connect: &mut Value,
        nonce: Option<&str>,
    ) -> Result<(), &'static str> {
        let sign = |pair: &KeyPair| pair.sign(nonce.ok_or("it knows neither nkeys nor JWTs")?);
        match self {
            Credentials::None => {}
            Credentials::User { user, password } => {
                connect["user"] = json!(user);
                connect["pass"] = json!(password);
            }
            Credentials::Token(token) => connect["auth_token"] = json!(token),
            Credentials::Nkey(pair) => {
                connect["nkey"] = json!(pair.public());
                connect["sig"] = json!(sign(pair)?);
            }
            Credentials::Jwt { jwt, pair } => {
                connect["jwt"] = json!(jwt);
                connect["sig"] = json!(sign(pair)?);
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
                let end = claims(jwt).and_then(|claims| claims["exp"].as_u64());
                match end.zip(sys::wall_clock()) {
                    Some((end @ 1.., now)) if end <= now => {
                        format!(" (the JWT of user {user} expired at {})", calendar::utc(end))
                    }
                    Some(_) | None => {
                        format!(" (JWT of user {user}: revoked, or not of this server's accounts)")
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

#[cfg(test)]
mod tests;
