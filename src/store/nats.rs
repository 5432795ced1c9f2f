//! The store in a NATS JetStream KV bucket, over one connection.
//!
//! Requests are never queued, and only [`Bucket::open`] connects. So every new connection
//! has its bucket checked before anything is written to it.
//!
//! | subject | use |
//! |---|---|
//! | `$KV.<bucket>.<key>` | the entry of a key, written by compare-and-set only |
//! | `$KV.<bucket>.putex.epoch` | a random id, written once |
//! | `$KV.<bucket>.putex.read` | written under the condition that a key has not changed |
//! | `putex.hint.<bucket>.<key>` | the server republishes each stored entry |
//! | `$SRV.<request>…` | questions to agents, which are micro services, see `micro` |
//!
//! # Invariants
//!
//! 1. Every write of an entry carries the revision that it expects, which cannot be empty:
//!    `expected_headers`, in `write`.
//! 2. Every write names its stream, so that a foreign stream on the same subject
//!    refuses it.
//! 3. Only [`Bucket::open`] creates the bucket.
//! 4. No subscription to `$KV...`: it would hide the 503 that says at once that a write
//!    reached no stream.
//! 5. A subject that another client has chosen is published to only if it is one of replies, and
//!    none of this client: `NatsStore::receive_micro`.

pub(crate) mod answer;
pub mod cluster;
pub mod inspect;
pub mod micro;
mod open;
mod read;
pub(crate) mod write;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use self::micro::{MicroService, SERVICE, answer_of, is_micro};
use self::read::read_request;
use self::write::{expected_headers, sendable};
use crate::core::{AgentStatus, Instant, Written};
use crate::nats::jetstream::{self, Failure, StreamInfo, code};
use crate::nats::micro::stats_subject;
use crate::nats::{Client, ClientEvent, HINT_PREFIX, Message, Outgoing, RequestError};
use crate::store::{
    AgentQuestion, Bucket, Content, Entry, Expected, Hint, Listing, OpenedBucket, Opening,
    Selection, StoreError, StoreErrorKind as Kind, StoreResult,
};
use crate::sys;

/// Longest check whether the bucket still exists, after a request without an answer: it delays the
/// caller's next attempt.
const EXISTENCE_CHECK_MAX: Duration = Duration::from_millis(500);

/// Longest wait for one answer if there is another server. A round trip around the world takes
/// 0.3 s.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Longest wait for one answer of the only server. A server to which thousands of agents return
/// together answers late, and an attempt that is given up was work for nothing.
const ONLY_ANSWER_MAX: Duration = Duration::from_secs(9);

/// The reason to make no request before the bucket is open.
const NOT_OPEN: &str = "the store is not open";

/// The fault of a bucket whose servers have elected no leader.
const NO_LEADER: &str = "has no leader: most of its servers must run";

/// The fate of a bucket that has another time of creation than before.
const MADE_ANEW: &str = "was deleted and made anew";

/// The default prefix of JetStream's API.
pub const API: &str = "$JS.API";

/// The bucket, and the properties that it may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsSettings {
    /// Name of the bucket.
    pub bucket: String,
    /// Number of copies of a bucket that has to be created.
    pub replicas: u32,
    /// Whether a bucket in memory is accepted.
    pub allow_memory: bool,
    /// Whether tickets and leases are kept in it. Servers before nats-server 2.11 do not know the
    /// conditions that they need.
    pub for_locks: bool,
    /// The prefix of JetStream's API: [`API`], or that of another domain or account.
    pub api: String,
}

/// A bucket on NATS servers.
pub struct NatsStore {
    pub(crate) client: Client,
    pub(crate) settings: NatsSettings,
    /// `KV_<bucket>`.
    stream: String,
    /// The keys that the present connection has subscribed to.
    subscribed: Vec<String>,
    /// The open bucket, or the reason to make no request.
    bucket: Result<OpenBucket, String>,
    /// The end of the last write, if it had no answer.
    unanswered_write: Option<Instant>,
    /// The service that clients of micro services find, if there is one.
    micro: Option<MicroService>,
}

/// Properties of the bucket, read when it was opened.
struct OpenBucket {
    created: String,
    replicated: bool,
    /// Whether the server removes an entry after the time in its header.
    has_ttl: bool,
}

impl NatsStore {
    /// Returns the deadline of one request among several until `deadline`.
    fn answer_by(&self, deadline: Instant) -> Instant {
        let most = match self.client.has_another_server() {
            true => ANSWER_MAX,
            false => ONLY_ANSWER_MAX,
        };
        deadline.min(sys::now().after(most))
    }

    /// Returns a store that is not open yet.
    pub fn new(client: Client, settings: NatsSettings) -> NatsStore {
        NatsStore {
            stream: format!("KV_{}", settings.bucket),
            client,
            settings,
            subscribed: Vec::new(),
            bucket: Err(NOT_OPEN.to_owned()),
            unanswered_write: None,
            micro: None,
        }
    }

    fn subject_of(&self, key: &str) -> String {
        format!("$KV.{}.{key}", self.settings.bucket)
    }

