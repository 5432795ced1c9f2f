//! The meaning of the entries of a bucket.

use super::*;
use crate::core::Revision;
use crate::core::tickets::Mode;
use crate::core::{Incarnation, Priority, Record};
use crate::status::model::KeyState;
use crate::store::Content;
use crate::store::lock_key::to_content as record_content;
use crate::store::tickets::entry::to_content as ticket_content;

const SECOND: Duration = Duration::from_secs(1);

fn at(age_ms: u64) -> Option<Duration> {
    Some(Duration::from_millis(age_ms))
}

/// The entry of an agent with R 1 s, F 3 and C 1, so T is 3 s.
fn record(key: &str, revision: u64, token: &str, state: RecordState) -> Entry {
    let lease = Lease {
        incarnation: Incarnation(1),
        nonce: 1,
        host: format!("on-{token}"),
        boot: String::new(),
        renewal: SECOND,
        failures: 3,
        confirmations: 1,
        grace: SECOND,
        term: Some(Revision(4)),
        state,
        priority: Priority::Behind(1),
        released_to: None,
    };
    let content = record_content(&Record { token: token.to_owned(), lease: Some(lease) });
    Entry { key: key.to_owned(), revision: Revision(revision), content, age: None }
}

fn aged(entry: Entry, age: Option<Duration>) -> Entry {
    Entry { age, ..entry }
}

fn ticket(key: &str, number: u64, token: &str, mode: Mode, name: &str) -> Entry {
    let ticket = Ticket { mode, token: token.to_owned(), ..Ticket::sample(name) };
    let content = ticket_content(&ticket, None);
    Entry { key: key.to_owned(), revision: Revision(number), content, age: at(1000) }
}

fn names(all: &[KeyStatus]) -> Vec<(&str, KeyState)> {
    all.iter().map(|status| (&*status.key, status.state)).collect()
}

fn who(holders: &[Holder]) -> Vec<(&str, Option<u32>, HolderState)> {
    holders.iter().map(|holder| (&*holder.token, holder.seat, holder.state)).collect()
}

#[test]
fn of_a_holder_the_record_says_who_and_its_age_until_when() {
    let all = agents(vec![aged(record("web", 9, "h1", RecordState::Active), at(1200))], &[]);
    let [KeyStatus { holders, state: KeyState::Held, .. }] = &all[..] else { panic!("{all:?}") };
    let [holder] = &holders[..] else { panic!("{holders:?}") };
    assert_eq!((&*holder.token, holder.host.as_deref()), ("h1", Some("on-h1")));
    assert_eq!(holder.term, Some(4));
    assert_eq!(holder.priority.as_deref(), Some("2"));
    // T is 3 s; another clock may count 1 % more.
    assert_eq!(holder.expires_in_seconds, Some(Bounds { min: 1.8, max: 1.83 }));
    let late = agents(vec![aged(record("web", 9, "h1", RecordState::Active), at(3031))], &[]);
    assert_eq!(who(&late[0].holders), [("h1", None, HolderState::Overdue)]);
    assert_eq!(late[0].state, KeyState::Held, "until another takes it");
    let unknown = agents(vec![aged(record("web", 9, "h1", RecordState::Taking), None)], &[]);
    assert_eq!(who(&unknown[0].holders), [("h1", None, HolderState::Taking)]);
    assert_eq!(unknown[0].holders[0].expires_in_seconds, None);
}

/// Agents of putex 0.2.0 write no headers.
#[test]
fn holders_of_this_version_are_known_to_answer_within_the_largest_r() {
    let plain = |key: &str| {
        let content = Content::new([("X", String::new())], b"h2");
        Entry { key: key.to_owned(), revision: Revision(8), content, age: at(0) }
    };
    let mut other = record("db", 7, "h3", RecordState::Active);
    for (name, value) in &mut other.content.headers {
        if name == "Putex-Timing" {
            *value = "2500 3 1".to_owned();
        }
    }
    let released = aged(record("x", 6, "", RecordState::Released), at(0));
    let entries =
        vec![aged(record("web", 9, "h1", RecordState::Active), at(0)), plain("old"), released];
    assert_eq!(largest_renewal(&entries[1..2]), None);
    assert_eq!(largest_renewal(&entries), Some(SECOND));
    let entries = [entries, vec![aged(other, at(9000))]].concat();
    assert_eq!(largest_renewal(&entries), Some(Duration::from_millis(2500)));
    let keys = agents(entries, &["old".to_owned()]);
    let known = |key: &str, token: &str| Known { key: key.into(), name: token.into() };
    let due = [known("db", "h3"), known("web", "h1")];
    assert_eq!(known_holders(&keys).collect::<Vec<_>>(), due);
}

