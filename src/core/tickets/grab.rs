//! The decisions of `putex grab`: one attempt to have a ticket granted, or a wait for that. No
//! process stays: a ticket that is not written again in its lifetime is removed by others.
//!
//! ```text
//!  Closed --> ReadingMark --> Listing --> Writing, Listing --> Done
//!    ^ the ticket has gone      ^            | unknown   | blockers
//!    |                          |            v           v
//!    +--------------------------+------ ReadingOwn    Watching, Removing, Resting
//! ```
//!
//! The key of the ticket follows from the requester and the names, so the next process finds it,
//! writes it again in the place of its revision, and it keeps its number. The rules are those of
//! [`owner`](super::owner), with these differences:
//!
//! 1. In a bucket without the mark the ticket is written too, and not granted: it notes since
//!    when the bucket is there. So does a ticket that waits: since when the ones before it have
//!    not moved. See [`Seen`].
//! 2. A ticket that was found and written again is granted by the listing that follows, as a new
//!    one is. Nobody else was granted the names meanwhile: who removes a ticket names the
//!    revision that it replaces, and the write would not have found its own.
//! 3. A ticket that has gone is begun anew, with another number, after the bucket was opened
//!    again: it may be another bucket.
//! 4. The lifetime of a ticket never becomes shorter: the requester may not hear of this write,
//!    and relies on what the one before has said.
//! 5. Another process of the same requester is the same requester. What it writes is taken over.

pub mod deciding;
mod writing;

use std::collections::BTreeSet;
use std::time::Duration;

use super::earlier_keys::EarlierKeys;
use super::seen::Seen;
use super::step::{Input, Mark, Step};
use super::ticket::{StoredTicket, Ticket};
use super::times::LockTiming;
use crate::core::event::{BucketInfo, StoreErrorKind};
use crate::core::record::{BucketId, Revision};
use crate::core::time::{Instant, Ms};
use crate::core::timing::{COUNT_MAX, R_MAX, REACH_MAX, Refused};

/// Bounds of the lifetime of a ticket: one for longer could not be read by others.
pub const LIFETIME_MIN: Duration = Duration::from_secs(1);
/// See [`LIFETIME_MIN`].
pub const LIFETIME_MAX: Duration = Duration::from_secs(R_MAX.as_secs() * COUNT_MAX as u64);

/// A request has an answer within this time, or is made again. A ticket that waits is written
/// again as often.
pub const STEP_MAX: Duration = Duration::from_secs(5);

/// So much of the epoch stands in a key. There is room for three more.
const EPOCH_LETTERS: usize = 8;

/// Returns the times of a ticket of this lifetime.
///
/// # Errors
///
/// The bound that it breaks.
pub fn timing(lifetime: Duration, drift_ppm: u32) -> Result<LockTiming, Refused> {
    let shown = Ms(lifetime);
    if lifetime < LIFETIME_MIN {
        let least = Ms(LIFETIME_MIN);
        return Err(Refused(format!("--for: {shown} is shorter than the minimum of {least}")));
    }
    if lifetime > LIFETIME_MAX {
        let most = Ms(LIFETIME_MAX);
        return Err(Refused(format!("--for: {shown} is longer than the maximum of {most}")));
    }
    // Both divide a millisecond, so T is the lifetime exactly.
    let parts = if lifetime <= R_MAX * 4 { 4 } else { COUNT_MAX };
    LockTiming::new(lifetime / parts, parts, drift_ppm, Duration::ZERO)
}

/// How it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grabbed {
    /// The names are had.
    Granted {
        /// The ticket's number.
        term: u64,
        /// V: until then nobody else is granted them.
        valid_until: Instant,
    },
    /// Others come first. The ticket stands, and keeps its place.
    Queued {
        /// The ticket's number.
        term: u64,
        /// How many tickets come first. A bucket that is too young counts as one.
        ahead: u64,
        /// Until then nobody removes the ticket.
        valid_until: Instant,
        /// Who they are, for people.
        why: String,
    },
    /// Others come first, and the ticket was withdrawn.
    Withdrawn(String),
    /// The requester has a ticket for some of the names already, with other names or in another
    /// mode: it would wait for itself.
    Overlaps(String),
    /// The store does not serve it.
    Refused(StoreErrorKind, String),
}

