//! The bucket of the simulations and of the search: the answers of a server to requests.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::core::event::{BucketInfo, StoreErrorKind, Written};
use crate::core::observed::Observed;
use crate::core::random::Random;
use crate::core::record::{BucketId, Revision};
use crate::core::tickets::key::is_key_of_script;
use crate::core::tickets::{
    EarlierKeys, Input, Mark, Step, StoredTicket, Ticket, TicketsListed, TicketsOpened,
};
use crate::core::time::{Instant, StoreTime};

/// How long the marker of the end of a ticket stays that nobody looks for, in microseconds.
const MARKER_STAYS: u64 = 1_000_000;

/// Returns how long the marker of the end of a ticket of this key and lifetime stays. For a ticket
/// that any process of its requester may continue, this is less than in life: only twice the
/// lifetime.
fn marker_time(key: &str, lifetime: Duration, margin: u64) -> u64 {
    match is_key_of_script(key) {
        true => 2 * lifetime.as_micros() as u64 + margin,
        false => MARKER_STAYS,
    }
}

#[derive(Clone)]
pub(super) struct Entry {
    pub(super) revision: u64,
    pub(super) number: u64,
    pub(super) ticket: Option<Ticket>,
    /// In microseconds by the clock of the server.
    pub(super) stored_at: u64,
    /// The entry that the marker of an end has superseded; `None` for all but such a marker.
    pub(super) superseded: Option<Box<Entry>>,
    /// When a marker is removed, in microseconds by the clock of the server; `None` for an entry
    /// that stays.
    pub(super) removed_at: Option<u64>,
    /// The ticket had ended, and was restored.
    pub(super) is_restored: bool,
}

impl Entry {
    fn would_be_restored(&self, clock: u64) -> bool {
        self.superseded.is_some() && self.removed_at.is_some_and(|at| at <= clock)
    }
}

#[derive(Clone)]
pub(super) struct Bucket {
    pub(super) id: u64,
    /// Microseconds of true time.
    pub(super) now: u64,
    /// How far the clock of the server is ahead, in microseconds.
    pub(super) ahead: u64,
    /// How long a marker stays besides twice the lifetime.
    pub(super) margin: u64,
    pub(super) last: u64,
    pub(super) entries: BTreeMap<String, Entry>,
    pub(super) mark: Mark,
    /// The notes of hosts, by their clocks.
    pub(super) notes: BTreeMap<String, (Revision, Observed)>,
    /// An earlier listing.
    pub(super) listed: TicketsListed,
}

/// A key that was written, and the hint of that.
type Changed = Option<(String, Input)>;

impl Bucket {
    pub(super) fn new(id: u64) -> Bucket {
        let mark = Mark { revision: Revision(0), epoch: String::new(), lifetime: Duration::ZERO };
        let listed =
            TicketsListed { standing: Vec::new(), ended: Vec::new(), last: Revision(0), at: None };
        let (entries, notes) = (BTreeMap::new(), BTreeMap::new());
        Bucket { id, now: 0, ahead: 0, margin: 0, last: 0, entries, mark, notes, listed }
    }

    fn clock(&self) -> u64 {
        self.now + self.ahead
    }

    /// Returns the last entry of a key, unless it is a marker that was removed.
    fn entry(&self, key: &str) -> Option<&Entry> {
        let entry = self.entries.get(key)?;
        entry.removed_at.is_none_or(|at| self.clock() < at).then_some(entry)
    }

    /// Returns whether a kill of the server would change something at this time.
    pub(super) fn would_restore(&self, now: u64) -> bool {
        self.entries.values().any(|entry| entry.would_be_restored(now + self.ahead))
    }

    /// The server is killed at this time, and starts again: it restores the entries whose markers
    /// were removed since.
    pub(super) fn restore_superseded(&mut self, now: u64) {
        let clock = now + self.ahead;
        for entry in self.entries.values_mut().filter(|entry| entry.would_be_restored(clock)) {
            if let Some(superseded) = entry.superseded.take() {
                *entry = Entry { is_restored: true, ..*superseded };
            }
        }
    }

    pub(super) fn listing(&self) -> TicketsListed {
        let standing = self.entries.iter().filter_map(|(key, entry)| {
            Some(StoredTicket {
                key: key.clone(),
                revision: Revision(entry.revision),
                number: Revision(entry.number),
                stored_at: Some(store_time(entry.stored_at)),
                ticket: Ok(entry.ticket.clone()?),
            })
        });
        let (last, at) = (Revision(self.last), Some(store_time(self.clock())));
        TicketsListed { standing: standing.collect(), ended: Vec::new(), last, at }
    }

    pub(super) fn keep_listing(&mut self) {
        self.listed = self.listing();
    }

    fn info(&self) -> BucketInfo {
        BucketInfo {
            id: BucketId { epoch: self.id.to_string(), created: String::new() },
            last: Revision(self.last),
            age: None,
            may_be_lost: true,
            replicas: 1,
            remarks: Vec::new(),
            retires: Ok(()),
        }
    }

