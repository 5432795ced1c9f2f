//! The model of a store: the keys of all seats in one bucket, revisions, compare-and-set, and all
//! that can be wrong with a server's memory.

use putex::core::record::{BucketId, KeyState, KeyValue, Record, Revision};
use putex::core::seat::Seat;

use super::clock::True;

/// Which of the two stores is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A server: it cannot tell how old the bucket is.
    Nats,
    /// A directory of one host: it can.
    Dir,
}

/// A message of a key.
#[derive(Clone, Debug)]
pub struct Entry {
    pub seat: Seat,
    pub revision: u64,
    pub value: KeyValue,
    pub at: True,
}

/// Acknowledged writes that were lost.
#[derive(Clone, Debug)]
pub struct Loss {
    pub at: True,
    /// Highest revision that was given before: numbers up to it are given again.
    pub lost_to: u64,
    /// Agents that had been shown something of what was lost, and up to
    /// which revision: they must notice.
    pub informed: Vec<(usize, u64)>,
    /// All was lost.
    pub all: bool,
    /// Agents that had looked at the bucket and seen nothing stand there.
    pub watching: Vec<usize>,
    /// An agent that could not know of the loss has taken the lock since: an agent that follows it
    /// cannot know either.
    pub taken: bool,
}

impl Loss {
    /// Whether an agent must notice. An empty bucket is no news to an agent that began later: it
    /// waits as if something had stood there.
    pub fn may_be_known_to(&self, agent: usize, revision: u64) -> bool {
        let later = self.all && revision == 0 && !self.watching.contains(&agent);
        later || self.is_known_to(agent, revision)
    }

    /// Whether an agent was shown something of it, at `revision` or later.
    pub fn is_known_to(&self, agent: usize, revision: u64) -> bool {
        let mut informed = self.informed.iter();
        informed.any(|(id, known)| *id == agent && *known >= revision)
    }
}

#[derive(Debug)]
pub struct Store {
    pub kind: Kind,
    /// The bucket does not exist: an agent that opens it makes it anew.
    pub gone: bool,
    pub born: True,
    /// How much older than this run the bucket is.
    pub older: u64,
    /// Highest revision of the bucket.
    pub last: u64,
    pub losses: Vec<Loss>,
    epoch: u64,
    pub log: Vec<Entry>,
}

impl Store {
    pub fn new(kind: Kind, first: Option<KeyValue>, older: u64) -> Store {
        let mut store = Store {
            kind,
            gone: false,
            born: 0,
            older,
            last: 1,
            losses: Vec::new(),
            epoch: 1,
            log: Vec::new(),
        };
        if let Some(value) = first {
            store.put(Seat::FIRST, value, 0);
        }
        store
    }

    pub fn id(&self) -> BucketId {
        BucketId { epoch: format!("e{}", self.epoch), created: format!("c{}", self.epoch) }
    }

    /// Returns what stands under the key of a seat.
    pub fn current(&self, seat: Seat) -> KeyState {
        key_state(self.last_of(seat))
    }

    /// Returns when that was written.
    pub fn written_at(&self, seat: Seat) -> True {
        self.last_of(seat).map_or(0, |entry| entry.at)
    }

    /// Returns what a replica shows that has seen nothing since `at`.
    pub fn as_of(&self, seat: Seat, at: True) -> KeyState {
        let mut entries = self.log.iter().rev();
        key_state(entries.find(|entry| entry.seat == seat && entry.at <= at))
    }

    /// Stores a record if the key stands at `expected`; says where it stands if not.
    pub fn write(
        &mut self,
        seat: Seat,
        expected: u64,
        record: Record,
        now: True,
    ) -> Result<u64, u64> {
        let stands = self.last_of(seat).map_or(0, |entry| entry.revision);
        if stands != expected {
            return Err(stands);
        }
        Ok(self.put(seat, KeyValue::Record(record), now))
    }

    /// Stores whatever stood there before: what a person does by hand.
    pub fn put(&mut self, seat: Seat, value: KeyValue, now: True) -> u64 {
        self.last += 1;
        self.log.push(Entry { seat, revision: self.last, value, at: now });
        self.last
    }

    /// Purges the key of a seat, by hand: nothing stands there, not even a marker.
    pub fn purge(&mut self, seat: Seat, now: True) {
        self.log.push(Entry { seat, revision: 0, value: KeyValue::Absent, at: now });
    }

    /// Returns whether a key was purged.
    pub fn was_purged(&self) -> bool {
        self.log.iter().any(|entry| entry.value == KeyValue::Absent)
    }

    fn last_of(&self, seat: Seat) -> Option<&Entry> {
        self.log.iter().rev().find(|entry| entry.seat == seat)
    }

    /// Loses the last writes; returns the highest revision that is left.
    pub fn roll_back(&mut self, writes: u64) -> u64 {
        for _ in 0..writes {
            self.log.pop();
        }
        // The epoch stands at revision 1. A purge has no revision.
        self.last = self.log.iter().map(|entry| entry.revision).fold(1, u64::max);
        self.last
    }

    /// Loses everything: the bucket is gone.
    pub fn wipe(&mut self) {
        self.gone = true;
        self.log.clear();
    }

    /// Makes the bucket that is gone.
    pub fn make(&mut self, now: True) {
        self.gone = false;
        self.epoch += 1;
        self.last = 1;
        self.born = now;
        self.older = 0;
    }
}

fn key_state(entry: Option<&Entry>) -> KeyState {
    match entry {
        Some(entry) => KeyState { revision: Revision(entry.revision), value: entry.value.clone() },
        None => KeyState { revision: Revision(0), value: KeyValue::Absent },
    }
}
