//! Confirming that entries which were read are the last ones.
//!
//! A server of a cluster refuses a write while another one is under way that names the same key
//! in its condition. Where dozens of clients confirm the same entries, each begins with another
//! one, and sends again what was refused so.

use super::write::expected_headers;
use super::{NatsStore, answer};
use crate::core::{Instant, Revision, Written};
use crate::nats::Outgoing;
use crate::store::{Expected, name};
use crate::sys;

/// How many entries are confirmed at once.
const CONFIRMED_AT_ONCE: usize = 32;

impl NatsStore {
    /// See [`Bucket::confirm`](crate::store::Bucket::confirm). Many writes are sent at once.
    pub(super) fn confirm_now(&mut self, keys: &[(&str, Revision)], deadline: Instant) -> Written {
        let mut left = keys.to_vec();
        let first = (std::process::id() as usize).checked_rem(left.len());
        left.rotate_left(first.unwrap_or_default());
        let mut last = Written::Unknown("nothing sent".to_owned());
        while !left.is_empty() {
            let some: Vec<_> = left.drain(..left.len().min(CONFIRMED_AT_ONCE)).collect();
            let outcomes = match self.confirm_some(&some, deadline) {
                Ok(outcomes) => outcomes,
                Err(written) => return written,
            };
            let before = left.len();
            for (key, outcome) in some.iter().zip(outcomes) {
                match outcome {
                    None => left.push(*key),
                    Some(stored @ Written::Stored(_)) => last = stored,
                    Some(other) => return other,
                }
            }
            let refused = left.len() - before;
            if refused == some.len() && self.pause(deadline).is_err() {
                return Written::Unknown("others confirm the same entries".to_owned());
            }
        }
        last
    }

    /// Sends these writes at once. Returns their outcomes; `None` for one that another was under
    /// way for.
    fn confirm_some(
        &mut self,
        keys: &[(&str, Revision)],
        deadline: Instant,
    ) -> Result<Vec<Option<Written>>, Written> {
        let bucket = self.open_bucket();
        let bucket = bucket.map_err(|error| Written::Unknown(format!("nothing sent: {error}")))?;
        let replicated = bucket.replicated;
        for (key, at) in keys {
            let checked = self.check_expected(Expected::OtherKey(key, *at));
            checked.map_err(|text| Written::Denied(format!("nothing sent: {text}")))?;
        }
        let subject = self.target(&self.raw_subject(name::READ_KEY));
        let headers = |(key, at): &(&str, Revision)| {
            expected_headers(Expected::OtherKey(key, *at), &self.settings.bucket)
        };
        let headers: Vec<_> = keys.iter().map(headers).collect();
        let headers = headers.iter().map(|all| all.iter().map(|(name, value)| (*name, &**value)));
        let headers: Vec<Vec<(&str, &str)>> = headers.map(Iterator::collect).collect();
        let writes = headers.iter().map(|headers| Outgoing {
            subject: &subject,
            headers,
            payload: b"",
            repeats: false,
        });
        let (writes, began): (Vec<_>, _) = (writes.collect(), sys::now());
        let replies = self.client.requests(&writes, self.answer_by(deadline));
        self.client.note_answer(replies.is_ok(), began);
        let replies = replies.map_err(|error| answer::unanswered(&subject, &error))?;
        let outcome = |payload: &[u8]| {
            let is_refused = answer::is_busy(payload);
            (!is_refused).then(|| answer::written(&self.stream, replicated, payload))
        };
        Ok(replies.iter().map(|reply| outcome(&reply.payload)).collect())
    }
}