    /// Returns the state of the bucket, `None` when it does not exist.
    fn info(&mut self, deadline: Instant) -> StoreResult<Option<StreamInfo>> {
        let answer = self.api_request("STREAM.INFO", "", deadline)?;
        match jetstream::stream_info(&answer) {
            Err(failure) if failure.err_code == code::STREAM_NOT_FOUND => Ok(None),
            info => info.map(Some).map_err(|failure| self.api_error("bucket", &failure)),
        }
    }

    /// Makes one request of the API about the stream, which may be sent several times; returns
    /// the body of its answer.
    fn api_request(&mut self, what: &str, body: &str, by: Instant) -> StoreResult<Vec<u8>> {
        let subject = format!("{}.{what}.{}", self.settings.api, self.stream);
        let reply = self.client.request(&read_request(&subject, body), self.answer_by(by));
        let reply = reply.map_err(|error| self.request_error(&subject, &error))?;
        Ok(reply.payload)
    }

    fn request_error(&self, subject: &str, error: &RequestError) -> StoreError {
        let text = format!("{subject}: {error}");
        match error {
            RequestError::Forbidden(_) => Kind::Credentials.error(text),
            RequestError::Unanswered(_) => Kind::Unreachable.error(text),
            RequestError::NoResponders => Kind::Unreachable.error(match self.client.server() {
                Some(server) if !server.jetstream => format!(
                    "server {}: JetStream is not enabled there, and no other server answers; \
                     add jetstream {{}} to its configuration",
                    server.address
                ),
                _ => format!(
                    "stream {}: no JetStream answers at {}, it may be starting{}",
                    self.stream,
                    self.settings.api,
                    if self.settings.api == API { "" } else { "; or correct --js-domain" },
                ),
            }),
        }
    }

    /// Converts an error of the API: it may pass by itself, or the operator must change
    /// something.
    fn api_error(&self, what: &str, failure: &Failure) -> StoreError {
        let text = format!("{what}: {}: {failure}", self.stream);
        match failure.err_code {
            code::NOT_FOR_ACCOUNT => {
                Kind::Unsafe.error(format!("{text}; enable it for the account of this user"))
            }
            code::NOT_CLUSTERED => Kind::Unsafe.error(format!(
                "{text}: put the servers into one cluster, or use one and --replicas 1"
            )),
            code::SUBJECTS_OVERLAP | code::INVALID_CONFIG | code::INVALID_JSON => {
                Kind::Unsafe.error(text)
            }
            code::MAX_BYTES_REQUIRED => Kind::Unsafe.error(format!(
                "{text}; make the bucket with a limit: nats kv add {bucket} --max-bucket-size \
                 64MiB, and nats stream edit KV_{bucket} --allow-msg-ttl",
                bucket = self.settings.bucket
            )),
            _ => Kind::Unreachable.error(text),
        }
    }

    /// Checks, after a request without an answer, whether the bucket still exists. If not,
    /// the store is closed.
    fn close_if_deleted(&mut self, deadline: Instant) {
        if !self.client.is_connected() {
            return;
        }
        let deadline = deadline.min(sys::now().after(EXISTENCE_CHECK_MAX));
        let Ok(OpenBucket { created, .. }) = &self.bucket else { return };
        let created = created.clone();
        let gone = match self.info(deadline) {
            Ok(None) => "does not exist any more",
            Ok(Some(info)) if info.is_made() && info.created != created => MADE_ANEW,
            Ok(Some(_)) | Err(_) => return,
        };
        self.lose(gone);
    }

    /// Closes the store, for this reason, and returns that as an error.
    fn lose(&mut self, gone: &str) -> StoreError {
        let text = format!("the bucket {} {gone}", self.stream);
        self.bucket = Err(text.clone());
        Kind::Unreachable.error(text)
    }

    /// Returns the open bucket, or the reason to make no request as an error.
    fn open_bucket(&self) -> StoreResult<&OpenBucket> {
        self.bucket.as_ref().map_err(|why| Kind::Unreachable.error(why.clone()))
    }

    /// Converts a message into a hint; `None` if it is none.
    fn to_hint(&self, message: &Message) -> Option<Hint> {
        let bucket = &self.settings.bucket;
        let (subject, revision) = answer::hint(&message.headers, &self.stream)?;
        let key = subject.strip_prefix(&format!("$KV.{bucket}."))?.to_owned();
        self.subscribed.contains(&key).then(|| {
            let is_end = answer::content(&message.headers, &message.payload).is_tombstone();
            Hint::Changed { key, revision: Some(revision), is_end }
        })
    }
}

impl Bucket for NatsStore {
    fn open(&mut self, how: Opening<'_>, deadline: Instant) -> StoreResult<Option<OpenedBucket>> {
        let (was_connected, began) = (self.client.is_connected(), sys::now());
        let mut opened = self.open_now(how, deadline);
        if opened.is_err() && was_connected && !self.client.is_connected() {
            // The connection had failed since its last use: a new one may work.
            opened = self.open_now(how, deadline);
        }
        self.unanswered_write = None;
        if !matches!(opened, Ok(Some(_))) {
            self.bucket = Err(NOT_OPEN.to_owned());
        }
        let answered = !matches!(opened, Err(StoreError { kind: Kind::Unreachable, .. }));
        self.client.note_answer(answered, began);
        opened
    }

