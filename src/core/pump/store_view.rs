//! The agent's knowledge of the store: the bucket, the keys, and losses.

use std::time::Duration;

use super::Config;
use super::holders::Holders;
use super::takeover::Takeover;
use crate::core::event::{BucketInfo, Effect, Ending, StoreError};
use crate::core::record::{BucketId, KeyState, KeyValue, Lease, Revision};
use crate::core::report::{FreeReason, LockState, Report, Rollback};
use crate::core::seat::Seat;
use crate::core::text::sanitize_field;
use crate::core::time::{Instant, Ms};
use crate::core::timing::{ELECTION_T_MIN, Timing};

/// The way to the store: at most one request is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    /// The store is out of reach.
    Closed,
    /// No request is under way.
    Idle,
    /// A read or a write is under way.
    Busy,
}

/// A revision of the key and when it was first seen.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) key_state: KeyState,
    pub(super) first_at: Instant,
    pub(super) takeover: Takeover,
}

impl Seen {
    /// Returns when this agent takes the lock, if the record does not move before: when the waits
    /// are over, and the agents that go first have had their turn.
    pub(super) fn take_at(&self, config: &Config) -> Instant {
        self.first_at.after(self.wait(config))
    }

    /// Returns how long the record stands still before this agent takes the lock.
    pub(super) fn wait(&self, config: &Config) -> Duration {
        match self.takeover.is_for_own() {
            true => self.takeover.wait,
            false => self.takeover.wait + config.priority.delay(config.timing.attempt()),
        }
    }
}

/// A write of this agent, as far as its record has to be recognized.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) nonce: u64,
    /// The write replaces an entry of the key, so no other write can have come between.
    pub(super) over_entry: bool,
}

/// The agent's knowledge of the key of one seat.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyView {
    /// The state of the key; `None` when it is not known.
    pub(super) seen: Option<Seen>,
    /// The last revision of a run of blanks that were seen over one connection, and when the first
    /// of them was seen.
    blank: Option<(Revision, Instant)>,
    /// Highest revision that a hint named since the last read; 0 for none.
    pub(super) hinted: Revision,
    /// Highest revision of the key that was shown since the last loss, 0 for none since then;
    /// `None` if the key never had a record, for all that is known.
    pub(super) max_seen: Option<Revision>,
    /// The last write of this agent.
    pub(super) written: Option<Attempt>,
    /// The last revision at which a record of this agent was known to be stored, until a later
    /// record is seen.
    pub(super) stored: Option<Revision>,
    pub(super) holders: Holders,
}

impl KeyView {
    /// Returns whether the key stood at a later revision than `key_state`: a read is stale, or the
    /// store has lost the later record and has not shown that yet.
    pub(super) fn is_older(&self, key_state: &KeyState) -> bool {
        self.max_seen.is_some_and(|max_seen| key_state.revision < max_seen)
    }

    /// Returns whether a hint named a later revision than the one that was seen.
    pub(super) fn is_hinted(&self) -> bool {
        let known = self.seen.as_ref().map_or(Revision(0), |seen| seen.key_state.revision);
        self.hinted > known
    }

    /// Returns whether a record of this agent may have been stored late, after another agent has
    /// had the lock. The last write is not late if it has replaced an entry. If it expected an
    /// absent key, it may be: a key that is purged is absent again.
    pub(super) fn may_be_late(&self, lease: &Lease, revision: Revision) -> bool {
        let is_last = |it: Attempt| it.nonce == lease.nonce && it.over_entry;
        self.stored != Some(revision) && !self.written.is_some_and(is_last)
    }

    /// Notes that the key has reached a revision.
    pub(super) fn show(&mut self, revision: Revision) {
        self.max_seen = self.max_seen.max(Some(revision));
    }

