//! The JSON of the JetStream requests of this program and of their answers. Pure.
//!
//! | request | subject | body |
//! |---|---|---|
//! | list keys, from the leader | `$JS.API.STREAM.INFO.KV_<bucket>` | `subjects_filter` |
//! | inspect a bucket | `$JS.API.STREAM.INFO.KV_<bucket>` | none |
//! | create a bucket | `$JS.API.STREAM.CREATE.KV_<bucket>` | [`super::bucket::create`] |
//! | read a key, from the leader | `$JS.API.STREAM.MSG.GET.KV_<bucket>` | `last_by_subj` |
//! | write | `$KV.<bucket>.<key>` | the value |
//!
//! Decisions depend on the `err_code` of an error only. Its text is for the operator;
//! [`Failure::revision`] reads a number from it, which is only a hint.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use base64ct::{Base64, Encoding as _};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use super::decode::MESSAGE_BYTES_MAX;
use crate::core::{sanitize, sanitize_field};

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
    /// The headers of a message are larger than the stream takes them.
    pub const HEADERS_TOO_LARGE: u64 = 10097;
    /// The stream accepts no more messages.
    pub const SEALED: u64 = 10109;
    /// The account takes only streams with a limit of their size.
    pub const MAX_BYTES_REQUIRED: u64 = 10113;
    /// Another write of the same key is in flight; nothing is decided.
    pub const BUSY: u64 = 10164;
    /// The stream's ingest queue is full.
    pub const TOO_MANY_REQUESTS: u64 = 10167;
}

/// The reason why an answer has no result: an error of the server, or an unknown form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// An error code of [`code`], or another one; 0 when the server gave none.
    pub err_code: u64,
    /// The server's text, or the fault in the form of the answer, for the operator.
    pub description: String,
}

impl Failure {
    /// Returns the revision in the text of a refused compare-and-set. The answering
    /// server may be stale, so this is only a hint.
    pub fn revision(&self) -> Option<u64> {
        if self.err_code != code::WRONG_LAST {
            return None;
        }
        self.description.rsplit_once(": ")?.1.parse().ok()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.err_code {
            0 => f.write_str(&self.description),
            code => write!(f, "{} (error {code})", self.description),
        }
    }
}

/// The creation time that a server reports while it creates a stream.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

/// A leader hears its replicas every second. They elect another one when they have not heard
/// it for 4 s.
const HEARD_WITHIN: Duration = Duration::from_secs(3);

/// The answer to STREAM.INFO and STREAM.CREATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// The configuration of the stream, as the server reports it.
    pub config: Value,
    /// When it was created; compared for equality only.
    pub created: String,
    /// Sequence of the last message ever stored in it.
    pub last_seq: u64,
    /// Whether the answer is that of a leader whom a majority of the replicas hears. Any other
    /// may be out of date.
    pub has_leader: bool,
    /// The names of the subjects that have messages, sorted, if `subjects_filter` asked for
    /// them.
    pub subjects: Vec<String>,
    /// The time of the server when it answered; nats-server before 2.10 does not tell it.
    pub time: Option<SystemTime>,
    /// The name of the cluster, if the stream is in one.
    pub cluster: Option<String>,
    /// The names of the servers whose copy lacks messages or is out of reach.
    pub late: Vec<String>,
}

impl StreamInfo {
    /// Returns whether the server had finished creating the stream when it answered.
    pub fn is_made(&self) -> bool {
        self.created != NO_TIME
    }
}

/// Reads the answer to STREAM.INFO or STREAM.CREATE.
///
/// # Errors
///
/// See [`Failure`]. A part of a longer list of subjects is not understood.
pub fn stream_info(payload: &[u8]) -> Result<StreamInfo, Failure> {
    let Info { error, created, config, state, cluster, ts, total } = parse(payload)?;
    no_error(&error)?;
    let created = created.ok_or_else(|| malformed("created is missing"))?;
    let last_seq = state.last_seq.ok_or_else(|| malformed("state.last_seq is missing"))?;
    let subjects: Vec<String> = state.subjects.unwrap_or_default().into_keys().collect();
    if total.is_some_and(|total| total > subjects.len() as u64) {
        return Err(malformed("more subjects than one answer lists"));
    }
    let text = |name: &str| cluster[name].as_str().filter(|text| !text.is_empty()).map(sanitize);
    Ok(StreamInfo {
        created,
        last_seq,
        has_leader: has_leader(&cluster),
        late: late(&cluster),
        time: ts.as_str().map(time_of),
        cluster: text("name"),
        subjects,
        config,
    })
}

/// The answer to STREAM.INFO.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Info {
    error: Value,
    created: Option<String>,
    config: Value,
    state: State,
    cluster: Value,
    ts: Value,
    total: Option<u64>,
}

#[derive(Default, Deserialize)]
struct State {
    last_seq: Option<u64>,
    /// There may be thousands: only their names are kept.
    subjects: Option<BTreeMap<String, IgnoredAny>>,
}

