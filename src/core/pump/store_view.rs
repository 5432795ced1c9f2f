//! What is known of the store: the bucket, the key, and what has been lost.

use std::time::Duration;

use super::context::{Connection, Context};
use super::holders::Holders;
use super::takeover::Takeover;
use crate::core::event::{BucketInfo, Event, Opened};
use crate::core::record::{BucketId, KeyState, KeyValue, Lease, Revision};
use crate::core::report::{Holder, Report, Rollback};
use crate::core::seat::Seat;
use crate::core::text::sanitize_field;
use crate::core::time::{Instant, Ms};
use crate::core::timing::ELECTION_T_MIN;

/// A revision of the key and when it was first seen.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) key_state: KeyState,
    pub(super) first_at: Instant,
    pub(super) takeover: Takeover,
}

/// A write of this agent, as far as its record has to be known again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) nonce: u64,
    /// It expects an entry of the key, which no other write can have replaced.
    pub(super) over_entry: bool,
}

/// What is known of the key of one seat.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyView {
    /// What stands under the key, `None` when that is not known.
    pub(super) seen: Option<Seen>,
    /// The last revision, and when the first was seen, of blanks that were written one after
    /// the other, and seen over one connection.
    blank: Option<(Revision, Instant)>,
    /// Highest revision that a hint named since the last read; 0 for none.
    pub(super) hinted: Revision,
    /// Highest revision of the key that was shown since the last loss, 0 for none since
    /// then; `None` while nothing was ever known to have stood there.
    pub(super) max_seen: Option<Revision>,
    /// The last write of this agent.
    pub(super) written: Option<Attempt>,
    /// The last revision at which a record of this agent was known to be stored, until a later
    /// record is seen.
    pub(super) stored: Option<Revision>,
    pub(super) holders: Holders,
}

impl KeyView {
    /// Returns whether the key stood at a later revision than `key_state`: a read is stale,
    /// or the store has lost what came after and that has not shown yet.
    pub(super) fn is_older(&self, key_state: &KeyState) -> bool {
        self.max_seen.is_some_and(|max_seen| key_state.revision < max_seen)
    }

    /// Returns whether a hint named a later revision than the one that was seen.
    pub(super) fn is_hinted(&self) -> bool {
        let known = self.seen.as_ref().map_or(Revision(0), |seen| seen.key_state.revision);
        self.hinted > known
    }

    /// Returns whether a record of this agent may have been stored long after it was written, when
    /// another agent has had the lock meanwhile. No other record can have stood between the one
    /// that a write expects and its own; but a key that is purged stands at 0 again.
    pub(super) fn may_be_late(&self, lease: &Lease, revision: Revision) -> bool {
        let is_last = |it: Attempt| it.nonce == lease.nonce && it.over_entry;
        self.stored != Some(revision) && !self.written.is_some_and(is_last)
    }

    /// Notes that the key has reached a revision.
    pub(super) fn show(&mut self, revision: Revision) {
        self.max_seen = self.max_seen.max(Some(revision));
    }
}

/// What is known of the store.
#[derive(Clone, Debug)]
pub(super) struct StoreView {
    /// The bucket, once it was open.
    pub(super) bucket: Option<BucketId>,
    /// Highest revision that the store was seen to have given.
    pub(super) high_water: Revision,
    /// What is known of the key of each seat.
    pub(super) keys: Vec<KeyView>,
    /// Why the store refused the last write, if it did: nothing that follows from the same
    /// again needs to be said again.
    pub(super) refused: Option<String>,
    /// Set for the event at hand: the store was found to have lost what it had.
    pub(super) rolled_back: bool,
    /// How long the bucket is known to have existed.
    pub(super) age: Option<Duration>,
    /// What was said about the bucket when it was last opened.
    remarks: Vec<Report>,
}

impl StoreView {
    /// Nothing is known, of a bucket with the keys of so many seats.
    pub(super) fn new(seats: u32) -> StoreView {
        StoreView {
            bucket: None,
            high_water: Revision(0),
            keys: vec![KeyView::default(); seats as usize],
            refused: None,
            rolled_back: false,
            age: None,
            remarks: Vec::new(),
        }
    }
}

impl Context {
    pub(super) fn handle_opened(&mut self, opened: &Opened, now: Instant) {
        if self.store.bucket.is_some() {
            self.report(Report::StoreOpenAgain);
        }
        let bucket = &opened.bucket;
        self.connection = Connection::Idle;
        self.rejection = None;
        self.store.age = bucket.age;
        self.remark(bucket);
        let loss = match &self.store.bucket {
            Some(known) if *known != bucket.id => Some(Rollback::BucketAnew(
                sanitize_field(&known.epoch),
                sanitize_field(&bucket.id.epoch),
            )),
            Some(_) if bucket.last < self.store.high_water => {
                Some(Rollback::BucketBehind(bucket.last, self.store.high_water))
            }
            Some(_) | None => None,
        };
        self.store.bucket = Some(bucket.id.clone());
        if let Some(loss) = loss {
            self.roll_back(loss, now);
        }
        self.store.high_water = self.store.high_water.max(bucket.last);
        // What the store has had and lost meanwhile cannot be known.
        self.store.keys.iter_mut().for_each(|key| key.blank = None);
        for (seat, key_state) in Seat::all(self.config.seats).zip(&opened.key_states) {
            self.observe(seat, key_state, now);
        }
    }

