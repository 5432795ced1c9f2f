//! A lock key in a bucket that sends hints without end.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::core::{StoreError, StoreErrorKind};
use crate::store::{Listing, OpenedBucket, Selection};
use crate::sys::Waker;

/// How long a read may take that the caller has not requested.
const READ_MAX: Duration = Duration::from_millis(250);

/// A bucket that has no entries, and always another hint.
struct Flooded {
    hints: Vec<Hint>,
    next: usize,
    /// How many reads there were.
    reads: Arc<AtomicU32>,
    /// How many reads fail, all if there are fewer.
    failures: u32,
}

impl Flooded {
    /// The key `k` in such a bucket, and the number of its reads.
    fn key(hints: Vec<Hint>, failures: u32) -> (LockKey, Arc<AtomicU32>) {
        let reads = Arc::new(AtomicU32::new(0));
        let bucket = Flooded { hints, next: 0, reads: Arc::clone(&reads), failures };
        (LockKey::new(Box::new(bucket), "k", 1, READ_MAX), reads)
    }
}

impl Bucket for Flooded {
    fn get(&mut self, _key: &str, _deadline: Instant) -> StoreResult<Option<Entry>> {
        match self.reads.fetch_add(1, Ordering::Relaxed) < self.failures {
            true => Err(StoreError { kind: StoreErrorKind::Unreachable, text: "no answer".into() }),
            false => Ok(None),
        }
    }

    fn wait(&mut self, _wake: BorrowedFd<'_>, _deadline: Option<Instant>) -> Hint {
        self.next += 1;
        self.hints[self.next % self.hints.len()].clone()
    }

    fn open(&mut self, _how: Opening<'_>, _by: Instant) -> StoreResult<Option<OpenedBucket>> {
        unreachable!("it is open")
    }

    fn list(&mut self, _selection: Selection<'_>, deadline: Instant) -> StoreResult<Listing> {
        self.get("k", deadline)?;
        Ok(Listing { entries: Vec::new(), at: None, last: Revision(0) })
    }

    fn write(
        &mut self,
        _key: &str,
        _expected: Expected<'_>,
        _content: &Content,
        _lasts: Option<Duration>,
        _deadline: Instant,
    ) -> Written {
        unreachable!("nothing is written")
    }

    fn subscribe(&mut self, _keys: &[&str]) -> StoreResult<()> {
        Ok(())
    }
}

fn hint(key: &str) -> Hint {
    Hint::Changed { key: key.to_owned(), revision: Some(Revision(u64::MAX)), is_end: false }
}

/// The renewals of a holder wait in the queue of the caller: a lock was lost after two seconds of
/// such hints. The caller has its turn after each read, and the reads leave a gap.
#[test]
fn a_flood_of_hints_of_the_keys_of_operators_delays_a_renewal_by_one_read() {
    let keys = [pause::key_of("k"), switchover::key_of("k", Seat::FIRST)];
    let hints: Vec<_> = keys.iter().map(|key| hint(key)).collect();
    let (mut key, reads) = Flooded::key(hints, 0);
    let waker = Waker::new().expect("a descriptor");
    waker.wake();
    let began = sys::now();
    for call in 1..=4 {
        let told = key.watch(waker.as_fd(), None);
        assert!(matches!(told, Ok(None | Some(Event::PauseRead(_)))), "{told:?}");
        assert_eq!(reads.load(Ordering::Relaxed), call);
    }
    assert!(sys::now().since(began) >= Duration::from_millis(150), "with gaps");
}

/// Each such hint would have the key read: a take waited behind reads until its time was over.
#[test]
fn a_flood_of_hints_that_name_what_never_comes_is_told_at_intervals() {
    let read_max = Duration::from_millis(100);
    for (failures, told_in_an_interval) in [(0, 2), (u32::MAX, 1)] {
        let (mut key, _) = Flooded::key(vec![hint("k")], failures);
        key.read_max = read_max;
        let waker = Waker::new().expect("a descriptor");
        let began = sys::now();
        for _ in 0..=3 * told_in_an_interval {
            let told = key.watch(waker.as_fd(), None);
            assert!(matches!(told, Ok(Some(Event::Hint(Seat::FIRST, _)))), "{told:?}");
            let _ = key.read(Seat::FIRST, sys::now());
        }
        assert!(sys::now().since(began) >= 3 * read_max, "with gaps");
    }
}

/// The hint of a request is lost where servers are connected anew, and not every bucket has hints.
#[test]
fn who_asks_can_have_the_requests_of_operators_read() {
    let waker = Waker::new().expect("a descriptor");
    for (reads_requests, due) in [(false, 0), (true, 2)] {
        let (mut key, reads) = Flooded::key(vec![Hint::StatusRequested { reads_requests }], 0);
        assert_eq!(key.watch(waker.as_fd(), None), Ok(Some(Event::StatusRequested)));
        let until = sys::now().after(sys::PATIENCE);
        while reads.load(Ordering::Relaxed) < due && sys::now() < until {
            let told = key.watch(waker.as_fd(), None);
            let is_told = matches!(told, Ok(Some(Event::StatusRequested | Event::PauseRead(_))));
            assert!(is_told, "{told:?}");
        }
        assert_eq!(reads.load(Ordering::Relaxed), due, "the pause and the switchover");
    }
}

/// Reads without an answer followed one another, and each renewal waited for one: a service was
/// stopped.
#[test]
fn a_pause_that_could_not_be_read_is_read_again_late() {
    let (mut key, reads) = Flooded::key(vec![Hint::Elapsed], 9);
    key.changed("putex.pause.k", None);
    let until = sys::now().after(READ_MAX * 4);
    let told = key.watch(Waker::new().expect("a descriptor").as_fd(), Some(until));
    assert_eq!((told, reads.load(Ordering::Relaxed)), (Ok(None), 1));
}
