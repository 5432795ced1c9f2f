//! Reading keys, from the stream's leader.

use std::time::{Duration, SystemTime};

use serde_json::json;

use super::answer::END_OF_BATCH;
use super::retire::FORGOTTEN;
use super::{Kind, NatsStore, OpenBucket, answer};
use crate::core::{Instant, Revision};
use crate::nats::jetstream;
use crate::nats::{Message, Outgoing};
use crate::store::{Entry, Listing, Selection, StoreError, StoreResult, name};
use crate::sys;

/// How many keys are read at once.
const READS_AT_ONCE: usize = 128;

/// How long after a write without an answer a read does not count as an answer of the leader.
const DOUBT_MAX: Duration = Duration::from_secs(2);

/// How many keys that are not found are looked for one by one, rather than in the names of all.
const GONE_MAX: usize = 8;

/// How long a copy of the bucket is waited for before the leader is asked.
const COPY_ANSWER_MAX: Duration = Duration::from_millis(250);

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
        Ok(self.read_all(&[subject.to_owned()], deadline)?.pop().flatten())
    }

    /// Reads keys from the stream's leader, many at once, and returns the entries in their
    /// order.
    pub(super) fn read_all(
        &mut self,
        subjects: &[String],
        deadline: Instant,
    ) -> StoreResult<Vec<Option<Entry>>> {
        let target = self.read_target();
        let mut entries = Vec::new();
        for subjects in subjects.chunks(READS_AT_ONCE) {
            let bodies: Vec<String> = subjects.iter().map(|subject| last_of(subject)).collect();
            let requests: Vec<_> = bodies.iter().map(|body| read_request(&target, body)).collect();
            let replies = self.client.requests(&requests, self.answer_by(deadline));
            let replies = replies.map_err(|error| self.request_error(&target, &error))?;
            for (subject, reply) in subjects.iter().zip(&replies) {
                entries.push(self.entry_in(subject, reply)?);
            }
        }
        Ok(entries)
    }

    /// Reads keys from any copy of the bucket, many for one request, if that has all writes up to
    /// this revision. Returns the entries that it has: a copy that is being made may have a part
    /// of the entries, and old ones.
    fn read_from_any_copy(
        &mut self,
        subjects: &[String],
        last: Revision,
        deadline: Instant,
    ) -> Vec<Entry> {
        let mut entries = Vec::new();
        for subjects in subjects.chunks(READS_AT_ONCE).filter(|subjects| subjects.len() > 1) {
            let Ok(OpenBucket { reads_directly: true, .. }) = self.bucket else { break };
            entries.extend(self.read_from_one_copy(subjects, last, deadline));
        }
        entries.sort_by(|a: &Entry, b| a.key.cmp(&b.key));
        entries.dedup_by(|a, b| a.key == b.key);
        entries
    }

    /// Makes one such request.
    fn read_from_one_copy(
        &mut self,
        subjects: &[String],
        last: Revision,
        deadline: Instant,
    ) -> Vec<Entry> {
        let target = format!("{}.DIRECT.GET.{}", self.settings.api, self.stream);
        let body = json!({ "multi_last": subjects }).to_string();
        let payload = body.as_bytes();
        let request = Outgoing { subject: &target, headers: &[], payload, repeats: false };
        let by = deadline.min(sys::now().after(COPY_ANSWER_MAX));
        let found = match self.client.batch(&request, subjects.len(), by) {
            Ok((end, found)) if answer::reaches(&end.headers, last) => found,
            Ok((end, _)) if end.headers.status() == Some(END_OF_BATCH) => return Vec::new(),
            // It may not be asked, or does not know such a request.
            Ok(_) | Err(_) => {
                if let Ok(bucket) = &mut self.bucket {
                    bucket.reads_directly = false;
                }
                return Vec::new();
            }
        };
        let entries = found.iter().filter_map(|it| answer::direct_entry(it, &self.stream));
        let is_asked = |entry: &Entry| subjects.contains(&self.raw_subject(&entry.key));
        entries.filter(is_asked).collect()
    }

    /// Returns how long ago entries were stored, by the clock of the server.
    pub(super) fn ages_now(
        &mut self,
        entries: &[Entry],
        deadline: Instant,
    ) -> StoreResult<Vec<Option<Duration>>> {
        let (target, mut stored, mut time) = (self.read_target(), Vec::new(), None);
        let subject = format!("{}.STREAM.INFO.{}", self.settings.api, self.stream);
        for entries in entries.chunks(READS_AT_ONCE) {
            let body = |entry: &Entry| json!({ "seq": entry.revision.0 }).to_string();
            let bodies: Vec<String> = entries.iter().map(body).collect();
            let reads = bodies.iter().map(|body| read_request(&target, body));
            let info = Outgoing { subject: &subject, headers: &[], payload: b"", repeats: true };
            let requests: Vec<_> = reads.chain([info]).collect();
            let replies = self.client.requests(&requests, self.answer_by(deadline));
            let mut replies = replies.map_err(|error| self.request_error(&target, &error))?;
            let info = replies.pop().map(|reply| jetstream::stream_info(&reply.payload));
            time = match info {
                Some(Ok(info)) => info.time,
                Some(Err(failure)) => return Err(self.api_error("age of an entry", &failure)),
                None => None,
            };
            for reply in replies {
                let at = jetstream::stored_at(&reply.payload);
                stored.push(at.map_err(|failure| self.api_error("age of an entry", &failure))?);
            }
        }
        let age = |at: Option<SystemTime>| {
            let time = time?;
            Some(at.map_or(Duration::ZERO, |at| time.duration_since(at).unwrap_or_default()))
        };
        Ok(stored.into_iter().map(age).collect())
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
        let beside = selection.likely.into_iter().chain(selection.ended.iter().map(|key| &**key));
        let beside: Vec<_> = beside.map(|key| self.subject(key)).collect::<StoreResult<_>>()?;
        let (target, bodies) = (self.read_target(), beside.iter().map(|it| last_of(it)));
        let bodies: Vec<_> = bodies.collect();
        let reads = bodies.iter().map(|body| read_request(&target, body));
        let requests: Vec<_> = listing.outgoing().into_iter().chain(reads).collect();
        let mut is_first = true;
        loop {
            let replies = self.client.requests(&requests, self.answer_by(deadline));
            let mut replies = replies.map_err(|error| self.request_error("listing", &error))?;
            let read = replies.split_off(requests.len() - beside.len());
            let mut known = Vec::new();
            for (subject, reply) in beside.iter().zip(&read) {
                known.extend(self.entry_in(subject, reply)?);
            }
            // Another entry may be from before the names, and its hint would seem to be old.
            let is_likely = |entry: &Entry| selection.likely == Some(&*entry.key);
            known.retain(|entry| is_likely(entry) || entry.content.is_tombstone());
            let names = self.names(replies, selection)?;
            if let Some(listing) = self.read_named(names, known, selection, deadline)? {
                return Ok(listing);
            }
            // As a rule the removal of a key is shown by the next listing.
            if !std::mem::take(&mut is_first) {
                self.pause(deadline)?;
            }
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
        let known = Vec::from_iter(known);
        match self.read_named((subjects, last), known, selection, deadline)? {
            Some(listing) => Ok(listing),
            None => self.list_now(selection, deadline),
        }
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
            let names = not_forgotten(&info.subjects, home).filter(|subject| is_wanted(subject));
            subjects.extend(names.cloned());
            last = last.min(Revision(info.last_seq));
        }
        subjects.sort();
        subjects.dedup();
        Ok((subjects, last))
    }

    /// Reads the named keys but those whose entries are known, and leaves out those that were
    /// removed meanwhile; `None` when it is not known whether they were.
    fn read_named(
        &mut self,
        (mut subjects, last): (Vec<String>, Revision),
        known: Vec<Entry>,
        selection: Selection<'_>,
        deadline: Instant,
    ) -> StoreResult<Option<Listing>> {
        let home = self.raw_subject("").len();
        let is_named = |entry: &Entry| subjects.iter().any(|it| it[home..] == entry.key);
        let known: Vec<_> = known.into_iter().filter(is_named).collect();
        subjects.retain(|subject| known.iter().all(|entry| entry.key != subject[home..]));
        let named = subjects.len();
        let any: Vec<_> =
            subjects.extract_if(.., |subject| (selection.used_once)(&subject[home..])).collect();
        let mut entries = self.read_from_any_copy(&any, last, deadline);
        let is_read = |subject: &String| entries.iter().any(|it| it.key == subject[home..]);
        subjects.extend(any.into_iter().filter(|subject| !is_read(subject)));
        entries.extend(self.read_all(&subjects, deadline)?.into_iter().flatten());
        // The purge of an ended ticket may have been lost.
        let is_left =
            |entry: &&Entry| (selection.used_once)(&entry.key) && entry.content.is_tombstone();
        for ended in entries.iter().filter(is_left) {
            self.purge_if_it_stays(&ended.key, ended.revision);
        }
        if entries.len() < named {
            let is_read = |subject: &String| entries.iter().any(|it| it.key == subject[home..]);
            subjects.retain(|subject| !is_read(subject));
            if !self.are_gone(subjects, last, selection.prefixes, deadline)? {
                return Ok(None);
            }
        }
        entries.extend(known);
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        self.listed = last;
        Ok(Some(Listing { entries, last }))
    }

    /// Returns whether the leader names none of these subjects, which a listing up to this revision
    /// has named: they have ended and were removed meanwhile. One that only a read did not find may
    /// be missing at a server that is no leader any more.
    fn are_gone(
        &mut self,
        subjects: Vec<String>,
        last: Revision,
        prefixes: &[String],
        deadline: Instant,
    ) -> StoreResult<bool> {
        let listing = match subjects.len() {
            0..=GONE_MAX => self.info_requests(subjects.iter().cloned()),
            _ => self.listing_requests(prefixes)?,
        };
        let replies = self.client.requests(&listing.outgoing(), self.answer_by(deadline));
        let replies = replies.map_err(|error| self.request_error("listing", &error))?;
        let (named, reached) = self.names(replies, Selection::all(&[]))?;
        let is_named = subjects.iter().any(|subject| named.contains(subject));
        Ok(!is_named && reached >= last)
    }

    /// Returns the requests that list the keys below these prefixes.
    pub(super) fn listing_requests(&self, prefixes: &[String]) -> StoreResult<ListingRequests> {
        let filter = |prefix: &String| match prefix.is_empty() {
            true => Ok(self.raw_subject(">")),
            false => Ok(format!("{}.>", self.subject(prefix)?)),
        };
        let filters: Vec<_> = prefixes.iter().map(filter).collect::<StoreResult<_>>()?;
        Ok(self.info_requests(filters.into_iter()))
    }

    /// Returns the requests that name the subjects of these filters.
    fn info_requests(&self, filters: impl Iterator<Item = String>) -> ListingRequests {
        let subject = format!("{}.STREAM.INFO.{}", self.settings.api, self.stream);
        let body = |filter| json!({ "subjects_filter": filter }).to_string();
        ListingRequests { subject, bodies: filters.map(body).collect() }
    }
}

/// Returns the subjects, in their order, without notes that the key of a ticket is not used again,
/// and without the keys that such a note follows. The key of an agent may look like such a note.
/// The keys begin at byte `home` of the subjects.
fn not_forgotten(sorted: &[String], home: usize) -> impl Iterator<Item = &String> {
    let is_forgotten = move |at: usize, subject: &String| {
        let root = subject.get(home..).and_then(|key| key.split('.').next());
        let is_ticket = root == Some(name::TICKET_ROOT);
        let next = sorted.get(at + 1).and_then(|next| next.strip_prefix(&**subject));
        is_ticket && (subject.ends_with(FORGOTTEN) || next == Some(FORGOTTEN))
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
