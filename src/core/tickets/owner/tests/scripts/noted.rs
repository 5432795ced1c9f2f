//! Several scripts of one host, each with notes for the others, behind a ticket of another host
//! that nobody ends.

use super::several::{Environment, is_had};
use super::*;
use crate::core::observed::NOTES_MAX;

/// The second half of a second: when another script asks.
const HALF: Duration = Duration::from_millis(500);

const SHARED: (u128, &str, Mode) = (2, "a", Mode::Shared);

/// Lets a process wait until this instant; returns whether it has ended.
fn wait(environment: &mut Environment, process: &mut TicketOwner, now: Instant) -> bool {
    for _ in 0..50 {
        let step = process.next(now);
        let input = if step == Step::Exit {
            return true;
        } else if matches!(step, Step::Rest(until) if until > now) {
            return false;
        } else if matches!(step, Step::Watch(_)) {
            Input::Subscribed
        } else {
            environment.answer(step, process, now)
        };
        process.handle(input, now);
    }
    panic!("it does not rest: {:?}", process.next(now));
}

/// Has a script wait for the exclusive lock for 4 s, again and again, while another one asks every
/// second. Returns the second in which the lock is had, if that is before the last one.
fn had_by_one_who_waits(
    environment: &mut Environment,
    waits_for: u32,
    asks: impl Fn(&mut Environment, Instant),
    last: u64,
) -> Option<u64> {
    for begin in (2..last).step_by(4) {
        let asker = (1, "a", Mode::Exclusive);
        let mut process = environment.begin(asker, ("host", waits_for, false), at(begin));
        process.goal = Goal::Get(Some(at(begin + 4)));
        for second in begin..=begin + 4 {
            if wait(environment, &mut process, at(second)) {
                break;
            }
            asks(environment, at(second).after(HALF));
        }
        if is_had(&ended(&process).expect("an end")) {
            return Some(begin);
        }
    }
    None
}

/// The second one noted each renewal of the first one, while the first one waited. So the notes of
/// the first one were never stored, and both waited for ever for a dead holder.
#[test]
fn who_waits_notes_a_dead_holder_while_another_notes_what_it_sees() {
    let mut environment = Environment::new(60);
    assert!(is_had(&environment.grab((9, "a", Mode::Shared), "far", at(1))));
    let asks = |environment: &mut Environment, now| drop(environment.grab(SHARED, "host", now));
    let had = had_by_one_who_waits(&mut environment, 10, asks, 60);
    assert!(had.is_some_and(|second| second <= 14), "{had:?}");
}

/// The same with nobody dead: the first one waited for ever for the mark for its longer time.
#[test]
fn who_waits_for_the_mark_notes_the_bucket_while_another_notes_what_it_sees() {
    let mut environment = Environment::new(15);
    let asks = |environment: &mut Environment, now| {
        drop(environment.grab((2, "a", Mode::Exclusive), "host", now));
    };
    let had = had_by_one_who_waits(&mut environment, 20, asks, 120);
    assert!(had.is_some_and(|second| second <= 26), "{had:?}");
}

/// An exclusive request, which came once, had noted as many shared tickets as there is room for.
/// They have run out, but a shared request removes none of them, and had no room for what it waits
/// for.
#[test]
fn what_a_request_waits_for_is_noted_beside_many_tickets_that_stand() {
    for count in [40, 101] {
        let mut environment = Environment::new(60);
        for requester in 100..100 + count {
            assert!(is_had(&environment.grab((requester, "a", Mode::Shared), "far", at(1))));
        }
        let once = (3, "a", Mode::Exclusive);
        let mut once = environment.begin(once, ("host", 10, true), at(2));
        assert!(wait(&mut environment, &mut once, at(2)));
        environment.grab((9, "a", Mode::Exclusive), "far", at(3));
        let had = (4..60).find(|second| is_had(&environment.grab(SHARED, "host", at(*second))));
        assert!(had.is_some_and(|second| second <= 15), "{count}: {had:?}");
        let (_, notes) = &environment.bucket.notes["host"];
        assert!(notes.all().count() <= NOTES_MAX + 1, "{count}: {notes:?}");
    }
}

/// The same with an exclusive request that comes again and again, and shared tickets that stand for
/// long. It noted as many of them as there is room for, and dropped what the shared request waits
/// for, which waited until they had run out.
#[test]
fn what_a_request_waits_for_stays_noted_while_another_sees_more_tickets_than_there_is_room_for() {
    let mut environment = Environment::new(60);
    for requester in 100..140 {
        let asks = (requester, "a", Mode::Shared);
        let mut process = environment.begin(asks, ("far", 60, false), at(1));
        assert!(wait(&mut environment, &mut process, at(1)));
    }
    environment.grab((9, "a", Mode::Exclusive), "far", at(3));
    let had = (4..60).find(|second| {
        let again = (3, "a", Mode::Exclusive);
        let mut again = environment.begin(again, ("host", 10, true), at(*second));
        assert!(wait(&mut environment, &mut again, at(*second)));
        is_had(&environment.grab(SHARED, "host", at(*second).after(HALF)))
    });
    assert!(had.is_some_and(|second| second <= 15), "{had:?}");
}

/// A process that waits reads only the tickets before its own, from its second listing on. It took
/// those after its own for ended, and dropped what others had noted of them.
#[test]
fn who_waits_keeps_the_notes_on_tickets_after_its_own() {
    let mut environment = Environment::new(60);
    assert!(is_had(&environment.grab((8, "a", Mode::Exclusive), "far", at(1))));
    environment.grab((1, "a", Mode::Exclusive), "host", at(2));
    environment.grab((9, "a", Mode::Exclusive), "far", at(3));
    environment.grab(SHARED, "host", at(4));
    let noted = |environment: &Environment, from: u64| {
        let (_, notes) = &environment.bucket.notes["host"];
        notes.all().filter(|(_, since)| *since == at(from)).count()
    };
    assert_eq!(noted(&environment, 4), 2, "the tickets of 1 and 9");
    let one = (1, "a", Mode::Exclusive);
    let mut process = environment.begin(one, ("host", 10, false), at(5));
    process.goal = Goal::Get(Some(at(9)));
    for second in 5..=9 {
        wait(&mut environment, &mut process, at(second));
    }
    assert!(ended(&process).is_some());
    assert_eq!(noted(&environment, 4), 1, "that of 9; that of 1 has moved");
}

/// A holder that renewed its lock, and died, is behind all tickets that wait in the order of
/// revisions. Another request of the host, which came twice, noted those.
#[test]
fn a_dead_holder_that_has_renewed_is_noted_beside_many_dead_tickets_behind_the_own_one() {
    let mut environment = Environment::new(60);
    let (holder, asks) = ((8, "a", Mode::Exclusive), (1, "a", Mode::Exclusive));
    assert!(is_had(&environment.grab(holder, "far", at(1))));
    environment.grab(asks, "host", at(2));
    for requester in 100..201 {
        environment.grab((requester, "a", Mode::Exclusive), "far", at(3));
    }
    assert!(is_had(&environment.grab(holder, "far", at(4))));
    for second in [5, 7] {
        let twice = (3, "a", Mode::Exclusive);
        let mut twice = environment.begin(twice, ("host", 10, true), at(second));
        assert!(wait(&mut environment, &mut twice, at(second)));
        environment.grab(asks, "host", at(second + 1));
    }
    let had = (9..60).find(|second| is_had(&environment.grab(asks, "host", at(*second))));
    assert!(had.is_some_and(|second| second <= 20), "{had:?}");
}
