//! Reading keys, from the stream's leader.

use std::time::Duration;

use serde_json::json;

use super::retire::FORGOTTEN;
use super::{Kind, NatsStore, answer, answer_by};
use crate::core::{Instant, Revision};
use crate::nats::jetstream;
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

/// Returns the request to read a subject.
fn read_request<'a>(target: &'a str, body: &'a str) -> Outgoing<'a> {
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
        let target = self.read_target();
        let mut entries = Vec::new();
        for subjects in subjects.chunks(READS_AT_ONCE) {
            let bodies: Vec<String> = subjects.iter().map(|subject| last_of(subject)).collect();
            let requests: Vec<_> = bodies.iter().map(|body| read_request(&target, body)).collect();
            let replies = self.client.requests(&requests, answer_by(deadline));
            let replies = replies.map_err(|error| self.request_error(&target, &error))?;
            for (subject, reply) in subjects.iter().zip(&replies) {
                entries.extend(self.entry_in(subject, reply)?);
            }
        }
        Ok(entries)
    }

    fn read_target(&self) -> String {
        format!("{}.STREAM.MSG.GET.{}", self.settings.api, self.stream)
    }

    /// Returns the entry in the reply to a request to read its subject, if there is one.
    fn entry_in(&mut self, subject: &str, reply: &Message) -> StoreResult<Option<Entry>> {
        let stored = jetstream::stored(&reply.payload, subject);
        let stored = stored.map_err(|failure| self.api_error(subject, &failure))?;
        Ok(stored.map(|stored| answer::entry(subject, &stored)))
    }

    /// Lists the selected keys. STREAM.INFO names the keys and MSG.GET returns their entries, both
    /// from the leader: a replica that is behind lacks keys. The names must fit into one message
    /// of the client: about 15,000 keys do.
    pub(super) fn list_now(
        &mut self,
        selection: Selection<'_>,
        deadline: Instant,
    ) -> StoreResult<Listing> {
        let listing = self.listing_requests(selection.prefixes)?;
        let likely = selection.likely.map(|key| self.subject(key)).transpose()?;
        let (target, body) = (self.read_target(), likely.as_deref().map(last_of));
        let read = body.as_ref().map(|body| read_request(&target, body));
        let requests: Vec<_> = listing.outgoing().into_iter().chain(read).collect();
        loop {
            let replies = self.client.requests(&requests, answer_by(deadline));
            let mut replies = replies.map_err(|error| self.request_error("listing", &error))?;
            let last = likely.as_ref().and_then(|subject| Some((subject, replies.pop()?)));
            let read = last.map(|(subject, reply)| self.entry_in(subject, &reply)).transpose()?;
            let read = read.flatten();
            let names = self.names(replies, selection)?;
            if let Some(listing) = self.read_named(names, read, deadline)? {
                return Ok(listing);
            }
            self.pause(deadline)?;
        }
    }

    /// Completes a listing from the replies to its requests, which were sent beside the write of
    /// this entry.
    pub(super) fn finish_listing(
        &mut self,
        replies: Vec<Message>,
        written: Entry,
        selection: Selection<'_>,
        deadline: Instant,
    ) -> StoreResult<Listing> {
        let (subjects, last) = self.names(replies, selection)?;
        // Where others have written since, it may have ended.
        let known = Some(written).filter(|written| last <= written.revision);
        if let Some(listing) = self.read_named((subjects, last), known, deadline)? {
            return Ok(listing);
        }
        self.pause(deadline)?;
        self.list_now(selection, deadline)
    }

    /// Returns the subjects of the selected ones of the keys that these replies name, in their
    /// order, and the revision that all of the replies reach.
    fn names(
        &mut self,
        replies: Vec<Message>,
        selection: Selection<'_>,
    ) -> StoreResult<(Vec<String>, Revision)> {
        let home = self.raw_subject("").len();
        let (mut subjects, mut last) = (Vec::new(), Revision(u64::MAX));
        for reply in replies {
            let info = jetstream::stream_info(&reply.payload);
            let info = info.map_err(|failure| self.api_error("listing", &failure))?;
            if !info.has_leader {
                let text = format!("listing: {} has no leader", self.stream);
                return Err(Kind::Unreachable.error(text));
            }
            // Who grants by a listing of another bucket grants beside the holders of the lost one.
            let bucket = self.open_bucket()?;
            if info.is_made() && info.created != bucket.created {
                let text = format!("the bucket {} was deleted and made anew", self.stream);
                self.bucket = Err(text.clone());
                return Err(Kind::Unreachable.error(text));
            }
            // What is not a key is nobody's entry, and a subject that is not UTF-8 cannot be read.
            let is_wanted = |subject: &str| {
                let key = subject.get(home..).filter(|key| (selection.wanted)(key));
                key.is_some_and(|key| name::valid_key(key).is_ok())
            };
            let names = not_forgotten(&info.subjects).filter(|subject| is_wanted(subject));
            subjects.extend(names.cloned());
            last = last.min(Revision(info.last_seq));
        }
        subjects.sort();
        subjects.dedup();
        Ok((subjects, last))
    }

    /// Reads the named keys but the one whose entry is known; `None` when a key was removed
    /// meanwhile, or another server was asked for its entry.
    fn read_named(
        &mut self,
        (mut subjects, last): (Vec<String>, Revision),
        known: Option<Entry>,
        deadline: Instant,
    ) -> StoreResult<Option<Listing>> {
        let home = self.raw_subject("").len();
        let known = known.filter(|known| {
            let at = subjects.iter().position(|subject| subject[home..] == known.key);
            at.map(|at| subjects.remove(at)).is_some()
        });
        let mut entries = self.read_all(&subjects, deadline)?;
        if entries.len() < subjects.len() {
            return Ok(None);
        }
        entries.extend(known);
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        self.listed = last;
        Ok(Some(Listing { entries, last }))
    }

    /// Returns the requests that list the keys below these prefixes.
    pub(super) fn listing_requests(&self, prefixes: &[String]) -> StoreResult<ListingRequests> {
        let body = |prefix: &String| {
            let filter = format!("{}.>", self.subject(prefix)?);
            Ok(json!({ "subjects_filter": filter }).to_string())
        };
        let subject = format!("{}.STREAM.INFO.{}", self.settings.api, self.stream);
        let bodies: StoreResult<_> = prefixes.iter().map(body).collect();
        Ok(ListingRequests { subject, bodies: bodies? })
    }
}

/// Returns the subjects, in their order, without notes that a key is not used again, and without
/// the keys that such a note follows.
fn not_forgotten(sorted: &[String]) -> impl Iterator<Item = &String> {
    let is_forgotten = |at: usize, subject: &String| {
        let next = sorted.get(at + 1).and_then(|next| next.strip_prefix(&**subject));
        subject.ends_with(FORGOTTEN) || next == Some(FORGOTTEN)
    };
    let all = sorted.iter().enumerate();
    all.filter(move |(at, subject)| !is_forgotten(*at, subject)).map(|(_, subject)| subject)
}

/// Requests that list keys, one for each prefix.
pub(super) struct ListingRequests {
    subject: String,
    bodies: Vec<String>,
}

impl ListingRequests {
    pub(super) fn outgoing(&self) -> Vec<Outgoing<'_>> {
        let subject = &*self.subject;
        let request = |payload| Outgoing { subject, headers: &[], payload, repeats: true };
        self.bodies.iter().map(|body| request(body.as_bytes())).collect()
    }
}
