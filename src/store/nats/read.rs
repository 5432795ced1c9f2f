//! Reading: one key from the leader or from any replica, and all keys below a prefix.

use super::{NatsStore, answer};
use crate::core::record::Revision;
use crate::core::time::Instant;
use crate::nats::jetstream::{self, Subjects};
use crate::store::{Entry, Listing, StoreError};
use crate::sys;

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
                self.read_replica(subject, deadline)
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
            Ok(stored) => Ok(stored.map(|stored| answer::leader_entry(subject, &stored))),
            Err(failure) => Err(self.api_error(subject, &failure)),
        }
    }

    fn may_read_directly(&self) -> bool {
        self.bucket.as_ref().is_ok_and(|bucket| bucket.allow_direct)
    }

    /// Reads a key from any replica.
    fn read_replica(
        &mut self,
        subject: &str,
        deadline: Instant,
    ) -> Result<Option<Entry>, StoreError> {
        let api = format!("{}.DIRECT.GET.{}.{subject}", self.api, self.stream);
        let reply = self.client.request(&api, &[], b"", deadline);
        let reply = reply.map_err(|error| self.request_error(subject, &error))?;
        answer::direct_entry(&reply.headers, &reply.payload, &self.stream, subject)
            .map_err(StoreError::Unreachable)
    }

    /// Reads a key from any replica, and from the leader when the replica has no answer.
    pub(super) fn read_any(
        &mut self,
        subject: &str,
        deadline: Instant,
    ) -> Result<Option<Entry>, StoreError> {
        if self.may_read_directly() {
            let now = sys::now();
            // nats-server 2.9 gives no answer for a deleted stream, a hung replica gives none at
            // all: half of the time is left for the leader.
            let half = now.after(deadline.since(now) / 2);
            match self.read_replica(subject, half) {
                Err(StoreError::Credentials(text)) => {
                    self.warn_once(format!("{text}; the leader is read instead"));
                    if let Ok(bucket) = &mut self.bucket {
                        bucket.allow_direct = false;
                    }
                }
                Err(_) if self.client.is_connected() => {}
                read => return read,
            }
        }
        self.read_leader(subject, deadline)
    }

    /// Lists the keys of the subjects that `filter` selects. STREAM.INFO names the keys and
    /// MSG.GET returns their entries, both from the leader: a replica that is behind lacks
    /// keys. The names must fit into one message of the client: about 15,000 keys do.
    pub(super) fn list_now(
        &mut self,
        filter: &str,
        deadline: Instant,
    ) -> Result<Listing, StoreError> {
        loop {
            let body = jetstream::subjects_filter(filter);
            let answer = self.api_request("STREAM.INFO", &body, deadline)?;
            let subjects = jetstream::subjects(&answer);
            let Subjects { names, last_seq, has_leader } =
                subjects.map_err(|failure| self.api_error(filter, &failure))?;
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
}
