//! A request for a lock: how its ticket is written, found, waited for, renewed, lost and ended.
//!
//! ```text
//!             opened, write it                 stored
//!  Closed ----------------------> Writing ------------> Listing <---- opened, look for one
//!    ^ the store is lost          ^  |  unknown          | others come first
//!    |                   renewal  |  v                   v
//!    +--------------------------- Resting <---- Watching, Removing, WritingMark
//! ```
//!
//! [`TicketOwner::next`] returns the next step, [`TicketOwner::handle`] takes its result in. One
//! request is under way at a time. The purpose of the ticket stands in the goal: it is to be
//! granted, kept, or ended.
//!
//! The asker is a command or a script. For a command, this process stays as long as the command
//! runs. For a script, no process stays: the script is told of its ticket, and its next process
//! finds the ticket by the requester.
//!
//! # Rules
//!
//! 1. Nothing is granted in a bucket without the mark. A bucket that was lost and made anew shows
//!    no holders: all tickets of the lost one have to run out first. So a missing mark is waited
//!    for like a dead ticket, and then written.
//! 2. Every write names the revision that it replaces. One without an answer is repeated
//!    unchanged until its outcome is known, see [`PendingWrite`]; the old V stands until then.
//! 3. Only a listing that reaches the last write of the ticket says who is absent.
//! 4. A granted ticket is lost at once when its key has another revision, when the bucket is
//!    another one, or when the bucket has gone back. A ticket that waits begins anew then.
//! 5. A ticket that waits also begins anew once its V has passed, whatever stands under its key:
//!    others may have removed it, and a killed server may restore the entry that the marker of its
//!    end has replaced, once that marker is gone.
//! 6. A ticket of others is removed when its revision was not seen to move for its lifetime, with
//!    the drift, on this host's clock.
//! 7. A granted ticket is ended only when its command has ended.
//! 8. A ticket that says that it was granted stays granted as long as it stands, whichever earlier
//!    ticket a killed server restores.
//!
//! # Rules of scripts
//!
//! 1. A ticket is continued only while it has not run out, by the clock of the store. A killed
//!    server restores an ended ticket only after the marker of its end is gone, for which more than
//!    twice the lifetime has to pass: by then the ticket has run out. If the clocks of servers
//!    differ by more, a restored ticket may look young; it had ended all the same if a later one
//!    that conflicts was granted. A renewal that is under way for longer than the marker stays may
//!    find a restored ticket. So a renewal names the time of the store by which it has to be stored
//!    to count: one lifetime of the ticket that it replaces, after that ticket was seen. The store
//!    stamps each write, so readers trust no other clock, and the writer need not be alive. A new
//!    key for each renewal would not help: a first write finds its key free however late it comes.
//! 2. A ticket of the requester that is not continued is waited for like a ticket of others,
//!    whatever its mode: the clock of the store may be ahead, and another process rely on the
//!    ticket. It is removed at once when it has run out by the clock of the host that wrote it, or
//!    by the clocks of all servers.
//! 3. Of two tickets of the requester for the same names, the first one stays. The process that
//!    has written the other one ends it, and goes on with the first.
//! 4. A ticket says that it was granted before its requester is told so.
//! 5. The lifetime of a ticket never becomes shorter: a requester that does not hear of this write
//!    relies on the write before.
//! 6. All processes of a requester count as one, and each takes over the writes of the others. So a
//!    process whose own V has passed does not end the ticket: it looks for the ticket again.

mod finding;
mod results;
mod soft;
mod transitions;
mod waiting;

use std::collections::BTreeSet;
use std::time::Duration;

