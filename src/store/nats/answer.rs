//! The meaning of the server's answers for a store. Pure.

use crate::core::{Revision, Written, sanitize};
use crate::nats::jetstream::{self, Stored, code};
use crate::nats::{Headers, RequestError};
use crate::store::{Content, Entry, MARKER_REASON, StoreErrorKind, is_protocol_header};

/// Converts the answer to a write into its outcome. `replicated`: the bucket has more than
/// one copy.
pub(crate) fn written(stream: &str, replicated: bool, payload: &[u8]) -> Written {
    let error = match jetstream::ack(payload) {
        Ok((owner, seq)) if owner == stream => return Written::Stored(Revision(seq)),
        Ok((owner, seq)) => {
            return Written::Unknown(format!(
                "stream {} acknowledged a write meant for {stream} as its {seq}: two streams own \
                 the key, this bucket cannot be trusted",
                printable(&owner)
            ));
        }
        Err(error) => error,
    };
    match error.err_code {
        code::WRONG_LAST => Written::Moved(error.revision().map(Revision)),
        code::BUSY => Written::Unknown("busy: another write of this key is in flight".to_owned()),
        // The leader failed to store a message that its followers may have stored.
        code::STORE_FAILED if replicated => Written::Unknown(format!("write: {error}")),
        // The server decides these before it hands the message to the store.
        code::STORE_FAILED
        | code::WRONG_STREAM
        | code::MESSAGE_TOO_LARGE
        | code::HEADERS_TOO_LARGE
        | code::INSUFFICIENT_RESOURCES
        | code::STORAGE_EXCEEDED
        | code::BAD_REQUEST
        | code::SEALED
        | code::TOO_MANY_REQUESTS => {
            Written::Denied(StoreErrorKind::Unreachable.error(format!("write refused: {error}")))
        }
        _ => Written::Unknown(format!("write: {error}")),
    }
}

/// Returns the outcome of a write without an answer.
pub(crate) fn unanswered(subject: &str, error: &RequestError) -> Written {
    let text = format!("write to {subject}: {error}");
    match error {
        RequestError::Forbidden(_) => Written::Denied(StoreErrorKind::Credentials.error(text)),
        RequestError::NoResponders => Written::Unknown(format!("{text}, nothing stored")),
        RequestError::Unanswered(_) => Written::Unknown(text),
    }
}

/// Converts the message on `subject`, as MSG.GET returns it, into an entry.
pub(crate) fn entry(subject: &str, stored: &Stored) -> Entry {
    // The name of a bucket has no dot.
    let key = subject.splitn(3, '.').nth(2).unwrap_or_default().to_owned();
    let content = content(&Headers::parse(&stored.headers), &stored.data);
    Entry { key, revision: Revision(stored.seq), content, age: None }
}

/// Returns the subject and the revision of a republished message, `None` when the message
/// is not one of `stream`.
pub(crate) fn hint<'a>(headers: &'a Headers, stream: &str) -> Option<(&'a str, Revision)> {
    let subject = server_header(headers, "Nats-Subject")?;
    let seq: u64 = server_header(headers, "Nats-Sequence")?.parse().ok()?;
    let is_ours = server_header(headers, "Nats-Stream") == Some(stream) && seq > 0;
    is_ours.then_some((subject, Revision(seq)))
}

/// Returns the content of a message, without the headers of the protocol.
pub(crate) fn content(headers: &Headers, payload: &[u8]) -> Content {
    let kept = |(name, _): &(&str, &str)| !is_protocol_header(name) || *name == MARKER_REASON;
    let headers = headers.iter().filter(kept);
    Content::new(headers.map(|(name, value)| (name, value.to_owned())), payload)
}

/// Returns a text of a server without control characters and outer blanks.
pub(crate) fn printable(text: &str) -> String {
    sanitize(text).trim().to_owned()
}

/// Returns a header that the server adds. The server appends its headers to the stored ones,
/// so the last header of a name is the server's, and no client can forge it.
fn server_header<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.iter().filter(|(key, _)| *key == name).map(|(_, value)| value).last()
}

#[cfg(test)]
mod tests;
