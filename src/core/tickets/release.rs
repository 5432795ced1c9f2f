//! The decisions of `putex release`: how the ticket of a requester is ended, and how those of
//! another are broken.
//!
//! A write that ends a ticket names its revision. One that does not find it reads again: the
//! ticket was renewed, or has ended. Every ticket that is broken stood in the first listing;
//! later ones are not touched.

use std::time::Duration;

use super::earlier_keys::EarlierKeys;
use super::grab::deciding::of_requester;
use super::grab::element_in;
use super::step::{Input, Step};
use super::ticket::{Mode, Name, StoredTicket, Ticket};
use crate::core::event::{StoreErrorKind, Written};
use crate::core::record::{BucketId, Incarnation, Revision};
use crate::core::time::Instant;
use crate::core::timing::REACH_MAX;

/// A request has an answer within this time, or is made again.
const REQUEST_MAX: Duration = Duration::from_secs(5);

/// The store is tried for so long: an election of a leader takes up to 8 s.
const PATIENCE: Duration = REACH_MAX;

/// How long to wait until a request is repeated.
const PAUSE: Duration = Duration::from_millis(100);

/// A ticket that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Its number.
    pub term: u64,
    /// Whose it was.
    pub holder: String,
    /// What it was for.
    pub mode: Mode,
}

/// How it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// The ticket stood until now, and has ended.
    Ended,
    /// There was no ticket: it had run out, or never was. What else the requester has there.
    Absent(Option<String>),
    /// These were broken. None if they have ended by themselves meanwhile.
    Broken(Vec<Broken>),
    /// Another one has the name; who.
    NotHeldBy(String),
    /// The store does not serve it.
    Refused(StoreErrorKind, String),
}

/// Whose tickets are ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// That of this requester of `putex grab`, whose key has a last element that begins so.
    Own(Incarnation, String),
    /// All of the one with this token.
    OfHolder(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Closed,
    ReadingOwn,
    Listing,
    Ending(Revision),
    Breaking(Box<StoredTicket>),
    Resting(Instant, Box<Phase>),
    Done(Released),
}

/// One process that ends tickets for this name.
#[derive(Clone, Debug)]
pub struct Releaser {
    name: Name,
    whose: Whose,
    bucket: Option<BucketId>,
    until: Instant,
    phase: Phase,
    /// A write that was to end the ticket had no answer.
    is_unknown: bool,
    /// The tickets to be broken, and whether a write that was to do it had no answer; `None`
    /// before they were listed.
    targets: Option<Vec<(StoredTicket, bool)>>,
    broken: Vec<Broken>,
}

impl Releaser {
    /// Returns one for tickets of exactly this name.
    pub fn new(name: Name, whose: Whose, now: Instant) -> Releaser {
        Releaser {
            name,
            whose,
            bucket: None,
            until: now.after(PATIENCE),
            phase: Phase::Closed,
            is_unknown: false,
            targets: None,
            broken: Vec::new(),
        }
    }

    /// Returns how it has ended; `None` before that.
    pub fn ended(&self) -> Option<&Released> {
        if let Phase::Done(released) = &self.phase { Some(released) } else { None }
    }

    /// Returns the last element of the key of the own ticket; a blank for those of others.
    pub fn key_element(&self) -> String {
        match &self.whose {
            Whose::Own(_, element) => element_in(element, self.bucket.as_ref()),
            Whose::OfHolder(_) => String::new(),
        }
    }

    /// Returns what is to be done now.
    pub fn next(&self, now: Instant) -> Step {
        let by = now.after(REQUEST_MAX).min(self.until).max(now.after(REQUEST_MAX / 4));
        match &self.phase {
            Phase::Closed if self.bucket.is_none() => Step::Open(by.max(self.until)),
            Phase::Closed => Step::Open(by),
            Phase::ReadingOwn => Step::ReadOwn(by),
            Phase::Listing => Step::List(EarlierKeys::default(), by),
            Phase::Ending(revision) => Step::End(*revision, by),
            Phase::Breaking(other) => Step::Remove((**other).clone(), by),
            Phase::Resting(until, _) => Step::Rest(*until),
            Phase::Done(_) => Step::Exit,
        }
    }

    /// Takes in what happened.
    pub fn handle(&mut self, input: Input, now: Instant) {
        match input {
            Input::Opened(Ok(info)) => {
                self.bucket = Some(info.id);
                self.phase = match self.whose {
                    Whose::Own(..) => Phase::ReadingOwn,
                    Whose::OfHolder(_) => Phase::Listing,
                }
            }
            Input::Opened(Err(error)) => match error.kind {
                StoreErrorKind::Unsafe | StoreErrorKind::Credentials => {
                    self.end(Released::Refused(error.kind, error.text));
                }
                StoreErrorKind::Unreachable | StoreErrorKind::Unfit => {
                    self.failed(error.text, Phase::Closed, now);
                }
            },
            Input::Own(Ok((revision, ticket))) => self.own_read(revision, ticket),
            Input::Own(Err(why)) => self.failed(why, Phase::ReadingOwn, now),
            Input::Listed(Ok((standing, _))) => self.listed(standing),
            Input::Listed(Err(why)) => self.failed(why, Phase::Listing, now),
            Input::Written(written, _) => self.written(written, now),
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
            Input::Mark(_)
            | Input::WrittenAndListed(..)
            | Input::Subscribed
            | Input::Hint(_)
            | Input::Notes(_)
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
            self.end(Released::Refused(StoreErrorKind::Unreachable, why));
        } else {
            self.phase = Phase::Resting(now.after(PAUSE), Box::new(then));
        }
    }

