//! The JSON of the JetStream requests of this program and of their answers. Pure.
//!
//! | request | subject | body |
//! |---|---|---|
//! | list keys, from the leader | `$JS.API.STREAM.INFO.KV_<bucket>` | [`subjects_filter`] |
//! | inspect a bucket | `$JS.API.STREAM.INFO.KV_<bucket>` | none |
//! | create a bucket | `$JS.API.STREAM.CREATE.KV_<bucket>` | [`super::bucket::create`] |
//! | read a key, from the leader | `$JS.API.STREAM.MSG.GET.KV_<bucket>` | [`last_by_subject`] |
//! | read a key, from any replica | `$JS.API.DIRECT.GET.KV_<bucket>.$KV.<bucket>.<key>` | none |
//! | write | `$KV.<bucket>.<key>` | the value |
//!
//! Decisions depend on the `err_code` of an error only. Its text is for people, with one
//! exception that no decision depends on: [`ApiError::revision`].

use std::fmt;

use data_encoding::BASE64;
use serde_json::Value;

use super::bucket::StreamConfig;
use crate::core::text::sanitize;

/// The `err_code`s that this program distinguishes.
pub mod code {
    /// The request is malformed.
    pub const BAD_REQUEST: u64 = 10003;
    /// The server has no memory, disk or streams left.
    pub const INSUFFICIENT_RESOURCES: u64 = 10023;
    /// The stream has no such message.
    pub const NO_MESSAGE: u64 = 10037;
    /// The account has no JetStream.
    pub const NOT_FOR_ACCOUNT: u64 = 10039;
    /// The server has no reserved storage left.
    pub const STORAGE_EXCEEDED: u64 = 10047;
    /// The request has a field that the server does not know.
    pub const INVALID_JSON: u64 = 10025;
    /// The stream's configuration is refused.
    pub const INVALID_CONFIG: u64 = 10052;
    /// The message is larger than the stream permits.
    pub const MESSAGE_TOO_LARGE: u64 = 10054;
    /// The stream exists with another configuration.
    pub const NAME_IN_USE: u64 = 10058;
    /// No such stream.
    pub const STREAM_NOT_FOUND: u64 = 10059;
    /// Another stream than the expected one owns the subject.
    pub const WRONG_STREAM: u64 = 10060;
    /// Another stream owns the subjects.
    pub const SUBJECTS_OVERLAP: u64 = 10065;
    /// Compare-and-set refused: the key stands at another revision.
    pub const WRONG_LAST: u64 = 10071;
    /// More than one replica was requested from a server without a cluster.
    pub const NOT_CLUSTERED: u64 = 10074;
    /// The store failed, or the stream is at a limit.
    pub const STORE_FAILED: u64 = 10077;
    /// The stream accepts no more messages.
    pub const SEALED: u64 = 10109;
    /// Another write of the same key is in flight; nothing is decided.
    pub const BUSY: u64 = 10164;
    /// The stream's ingest queue is full.
    pub const TOO_MANY_REQUESTS: u64 = 10167;
}

/// An error in an answer of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// One of [`code`], or another; 0 when the server gave none.
    pub err_code: u64,
    /// The server's text, for people.
    pub description: String,
}

impl ApiError {
    /// Returns the revision in the text of a refused compare-and-set. The answering
    /// server may be stale, so this is only a hint.
    #[must_use]
    pub fn revision(&self) -> Option<u64> {
        if self.err_code != code::WRONG_LAST {
            return None;
        }
        self.description.rsplit_once(": ")?.1.parse().ok()
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (error {})", self.description, self.err_code)
    }
}

/// Why an answer has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// When the server answered with an error.
    Api(ApiError),
    /// When the answer has an unknown form.
    Malformed(String),
}

impl Failure {
    /// Returns the `err_code`, 0 when there is none.
    #[must_use]
    pub fn err_code(&self) -> u64 {
        match self {
            Failure::Api(error) => error.err_code,
            Failure::Malformed(_) => 0,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Api(error) => error.fmt(f),
            Failure::Malformed(text) => write!(f, "answer not understood: {text}"),
        }
    }
}

/// The creation time that nats-server 2.9 reports while it creates a stream.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

/// The answer to STREAM.INFO and STREAM.CREATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// The configuration of the stream, as the server reports it.
    pub config: StreamConfig,
    /// When it was created; compared for equality only.
    pub created: String,
    /// Sequence of the last message ever stored in it.
    pub last_seq: u64,
}

impl StreamInfo {
    /// Returns whether the server had finished creating the stream when it answered.
    #[must_use]
    pub fn is_made(&self) -> bool {
        self.created != NO_TIME
    }
}

/// Reads the answer to STREAM.INFO or STREAM.CREATE.
///
/// # Errors
///
/// See [`Failure`].
pub fn stream_info(payload: &[u8]) -> Result<StreamInfo, Failure> {
    let value = answer(payload)?;
    let last_seq = last_seq(&value)?;
    Ok(StreamInfo {
        config: StreamConfig::parse(&value["config"]).map_err(Failure::Malformed)?,
        created: text(&value, "created")?,
        last_seq,
    })
}

