//! The reason of a failed or ended connection to one server.

use std::fmt;
use std::io;

use super::{io_error_text, tls};
use crate::core::event::StoreError;

/// The kinds of failures. The greatest kind of the failures at several servers is the kind of
/// all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectErrorKind {
    /// The server was not reached, or sent nothing, by the deadline.
    Unreachable,
    /// The server did not prove its identity, or a local file that a safe connection needs is
    /// missing or unusable. Another attempt does not change that.
    Unsafe,
    /// The server refused the credentials. Another attempt does not change that.
    Credentials,
    /// The server answered and cannot be used now.
    Unfit,
}

/// The reason of a failed or ended connection, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnectError {
    pub(super) kind: ConnectErrorKind,
    pub(super) text: String,
}

impl ConnectErrorKind {
    pub(super) fn error(self, text: impl Into<String>) -> ConnectError {
        ConnectError { kind: self, text: text.into() }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<ConnectError> for StoreError {
    fn from(ConnectError { kind, text }: ConnectError) -> StoreError {
        match kind {
            ConnectErrorKind::Unreachable | ConnectErrorKind::Unfit => {
                StoreError::Unreachable(text)
            }
            ConnectErrorKind::Unsafe => StoreError::Unsafe(text),
            ConnectErrorKind::Credentials => StoreError::Credentials(text),
        }
    }
}

impl From<io::Error> for ConnectError {
    /// Returns the meaning of the error inside, if TLS failed, else an unfit server.
    fn from(error: io::Error) -> ConnectError {
        match error.downcast() {
            Ok(error) => tls::judge(&error),
            Err(error) => ConnectErrorKind::Unfit.error(io_error_text(&error)),
        }
    }
}