#[test]
fn seats_are_one_key_and_a_released_seat_has_no_holder() {
    let entries = vec![
        aged(record("web", 9, "h1", RecordState::Active), at(0)),
        aged(record("web.1", 8, "", RecordState::Released), at(0)),
        aged(record("web.2", 7, "h3", RecordState::Active), at(0)),
        // Not a seat: there is no key db.
        aged(record("db.1", 6, "h4", RecordState::Active), at(0)),
        // Not a seat either.
        aged(record("web.old", 5, "h5", RecordState::Active), at(0)),
    ];
    let all = agents(entries, &[]);
    let due = [("db.1", KeyState::Held), ("web", KeyState::Held), ("web.old", KeyState::Held)];
    assert_eq!(names(&all), due);
    let seats = [("h1", Some(0), HolderState::Active), ("h3", Some(2), HolderState::Active)];
    assert_eq!(who(&all[1].holders), seats);
    assert_eq!(who(&all[0].holders), [("h4", None, HolderState::Active)]);
}

#[test]
fn a_key_that_putex_030_has_not_written_is_shown_if_it_is_named() {
    let plain = || {
        let content = Content { headers: Vec::new(), payload: b"h1".to_vec() };
        vec![Entry { key: "web".to_owned(), revision: Revision(3), content, age: at(0) }]
    };
    assert_eq!(agents(plain(), &[]), []);
    let all = agents(plain(), &["web".to_owned()]);
    assert_eq!(who(&all[0].holders), [("h1", None, HolderState::Active)]);
    assert!(all[0].holders[0].remark.is_some());
}

#[test]
fn a_lock_is_held_by_those_whom_nobody_blocks_and_others_wait_in_their_order() {
    let entries = vec![
        ticket("lock.db.x.3", 3, "h3", Mode::Exclusive, "db/x"),
        ticket("lock.db.x.1", 1, "h1", Mode::Shared, "db/x"),
        ticket("lock.db.4", 4, "h4", Mode::Exclusive, "db"),
        ticket("lock.db.x.2", 2, "h2", Mode::Shared, "db/x"),
    ];
    let all = locks(entries.clone(), 15 * SECOND);
    // Nobody else gets what somebody waits for.
    let held = KeyState::Held;
    assert_eq!(names(&all), [("db", held), ("db/x", held)]);
    assert!(all[0].holders.is_empty());
    let holders: Vec<_> = all[1].holders.iter().map(|it| (&*it.token, it.mode)).collect();
    assert_eq!(holders, [("h1", Some("shared")), ("h2", Some("shared"))]);
    let waiters = |at: usize| -> Vec<_> {
        all[at].waiters.iter().map(|it| (&*it.token, it.ahead.unwrap_or(0))).collect()
    };
    assert_eq!((waiters(0), waiters(1)), (vec![("h4", 3)], vec![("h3", 2)]));
    assert_eq!(all[1].holders[0].expires_in_seconds, Some(Bounds { min: 14.0, max: 14.15 }));
    // In a bucket that is too young nobody has a lock.
    let young = locks(entries, 14 * SECOND);
    assert!(young.iter().all(|status| status.holders.is_empty()), "{young:?}");
    let first = &young[1].waiters[0];
    assert_eq!((&*first.token, first.ahead), ("h1", Some(1)));
    assert!(first.remark.as_ref().is_some_and(|why| why.contains("new or was lost")), "{first:?}");
}

#[test]
fn a_ticket_that_cannot_be_read_is_shown_as_one_that_holds() {
    let mut unreadable = ticket("lock.db.1", 1, "h1", Mode::Exclusive, "db");
    unreadable.content.headers.retain(|(name, _)| name != "Putex-Mode");
    let other = ticket("lock.db.2", 2, "h2", Mode::Exclusive, "db");
    let all = locks(vec![unreadable, other], 15 * SECOND);
    assert_eq!(names(&all), [("db", KeyState::Held)]);
    assert_eq!(all[0].holders[0].state, HolderState::Unreadable);
    assert_eq!(all[0].waiters[0].ahead, Some(1));
}

#[test]
fn a_lease_that_has_surely_run_out_is_free_and_shows_its_holder() {
    let lease = |age| {
        let headers = [("Putex-Life", "60000".to_owned()), ("Putex-Nonce", "7".to_owned())];
        let content = Content::new(headers, b"h1");
        let key = "lease.deploy.web.e8c3e".to_owned();
        leases(vec![Entry { key, revision: Revision(9), content, age }], "8c3e")
    };
    for (age, state, of_holder) in [
        (at(59_000), KeyState::Held, HolderState::Active),
        (at(60_500), KeyState::Held, HolderState::Active),
        (at(61_000), KeyState::Free, HolderState::Overdue),
        (None, KeyState::Held, HolderState::Active),
    ] {
        let all = lease(age);
        assert_eq!(names(&all), [("deploy/web", state)], "{age:?}");
        assert_eq!(who(&all[0].holders), [("h1", None, of_holder)]);
        assert_eq!(all[0].holders[0].term, Some(9));
    }
    let (key, content) = ("lease.x.eold".to_owned(), Content::default());
    let other = Entry { key, revision: Revision(1), content, age: None };
    assert_eq!(leases(vec![other], "8c3e"), []);
}

