//! The stories of [`Bucket`]: entries, listings, conditions on other keys, subscriptions.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use putex::core::event::Written;
use putex::core::record::Revision;
use putex::core::time::Instant;
use putex::store::{
    Bucket, Content, Entry, Expected, Hint, LASTS_MIN, Listing, Opening, Selection, StoreError,
    StoreErrorKind, StoreResult, open_or_make,
};
use putex::sys::{Waker, now};

use super::{Make, QUIET, assert_moved, soon};

/// Runs every story, each in buckets of its own. `checks_other_keys` says whether the
/// servers check a condition on other keys.
pub(crate) fn all(make: Make<'_>, checks_other_keys: bool) {
    an_entry_comes_back_as_it_was_written(make);
    a_header_that_could_change_the_condition_is_refused(make);
    a_tombstone_is_an_entry(make);
    a_retired_key_has_ended_at_once_and_for_its_old_revisions(make);
    a_retirement_over_another_revision_changes_nothing(make);
    a_listing_has_the_keys_below_its_prefix_and_no_other(make);
    a_listing_beside_writers_lacks_no_key(make);
    a_listing_has_the_wanted_keys_only(make);
    match checks_other_keys {
        true => a_condition_on_another_key_decides(make),
        false => a_condition_on_other_keys_is_refused(make),
    }
    an_opening_reads_its_key_and_subscribes_to_it_before(make);
    a_subscription_is_for_its_key(make);
    a_store_that_is_not_open_does_nothing(make);
    no_call_begins_after_its_deadline(make);
}

pub(super) fn open(make: Make<'_>, bucket: &str) -> Box<dyn Bucket> {
    let mut store = make(bucket);
    open_or_make(&mut *store, Opening::make(&["web"]), soon()).expect("the store opens");
    store
}

fn content(headers: &[(&str, &str)], payload: &[u8]) -> Content {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Content { headers: headers.iter().map(owned).collect(), payload: payload.to_vec() }
}

pub(super) fn plain(text: &str) -> Content {
    content(&[], text.as_bytes())
}

fn get(store: &mut dyn Bucket, key: &str) -> Option<Entry> {
    let entry = store.get(key, soon());
    entry.expect("the leader answers")
}

/// Lists all keys below a prefix.
pub(crate) fn list(store: &mut dyn Bucket, prefix: &str, by: Instant) -> StoreResult<Listing> {
    store.list(Selection::below(prefix), by)
}

/// Writes, and expects that it is stored.
fn stored(store: &mut dyn Bucket, key: &str, expected: Expected<'_>, text: &str) -> Revision {
    let written = store.write(key, expected, &plain(text), None, soon());
    let Written::Stored(revision) = written else {
        panic!("{key} not stored over {expected:?}: {written:?}");
    };
    revision
}

pub(super) fn created(store: &mut dyn Bucket, key: &str) -> Revision {
    stored(store, key, Expected::Key(Revision(0)), key)
}

fn denied(written: &Written) -> &str {
    let Written::Denied(StoreError { text, .. }) = written else {
        panic!("not denied but {written:?}");
    };
    text
}

fn an_entry_comes_back_as_it_was_written(make: Make<'_>) {
    let mut store = open(make, "entry");
    assert_eq!(get(&mut *store, "a.b"), None);
    let mut revision = Revision(0);
    for content in [
        plain(""),
        content(&[], b"\xff\n\nend 0"),
        content(&[("B", "1: 2"), ("A", "é"), ("A", "again")], b"a\r\n"),
    ] {
        let expected = Expected::Key(revision);
        let written = store.write("a.b", expected, &content, None, soon());
        let Written::Stored(next) = written else {
            panic!("{content:?}: {written:?}");
        };
        assert!(next > revision);
        revision = next;
        let key = "a.b".to_owned();
        let entry = Entry { key, revision, content, age: None };
        assert!(!entry.content.is_tombstone());
        assert_eq!(store.get("a.b", soon()), Ok(Some(entry)));
    }
}

/// A second header of compare-and-set, or a line of its own in a value.
fn a_header_that_could_change_the_condition_is_refused(make: Make<'_>) {
    let mut store = open(make, "header");
    let first = created(&mut *store, "web");
    for (name, value) in [
        ("Nats-Expected-Last-Subject-Sequence", "1"),
        ("nats-expected-last-subject-sequence", "1"),
        ("Nats-Rollup", "all"),
        ("NATS-X", "1"),
        ("", "1"),
        ("a b", "1"),
        ("a:", "1"),
        ("é", "1"),
        ("A", "1\r\nNats-Rollup: all"),
        ("A", "\0"),
    ] {
        let content = content(&[("B", "b"), (name, value)], b"");
        let expected = Expected::Key(first);
        let written = store.write("web", expected, &content, None, soon());
        assert!(denied(&written).contains("header"), "{name}: {written:?}");
    }
    let entry = get(&mut *store, "web").expect("it stays");
    assert_eq!((entry.revision, entry.content), (first, plain("web")));
}

