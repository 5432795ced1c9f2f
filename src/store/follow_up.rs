//! When an agent follows the hints and messages of others. A client that may publish them can send
//! any number, and a read that follows one delays a renewal of this agent:
//!
//! 1. The pause and the requests for switchover are read one by one, in the order of their hints,
//!    with [`READ_GAP`] between two of them.
//! 2. A hint of a lock key whose read has shown less than the hint named, or that no read has
//!    followed, delays the following hints of that key. None is lost: the last one is told then.

use std::collections::VecDeque;
use std::time::Duration;

use crate::core::{Instant, Revision, Seat};

/// From the end of a read that a message has caused to the next one, at least.
pub(super) const READ_GAP: Duration = Duration::from_millis(50);

/// A key of an operator that is read when it may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperatorKey {
    Pause,
    Switchover(Seat),
}

/// The keys of operators that are to be read, each once.
#[derive(Debug, Default)]
pub(super) struct OperatorReads {
    due: VecDeque<OperatorKey>,
    not_before: Option<Instant>,
}

impl OperatorReads {
    pub(super) fn add(&mut self, key: OperatorKey) {
        if !self.due.contains(&key) {
            self.due.push_back(key);
        }
    }

    /// Returns when the next key is read; `None` if none is to be.
    pub(super) fn next_at(&self, now: Instant) -> Option<Instant> {
        (!self.due.is_empty()).then(|| self.not_before.unwrap_or(now))
    }

    /// Returns the key that is read now.
    pub(super) fn next(&mut self, now: Instant) -> Option<OperatorKey> {
        self.next_at(now).filter(|at| now >= *at)?;
        self.due.pop_front()
    }

    /// Notes that a read has ended.
    pub(super) fn ended(&mut self, now: Instant) {
        self.not_before = Some(now.after(READ_GAP));
    }
}

/// The hints of the lock key of one seat.
#[derive(Debug, Default)]
pub(super) struct SeatHints {
    /// The revision that a read is to show at least, after the hints that were told since the last
    /// read.
    expected: Revision,
    /// The hint that is told later, if there is one, with the revision that it names, if any.
    delayed: Option<Option<Revision>>,
    not_before: Option<Instant>,
}

impl SeatHints {
    /// Notes a hint, which names this revision if it names one.
    pub(super) fn add(&mut self, named: Option<Revision>) {
        // A hint that names no revision may be of any revision.
        let both = self.delayed.map(|delayed| delayed.and_then(|it| named.map(|new| it.max(new))));
        self.delayed = Some(both.unwrap_or(named));
    }

    /// Returns when the next hint is told; `None` if there is none of a revision that is higher
    /// than the `known` one.
    pub(super) fn next_at(&self, known: Revision, now: Instant) -> Option<Instant> {
        let is_new = |named: &Option<Revision>| named.is_none_or(|named| named > known);
        self.delayed.filter(is_new).map(|_| self.not_before.unwrap_or(now))
    }

    /// Returns the hint that is told now. Until a read follows, the next one is told not before
    /// `delay` has passed.
    pub(super) fn next(
        &mut self,
        known: Revision,
        now: Instant,
        delay: Duration,
    ) -> Option<Option<Revision>> {
        self.next_at(known, now).filter(|at| now >= *at)?;
        let named = self.delayed.take()?;
        self.not_before = Some(now.after(delay));
        self.expected = self.expected.max(named.unwrap_or(Revision(known.0.saturating_add(1))));
        Some(named)
    }

    /// Notes the revision that a read has shown. Hints are told not before `delay` has passed if
    /// that revision is lower than they named.
    pub(super) fn was_read(&mut self, revision: Revision, now: Instant, delay: Duration) {
        let expected = std::mem::take(&mut self.expected);
        self.not_before = (revision < expected).then(|| now.after(delay));
    }

