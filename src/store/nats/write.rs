//! Writing entries by compare-and-set.

use std::time::Duration;

use super::{API, NatsStore, answer};
use crate::core::{Instant, Written};
use crate::nats::{Outgoing, RequestError};
use crate::store::{Content, Expected, StoreErrorKind, name};
use crate::sys;

impl NatsStore {
    /// Returns the subject to which a write of this subject is sent. A bucket of another domain or
    /// account is reached through its API.
    pub(super) fn target(&self, subject: &str) -> String {
        match &*self.settings.api {
            API => subject.to_owned(),
            api => format!("{api}.{subject}"),
        }
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

    /// Stores the content of a key if the condition holds. The server removes it after `lasts`, if
    /// it can.
    pub(super) fn write_now(
        &mut self,
        key: &str,
        expected: Expected<'_>,
        content: &Content,
        lasts: Option<Duration>,
        deadline: Instant,
    ) -> Written {
        let (replicated, has_ttl) = match &self.bucket {
            Ok(bucket) => (bucket.replicated, bucket.has_ttl),
            Err(why) => return Written::Unknown(format!("nothing sent: {why}")),
        };
        if let Err(text) = content.check().and_then(|()| self.check_expected(expected)) {
            let error = StoreErrorKind::Unsafe.error(format!("nothing sent: {text}"));
            return Written::Denied(error);
        }
        let subject = self.subject_of(key);
        let target = self.target(&subject);
        let expected = expected_headers(expected, &self.settings.bucket);
        let expected = expected.iter().map(|(name, value)| (*name, &**value));
        let ttl = lasts.filter(|_| has_ttl);
        let ttl = ttl.map(|time| format!("{}s", time.as_millis().div_ceil(1000)));
        let ttl = ttl.as_deref().map(|time| ("Nats-TTL", time));
        let headers: Vec<_> = expected.chain(ttl).chain(sendable(content)).collect();
        let payload = &*content.payload;
        let write = Outgoing { subject: &target, headers: &headers, payload, repeats: false };
        let began = sys::now();
        let replied = self.client.request(&write, deadline);
        let written = match &replied {
            Ok(reply) => answer::written(&self.stream, replicated, &reply.payload),
            Err(error) => answer::unanswered(&subject, error),
        };
        let answered = !matches!(written, Written::Unknown(_));
        self.unanswered_write = (!answered).then(sys::now);
        self.client.note_answer(answered, began);
        if let Err(RequestError::NoResponders) = replied {
            self.close_if_deleted(deadline);
            if let Err(gone) = &self.bucket {
                return Written::Unknown(format!("nothing stored: {gone}"));
            }
        }
        written
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
