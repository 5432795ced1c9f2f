//! The renewer's decisions: how a ticket is written, waited for, renewed, lost and ended.
//!
//! ```text
//!             opened              no mark: wait T      stored
//!  Closed ------------> Marking ----------------> Writing ------> Listing
//!    ^ the store is lost                           ^  |  unknown     | blockers
//!    |                                    renewal  |  v              v
//!    +-------------------------------------------- Resting <---- Watching, Removing
//! ```
//!
//! [`TicketOwner::next`] says what is done next, [`TicketOwner::handle`] takes its result in. One
//! request is under way at a time. What the ticket is for stands in the goal: it is to be
//! granted, kept, or ended.
//!
//! # Rules
//!
//! 1. Nothing is granted in a bucket without the mark. A bucket that was lost and made anew
//!    looks like one where nobody holds anything: all tickets of the lost one run out first.
//! 2. Every write names the revision that it replaces. One without an answer is repeated
//!    unchanged until its outcome is known; the old V stands until then. If an earlier copy of it
//!    was stored, V counts from the first copy.
//! 3. Only a listing that reaches the last write of the ticket says who is absent.
//! 4. Another revision of the own key, another bucket, or a bucket that has gone back is the loss
//!    of a granted ticket at once. A ticket that waits begins anew.
//! 5. So does a ticket whose last acknowledged write was sent V or more ago, whatever stands under
//!    its key: others may have removed it, and a server that is killed restores what the marker of
//!    an end has replaced, once it has removed that marker.
//! 6. A ticket of others is removed when its revision was not seen to move for its lifetime, with
//!    the drift, on this host's clock.
//! 7. A granted ticket is ended only when its command has ended.

mod notes;
mod results;
mod soft;
mod waiting;

use std::collections::BTreeSet;
use std::time::Duration;

use self::notes::Waited;
pub use self::soft::Soft;
use super::earlier_keys::EarlierKeys;
use super::step::{End, Input, Step, ToFront};
use super::ticket::{StoredTicket, Ticket};
use super::times::{KillTimes, LockTiming};
use crate::core::event::StoreErrorKind;
use crate::core::observed::Observed;
use crate::core::record::{BucketId, Revision};
use crate::core::tickets::Mark;
use crate::core::time::Instant;
use crate::core::timing::REACH_MAX;
use crate::core::write::PendingWrite;

/// Bounds of the pause before a request is repeated.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// Longer than anything is waited for.
const LONG: Duration = Duration::from_secs(3600);

/// What the ticket is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Goal {
    /// It is to be granted, until this instant at the latest; `None` for ever.
    Get(Option<Instant>),
    /// It was granted.
    Keep,
    /// It was lost. The command is being ended.
    Lost(KillTimes),
    /// It is to end, and why; since when. The front waits for that for R.
    End(End, Instant),
}

/// What is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// The bucket is to be opened.
    Closed,
    ReadingMark,
    /// The mark is written at this instant: tickets of a lost bucket have run out then.
    Young(Instant, Mark),
    /// The own ticket is written, renewed or ended.
    Writing,
    ReadingOwn,
    Listing,
    /// The names are probed: there is no own ticket.
    Probing,
    /// The own ticket, which is not granted, is ended; another one follows.
    Withdrawing,
    /// These are to be heard of.
    Watching(BTreeSet<String>),
    /// The last of these is removed, then the ones before it.
    Removing(Vec<StoredTicket>),
    /// Why the lock is not had in time; another process may have noted more of what is waited for.
    Recalling(String, Waited),
    /// What was seen is noted for another process: this, in the place of that revision.
    Noting(String, Revision, Observed),
    /// Nothing is done until this instant; then that phase begins.
    Resting(Instant, Box<Phase>),
    Done,
}

/// The own ticket in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Own {
    number: Revision,
    revision: Revision,
    /// The moment before the last stored write of it was sent.
    sent: Instant,
    earlier_keys: EarlierKeys,
}

impl Own {
    /// Returns V.
    fn valid_until(&self, timing: LockTiming) -> Instant {
        self.sent.after(timing.validity())
    }

    /// Returns whether a listing up to this revision shows all that was stored before the last
    /// write of the ticket.
    fn is_reached_by(&self, last: Revision) -> bool {
        last.0 + 1 >= self.revision.0
    }