    /// Notes that a read has failed: the hint that was told is told again.
    pub(super) fn was_not_read(&mut self, now: Instant, delay: Duration) {
        if std::mem::take(&mut self.expected) > Revision(0) {
            self.add(None);
            self.not_before = Some(now.after(delay));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Instant {
        Instant::from_boot(Duration::from_millis(ms))
    }

    #[test]
    fn the_keys_of_operators_are_read_in_order_each_once_and_with_a_gap() {
        let (pause, switchover) = (OperatorKey::Pause, OperatorKey::Switchover(Seat(3)));
        let mut reads = OperatorReads::default();
        assert_eq!(reads.next_at(at(0)), None);
        for _ in 0..1000 {
            reads.add(pause);
            reads.add(switchover);
        }
        assert_eq!(reads.next(at(1)), Some(pause), "at once");
        reads.ended(at(11));
        reads.add(pause);
        assert_eq!((reads.next_at(at(20)), reads.next(at(60))), (Some(at(61)), None));
        assert_eq!(reads.next(at(61)), Some(switchover));
        reads.ended(at(61));
        assert_eq!((reads.next(at(111)), reads.next(at(200))), (Some(pause), None));
    }

    #[test]
    fn hints_are_told_at_once_while_reads_show_what_they_named() {
        let mut hints = SeatHints::default();
        for revision in 5..9 {
            let (named, known) = (Some(Revision(revision)), Revision(revision - 1));
            hints.add(named);
            assert_eq!(hints.next(known, at(1), DELAY), Some(named));
            assert_eq!(hints.next_at(known, at(1)), None, "told once");
            hints.was_read(Revision(revision), at(1), DELAY);
        }
        hints.add(Some(Revision(8)));
        assert_eq!(hints.next(Revision(8), at(2), DELAY), None, "it is known");
    }

    #[test]
    fn hints_that_mislead_delay_the_following_ones_and_lose_none() {
        let known = Revision(7);
        for misleading in [Some(Revision(u64::MAX)), Some(Revision(8)), None] {
            let mut hints = SeatHints::default();
            hints.add(misleading);
            assert_eq!(hints.next(known, at(0), DELAY), Some(misleading));
            hints.was_read(known, at(40), DELAY);
            assert_eq!(hints.next_at(known, at(41)), None, "one is no reason for another");
            hints.add(Some(Revision(9)));
            hints.add(Some(Revision(8)));
            assert_eq!(
                (hints.next_at(known, at(50)), hints.next(known, at(139), DELAY)),
                (Some(at(140)), None)
            );
            assert_eq!(hints.next(known, at(140), DELAY), Some(Some(Revision(9))));
            hints.was_read(Revision(9), at(150), DELAY);
            hints.add(Some(Revision(10)));
            assert_eq!(
                hints.next(Revision(9), at(151), DELAY),
                Some(Some(Revision(10))),
                "at once again"
            );
        }
    }

    #[test]
    fn hints_that_nobody_follows_are_told_at_intervals() {
        let (known, mut hints) = (Revision(7), SeatHints::default());
        let mut told = 0;
        for ms in 0..1000 {
            hints.add(Some(Revision(8)));
            told += u32::from(hints.next(known, at(ms), DELAY).is_some());
        }
        assert_eq!(told, 10);
        hints.was_read(Revision(8), at(1000), DELAY);
        hints.add(Some(Revision(9)));
        assert!(hints.next(Revision(8), at(1000), DELAY).is_some(), "at once again");
    }

    #[test]
    fn a_hint_whose_read_fails_is_told_again_later() {
        let known = Revision(7);
        let mut hints = SeatHints::default();
        hints.was_not_read(at(0), DELAY);
        assert_eq!(hints.next_at(known, at(0)), None, "no hint led to that read");
        hints.add(Some(Revision(8)));
        assert!(hints.next(known, at(0), DELAY).is_some());
        hints.was_not_read(at(50), DELAY);
        assert_eq!(
            (hints.next(known, at(149), DELAY), hints.next(known, at(150), DELAY)),
            (None, Some(None))
        );
    }
}
