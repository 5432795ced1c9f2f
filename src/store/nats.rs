//! The store in a NATS JetStream KV bucket.
//!
//! One key of one bucket over one connection. What is asked is always asked now:
//! nothing is queued, and no connection is made outside [`Store::open`], so that
//! a bucket is looked at again before anything is written to it over a new one.
//!
//! | subject | use |
//! |---|---|
//! | `$KV.<bucket>.<key>` | the record, written by compare-and-set only |
//! | `$KV.<bucket>.putex.epoch` | a random id, written once into every bucket |
//! | `putex.hint.<bucket>.<key>` | the server's word that it stored a record |
//! | `putex.twin.<bucket>.<key>` | agents of the same token telling each other |
//!
//! # Invariants
//!
//! 1. Every write carries the revision that it expects: `Expected` is the only
//!    way to a subject under `$KV`, and it cannot be empty.
//! 2. Every write names its stream, so that a foreign stream on the same subject
//!    refuses it.
//! 3. The bucket is made in [`Store::open`] and nowhere else.
//! 4. Nobody subscribes to `$KV...`: that would take the 503 from everybody, by
//!    which a write that reached no stream is known at once.

pub(crate) mod answer;
mod inspect;
mod open;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::core::event::{Notice, Opened, Written};
use crate::core::record::{KeyState, Record, Revision};
use crate::core::time::Instant;
use crate::nats::jetstream::{self, Failure, StreamInfo, code};
use crate::nats::{Client, ClientEvent, Message, RequestError, Sid};
use crate::store::{OpenError, Store, Watched};
use crate::sys;

/// Longest that a silent or missing answer is followed up by asking whether the
/// bucket still exists. A healthy server answers within a few milliseconds; more
/// would be taken from the caller's next attempt.
const FOLLOW_UP_MAX: Duration = Duration::from_millis(500);

/// How long a server may answer nothing before another is tried. Longer than a
/// hiccup, shorter than a leader election (4 to 8 s), in which changing the server
/// costs a few milliseconds and gains nothing.
const LEAVE_AFTER: Duration = Duration::from_secs(2);

/// Where JetStream's API is unless another place is wanted.
const API: &str = "$JS.API";

/// Which key of which bucket, and what a bucket may be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsSettings {
    /// Name of the bucket.
    pub bucket: String,
    /// Name of the key.
    pub key: String,
    /// Copies that a bucket is made with when it does not exist.
    pub replicas: u32,
    /// Whether a bucket in memory is taken.
    pub allow_memory: bool,
    /// The subject below which the API of JetStream answers, `None` for the usual.
    pub api: Option<String>,
}

/// One key of a bucket on a NATS server.
pub struct NatsStore {
    client: Client,
    settings: NatsSettings,
    /// `KV_<bucket>`.
    stream: String,
    /// `$JS.API`, or where that of another domain or account is found.
    api: String,
    /// `$KV.<bucket>.<key>`.
    subject: String,
    /// The subscriptions of the present connection.
    subscriptions: Option<Subscriptions>,
    /// What is known of the bucket since it was opened.
    bucket: Option<Bucket>,
    /// Why the bucket must be opened again.
    gone: Option<String>,
    /// Which ways to read were said to be denied to this user.
    denied: Vec<String>,
    /// Since when nothing that was asked was answered.
    unanswered_since: Option<Instant>,
    /// Revision that the caller was last told; a hint at it would be no news.
    seen: Revision,
    /// Incarnation of the last notice sent, whose echo is not another agent's.
    announced: Option<String>,
}

/// The subscriptions of one connection.
struct Subscriptions {
    hint: Sid,
    twin: Sid,
}

/// What must not change while a bucket is open.
struct Bucket {
    created: String,
    allow_direct: bool,
    replicated: bool,
}

/// Why a direct read gave nothing.
enum DirectReadError {
    /// There was no answer.
    Request(RequestError),
    /// There was, and it said nothing.
    Answer(String),
}

/// The headers that make a write a compare-and-set.
struct Expected {
    sequence: String,
    stream: String,
}

