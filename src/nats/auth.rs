//! Who we say we are, and where that is read from.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::nkey::Pair;
use super::{calendar, letters, secret};
use crate::sys;

/// What is sent to be let in. Closed on purpose: another way of proving oneself
/// is another variant, and every `match` must then say what it does with it.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing: the server asks for nothing, or knows us by other means.
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
    /// A key that the server knows.
    Nkey(Pair),
    /// A JWT that somebody signed whom the server knows, and the key it is for.
    Jwt {
        /// The JWT.
        jwt: String,
        /// The key.
        pair: Pair,
    },
}

/// Where credentials are to be read from, at each connection.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Login {
    /// There are none.
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

/// A word that nobody else may know.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The word.
    Given(String),
    /// The file whose one line it is.
    File(PathBuf),
}

impl Secret {
    fn read(&self) -> Result<String, String> {
        match self {
            Secret::Given(word) => Ok(word.clone()),
            Secret::File(path) => secret::read_line(path),
        }
    }
}

impl Login {
    /// Reads what there is to read, anew each time.
    ///
    /// # Errors
    ///
    /// Which file cannot be used, and why; nothing of what is in it.
    pub fn read(&self) -> Result<Credentials, String> {
        Ok(match self {
            Login::None => Credentials::None,
            Login::User { name, password } => Credentials::User {
                user: name.clone(),
                password: password.read()?,
            },
            Login::Token(token) => Credentials::Token(token.read()?),
            Login::Nkey(path) => Credentials::Nkey(nkey_file(path)?),
            Login::Creds(path) => creds_file(path)?,
        })
    }

    /// Returns whose login it is, as far as that is no secret.
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

/// Reads the line of a file that begins with S, as seeds do. Others, such as the
/// marks of a creds file, are passed over.
fn nkey_file(path: &Path) -> Result<Pair, String> {
    let text = secret::read_secret(path)?;
    let mut lines = text.lines().map(str::trim);
    let seed = lines.find(|line| line.starts_with('S')).unwrap_or_default();
    let shown = path.display();
    if seed.is_empty() {
        return Err(format!("{shown}: no line of it is the seed of an nkey"));
    }
    Pair::from_seed(seed).map_err(|why| format!("{shown}: not the seed of an nkey: {why}"))
}

/// Reads what stands between the marks of a creds file: first the JWT, then the
/// seed.
fn creds_file(path: &Path) -> Result<Credentials, String> {
    let text = secret::read_secret(path)?;
    let refuse = |why: &str| format!("{}: not a creds file: {why}", path.display());
    let jwt = between(&text, "NATS USER JWT").ok_or_else(|| refuse("it has no NATS USER JWT"))?;
    let seed =
        between(&text, "USER NKEY SEED").ok_or_else(|| refuse("it has no USER NKEY SEED"))?;
    let pair = Pair::from_seed(seed).map_err(|why| refuse(&format!("its seed: {why}")))?;
    let claims = claims(jwt).ok_or_else(|| refuse("its JWT is damaged"))?;
    if claims["sub"].as_str() != Some(pair.public()) {
        return Err(refuse("its JWT is for another nkey than its seed"));
    }
    let jwt = jwt.to_owned();
    Ok(Credentials::Jwt { jwt, pair })
}

/// Returns the first line with anything in it behind the mark that begins `name`.
fn between<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let is_mark = |line: &str| line.starts_with("---");
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| is_mark(line) && line.contains(&format!("BEGIN {name}")))?;
    let line = lines.find(|line| !line.is_empty())?;
    (!is_mark(line)).then_some(line)
}

/// Returns what a JWT claims. Its signature is for the server to judge.
fn claims(jwt: &str) -> Option<Value> {
    let mut parts = jwt.split('.');
    let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
    let claims = letters::from_base64_url(claims)?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    (parts.next().is_none() && claims.is_object()).then_some(claims)
}

impl Credentials {
    /// Adds what goes into the CONNECT line. `nonce` is what the server wants signed.
    ///
    /// # Errors
    ///
    /// When there is a key and nothing to sign.
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

    /// Returns what is known of why a server may have refused these, a blank or
    /// something to add to a message.
    pub(super) fn doubts(&self) -> String {
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
