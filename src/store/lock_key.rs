//! The lock key of an agent, or one for each seat: records, stored as entries of a [`Bucket`].
//!
//! A record is an entry whose payload is the token and whose headers are those of
//! [`record`](super::record). Commands ask the agents of a key by a [`question`](super::question).

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::follow_up::{OperatorKey, OperatorReads, READ_GAP, SeatHints};
use super::lifetime::read_with_age;
use super::record::{from_headers, to_headers};
use super::{
    AgentQuestion, Bucket, Content, Entry, Expected, Hint, Opening, StoreResult, open_or_make,
    pause, switchover,
};
use crate::core::{
    AgentStatus, Event, Instant, KeyState, KeyValue, Opened, PauseEntry, Record, Revision, Seat,
    Switchover, SwitchoverRequest, Written,
};
use crate::sys;

/// How often the pause is read again while there is one: the message that has ended it may be lost.
const PAUSE_EVERY: Duration = Duration::from_secs(5);

/// The lock key of an agent in a bucket, or one for each of its seats. Every call returns at its
/// deadline at the latest.
pub struct LockKey {
    bucket: Box<dyn Bucket>,
    /// The keys of the seats, never none. Agents are asked by the first.
    keys: Vec<SeatKey>,
    /// The keys under which the pause and the requests for switchover stand.
    operator_keys: BTreeMap<String, OperatorKey>,
    operator_reads: OperatorReads,
    /// Until when a pause that was read may be observed, and when the pause is read again; `None`
    /// for not before it changes.
    paused_until: Option<Instant>,
    read_pause_at: Option<Instant>,
    /// No write was stored since the bucket was opened.
    is_new: bool,
    /// How long a read that the caller has not requested may take.
    read_max: Duration,
}

/// The key of a seat.
struct SeatKey {
    key: String,
    /// The revision that the caller knows; hints up to it are ignored.
    known: Revision,
    /// Whether the caller has stored a record of that revision which holds the lock.
    is_held: bool,
    hints: SeatHints,
}

impl SeatKey {
    fn was_read(&mut self, revision: Revision) {
        self.is_held &= revision == self.known;
        self.known = revision;
    }
}

impl LockKey {
    /// Returns the keys of so many seats, at least one, in a bucket that is not open yet. A read
    /// that the caller has not requested ends within `read_max`: the caller's own requests wait for
    /// it. A hint that is not followed, or misleads a holder, delays the next one for as long.
    pub fn new(bucket: Box<dyn Bucket>, key: &str, seats: u32, read_max: Duration) -> LockKey {
        let seats = || Seat::all(seats.max(1));
        let new_key = |seat: Seat| SeatKey {
            key: seat.key(key),
            known: Revision(0),
            is_held: false,
            hints: SeatHints::default(),
        };
        let switchover_key = |seat| (switchover::key_of(key, seat), OperatorKey::Switchover(seat));
        let pause_key = (pause::key_of(key), OperatorKey::Pause);
        LockKey {
            bucket,
            keys: seats().map(new_key).collect(),
            operator_keys: seats().map(switchover_key).chain([pause_key]).collect(),
            operator_reads: OperatorReads::default(),
            paused_until: None,
            read_pause_at: None,
            is_new: true,
            read_max,
        }
    }

    /// Opens the bucket, subscribes to the key of each seat and reads it, and the pause.
    ///
    /// # Errors
    ///
    /// See [`StoreError`](super::StoreError).
    pub fn open(&mut self, deadline: Instant) -> StoreResult<Opened> {
        let pause_key = pause::key_of(&self.keys[0].key);
        let keys = self.keys.iter().map(|key| &*key.key);
        let read: Vec<&str> = keys.clone().chain([&*pause_key]).collect();
        let subscribed: Vec<&str> =
            keys.chain(self.operator_keys.keys().map(|key| &**key)).collect();
        let how = Opening { makes_bucket: true, subscribed: &subscribed, read: &read };
        let (mut bucket, mut entries) = open_or_make(&mut *self.bucket, how, deadline)?;
        let pause = match entries.pop().flatten() {
            Some(_) => pause::read(&mut *self.bucket, &self.keys[0].key, deadline)?,
            None => PauseEntry::default(),
        };
        self.read_pause_again(&pause);
        (self.operator_reads, self.is_new) = (OperatorReads::default(), true);
        let key_states: Vec<_> = entries.into_iter().map(to_key_state).collect();
        for (key, key_state) in self.keys.iter_mut().zip(&key_states) {
            key.was_read(key_state.revision);
            key.hints = SeatHints::default();
            bucket.last = bucket.last.max(key_state.revision);
        }
        Ok(Opened { bucket, key_states, pause })
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
        let (key, began) = (&mut self.keys[seat.index()], sys::now());
        let entry = self.bucket.get(&key.key, deadline);
        let now = sys::now();
        let entry = entry.inspect_err(|_| key.hints.was_not_read(now, self.read_max));
        let key_state = to_key_state(entry.map_err(|error| error.to_string())?);
        // A release must be noticed soon, and a take wait for reads half of the time at most. A
        // holder writes the next renewal anyway.
        let delay = match key.is_held {
            true => self.read_max,
            false => now.since(began).max(READ_GAP).min(self.read_max),
        };
        key.hints.was_read(key_state.revision, now, delay);
        key.was_read(key_state.revision);
        Ok(key_state)
    }