impl Expected {
    /// A decimal number is never empty. An empty one, or the header in other
    /// letters, would make the server store unconditionally.
    fn new(revision: Revision, stream: &str) -> Expected {
        let Revision(sequence) = revision;
        Expected {
            sequence: sequence.to_string(),
            stream: stream.to_owned(),
        }
    }

    fn headers(&self) -> [(&'static str, &str); 2] {
        [
            ("Nats-Expected-Last-Subject-Sequence", &self.sequence),
            ("Nats-Expected-Stream", &self.stream),
        ]
    }
}

impl NatsStore {
    /// Returns a store that is not open yet.
    #[must_use]
    pub fn new(client: Client, settings: NatsSettings) -> NatsStore {
        NatsStore {
            stream: format!("KV_{}", settings.bucket),
            subject: format!("$KV.{}.{}", settings.bucket, settings.key),
            api: settings.api.clone().unwrap_or_else(|| API.to_owned()),
            client,
            settings,
            subscriptions: None,
            bucket: None,
            gone: None,
            denied: Vec::new(),
            unanswered_since: None,
            seen: Revision(0),
            announced: None,
        }
    }

    /// Reads a key from the stream's leader; from any replica when this user may
    /// not ask the leader.
    fn read_leader(&mut self, subject: &str, deadline: Instant) -> Result<KeyState, OpenError> {
        let body = jetstream::last_by_subject(subject);
        let answer = match self.api_request("STREAM.MSG.GET", body.as_bytes(), deadline) {
            Err(OpenError::Credentials(text)) if self.may_read_directly() => {
                self.warn_once(format!("{text}; any replica is read instead"));
                return self
                    .read_replica(subject, deadline)
                    .map_err(|error| match error {
                        DirectReadError::Request(error) => self.request_error(subject, &error),
                        DirectReadError::Answer(text) => OpenError::Unreachable(text),
                    });
            }
            answer => answer?,
        };
        match jetstream::stored(&answer, subject) {
            Ok(stored) => Ok(answer::leader(stored)),
            Err(failure) => Err(self.api_error(subject, &failure)),
        }
    }

    fn info(&mut self, deadline: Instant) -> Result<Result<StreamInfo, Failure>, OpenError> {
        let answer = self.api_request("STREAM.INFO", b"", deadline)?;
        Ok(jetstream::stream_info(&answer))
    }

    /// Makes one request of the API about the stream.
    fn api_request(&mut self, what: &str, body: &[u8], by: Instant) -> Result<Vec<u8>, OpenError> {
        let subject = format!("{}.{what}.{}", self.api, self.stream);
        match self.client.request(&subject, &[], body, by) {
            Ok(reply) => Ok(reply.payload),
            Err(error) => Err(self.request_error(&subject, &error)),
        }
    }

    fn request_error(&self, subject: &str, error: &RequestError) -> OpenError {
        match error {
            RequestError::Forbidden(_) => OpenError::Credentials(format!("{subject}: {error}")),
            RequestError::NoResponders => OpenError::Unreachable(self.no_jetstream()),
            RequestError::TimedOut | RequestError::Lost(_) | RequestError::NotSent(_) => {
                OpenError::Unreachable(format!("{subject}: {error}"))
            }
        }
    }

    fn no_jetstream(&self) -> String {
        match self.client.server() {
            Some(server) if !server.jetstream => format!(
                "server {}: JetStream is not enabled there, and no other server answers for it",
                server.address
            ),
            _ => format!(
                "stream {}: no JetStream answers at {}, it may be starting",
                self.stream, self.api
            ),
        }
    }

    /// Sorts an error of the API into what trying again can change and what not.
    fn api_error(&self, what: &str, failure: &Failure) -> OpenError {
        let text = format!("{what}: {}: {failure}", self.stream);
        match failure.err_code() {
            code::NOT_FOR_ACCOUNT
            | code::NOT_CLUSTERED
            | code::SUBJECTS_OVERLAP
            | code::INVALID_CONFIG
            | code::INVALID_JSON => OpenError::Unsafe(text),
            _ => OpenError::Unreachable(text),
        }
    }