    /// Takes in the new state of the key, and the waits before the lock may be taken.
    pub(super) fn observe(&mut self, key_state: &KeyState, takeover: Takeover, now: Instant) {
        self.stored = self.stored.filter(|stored| *stored >= key_state.revision);
        self.holders.observe(key_state, self.is_older(key_state));
        if key_state.value != KeyValue::Absent {
            self.show(key_state.revision);
        }
        // An agent of 0.2.0 whose host is unfit blanks the lock anew every R. If no revision lies
        // between two blanks, nobody has held the lock between them.
        let Revision(number) = key_state.revision;
        let blank = self.blank.filter(|(last, _)| last.0 + 1 == number);
        let is_blank = takeover.lock == LockState::Free(FreeReason::Blanked);
        let first_at = blank.filter(|_| is_blank).map_or(now, |(_, since)| since);
        self.blank = is_blank.then_some((key_state.revision, first_at));
        self.seen = Some(Seen { key_state: key_state.clone(), first_at, takeover });
    }
}

/// The agent's knowledge of the store.
#[derive(Clone, Debug)]
pub(super) struct StoreView {
    timing: Timing,
    connection: Connection,
    /// The bucket, once it was open.
    pub(super) bucket: Option<BucketId>,
    /// Highest revision that the store is known to have given.
    high_water: Revision,
    /// The agent's knowledge of the key of each seat.
    keys: Vec<KeyView>,
    /// The seat of this agent; on standby, the seat whose key was read last.
    pub(super) seat: Seat,
    /// Why the store refused the last write, if it did: the consequences of the same refusal are
    /// not reported again.
    pub(super) refused: Option<String>,
    /// Why the store refuses this agent, since it was open last.
    rejection: Option<StoreError>,
    /// The event that is handled now has shown that the store has lost writes.
    pub(super) rolled_back: bool,
    /// How long the bucket is known to have existed.
    pub(super) age: Option<Duration>,
    /// The remarks on the bucket when it was last opened.
    remarks: Vec<Report>,
}