    /// Returns when the ticket is renewed next.
    fn renew_at(&self, timing: LockTiming) -> Instant {
        self.sent.after(timing.renewal())
    }
}

/// One request for a lock.
#[derive(Clone, Debug)]
pub struct TicketOwner {
    timing: LockTiming,
    ticket: Ticket,
    /// A number that no other owner has, and how often the ticket was begun anew.
    nonce: (u128, u32),
    began: Instant,
    goal: Goal,
    phase: Phase,
    bucket: Option<BucketId>,
    own: Option<Own>,
    /// The write of it that is under way.
    write: Option<PendingWrite>,
    /// The highest revision of the bucket that is known.
    last: Revision,
    /// A listing has to reach this revision to tell anything new.
    hinted: Revision,
    /// The keys whose hints come.
    watched: BTreeSet<String>,
    soft: Option<Soft>,
    /// Since when the names were free at every probe.
    quiet_since: Option<Instant>,
    /// Since when the tickets before this one have not moved, and the bucket is there. Without the
    /// name of a clock, other processes of this host note nothing.
    seen: Observed,
    /// What was told last.
    last_message: Option<ToFront>,
    /// Why the last renewal failed, if it did.
    why_unrenewed: Option<String>,
    messages: Vec<ToFront>,
}

impl TicketOwner {
    /// Returns an owner with this ticket. `nonce` is a number that no other owner has; `wait` is
    /// how long the lock may be waited for, `None` for ever.
    pub fn new(
        timing: LockTiming,
        ticket: Ticket,
        nonce: u128,
        wait: Option<Duration>,
        now: Instant,
    ) -> TicketOwner {
        TicketOwner {
            timing,
            ticket,
            nonce: (nonce, 0),
            began: now,
            goal: Goal::Get(wait.map(|wait| now.after(wait))),
            phase: Phase::Closed,
            bucket: None,
            own: None,
            write: None,
            last: Revision(0),
            hinted: Revision(0),
            watched: BTreeSet::new(),
            soft: None,
            quiet_since: None,
            seen: Observed::default(),
            last_message: None,
            why_unrenewed: None,
            messages: Vec::new(),
        }
    }

    /// Returns the last element of the key of the own ticket.
    pub fn key_element(&self) -> String {
        let (nonce, times) = self.nonce;
        format!("{nonce:032x}{times:x}")
    }

    /// Returns the ticket, as it is written next.
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

    /// Returns what the front is to be told.
    pub fn take_messages(&mut self) -> Vec<ToFront> {
        std::mem::take(&mut self.messages)
    }

    /// Returns V; `None` without a ticket.
    pub fn valid_until(&self) -> Option<Instant> {
        self.own.as_ref().map(|own| own.valid_until(self.timing))
    }

    /// Returns when the ticket has run out, also one that may have been stored.
    fn runs_out_at(&self) -> Option<Instant> {
        let pending = self.write.map(|write| write.first_sent.after(self.timing.lifetime()));
        self.valid_until().into_iter().chain(pending).max()
    }

    /// Returns what is to be done now. The step begins at this instant.
    pub fn next(&mut self, now: Instant) -> Step {
        if self.goal == Goal::Keep && self.kill_times().is_some_and(|at| now >= at.terminate_at) {
            let why = self.why_unrenewed.iter().map(|why| format!(": {why}"));
            let why = format!("it was not renewed in time{}", why.collect::<String>());
            self.lose(&why, now);
        }
        if let Goal::End(end, since) = self.goal.clone() {
            if self.runs_out_at().is_none_or(|until| now >= until) {
                // It runs out by itself.
                self.finish();
            } else if now >= since.after(self.timing.renewal()) {
                // What is left to be done holds nobody up.
                self.tell(ToFront::Ended(end));
            }
        }
        let by = self.answer_by(now);
        match &self.phase {
            Phase::Closed if self.bucket.is_none() => {
                Step::Open(by.max(self.began.after(REACH_MAX)))
            }
            Phase::Closed => Step::Open(by),
            Phase::ReadingMark => Step::ReadMark(by),
            Phase::Young(until, _) if now < *until => Step::Rest(self.earlier(*until)),
            Phase::Young(_, mark) => Step::WriteMark(mark.clone(), by),
            Phase::Writing => self.next_write(now, by),
            Phase::ReadingOwn => Step::ReadOwn(by),
            Phase::Listing => Step::List(self.earlier_keys(), by),
            Phase::Probing => Step::List(EarlierKeys::default(), by),
            Phase::Withdrawing => self.next_end(by),
            Phase::Watching(keys) => Step::Watch(keys.clone()),
            Phase::Removing(dead) => match dead.last() {
                Some(dead) => Step::Remove(dead.clone(), by),
                None => Step::Rest(now),
            },
            Phase::Recalling(..) => Step::ReadNotes(by),
            Phase::Noting(_, at, seen) => Step::WriteNotes(*at, seen.clone(), by),
            Phase::Resting(until, _) => Step::Rest(self.earlier(*until)),
            Phase::Done => Step::Exit,
        }
    }

