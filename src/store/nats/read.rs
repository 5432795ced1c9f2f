//! Reading keys, from the stream's leader.

use std::time::{Duration, SystemTime};

use serde_json::json;

use super::{Kind, MADE_ANEW, NO_LEADER, NatsStore, answer};
use crate::core::tickets::grab::CLOCKS_MARGIN;
use crate::core::time::StoreTime;
use crate::core::{Instant, Revision};
use crate::nats::jetstream::{self, Stored, StreamInfo};
use crate::nats::{Message, Outgoing};
use crate::store::{Entry, Listing, Selection, StoreError, StoreResult, name};

/// How many keys are read at once.
const READS_AT_ONCE: usize = 128;

/// How long after a write without an answer a read does not count as an answer of the leader.
const DOUBT_MAX: Duration = Duration::from_secs(2);

/// Returns the body of the request to read a subject.
pub(super) fn last_of(subject: &str) -> String {
    json!({ "last_by_subj": subject }).to_string()
}

pub(super) fn read_request<'a>(target: &'a str, body: &'a str) -> Outgoing<'a> {
    Outgoing { subject: target, headers: &[], payload: body.as_bytes(), repeats: true }
}

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
        // A leader that is cut off from its replicas reads its old entries, and stores nothing.
        let is_doubted = self.unanswered_write.is_some_and(|at| began.since(at) < DOUBT_MAX);
        if !answered || !is_doubted {
            self.client.note_answer(answered, began);
        }
        read.map_err(|error| self.open_bucket().err().unwrap_or(error))
    }

    /// Reads a key from the stream's leader.
    pub(super) fn read(&mut self, subject: &str, deadline: Instant) -> StoreResult<Option<Entry>> {
        Ok(self.read_all(&[subject.to_owned()], None, deadline)?.pop().flatten())
    }

    /// Reads keys from the stream's leader, many at once, and returns the entries in their order,
    /// with their ages if the time of the server is known.
    pub(super) fn read_all(
        &mut self,
        subjects: &[String],
        time: Option<SystemTime>,
        deadline: Instant,
    ) -> StoreResult<Vec<Option<Entry>>> {
        let target = self.get_target();
        let mut entries = Vec::new();
        for subjects in subjects.chunks(READS_AT_ONCE) {
            let bodies: Vec<String> = subjects.iter().map(|subject| last_of(subject)).collect();
            let requests: Vec<_> = bodies.iter().map(|body| read_request(&target, body)).collect();
            let replies = self.client.requests(&requests, self.answer_by(deadline));
            let replies = replies.map_err(|error| self.request_error(&target, &error))?;
            for (subject, reply) in subjects.iter().zip(&replies) {
                entries.push(self.entry_in(subject, reply, time)?);
            }
        }
        Ok(entries)
    }

    /// Returns the subject of a request to read a key.
    fn get_target(&self) -> String {
        format!("{}.STREAM.MSG.GET.{}", self.settings.api, self.stream)
    }

    /// Returns the entry in the reply to a request to read its subject, if there is one, with its
    /// age if the time of the server is known.
    fn entry_in(
        &mut self,
        subject: &str,
        reply: &Message,
        time: Option<SystemTime>,
    ) -> StoreResult<Option<Entry>> {
        let stored = jetstream::stored(&reply.payload, subject);
        let stored = stored.map_err(|failure| self.api_error(subject, &failure))?;
        let entry = |it: Stored| Entry { age: age(it.time, time), ..answer::entry(subject, &it) };
        Ok(stored.map(entry))
    }

    /// Lists the selected keys. STREAM.INFO names the keys and MSG.GET returns their entries, both
    /// from the leader: a replica that is behind lacks keys. The names must fit into one message
    /// of the client: about 15,000 keys do.
    ///
    /// A key that is named and has no entry was removed since, or the server that was read is no
    /// leader any more: it is left out if the leader names it no longer.
    pub(super) fn list_now(
        &mut self,
        selection: Selection<'_>,
        deadline: Instant,
    ) -> StoreResult<Listing> {
        loop {
            let (named, beside) = self.name_all(selection, deadline)?;
            let read = match beside.filter(|_| !named.subjects.is_empty()) {
                Some(entry) => vec![Some(entry)],
                None => self.read_all(&named.subjects, named.time, deadline)?,
            };
            let subjects = named.subjects.iter().zip(&read);
            let missing = subjects.filter(|(_, entry)| entry.is_none());
            let missing: Vec<&String> = missing.map(|(subject, _)| subject).collect();
            if !missing.is_empty() {
                let (again, _) = self.name_all(selection, deadline)?;
                let is_named = |subject: &&String| again.subjects.contains(subject);
                if again.last_seq < named.last_seq || missing.iter().any(is_named) {
                    self.pause(deadline)?;
                    continue;
                }
            }
            let entries = read.into_iter().flatten().collect();
            let since_epoch = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).ok();
            let at = named.time.and_then(since_epoch).map(StoreTime);
            return Ok(Listing { entries, at, last: Revision(named.last_seq) });
        }
    }

    /// Returns the state of the bucket, in which the leader names the selected keys. A single key
    /// is read beside: an agent on a slow link has not the time for one request after the other.
    fn name_all(
        &mut self,
        selection: Selection<'_>,
        deadline: Instant,
    ) -> StoreResult<(StreamInfo, Option<Entry>)> {
        let filter = match selection {
            Selection::Key(key) => self.subject_of(key),
            Selection::Below { prefix: "", .. } => self.subject_of(">"),
            Selection::Below { prefix, .. } => self.subject_of(&format!("{prefix}.>")),
        };
        let list = format!("{}.STREAM.INFO.{}", self.settings.api, self.stream);
        let body = json!({ "subjects_filter": filter }).to_string();
        let (get, last) = (self.get_target(), last_of(&filter));
        let mut requests = vec![read_request(&list, &body)];
        if let Selection::Key(_) = selection {
            requests.push(read_request(&get, &last));
        }
        let replies = self.client.requests(&requests, self.answer_by(deadline));
        let replies = replies.map_err(|error| self.request_error("listing", &error))?;
        let home = self.subject_of("").len();
        let info = jetstream::stream_info(&replies[0].payload);
        let mut named = info.map_err(|failure| self.api_error("listing", &failure))?;
        if !named.has_leader {
            let text = format!("listing: {} {NO_LEADER}", self.stream);
            return Err(Kind::Unreachable.error(text));
        }
        // The holders of the tickets of a lost bucket may still run their commands.
        if named.created != self.open_bucket()?.created {
            return Err(self.lose(MADE_ANEW));
        }
        // A subject that is no key of putex is left out: one that is not UTF-8 cannot be read.
        let is_wanted = |subject: &String| {
            let key = subject.get(home..).filter(|key| selection.selects(key));
            key.is_some_and(|key| name::valid_key(key).is_ok())
        };
        named.subjects.retain(is_wanted);
        let read = replies.get(1).map(|reply| self.entry_in(&filter, reply, named.time));
        Ok((named, read.transpose()?.flatten()))
    }
}

/// Returns the age of an entry that was stored at that time, by the clock of the server that has
/// stored it; `None` if this is far in the future, by the clock of the one that is asked: the
/// clocks differ.
pub(super) fn age(stored: SystemTime, now: Option<SystemTime>) -> Option<Duration> {
    match now?.duration_since(stored) {
        Ok(age) => Some(age),
        Err(ahead) => (ahead.duration() <= CLOCKS_MARGIN).then_some(Duration::ZERO),
    }
}
