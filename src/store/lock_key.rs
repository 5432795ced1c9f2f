//! The lock key of an agent, or one for each seat: records, stored as entries of a [`Bucket`].
//!
//! A record is an entry whose payload is the token and whose headers are those of
//! [`record`](super::record). A notice is a message with the token, `Putex-Incarnation` and
//! `Putex-Host`. A [`FailbackRequest`] is one with the token of the agent that requests, and
//! without an incarnation:
//!
//! | header | value |
//! |---|---|
//! | `Putex-Failback-Seat` | decimal |
//! | `Putex-Priority` | 1 to 15 |
//! | `Putex-Fit-Ms` | decimal |
//!
//! A request for the status of all agents has the header `Putex-Status-Request`, a random number.
//! An agent answers with a message that has that number in `Putex-Status`, and an [`AgentStatus`]
//! as JSON. A message with the header `Putex-Switchover` has them read the request of an operator,
//! see [`switchover`]; one with `Putex-Pause` has them read the [`pause`].

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::name::valid_token;
use super::record::{from_headers, to_headers};
use super::{Bucket, Content, Entry, Expected, FirstKeys, Hint, StoreResult, pause, switchover};
use crate::core::{
    AgentStatus, Event, FailbackRequest, Instant, KeyState, KeyValue, Notice, Opened, PauseEntry,
    Record, Revision, Seat, StatusRequest, SwitchoverRequest, Written, sanitize,
};
use crate::sys;

/// The header of a notice with the incarnation of its sender.
const NOTICE_INCARNATION: &str = "Putex-Incarnation";

/// The header of a notice with the host name of its sender.
const NOTICE_HOST: &str = "Putex-Host";

/// The header of a request for the status of all agents.
const STATUS_REQUEST: &str = "Putex-Status-Request";

/// The header of a status, with the number of the request.
const STATUS: &str = "Putex-Status";

/// The header of a message that says that there is a request for switchover, with its revision;
/// beside it stands the seat.
const SWITCHOVER: &str = "Putex-Switchover";
const SWITCHOVER_SEAT: &str = "Putex-Seat";

/// The header of a message that says that the pause has changed, with its revision.
const PAUSE: &str = "Putex-Pause";

/// How often the pause is read again while there is one: the message that has ended it may be lost.
const PAUSE_EVERY: Duration = Duration::from_secs(5);

/// An agent follows such messages no more often than that, however many are sent.
const NOTICE_EVERY: Duration = Duration::from_millis(50);

/// It answers requests for its status no more often than that.
const STATUS_EVERY: Duration = Duration::from_millis(5);

/// The digits of the number of such a request.
const NUMBER_DIGITS: usize = 32;

/// How long the read of a request for switchover may take, unless the caller says otherwise.
const READ_MAX: Duration = Duration::from_millis(250);

/// The headers of a request for failback.
const REQUEST_SEAT: &str = "Putex-Failback-Seat";
const REQUEST_PRIORITY: &str = "Putex-Priority";
const REQUEST_FIT_MS: &str = "Putex-Fit-Ms";

/// The lock key of an agent in a bucket, or one for each of its seats. Every call returns at its
/// deadline at the latest.
pub struct LockKey {
    bucket: Box<dyn Bucket>,
    /// The keys of the seats, never none. Announcements are made under the first.
    keys: Vec<SeatKey>,
    /// The epoch of the bucket when it was opened last.
    epoch: String,
    /// The keys of the requests for switchover of all seats, and that of the pause.
    switchover_keys: Vec<String>,
    pause_key: String,
    /// The incarnation in the last announcement. The bucket may return it as a hint.
    announced: Option<String>,
    /// When the status was requested last, and when a notice of a request for switchover came.
    status_requested_at: Option<Instant>,
    noticed_at: Option<Instant>,
    pause_noticed_at: Option<Instant>,
    /// The pause as it was read last, and when it is read again; `None` for not before it changes.
    pause: PauseEntry,
    read_pause_at: Option<Instant>,
    /// The seat whose request for switchover is to be read.
    reads_switchover: Option<Seat>,
    /// No write was stored since the bucket was opened.
    is_new: bool,
    /// How long that may take.
    read_max: Duration,
}