    /// Every revision is given once, each higher than all before.
    pub(super) fn handle_stored(&mut self, revision: Revision, now: Instant) {
        let highest = self.store.high_water;
        if revision <= highest {
            self.roll_back(Rollback::WriteBehind(revision, highest), now);
        }
        self.store.high_water = self.store.high_water.max(revision);
        self.key_mut().show(revision);
    }

    /// Says what is to know about the bucket, and did not hold before.
    fn remark(&mut self, bucket: &BucketInfo) {
        let mut remarks: Vec<_> =
            bucket.remarks.iter().map(|text| Report::Bucket(text.clone())).collect();
        let (lock_time, replicas) = (self.config.timing.lock_time(), bucket.replicas);
        if replicas > 1 && lock_time < ELECTION_T_MIN {
            let (lock_time, least) = (Ms(lock_time), Ms(ELECTION_T_MIN));
            remarks.push(Report::ElectionRisk { lock_time, least, replicas });
        }
        let known = std::mem::replace(&mut self.store.remarks, remarks.clone());
        for remark in remarks {
            if !known.contains(&remark) {
                self.report(remark);
            }
        }
    }

    /// Says loudly that the store lost what it had; nothing that it shows next is
    /// taken for a clean absence.
    pub(super) fn roll_back(&mut self, how: Rollback, now: Instant) {
        self.report(Report::RolledBack(how));
        self.store.rolled_back = true;
        self.store.age = None;
        self.store.high_water = Revision(0);
        for key in &mut self.store.keys {
            key.seen = None;
            key.blank = None;
            key.holders.assume_slowest(self.config.timing, now);
            (key.written, key.stored) = (None, None);
            // Whatever is written from now on has a number of its own.
            key.max_seen = key.max_seen.map(|_| Revision(0));
        }
    }

    /// Takes in what a read showed of the key of a seat. A revision below one that was seen is a
    /// stale read, which changes little: a rollback shows at the next write or opening. Or
    /// at once, where a number was given again.
    pub(super) fn observe(&mut self, seat: Seat, key_state: &KeyState, now: Instant) {
        let key = &mut self.store.keys[seat.index()];
        if let Some(seen) = &key.seen
            && (key_state.revision < seen.key_state.revision || *key_state == seen.key_state)
        {
            // If it was a rollback, its holder is one of those that the store may lose next.
            key.holders.observe(key_state, true);
            return;
        }
        if let Some(seen) = &key.seen
            && key_state.revision == seen.key_state.revision
        {
            self.roll_back(Rollback::NumberAgain(key_state.revision), now);
        }
        let before = self.store.keys[seat.index()].seen.take();
        if before.is_some() {
            // Somebody could store: what comes now is changed.
            self.store.refused = None;
        }
        if before.is_some() && key_state.value == KeyValue::Marker {
            self.report(Report::KeyDeleted);
        }
        self.store.high_water = self.store.high_water.max(key_state.revision);
        self.watch_for_duplicate_token(before.as_ref(), key_state, now);
        let takeover = self.takeover(seat, key_state, now);
        let key = &mut self.store.keys[seat.index()];
        key.stored = key.stored.filter(|stored| *stored >= key_state.revision);
        key.holders.observe(key_state, key.is_older(key_state));
        if key_state.value != KeyValue::Absent {
            key.show(key_state.revision);
        }
        // An agent of 0.2.0 whose host is unfit blanks the lock anew every R. Where the bucket has
        // got nothing between two blanks, nobody has held the lock since the first.
        let Revision(number) = key_state.revision;
        let blank = key.blank.filter(|(last, _)| last.0 + 1 == number);
        let is_blank = takeover.holder == Holder::Blanked;
        let first_at = blank.filter(|_| is_blank).map_or(now, |(_, since)| since);
        key.blank = is_blank.then_some((key_state.revision, first_at));
        key.seen = Some(Seen { key_state: key_state.clone(), first_at, takeover });
    }

    /// This agent is about to take this seat.
    pub(super) fn turn_to(&mut self, seat: Seat) {
        self.seat = seat;
        if self.config.seats > 1 {
            self.report(Report::TakesSeat(seat));
        }
    }

    /// This agent has its seat, or goes on with it, and reads the keys of the others no more: what
    /// stands there is not known.
    pub(super) fn forget_other_seats(&mut self) {
        let own = self.seat;
        let others = Seat::all(self.config.seats).filter(|seat| *seat != own);
        others.for_each(|seat| self.store.keys[seat.index()].seen = None);
    }

    /// Returns what an event shows under the key of the present seat, if this instance of this
    /// agent did not write it.
    pub(super) fn foreign_key<'a>(&self, event: &'a Event) -> Option<&'a KeyState> {
        event.key_state(self.seat).filter(|key_state| !self.is_own(key_state))
    }

    /// Returns whether this instance of this agent wrote what stands under a key.
    pub(super) fn is_own(&self, key_state: &KeyState) -> bool {
        let is_own = |lease: &Lease| lease.incarnation == self.id.incarnation;
        key_state.value.lease().is_some_and(is_own)
    }
}
