//! The promises of every store, as stories that any of them must pass.
//!
//! A store passes with [`all`]. Nothing here knows how it keeps its records.

pub(crate) mod entries;
mod reading;
pub(crate) mod seats;

use std::os::fd::AsFd;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use putex::core::event::{Event, Opened, Written};
use putex::core::priority::Priority;
use putex::core::record::{Incarnation, KeyState, KeyValue, Lease, Record, RecordState, Revision};
use putex::core::seat::Seat;
use putex::core::time::Instant;
use putex::store::{Bucket, LockKey};
use putex::sys::{Waker, is_ready, now};

use crate::support::clock::{PATIENCE, READ_MAX};

/// Returns a store of the bucket of this name, not yet opened. Two calls with the same
/// name return two stores of one bucket.
pub(crate) type Make<'a> = &'a dyn Fn(&str) -> Box<dyn Bucket>;

/// How long nothing must happen to be believed that nothing does.
const QUIET: Duration = Duration::from_millis(100);

/// Runs every story, each in buckets of its own. `checks_other_keys` says whether the
/// servers check a condition on other keys.
pub(crate) fn all(make: Make<'_>, checks_other_keys: bool) {
    entries::all(make, checks_other_keys);
    reading::all(make);
    a_key_is_created_once(make);
    a_stale_revision_is_moved(make);
    one_of_eight_wins_every_race(make);
    revisions_grow_over_all_keys_of_a_bucket(make);
    a_release_keeps_the_chain_of_revisions(make);
    headers_come_back_and_may_be_missing(make);
    buckets_and_keys_do_not_see_each_other(make);
    keys_with_odd_names_are_keys_of_their_own(make);
    a_hint_tells_of_another_agents_write_to_this_key(make);
    a_wake_or_the_deadline_ends_a_watch(make);
    age_and_last_grow(make);
    seats::all(make);
}

/// Returns the deadline of a call that must succeed.
pub(crate) fn soon() -> Instant {
    now().after(PATIENCE)
}

/// Returns a record without headers.
pub(crate) fn plain(token: &str) -> Record {
    Record { token: token.to_owned(), lease: None }
}

/// Returns a record with headers.
pub(crate) fn leased(token: &str, nonce: u64, term: Option<Revision>) -> Record {
    Record {
        token: token.to_owned(),
        lease: Some(Lease {
            incarnation: Incarnation(0xfeed),
            nonce,
            host: "alpha".to_owned(),
            boot: String::new(),
            renewal: Duration::from_millis(500),
            failures: 3,
            confirmations: 2,
            grace: Duration::from_secs(1),
            term,
            state: RecordState::Active,
            priority: Priority::Behind(1),
            released_to: None,
        }),
    }
}

/// Opens a store that must open.
pub(crate) fn open(make: Make<'_>, bucket: &str, key: &str) -> (LockKey, Opened) {
    let mut store = LockKey::new(make(bucket), key, 1, READ_MAX);
    let opened = store.open(soon()).expect("the store opens");
    (store, opened)
}

/// Writes what must be stored, and returns its revision.
pub(crate) fn stored(store: &mut LockKey, expected: Revision, record: &Record) -> Revision {
    let written = store.write(Seat::FIRST, expected, record, soon());
    let Written::Stored(revision) = written else {
        panic!("not stored over {expected}: {written:?}");
    };
    revision
}

fn read(store: &mut LockKey) -> KeyState {
    store.read(Seat::FIRST, soon()).expect("the store reads")
}

fn key_state(revision: Revision, record: Record) -> KeyState {
    let found = KeyValue::Record(record);
    KeyState { revision, value: found }
}

const ABSENT: KeyState = KeyState { revision: Revision(0), value: KeyValue::Absent };

/// The loser is told where the key stands.
fn assert_moved(written: &Written, stands_at: Revision) {
    assert_eq!(*written, Written::Moved(Some(stands_at)));
}

/// Takes hints of what is past out of the store.
fn drain(store: &mut LockKey, waker: &Waker) {
    while store.watch(waker.as_fd(), Some(now().after(QUIET))) != Ok(None) {}
}