/// The key of a seat.
struct SeatKey {
    key: String,
    /// The revision that the caller knows; hints up to it are ignored.
    known: Revision,
    /// Whether the caller has stored a record of that revision which holds the lock.
    is_held: bool,
}

impl SeatKey {
    fn was_read(&mut self, revision: Revision) {
        self.is_held &= revision == self.known;
        self.known = revision;
    }
}

impl LockKey {
    /// Returns the key of a bucket that is not open yet.
    pub fn new(bucket: Box<dyn Bucket>, key: &str) -> LockKey {
        LockKey::with_seats(bucket, key, 1)
    }

    /// Returns the keys of so many seats, at least one, in a bucket that is not open yet.
    pub fn with_seats(bucket: Box<dyn Bucket>, key: &str, seats: u32) -> LockKey {
        let seats = || Seat::all(seats.max(1));
        let new_key =
            |seat: Seat| SeatKey { key: seat.key(key), known: Revision(0), is_held: false };
        let switchover_keys = seats().map(|seat| switchover::key_of(key, seat)).collect();
        let keys = seats().map(new_key).collect();
        LockKey {
            bucket,
            keys,
            epoch: String::new(),
            switchover_keys,
            pause_key: pause::key_of(key),
            announced: None,
            status_requested_at: None,
            noticed_at: None,
            pause_noticed_at: None,
            pause: PauseEntry::none(""),
            read_pause_at: None,
            reads_switchover: None,
            is_new: true,
            read_max: READ_MAX,
        }
    }

    /// Has a read that the caller has not requested end so soon. The caller's own requests wait for
    /// it.
    #[must_use]
    pub fn with_reads_of(self, read_max: Duration) -> LockKey {
        LockKey { read_max, ..self }
    }

    /// Opens the bucket, subscribes to the key of each seat and reads it, and the pause.
    ///
    /// # Errors
    ///
    /// See [`StoreError`](super::StoreError).
    pub fn open(&mut self, deadline: Instant) -> StoreResult<Opened> {
        let keys = self.keys.iter().map(|key| &key.key).chain([&self.pause_key]);
        let read: Vec<&str> = keys.map(String::as_str).collect();
        let requests = self.switchover_keys.iter().map(String::as_str);
        let subscribed: Vec<&str> = read.iter().copied().chain(requests).collect();
        let first = FirstKeys { subscribed: &subscribed, read: &read };
        let (mut bucket, mut entries) = self.bucket.open(first, deadline)?;
        let pause = entries.pop().flatten();
        self.epoch.clone_from(&bucket.id.epoch);
        self.pause = pause::of_entry(&mut *self.bucket, pause, &self.epoch, deadline)?;
        self.read_pause_at = self.read_pause_again();
        (self.reads_switchover, self.is_new) = (None, true);
        let key_states: Vec<_> = entries.into_iter().map(to_key_state).collect();
        for (key, key_state) in self.keys.iter_mut().zip(&key_states) {
            key.was_read(key_state.revision);
            bucket.last = bucket.last.max(key_state.revision);
        }
        Ok(Opened { bucket, key_states })
    }

    /// Returns the pause of the agents of this key, as it stood when the bucket was opened or the
    /// pause has changed last.
    pub fn pause(&self) -> &PauseEntry {
        &self.pause
    }

    /// Returns whether the last record that the caller stored holds the lock of a seat, and no
    /// other record was seen there since.
    pub fn is_held(&self) -> bool {
        self.keys.iter().any(|key| key.is_held)
    }

    /// Reads the key of a seat. The answer may be older than the last write, see [`Bucket::get`].
    ///
    /// # Errors
    ///
    /// The reason, when there was no answer by the deadline.
    ///
    /// # Panics
    ///
    /// When there is no such seat.
    pub fn read(&mut self, seat: Seat, deadline: Instant) -> Result<KeyState, String> {
        let key = &mut self.keys[seat.index()];
        let entry = self.bucket.get(&key.key, deadline);
        let key_state = to_key_state(entry.map_err(|error| error.to_string())?);
        key.was_read(key_state.revision);
        Ok(key_state)
    }

