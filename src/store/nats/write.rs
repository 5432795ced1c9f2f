//! Writing entries by compare-and-set.

use std::time::Duration;

use super::{API, NatsStore, answer};
use crate::core::{Instant, Written};
use crate::nats::{Message, Outgoing, RequestError};
use crate::store::{Content, Expected, Stays, StoreErrorKind, name};
use crate::sys;

/// How long the last entry of a key stays: as short as a server takes it, since a listing reads
/// it. A write that is under way so long and names a revision is refused all the same.
const RETIRED_FOR: Duration = Duration::from_secs(1);

impl NatsStore {
    /// Returns the subject to which a write of this subject is sent. A bucket of another domain or
    /// account is reached through its API.
    pub(super) fn target(&self, subject: &str) -> String {
        match &*self.settings.api {
            API => subject.to_owned(),
            api => format!("{api}.{subject}"),
        }
    }

    /// Sends a compare-and-set, and a request beside it; returns its outcome and the reply to the
    /// request.
    pub(super) fn publish_expected(
        &mut self,
        subject: &str,
        expected: Expected<'_>,
        content: &Content,
        ttl: Option<&str>,
        beside: Option<Outgoing<'_>>,
        deadline: Instant,
    ) -> Result<(Written, Option<Message>), RequestError> {
        let expected = expected_headers(expected, &self.settings.bucket);
        let expected = expected.iter().map(|(name, value)| (*name, &**value));
        let ttl = ttl.map(|time| ("Nats-TTL", time));
        let headers: Vec<_> = expected.chain(ttl).chain(sendable(content)).collect();
        let target = self.target(subject);
        let (subject, headers, payload) = (&*target, &*headers, &*content.payload);
        let write = Outgoing { subject, headers, payload, repeats: false };
        let mut replies =
            self.client.requests(&[&[write], beside.as_slice()].concat(), deadline)?;
        let replicated = self.bucket.as_ref().map_or(true, |bucket| bucket.replicated);
        let written = answer::written(&self.stream, replicated, &replies.remove(0).payload);
        Ok((written, replies.pop()))
    }

    /// Checks a condition. Servers before nats-server 2.11 ignore the name of another key: they
    /// are refused when a store for locks is opened.
    pub(super) fn check_expected(&self, expected: Expected<'_>) -> Result<(), String> {
        let Expected::OtherKey(key, _) = expected else { return Ok(()) };
        match self.settings.for_locks {
            true => name::valid_key(key),
            false => Err("a condition on another key needs a store for locks".to_owned()),
        }
    }

    /// Returns the time after which the server is to remove an entry.
    fn ttl_of(&self, stays: Stays) -> Option<String> {
        let ttl = match stays {
            Stays::Kept => return None,
            Stays::Retired => RETIRED_FOR,
            Stays::For(time) => time,
        };
        let ttl = format!("{}s", ttl.as_millis().div_ceil(1000));
        self.bucket.as_ref().ok().filter(|bucket| bucket.has_ttl).map(|_| ttl)
    }

    /// Stores the content of a key if the condition holds; `stays` says for how long. Returns the
    /// outcome, and the reply to the request that was sent beside, if there is one.
    pub(super) fn write_beside(
        &mut self,
        key: &str,
        expected: Expected<'_>,
        content: &Content,
        stays: Stays,
        beside: Option<Outgoing<'_>>,
        deadline: Instant,
    ) -> (Written, Option<Message>) {
        if let Err(why) = &self.bucket {
            return (Written::Unknown(format!("nothing sent: {why}")), None);
        }
        let checked = content.check().and_then(|()| self.check_expected(expected));
        if let Err(text) = checked {
            let error = StoreErrorKind::Unsafe.error(format!("nothing sent: {text}"));
            return (Written::Denied(error), None);
        }
        let (subject, ttl, began) = (self.subject_of(key), self.ttl_of(stays), sys::now());
        let ttl = ttl.as_deref();
        let sent = self.publish_expected(&subject, expected, content, ttl, beside, deadline);
        let no_stream = matches!(sent, Err(RequestError::NoResponders));
        let (written, reply) =
            sent.unwrap_or_else(|error| (answer::unanswered(&subject, &error), None));
        let answered = !matches!(written, Written::Unknown(_));
        self.unanswered_write = (!answered).then(sys::now);
        self.client.note_answer(answered, began);
        if no_stream {
            self.close_if_deleted(deadline);
            if let Err(gone) = &self.bucket {
                return (Written::Unknown(format!("nothing stored: {gone}")), None);
            }
        }
        (written, reply)
    }
}

/// Returns the headers that make a write a compare-and-set. With an empty value, or with
/// another case of the name, the server would store unconditionally; a decimal number is
/// never empty.
pub(super) fn expected_headers(
    expected: Expected<'_>,
    bucket: &str,
) -> Vec<(&'static str, String)> {
    let mut headers = vec![
        ("Nats-Expected-Last-Subject-Sequence", expected.revision().to_string()),
        ("Nats-Expected-Stream", format!("KV_{bucket}")),
    ];
    if let Expected::OtherKey(key, _) = expected {
        let subject = format!("$KV.{bucket}.{key}");
        headers.push(("Nats-Expected-Last-Subject-Sequence-Subject", subject));
    }
    headers
}

/// Returns the headers that a message can carry: outer blanks are removed, and headers
/// without a value are left out, because the server ignores an empty header of
/// compare-and-set.
pub(crate) fn sendable(content: &Content) -> Vec<(&str, &str)> {
    let headers = content.headers.iter();
    let trimmed = headers.map(|(name, value)| (name.as_str(), value.trim()));
    trimmed.filter(|(_, value)| !value.is_empty()).collect()
}