pub use self::finding::of_requester;
pub use self::soft::Soft;
use self::waiting::Leaving;
use super::earlier_keys::EarlierKeys;
use super::grab::STEP_MAX;
use super::key::ELEMENT_PREFIX;
use super::step::{End, Input, Step, ToFront};
use super::ticket::{Mode, RunsOut, StoredTicket, Ticket};
use super::times::{KillTimes, LockTiming};
use crate::core::event::StoreError;
use crate::core::observed::Observed;
use crate::core::record::{BucketId, Revision};
use crate::core::tickets::Mark;
use crate::core::time::{Instant, StoreTime};
use crate::core::timing::REACH_MAX;
use crate::core::write::PendingWrite;

/// The asker for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A command runs under the lock, and this process stays as long. It may let others go first.
    Command(Option<Soft>),
    /// A script; no process stays. The attempt of its ticket is a number that no other process has.
    Script {
        /// A ticket that is not granted in time is ended.
        withdraws: bool,
    },
}

/// The purpose of the ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Goal {
    /// The ticket is to be granted, until this instant at the latest; `None` for ever.
    Get(Option<Instant>),
    /// The ticket was granted to a command.
    Keep,
    /// The ticket was lost. The command is being ended.
    Lost(KillTimes),
    /// The ticket is to end, for this reason, by this write. The asker waits for its end for R,
    /// from the first copy of the write.
    End(End, PendingWrite),
}

/// The part of the request that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// The bucket is to be opened.
    Closed,
    /// The mark is written that the bucket lacks. After that write, stored or not, the bucket is
    /// opened again, and its mark is read.
    WritingMark(Mark),
    /// The own ticket is written or renewed.
    Writing,
    ReadingOwn,
    /// The tickets of others are listed. If there is no own ticket, it is written after that.
    Listing,
    /// The own ticket is ended. Another one follows if the lock is still wanted.
    Ending,
    /// The hints of the tickets of these keys are subscribed to.
    Watching(BTreeSet<String>),
    /// The last of these tickets is removed, then the ones before it.
    Removing(Vec<StoredTicket>),
    /// The lock was not granted in time. The tickets that were seen are noted for another process.
    Noting(Leaving),
    /// Nothing is done until this instant; then that phase begins.
    Resting(Instant, Box<Phase>),
    Done,
}

/// The own ticket in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Own {
    /// The last element of its key.
    element: String,
    number: Revision,
    revision: Revision,
    /// The lifetime in the entry that stands.
    lifetime: Duration,
    /// V. Nobody else removes the ticket before.
    valid_until: Instant,
    renew_at: Instant,
    earlier_keys: EarlierKeys,
}

impl Own {
    /// Returns whether a listing up to this revision shows all that was stored before the last
    /// write of the ticket.
    fn is_reached_by(&self, last: Revision) -> bool {
        last.0 + 1 >= self.revision.0
    }
}

/// A request for a lock.
#[derive(Clone, Debug)]
pub struct TicketOwner {
    timing: LockTiming,
    ticket: Ticket,
    /// A number that no other owner has, and how often the ticket was begun anew.
    nonce: (u128, u32),
    asker: Asker,
    /// When the wait for others has begun.
    began: Instant,
    goal: Goal,
    phase: Phase,
    bucket: Option<BucketId>,
    /// The mark that the bucket lacks for this ticket.
    missing_mark: Option<Mark>,
    own: Option<Own>,
    /// The write of the own ticket that is under way.
    write: Option<PendingWrite>,
    /// When the request that is under way was made.
    requested: Instant,
    /// The highest revision of the bucket that is known.
    last: Revision,
    /// The time of the store at the last listing, when the own ticket stood; of a script.
    stood_at: Option<StoreTime>,
    /// A listing has to reach this revision to tell anything new.
    hinted: Revision,
    /// The keys whose hints are subscribed to.
    watched: BTreeSet<String>,
    /// When the tickets of others are listed next, unless a hint comes before.
    list_at: Instant,
    /// Whether the ticket is renewed without a listing until `list_at`.
    renews_alone: bool,
    /// Since when the names were free at every probe.
    quiet_since: Option<Instant>,
    /// Since when this process has seen the earlier tickets unmoved, and the bucket. If the clock
    /// has no name, nothing is noted for other processes.
    seen: Observed,
    /// The notes of other processes when the bucket was opened, and the revision of these notes.
    noted: (Revision, Observed),
    /// The last message to the asker.
    last_message: Option<ToFront>,
    /// Why the last renewal failed, if it did.
    why_unrenewed: Option<StoreError>,
    messages: Vec<ToFront>,
}