    fn compare_and_set(
        &mut self,
        subject: &str,
        expected: Revision,
        headers: &[(&str, &str)],
        payload: &[u8],
        deadline: Instant,
    ) -> Result<Vec<u8>, RequestError> {
        let expected = Expected::new(expected, &self.stream);
        let headers = [&expected.headers()[..], headers].concat();
        let place = self.publish_subject(subject);
        let reply = self.client.request(&place, &headers, payload, deadline)?;
        Ok(reply.payload)
    }

    /// Returns where a write of a key is sent: to the key, or through the other API
    /// to where the bucket is.
    fn publish_subject(&self, subject: &str) -> String {
        match self.settings.api {
            None => subject.to_owned(),
            Some(_) => format!("{}.{subject}", self.api),
        }
    }

    fn write_outcome(&self, subject: &str, sent: Result<Vec<u8>, RequestError>) -> Written {
        let replicated = self.bucket.as_ref().is_none_or(|bucket| bucket.replicated);
        match sent {
            Ok(answer) => answer::written(&self.stream, replicated, &answer),
            Err(error) => answer::unanswered(subject, &error),
        }
    }

    /// Says, once, that a way to read is denied and another is taken.
    fn warn_once(&mut self, text: String) {
        if !self.denied.contains(&text) {
            log::warn!("{text}");
            self.denied.push(text);
        }
    }

    fn may_read_directly(&self) -> bool {
        self.bucket
            .as_ref()
            .is_some_and(|bucket| bucket.allow_direct)
    }

    /// Reads a key from any replica.
    fn read_replica(
        &mut self,
        subject: &str,
        deadline: Instant,
    ) -> Result<KeyState, DirectReadError> {
        let api = format!("{}.DIRECT.GET.{}.{subject}", self.api, self.stream);
        let reply = self
            .client
            .request(&api, &[], b"", deadline)
            .map_err(DirectReadError::Request)?;
        answer::direct(&reply.headers, &reply.payload, &self.stream, subject)
            .map_err(DirectReadError::Answer)
    }

    /// Reads the key from any replica, and from the leader when that is silent.
    fn read_now(&mut self, deadline: Instant) -> Result<KeyState, String> {
        let subject = self.subject.clone();
        if self.may_read_directly() {
            let now = sys::now();
            // 2.9 does not answer for a stream that is gone, and a hung replica never.
            let half = now.after(deadline.since(now) / 2);
            match self.read_replica(&subject, half) {
                Ok(key_state) => return Ok(key_state),
                Err(DirectReadError::Request(RequestError::TimedOut)) => {}
                Err(DirectReadError::Request(error @ RequestError::Forbidden(_))) => {
                    self.warn_once(format!("{subject}: {error}; the leader is read instead"));
                    if let Some(bucket) = &mut self.bucket {
                        bucket.allow_direct = false;
                    }
                }
                Err(DirectReadError::Request(error)) => return Err(format!("{subject}: {error}")),
                Err(DirectReadError::Answer(text)) => return Err(text),
            }
        }
        self.read_leader(&subject, deadline)
            .map_err(|error| error.to_string())
    }

