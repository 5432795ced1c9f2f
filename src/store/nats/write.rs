//! Writing entries by compare-and-set.

use super::NatsStore;
use crate::store::{Content, Expected, name};

impl NatsStore {
    /// Checks a condition. Servers before nats-server 2.11 ignore the name of another key: they
    /// are refused when a store for locks is opened.
    pub(super) fn check_expected(&self, expected: Expected<'_>) -> Result<(), String> {
        let Expected::OtherKey(key, _) = expected else { return Ok(()) };
        match self.settings.for_locks {
            true => name::valid_key(key),
            false => Err("a condition on another key needs a store for locks".to_owned()),
        }
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