impl StoreView {
    /// Returns a view in which nothing is known, of a bucket with the keys of so many seats.
    pub(super) fn new(seats: u32, timing: Timing) -> StoreView {
        StoreView {
            timing,
            connection: Connection::Closed,
            bucket: None,
            high_water: Revision(0),
            keys: vec![KeyView::default(); seats as usize],
            seat: Seat::FIRST,
            refused: None,
            rejection: None,
            rolled_back: false,
            age: None,
            remarks: Vec::new(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.connection != Connection::Closed
    }

    /// Returns whether a request may be made.
    pub(super) fn is_idle(&self) -> bool {
        self.connection == Connection::Idle
    }

    /// Returns the ending of an agent that the store has refused from the first.
    pub(super) fn ending(&self) -> Option<Ending> {
        self.rejection.clone().filter(|_| self.bucket.is_none()).map(Ending::Rejected)
    }

    /// Returns the knowledge of the key of the present seat.
    pub(super) fn key(&self) -> &KeyView {
        self.key_of(self.seat)
    }

    pub(super) fn key_mut(&mut self) -> &mut KeyView {
        self.key_of_mut(self.seat)
    }

    pub(super) fn key_of(&self, seat: Seat) -> &KeyView {
        &self.keys[seat.index()]
    }

    pub(super) fn key_of_mut(&mut self, seat: Seat) -> &mut KeyView {
        &mut self.keys[seat.index()]
    }

    /// Makes a request. The store is idle.
    pub(super) fn request(&mut self, request: Effect, effects: &mut Vec<Effect>) {
        self.connection = Connection::Busy;
        effects.push(request);
    }

    /// The request that was under way was answered.
    pub(super) fn answered(&mut self) {
        if self.is_open() {
            self.connection = Connection::Idle;
        }
    }

    pub(super) fn closed(&mut self, why: &str, effects: &mut Vec<Effect>) {
        if self.is_open() {
            effects.push(Effect::Report(Report::StoreLost(why.to_owned())));
        }
        self.connection = Connection::Closed;
    }

    pub(super) fn rejected(&mut self, rejection: &StoreError, effects: &mut Vec<Effect>) {
        if self.bucket.is_some() && self.rejection.as_ref() != Some(rejection) {
            effects.push(Effect::Report(Report::StoreRefuses(rejection.to_string())));
        }
        self.rejection = Some(rejection.clone());
    }

    /// Takes in the bucket that was opened, and its last revision.
    pub(super) fn opened(&mut self, bucket: &BucketInfo, effects: &mut Vec<Effect>, now: Instant) {
        if self.bucket.is_some() {
            effects.push(Effect::Report(Report::StoreOpenAgain));
        }
        self.connection = Connection::Idle;
        self.rejection = None;
        self.age = bucket.age;
        self.remark(bucket, effects);
        let loss = match &self.bucket {
            Some(known) if *known != bucket.id => {
                Some(Rollback::BucketAnew(sanitize_field(&bucket.id.epoch)))
            }
            Some(_) if bucket.last < self.high_water => {
                Some(Rollback::BucketBehind(bucket.last, self.high_water))
            }
            Some(_) | None => None,
        };
        self.bucket = Some(bucket.id.clone());
        if let Some(loss) = loss {
            self.roll_back(loss, effects, now);
        }
        self.show(bucket.last);
        // The store may have had other records since, and lost them.
        self.keys.iter_mut().for_each(|key| key.blank = None);
    }

    /// Reports the remarks on the bucket that did not hold before.
    fn remark(&mut self, bucket: &BucketInfo, effects: &mut Vec<Effect>) {
        let mut remarks: Vec<_> =
            bucket.remarks.iter().map(|text| Report::Bucket(text.clone())).collect();
        let (lock_time, replicas) = (self.timing.lock_time(), bucket.replicas);
        if replicas > 1 && lock_time < ELECTION_T_MIN {
            let (lock_time, least) = (Ms(lock_time), Ms(ELECTION_T_MIN));
            remarks.push(Report::ElectionRisk { lock_time, least, replicas });
        }
        let is_new = |remark: &&Report| !self.remarks.contains(remark);
        remarks
            .iter()
            .filter(is_new)
            .for_each(|remark| effects.push(Effect::Report(remark.clone())));
        self.remarks = remarks;
    }

    /// A write of the key of the present seat was stored. Every revision is given once, each higher
    /// than all before.
    pub(super) fn stored(&mut self, revision: Revision, effects: &mut Vec<Effect>, now: Instant) {
        let highest = self.high_water;
        if revision <= highest {
            self.roll_back(Rollback::WriteBehind(revision, highest), effects, now);
        }
        self.show(revision);
        self.key_mut().show(revision);
    }

    /// Reports that the store has lost writes; no state that it shows next is taken for a clean
    /// absence.
    pub(super) fn roll_back(&mut self, how: Rollback, effects: &mut Vec<Effect>, now: Instant) {
        effects.push(Effect::Report(Report::RolledBack(how)));
        self.rolled_back = true;
        self.age = None;
        self.high_water = Revision(0);
        for key in &mut self.keys {
            key.seen = None;
            key.blank = None;
            key.holders.assume_slowest(self.timing, now);
            (key.written, key.stored) = (None, None);
            // The store gives lower revisions again: they are compared anew from here on.
            key.max_seen = key.max_seen.map(|_| Revision(0));
        }
    }

    /// Notes that the store has given this revision.
    pub(super) fn show(&mut self, revision: Revision) {
        self.high_water = self.high_water.max(revision);
    }

    /// Begins to take a seat.
    pub(super) fn choose_seat(&mut self, seat: Seat, effects: &mut Vec<Effect>) {
        self.seat = seat;
        if self.keys.len() > 1 {
            effects.push(Effect::Report(Report::TakesSeat(seat)));
        }
    }

    /// Forgets the keys of the other seats: an agent that has a seat reads only its own key.
    pub(super) fn forget_other_seats(&mut self) {
        let own = self.seat.index();
        let keys = self.keys.iter_mut().enumerate();
        keys.filter(|(index, _)| *index != own).for_each(|(_, key)| key.seen = None);
    }
}