/// Returns the body of a STREAM.INFO that also lists the subjects that `filter` selects.
#[must_use]
pub fn subjects_filter(filter: &str) -> String {
    serde_json::json!({ "subjects_filter": filter }).to_string()
}

/// The subjects of a stream that have messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subjects {
    /// Their names, sorted.
    pub names: Vec<String>,
    /// Sequence of the last message ever stored in the stream.
    pub last_seq: u64,
    /// Whether the server knows a leader of the stream. Without one it may know too little.
    pub has_leader: bool,
}

/// Reads the answer to STREAM.INFO with [`subjects_filter`].
///
/// # Errors
///
/// See [`Failure`]. A part of a longer list is [`Failure::Malformed`].
pub fn subjects(payload: &[u8]) -> Result<Subjects, Failure> {
    let value = answer(payload)?;
    let cluster = &value["cluster"];
    let leader = cluster["leader"].as_str().unwrap_or_default();
    let mut names = match &value["state"]["subjects"] {
        Value::Null => Vec::new(),
        Value::Object(found) => found.keys().cloned().collect(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(malformed("state.subjects is not an object"));
        }
    };
    names.sort_unstable();
    let total = value["total"].as_u64();
    if total.is_some_and(|total| total > names.len() as u64) {
        return Err(malformed("more subjects than one answer lists"));
    }
    Ok(Subjects {
        names,
        last_seq: last_seq(&value)?,
        has_leader: cluster.is_null() || !leader.is_empty(),
    })
}

/// Returns the body of a MSG.GET for the last message on `subject`.
#[must_use]
pub fn last_by_subject(subject: &str) -> String {
    serde_json::json!({ "last_by_subj": subject }).to_string()
}

/// One stored message, as MSG.GET returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its sequence in the stream.
    pub seq: u64,
    /// The header block with its `NATS/1.0` line; empty when the message has none.
    pub headers: Vec<u8>,
    /// The value.
    pub data: Vec<u8>,
}

/// Reads the answer to MSG.GET for `subject`, `None` when there is no message.
///
/// # Errors
///
/// See [`Failure`]; a message of another subject is [`Failure::Malformed`].
pub fn stored(payload: &[u8], subject: &str) -> Result<Option<Stored>, Failure> {
    let value = match answer(payload) {
        Err(Failure::Api(error)) if error.err_code == code::NO_MESSAGE => return Ok(None),
        other => other?,
    };
    let message = &value["message"];
    if text(message, "subject")? != subject {
        return Err(malformed("message of another subject"));
    }
    let seq = match message["seq"].as_u64() {
        Some(seq) if seq > 0 => seq,
        _ => return Err(malformed("message without a sequence")),
    };
    // The library reads two texts with padding, one behind the other, as one.
    let decode = |coded: &str| {
        let bytes = BASE64.decode(coded.as_bytes()).ok();
        bytes.filter(|bytes| BASE64.encode(bytes) == coded)
    };
    let bytes = |name: &str| match (&message[name], message[name].as_str()) {
        (Value::Null, _) => Ok(Vec::new()),
        (_, Some(coded)) => decode(coded).ok_or_else(|| malformed("damaged base64")),
        (_, None) => Err(malformed("message body is not text")),
    };
    Ok(Some(Stored { seq, headers: bytes("hdrs")?, data: bytes("data")? }))
}

/// The acknowledgement of a stored write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The stream that stored it.
    pub stream: String,
    /// The sequence of the message, never 0.
    pub seq: u64,
}

/// Reads the answer to a write.
///
/// # Errors
///
/// See [`Failure`]. An acknowledgement without a sequence, and one that calls the
/// write a duplicate of an earlier one, are [`Failure::Malformed`]: neither proves
/// that this write was stored.
pub fn ack(payload: &[u8]) -> Result<Ack, Failure> {
    let value = answer(payload)?;
    let stream = text(&value, "stream")?;
    if value["duplicate"].as_bool() == Some(true) {
        return Err(malformed("acknowledged as a duplicate"));
    }
    match value["seq"].as_u64() {
        Some(seq) if seq > 0 => Ok(Ack { stream, seq }),
        _ => Err(malformed("acknowledged without a sequence")),
    }
}

/// Parses an answer; an error reply becomes [`Failure::Api`].
fn answer(payload: &[u8]) -> Result<Value, Failure> {
    let value: Value = match serde_json::from_slice(payload) {
        Ok(value) => value,
        Err(error) => return Err(malformed(&error.to_string())),
    };
    let error = &value["error"];
    if error.is_null() {
        return Ok(value);
    }
    if !error.is_object() {
        return Err(malformed("error is not an object"));
    }
    let description = error["description"].as_str().unwrap_or("no description");
    Err(Failure::Api(ApiError {
        err_code: error["err_code"].as_u64().unwrap_or(0),
        description: sanitize(description),
    }))
}

fn last_seq(value: &Value) -> Result<u64, Failure> {
    let seq = value["state"]["last_seq"].as_u64();
    seq.ok_or_else(|| malformed("state.last_seq is missing"))
}

fn text(value: &Value, name: &str) -> Result<String, Failure> {
    match value[name].as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(malformed(&format!("{name} is missing"))),
    }
}

fn malformed(what: &str) -> Failure {
    Failure::Malformed(what.to_owned())
}

#[cfg(test)]
mod tests;