/// Returns whether this server is alone, or knows a leader of the stream that has heard of a
/// majority of its replicas a short time ago. Without that another leader may exist.
fn has_leader(cluster: &Value) -> bool {
    if cluster.is_null() {
        return true;
    }
    let others = cluster["replicas"].as_array().map_or(&[][..], Vec::as_slice);
    let is_heard = |replica: &&Value| {
        replica["active"].as_u64().is_some_and(|ns| Duration::from_nanos(ns) < HEARD_WITHIN)
    };
    let (heard, all) = (1 + others.iter().filter(is_heard).count(), 1 + others.len());
    let leader = cluster["leader"].as_str().unwrap_or_default();
    !leader.is_empty() && 2 * heard > all
}

/// Returns the names of the servers whose copies the leader does not call current.
fn late(cluster: &Value) -> Vec<String> {
    let replicas = cluster["replicas"].as_array().into_iter().flatten();
    let is_late = |replica: &&Value| replica["current"] != true || replica["offline"] == true;
    let name = |replica: &Value| sanitize_field(replica["name"].as_str().unwrap_or("?"));
    replicas.filter(is_late).map(name).collect()
}

/// A stored message, as MSG.GET returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its sequence in the stream.
    pub seq: u64,
    /// The header block with its `NATS/1.0` line; empty when the message has none.
    pub headers: Vec<u8>,
    /// The value.
    pub data: Vec<u8>,
    /// When it was stored, by the clock of the server.
    pub time: SystemTime,
}

/// Returns the time in a text of the server. A time that cannot be read is long ago.
fn time_of(text: &str) -> SystemTime {
    humantime::parse_rfc3339(text).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Reads the answer to MSG.GET for `subject`, `None` when there is no message.
///
/// # Errors
///
/// See [`Failure`]; a message of another subject is not understood.
pub fn stored(payload: &[u8], subject: &str) -> Result<Option<Stored>, Failure> {
    let cut = without_content(payload);
    let is_cut = cut.is_some();
    let value = match cut.map_or_else(|| answer(payload), Ok) {
        Err(failure) if failure.err_code == code::NO_MESSAGE => return Ok(None),
        value => value?,
    };
    let message = &value["message"];
    if text(message, "subject")? != subject {
        return Err(malformed("message of another subject"));
    }
    let seq = sequence(message).ok_or_else(|| malformed("message without a sequence"))?;
    let time = time_of(message["time"].as_str().unwrap_or_default());
    if is_cut {
        let data = format!("(too large to be read, revision {seq})").into_bytes();
        return Ok(Some(Stored { seq, headers: Vec::new(), data, time }));
    }
    let bytes = |name: &str| match (&message[name], message[name].as_str()) {
        (Value::Null, _) => Ok(Vec::new()),
        (_, Some(coded)) => Base64::decode_vec(coded).map_err(|_| malformed("damaged base64")),
        (_, None) => Err(malformed("message body is not text")),
    };
    Ok(Some(Stored { seq, headers: bytes("hdrs")?, data: bytes("data")?, time }))
}

/// Returns the answer to MSG.GET without headers and value, if it is as long as the part of a
/// message that is kept: then its end may be missing. Both come last.
fn without_content(payload: &[u8]) -> Option<Value> {
    let text = str::from_utf8(payload).ok().filter(|text| text.len() >= MESSAGE_BYTES_MAX)?;
    let start = text.split("\"hdrs\"").next()?.split("\"data\"").next()?;
    serde_json::from_slice(format!("{}}}}}", start.trim_end().strip_suffix(',')?).as_bytes()).ok()
}

/// Reads the answer to a write: the stream that has stored it, and the sequence of the message,
/// never 0.
///
/// # Errors
///
/// See [`Failure`]. An acknowledgement without a sequence, and one that calls the
/// write a duplicate of an earlier one, are not understood: neither proves
/// that this write was stored.
pub fn ack(payload: &[u8]) -> Result<(String, u64), Failure> {
    let value = answer(payload)?;
    let stream = text(&value, "stream")?;
    if value["duplicate"].as_bool() == Some(true) {
        return Err(malformed("acknowledged as a duplicate"));
    }
    let seq = sequence(&value).ok_or_else(|| malformed("acknowledged without a sequence"))?;
    Ok((stream, seq))
}

/// Parses an answer; an error reply becomes a [`Failure`].
fn answer(payload: &[u8]) -> Result<Value, Failure> {
    let value: Value = parse(payload)?;
    no_error(&value["error"])?;
    Ok(value)
}

fn parse<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(payload).map_err(|error| malformed(&error.to_string()))
}

fn no_error(error: &Value) -> Result<(), Failure> {
    if error.is_null() {
        return Ok(());
    }
    if !error.is_object() {
        return Err(malformed("error is not an object"));
    }
    let description = sanitize_field(error["description"].as_str().unwrap_or("no description"));
    Err(Failure { err_code: error["err_code"].as_u64().unwrap_or(0), description })
}

/// Returns the sequence of a message, which is never 0.
fn sequence(value: &Value) -> Option<u64> {
    value["seq"].as_u64().filter(|seq| *seq > 0)
}

fn text(value: &Value, name: &str) -> Result<String, Failure> {
    let text = value[name].as_str().map(str::to_owned);
    text.ok_or_else(|| malformed(&format!("{name} is missing")))
}

fn malformed(what: &str) -> Failure {
    Failure { err_code: 0, description: format!("answer not understood: {what}") }
}

#[cfg(test)]
mod tests;
