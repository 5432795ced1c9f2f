//! Reading from the leader: one key, and all keys below a prefix.

use super::{NatsStore, answer};
use crate::core::{Instant, Revision};
use crate::nats::jetstream::{self, Subjects};
use crate::store::{Entry, Listing, StoreError, StoreErrorKind as Kind};

impl NatsStore {
    /// Reads a key from the stream's leader.
    pub(super) fn read(
        &mut self,
        subject: &str,
        deadline: Instant,
    ) -> Result<Option<Entry>, StoreError> {
        let body = jetstream::last_by_subject(subject);
        let answer = self.api_request("STREAM.MSG.GET", &body, deadline)?;
        match jetstream::stored(&answer, subject) {
            Ok(stored) => Ok(stored.map(|stored| answer::entry(subject, &stored))),
            Err(failure) => Err(self.api_error(subject, &failure)),
        }
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
                return Err(
                    Kind::Unreachable.error(format!("{filter}: {} has no leader", self.stream))
                );
            }
            let mut entries = Vec::new();
            for subject in &names {
                entries.extend(self.read(subject, deadline)?);
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