    fn write(
        &mut self,
        key: &str,
        at: Revision,
        number: Option<Revision>,
        ticket: Option<Ticket>,
    ) -> (Written, Changed) {
        let current = self.entry(key);
        let is_restored = number.is_some() && current.is_some_and(|entry| entry.is_restored);
        let current = current.map_or(0, |entry| entry.revision);
        if current != at.0 {
            return (Written::Moved(Some(Revision(current))), None);
        }
        self.last += 1;
        let (revision, number) = (self.last, number.map_or(self.last, |number| number.0));
        let hint = if ticket.is_some() { Input::Renewed } else { Input::Ended };
        let changed = Some((key.to_owned(), hint(Some(Revision(revision)))));
        let (stored_at, superseded, removed_at) = (self.clock(), None, None);
        let entry =
            Entry { revision, number, ticket, stored_at, superseded, removed_at, is_restored };
        self.entries.insert(key.to_owned(), entry);
        (Written::Stored(Revision(revision)), changed)
    }

    fn end(&mut self, key: &str, at: Revision, lifetime: Duration) -> (Written, Changed) {
        let superseded = self.entry(key).filter(|entry| entry.ticket.is_some()).cloned();
        let removed_at = self.clock() + marker_time(key, lifetime, self.margin);
        let (written, changed) = self.write(key, at, None, None);
        if let Some(marker) = self.entries.get_mut(key).filter(|_| changed.is_some()) {
            marker.superseded = superseded.map(Box::new);
            marker.removed_at = Some(removed_at);
        }
        (written, changed)
    }

    /// Answers a request for the ticket of this element, or for the bucket or the notes of this
    /// clock.
    pub(super) fn answer(&mut self, step: Step, element: &str, is_old: bool) -> (Input, Changed) {
        let before = if is_old { self.listed.clone() } else { self.listing() };
        let (written, changed) = match step {
            Step::Open(_) => {
                let notes = self.notes.get(element).cloned();
                let notes = notes.unwrap_or((Revision(0), Observed::default()));
                let opened = TicketsOpened { info: self.info(), mark: self.mark.clone(), notes };
                return (Input::Opened(Ok(Box::new(opened))), None);
            }
            Step::ReadOwn(_) => {
                let entry = self.entry(element);
                let read = entry.map(|entry| (Revision(entry.revision), entry.ticket.clone()));
                return (Input::Own(Ok(read.unwrap_or((Revision(0), None)))), None);
            }
            Step::List(earlier_keys, _) => {
                return (Input::Listed(Ok(read(before, &earlier_keys))), None);
            }
            Step::WriteNotes(at, seen, _) => {
                let noted = self.notes.get(element).filter(|(current, _)| *current != at);
                // Notes that others have written meanwhile stay.
                let both =
                    noted.map(|(_, noted)| seen.with(noted, Instant::from_boot(Duration::MAX)));
                self.last += 1;
                // The notes go through their text, as in a bucket.
                let seen = Observed::from_text(&both.unwrap_or(seen).to_text());
                self.notes.insert(element.to_owned(), (Revision(self.last), seen));
                (Written::Stored(Revision(self.last)), None)
            }
            Step::Watch(_) | Step::Rest(_) | Step::Exit => return (Input::Rested, None),
            Step::WriteMark(mark, _) if self.mark.revision == mark.revision => {
                self.last += 1;
                self.mark = Mark { revision: Revision(self.last), ..mark };
                (Written::Stored(Revision(self.last)), None)
            }
            Step::WriteMark(..) => (Written::Moved(None), None),
            Step::Write(at, number, ticket, _) => self.write(element, at, number, Some(ticket)),
            Step::End(at, lifetime, _) => self.end(element, at, lifetime),
            Step::Remove(other, _) => {
                let lifetime = other.ticket.as_ref().map_or(Duration::ZERO, |it| it.lifetime);
                self.end(&other.key, other.revision, lifetime)
            }
        };
        (Input::Written(written), changed)
    }
}

/// Returns the tickets of a listing that are read.
fn read(mut listed: TicketsListed, earlier_keys: &EarlierKeys) -> TicketsListed {
    listed.standing.retain(|it| earlier_keys.may_have(&it.key));
    listed
}

/// Returns the time of the store at so many microseconds by its clock.
fn store_time(micros: u64) -> StoreTime {
    StoreTime(Duration::from_micros(micros))
}

/// Returns the input that follows from a step without a result.
pub(super) fn no_result(step: &Step) -> Input {
    let none = "no answer".to_owned();
    match step {
        Step::Open(_) => Input::Opened(Err(StoreErrorKind::Unreachable.error(none))),
        Step::WriteMark(..)
        | Step::Write(..)
        | Step::End(..)
        | Step::Remove(..)
        | Step::WriteNotes(..) => Input::Written(Written::Unknown(none)),
        Step::ReadOwn(_) => Input::Own(Err(none)),
        Step::List(..) => Input::Listed(Err(none)),
        Step::Watch(_) | Step::Rest(_) | Step::Exit => Input::Rested,
    }
}

/// Draws when the bucket is lost and made anew, if it is, and when its server is killed: before
/// this time.
pub(super) fn losses(random: &mut Random, is_wiped: bool, before: u64) -> (Option<u64>, Vec<u64>) {
    let wiped_at = is_wiped.then(|| random.below(before));
    let kills = random.below(4);
    (wiped_at, (0..kills).map(|_| random.below(before)).collect())
}
