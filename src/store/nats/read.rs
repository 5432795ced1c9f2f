//! Reading keys, from the stream's leader.

use std::time::Duration;

use serde_json::json;

use super::{Kind, NatsStore, answer, answer_by};
use crate::core::{Instant, Revision};
use crate::nats::Outgoing;
use crate::nats::jetstream::{self, StreamInfo};
use crate::store::{Entry, Listing, StoreError, StoreResult, Wanted};

/// How many keys are read at once.
const READS_AT_ONCE: usize = 128;

/// How long after a write without an answer a read does not count as an answer of the leader.
const DOUBT_MAX: Duration = Duration::from_secs(2);

impl NatsStore {
    /// Returns the result of a read that began at `began`. A failed read may mean that the
    /// bucket was deleted, or that the server is cut off: both are checked.
    pub(super) fn finish_read<T>(
        &mut self,
        read: StoreResult<T>,
        began: Instant,
        deadline: Instant,
    ) -> StoreResult<T> {
        if read.is_err() {
            self.close_if_deleted(deadline);
        }
        let answered = !matches!(read, Err(StoreError { kind: Kind::Unreachable, .. }));
        // A leader that is cut off from its replicas reads what it had, and stores nothing.
        let is_doubted = self.unanswered_write.is_some_and(|at| began.since(at) < DOUBT_MAX);
        if !answered || !is_doubted {
            self.client.note_answer(answered, began);
        }
        read.map_err(|error| self.open_bucket().err().unwrap_or(error))
    }

    /// Reads a key from the stream's leader.
    pub(super) fn read(&mut self, subject: &str, deadline: Instant) -> StoreResult<Option<Entry>> {
        Ok(self.read_all(&[subject.to_owned()], deadline)?.pop())
    }

    /// Reads keys from the stream's leader, many at once; leaves out those that are gone.
    pub(super) fn read_all(
        &mut self,
        subjects: &[String],
        deadline: Instant,
    ) -> StoreResult<Vec<Entry>> {
        let target = format!("{}.STREAM.MSG.GET.{}", self.settings.api, self.stream);
        let mut entries = Vec::new();
        for subjects in subjects.chunks(READS_AT_ONCE) {
            let body = |subject: &String| json!({ "last_by_subj": subject }).to_string();
            let bodies: Vec<String> = subjects.iter().map(body).collect();
            let requests: Vec<_> = bodies
                .iter()
                .map(|body| Outgoing {
                    subject: &target,
                    headers: &[],
                    payload: body.as_bytes(),
                    repeats: true,
                })
                .collect();
            let replies = self.client.requests(&requests, answer_by(deadline));
            let replies = replies.map_err(|error| self.request_error(&target, &error))?;
            for (subject, reply) in subjects.iter().zip(replies) {
                let stored = jetstream::stored(&reply.payload, subject);
                let stored = stored.map_err(|failure| self.api_error(subject, &failure))?;
                entries.extend(stored.map(|stored| answer::entry(subject, &stored)));
            }
        }
        Ok(entries)
    }

    /// Lists those keys of the subjects that `filter` selects that are `wanted`. STREAM.INFO
    /// names the keys and MSG.GET returns their entries, both from the leader: a replica that is
    /// behind lacks keys. The names must fit into one message of the client: about 15,000 keys do.
    pub(super) fn list_now(
        &mut self,
        filter: &str,
        wanted: Wanted<'_>,
        deadline: Instant,
    ) -> StoreResult<Listing> {
        loop {
            let body = json!({ "subjects_filter": filter }).to_string();
            let answer = self.api_request("STREAM.INFO", &body, deadline)?;
            let info = jetstream::stream_info(&answer);
            let StreamInfo { mut subjects, last_seq, has_leader, .. } =
                info.map_err(|failure| self.api_error(filter, &failure))?;
            if !has_leader {
                let text = format!("{filter}: {} has no leader", self.stream);
                return Err(Kind::Unreachable.error(text));
            }
            let home = self.raw_subject("").len();
            subjects.retain(|subject| subject.get(home..).is_some_and(wanted));
            let entries = self.read_all(&subjects, deadline)?;
            if entries.len() == subjects.len() {
                return Ok(Listing { entries, last: Revision(last_seq) });
            }
            // A key was removed meanwhile, or another server was asked for its entry.
            self.pause(deadline)?;
        }
    }
}