/// How long the names are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// So long.
    pub wait: Duration,
    /// The ticket is withdrawn if it is not granted; but never one that may have been granted
    /// to a process before.
    pub withdraws: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Closed,
    ReadingMark,
    WritingMark,
    Listing,
    Writing,
    ReadingOwn,
    /// These are to be heard of; then nothing is done until this instant.
    Watching(BTreeSet<String>),
    /// The last of these is removed, then the ones before it.
    Removing(Vec<StoredTicket>),
    /// The notes of this host are read, and written, before the ticket is withdrawn.
    Recalling,
    Noting(Revision),
    Withdrawing,
    /// Nothing is done until this instant; then that phase begins.
    Resting(Instant, Box<Phase>),
    Done(Grabbed),
}

/// A write whose outcome is not known.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    expected: Revision,
    first_sent: Instant,
}

/// The ticket in the bucket.
#[derive(Clone, Debug)]
struct Own {
    number: Revision,
    revision: Revision,
    /// The moment before the last stored write of this process was sent; `None` before there is
    /// one.
    sent: Option<Instant>,
    earlier_keys: EarlierKeys,
}

impl Own {
    /// Returns whether a listing up to this revision lacks none of the earlier tickets.
    fn is_reached_by(&self, last: Revision) -> bool {
        last.0 + 1 >= self.number.0
    }
}

/// One process that asks for names.
#[derive(Clone, Debug)]
pub struct Grabber {
    timing: LockTiming,
    ticket: Ticket,
    /// The last element of the key of the ticket, the same in all buckets.
    element: String,
    withdraws: bool,
    began: Instant,
    /// When it stops to wait for others, and when it stops to try a store that fails.
    limit: Instant,
    store_limit: Instant,
    phase: Phase,
    bucket: Option<BucketId>,
    /// The mark to be written; `None` if the one that stands will do.
    missing_mark: Option<Mark>,
    own: Option<Own>,
    /// The own ticket was there before this process: another one may have been granted it.
    was_found: bool,
    /// Where the key stands without a ticket.
    free_at: Revision,
    attempt: Option<Attempt>,
    last: Revision,
    hinted: Revision,
    /// The keys whose hints come.
    watched: BTreeSet<String>,
    seen: Seen,
    /// How it ends when what was seen is noted.
    leaving: Option<Grabbed>,
    why_waiting: String,
}

impl Grabber {
    /// Returns one for this ticket, whose key has a last element that begins so. The attempt
    /// of the ticket is a number that no other process has.
    pub fn new(
        timing: LockTiming,
        ticket: Ticket,
        element: String,
        limits: Limits,
        now: Instant,
    ) -> Grabber {
        let limit = now.after(limits.wait);
        let step = timing.renewal().min(STEP_MAX);
        Grabber {
            timing,
            element,
            withdraws: limits.withdraws,
            began: now,
            limit,
            store_limit: limit.max(now.after(step)),
            phase: Phase::Closed,
            bucket: None,
            missing_mark: None,
            own: None,
            was_found: false,
            free_at: Revision(0),
            attempt: None,
            last: Revision(0),
            hinted: Revision(0),
            watched: BTreeSet::new(),
            seen: ticket.seen.clone(),
            ticket,
            leaving: None,
            why_waiting: String::new(),
        }
    }

    /// Returns how it has ended; `None` before that.
    pub fn ended(&self) -> Option<&Grabbed> {
        if let Phase::Done(grabbed) = &self.phase { Some(grabbed) } else { None }
    }

