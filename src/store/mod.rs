//! What a store promises: read a key, compare and set it by revision, and hint
//! that it changed.
//!
//! There is no unconditional write in this trait, and an answer has three
//! values. Whoever implements it must answer [`Written::Unknown`] whenever a
//! write may have been stored and may not, and must never send anything later
//! that was asked for before.

pub mod dir;
pub mod lease;
pub mod name;
pub mod nats;

use std::fmt;
use std::os::fd::BorrowedFd;

use crate::core::event::{Notice, Opened, Written};
use crate::core::record::{KeyState, KeyValue, Record, Revision};
use crate::core::text::sanitize;
use crate::core::time::Instant;

/// What ended a [`Store::watch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// The key seems to have changed; the revision, where the hint names one.
    Hint(Option<Revision>),
    /// Another live agent says that it uses this token.
    Twin(Notice),
    /// The wake descriptor became readable.
    Woken,
    /// The deadline passed.
    Elapsed,
    /// The store is gone and must be opened again.
    Gone(String),
}

/// Why a bucket could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// Not reached, or no answer: trying again may help.
    Unreachable(String),
    /// The server refused the credentials.
    Credentials(String),
    /// The bucket, or the way it is set up, cannot be trusted with a lock.
    Unsafe(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            OpenError::Unreachable(text)
            | OpenError::Credentials(text)
            | OpenError::Unsafe(text) => text,
        };
        f.write_str(text)
    }
}

/// Says who holds the lock of `key`, for people.
#[must_use]
pub fn holder_in_words(key: &str, key_state: &KeyState) -> String {
    let revision = key_state.revision.0;
    match &key_state.found {
        KeyValue::Absent => format!("key {key}: does not exist yet"),
        KeyValue::Marker => format!("key {key}: was deleted, revision {revision}"),
        KeyValue::Record(record) if record.token.trim().is_empty() => {
            format!("key {key}: nobody holds the lock, revision {revision}")
        }
        KeyValue::Record(record) => {
            let token = sanitize(&record.token);
            format!("key {key}: the lock is held by {token}, revision {revision}")
        }
    }
}

/// One key of one bucket. Every call returns at its deadline at the latest.
pub trait Store: Send {
    /// Connects where needed, makes the bucket when it does not exist, checks it,
    /// and reads the key.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; nothing is left half open.
    fn open(&mut self, deadline: Instant) -> Result<Opened, OpenError>;

    /// Reads the key.
    ///
    /// # Errors
    ///
    /// The reason, when no answer was had by the deadline. The answer may be
    /// older than the last write: that is for the caller to survive.
    fn read(&mut self, deadline: Instant) -> Result<KeyState, String>;

    /// Stores `record` if the key still stands at `expected`, 0 meaning absent.
    fn write(&mut self, expected: Revision, record: &Record, deadline: Instant) -> Written;

    /// Tells the other agents of this key that `notice`'s sender lives. Best effort.
    fn announce(&mut self, notice: &Notice);

    /// Waits for a hint, for `wake` to become readable, or for `deadline`.
    /// `None` waits for ever.
    fn watch(&mut self, wake: BorrowedFd<'_>, deadline: Option<Instant>) -> Watched;
}