    /// Stores the `record` of a seat if `expected` is the revision of its key; 0 means that the key
    /// has no entry.
    ///
    /// # Panics
    ///
    /// When there is no such seat.
    pub fn write(
        &mut self,
        seat: Seat,
        expected: Revision,
        record: &Record,
        deadline: Instant,
    ) -> Written {
        let (expected, content) = (Expected::Key(expected), to_content(record));
        let key = &mut self.keys[seat.index()];
        let written = self.bucket.compare_and_set(&key.key, expected, &content, deadline);
        if let Written::Stored(revision) = written {
            (key.known, key.is_held) = (revision, !record.token.trim().is_empty());
            // What was requested while the store was out of reach; a renewal comes first.
            if std::mem::take(&mut self.is_new) {
                self.reads_switchover = Some(seat);
            }
        }
        written
    }

    /// Announces that the sender of `notice` lives and uses this token. Best effort.
    pub fn announce(&mut self, notice: &Notice) {
        self.announced = Some(notice.incarnation.clone());
        self.bucket.announce(&self.keys[0].key, &notice_to_content(notice));
    }

    /// Requests a lock from its holder. Best effort.
    pub fn request_failback(&mut self, request: &FailbackRequest) {
        self.bucket.announce(&self.keys[0].key, &request_to_content(request));
    }

    /// Sends the status of this agent, as an answer to a request. Best effort.
    pub fn send_status(&mut self, request: &StatusRequest, status: &AgentStatus) {
        match request {
            StatusRequest::Command(number) => {
                if let Some(content) = status_to_content(number, status) {
                    self.bucket.announce(&self.keys[0].key, &content);
                }
            }
            StatusRequest::MicroService => self.bucket.send_stats(status),
        }
    }

    /// Waits for [`Event::Hint`], [`Event::DuplicateToken`], [`Event::FailbackRequested`],
    /// [`Event::SwitchoverRequested`], [`Event::PauseRead`] or [`Event::StatusRequested`]. Returns
    /// `None` when `wake` is readable or `deadline` has passed; without a deadline it may wait for
    /// ever.
    ///
    /// # Errors
    ///
    /// The reason, when the store is lost and must be opened again.
    pub fn watch(
        &mut self,
        wake: BorrowedFd<'_>,
        deadline: Option<Instant>,
    ) -> Result<Option<Event>, String> {
        loop {
            if let Some(request) = self.read_switchover() {
                return Ok(Some(Event::SwitchoverRequested(request)));
            }
            if let Some(pause) = self.read_changed_pause() {
                return Ok(Some(Event::PauseRead(pause)));
            }
            let until = deadline.into_iter().chain(self.read_pause_at).min();
            match self.bucket.wait(wake, until) {
                Hint::Changed { key, .. } if key == self.pause_key => {
                    self.read_pause_at = Some(sys::now());
                    continue;
                }
                Hint::Changed { key, revision } => {
                    if let Some(seat) =
                        self.switchover_keys.iter().position(|request| *request == key)
                    {
                        self.reads_switchover = Some(Seat(seat as u32));
                        continue;
                    }
                    let seat = self.keys.iter().position(|seat| seat.key == key);
                    if let Some(seat) = seat
                        && revision.is_none_or(|revision| revision > self.keys[seat].known)
                    {
                        return Ok(Some(Event::Hint(Seat(seat as u32), revision)));
                    }
                }
                // Of another key below: it may be that of other agents.
                Hint::Announced { key, .. } if key != self.keys[0].key => {}
                Hint::Announced { content, .. } => {
                    if let Some(event) = self.announced(&content) {
                        return Ok(Some(event));
                    }
                }
                Hint::StatusRequested => {
                    return Ok(Some(Event::StatusRequested(StatusRequest::MicroService)));
                }
                Hint::Woken => return Ok(None),
                // The caller's deadline, or the pause is to be read again.
                Hint::Elapsed => {}
                Hint::Gone(why) => return Err(why),
            }
            // Ignored hints must not extend the deadline.
            if deadline.is_some_and(|deadline| sys::now() >= deadline) {
                return Ok(None);
            }
        }
    }

