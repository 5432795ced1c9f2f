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
use crate::core::event::{StoreError, StoreErrorKind, Written};
use crate::core::record::Incarnation;
use crate::core::time::{Instant, StoreTime};
use crate::core::timing::REACH_MAX;

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
    Closed,
    Listing,
    Ending(Box<StoredTicket>),
    Resting(Instant, Box<Phase>),
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
        match &self.phase {
            Phase::Closed => Step::Open(by),
            Phase::Listing => Step::List(EarlierKeys::default(), by),
            Phase::Ending(other) => Step::Remove((**other).clone(), by),
            Phase::Resting(until, _) => Step::Rest(*until),
            Phase::Done(_) => Step::Exit,
        }
    }

    /// Takes in the result of a step.
    pub fn handle(&mut self, input: Input, now: Instant) {
        match input {
            Input::Opened(Ok(_)) => self.phase = Phase::Listing,
            Input::Opened(Err(error)) if error.kind.is_final() => {
                self.end(Released::Refused(error));
            }
            Input::Opened(Err(error)) => self.failed(error.text, Phase::Closed, now),
            Input::Listed(Ok(listed)) => self.listed(listed),
            Input::Listed(Err(why)) => self.failed(why, Phase::Listing, now),
            Input::Written(written) => self.written(written, now),
            Input::Rested => {
                if let Phase::Resting(until, then) = &self.phase
                    && now >= *until
                {
                    self.phase = (**then).clone();
                }
            }
            Input::Gone(_) => {
                if self.ended().is_none() {
                    self.phase = Phase::Closed;
                }
            }
            Input::Own(_)
            | Input::WrittenAndListed(..)
            | Input::Subscribed
            | Input::Renewed(_)
            | Input::Ended(_)
            | Input::Unused
            | Input::Done => {}
        }
    }

    fn end(&mut self, released: Released) {
        self.phase = Phase::Done(released);
    }

    /// A request had no result: it is made again after a pause, until the store is given up.
    fn failed(&mut self, why: String, then: Phase, now: Instant) {
        if now >= self.until {
            self.end(Released::Refused(StoreErrorKind::Unreachable.error(why)));
        } else {
            self.phase = Phase::Resting(now.after(PAUSE), Box::new(then));
        }
    }

    fn written(&mut self, written: Written, now: Instant) {
        let Phase::Ending(other) = self.phase.clone() else { return };
        match written {
            Written::Stored(_) => {
                self.ended_by_this(&other, !other.has_run_out(self.listed_at));
                self.next_target();
            }
            Written::Moved(_) => self.phase = Phase::Listing,
            Written::Denied(StoreError { text: why, .. }) | Written::Unknown(why) => {
                self.failed(why, Phase::Listing, now);
            }
        }
    }

    /// This process has ended a ticket. `was_held`: the ticket had not run out by then.
    fn ended_by_this(&mut self, other: &StoredTicket, was_held: bool) {
        let targets = self.targets.iter_mut();
        targets.for_each(|all| all.retain(|target| target.number != other.number));
        if let Ok(Ticket { token, mode, .. }) = &other.ticket {
            let (term, holder, mode) = (other.number.0, token.clone(), *mode);
            self.broken.push(Broken { term, holder, mode });
            self.was_held |= was_held;
        }
    }

    fn next_target(&mut self) {
        if let Some(first) = self.targets.iter().flatten().next() {
            self.phase = Phase::Ending(Box::new(first.clone()));
            return;
        }
        let broken = std::mem::take(&mut self.broken);
        self.phase = Phase::Done(match &self.whose {
            Whose::OfHolder(_) => Released::Broken(broken),
            Whose::Own(_) if self.was_held => Released::Ended,
            Whose::Own(_) => Released::Absent(self.other.take()),
        });
    }

    fn listed(&mut self, TicketsListed { mut standing, ended, at, .. }: TicketsListed) {
        self.listed_at = at;
        standing.sort_by_key(|other| other.number);
        standing
            .retain(|other| other.ticket.as_ref().map_or(true, |it| it.name.overlaps(&self.name)));
        match self.targets.take() {
            None => self.choose(&standing),
            Some(targets) => self.compare(targets, &standing, &ended),
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
    fn choose(&mut self, standing: &[StoredTicket]) {
        let has_name =
            |other: &StoredTicket| other.ticket.as_ref().is_ok_and(|it| it.name == self.name);
        let is_target =
            |other: &&StoredTicket| other.ticket.as_ref().is_ok_and(|it| self.is_target(it));
        let (targets, others): (Vec<_>, Vec<_>) =
            standing.iter().filter(is_target).cloned().partition(has_name);
        let of_others = standing.first().filter(|_| targets.is_empty());
        self.other = others.first().or(of_others).map(of_requester);
        match (&self.whose, targets.is_empty(), standing.first()) {
            (Whose::OfHolder(_), true, None) => self.end(Released::Absent(None)),
            (Whose::OfHolder(_), true, Some(first)) => {
                self.end(Released::NotHeldBy(of_requester(first)));
            }
            (_, _, _) => {
                self.targets = Some(targets);
                self.next_target();
            }
        }
    }

    /// Compares the tickets that are still to be ended with those that stand, and with those that
    /// this process has ended. Where another process has ended a ticket, others may have had the
    /// names since.
    fn compare(&mut self, targets: Vec<StoredTicket>, standing: &[StoredTicket], ended: &[String]) {
        let found = |target: &StoredTicket| {
            standing.iter().find(|other| other.number == target.number).cloned()
        };
        // The write that ends the first of them may have had no answer.
        if let Some(first) = targets.first().filter(|first| ended.contains(&first.key)) {
            self.ended_by_this(first, !first.has_run_out(self.listed_at));
        }
        self.targets = Some(targets.iter().filter_map(found).collect());
        self.next_target();
    }
}

#[cfg(test)]
mod tests;