    /// Returns what is waited for, for people; blank at first.
    pub fn why_waiting(&self) -> &str {
        &self.why_waiting
    }

    /// Returns the last element of the key of the ticket.
    pub fn key_element(&self) -> String {
        element_in(&self.element, self.bucket.as_ref())
    }

    /// Returns how long a request may take, and how often a ticket that waits is written.
    fn step(&self) -> Duration {
        self.timing.renewal().min(STEP_MAX)
    }

    /// Returns what is to be done now. The step begins at this instant.
    pub fn next(&mut self, now: Instant) -> Step {
        let by = now.after(self.step()).min(self.store_limit).max(now.after(self.step() / 4));
        match &self.phase {
            Phase::Closed if self.bucket.is_none() => {
                Step::Open(by.max(self.began.after(REACH_MAX)))
            }
            Phase::Closed => Step::Open(by),
            Phase::ReadingMark => Step::ReadMark(by),
            Phase::WritingMark => match self.missing_mark.clone() {
                Some(mark) => Step::WriteMark(mark, by),
                None => Step::ReadMark(by),
            },
            Phase::Listing => Step::List(self.earlier_keys(), by),
            Phase::Writing => self.next_write(now, by),
            Phase::ReadingOwn => Step::ReadOwn(by),
            Phase::Watching(keys) => Step::Watch(keys.clone()),
            Phase::Removing(dead) => match dead.last() {
                Some(dead) => Step::Remove(dead.clone(), by),
                None => Step::Rest(now),
            },
            Phase::Recalling => Step::ReadNotes(by),
            Phase::Noting(at) => Step::WriteNotes(*at, self.seen.clone(), by),
            Phase::Withdrawing => {
                Step::End(self.own.as_ref().map_or(Revision(0), |own| own.revision), by)
            }
            Phase::Resting(until, _) => Step::Rest(*until),
            Phase::Done(_) => Step::Exit,
        }
    }

    fn earlier_keys(&self) -> EarlierKeys {
        self.own.as_ref().map(|own| own.earlier_keys.clone()).unwrap_or_default()
    }

    /// Takes in what happened.
    pub fn handle(&mut self, input: Input, now: Instant) {
        match input {
            Input::Opened(Ok(info)) => self.opened(info, now),
            Input::Opened(Err(error)) => match error.kind {
                StoreErrorKind::Unsafe | StoreErrorKind::Credentials => {
                    self.end(Grabbed::Refused(error.kind, error.text));
                }
                StoreErrorKind::Unreachable | StoreErrorKind::Unfit => {
                    self.failed(error.text, Phase::Closed, now);
                }
            },
            Input::Mark(Ok(mark)) => self.marked(mark),
            Input::Mark(Err(why)) => self.failed(why, Phase::ReadingMark, now),
            Input::Written(written, sent) => self.written(written, sent, now),
            Input::WrittenAndListed(written, sent, listed) => {
                self.written(written, sent, now);
                // It may have been made before writes that were stored before this one.
                let reaches = |last| self.own.as_ref().is_some_and(|own| own.is_reached_by(last));
                if self.phase == Phase::Listing
                    && let Ok((standing, last)) = listed
                    && reaches(last)
                {
                    self.listed(standing, last, now);
                }
            }
            Input::Own(Ok((revision, ticket))) => self.own_read(revision, ticket, now),
            Input::Own(Err(why)) => self.failed(why, Phase::ReadingOwn, now),
            Input::Listed(Ok((standing, last))) => self.listed(standing, last, now),
            Input::Listed(Err(why)) => self.failed(why, Phase::Listing, now),
            Input::Subscribed => {
                if let Phase::Watching(keys) = &self.phase {
                    self.watched.extend(keys.iter().cloned());
                    // As in `owner`: the write travels behind the subscription.
                    self.phase = Phase::Writing;
                }
            }
            Input::Hint(revision) => {
                self.hinted = self.hinted.max(revision.unwrap_or(self.hinted));
                if let Phase::Resting(_, then) = &self.phase
                    && **then == Phase::Listing
                {
                    self.phase = if self.is_due(now) { Phase::Writing } else { Phase::Listing };
                }
            }
            Input::Rested => self.rested(now),
            Input::Gone(_) => {
                if self.ended().is_none() {
                    self.phase = Phase::Closed;
                }
            }
            Input::Notes(notes) => self.recalled(notes.ok(), now),
            // No command runs under a ticket of this kind.
            Input::Unused | Input::Done => {}
        }
    }

