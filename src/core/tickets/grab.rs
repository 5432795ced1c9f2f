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
//! A ticket has a key of its own, as that of `putex lock`. The next process of the requester finds
//! it in the listing, by the requester, writes it again in the place of its revision, and it keeps
//! its number. The rules are those of [`owner`](super::owner), with these differences:
//!
//! 1. In a bucket without the mark the ticket is written too, and not granted: it notes since
//!    when the bucket is there. So does a ticket that waits: since when the ones before it have
//!    not moved. See [`Observed`].
//! 2. A ticket that was found and written again is granted by the listing that follows, as a new
//!    one is. Nobody else was granted the names meanwhile: who removes a ticket names the
//!    revision that it replaces, and the write would not have found its own.
//! 3. A ticket is continued only while it has not run out, by the clock of the store. A server that
//!    is killed restores a ticket that has ended when the marker of its end was removed. That
//!    marker stays for more than twice the lifetime: what is restored has run out long before.
//!    Where the clocks of servers differ by more, it may look young: it had ended all the same if
//!    a later one that conflicts was granted.
//! 4. What has run out is no ticket of the requester any more: it does not wait for it, and
//!    removes it when it has the names anew.
//! 5. Of two tickets of the requester for the same names, the first one stays. The process that
//!    has written the other one ends it, and goes on with the first.
//! 6. A ticket says that it was granted before its requester is told so. From then on it counts as
//!    granted as long as it stands, whatever a server restores that was before it.
//! 7. The lifetime of a ticket never becomes shorter: the requester may not hear of this write,
//!    and relies on what the one before has said.
//! 8. Another process of the same requester is the same requester. What it writes is taken over.

pub mod deciding;
mod writing;

use std::collections::BTreeSet;
use std::time::Duration;

use super::earlier_keys::EarlierKeys;
use super::step::{Input, Mark, Step};
use super::ticket::{StoredTicket, Ticket};
use super::times::LockTiming;
use crate::core::event::{BucketInfo, StoreErrorKind};
use crate::core::observed::Observed;
use crate::core::record::{BucketId, Revision};
use crate::core::time::{Instant, Ms};
use crate::core::timing::{COUNT_MAX, R_MAX, REACH_MAX, Refused};
use crate::core::write::PendingWrite;

/// Bounds of the lifetime of a ticket: one for longer could not be read by others.
pub const LIFETIME_MIN: Duration = Duration::from_secs(1);
/// See [`LIFETIME_MIN`].
pub const LIFETIME_MAX: Duration = Duration::from_secs(R_MAX.as_secs() * COUNT_MAX as u64);

/// A request has an answer within this time, or is made again. A ticket that waits is written
/// again as often.
pub const STEP_MAX: Duration = Duration::from_secs(5);

/// How long the marker of the end of a ticket stays at least, besides twice the lifetime of the
/// ticket: for servers whose clocks differ, and for writes that are under way. What is stored by a
/// clock that is ahead by more has no age.
pub const CLOCKS_MARGIN: Duration = Duration::from_secs(10);

/// Returns how long the marker of the end of a ticket has to stay that may be continued by who
/// finds it, if it has this lifetime.
pub fn marker_time(lifetime: Duration) -> Duration {
    lifetime * 2 + CLOCKS_MARGIN
}

/// How the last elements of the keys of such tickets begin. The others begin with a digit of a
/// random number.
pub const ELEMENT_PREFIX: char = 'g';

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
    /// The ticket is withdrawn if it is not granted.
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
    /// The ticket is ended; then it has ended so, or another ticket is looked for.
    Withdrawing(Option<Grabbed>),
    /// Nothing is done until this instant; then that phase begins.
    Resting(Instant, Box<Phase>),
    Done(Grabbed),
}