fn a_key_is_created_once(make: Make<'_>) {
    let (mut a, opened) = open(make, "create", "web");
    assert_eq!(opened.key_states[0], ABSENT);
    assert_eq!(read(&mut a), ABSENT);
    let first = stored(&mut a, Revision(0), &plain("alpha"));
    assert!(first > Revision(0));
    let (mut b, opened) = open(make, "create", "web");
    assert_eq!(opened.key_states[0], key_state(first, plain("alpha")));
    assert_moved(&b.write(Seat::FIRST, Revision(0), &plain("beta"), soon()), first);
    assert_eq!(read(&mut b), key_state(first, plain("alpha")));
}

fn a_stale_revision_is_moved(make: Make<'_>) {
    let (mut a, _) = open(make, "stale", "web");
    let first = stored(&mut a, Revision(0), &plain("alpha"));
    let second = stored(&mut a, first, &plain("alpha"));
    assert!(second > first);
    for stale in [Revision(0), first, Revision(second.0 + 1), Revision(u64::MAX)] {
        assert_moved(&a.write(Seat::FIRST, stale, &plain("beta"), soon()), second);
    }
    assert_eq!(read(&mut a), key_state(second, plain("alpha")));
}

fn one_of_eight_wins_every_race(make: Make<'_>) {
    const RACERS: usize = 8;
    const ROUNDS: u64 = 50;
    let mut stores: Vec<_> = (0..RACERS).map(|_| open(make, "race", "web").0).collect();
    let start = Barrier::new(RACERS);
    // Judged when all is over: a racer that panicked would leave the others waiting.
    let answers: Vec<Vec<Written>> = thread::scope(|scope| {
        let start = &start;
        let mut racers = Vec::new();
        for (racer, store) in stores.iter_mut().enumerate() {
            racers.push(scope.spawn(move || {
                let mut answers = Vec::new();
                for round in 0..ROUNDS {
                    let seen = store.read(Seat::FIRST, soon());
                    start.wait();
                    let record = plain(&format!("{racer} {round}"));
                    answers.push(match seen {
                        Ok(seen) => store.write(Seat::FIRST, seen.revision, &record, soon()),
                        Err(text) => Written::Unknown(text),
                    });
                    start.wait();
                }
                answers
            }));
        }
        let joined = racers.into_iter().map(|racer| racer.join());
        joined.collect::<Result<_, _>>().expect("every racer")
    });
    let mut last = Revision(0);
    for round in 0..ROUNDS as usize {
        let answers: Vec<&Written> = answers.iter().map(|of_one| &of_one[round]).collect();
        let mut won = answers.iter().filter_map(|answer| match answer {
            Written::Stored(revision) => Some(*revision),
            Written::Moved(_) | Written::Denied(_) | Written::Unknown(_) => None,
        });
        let (first, second) = (won.next().expect("a winner"), won.next());
        assert_eq!(second, None, "round {round} has two winners: {answers:?}");
        assert!(first > last, "{first} after {last}");
        let lost = answers.iter().filter(|answer| matches!(answer, Written::Moved(_)));
        assert_eq!(lost.count(), RACERS - 1, "round {round}: {answers:?}");
        last = first;
    }
}

fn revisions_grow_over_all_keys_of_a_bucket(make: Make<'_>) {
    let (mut web, _) = open(make, "several", "web");
    let (mut db, _) = open(make, "several", "db");
    let (mut at_web, mut at_db, mut last) = (Revision(0), Revision(0), Revision(0));
    for _ in 0..5 {
        at_web = stored(&mut web, at_web, &plain("alpha"));
        assert!(at_web > last);
        at_db = stored(&mut db, at_db, &plain("alpha"));
        assert!(at_db > at_web);
        last = at_db;
    }
    assert!(open(make, "several", "web").1.bucket.last >= last);
}

fn a_release_keeps_the_chain_of_revisions(make: Make<'_>) {
    let (mut a, _) = open(make, "release", "web");
    let taken = stored(&mut a, Revision(0), &leased("alpha", 1, None));
    let released = stored(&mut a, taken, &leased("", 2, Some(taken)));
    assert!(released > taken);
    let (mut b, opened) = open(make, "release", "web");
    assert_eq!(opened.key_states[0], key_state(released, leased("", 2, Some(taken))));
    assert_moved(&b.write(Seat::FIRST, Revision(0), &plain("beta"), soon()), released);
    assert!(stored(&mut b, released, &plain("beta")) > released);
}