    /// Returns what a message means, if it means something.
    fn announced(&mut self, content: &Content) -> Option<Event> {
        let now = sys::now();
        let is_seldom = |last: &mut Option<Instant>, every: Duration| {
            let is_seldom = last.is_none_or(|last| now.since(last) >= every);
            if is_seldom {
                *last = Some(now);
            }
            is_seldom
        };
        if content.header(SWITCHOVER).is_some() {
            let seat = content.header(SWITCHOVER_SEAT)?.parse().ok().map(Seat)?;
            if seat.index() < self.keys.len() && is_seldom(&mut self.noticed_at, NOTICE_EVERY) {
                self.reads_switchover = Some(seat);
            }
            return None;
        }
        if content.header(PAUSE).is_some() {
            if is_seldom(&mut self.pause_noticed_at, NOTICE_EVERY) {
                self.read_pause_at = Some(now);
            }
            return None;
        }
        if let Some(number) = content.header(STATUS_REQUEST) {
            let is_number = number.len() == NUMBER_DIGITS
                && number.bytes().all(|digit| digit.is_ascii_hexdigit());
            let is_answered = is_number && is_seldom(&mut self.status_requested_at, STATUS_EVERY);
            let request = || StatusRequest::Command(number.to_owned());
            return is_answered.then(|| Event::StatusRequested(request()));
        }
        if let Some(request) = request_from_content(content) {
            return Some(Event::FailbackRequested(request));
        }
        let own = self.announced.as_ref();
        let notice = notice_from_content(content);
        let others = notice.filter(|it| own != Some(&it.incarnation));
        others.map(Event::DuplicateToken)
    }

    /// Reads the pause if that is due; returns what stands there if it has changed.
    fn read_changed_pause(&mut self) -> Option<PauseEntry> {
        let now = sys::now();
        self.read_pause_at.filter(|at| now >= *at)?;
        let by = now.after(self.read_max);
        let read = pause::read(&mut *self.bucket, &self.keys[0].key, &self.epoch, by);
        let Ok(pause) = read else {
            self.read_pause_at = Some(now.after(PAUSE_EVERY));
            return None;
        };
        let shown = |entry: &PauseEntry| (entry.revision, entry.pause.is_some());
        let is_new = shown(&pause) != shown(&self.pause);
        self.pause = pause;
        self.read_pause_at = self.read_pause_again();
        is_new.then(|| self.pause.clone())
    }

    /// Returns when the pause is read again if nothing says before that it has changed.
    fn read_pause_again(&self) -> Option<Instant> {
        let now = sys::now();
        let kept = self.pause.kept_until.is_some_and(|at| now < at);
        (kept || self.pause.pause.is_some()).then(|| now.after(PAUSE_EVERY))
    }

    /// Reads the request for switchover if it may be another than before. One that cannot be read
    /// is not followed: whoever has made it says so again.
    fn read_switchover(&mut self) -> Option<SwitchoverRequest> {
        let seat = self.reads_switchover.take()?;
        let by = sys::now().after(self.read_max);
        switchover::read(&mut *self.bucket, &self.keys[0].key, seat, by).ok().flatten()
    }
}

/// Converts a record into the content of an entry.
pub(crate) fn to_content(record: &Record) -> Content {
    Content::new(record.lease.iter().flat_map(to_headers), record.token.as_bytes())
}

/// Converts the entry of a key into the state of the key.
pub(crate) fn to_key_state(entry: Option<Entry>) -> KeyState {
    let Some(Entry { revision, content, .. }) = entry else {
        return KeyState { revision: Revision(0), value: KeyValue::Absent };
    };
    let value = match content.is_tombstone() {
        true => KeyValue::Marker,
        false => KeyValue::Record(Record {
            token: String::from_utf8_lossy(&content.payload).into_owned(),
            lease: from_headers(|name| content.header(name)),
        }),
    };
    KeyState { revision, value }
}

