//! The decisions of `putex release`: how the tickets of a requester, or of another, are ended.
//!
//! A write that ends a ticket names its revision. After a write that does not find this revision
//! the tickets are listed again: the ticket was renewed, or has ended. Its marker says whether an
//! earlier copy of the write has ended it. Every ticket that is ended stood in the first listing;
//! later ones are not touched.
//!
//! A ticket that has run out is ended too, and its requester is told that it had none: another may
//! have had the names since. A server that is killed may have restored it.

use std::time::Duration;

use super::earlier_keys::EarlierKeys;
use super::grab::STEP_MAX;
use super::owner::of_requester;
use super::step::{Input, Step, TicketsListed};
use super::ticket::{Mode, Name, StoredTicket, Ticket};
use crate::core::event::{StoreError, StoreErrorKind as Kind, Written};
use crate::core::record::Incarnation;
use crate::core::time::{Instant, StoreTime};
use crate::core::timing::REACH_MAX;
use crate::core::write::{Outcome, PendingWrite};

/// The pause before a request is repeated.
const PAUSE: Duration = Duration::from_millis(100);

/// A ticket that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The number of the ticket.
    pub term: u64,
    /// The holder of the ticket.
    pub holder: String,
    /// The mode of the ticket.
    pub mode: Mode,
}

/// The end of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// The ticket stood until now, and has ended.
    Ended,
    /// There was no ticket: it had run out, or never was. With another ticket of the requester, for
    /// people.
    Absent(Option<String>),
    /// The tickets that were broken; none if all have ended by themselves meanwhile.
    Broken(Vec<Broken>),
    /// Another holder has the name; its ticket, for people.
    NotHeldBy(String),
    /// The store does not serve the request.
    Refused(StoreError),
}

/// The requester whose tickets are ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The ticket of this requester of `putex grab`.
    Own(Incarnation),
    /// All tickets of the holder with this token.
    OfHolder(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// The bucket is to be opened, also after a failure.
    Closed,
    Listing,
    /// The first of the tickets is ended.
    Ending,
    /// Nothing is done until then.
    Resting(Instant),
    Done(Released),
}

/// A process that ends tickets for this name.
#[derive(Clone, Debug)]
pub struct Releaser {
    name: Name,
    whose: Whose,
    until: Instant,
    phase: Phase,
    /// The tickets to be ended; `None` before they were listed.
    targets: Option<Vec<StoredTicket>>,
    /// The time of the store at the last listing.
    listed_at: Option<StoreTime>,
    broken: Vec<Broken>,
    /// A ticket that was ended had not run out.
    was_held: bool,
    /// The write that ends the first of the tickets.
    write: Option<PendingWrite>,
    /// Another ticket of the requester, for people.
    other: Option<String>,
}

impl Releaser {
    /// Returns a releaser for tickets of exactly this name, in a bucket that is open.
    pub fn new(name: Name, whose: Whose, now: Instant) -> Releaser {
        Releaser {
            name,
            whose,
            until: now.after(REACH_MAX),
            phase: Phase::Listing,
            targets: None,
            listed_at: None,
            broken: Vec::new(),
            was_held: false,
            write: None,
            other: None,
        }
    }

    /// Returns how the release has ended; `None` before that.
    pub fn ended(&self) -> Option<&Released> {
        if let Phase::Done(released) = &self.phase { Some(released) } else { None }
    }

    /// Returns the next step.
    pub fn next(&self, now: Instant) -> Step {
        let by = now.after(STEP_MAX).min(self.until).max(now.after(STEP_MAX / 4));
        match (&self.phase, self.targets.iter().flatten().next()) {
            (Phase::Closed, _) => Step::Open(by),
            (Phase::Ending, Some(first)) => Step::Remove(first.clone(), by),
            (Phase::Listing | Phase::Ending, _) => Step::List(EarlierKeys::default(), by),
            (Phase::Resting(until), _) => Step::Rest(*until),
            (Phase::Done(_), _) => Step::Exit,
        }
    }

    /// Takes in the result of a step.
    pub fn handle(&mut self, input: Input, now: Instant) {
        match input {
            Input::Opened(Ok(_)) => self.phase = Phase::Listing,
            Input::Opened(Err(error)) => self.failed(error, now),
            Input::Listed(Err(why)) => self.failed(Kind::Unreachable.error(why), now),
            Input::Listed(Ok(listed)) => self.listed(listed, now),
            Input::Written(written) => self.written(written, now),
            Input::Rested if matches!(self.phase, Phase::Resting(until) if now >= until) => {
                self.phase = Phase::Closed;
            }
            Input::Gone(_) if self.ended().is_none() => self.phase = Phase::Closed,
            Input::Rested
            | Input::Gone(_)
            | Input::Own(_)
            | Input::Subscribed
            | Input::Renewed(_)
            | Input::Ended(_)
            | Input::Unused
            | Input::Done => {}
        }
    }

