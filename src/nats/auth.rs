//! Credentials, and the files that they are read from.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::file;
use super::nkey::KeyPair;
use crate::core::{StoreError, StoreErrorKind as Kind};
use crate::sys;

/// How each JWT begins: with the base64 of `{"`.
const JWT_START: &str = "eyJ";

/// The credentials of a CONNECT line.
#[derive(Default)]
pub struct Credentials {
    /// The fields of CONNECT, and their values.
    fields: Vec<(&'static str, String)>,
    /// The key that signs the text that the server wants signed.
    key: Option<KeyPair>,
}

/// The source of the credentials, read at each connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    fn read(&self) -> Result<String, StoreError> {
        match self {
            Secret::Given(secret) => Ok(secret.clone()),
            Secret::File(path) => file::read_line(path),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Login {
    /// Returns whether there is a password or a token, of which the server may have a hash.
    pub(super) fn has_password(&self) -> bool {
        matches!(self, Login::User { .. } | Login::Token(_))
    }

    /// Reads the credentials from their files, at every call.
    ///
    /// # Errors
    ///
    /// See [`file::read_secret`]. The error contains nothing of the file.
    pub fn read(&self) -> Result<Credentials, StoreError> {
        let (fields, key) = match self {
            Login::None => (Vec::new(), None),
            Login::User { name, password } => {
                (vec![("user", name.clone()), ("pass", password.read()?)], None)
            }
            Login::Token(token) => (vec![("auth_token", token.read()?)], None),
            Login::Nkey(path) => {
                let pair = seed_in(&file::read_secret(path)?, path)?;
                (vec![("nkey", pair.public.clone())], Some(pair))
            }
            Login::Creds(path) => {
                let text = file::read_secret(path)?;
                // The server verifies the JWT, and that it is for the nkey of the seed.
                let jwt = line_of(&text, JWT_START).ok_or_else(|| {
                    Kind::Unsafe.error(format!("{}: not a creds file: no JWT", path.display()))
                })?;
                (vec![("jwt", jwt.to_owned())], Some(seed_in(&text, path)?))
            }
        };
        Ok(Credentials { fields, key })
    }

    /// Returns the part of the login that identifies its owner and is not secret.
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

/// Reads the first line of a text that begins with S, as seeds do. Other lines, such as the marks
/// of a creds file, are skipped.
fn seed_in(text: &str, path: &Path) -> Result<KeyPair, StoreError> {
    let refuse = |why: &str| Kind::Unsafe.error(format!("{}: {why}", path.display()));
    let seed = line_of(text, "S").ok_or_else(|| refuse("no line of it is the seed of an nkey"))?;
    KeyPair::from_seed(seed).map_err(|why| refuse(&format!("not the seed of an nkey: {why}")))
}

/// Returns the first line that begins so, without the blanks around it.
fn line_of<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    text.lines().map(str::trim).find(|line| line.starts_with(start))
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
        for (name, value) in &self.fields {
            connect[*name] = json!(value);
        }
        if let Some(key) = &self.key {
            connect["sig"] = json!(key.sign(nonce.ok_or("it knows neither nkeys nor JWTs")?));
        }
        Ok(())
    }

    /// Returns a likely reason why a server refused these credentials, as the end of
    /// a message; empty when none is known.
    pub(super) fn refusal_hint(&self) -> String {
        if self.fields.iter().any(|(name, value)| *name == "pass" && value.is_empty()) {
            return " (no password was given; write --password-file FILE)".to_owned();
        }
        let user = self.key.as_ref().map_or("", |key| &key.public);
        match self.fields.first() {
            None => " (nothing was given to log in with; write --user and --password-file, \
                     --creds, --nkey or --auth-token-file)"
                .to_owned(),
            Some(("auth_token", _)) => {
                " (a token was given; a user of a URL is written user:password@)".to_owned()
            }
            Some(("user", _)) => " (correct the user or the password)".to_owned(),
            Some(("nkey", _)) => format!(" (nkey {user})"),
            Some(("jwt", _)) => format!(
                " (JWT of user {user}: expired, revoked, or neither of this nkey nor of this \
                 server's accounts)"
            ),
            Some(_) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests;
