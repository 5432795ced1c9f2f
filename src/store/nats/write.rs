//! Writing: the headers of compare-and-set, and the conditions that the servers enforce.

use super::{NatsStore, answer};
use crate::core::event::Written;
use crate::core::time::Instant;
use crate::nats::RequestError;
use crate::store::{Content, Expected, name};

/// First level of JetStream's API whose servers check a condition on another subject.
/// Older servers ignore that header and check the written subject instead.
const OTHER_SUBJECT_LEVEL: u64 = 1;

/// The headers that make a write a compare-and-set.
pub(super) struct ExpectedHeaders {
    sequence: String,
    /// The subject of the expected sequence; `None` for the written one.
    subject: Option<String>,
    stream: String,
}

impl ExpectedHeaders {
    /// A decimal number is never empty. With an empty value, or with the name in other
    /// letters, the server would store unconditionally.
    pub(super) fn new(expected: Expected<'_>, bucket: &str) -> ExpectedHeaders {
        let subject = match expected {
            Expected::Key(_) => None,
            Expected::OtherKey(key, _) => Some(format!("$KV.{bucket}.{key}")),
        };
        ExpectedHeaders {
            sequence: expected.revision().0.to_string(),
            subject,
            stream: format!("KV_{bucket}"),
        }
    }

    pub(super) fn headers(&self) -> Vec<(&str, &str)> {
        let mut headers = vec![
            ("Nats-Expected-Last-Subject-Sequence", &*self.sequence),
            ("Nats-Expected-Stream", &*self.stream),
        ];
        let subject = self.subject.as_deref();
        headers.extend(subject.map(|of| ("Nats-Expected-Last-Subject-Sequence-Subject", of)));
        headers
    }
}

impl NatsStore {
    /// Sends a compare-and-set and returns the answer. Headers with a blank value are left
    /// out: the server takes an empty header of compare-and-set for none.
    pub(super) fn publish_expected(
        &mut self,
        subject: &str,
        expected: Expected<'_>,
        content: &Content,
        deadline: Instant,
    ) -> Result<Vec<u8>, RequestError> {
        let expected = ExpectedHeaders::new(expected, &self.settings.bucket);
        let headers = [expected.headers(), sendable(content)].concat();
        // Through the other API to the bucket, when there is one.
        let target = match self.settings.api {
            None => subject.to_owned(),
            Some(_) => format!("{}.{subject}", self.api),
        };
        let reply = self.client.request(&target, &headers, &content.payload, deadline)?;
        Ok(reply.payload)
    }

    pub(super) fn write_outcome(
        &self,
        subject: &str,
        sent: Result<Vec<u8>, RequestError>,
    ) -> Written {
        let replicated = self.bucket.as_ref().is_none_or(|bucket| bucket.replicated);
        match sent {
            Ok(answer) => answer::written(&self.stream, replicated, &answer),
            Err(error) => answer::unanswered(subject, &error),
        }
    }

    /// Checks that the servers of this bucket enforce a condition on other keys.
    pub(super) fn check_expected(&self, expected: Expected<'_>) -> Result<(), String> {
        let (Some(bucket), Expected::OtherKey(key, _)) = (&self.bucket, expected) else {
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
/// without a value are left out.
pub(crate) fn sendable(content: &Content) -> Vec<(&str, &str)> {
    let headers = content.headers.iter();
    let trimmed = headers.map(|(name, value)| (name.as_str(), value.trim()));
    trimmed.filter(|(_, value)| !value.is_empty()).collect()
}