impl TicketOwner {
    /// Returns an owner with this ticket. `nonce` is a number that no other owner has; `wait` is
    /// how long the lock may be waited for, `None` for ever.
    pub fn new(
        timing: LockTiming,
        ticket: Ticket,
        nonce: u128,
        asker: Asker,
        wait: Option<Duration>,
        now: Instant,
    ) -> TicketOwner {
        TicketOwner {
            timing,
            ticket,
            nonce: (nonce, 0),
            asker,
            began: now,
            goal: Goal::Get(wait.map(|wait| now.after(wait))),
            phase: Phase::Closed,
            bucket: None,
            missing_mark: None,
            own: None,
            write: None,
            requested: now,
            last: Revision(0),
            stood_at: None,
            hinted: Revision(0),
            watched: BTreeSet::new(),
            list_at: now,
            renews_alone: false,
            quiet_since: None,
            seen: Observed::default(),
            noted: (Revision(0), Observed::default()),
            last_message: None,
            why_unrenewed: None,
            messages: Vec::new(),
        }
    }

    /// Shares notes with other processes that have this clock.
    #[must_use]
    pub fn with_notes(self, clock: &str) -> TicketOwner {
        TicketOwner { seen: Observed::nothing(clock, ""), ..self }
    }

    /// Returns the last element of the key of the own ticket.
    pub fn key_element(&self) -> String {
        let (nonce, times) = self.nonce;
        match (&self.own, self.asker) {
            (Some(own), _) => own.element.clone(),
            (None, Asker::Command(_)) => format!("{nonce:032x}{times:x}"),
            (None, Asker::Script { .. }) => format!("{ELEMENT_PREFIX}{nonce:032x}{times:x}"),
        }
    }

    /// Returns the ticket, as it is written next.
    #[cfg(test)]
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Returns when the command has to be dead if nothing else happens; `None` where none may
    /// run.
    pub fn kill_times(&self) -> Option<KillTimes> {
        match self.goal {
            Goal::Lost(times) => Some(times),
            Goal::Keep => self.valid_until().map(|until| self.timing.kill_times(until)),
            Goal::Get(_) | Goal::End(..) => None,
        }
    }

    /// Returns the new messages to the asker, each once.
    pub fn take_messages(&mut self) -> Vec<ToFront> {
        std::mem::take(&mut self.messages)
    }

    /// Returns V; `None` without a ticket.
    pub fn valid_until(&self) -> Option<Instant> {
        self.own.as_ref().map(|own| own.valid_until)
    }

    /// Returns the number of the ticket; `None` without one.
    pub fn term(&self) -> Option<u64> {
        self.own.as_ref().map(|own| own.number.0)
    }

    /// Returns the revision of the own ticket, 0 without one.
    fn own_revision(&self) -> Revision {
        self.own.as_ref().map_or(Revision(0), |own| own.revision)
    }

    /// Returns how often a ticket is renewed, which is how long a request may take.
    fn step(&self) -> Duration {
        match self.asker {
            Asker::Command(_) => self.timing.renewal(),
            Asker::Script { .. } => self.timing.renewal().min(STEP_MAX),
        }
    }

    /// Returns how long a write of the ticket is valid after the moment before it was sent.
    fn validity(&self) -> Duration {
        self.timing.validity_of(self.ticket.lifetime)
    }

    /// Returns when the ticket has run out, and also a write of it that may be stored.
    fn runs_out_at(&self) -> Option<Instant> {
        let pending = self.write.map(|write| write.first_sent.after(self.ticket.lifetime));
        self.valid_until().into_iter().chain(pending).max()
    }