fn a_tombstone_is_an_entry(make: Make<'_>) {
    let mut store = open(make, "tombstone");
    let first = created(&mut *store, "lock.a");
    let end = content(&[("KV-Operation", "DEL"), ("Putex-End", "released")], b"");
    let written = store.write("lock.a", Expected::Key(first), &end, None, soon());
    let Written::Stored(ended) = written else {
        panic!("{written:?}");
    };
    let entry = get(&mut *store, "lock.a").expect("a tombstone");
    assert_eq!((entry.revision, &entry.content), (ended, &end));
    assert!(entry.content.is_tombstone());
    let listing = list(&mut *store, "lock", soon()).expect("a listing");
    let age = listing.entries[0].age;
    assert_eq!(listing.entries, [Entry { age, ..entry }]);
    let again = store.write("lock.a", Expected::Key(Revision(0)), &end, None, soon());
    assert_moved(&again, ended);
    stored(&mut *store, "lock.a", Expected::Key(ended), "anew");
}

/// The last entry is there as a tombstone, or not at all.
fn a_retired_key_has_ended_at_once_and_for_its_old_revisions(make: Make<'_>) {
    let waker = Waker::new().expect("a waker");
    let (mut store, mut other) = (open(make, "retired"), open(make, "retired"));
    other.subscribe(&["lock.a.1"]).expect("a subscription");
    let first = created(&mut *store, "lock.a.1");
    let second = stored(&mut *store, "lock.a.1", Expected::Key(first), "renewed");
    let stays = created(&mut *store, "lock.a.2");
    while other.wait(waker.as_fd(), Some(now().after(QUIET))) != Hint::Elapsed {}
    let end = content(&[("KV-Operation", "DEL"), ("Putex-End", "released")], b"");
    let Written::Stored(ended) =
        store.write("lock.a.1", Expected::Key(second), &end, Some(LASTS_MIN), soon())
    else {
        panic!("not stored");
    };
    assert!(ended > stays);
    let hint = other.wait(waker.as_fd(), Some(soon()));
    assert!(matches!(&hint, Hint::Changed { key, .. } if key == "lock.a.1"), "{hint:?}");
    for store in [&mut store, &mut other] {
        let listing = list(&mut **store, "lock", soon()).expect("a listing");
        assert!(listing.last >= ended, "{} < {ended}", listing.last);
        let live = listing.entries.iter().filter(|entry| !entry.content.is_tombstone());
        let live: Vec<_> = live.map(|entry| (&*entry.key, entry.revision)).collect();
        assert_eq!(live, [("lock.a.2", stays)]);
        assert!(get(&mut **store, "lock.a.1").is_none_or(|entry| entry.content.is_tombstone()));
        // A renewal in flight.
        for late in [first, second] {
            let written =
                store.write("lock.a.1", Expected::Key(late), &plain("late"), None, soon());
            assert!(matches!(written, Written::Moved(_)), "over {late}: {written:?}");
        }
    }
    assert_eq!(get(&mut *store, "lock.a.2").map(|entry| entry.revision), Some(stays));
}

fn a_retirement_over_another_revision_changes_nothing(make: Make<'_>) {
    let mut store = open(make, "unretired");
    let first = created(&mut *store, "lock.a.1");
    let second = stored(&mut *store, "lock.a.1", Expected::Key(first), "renewed");
    let end = content(&[("KV-Operation", "DEL")], b"");
    for wrong in [first, Revision(0), Revision(second.0 + 1)] {
        assert_moved(
            &store.write("lock.a.1", Expected::Key(wrong), &end, Some(LASTS_MIN), soon()),
            second,
        );
    }
    let entry = get(&mut *store, "lock.a.1").expect("it stays");
    assert_eq!((entry.revision, entry.content), (second, plain("renewed")));
}