    fn end(&mut self, grabbed: Grabbed) {
        self.phase = Phase::Done(grabbed);
    }

    /// A request had no result: it is made again after a pause, until the store is given up.
    fn failed(&mut self, why: String, then: Phase, now: Instant) {
        if let Some(grabbed) = self.leaving.take() {
            // Nothing but the note is missing.
            self.end(grabbed);
        } else if now >= self.store_limit {
            self.end(Grabbed::Refused(StoreErrorKind::Unreachable, why));
        } else {
            self.why_waiting = why;
            self.pause(then, now);
        }
    }

    fn pause(&mut self, then: Phase, now: Instant) {
        let pause = (self.step() / 16).max(Duration::from_millis(10));
        let until = now.after(pause).min(self.store_limit);
        self.phase = Phase::Resting(until, Box::new(then));
    }

    /// Returns whether the ticket is to be written again.
    fn is_due(&self, now: Instant) -> bool {
        let sent = self.own.as_ref().and_then(|own| own.sent);
        sent.is_some_and(|sent| now >= sent.after(self.step()))
    }

    fn opened(&mut self, info: BucketInfo, now: Instant) {
        if let Err(why) = info.retires {
            return self.end(Grabbed::Refused(StoreErrorKind::Unsafe, why));
        }
        if self.bucket.is_none() {
            // The wait for others begins now.
            let took = now.since(self.began);
            (self.limit, self.store_limit) = (self.limit.after(took), self.store_limit.after(took));
        }
        if self.bucket.as_ref() != Some(&info.id) || info.last < self.last {
            (self.own, self.attempt, self.leaving) = (None, None, None);
            self.free_at = Revision(0);
            self.seen = Seen::nothing(self.seen.clock(), &info.id.epoch);
        }
        self.watched.clear();
        self.hinted = Revision(0);
        self.last = info.last;
        self.bucket = Some(info.id);
        self.missing_mark = None;
        self.phase = Phase::ReadingMark;
    }

    /// Returns the phase that follows when it is known whether the bucket is to be believed.
    fn after_mark(&self) -> Phase {
        if self.attempt.is_some() { Phase::Writing } else { Phase::Listing }
    }

    fn marked(&mut self, mark: Mark) {
        let epoch = self.bucket.as_ref().map_or("", |id| &*id.epoch);
        self.missing_mark = mark.missing(epoch, self.timing.lifetime());
        self.phase = self.after_mark();
    }

    /// A wait is over.
    fn rested(&mut self, now: Instant) {
        let Phase::Resting(until, then) = &self.phase else { return };
        if now < *until {
            return;
        }
        let renews = **then == Phase::Listing && self.is_due(now);
        self.phase = if renews { Phase::Writing } else { (**then).clone() };
    }
}

/// Returns the last element of the key of a ticket in a bucket. A write that is under way while a
/// bucket is lost and made anew must not find the same key at the same revision there: it
/// would carry the number of a ticket of the lost one.
pub(super) fn element_in(element: &str, bucket: Option<&BucketId>) -> String {
    let epoch = bucket.map_or("", |id| id.epoch.as_str());
    let letters = epoch.chars().filter(char::is_ascii_alphanumeric);
    letters.take(EPOCH_LETTERS).fold(element.to_owned(), |key, letter| key + &letter.to_string())
}

#[cfg(test)]
mod tests;
