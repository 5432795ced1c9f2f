//! The revisions of a bucket that this host has seen unchanged, and since when.
//!
//! Nobody removes the ticket of another, or expires a lease, before having seen it unchanged for
//! long enough, and a process that makes one attempt sees it for a moment only. So the process
//! notes the revisions that it has seen: in the bucket, or in a file of its host.
//! The next process reads the notes back. Instants are those of one clock, and revisions those of
//! one bucket: on another clock, and in a bucket that was made anew, the notes tell nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::record::Revision;
use super::time::Instant;

/// Most revisions in notes, about 3 kB: a bucket may accept no larger value, and shared tickets
/// that have run out stay until somebody asks for an exclusive one.
pub const NOTES_MAX: usize = 32;

/// Stands for the bucket itself, so that notes tell since when this host has seen it.
pub const BUCKET: Revision = Revision(0);

/// Between which instants of this host's clock an entry was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteBounds {
    /// When a read began that did not show the entry, or when the write itself was sent: the entry
    /// is no older; `None` if no such instant is known.
    pub not_before: Option<Instant>,
    /// An instant at which the entry was known to be stored.
    pub not_after: Instant,
}

impl WriteBounds {
    /// Returns the bounds of an own write: the moment before it was sent, and the one after its
    /// acknowledgement was received.
    pub fn of_own(sent: Instant, acknowledged: Instant) -> WriteBounds {
        WriteBounds { not_before: Some(sent), not_after: acknowledged }
    }

    /// Returns the bounds of an entry that a read has shown, which ended at `ended`. `not_there_at`
    /// is when the last read that lacked the entry began, `None` without one: the bucket's leader
    /// must have answered that read.
    pub fn of_read(not_there_at: Option<Instant>, ended: Instant) -> WriteBounds {
        WriteBounds { not_before: not_there_at, not_after: ended }
    }

    /// Returns the bounds that follow from two bounds of one entry.
    #[must_use]
    pub fn and(self, other: WriteBounds) -> WriteBounds {
        WriteBounds {
            not_before: self.not_before.max(other.not_before),
            not_after: self.not_after.min(other.not_after),
        }
    }
}

/// A write: the number of its attempt, and when it was made. A store that has gone back gives a
/// revision again, to another attempt. The number is 0 where attempts are not told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SeenWrite {
    attempt: u64,
    bounds: WriteBounds,
}

/// The revisions of a bucket that this host has seen. No two entries have one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// The name of the clock; blank for a clock that no later process has.
    clock: String,
    /// The random id of the bucket: in a bucket that is made anew, the same revision is another
    /// entry.
    pub epoch: String,
    writes: BTreeMap<Revision, SeenWrite>,
    /// The last revision that was certain to be the newest of its key, and when the read or write
    /// that showed it began.
    exact: Option<(Revision, Instant)>,
}

impl Observed {
    /// Returns blank notes, by this clock, for the bucket of this id.
    pub fn nothing(clock: &str, epoch: &str) -> Observed {
        let (clock, epoch) = (clock.to_owned(), epoch.to_owned());
        Observed { clock, epoch, ..Observed::default() }
    }

    /// Returns the name of the clock.
    pub fn clock(&self) -> &str {
        &self.clock
    }