    /// Reads the pause. If it cannot be read, [`LockKey::watch`] reads it again, 5 seconds later.
    ///
    /// # Errors
    ///
    /// When it was not read within the time of a read.
    pub fn read_pause(&mut self) -> StoreResult<PauseEntry> {
        let now = sys::now();
        // A renewal waits while a read has no answer: such reads must not follow one another.
        self.read_pause_at = Some(now.after(PAUSE_EVERY));
        let by = now.after(self.read_max);
        let pause = pause::read(&mut *self.bucket, &self.keys[0].key, by)?;
        self.read_pause_again(&pause);
        Ok(pause)
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
        let written = self.bucket.write(&key.key, expected, &content, None, deadline);
        if let Written::Stored(revision) = written {
            (key.known, key.is_held) = (revision, !record.is_blank());
            // A switchover may have been requested while the store was out of reach; a renewal
            // comes first.
            if std::mem::take(&mut self.is_new) {
                self.operator_reads.add(OperatorKey::Switchover(seat));
            }
        }
        written
    }

    /// Requests a lock from its holder, unless a request for it stands. Best effort.
    pub fn request_switchover(&mut self, request: &Switchover) {
        let (key, by) = (self.keys[0].key.clone(), sys::now().after(self.read_max));
        let of_seat = switchover::key_of(&key, request.seat);
        let Ok(found) = read_with_age(&mut *self.bucket, &of_seat, by) else { return };
        let standing = found.as_ref().and_then(switchover::standing);
        if standing.is_some_and(|(other, _)| other.term == request.term) {
            return;
        }
        let at = found.map_or(Revision(0), |entry| entry.revision);
        let (expected, content) = (Expected::Key(at), switchover::to_content(request));
        let written = self.bucket.write(&of_seat, expected, &content, None, by);
        // The bucket may have no hints.
        if let (Written::Stored(_), Ok(number)) = (written, sys::random()) {
            let question = AgentQuestion::new(number, [key].into(), true);
            self.bucket.ask_agents(&question);
        }
    }

    /// Sends the status of this agent to those who have requested it. Best effort.
    pub fn send_status(&mut self, status: &AgentStatus) {
        self.bucket.send_status(status);
    }

    /// Waits for [`Event::Hint`], [`Event::SwitchoverRequested`], [`Event::PauseRead`] or
    /// [`Event::StatusRequested`]. Returns `None` when `wake` is readable or `deadline` has passed;
    /// without a deadline it may wait for ever.
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
            let now = sys::now();
            if self.read_pause_at.is_some_and(|at| now >= at) {
                self.read_pause_at = None;
                self.operator_reads.add(OperatorKey::Pause);
            }
            if let Some(key) = self.operator_reads.next(now) {
                let event = match key {
                    OperatorKey::Pause => self.read_pause().ok().map(Event::PauseRead),
                    OperatorKey::Switchover(seat) => {
                        self.read_switchover(seat).map(Event::SwitchoverRequested)
                    }
                };
                self.operator_reads.ended(sys::now());
                // An act of the caller may have waited for this read.
                if event.is_some() || sys::is_ready(wake) {
                    return Ok(event);
                }
                continue;
            }
            for (seat, key) in Seat::all(self.keys.len() as u32).zip(&mut self.keys) {
                if let Some(revision) = key.hints.next(key.known, now, self.read_max) {
                    return Ok(Some(Event::Hint(seat, revision)));
                }
            }
            // Ignored hints must not extend the deadline.
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(None);
            }
            let hints = self.keys.iter().filter_map(|key| key.hints.next_at(key.known, now));
            let reads = self.read_pause_at.into_iter().chain(self.operator_reads.next_at(now));
            let until = deadline.into_iter().chain(hints).chain(reads).min();
            match self.bucket.wait(wake, until) {
                Hint::Changed { key, revision, .. } => self.changed(&key, revision),
                Hint::StatusRequested { reads_requests } => {
                    if reads_requests {
                        let of_operators = self.operator_keys.values().copied();
                        of_operators.for_each(|key| self.operator_reads.add(key));
                    }
                    return Ok(Some(Event::StatusRequested));
                }
                Hint::Woken => return Ok(None),
                // The caller's deadline, or a read or a hint is due.
                Hint::Elapsed | Hint::Answered(_) | Hint::NotAsked(_) => {}
                Hint::Gone(why) => return Err(why),
            }
        }
    }

    /// Notes the hint that a key has changed.
    fn changed(&mut self, key: &str, revision: Option<Revision>) {
        if let Some(of_operators) = self.operator_keys.get(key) {
            self.operator_reads.add(*of_operators);
        } else if let Some(seat) = self.keys.iter_mut().find(|it| it.key == key) {
            seat.hints.add(revision);
        }
    }

    /// Has the pause read again until each pause that was read is over: what was read may be older
    /// than what the caller observes.
    fn read_pause_again(&mut self, read: &PauseEntry) {
        let (now, until) = (sys::now(), read.pause.as_ref().map(|pause| pause.until));
        self.paused_until = self.paused_until.max(until).filter(|until| now < *until);
        self.read_pause_at = self.paused_until.map(|_| now.after(PAUSE_EVERY));
    }

    /// Reads the request for switchover of a seat. One that cannot be read is not followed: its
    /// requester tells the agents of it again.
    fn read_switchover(&mut self, seat: Seat) -> Option<SwitchoverRequest> {
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

#[cfg(test)]
mod tests;