fn a_listing_has_the_keys_below_its_prefix_and_no_other(make: Make<'_>) {
    let mut store = open(make, "listing");
    let none = list(&mut *store, "job", soon()).expect("a listing");
    assert_eq!(none.entries, []);
    for key in ["job", "jobs.a", "job.b.c", "other.job.a", "job.a/b", "job.B"] {
        created(&mut *store, key);
    }
    let last = created(&mut *store, "x");
    let listing = list(&mut *store, "job", soon()).expect("a listing");
    let keys: Vec<_> = listing.entries.iter().map(|entry| &*entry.key).collect();
    assert_eq!(keys, ["job.B", "job.a/b", "job.b.c"]);
    assert_eq!(listing.last, last);
    for entry in listing.entries {
        assert_eq!(get(&mut *store, &entry.key), Some(Entry { age: None, ..entry.clone() }));
        let (key, expected) = (entry.key, Expected::Key(entry.revision));
        let renewed = stored(&mut *store, &key, expected, "renewed");
        let listing = list(&mut *store, "job", soon()).expect("a listing");
        let again: Vec<_> = listing.entries.iter().filter(|one| one.key == key).collect();
        assert_eq!((again.len(), again[0].revision), (1, renewed), "{key}");
        assert_eq!(listing.last, renewed);
    }
    let one = list(&mut *store, "job.b", soon()).expect("a listing").entries;
    assert_eq!((one.len(), &*one[0].key), (1, "job.b.c"));
}

fn a_listing_has_the_wanted_keys_only(make: Make<'_>) {
    let mut store = open(make, "wanted");
    for key in ["a.2", "b.1", "a.1", "a.1.2"] {
        created(&mut *store, key);
    }
    let selection = Selection::Below { prefix: "a", wanted: &|key| key != "a.2" };
    let listing = store.list(selection, soon()).expect("a listing");
    let keys: Vec<_> = listing.entries.iter().map(|entry| &*entry.key).collect();
    assert_eq!(keys, ["a.1", "a.1.2"]);
}

fn a_listing_beside_writers_lacks_no_key(make: Make<'_>) {
    const KEYS: [&str; 8] = ["k.a", "k.b", "k.c", "k.d", "k.e", "k.f", "k.g", "k.h"];
    const LISTINGS: usize = 30;
    let (mut writer, mut reader) = (open(make, "beside"), open(make, "beside"));
    let mut revisions = KEYS.map(|key| created(&mut *writer, key));
    let (done, acknowledged) = (AtomicBool::new(false), AtomicU64::new(revisions[7].0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                let (key, at) = (KEYS[round % 8], &mut revisions[round % 8]);
                *at = stored(&mut *writer, key, Expected::Key(*at), "again");
                acknowledged.store(at.0, Ordering::SeqCst);
                if done.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        let mut seen = BTreeMap::new();
        let listings = (0..LISTINGS).map(|_| {
            let before = acknowledged.load(Ordering::SeqCst);
            (before, list(&mut *reader, "k", soon()))
        });
        let listings: Vec<_> = listings.collect();
        done.store(true, Ordering::SeqCst);
        for (before, listing) in listings {
            let listing = listing.expect("a listing");
            assert!(listing.last.0 >= before, "{} < {before}", listing.last);
            let keys: Vec<_> = listing.entries.iter().map(|entry| &*entry.key).collect();
            assert_eq!(keys, KEYS);
            for entry in listing.entries {
                let last = seen.insert(entry.key, entry.revision);
                assert!(last.is_none_or(|last| last <= entry.revision), "{last:?}");
            }
        }
    });
}

fn a_condition_on_another_key_decides(make: Make<'_>) {
    let mut store = open(make, "other");
    let free = Expected::OtherKey("lease", Revision(0));
    let first = stored(&mut *store, "data", free, "without a lease");
    let lease = created(&mut *store, "lease");
    let data = plain("data");
    let late = store.write("data", free, &data, None, soon());
    assert_moved(&late, lease);
    let held = Expected::OtherKey("lease", lease);
    let second = stored(&mut *store, "data", held, "by the holder");
    assert!(second > first);
    let renewed = stored(&mut *store, "lease", Expected::Key(lease), "renewed");
    assert_moved(&store.write("data", held, &data, None, soon()), renewed);
    // The condition is not on the written key, and not on what follows its name.
    let own = Expected::OtherKey("lease", second);
    assert_moved(&store.write("data", own, &data, None, soon()), renewed);
    created(&mut *store, "lease.more");
    let held = Expected::OtherKey("lease", renewed);
    stored(&mut *store, "data", held, "by the holder");
}

/// Servers before nats-server 2.11 would ignore the condition.
fn a_condition_on_other_keys_is_refused(make: Make<'_>) {
    let mut store = open(make, "refused");
    created(&mut *store, "lease");
    let expected = Expected::OtherKey("lease", Revision(0));
    let written = store.write("lock.a", expected, &plain(""), None, soon());
    let text = denied(&written);
    assert!(text.contains("needs a store for locks"), "{text}");
    assert_eq!(get(&mut *store, "lock.a"), None);
}

