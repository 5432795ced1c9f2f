//! The keys of several seats, in both stores.

use std::os::fd::AsFd as _;

use putex::core::event::{Event, Switchover, Written};
use putex::core::record::{KeyValue, Revision};
use putex::core::seat::Seat;
use putex::store::LockKey;
use putex::sys::Waker;

use super::{ABSENT, Make, drain, leased, plain, soon};
use crate::support::clock::{PATIENCE, READ_MAX};

/// Runs every story.
pub(crate) fn all(make: Make<'_>) {
    each_seat_has_a_record_of_its_own(make);
    a_hint_tells_which_seat_has_changed(make);
    a_request_of_an_agent_for_a_lock_reaches_its_holder(make);
}

fn open(make: Make<'_>, bucket: &str, seats: u32) -> LockKey {
    let mut store = LockKey::new(make(bucket), "web", seats, READ_MAX);
    let opened = store.open(soon()).expect("it opens");
    assert_eq!(opened.key_states.len(), seats as usize);
    store
}

/// And seat 0 is the key of an agent without seats.
fn each_seat_has_a_record_of_its_own(make: Make<'_>) {
    let mut three = open(make, "seats", 3);
    let mut revisions = Vec::new();
    for seat in Seat::all(3) {
        let record = leased(&format!("in-{seat}"), 1, None);
        let written = three.write(seat, Revision(0), &record, soon());
        let Written::Stored(revision) = written else { panic!("{written:?}") };
        let moved = three.write(seat, Revision(0), &record, soon());
        assert!(matches!(moved, Written::Moved(_)), "{moved:?}");
        revisions.push(revision);
    }
    let mut again = LockKey::new(make("seats"), "web", 4, READ_MAX);
    let opened = again.open(soon()).expect("it opens");
    let told: Vec<_> = opened.key_states.iter().map(|key| key.revision).collect();
    assert_eq!(told, [&revisions[..], &[Revision(0)]].concat());
    assert_eq!(opened.key_states[3], ABSENT);
    assert_eq!(again.read(Seat(2), soon()).expect("it reads"), opened.key_states[2]);
    let mut plain_agent = LockKey::new(make("seats"), "web", 1, READ_MAX);
    let opened = plain_agent.open(soon()).expect("it opens");
    let KeyValue::Record(record) = &opened.key_states[0].value else { panic!("{opened:?}") };
    assert_eq!(record.token, "in-0");
}

fn a_hint_tells_which_seat_has_changed(make: Make<'_>) {
    let waker = Waker::new().expect("a waker");
    let mut watching = open(make, "seat-hints", 3);
    let mut writing = open(make, "seat-hints", 3);
    drain(&mut watching, &waker);
    for seat in [Seat(2), Seat(0), Seat(1)] {
        let written = writing.write(seat, Revision(0), &plain("beta"), soon());
        assert!(matches!(written, Written::Stored(_)), "{written:?}");
        let watched = watching.watch(waker.as_fd(), Some(soon()));
        let Ok(Some(Event::Hint(told, _))) = watched else { panic!("no hint but {watched:?}") };
        assert_eq!(told, seat);
        watching.read(seat, soon()).expect("it reads");
        drain(&mut watching, &waker);
    }
}

fn a_request_of_an_agent_for_a_lock_reaches_its_holder(make: Make<'_>) {
    let waker = Waker::new().expect("a waker");
    let (mut holder, mut other) = (open(make, "failback", 2), open(make, "failback", 2));
    drain(&mut holder, &waker);
    let request = |term, lasts| Switchover {
        seat: Seat(1),
        term: Revision(term),
        from: "beta".to_owned(),
        to: "alpha 1".to_owned(),
        lasts,
        by: "alpha 1".to_owned(),
        number: 0,
    };
    let told = |holder: &mut LockKey| loop {
        match holder.watch(waker.as_fd(), Some(soon())) {
            Ok(Some(Event::SwitchoverRequested(request))) => return request,
            // A request for a lock comes with a question to the agents: the bucket may have no
            // hints.
            Ok(Some(Event::StatusRequested)) => {}
            other => panic!("{other:?}"),
        }
    };
    other.request_switchover(&request(7, PATIENCE));
    let first = told(&mut holder);
    assert_eq!((first.seat, first.term, &*first.to), (Seat(1), Revision(7), "alpha 1"));
    // The first request for this term stands.
    other.request_switchover(&request(7, PATIENCE * 2));
    drain(&mut holder, &waker);
    other.request_switchover(&request(8, PATIENCE));
    assert_eq!(told(&mut holder).term, Revision(8));
}