#[test]
fn who_waits_says_for_whom_and_whether_it_is_still_there() {
    let holder = ticket("lock.db.1", 1, "h1", Mode::Exclusive, "db");
    let entry = ticket("lock.db.x.2", 2, "h2", Mode::Exclusive, "db/x");
    for (age, state) in [(14_000, HolderState::Waiting), (16_000, HolderState::Overdue)] {
        let all = locks(vec![holder.clone(), aged(entry.clone(), at(age))], 15 * SECOND);
        let [waiter] = &all[1].waiters[..] else { panic!("{all:?}") };
        assert_eq!((waiter.state, waiter.remark.as_deref()), (state, Some("behind h1")));
    }
}

/// A server that was killed had restored hundreds of them: the first was shown as the holder, and
/// the others as waiting for it.
#[test]
fn a_lock_whose_tickets_have_all_run_out_is_free_and_shows_who_has_left_them() {
    let first = ticket("lock.db.1", 1, "h1", Mode::Exclusive, "db");
    let second = ticket("lock.db.2", 2, "h2", Mode::Exclusive, "db");
    let late = || vec![aged(first.clone(), at(15_200)), aged(second.clone(), at(15_300))];
    let all = locks(late(), 15 * SECOND);
    assert_eq!(names(&all), [("db", KeyState::Free)]);
    let overdue = HolderState::Overdue;
    assert_eq!(who(&all[0].holders), [("h1", None, overdue), ("h2", None, overdue)]);
    let remark = all[0].holders[0].remark.as_deref().unwrap_or_default();
    assert!(remark.contains("nor released in time: who comes next waits 15.15 s"), "{remark}");
    // A ticket that has come since waits for both, and is listed as the one that waits.
    let third = ticket("lock.db.3", 3, "h3", Mode::Exclusive, "db");
    let all = locks(late().into_iter().chain([third]).collect(), 15 * SECOND);
    assert_eq!(names(&all), [("db", KeyState::Held)]);
    let [waiter] = &all[0].waiters[..] else { panic!("{all:?}") };
    assert_eq!((&*waiter.token, waiter.ahead), ("h3", Some(2)));
    // Unless that ticket was granted the lock before the two were restored.
    let mut granted = ticket("lock.db.3", 3, "h3", Mode::Exclusive, "db");
    granted.content.headers.push(("Putex-Granted".to_owned(), "yes".to_owned()));
    // However young the two look then.
    for restored in [late(), vec![aged(first.clone(), at(0)), aged(second.clone(), at(0))]] {
        let all = restored.into_iter().chain([granted.clone()]).collect();
        let all = locks(all, 15 * SECOND);
        let active = HolderState::Active;
        let due = [("h1", None, overdue), ("h2", None, overdue), ("h3", None, active)];
        assert_eq!((who(&all[0].holders), all[0].waiters.len()), (due.to_vec(), 0));
    }
}

#[test]
fn a_request_for_switchover_stands_for_the_lock_that_it_names() {
    let request = |term: u64, age| {
        let headers = [
            ("Putex-Seat", "0".to_owned()),
            ("Putex-Term", term.to_string()),
            ("Putex-Life", "30000".to_owned()),
            ("Putex-Nonce", "7".to_owned()),
            ("Putex-From", "h1".to_owned()),
            ("Putex-By", "root@h3".to_owned()),
        ];
        let key = "putex.switchover.web".to_owned();
        Entry { key, revision: Revision(9), content: Content::new(headers, b"h2"), age }
    };
    for (term, age, left) in [
        (4, at(10_000), Some(20.0)),
        (4, at(30_000), None),
        // The service has moved.
        (3, at(10_000), None),
        (4, None, None),
    ] {
        let mut all = agents(vec![aged(record("web", 8, "h1", RecordState::Active), at(0))], &[]);
        add_switchovers(&mut all, vec![request(term, age)]);
        let found = all[0].switchover.as_ref();
        assert_eq!(found.map(|it| it.expires_in_seconds), left, "{term} {age:?}");
        assert!(found.is_none_or(|it| it.to == "h2" && it.by == "root@h3"));
    }
}

/// The clock of the server went back: agents that were started observed a pause that no status
/// showed.
#[test]
fn a_pause_stands_as_agents_take_it() {
    let headers = [
        ("Putex-Life", "30000".to_owned()),
        ("Putex-Nonce", "7".to_owned()),
        ("Putex-Serial", "8".to_owned()),
    ];
    let (key, content) = ("putex.pause.web".to_owned(), Content::new(headers, b"kernel"));
    let entry = Entry { key, revision: Revision(9), content, age: None };
    for (age, left) in [(at(10_000), Some(20.0)), (at(30_000), None), (None, Some(30.0))] {
        let mut all = Vec::new();
        add_pauses(&mut all, vec![aged(entry.clone(), age)], SystemTime::UNIX_EPOCH);
        let found = all.first().and_then(|status| status.paused.as_ref());
        assert_eq!(found.map(|it| it.expires_in_seconds), left, "{age:?}");
        assert!(found.is_none_or(|it| it.serial == 8 && it.reason == "kernel"));
    }
}