fn an_opening_reads_its_key_and_subscribes_to_it_before(make: Make<'_>) {
    let waker = Waker::new().expect("a waker");
    let mut writer = open(make, "first");
    let mut stands_at = Revision(0);
    for subscribed in [&["lock.b", "lock.a"][..], &[]] {
        let (how, hints) = (
            Opening { subscribed, ..Opening::make(&["lock.0", "lock.a"]) },
            !subscribed.is_empty(),
        );
        let mut store = make("first");
        // The second time on the same connection.
        for _ in 0..2 {
            let (bucket, entries) =
                open_or_make(&mut *store, how, soon()).expect("the store opens");
            let [None, entry] = &*entries else { panic!("{entries:?}") };
            let revision = entry.as_ref().map_or(Revision(0), |entry| entry.revision);
            assert_eq!(revision, stands_at);
            assert!(bucket.last >= revision);
            assert_eq!(*entry, get(&mut *store, "lock.a"));
            stands_at = stored(&mut *writer, "lock.a", Expected::Key(stands_at), "next");
            let until = if hints { soon() } else { now().after(QUIET) };
            let hint = store.wait(waker.as_fd(), Some(until));
            assert_eq!(matches!(hint, Hint::Changed { .. }), hints, "{how:?}: {hint:?}");
        }
    }
}

fn a_subscription_is_for_its_key(make: Make<'_>) {
    let waker = Waker::new().expect("a waker");
    let (mut a, mut b) = (open(make, "subscribed"), open(make, "subscribed"));
    for key in ["lock.a", "lock.a", "one"] {
        a.subscribe(&[key]).expect("a subscription");
    }
    for other in ["lock", "lock.a.b", "lock.b", "locks.a", "two", "one.more"] {
        created(&mut *b, other);
    }
    let nothing = a.wait(waker.as_fd(), Some(now().after(QUIET)));
    assert_eq!(nothing, Hint::Elapsed);
    for key in ["lock.a", "one"] {
        let stands_at = created(&mut *b, key);
        let hint = a.wait(waker.as_fd(), Some(soon()));
        let Hint::Changed { key: named, revision, is_end } = hint else {
            panic!("no hint of {key} but {hint:?}");
        };
        assert_eq!((&*named, is_end), (key, false));
        assert!(revision.is_none_or(|revision| revision == stands_at));
        let nothing = a.wait(waker.as_fd(), Some(now().after(QUIET)));
        assert_eq!(nothing, Hint::Elapsed, "once for {key}");
        let end = content(&[("KV-Operation", "DEL")], b"");
        let ended = b.write(key, Expected::Key(stands_at), &end, None, soon());
        assert!(matches!(ended, Written::Stored(_)), "{ended:?}");
        let hint = a.wait(waker.as_fd(), Some(soon()));
        assert!(matches!(hint, Hint::Changed { is_end: true, .. }), "{hint:?}");
    }
}

fn a_store_that_is_not_open_does_nothing(make: Make<'_>) {
    let mut store = make("closed");
    let unreachable = |error: StoreError| error.kind == StoreErrorKind::Unreachable;
    let got = store.get("web", soon());
    assert!(got.is_err_and(unreachable));
    assert!(list(&mut *store, "web", soon()).is_err_and(unreachable));
    assert!(store.subscribe(&["web"]).is_err_and(unreachable));
    let expected = Expected::Key(Revision(0));
    let written = store.write("web", expected, &plain("a"), None, soon());
    assert!(matches!(written, Written::Unknown(_) | Written::Denied(_)), "{written:?}");
    let waker = Waker::new().expect("a waker");
    let hint = store.wait(waker.as_fd(), Some(soon()));
    assert!(matches!(hint, Hint::Gone(_)), "{hint:?}");
    open_or_make(&mut *store, Opening::make(&["web"]), soon()).expect("the store opens");
    assert_eq!(get(&mut *store, "web"), None);
}

fn no_call_begins_after_its_deadline(make: Make<'_>) {
    let mut store = open(make, "late");
    let expected = Expected::Key(Revision(0));
    let written = store.write("k.a", expected, &plain("a"), None, now());
    assert!(matches!(written, Written::Unknown(_) | Written::Denied(_)), "{written:?}");
    assert!(list(&mut *store, "k", now()).is_err());
    assert_eq!(get(&mut *store, "k.a"), None);
    let listing = list(&mut *store, "k", soon()).expect("a listing");
    assert_eq!(listing.entries, []);
}