/// Converts a notice into a message.
pub(crate) fn notice_to_content(notice: &Notice) -> Content {
    let (incarnation, host) = (sanitize(&notice.incarnation), sanitize(&notice.host));
    let headers = [(NOTICE_INCARNATION, incarnation), (NOTICE_HOST, host)];
    Content::new(headers, notice.token.as_bytes())
}

/// Converts a message into a notice; `None` if it is none.
pub(crate) fn notice_from_content(content: &Content) -> Option<Notice> {
    Some(Notice {
        token: String::from_utf8(content.payload.clone()).ok()?,
        incarnation: content.header(NOTICE_INCARNATION)?.to_owned(),
        host: content.header(NOTICE_HOST).unwrap_or_default().to_owned(),
    })
}

/// Converts a request for failback into a message.
pub(crate) fn request_to_content(request: &FailbackRequest) -> Content {
    let headers = [
        (REQUEST_SEAT, request.seat.to_string()),
        (REQUEST_PRIORITY, request.priority.to_string()),
        (REQUEST_FIT_MS, request.fit_for.as_millis().to_string()),
    ];
    Content::new(headers, request.token.as_bytes())
}

/// Converts a message into a request for failback; `None` if it is none.
pub(crate) fn request_from_content(content: &Content) -> Option<FailbackRequest> {
    let token = String::from_utf8(content.payload.clone()).ok()?;
    Some(FailbackRequest {
        seat: Seat(content.header(REQUEST_SEAT)?.parse().ok()?),
        token: valid_token(&token).ok()?,
        priority: content.header(REQUEST_PRIORITY)?.parse().ok()?,
        fit_for: Duration::from_millis(content.header(REQUEST_FIT_MS)?.parse().ok()?),
    })
}

/// Returns the message that requests the status of all agents of a key.
pub(crate) fn status_request(number: &str) -> Content {
    Content::new([(STATUS_REQUEST, number.to_owned())], b"")
}

/// Converts a status into a message; `None` if it cannot be.
pub(crate) fn status_to_content(number: &str, status: &AgentStatus) -> Option<Content> {
    let payload = serde_json::to_vec(status).ok()?;
    Some(Content::new([(STATUS, sanitize(number))], &payload))
}

/// Converts a message into the status that it sends in an answer to the request of this number.
pub(crate) fn status_from_content(number: &str, content: &Content) -> Option<AgentStatus> {
    let is_answer = content.header(STATUS) == Some(number);
    let status: AgentStatus =
        is_answer.then(|| serde_json::from_slice(&content.payload).ok()).flatten()?;
    Some(status).filter(AgentStatus::is_valid).map(AgentStatus::sanitized)
}

/// Returns the message which says to the agents of a key that a request for switchover stands at
/// this revision.
pub(crate) fn switchover_notice(seat: Seat, at: Revision) -> Content {
    Content::new([(SWITCHOVER, at.to_string()), (SWITCHOVER_SEAT, seat.to_string())], b"")
}

/// Returns the message which says to the agents of a key that the pause has changed, to this
/// revision.
pub(crate) fn pause_notice(at: Revision) -> Content {
    Content::new([(PAUSE, at.to_string())], b"")
}

/// Describes the holder of the lock for the operator.
pub fn describe_holder(key: &str, entry: Option<Entry>) -> String {
    let KeyState { revision, value } = to_key_state(entry);
    match value {
        KeyValue::Absent => format!("key {key}: does not exist yet"),
        KeyValue::Marker => format!("key {key}: was deleted, revision {revision}"),
        KeyValue::Record(record) if record.token.trim().is_empty() => {
            format!("key {key}: nobody holds the lock, revision {revision}")
        }
        KeyValue::Record(record) => {
            let token = sanitize(&record.token);
            format!("key {key}: the lock is held by {token}, revision {revision}")
        }
    }
}
