//! What the server's answers mean to a lock. Pure.

use crate::core::event::{Notice, Written};
use crate::core::record::{KeyState, KeyValue, Record, Revision};
use crate::core::text::sanitize;
use crate::nats::jetstream::{self, Failure, Stored, code};
use crate::nats::{Headers, RequestError};
use crate::store::lease;

/// Carries a notice's incarnation, on the twin subject.
const NOTICE_INCARNATION: &str = "Putex-Incarnation";
/// Carries a notice's host name.
const NOTICE_HOST: &str = "Putex-Host";

/// Headers of a lease that are not sent when their value is blank.
const MAY_BE_BLANK: [&str; 2] = ["Putex-Host", "Putex-Boot"];

/// The status of a direct read that found no message.
const STATUS_NOT_FOUND: u16 = 404;

/// Returns what the answer to a write means. `replicated` tells whether the
/// bucket has more than one copy.
pub(crate) fn written(stream: &str, replicated: bool, payload: &[u8]) -> Written {
    let error = match jetstream::ack(payload) {
        Ok(ack) if ack.stream == stream => return Written::Stored(Revision(ack.seq)),
        Ok(ack) => {
            return Written::Unknown(format!(
                "stream {} acknowledged a write meant for {stream} as its {}: two streams own \
                 the key, this bucket cannot be trusted",
                printable(&ack.stream),
                ack.seq
            ));
        }
        Err(Failure::Malformed(text)) => {
            return Written::Unknown(format!("write: answer not understood: {text}"));
        }
        Err(Failure::Api(error)) => error,
    };
    match error.err_code {
        code::WRONG_LAST => Written::Moved(error.revision().map(Revision)),
        code::BUSY => Written::Unknown("busy: another write of this key is in flight".to_owned()),
        // The leader failed to store what its followers may have stored.
        code::STORE_FAILED if replicated => Written::Unknown(format!("write: {error}")),
        // Decided before the message is given to the store.
        code::STORE_FAILED
        | code::WRONG_STREAM
        | code::MESSAGE_TOO_LARGE
        | code::INSUFFICIENT_RESOURCES
        | code::STORAGE_EXCEEDED
        | code::BAD_REQUEST
        | code::SEALED
        | code::TOO_MANY_REQUESTS => Written::Denied(format!("write refused: {error}")),
        _ => Written::Unknown(format!("write: {error}")),
    }
}

/// Returns what a write came to that had no answer.
pub(crate) fn unanswered(subject: &str, error: &RequestError) -> Written {
    let text = format!("write to {subject}: {error}");
    match error {
        RequestError::Forbidden(_) => Written::Denied(text),
        RequestError::NoResponders => Written::Unknown(format!("{text}, nothing stored")),
        RequestError::TimedOut | RequestError::Lost(_) | RequestError::NotSent(_) => {
            Written::Unknown(text)
        }
    }
}

/// Returns the headers of a write. A value that is blank has no header: an empty
/// header is what makes a compare-and-set unconditional, so none is ever sent.
pub(crate) fn headers(record: &Record) -> Vec<(&'static str, String)> {
    let headers = record
        .lease
        .as_ref()
        .map(lease::to_headers)
        .unwrap_or_default();
    let trimmed = headers
        .into_iter()
        .map(|(name, value)| (name, value.trim().to_owned()));
    trimmed.filter(|(_, value)| !value.is_empty()).collect()
}

/// Reads the answer to DIRECT.GET for `subject` of `stream`.
pub(crate) fn direct(
    headers: &Headers,
    payload: &[u8],
    stream: &str,
    subject: &str,
) -> Result<KeyState, String> {
    match headers.status() {
        Some(STATUS_NOT_FOUND) => return Ok(absent()),
        Some(status) => {
            let why = printable(headers.description());
            return Err(format!("read: status {status} {why}"));
        }
        None => {}
    }
    if added(headers, "Nats-Subject") != Some(subject) {
        return Err(format!("read: answered with another key than {subject}"));
    }
    match origin(headers, stream) {
        Some(revision) => Ok(key_state(revision, headers, payload)),
        None => Err(format!("read: answer without a revision of {stream}")),
    }
}

/// Returns what a message that MSG.GET found says.
pub(crate) fn leader(stored: Option<Stored>) -> KeyState {
    match stored {
        Some(Stored { seq, headers, data }) => {
            key_state(Revision(seq), &Headers::parse(&headers), &data)
        }
        None => absent(),
    }
}

/// Returns the revision that a hint for `subject` names, `None` when it is not
/// what the server republishes.
pub(crate) fn hint(headers: &Headers, stream: &str, subject: &str) -> Option<Revision> {
    if added(headers, "Nats-Subject") != Some(subject) {
        return None;
    }
    origin(headers, stream)
}

/// Returns the headers of a notice; its token is the payload, as in a record.
pub(crate) fn notice_headers(notice: &Notice) -> Vec<(&'static str, String)> {
    let headers = [
        (NOTICE_INCARNATION, printable(&notice.incarnation)),
        (NOTICE_HOST, printable(&notice.host)),
    ];
    headers
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .collect()
}

/// Returns the notice that a message on the twin subject carries.
pub(crate) fn notice(headers: &Headers, payload: &[u8]) -> Option<Notice> {
    Some(Notice {
        token: String::from_utf8(payload.to_vec()).ok()?,
        incarnation: headers.get(NOTICE_INCARNATION)?.to_owned(),
        host: headers.get(NOTICE_HOST).unwrap_or_default().to_owned(),
    })
}

/// Makes a text fit into a header or a log line.
pub(crate) fn printable(text: &str) -> String {
    sanitize(text).trim().to_owned()
}

fn absent() -> KeyState {
    KeyState {
        revision: Revision(0),
        found: KeyValue::Absent,
    }
}

fn key_state(revision: Revision, headers: &Headers, payload: &[u8]) -> KeyState {
    let deleted = headers
        .iter()
        .any(|(name, value)| name == "KV-Operation" && (value == "DEL" || value == "PURGE"));
    let found = if deleted || headers.get("Nats-Marker-Reason").is_some() {
        KeyValue::Marker
    } else {
        KeyValue::Record(Record {
            token: String::from_utf8_lossy(payload).into_owned(),
            lease: lease::from_headers(|name| match headers.get(name) {
                None if MAY_BE_BLANK.contains(&name) => Some(""),
                value => value,
            }),
        })
    };
    KeyState { revision, found }
}

/// Returns the revision of a message that `stream` handed out.
fn origin(headers: &Headers, stream: &str) -> Option<Revision> {
    if added(headers, "Nats-Stream") != Some(stream) {
        return None;
    }
    let seq: u64 = added(headers, "Nats-Sequence")?.parse().ok()?;
    (seq > 0).then_some(Revision(seq))
}

/// Returns a header that the server adds. It adds its own behind those that were
/// stored, so the last one of a name is the server's and no client can forge it.
fn added<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers
        .iter()
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value)
        .last()
}

#[cfg(test)]
mod tests;