    /// Finds out, after an answer that failed to come, whether the bucket is gone.
    fn follow_up(&mut self, deadline: Instant) {
        if !self.client.is_connected() {
            return;
        }
        let deadline = deadline.min(sys::now().after(FOLLOW_UP_MAX));
        let Some(bucket) = &self.bucket else { return };
        let (created, stream) = (bucket.created.clone(), &self.stream);
        let (is_gone, made_anew) = (
            format!("the bucket {stream} does not exist any more"),
            format!("the bucket {stream} was deleted and made anew"),
        );
        match self.info(deadline) {
            Ok(Err(failure)) if failure.err_code() == code::STREAM_NOT_FOUND => {
                self.gone = Some(is_gone);
            }
            Ok(Ok(info)) if info.is_made() && info.created != created => {
                self.gone = Some(made_anew)
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// Returns why nothing may be asked of the store as it is.
    fn why_closed(&self) -> Option<String> {
        match (&self.gone, &self.bucket) {
            (Some(gone), _) => Some(gone.clone()),
            (None, None) => Some("the store is not open".to_owned()),
            (None, Some(_)) => None,
        }
    }

    /// Returns what a message means, `None` when nothing.
    /// A server that is cut off from its cluster keeps the connection but answers
    /// nothing that matters: another may do better.
    fn note_answer(&mut self, answered: bool) {
        let now = sys::now();
        if answered {
            self.unanswered_since = None;
        } else if now.since(*self.unanswered_since.get_or_insert(now)) >= LEAVE_AFTER {
            self.unanswered_since = None;
            self.client.leave("nothing was answered for too long");
        }
    }

    fn interpret(&self, sid: Sid, message: &Message) -> Option<Watched> {
        let subscriptions = self.subscriptions.as_ref()?;
        if sid == subscriptions.hint {
            let revision = answer::hint(&message.headers, &self.stream, &self.subject)?;
            return (revision > self.seen).then_some(Watched::Hint(Some(revision)));
        }
        if sid != subscriptions.twin {
            return None;
        }
        let notice = answer::notice(&message.headers, &message.payload)?;
        let own = self.announced.as_ref() == Some(&notice.incarnation);
        (!own).then_some(Watched::Twin(notice))
    }
}

impl Store for NatsStore {
    fn open(&mut self, deadline: Instant) -> Result<Opened, OpenError> {
        self.gone = None;
        self.bucket = None;
        let old_link = self.client.is_connected();
        let mut opened = self.open_now(deadline);
        if opened.is_err() && old_link && !self.client.is_connected() {
            // The link had died since it was last used: a new one may do.
            opened = self.open_now(deadline);
        }
        match &opened {
            Ok(opened) => self.seen = opened.key_state.revision,
            Err(_) => self.bucket = None,
        }
        self.note_answer(!matches!(opened, Err(OpenError::Unreachable(_))));
        opened
    }

    fn read(&mut self, deadline: Instant) -> Result<KeyState, String> {
        if let Some(text) = self.why_closed() {
            return Err(text);
        }
        let key_state = self.read_now(deadline);
        match &key_state {
            Ok(key_state) => self.seen = key_state.revision,
            Err(_) => self.follow_up(deadline),
        }
        self.note_answer(key_state.is_ok());
        key_state.map_err(|text| self.gone.clone().unwrap_or(text))
    }

    fn write(&mut self, expected: Revision, record: &Record, deadline: Instant) -> Written {
        if let Some(text) = self.why_closed() {
            return Written::Unknown(format!("nothing sent: {text}"));
        }
        let subject = self.subject.clone();
        let headers = answer::headers(record);
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, text)| (*name, text.as_str()))
            .collect();
        let token = record.token.as_bytes();
        let sent = self.compare_and_set(&subject, expected, &headers, token, deadline);
        let reached_nobody = matches!(sent, Err(RequestError::NoResponders));
        let written = self.write_outcome(&subject, sent);
        if let Written::Stored(revision) = written {
            self.seen = revision;
        }
        self.note_answer(!matches!(written, Written::Unknown(_)));
        if reached_nobody {
            self.follow_up(deadline);
            if let Some(gone) = &self.gone {
                return Written::Unknown(format!("nothing stored: {gone}"));
            }
        }
        written
    }

    fn announce(&mut self, notice: &Notice) {
        let NatsSettings { bucket, key, .. } = &self.settings;
        let headers = answer::notice_headers(notice);
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, text)| (*name, text.as_str()))
            .collect();
        self.announced = Some(notice.incarnation.clone());
        let subject = format!("putex.twin.{bucket}.{key}");
        let _ = self
            .client
            .publish(&subject, &headers, notice.token.as_bytes());
    }

    fn watch(&mut self, wake: BorrowedFd<'_>, deadline: Option<Instant>) -> Watched {
        if let Some(text) = self.why_closed() {
            return Watched::Gone(text);
        }
        loop {
            match self.client.wait(wake, deadline) {
                ClientEvent::Message { sid, message } => {
                    if let Some(watched) = self.interpret(sid, &message) {
                        return watched;
                    }
                }
                ClientEvent::Woken => return Watched::Woken,
                ClientEvent::Elapsed => return Watched::Elapsed,
                ClientEvent::Gone(text) => return Watched::Gone(text),
            }
        }
    }
}

#[cfg(test)]
mod tests;
