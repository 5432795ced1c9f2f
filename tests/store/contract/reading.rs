//! Buckets that are only looked at.

use putex::core::event::Written;
use putex::store::{Bucket, Expected, Selection, open_existing};
use putex::sys::now;

use super::entries::{created, open, plain};
use super::{Make, QUIET, soon};
use crate::support::clock::until_true;

/// Runs every story, each in buckets of its own.
pub(crate) fn all(make: Make<'_>) {
    a_bucket_that_is_only_looked_at_is_not_made(make);
    of_an_entry_that_was_replaced_the_age_is_none_to_speak_of(make);
}

fn a_bucket_that_is_only_looked_at_is_not_made(make: Make<'_>) {
    let mut looker = make("looked-at");
    assert_eq!(open_existing(&mut *looker, soon()), Ok(None));
    assert_eq!(open_existing(&mut *looker, soon()), Ok(None));
    assert!(looker.list(Selection::below(""), soon()).is_err(), "it is not open");
    let mut store = open(make, "looked-at");
    let revision = created(&mut *store, "web");
    let info = open_existing(&mut *looker, soon()).expect("an answer").expect("a bucket");
    assert!(!info.id.epoch.is_empty() && info.last >= revision);
    let wanted = |key: &str| key != "putex.epoch";
    let selection = Selection::Below { prefix: "", wanted: &wanted };
    let listing = looker.list(selection, soon()).expect("a listing");
    assert_eq!(listing.entries.iter().map(|entry| &*entry.key).collect::<Vec<_>>(), ["web"]);
}

fn of_an_entry_that_was_replaced_the_age_is_none_to_speak_of(make: Make<'_>) {
    let mut store = open(make, "aged");
    created(&mut *store, "web");
    let first = store.get("web", soon()).expect("an answer").expect("an entry");
    let age = |store: &mut dyn Bucket| {
        let is_web = |key: &str| key == "web";
        store
            .list(Selection::Below { prefix: "", wanted: &is_web }, soon())
            .expect("a listing")
            .entries[0]
            .age
            .expect("an age")
    };
    until_true("its age", || age(&mut *store) >= QUIET);
    let replaced_after = now();
    let expected = Expected::Key(first.revision);
    let written = store.write("web", expected, &plain("again"), None, soon());
    assert!(matches!(written, Written::Stored(_)), "{written:?}");
    let again = age(&mut *store);
    let since_then = now().since(replaced_after);
    // The clock of a file system lags by a tick.
    assert!(again < since_then + QUIET / 2, "{again:?} after {since_then:?}");
}