    fn own_read(&mut self, revision: Revision, ticket: Option<Ticket>) {
        let Whose::Own(incarnation, _) = self.whose else { return };
        self.phase = match ticket.filter(|ticket| ticket.incarnation == incarnation) {
            Some(_) => Phase::Ending(revision),
            // The write without an answer has ended it: it stood when that was sent.
            None if self.is_unknown => Phase::Done(Released::Ended),
            None => Phase::Listing,
        };
    }

    fn written(&mut self, written: Written, now: Instant) {
        match (self.phase.clone(), written) {
            (Phase::Ending(_), Written::Stored(_)) => self.end(Released::Ended),
            (Phase::Ending(_), Written::Moved(_)) => self.phase = Phase::ReadingOwn,
            (Phase::Ending(_), Written::Denied(why)) => self.failed(why, Phase::ReadingOwn, now),
            (Phase::Ending(_), Written::Unknown(why)) => {
                self.is_unknown = true;
                self.failed(why, Phase::ReadingOwn, now);
            }
            (Phase::Breaking(other), Written::Stored(_)) => {
                self.forget(&other, true);
                self.next_target();
            }
            (Phase::Breaking(_), Written::Moved(_)) => self.phase = Phase::Listing,
            (Phase::Breaking(_), Written::Denied(why)) => self.failed(why, Phase::Listing, now),
            (Phase::Breaking(other), Written::Unknown(why)) => {
                for target in self.targets.iter_mut().flatten() {
                    target.1 |= target.0.number == other.number;
                }
                self.failed(why, Phase::Listing, now);
            }
            (_, _) => {}
        }
    }

    /// A ticket does not stand any more, by this process or not.
    fn forget(&mut self, other: &StoredTicket, is_broken: bool) {
        let targets = self.targets.iter_mut();
        targets.for_each(|all| all.retain(|(target, _)| target.number != other.number));
        if let (true, Ok(ticket)) = (is_broken, &other.ticket) {
            let Ticket { token, mode, .. } = ticket;
            let (term, holder, mode) = (other.number.0, token.clone(), *mode);
            self.broken.push(Broken { term, holder, mode });
        }
    }

    fn next_target(&mut self) {
        let next = self.targets.iter().flatten().next();
        self.phase = match next {
            Some((target, _)) => Phase::Breaking(Box::new(target.clone())),
            None => Phase::Done(Released::Broken(std::mem::take(&mut self.broken))),
        };
    }

    fn listed(&mut self, mut standing: Vec<StoredTicket>) {
        standing.sort_by_key(|other| other.number);
        standing
            .retain(|other| other.ticket.as_ref().map_or(true, |it| it.name.overlaps(&self.name)));
        match &self.whose {
            Whose::Own(incarnation, _) => {
                let is_own = |other: &&StoredTicket| {
                    other.ticket.as_ref().is_ok_and(|it| it.incarnation == *incarnation)
                };
                let own = standing.iter().find(is_own).map(of_requester);
                self.end(Released::Absent(own));
            }
            Whose::OfHolder(holder) => match self.targets.take() {
                None => self.choose(&holder.clone(), standing),
                Some(targets) => self.compare(targets, &standing),
            },
        }
    }

    /// Chooses the tickets to be broken.
    fn choose(&mut self, holder: &str, standing: Vec<StoredTicket>) {
        let is_target = |other: &&StoredTicket| {
            let ticket = other.ticket.as_ref();
            ticket.is_ok_and(|it| it.token == holder && it.name == self.name)
        };
        let targets: Vec<_> = standing.iter().filter(is_target).cloned().collect();
        match (targets.is_empty(), standing.first()) {
            (true, None) => self.end(Released::Absent(None)),
            (true, Some(first)) => self.end(Released::NotHeldBy(of_requester(first))),
            (false, _) => {
                self.targets = Some(targets.into_iter().map(|it| (it, false)).collect());
                self.next_target();
            }
        }
    }

    /// Compares the tickets that are still to be broken with those that stand.
    fn compare(&mut self, targets: Vec<(StoredTicket, bool)>, standing: &[StoredTicket]) {
        self.targets = Some(Vec::new());
        for (target, is_unknown) in targets {
            match standing.iter().find(|other| other.number == target.number) {
                Some(other) => {
                    let targets = self.targets.iter_mut();
                    targets.for_each(|all| all.push((other.clone(), is_unknown)));
                }
                None => self.forget(&target, is_unknown),
            }
        }
        self.next_target();
    }
}

#[cfg(test)]
mod tests;