    /// Returns whether others may have removed the ticket since its last acknowledged write, or
    /// since a first write that may have been stored. Then a later write may be stored all the
    /// same: a killed server has restored the entry, or the key has no entry again.
    fn has_run_out(&self, now: Instant) -> bool {
        let pending = self.write.map(|write| write.first_sent.after(self.validity()));
        self.valid_until().or(pending).is_some_and(|until| now >= until)
    }

    /// Returns the next step, which begins at this instant.
    pub fn next(&mut self, now: Instant) -> Step {
        self.requested = now;
        self.act_in_time(now);
        let by = self.answer_by(now);
        match &self.phase {
            Phase::Closed if self.bucket.is_none() => {
                Step::Open(by.max(self.began.after(REACH_MAX)))
            }
            Phase::Closed => Step::Open(by),
            Phase::WritingMark(mark) => Step::WriteMark(mark.clone(), by),
            Phase::Writing => self.next_write(now, by),
            Phase::ReadingOwn => Step::ReadOwn(by),
            Phase::Listing => Step::List(self.earlier_keys(), by),
            Phase::Ending if self.write.is_some() => Step::ReadOwn(by),
            Phase::Ending => {
                let at = self.own_revision();
                if let Goal::End(_, write) = &mut self.goal {
                    write.replace(at);
                }
                Step::End(at, self.ticket.lifetime, by)
            }
            Phase::Watching(keys) => Step::Watch(keys.clone()),
            Phase::Removing(dead) => match dead.last() {
                Some(dead) => Step::Remove(dead.clone(), by),
                None => Step::Rest(now),
            },
            Phase::Noting(_) => Step::WriteNotes(self.noted.0, self.seen.clone(), by),
            Phase::Resting(until, _) => Step::Rest(self.earlier(*until)),
            Phase::Done => Step::Exit,
        }
    }

    /// Returns the next write of the own ticket. One without an answer is repeated unchanged.
    fn next_write(&mut self, now: Instant, by: Instant) -> Step {
        let own = self.own.as_ref();
        let (expected, number) = (self.own_revision(), own.map(|own| own.number));
        let attempt = self.ticket.attempt.wrapping_add(1);
        if self.write.is_none() {
            let by = |own: &Own| Some(self.stood_at?.after(own.lifetime));
            self.ticket.counts_if_stored_by = own.and_then(by);
        }
        let write = self.write.get_or_insert(PendingWrite::send(expected, attempt, now));
        write.send_again(now);
        if let Asker::Script { .. } = self.asker {
            let at = now.after(self.timing.removal_wait(self.ticket.lifetime));
            let clock = Some(self.seen.clock().to_owned()).filter(|clock| !clock.is_empty());
            self.ticket.runs_out = clock.map(|clock| RunsOut { clock, at });
        }
        self.ticket.attempt = write.attempt;
        let (at, ticket) = (write.expected, self.ticket.clone());
        Step::Write(at, number, ticket, by)
    }

    fn earlier_keys(&self) -> EarlierKeys {
        self.own.as_ref().map(|own| own.earlier_keys.clone()).unwrap_or_default()
    }

    /// Returns when a store that fails is given up.
    fn store_limit(&self) -> Option<Instant> {
        match (&self.goal, self.asker) {
            (Goal::Get(limit), Asker::Command(_)) => *limit,
            // A script that does not wait still gives its first request one step.
            (Goal::Get(limit), Asker::Script { .. }) => {
                limit.map(|limit| limit.max(self.began.after(self.step())))
            }
            (Goal::Keep, _) => self.kill_times().map(|times| times.terminate_at),
            (Goal::Lost(_) | Goal::End(..), _) => None,
        }
    }

    /// Returns the earlier of this instant and when the store is given up.
    fn earlier(&self, until: Instant) -> Instant {
        self.store_limit().map_or(until, |limit| limit.min(until))
    }

