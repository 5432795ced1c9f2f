//! Reading: one key from the leader or from any replica, and all keys below a prefix.

use super::{NatsStore, answer};
use crate::core::record::Revision;
use crate::core::time::Instant;
use crate::nats::RequestError;
use crate::nats::jetstream::{self, Subjects};
use crate::store::{Entry, Listing, StoreError};
use crate::sys;

/// Why a direct read has no result.
enum DirectReadError {
    /// There was no answer.
    Request(RequestError),
    /// The answer has no entry in it.
    Answer(String),
}

impl NatsStore {
    /// Reads a key from the stream's leader; from any replica when this user may
    /// not read from the leader.
    pub(super) fn read_leader(
        &mut self,
        subject: &str,
        deadline: Instant,
    ) -> Result<Option<Entry>, StoreError> {
        match self.read_leader_only(subject, deadline) {
            Err(StoreError::Credentials(text)) if self.may_read_directly() => {
                self.warn_once(format!("{text}; any replica is read instead"));
                let entry = self.read_replica(subject, deadline);
                entry.map_err(|error| match error {
                    DirectReadError::Request(error) => self.request_error(subject, &error),
                    DirectReadError::Answer(text) => StoreError::Unreachable(text),
                })
            }
            entry => entry,
        }
    }

    fn read_leader_only(
        &mut self,
        subject: &str,
        deadline: Instant,
    ) -> Result<Option<Entry>, StoreError> {
        let body = jetstream::last_by_subject(subject);
        let answer = self.api_request("STREAM.MSG.GET", &body, deadline)?;
        match jetstream::stored(&answer, subject) {
            Ok(stored) => Ok(stored.map(|stored| answer::leader(subject, &stored))),
            Err(failure) => Err(self.api_error(subject, &failure)),
        }
    }

    fn may_read_directly(&self) -> bool {
        self.bucket.as_ref().is_some_and(|bucket| bucket.allow_direct)
    }

    /// Reads a key from any replica.
    fn read_replica(
        &mut self,
        subject: &str,
        deadline: Instant,
    ) -> Result<Option<Entry>, DirectReadError> {
        let api = format!("{}.DIRECT.GET.{}.{subject}", self.api, self.stream);
        let reply =
            self.client.request(&api, &[], b"", deadline).map_err(DirectReadError::Request)?;
        answer::direct(&reply.headers, &reply.payload, &self.stream, subject)
            .map_err(DirectReadError::Answer)
    }

    /// Reads a key from any replica, and from the leader when the replica does not answer.
    pub(super) fn read_any(
        &mut self,
        subject: &str,
        deadline: Instant,
    ) -> Result<Option<Entry>, StoreError> {
        if self.may_read_directly() {
            let now = sys::now();
            // 2.9 does not answer for a stream that is gone, and a hung replica never.
            let half = now.after(deadline.since(now) / 2);
            match self.read_replica(subject, half) {
                Ok(entry) => return Ok(entry),
                Err(DirectReadError::Request(RequestError::TimedOut)) => {}
                Err(DirectReadError::Request(error @ RequestError::Forbidden(_))) => {
                    self.warn_once(format!("{subject}: {error}; the leader is read instead"));
                    if let Some(bucket) = &mut self.bucket {
                        bucket.allow_direct = false;
                    }
                }
                Err(DirectReadError::Request(error)) => {
                    return Err(StoreError::Unreachable(format!("{subject}: {error}")));
                }
                Err(DirectReadError::Answer(text)) => return Err(StoreError::Unreachable(text)),
            }
        }
        self.read_leader(subject, deadline)
    }

    /// Lists the keys of the subjects that `filter` selects. STREAM.INFO names the keys and
    /// MSG.GET returns their entries, both from the leader: a replica that catches up lacks
    /// keys. The names must fit into one message of the client: about 15,000 keys do.
    pub(super) fn list_now(
        &mut self,
        filter: &str,
        deadline: Instant,
    ) -> Result<Listing, StoreError> {
        loop {
            let Subjects { names, last_seq, has_leader } = self.subjects(filter, deadline)?;
            if !has_leader {
                return Err(StoreError::Unreachable(format!(
                    "{filter}: {} has no leader",
                    self.stream
                )));
            }
            let mut entries = Vec::new();
            for subject in &names {
                entries.extend(self.read_leader_only(subject, deadline)?);
            }
            if entries.len() == names.len() {
                let last = Revision(last_seq);
                return Ok(Listing { entries, last });
            }
            // A key was removed meanwhile, or another server was asked for its entry.
            self.pause(deadline)?;
        }
    }

    fn subjects(&mut self, filter: &str, deadline: Instant) -> Result<Subjects, StoreError> {
        let body = jetstream::subjects_filter(filter);
        let answer = self.api_request("STREAM.INFO", &body, deadline)?;
        jetstream::subjects(&answer).map_err(|failure| self.api_error(filter, &failure))
    }
}
