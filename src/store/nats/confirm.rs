//! Confirming that entries which were read are the last ones.

use super::{NatsStore, answer, expected_headers};
use crate::core::{Instant, Revision, Written};
use crate::nats::Outgoing;
use crate::store::{Content, Expected, name};

/// How many entries are confirmed at once.
const CONFIRMED_AT_ONCE: usize = 64;

impl NatsStore {
    /// See [`Bucket::confirm`]. Many writes are sent at once.
    pub(super) fn confirm_now(&mut self, keys: &[(&str, Revision)], deadline: Instant) -> Written {
        let subject = self.target(&self.raw_subject(name::READ_KEY));
        let mut last = Written::Unknown("nothing sent".to_owned());
        for keys in keys.chunks(CONFIRMED_AT_ONCE) {
            let [(first, at), rest @ ..] = keys else { break };
            let headers = |(key, at): &(&str, Revision)| {
                expected_headers(Expected::OtherKey(key, *at), &self.settings.bucket)
            };
            let headers: Vec<_> = rest.iter().map(headers).collect();
            let headers: Vec<Vec<(&str, &str)>> = headers
                .iter()
                .map(|all| all.iter().map(|(name, value)| (*name, &**value)).collect())
                .collect();
            let beside = headers.iter().map(|headers| Outgoing {
                subject: &subject,
                headers,
                payload: b"",
                repeats: false,
            });
            let (expected, nothing) = (Expected::OtherKey(first, *at), Content::default());
            let beside: Vec<_> = beside.collect();
            let (written, replies) =
                self.write(name::READ_KEY, expected, &nothing, None, &beside, deadline);
            let replicated = self.bucket.as_ref().map_or(true, |bucket| bucket.replicated);
            let others = replies
                .iter()
                .map(|reply| answer::written(&self.stream, replicated, &reply.payload));
            let all: Vec<_> = [written].into_iter().chain(others).collect();
            let is_whole = all.len() == keys.len();
            let failed = all.iter().find(|written| !matches!(written, Written::Stored(_)));
            if let Some(failed) = failed {
                return failed.clone();
            }
            last = all.into_iter().next_back().filter(|_| is_whole).unwrap_or(last);
        }
        last
    }
}