    /// Returns whether no revision was seen.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.exact.is_none()
    }

    /// Returns whether these notes are of the same clock, which has a name, and the same bucket.
    pub fn is_of(&self, noted: &Observed) -> bool {
        let is_same = self.clock == noted.clock && self.epoch == noted.epoch;
        is_same && !self.clock.is_empty()
    }

    /// Adds notes that are read at this instant, if they are of the same clock and bucket.
    pub fn learn(&mut self, noted: &Observed, now: Instant) {
        if !self.is_of(noted) {
            return;
        }
        // An instant in the future is that of a clock that has gone back: it does not count.
        for (revision, seen) in noted.writes.iter().filter(|(_, it)| it.bounds.not_after <= now) {
            self.add_write(*revision, *seen);
        }
        self.exact = self.exact.or(noted.exact.filter(|(_, began)| *began <= now));
    }

    /// Returns these notes together with others, as [`Observed::learn`] adds them. If they are too
    /// many, these come first.
    pub fn with(&self, noted: &Observed, now: Instant) -> Observed {
        let mut both = self.clone();
        both.learn(noted, now);
        both.shorten(self.writes.keys().copied());
        both
    }

    /// Keeps the bucket and [`NOTES_MAX`] revisions: those in `first` before all others, and of
    /// both the ones that were seen first. So a dead ticket that one process waits for stays noted,
    /// however many older tickets another process sees.
    pub fn shorten(&mut self, first: impl Iterator<Item = Revision>) {
        let first: BTreeSet<Revision> = first.collect();
        let mut all: Vec<_> = self.writes.iter().filter(|(it, _)| **it != BUCKET).collect();
        all.sort_by_key(|(it, seen)| (!first.contains(it), seen.bounds.not_after, **it));
        let kept: Vec<_> = all.into_iter().map(|(it, _)| *it).take(NOTES_MAX).collect();
        self.retain(kept.into_iter());
    }

    /// Returns since when this revision, or the bucket, has been seen.
    pub fn since(&self, revision: Revision) -> Option<Instant> {
        self.written(revision).map(|bounds| bounds.not_after)
    }

    /// Returns the revisions that were seen, and since when.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = (Revision, Instant)> {
        self.writes.iter().map(|(revision, seen)| (*revision, seen.bounds.not_after))
    }

    /// Returns the revisions above this one that were seen.
    pub fn after(&self, revision: Revision) -> impl Iterator<Item = Revision> {
        self.writes.keys().copied().filter(move |seen| *seen > revision)
    }

    /// Returns when this revision was written.
    pub fn written(&self, revision: Revision) -> Option<WriteBounds> {
        self.writes.get(&revision).map(|seen| seen.bounds)
    }

    /// Forgets all revisions but the bucket and those that stand now.
    pub fn retain(&mut self, standing: impl Iterator<Item = Revision>) {
        let standing: BTreeSet<Revision> = standing.chain([BUCKET]).collect();
        self.writes.retain(|revision, _| standing.contains(revision));
    }

    /// Notes the revisions that stand now.
    pub fn see(&mut self, revisions: impl Iterator<Item = Revision>, now: Instant) {
        for revision in revisions {
            self.see_one(revision, now);
        }
    }

    /// Notes the bucket; returns since when it has been seen.
    pub fn see_bucket(&mut self, now: Instant) -> Instant {
        self.see_one(BUCKET, now)
    }

    fn see_one(&mut self, revision: Revision, now: Instant) -> Instant {
        let bounds = WriteBounds::of_read(None, now);
        self.writes.entry(revision).or_insert(SeenWrite { attempt: 0, bounds }).bounds.not_after
    }

    /// Forgets a revision: the read that has shown it was old.
    pub fn forget(&mut self, revision: Revision) {
        self.writes.remove(&revision);
    }

    /// Takes in a read of one key, from `began` to `ended`: the revision, 0 for no entry, and its
    /// attempt. `is_exact`: no newer revision can have stood. Returns `false` if a later revision
    /// is known: then the read tells nothing.
    pub fn read(
        &mut self,
        (revision, attempt): (Revision, u64),
        (began, ended): (Instant, Instant),
        is_exact: bool,
    ) -> bool {
        let known = self.writes.last_key_value().map_or(BUCKET, |(known, _)| *known);
        let known = known.max(self.exact.map_or(BUCKET, |(known, _)| known));
        if revision < known {
            return false;
        }
        let not_there_at = self.exact.filter(|(shown, _)| *shown < revision).map(|(_, at)| at);
        self.read_last(revision, attempt, WriteBounds::of_read(not_there_at, ended));
        if is_exact {
            self.exact = Some((revision, began));
        }
        true
    }

    /// Takes in that the read which began at `began` has shown the newest revision.
    pub fn confirm(&mut self, revision: Revision, began: Instant) {
        self.exact = Some((revision, began));
    }

    /// Takes in a write of this host, sent at `sent` and acknowledged by `ended`: its revision and
    /// its attempt.
    pub fn write(
        &mut self,
        (revision, attempt): (Revision, u64),
        (sent, ended): (Instant, Instant),
    ) {
        self.read_last(revision, attempt, WriteBounds::of_own(sent, ended));
        self.exact = Some((revision, sent));
    }

    /// Forgets all revisions but the bucket: somebody has removed the entries of the key.
    pub fn forget_all(&mut self) {
        self.writes.retain(|revision, _| *revision == BUCKET);
        self.exact = None;
    }

    /// Notes the last write of a key, in the place of all others.
    fn read_last(&mut self, revision: Revision, attempt: u64, bounds: WriteBounds) {
        self.writes.retain(|known, _| [BUCKET, revision].contains(known));
        if revision != BUCKET {
            self.add_write(revision, SeenWrite { attempt, bounds });
        }
    }

    fn add_write(&mut self, revision: Revision, seen: SeenWrite) {
        let known = self.writes.get(&revision).filter(|known| known.attempt == seen.attempt);
        let bounds = known.map_or(seen.bounds, |known| known.bounds.and(seen.bounds));
        self.writes.insert(revision, SeenWrite { bounds, ..seen });
    }

    /// Returns the revisions that were seen as a text of one line, JSON.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a text of [`Observed::to_text`]. A damaged one gives blank notes, which cost time
    /// only.
    pub fn from_text(text: &str) -> Observed {
        serde_json::from_str(text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_boot(Duration::from_millis(ms))
    }

    fn read(seen: &mut Observed, entry: (u64, u64), times: [u64; 2], is_exact: bool) -> bool {
        let (revision, attempt) = entry;
        seen.read((Revision(revision), attempt), (at(times[0]), at(times[1])), is_exact)
    }

    fn write(seen: &mut Observed, entry: (u64, u64), times: [u64; 2]) {
        seen.write((Revision(entry.0), entry.1), (at(times[0]), at(times[1])));
    }

    fn seen(clock: &str, epoch: &str, writes: &[(u64, u64)]) -> Observed {
        let mut seen = Observed::nothing(clock, epoch);
        for (revision, ms) in writes {
            let bounds = WriteBounds::of_read(None, at(*ms));
            seen.writes.insert(Revision(*revision), SeenWrite { attempt: 0, bounds });
        }
        seen
    }

    #[test]
    fn what_was_seen_is_kept_by_one_clock_only_and_never_made_earlier() {
        let noted = seen("boot", "8c3e", &[(0, 5), (7, 2)]);
        let learnt = |clock: &str, noted: &Observed, now| {
            let mut seen = Observed::nothing(clock, "8c3e");
            seen.learn(noted, now);
            seen
        };
        let mut later = learnt("boot", &noted, at(9));
        assert_eq!((later.since(Revision(7)), later.since(BUCKET)), (Some(at(2)), Some(at(5))));
        assert!(learnt("other", &noted, at(9)).is_empty());
        assert!(learnt("", &seen("", "8c3e", &[(7, 2)]), at(9)).is_empty());
        assert!(learnt("boot", &seen("boot", "8c3f", &[(7, 2)]), at(9)).is_empty());
        // The clock has gone back.
        assert_eq!(learnt("boot", &noted, at(4)).since(BUCKET), None);
        // A revision that this process has seen is not forgotten, and the earlier time counts.
        later.learn(&seen("boot", "8c3e", &[(7, 1), (8, 6)]), at(9));
        later.learn(&seen("boot", "8c3e", &[(7, 3)]), at(9));
        assert_eq!(later, seen("boot", "8c3e", &[(0, 5), (7, 1), (8, 6)]));
    }

    #[test]
    fn a_revision_that_is_seen_again_keeps_its_time_and_one_that_moved_is_forgotten() {
        let mut known = Observed::nothing("boot", "8c3e");
        known.see_bucket(at(1));
        known.see([7, 8].map(Revision).into_iter(), at(2));
        known.retain([7, 9].map(Revision).into_iter());
        known.see([9].map(Revision).into_iter(), at(5));
        assert_eq!(known, seen("boot", "8c3e", &[(0, 1), (7, 2), (9, 5)]));
        known.retain([].into_iter());
    }

    #[test]
    fn notes_that_are_too_many_keep_the_revisions_that_are_waited_for() {
        let mut known = Observed::nothing("boot", "8c3e");
        known.see_bucket(at(1));
        known.see((10..1000).map(Revision), at(6));
        let mut noted = known.clone();
        noted.shorten([998, 999].map(Revision).into_iter());
        let most = NOTES_MAX as u64;
        let kept: Vec<_> = [0].into_iter().chain(10..8 + most).chain([998, 999]).collect();
        assert_eq!(noted.all().map(|(revision, _)| revision.0).collect::<Vec<_>>(), kept);
        let mut few = seen("boot", "8c3e", &[(2000, 7)]);
        few = few.with(&known, at(8));
        let kept: Vec<_> = [0].into_iter().chain(10..9 + most).chain([2000]).collect();
        assert_eq!(few.all().map(|(revision, _)| revision.0).collect::<Vec<_>>(), kept);
    }

    #[test]
    fn a_revision_was_written_after_the_last_exact_read_that_lacks_it() {
        let mut seen = Observed::default();
        assert!(read(&mut seen, (0, 0), [1, 2], true));
        // A server that is behind may not have shown an entry that was there already.
        assert!(read(&mut seen, (0, 0), [3, 4], false));
        assert!(read(&mut seen, (7, 1), [5, 6], true));
        assert!(read(&mut seen, (7, 1), [8, 9], true));
        assert_eq!(seen.written(Revision(7)), Some(WriteBounds::of_read(Some(at(1)), at(6))));
        assert_eq!(seen.written(Revision(8)), None);
        assert!(read(&mut seen, (9, 2), [10, 11], true));
        assert_eq!(seen.written(Revision(9)), Some(WriteBounds::of_read(Some(at(8)), at(11))));
        assert!(!read(&mut seen, (7, 1), [12, 13], true), "it is behind");
        assert_eq!(seen.written(Revision(9)), Some(WriteBounds::of_read(Some(at(8)), at(11))));
        write(&mut seen, (12, 3), [14, 15]);
        assert!(read(&mut seen, (12, 3), [16, 17], false));
        assert_eq!(seen.written(Revision(12)), Some(WriteBounds::of_own(at(14), at(15))));
        assert!(read(&mut seen, (13, 4), [18, 19], false));
        assert_eq!(seen.written(Revision(13)), Some(WriteBounds::of_read(Some(at(14)), at(19))));
    }

    /// A store that was put back gave the revision again, and the lease was expired by the notes of
    /// another one.
    #[test]
    fn a_revision_that_is_given_again_is_another_write() {
        let mut seen = Observed::default();
        write(&mut seen, (12, 3), [14, 15]);
        assert!(read(&mut seen, (12, 4), [30, 31], true));
        assert_eq!(seen.written(Revision(12)), Some(WriteBounds::of_read(None, at(31))));
    }

    #[test]
    fn what_was_seen_survives_the_way_through_text() {
        let mut known = Observed::nothing("boot", "8c3e");
        known.see_bucket(at(1));
        write(&mut known, (8, 6), [3, 5]);
        assert_eq!(Observed::from_text(&known.to_text()), known);
        let learnt = |now| {
            let mut learnt = Observed::nothing("boot", "8c3e");
            learnt.learn(&known, now);
            learnt
        };
        assert_eq!(learnt(at(5)), known);
        // The clock has gone back.
        assert_eq!(learnt(at(2)), seen("boot", "8c3e", &[(0, 1)]));
    }

    #[test]
    fn damaged_notes_are_left_out() {
        let text = seen("boot", "8c3e", &[(7, 2)]).to_text();
        for (part, damaged) in [("{", ""), ("7", "x"), ("2", "-2"), ("boot", "\u{1}")] {
            let text = text.replacen(part, damaged, 1);
            assert_eq!(Observed::from_text(&text), Observed::default(), "{text}");
        }
    }
}