    /// Returns the next write of the own ticket. One without an answer is repeated unchanged.
    fn next_write(&mut self, now: Instant, by: Instant) -> Step {
        if matches!(self.goal, Goal::End(..)) {
            return match self.write {
                Some(_) => Step::ReadOwn(by),
                None => self.next_end(by),
            };
        }
        if self.own.is_none() && self.has_run_out(now) {
            self.take_new_key();
        }
        let expected = self.own.as_ref().map_or(Revision(0), |own| own.revision);
        let number = self.ticket.attempt + 1;
        let write = self.write.get_or_insert(PendingWrite::send(expected, number, now));
        write.send_again(now);
        self.ticket.attempt = write.attempt;
        let at = write.expected;
        let known = self.own.as_ref().map(|own| own.number);
        let ticket = self.ticket.clone();
        match self.goal {
            Goal::Get(_) => Step::WriteAndList(at, known, ticket, self.earlier_keys(), by),
            Goal::Keep | Goal::Lost(_) | Goal::End(..) => Step::Write(at, known, ticket, by),
        }
    }

    fn earlier_keys(&self) -> EarlierKeys {
        self.own.as_ref().map(|own| own.earlier_keys.clone()).unwrap_or_default()
    }

    fn next_end(&self, by: Instant) -> Step {
        let at = self.own.as_ref().map_or(Revision(0), |own| own.revision);
        Step::End(at, self.timing.lifetime(), by)
    }

    /// Returns the earlier of this instant and the deadline of the goal.
    fn earlier(&self, until: Instant) -> Instant {
        let limit = match &self.goal {
            Goal::Get(limit) => *limit,
            Goal::Keep => self.kill_times().map(|times| times.terminate_at),
            Goal::Lost(_) | Goal::End(..) => None,
        };
        limit.map_or(until, |limit| limit.min(until))
    }

    /// Returns when a request is given up: after R, in time for what comes after it, and when
    /// the command has to be killed, which nobody does during a request.
    fn answer_by(&self, now: Instant) -> Instant {
        let r = self.timing.renewal();
        let by = self.earlier(now.after(r)).max(now.after(r / 4));
        self.kill_times().map_or(by, |times| by.min(times.kill_at))
    }

    /// How long to wait before a request is repeated.
    fn pause(&self) -> Duration {
        (self.timing.renewal() / 16).clamp(PAUSE_MIN, PAUSE_MAX)
    }

    fn rest(&mut self, now: Instant, then: Phase) {
        self.phase = Phase::Resting(now.after(self.pause()), Box::new(then));
    }

    fn tell(&mut self, message: ToFront) {
        if self.last_message.as_ref() != Some(&message) {
            self.last_message = Some(message.clone());
            self.messages.push(message);
        }
    }