    fn get(&mut self, key: &str, deadline: Instant) -> StoreResult<Option<Entry>> {
        self.open_bucket()?;
        let subject = self.subject_of(key);
        let (began, entry) = (sys::now(), self.read(&subject, deadline));
        self.finish_read(entry, began, deadline)
    }

    fn list(&mut self, selection: Selection<'_>, deadline: Instant) -> StoreResult<Listing> {
        self.open_bucket()?;
        let (began, listing) = (sys::now(), self.list_now(selection, deadline));
        self.finish_read(listing, began, deadline)
    }

    fn write(
        &mut self,
        key: &str,
        expected: Expected<'_>,
        content: &Content,
        lasts: Option<Duration>,
        deadline: Instant,
    ) -> Written {
        let (replicated, has_ttl) = match &self.bucket {
            Ok(bucket) => (bucket.replicated, bucket.has_ttl),
            Err(why) => return Written::Unknown(format!("nothing sent: {why}")),
        };
        if let Err(text) = content.check().and_then(|()| self.check_expected(expected)) {
            let error = Kind::Unsafe.error(format!("nothing sent: {text}"));
            return Written::Denied(error);
        }
        let subject = self.subject_of(key);
        // A bucket of another domain or account is reached through its API.
        let target = match &*self.settings.api {
            API => subject.clone(),
            api => format!("{api}.{subject}"),
        };
        let mut own = expected_headers(expected, &self.settings.bucket);
        let seconds = |time: Duration| format!("{}s", time.as_millis().div_ceil(1000));
        own.extend(lasts.filter(|_| has_ttl).map(|time| ("Nats-TTL", seconds(time))));
        let own = own.iter().map(|(name, value)| (*name, &**value));
        let headers: Vec<_> = own.chain(sendable(content)).collect();
        let payload = &*content.payload;
        let write = Outgoing { subject: &target, headers: &headers, payload, repeats: false };
        let began = sys::now();
        let replied = self.client.request(&write, deadline);
        let written = match &replied {
            Ok(reply) => answer::written(&self.stream, replicated, &reply.payload),
            Err(error) => answer::unanswered(&subject, error),
        };
        let answered = !matches!(written, Written::Unknown(_));
        self.unanswered_write = (!answered).then(sys::now);
        self.client.note_answer(answered, began);
        if let Err(RequestError::NoResponders) = replied {
            self.close_if_deleted(deadline);
            if let Err(gone) = &self.bucket {
                return Written::Unknown(format!("nothing stored: {gone}"));
            }
        }
        written
    }

    fn subscribe(&mut self, keys: &[&str]) -> StoreResult<()> {
        let new = keys.iter().filter(|key| !self.subscribed.iter().any(|it| it == *key));
        let new: Vec<String> = new.map(|key| (*key).to_owned()).collect();
        let bucket = &self.settings.bucket;
        let subjects = new.iter().map(|key| format!("{HINT_PREFIX}{bucket}.{key}"));
        let subjects: Vec<String> = subjects.collect();
        let subscribed = self.client.subscribe(&subjects, &[]);
        subscribed.map_err(|error| Kind::Unreachable.error(format!("subscribe: {error}")))?;
        self.subscribed.extend(new);
        Ok(())
    }

    fn ask_agents(&mut self, question: &AgentQuestion) {
        let question = AgentQuestion { bucket: self.settings.bucket.clone(), ..question.clone() };
        let payload = serde_json::to_vec(&question).unwrap_or_default();
        let subject = stats_subject(SERVICE);
        let sent = Outgoing { subject: &subject, payload: &payload, ..Outgoing::default() };
        let _ = self.client.publish_to_all(&sent, &question.number);
    }

    fn send_status(&mut self, status: &AgentStatus) {
        self.send_stats(status);
    }

    fn wait(&mut self, wake: BorrowedFd<'_>, deadline: Option<Instant>) -> Hint {
        if let Err(why) = &self.bucket {
            return Hint::Gone(why.clone());
        }
        self.subscribe_micro();
        loop {
            let hint = match self.client.wait(wake, deadline) {
                ClientEvent::Message(message) if is_micro(&message) => self.receive_micro(&message),
                ClientEvent::Message(message) => self.to_hint(&message),
                ClientEvent::Reply(message) => answer_of(&self.settings.bucket, &message.payload),
                ClientEvent::NotAsked(text) => return Hint::NotAsked(text),
                ClientEvent::Woken => return Hint::Woken,
                ClientEvent::Elapsed => return Hint::Elapsed,
                ClientEvent::Gone(text) => return Hint::Gone(text),
            };
            if let Some(hint) = hint {
                return hint;
            }
            // Messages that mean nothing must not extend the deadline.
            if deadline.is_some_and(|deadline| sys::now() >= deadline) {
                return Hint::Elapsed;
            }
        }
    }
}

#[cfg(test)]
mod tests;
