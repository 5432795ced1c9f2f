//! Writing: the headers of compare-and-set, and the conditions that the servers enforce.

use super::{NatsStore, OpenBucket, answer};
use crate::core::{Instant, Written};
use crate::nats::{Outgoing, RequestError};
use crate::store::{Content, Expected, name};

/// First level of JetStream's API whose servers check a condition on another subject.
/// Older servers ignore that header and check the written subject instead.
const OTHER_SUBJECT_LEVEL: u64 = 1;

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

impl NatsStore {
    /// Sends a compare-and-set and returns its outcome.
    pub(super) fn publish_expected(
        &mut self,
        subject: &str,
        expected: Expected<'_>,
        content: &Content,
        deadline: Instant,
    ) -> Result<Written, RequestError> {
        let expected = expected_headers(expected, &self.settings.bucket);
        let expected = expected.iter().map(|(name, value)| (*name, &**value));
        let headers: Vec<_> = expected.chain(sendable(content)).collect();
        // A bucket of another domain or account is reached through its API.
        let target = match self.settings.api {
            None => subject.to_owned(),
            Some(_) => format!("{}.{subject}", self.api),
        };
        let (subject, headers, payload) = (&*target, &*headers, &*content.payload);
        let write = Outgoing { subject, headers, payload, repeats: false };
        let reply = self.client.request(&write, deadline)?;
        let replicated = self.bucket.as_ref().map_or(true, |bucket| bucket.replicated);
        Ok(answer::written(&self.stream, replicated, &reply.payload))
    }

    /// Checks that the servers of this bucket enforce a condition on another key.
    pub(super) fn check_expected(
        &self,
        bucket: &OpenBucket,
        expected: Expected<'_>,
    ) -> Result<(), String> {
        let Expected::OtherKey(key, _) = expected else {
            return Ok(());
        };
        name::valid_key(key)?;
        if bucket.level < OTHER_SUBJECT_LEVEL {
            return Err(format!(
                "{}: its server is older than nats-server 2.11 and does not check a condition on \
                 other keys",
                self.stream
            ));
        }
        Ok(())
    }
}

/// Returns the headers that a message can carry: outer blanks are removed, and headers
/// without a value are left out, because the server ignores an empty header of
/// compare-and-set.
pub(crate) fn sendable(content: &Content) -> Vec<(&str, &str)> {
    let headers = content.headers.iter();
    let trimmed = headers.map(|(name, value)| (name.as_str(), value.trim()));
    trimmed.filter(|(_, value)| !value.is_empty()).collect()
}
