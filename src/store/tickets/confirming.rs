//! Entries that a server may have read that is no leader any more, in a bucket of several copies.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::entry::{RELEASED, to_content, tombstone};
use super::*;
use crate::core::tickets::Mode;
use crate::core::{BucketId, Incarnation};
use crate::store::name::READ_KEY;
use crate::store::{Content, Expected};

/// A bucket that has this entry, as it is read, and answers each write so.
struct Shown {
    entries: Vec<Entry>,
    answer: Written,
    /// The keys and revisions that writes have named.
    named: Arc<Mutex<Vec<(String, u64)>>>,
}

impl Bucket for Shown {
    fn open(
        &mut self,
        first: FirstKeys<'_>,
        _: Instant,
    ) -> StoreResult<(BucketInfo, Vec<Option<Entry>>)> {
        let id = BucketId { epoch: "8c3e".to_owned(), created: "now".to_owned() };
        let (last, replicas) = (Revision(9), 3);
        let info =
            BucketInfo { id, last, age: None, replicas, remarks: Vec::new(), retires: Ok(()) };
        Ok((info, vec![None; first.read.len()]))
    }

    fn open_existing(&mut self, _: Instant) -> StoreResult<Option<BucketInfo>> {
        panic!("it is not only looked at")
    }

    fn ages(&mut self, _: &[Entry], _: Instant) -> StoreResult<Vec<Option<Duration>>> {
        panic!("it is not only looked at")
    }

    fn get(&mut self, _: &str, _: Instant) -> StoreResult<Option<Entry>> {
        Ok(None)
    }

    fn verify(&mut self, _: &str, _: Instant) -> StoreResult<()> {
        Ok(())
    }

    fn list(&mut self, _: Selection<'_>, _: Instant) -> StoreResult<Listing> {
        Ok(Listing { entries: self.entries.clone(), last: Revision(9) })
    }

    fn compare_and_set(
        &mut self,
        key: &str,
        expected: Expected<'_>,
        _: &Content,
        _: Instant,
    ) -> Written {
        assert_eq!(key, READ_KEY);
        let Expected::OtherKey(other, Revision(revision)) = expected else {
            panic!("{expected:?}")
        };
        self.named.lock().expect("one thread").push((other.to_owned(), revision));
        self.answer.clone()
    }

    fn write_for(&mut self, _: Stays, _: &str, _: Revision, _: &Content, _: Instant) -> Written {
        panic!("nothing ends")
    }

    fn subscribe(&mut self, _: &[&str]) -> StoreResult<()> {
        Ok(())
    }

    fn announce(&mut self, _: &str, _: &Content) {}

    fn wait(&mut self, _: BorrowedFd<'_>, _: Option<Instant>) -> Hint {
        Hint::Elapsed
    }
}

fn ticket(name: &str, mode: Mode) -> Ticket {
    Ticket {
        name: Name::parse(name).expect("a name"),
        mode,
        slot: None,
        lifetime: Duration::from_secs(15),
        token: "alpha".to_owned(),
        incarnation: Incarnation(1),
        attempt: 1,
        seen: Seen::default(),
    }
}

/// Lists for a shared lock of `db`, beside this entry; returns whether there was a listing, and
/// what was confirmed.
fn list(key: &str, content: Content, answer: Written) -> (bool, Vec<(String, u64)>) {
    list_among(&[(key, 7, content)], answer)
}

/// Does so beside these entries.
fn list_among(entries: &[(&str, u64, Content)], answer: Written) -> (bool, Vec<(String, u64)>) {
    let named = Arc::new(Mutex::new(Vec::new()));
    let entry = |(key, at, content): &(&str, u64, Content)| Entry {
        key: (*key).to_owned(),
        revision: Revision(*at),
        content: content.clone(),
    };
    let entries = entries.iter().map(entry).collect();
    let bucket = Shown { entries, answer, named: Arc::clone(&named) };
    let own = ticket("db", Mode::Shared);
    let mut tickets = Tickets::new(Box::new(bucket), &own);
    let by = Instant::from_boot(Duration::MAX);
    tickets.open(by).expect("it opens");
    let listed = tickets.list(&EarlierKeys::default(), "0f", by).is_ok();
    let named = named.lock().expect("one thread").clone();
    (listed, named)
}

/// A leader that was stopped and goes on showed the shared ticket of a script that had an exclusive
/// one since: a shared lock was granted beside it.
#[test]
fn what_may_hide_a_later_ticket_is_confirmed_and_nothing_else() {
    const SCRIPT: &str = "lock.db.g12ab-8c3e";
    const ONCE: &str = "lock.db.12ab0";
    let stored = || Written::Stored(Revision(10));
    let of = |name: &str, mode| to_content(&ticket(name, mode), None);
    let doubtful = [
        (SCRIPT, of("db", Mode::Shared)),
        (SCRIPT, tombstone(RELEASED)),
        (SCRIPT, tombstone("removed by beta")),
    ];
    for (key, content) in doubtful {
        let named = vec![(key.to_owned(), 7)];
        let listed = |answer| list(key, content.clone(), answer);
        assert_eq!(listed(stored()), (true, named.clone()), "{key}: {content:?}");
        let moved = Written::Moved(Some(Revision(8)));
        assert_eq!(listed(moved), (false, named.clone()), "{key}: {content:?}");
        let unknown = Written::Unknown("no answer".to_owned());
        assert_eq!(listed(unknown), (false, named.clone()), "{key}: {content:?}");
        let denied = Written::Denied("an old server".to_owned());
        assert_eq!(listed(denied), (false, named), "{key}: {content:?}");
    }
    let certain = [
        // It is waited for, or is what it always was.
        (SCRIPT, of("db", Mode::Exclusive)),
        (ONCE, of("db", Mode::Shared)),
        (ONCE, tombstone(RELEASED)),
        (ONCE, tombstone("removed by beta")),
        ("lock.db.0f", tombstone("removed by beta")),
        ("lock.other.g12ab-8c3e", of("other", Mode::Shared)),
    ];
    for (key, content) in certain {
        assert_eq!(list(key, content.clone(), stored()), (true, Vec::new()), "{key}: {content:?}");
    }
}

/// Dozens of waiters confirmed what only the first of them needs: their writes refused each other,
/// none renewed its ticket in time, and nobody got the lock for minutes.
#[test]
fn whoever_is_blocked_anyway_confirms_nothing() {
    let doubtful = ("lock.db.g12ab-8c3e", 7, tombstone(RELEASED));
    let own = ("lock.db.0f", 5, to_content(&ticket("db", Mode::Shared), None));
    let blocker = |at| ("lock.db.77", at, to_content(&ticket("db", Mode::Exclusive), None));
    let list = |entries: &[_]| list_among(entries, Written::Stored(Revision(10)));
    let confirmed = vec![("lock.db.g12ab-8c3e".to_owned(), 7)];
    assert_eq!(list(&[doubtful.clone(), own.clone(), blocker(4)]), (true, Vec::new()));
    // A later ticket blocks nobody, and without the own one nobody knows which is later.
    let later = list(&[doubtful.clone(), own, blocker(6)]);
    assert_eq!(later, (true, confirmed.clone()));
    assert_eq!(list(&[doubtful, blocker(4)]), (true, confirmed));
}