    fn written(&mut self, written: Written, now: Instant) {
        let Some(write) = &mut self.write else { return };
        match write.answered(written) {
            Outcome::Held { .. } => {
                self.first_has_ended();
                self.next_target(now);
            }
            Outcome::Lost | Outcome::Replaced | Outcome::Read => self.phase = Phase::Listing,
            Outcome::Refused(error) => self.failed(error, now),
            Outcome::Repeat(why) => self.failed(Kind::Unreachable.error(why), now),
        }
    }

    /// A request had no result: the bucket is opened again after a pause, until it is given up.
    fn failed(&mut self, mut error: StoreError, now: Instant) {
        self.phase = match error.kind.is_final() || now >= self.until {
            true => {
                let ended = |it: &Broken| format!("; the ticket with term {} has ended", it.term);
                error.text.extend(self.broken.iter().map(ended));
                Phase::Done(Released::Refused(error))
            }
            false => Phase::Resting(now.after(PAUSE)),
        };
    }

    /// This process has ended the first of the tickets. One that had run out by then may have been
    /// removed before, and another have had the names since.
    fn first_has_ended(&mut self) {
        let Some(targets) = self.targets.as_mut().filter(|all| !all.is_empty()) else { return };
        let first = targets.remove(0);
        self.was_held |= !first.has_run_out(self.listed_at);
        if let Ok(Ticket { token: holder, mode, .. }) = first.ticket {
            self.broken.push(Broken { term: first.number.0, holder, mode });
        }
    }

    fn next_target(&mut self, now: Instant) {
        if let Some(at) = self.targets.iter().flatten().next().map(|first| first.revision) {
            // Another revision of the ticket is another write.
            self.write = self.write.filter(|write| write.expected == at);
            self.write.get_or_insert(PendingWrite::send(at, 0, now)).send_again(now);
            self.phase = Phase::Ending;
            return;
        }
        let broken = std::mem::take(&mut self.broken);
        self.phase = Phase::Done(match &self.whose {
            Whose::OfHolder(_) => Released::Broken(broken),
            Whose::Own(_) if self.was_held => Released::Ended,
            Whose::Own(_) => Released::Absent(self.other.take()),
        });
    }

    fn listed(&mut self, listed: TicketsListed, now: Instant) {
        let TicketsListed { mut standing, ended, at, .. } = listed;
        self.listed_at = at;
        standing.sort_by_key(|other| other.number);
        standing
            .retain(|other| other.ticket.as_ref().map_or(true, |it| it.name.overlaps(&self.name)));
        match self.targets {
            None => self.choose(&standing, now),
            Some(_) => self.compare(&standing, &ended, now),
        }
    }

    /// Returns whether a ticket belongs to the requester whose tickets are ended.
    fn is_target(&self, ticket: &Ticket) -> bool {
        match &self.whose {
            Whose::Own(incarnation) => ticket.incarnation == *incarnation,
            Whose::OfHolder(holder) => ticket.token == *holder,
        }
    }

    /// Chooses the tickets to be ended.
    fn choose(&mut self, standing: &[StoredTicket], now: Instant) {
        let has_name =
            |other: &StoredTicket| other.ticket.as_ref().is_ok_and(|it| it.name == self.name);
        let is_target =
            |other: &&StoredTicket| other.ticket.as_ref().is_ok_and(|it| self.is_target(it));
        let (targets, others): (Vec<_>, Vec<_>) =
            standing.iter().filter(is_target).cloned().partition(has_name);
        let of_others = standing.first().filter(|_| targets.is_empty());
        self.other = others.first().or(of_others).map(of_requester);
        match (&self.whose, targets.is_empty(), standing.first()) {
            (Whose::OfHolder(_), true, None) => self.phase = Phase::Done(Released::Absent(None)),
            (Whose::OfHolder(_), true, Some(first)) => {
                self.phase = Phase::Done(Released::NotHeldBy(of_requester(first)));
            }
            (_, _, _) => {
                self.targets = Some(targets);
                self.next_target(now);
            }
        }
    }

    /// Compares the tickets that are still to be ended with those that stand, and with those that
    /// this process has ended. Where another process has ended a ticket, others may have had the
    /// names since.
    fn compare(&mut self, standing: &[StoredTicket], ended: &[String], now: Instant) {
        let found = |target: &StoredTicket| {
            standing.iter().find(|other| other.number == target.number).cloned()
        };
        // The write that ends the first of them may have had no answer.
        let mut targets = self.targets.iter().flatten();
        if targets.next().filter(|first| ended.contains(&first.key)).is_some() {
            self.first_has_ended();
        }
        self.targets = Some(self.targets.iter().flatten().filter_map(found).collect());
        self.next_target(now);
    }
}

#[cfg(test)]
mod tests;