/// The ticket in the bucket.
#[derive(Clone, Debug)]
struct Own {
    /// The last element of its key.
    element: String,
    number: Revision,
    revision: Revision,
    /// The moment before the last stored write of it was sent; of a ticket that was found, one
    /// before that.
    sent: Instant,
    /// For how long the last write is valid.
    validity: Duration,
    /// Whether this process has written it.
    is_written: bool,
    earlier_keys: EarlierKeys,
}

impl Own {
    /// Returns V.
    fn valid_until(&self) -> Instant {
        self.sent.after(self.validity)
    }

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
    /// A number that no other process has, and how often the ticket was begun anew.
    nonce: (u128, u32),
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
    /// When the request that is under way was made.
    requested: Instant,
    /// The write of it that is under way.
    write: Option<PendingWrite>,
    last: Revision,
    hinted: Revision,
    /// The keys whose hints come.
    watched: BTreeSet<String>,
    seen: Observed,
    /// How it ends when what was seen is noted.
    leaving: Option<Grabbed>,
    why_waiting: String,
}

impl Grabber {
    /// Returns one for this ticket. `nonce` and the attempt of the ticket are numbers that no other
    /// process has.
    pub fn new(
        timing: LockTiming,
        ticket: Ticket,
        nonce: u128,
        limits: Limits,
        now: Instant,
    ) -> Grabber {
        let limit = now.after(limits.wait);
        let step = timing.renewal().min(STEP_MAX);
        Grabber {
            timing,
            nonce: (nonce, 0),
            withdraws: limits.withdraws,
            began: now,
            limit,
            store_limit: limit.max(now.after(step)),
            phase: Phase::Closed,
            bucket: None,
            missing_mark: None,
            own: None,
            requested: now,
            write: None,
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
        let (nonce, times) = self.nonce;
        let own = self.own.as_ref().map(|own| own.element.clone());
        own.unwrap_or_else(|| format!("{ELEMENT_PREFIX}{nonce:032x}{times:x}"))
    }

    /// There is no ticket any more, and the next one has another key.
    fn take_new_key(&mut self) {
        (self.own, self.write, self.ticket.is_granted) = (None, None, false);
        self.nonce.1 += 1;
    }

    /// Returns whether others may have removed the ticket, as in `owner`.
    fn has_run_out(&self, now: Instant) -> bool {
        let pending = || Some(self.write?.first_sent.after(self.timing.validity()));
        let until = self.own.as_ref().map(Own::valid_until).or_else(pending);
        until.is_some_and(|until| now >= until)
    }

    /// Returns how long a request may take, and how often a ticket that waits is written.
    fn step(&self) -> Duration {
        self.timing.renewal().min(STEP_MAX)
    }

    /// Returns what is to be done now. The step begins at this instant.
    pub fn next(&mut self, now: Instant) -> Step {
        let by = now.after(self.step()).min(self.store_limit).max(now.after(self.step() / 4));
        self.requested = now;
        if self.phase == Phase::Writing && self.has_run_out(now) {
            self.take_new_key();
            (self.leaving, self.phase) = (None, Phase::Listing);
        }
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
            Phase::Withdrawing(_) => {
                let at = self.own.as_ref().map_or(Revision(0), |own| own.revision);
                Step::End(at, self.ticket.lifetime, by)
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
            Input::Written(written) => self.written(written, now),
            Input::WrittenAndListed(written, listed) => {
                self.written(written, now);
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
        let pause = (self.step() / 16).max(Duration::from_millis(50));
        let until = now.after(pause).min(self.store_limit);
        self.phase = Phase::Resting(until, Box::new(then));
    }

    /// Returns whether the ticket is to be written again.
    fn is_due(&self, now: Instant) -> bool {
        self.own.as_ref().is_some_and(|own| now >= own.sent.after(self.step()))
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
            if self.bucket.is_some() {
                self.take_new_key();
            }
            self.leaving = None;
            self.seen = Observed::nothing(self.seen.clock(), &info.id.epoch);
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
        if self.write.is_some() { Phase::Writing } else { Phase::Listing }
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

#[cfg(test)]
mod tests;