    /// Returns when a request is given up: in time for the step after it. For a command that runs,
    /// sooner when V is near, since nobody kills the command during a request.
    fn answer_by(&self, now: Instant) -> Instant {
        let (least, by) = (now.after(self.step() / 4), now.after(self.step()));
        self.kill_times().map_or(by, |at| by.min(at.terminate_at).max(least).min(at.kill_at))
    }

    /// Takes in the result of a step, or an event.
    pub fn handle(&mut self, input: Input, now: Instant) {
        match input {
            Input::Opened(Ok(opened)) => self.opened(*opened, now),
            Input::Opened(Err(error)) => self.not_opened(error, now),
            Input::Written(written) => self.written(written, now),
            Input::Own(Ok((revision, ticket))) => self.own_read(revision, ticket, now),
            Input::Own(Err(why)) => self.unanswered(why, self.phase.clone(), now),
            Input::Listed(Ok(listed)) => self.listed(listed, now),
            Input::Listed(Err(why)) => self.not_listed(why, now),
            Input::Subscribed => {
                if let Phase::Watching(keys) = &self.phase {
                    self.watched.extend(keys.iter().cloned());
                    // The renewal follows the subscription: a hint tells of a change that is stored
                    // after it, and the listing shows an earlier one.
                    self.renews_alone = false;
                    self.phase = Phase::Writing;
                }
            }
            // The ticket that was renewed may have got its slot.
            Input::Renewed(revision) if matches!(self.ticket.mode, Mode::Slots(_)) => {
                self.hear_of_change(revision, now);
            }
            // The owner of that ticket lives: nothing is listed before `list_at`. A script lists
            // all the same: the listing tells by when its next renewal has to be stored.
            Input::Renewed(_) => self.renews_alone = self.stood_at.is_none(),
            Input::Ended(revision) => self.hear_of_change(revision, now),
            Input::Rested => self.rested(now),
            Input::Gone(_) => {
                if !matches!(self.phase, Phase::Done) && !matches!(self.goal, Goal::Lost(_)) {
                    self.phase = Phase::Closed;
                }
            }
            Input::Unused => {
                if self.goal == Goal::Keep {
                    self.lose("it was granted to a process that was stopped", now);
                }
            }
            // The front may say so twice. The write that ends the ticket may be under way.
            Input::Done => {
                if !matches!(self.goal, Goal::End(..)) {
                    self.end(End::Released, now);
                }
            }
        }
    }

    /// A ticket has changed in a way that may matter. A listing is to show that.
    fn hear_of_change(&mut self, revision: Option<Revision>, now: Instant) {
        self.hinted = self.hinted.max(revision.unwrap_or(self.hinted));
        self.renews_alone = false;
        if let (Goal::Get(_), Phase::Resting(_, then)) = (&self.goal, &self.phase)
            && **then == Phase::Listing
        {
            self.phase = self.listing_or_renewal(now);
        }
    }

    /// Returns whether the ticket waits, and the others need not be listed yet.
    fn lists_later(&self, now: Instant) -> bool {
        self.renews_alone && self.own.is_some() && now < self.list_at
    }

    /// A wait is over.
    fn rested(&mut self, now: Instant) {
        let Phase::Resting(until, then) = &self.phase else { return };
        if now >= self.earlier(*until) {
            let is_listing = **then == Phase::Listing;
            self.phase = if is_listing { self.listing_or_renewal(now) } else { (**then).clone() };
        }
    }

    /// Returns the phase of a ticket that waits when something may have changed. However many hints
    /// of changes come, the ticket is renewed in time.
    fn listing_or_renewal(&self, now: Instant) -> Phase {
        let is_due = self.own.as_ref().is_some_and(|own| now >= own.renew_at);
        if is_due { Phase::Writing } else { Phase::Listing }
    }
}

#[cfg(test)]
mod tests;