fn headers_come_back_and_may_be_missing(make: Make<'_>) {
    let (mut a, _) = open(make, "headers", "web");
    let mut at = Revision(0);
    for record in [
        leased("alpha", u64::MAX, None),
        leased("", 0, Some(Revision(u64::MAX))),
        plain("written by somebody else"),
        plain(""),
    ] {
        at = stored(&mut a, at, &record);
        assert_eq!(read(&mut a), key_state(at, record));
    }
}

fn buckets_and_keys_do_not_see_each_other(make: Make<'_>) {
    let (mut here, first) = open(make, "here", "web");
    let (mut there, second) = open(make, "there", "web");
    let (mut db, third) = open(make, "here", "db");
    assert_ne!(first.bucket.id, second.bucket.id);
    assert_eq!(first.bucket.id, third.bucket.id);
    let at = stored(&mut here, Revision(0), &plain("alpha"));
    assert_eq!(read(&mut there), ABSENT);
    assert_eq!(read(&mut db), ABSENT);
    stored(&mut there, Revision(0), &plain("beta"));
    stored(&mut db, Revision(0), &plain("gamma"));
    assert_eq!(read(&mut here), key_state(at, plain("alpha")));
}

fn keys_with_odd_names_are_keys_of_their_own(make: Make<'_>) {
    let keys = ["a/b", "a=b", "a-b", "a.b", "a_b", "A_b", "epoch", "new", "sequence.key"];
    for key in keys {
        let (mut store, opened) = open(make, "odd", key);
        assert_eq!(opened.key_states[0], ABSENT, "{key}");
        stored(&mut store, Revision(0), &plain(key));
    }
    for key in keys {
        let (_, opened) = open(make, "odd", key);
        assert_eq!(opened.key_states[0].value, KeyValue::Record(plain(key)), "{key}");
    }
}

fn a_hint_tells_of_another_agents_write_to_this_key(make: Make<'_>) {
    let waker = Waker::new().expect("a waker");
    let (mut a, _) = open(make, "hint", "web");
    let (mut b, _) = open(make, "hint", "web");
    let (mut db, _) = open(make, "hint", "db");
    drain(&mut a, &waker);
    let mut at = Revision(0);
    for _ in 0..3 {
        stored(&mut b, at, &plain("beta"));
        let watched = a.watch(waker.as_fd(), Some(soon()));
        let Ok(Some(Event::Hint(_, named))) = watched else {
            panic!("no hint but {watched:?}");
        };
        at = read(&mut a).revision;
        assert!(
            named.is_none_or(|revision| revision == at),
            "{named:?} while the key stands at {at}"
        );
        drain(&mut a, &waker);
    }
    stored(&mut db, Revision(0), &plain("gamma"));
    let watched = a.watch(waker.as_fd(), Some(now().after(QUIET)));
    assert_eq!(watched, Ok(None), "after a write to another key");
}

fn a_wake_or_the_deadline_ends_a_watch(make: Make<'_>) {
    let waker = Waker::new().expect("a waker");
    let (mut a, _) = open(make, "wake", "web");
    drain(&mut a, &waker);
    let began = now();
    let watched = a.watch(waker.as_fd(), Some(began.after(QUIET)));
    assert_eq!(watched, Ok(None));
    assert!(now().since(began) >= QUIET);
    thread::scope(|scope| {
        scope.spawn(|| waker.wake());
        assert_eq!(a.watch(waker.as_fd(), None), Ok(None));
    });
    assert_eq!(a.watch(waker.as_fd(), None), Ok(None));
    assert!(is_ready(&waker), "the watch has cleared the wake");
    waker.clear();
    let began = now();
    assert_eq!(a.watch(waker.as_fd(), Some(began.after(QUIET))), Ok(None));
    assert!(now().since(began) >= QUIET, "a wake that was cleared ended the watch");
}

fn age_and_last_grow(make: Make<'_>) {
    let (mut a, before) = open(make, "age", "web");
    let at = stored(&mut a, Revision(0), &plain("alpha"));
    let (_, after) = open(make, "age", "web");
    assert_eq!(after.bucket.id, before.bucket.id);
    assert!(after.bucket.last >= at && at > before.bucket.last);
    assert!(!before.bucket.remarks.is_empty(), "created just now, and no remark");
    if let (Some(before), Some(after)) = (before.bucket.age, after.bucket.age) {
        assert!(after > before && after < PATIENCE, "{before:?} {after:?}");
    }
}