    /// Takes in what happened.
    pub fn handle(&mut self, input: Input, now: Instant) {
        match input {
            Input::Opened(Ok(info)) => self.opened(info, now),
            Input::Opened(Err(error)) => self.not_opened(error, now),
            Input::Mark(Ok(mark)) => self.marked(mark, now),
            Input::Mark(Err(why)) => self.failed(why, Phase::ReadingMark, now),
            Input::Written(written) => self.written(written, now),
            Input::WrittenAndListed(written, listed) => {
                self.written(written, now);
                // It may have been made before writes that were stored before this one.
                let reaches = |last| self.own.as_ref().is_some_and(|own| own.is_reached_by(last));
                if self.phase == Phase::Listing
                    && listed.as_ref().is_ok_and(|(_, last)| reaches(*last))
                {
                    self.handle(Input::Listed(listed), now);
                }
            }
            Input::Notes(notes) => self.recalled(notes.ok(), now),
            Input::Own(Ok((revision, ticket))) => self.own_read(revision, ticket, now),
            Input::Own(Err(why)) => self.failed(why, Phase::Writing, now),
            Input::Listed(Ok((standing, last))) => self.listed(standing, last, now),
            Input::Listed(Err(why)) => self.failed(why, self.listing_phase(), now),
            Input::Subscribed => {
                if let Phase::Watching(keys) = &self.phase {
                    self.watched.extend(keys.iter().cloned());
                    // The renewal travels behind the subscription: a change that is stored
                    // later is told, an earlier one is in the listing that follows.
                    self.phase = Phase::Writing;
                }
            }
            Input::Hint(revision) => {
                self.hinted = self.hinted.max(revision.unwrap_or(self.hinted));
                if let (Goal::Get(_), Phase::Resting(_, then)) = (&self.goal, &self.phase)
                    && **then == Phase::Listing
                {
                    self.phase = self.listing_or_renewal(now);
                }
            }
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
            Input::Done => self.end(End::Released, now),
        }
    }

    /// The ticket is to end, if there is one.
    fn end(&mut self, end: End, now: Instant) {
        self.goal = Goal::End(end, now);
        match (&self.own, &self.write, &self.phase) {
            (None, None, _) => self.finish(),
            (_, _, Phase::Closed | Phase::Done) => {}
            (_, _, _) => self.phase = Phase::Writing,
        }
    }

    /// Returns the phase of a ticket that waits when something may have changed. However often that
    /// is said, the ticket is renewed in time.
    fn listing_or_renewal(&self, now: Instant) -> Phase {
        let renew_at = self.own.as_ref().map(|own| own.renew_at(self.timing));
        let is_due = renew_at.is_some_and(|at| now >= at);
        if is_due { Phase::Writing } else { self.listing_phase() }
    }

    fn finish(&mut self) {
        if let Goal::End(end, _) = &self.goal
            && self.phase != Phase::Done
        {
            let end = end.clone();
            self.phase = Phase::Done;
            self.tell(ToFront::Ended(end));
        }
    }

    /// Returns the phase in which the tickets of others are listed.
    fn listing_phase(&self) -> Phase {
        if self.own.is_some() { Phase::Listing } else { Phase::Probing }
    }

    /// A granted ticket is lost. Nothing is done until its command has ended.
    fn lose(&mut self, why: &str, now: Instant) {
        let until = self.valid_until().unwrap_or(now);
        self.goal = Goal::Lost(self.timing.kill_times_after_loss(now, until));
        self.phase = Phase::Resting(now.after(LONG), Box::new(Phase::Done));
        self.tell(ToFront::Lost(why.to_owned()));
    }

    /// The next ticket has another key. A key is used once: its tombstone is the last entry that
    /// any owner knows of, wherever it is read.
    fn take_new_key(&mut self) {
        (self.own, self.write, self.ticket.slot) = (None, None, None);
        self.ticket.is_granted = false;
        self.nonce.1 += 1;
    }

    /// The own ticket does not stand any more, or not as it was.
    fn gone(&mut self, why: &str, now: Instant) {
        match self.goal {
            Goal::Get(_) => {
                self.take_new_key();
                self.begin(now);
            }
            Goal::Keep => self.lose(why, now),
            Goal::Lost(_) => {}
            Goal::End(..) => {
                self.own = None;
                self.finish();
            }
        }
    }

    /// Ends the wait if its time is over; says so.
    fn gave_up(&mut self, why: &str, now: Instant) -> bool {
        let is_over = matches!(self.goal, Goal::Get(Some(limit)) if now >= limit);
        if is_over {
            self.end(End::NotHad(why.to_owned()), now);
        }
        is_over
    }

    /// A request had no result: it is made again after a pause.
    fn failed(&mut self, why: String, then: Phase, now: Instant) {
        if let Goal::Get(limit) = self.goal {
            if limit.is_some_and(|limit| now >= limit) {
                return self.end(End::Refused(StoreErrorKind::Unreachable, why), now);
            }
            self.tell(ToFront::Waiting { ahead: 0, why });
        } else {
            self.why_unrenewed = Some(why);
        }
        self.rest(now, then);
    }
}

#[cfg(test)]
mod tests;
