//! Rule by rule with inputs by hand, and all together in a simulation.

mod simulation;

use self::simulation::Simulation;
use super::*;
use crate::core::event::Written;
use crate::core::record::Incarnation;
use crate::core::tickets::{Mode, Name};

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Instant {
    Instant::from_boot(SECOND * seconds as u32)
}

/// A ticket of the requester 1 for the name `a`, for 10 s, by the clock `boot`.
fn ticket() -> Ticket {
    Ticket {
        name: Name::parse("a").expect("a name"),
        mode: Mode::Exclusive,
        slot: None,
        lifetime: 10 * SECOND,
        token: "one".to_owned(),
        incarnation: Incarnation(1),
        attempt: 100,
        seen: Seen::nothing("boot", ""),
    }
}

fn standing(element: &str, revision: u64, number: u64, ticket: Ticket) -> StoredTicket {
    let key = format!("lock.a.{element}");
    let (revision, number) = (Revision(revision), Revision(number));
    StoredTicket { key, revision, number, ticket: Ok(ticket) }
}

/// The ticket of another, which has the number 5.
fn other(revision: u64) -> StoredTicket {
    standing("other", revision, 5, Ticket { incarnation: Incarnation(2), ..ticket() })
}

fn mark(seconds: u32) -> Mark {
    Mark { revision: Revision(1), epoch: "e".to_owned(), lifetime: SECOND * seconds }
}

/// Returns a process whose bucket is open, and has a mark for so many seconds.
fn process(ticket: Ticket, withdraws: bool, marked: u32, now: Instant) -> Grabber {
    let limits = Limits { wait: Duration::ZERO, withdraws };
    let timing = timing(10 * SECOND, 10_000).expect("times");
    let mut grabber = Grabber::new(timing, ticket, "g".to_owned(), limits, now);
    assert!(matches!(grabber.next(now), Step::Open(_)));
    let info = BucketInfo {
        id: BucketId { epoch: "e".to_owned(), created: String::new() },
        last: Revision(20),
        age: None,
        replicas: 1,
        remarks: Vec::new(),
        retires: Ok(()),
    };
    grabber.handle(Input::Opened(Ok(info)), now);
    assert!(matches!(grabber.next(now), Step::ReadMark(_)));
    grabber.handle(Input::Mark(Ok(mark(marked))), now);
    grabber
}

/// As in `owner`.
#[test]
fn a_wait_begins_when_the_store_has_answered_for_the_first_time() {
    let mut grabber = process(ticket(), false, 15, at(100));
    let info = BucketInfo {
        id: grabber.bucket.take().expect("it was opened"),
        last: Revision(20),
        age: None,
        replicas: 1,
        remarks: Vec::new(),
        retires: Ok(()),
    };
    grabber.phase = Phase::Closed;
    let limits = (grabber.limit, grabber.store_limit);
    assert_eq!(grabber.next(at(100)), Step::Open(at(100).after(REACH_MAX)));
    let took = Duration::from_secs(6);
    for _ in 0..2 {
        grabber.handle(Input::Opened(Ok(info.clone())), at(100).after(took));
        let expected = (limits.0.after(took), limits.1.after(took));
        assert_eq!((grabber.limit, grabber.store_limit), expected);
    }
}

fn list(grabber: &mut Grabber, standing: &[StoredTicket], last: u64, now: Instant) {
    assert!(matches!(grabber.next(now), Step::List(..)));
    grabber.handle(Input::Listed(Ok((standing.to_vec(), Revision(last)))), now);
}

/// Expects a write in the place of this revision, and has it stored; returns the ticket.
fn write(grabber: &mut Grabber, replaces: u64, stored: u64, now: Instant) -> Ticket {
    let (Step::Write(at, _, ticket, _) | Step::WriteAndList(at, _, ticket, ..)) = grabber.next(now)
    else {
        panic!("it is not written")
    };
    assert_eq!(at, Revision(replaces));
    grabber.handle(Input::Written(Written::Stored(Revision(stored)), now), now);
    ticket
}

fn queued(grabber: &Grabber) -> (u64, u64) {
    match grabber.ended() {
        Some(Grabbed::Queued { term, ahead, .. }) => (*term, *ahead),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_ticket_that_is_found_keeps_its_number_and_is_granted_by_what_is_listed_behind_the_write() {
    let mut grabber = process(ticket(), false, 10, at(1));
    let own = standing("ge", 9, 7, Ticket { attempt: 3, ..ticket() });
    list(&mut grabber, &[own], 20, at(1));
    let Step::WriteAndList(_, number, ..) = grabber.next(at(2)) else {
        panic!("it is not written")
    };
    assert_eq!(number, Some(Revision(7)));
    let written = write(&mut grabber, 9, 21, at(2));
    list(&mut grabber, &[standing("ge", 21, 7, written)], 21, at(3));
    let valid_until = at(2).after(Duration::from_millis(9_900));
    assert_eq!(grabber.ended(), Some(&Grabbed::Granted { term: 7, valid_until }));
}

#[test]
fn what_an_attempt_has_seen_is_noted_and_a_later_one_of_this_clock_removes_it() {
    let mut first = process(ticket(), false, 10, at(1));
    list(&mut first, &[other(6)], 20, at(1));
    let written = write(&mut first, 0, 21, at(1));
    list(&mut first, &[other(6), standing("ge", 21, 21, written)], 21, at(2));
    let noted = write(&mut first, 21, 22, at(2));
    assert_eq!((noted.seen.to_text().as_str(), queued(&first)), ("boot e 6:2000", (21, 1)));
    let after = |clock: &str, revision: u64, now: Instant| {
        let ticket = Ticket { attempt: 200, seen: Seen::nothing(clock, ""), ..ticket() };
        let mut later = process(ticket, false, 10, now);
        let own = standing("ge", 22, 21, noted.clone());
        list(&mut later, &[other(revision), own.clone()], 30, now);
        let written = write(&mut later, 22, 31, now);
        list(&mut later, &[other(revision), standing("ge", 31, 21, written)], 31, now);
        matches!(later.next(now), Step::Remove(..))
    };
    let due = at(2).after(Duration::from_millis(10_100));
    assert!(after("boot", 6, due), "it has not moved for its lifetime and the drift");
    assert!(!after("boot", 6, due.before(Duration::from_millis(1))), "too early");
    assert!(!after("boot", 23, due), "it has moved");
    assert!(!after("another", 6, due), "another clock");
}

/// The place is kept meanwhile, and the time counts from the first attempt on.
#[test]
fn a_bucket_is_believed_when_attempts_have_seen_it_for_long_enough() {
    let mut first = process(ticket(), false, 9, at(1));
    list(&mut first, &[], 20, at(1));
    let written = write(&mut first, 0, 21, at(1));
    list(&mut first, &[standing("ge", 21, 21, written)], 21, at(2));
    let noted = write(&mut first, 21, 22, at(2));
    assert_eq!((noted.seen.to_text().as_str(), queued(&first)), ("boot e 0:2000", (21, 1)));
    let due = at(2).after(Duration::from_millis(10_100));
    for (now, is_due) in [(due.before(Duration::from_millis(1)), false), (due, true)] {
        let mut later = process(Ticket { attempt: 200, ..ticket() }, false, 9, now);
        list(&mut later, &[standing("ge", 22, 21, noted.clone())], 30, now);
        let written = write(&mut later, 22, 31, now);
        list(&mut later, &[standing("ge", 31, 21, written.clone())], 31, now);
        if !is_due {
            assert_eq!(queued(&later), (21, 1));
            continue;
        }
        let Step::WriteMark(mark, _) = later.next(now) else { panic!("no mark is written") };
        assert_eq!(mark.lifetime, 10 * SECOND);
        later.handle(Input::Written(Written::Stored(Revision(32)), now), now);
        later.handle(Input::Mark(Ok(mark)), now);
        list(&mut later, &[standing("ge", 31, 21, written)], 32, now);
        assert!(matches!(later.ended(), Some(Grabbed::Granted { term: 21, .. })));
    }
}

/// An earlier process may have been told that it is granted: the mark was enough for its time.
#[test]
fn a_ticket_is_withdrawn_only_if_nobody_was_told_that_it_is_granted() {
    let outcome = |found: bool, first: Option<StoredTicket>, marked: u32| {
        let mut grabber = process(ticket(), true, marked, at(1));
        let own = standing("ge", 9, 7, Ticket { attempt: 3, ..ticket() });
        let others: Vec<_> = first.into_iter().collect();
        let own = found.then_some(own);
        let before: Vec<_> = others.iter().cloned().chain(own).collect();
        list(&mut grabber, &before, 20, at(1));
        let written = write(&mut grabber, if found { 9 } else { 0 }, 21, at(1));
        let own = standing("ge", 21, if found { 7 } else { 21 }, written);
        let behind: Vec<_> = others.into_iter().chain([own]).collect();
        list(&mut grabber, &behind, 21, at(2));
        if let Step::ReadNotes(_) = grabber.next(at(2)) {
            grabber.handle(Input::Notes(Err("no answer".to_owned())), at(2));
        }
        matches!(grabber.next(at(2)), Step::End(Revision(21), _))
    };
    assert!(outcome(false, Some(other(6)), 10));
    assert!(outcome(false, None, 9), "nobody else knows of it");
    assert!(outcome(true, Some(other(6)), 10), "the other one has been there all the time");
    assert!(!outcome(true, None, 9), "it may be held");
}

/// It leaves no ticket in which it could note what it has seen.
#[test]
fn attempts_that_keep_no_place_get_rid_of_a_dead_holder_together() {
    let attempt = |noted: (Revision, Seen), now: Instant| {
        let mut grabber = process(ticket(), true, 10, now);
        list(&mut grabber, &[other(6)], 20, now);
        let written = write(&mut grabber, 0, 21, now);
        let behind = [other(6), standing("ge", 21, 21, written)];
        list(&mut grabber, &behind, 21, now);
        assert!(matches!(grabber.next(now), Step::ReadNotes(_)));
        grabber.handle(Input::Notes(Ok(noted)), now);
        if let Step::List(..) = grabber.next(now) {
            list(&mut grabber, &behind, 21, now);
        }
        grabber
    };
    let mut first = attempt((Revision(0), Seen::default()), at(1));
    let Step::WriteNotes(Revision(0), seen, _) = first.next(at(1)) else { panic!("not noted") };
    first.handle(Input::Written(Written::Stored(Revision(22)), at(1)), at(1));
    assert!(matches!(first.next(at(1)), Step::End(Revision(21), _)));
    let due = at(1).after(Duration::from_millis(10_100));
    let mut later = attempt((Revision(22), seen.clone()), due);
    assert!(matches!(later.next(due), Step::Remove(..)), "{:?}", later.next(due));
    // It knows more than before, and that is not enough: it reads the same once more, and ends.
    let soon = due.before(Duration::from_millis(1));
    let mut early = attempt((Revision(22), seen.clone()), soon);
    assert!(matches!(early.next(soon), Step::ReadNotes(_)), "{:?}", early.next(soon));
    early.handle(Input::Notes(Ok((Revision(22), seen.clone()))), soon);
    let Step::WriteNotes(at, again, _) = early.next(soon) else { panic!("not noted") };
    assert_eq!((at, again), (Revision(22), seen));
}

#[test]
fn a_ticket_never_runs_out_earlier_than_its_requester_was_told() {
    let mut grabber = process(ticket(), false, 60, at(1));
    let own = standing("ge", 9, 7, Ticket { lifetime: 60 * SECOND, attempt: 3, ..ticket() });
    list(&mut grabber, &[own], 20, at(1));
    assert_eq!(write(&mut grabber, 9, 21, at(1)).lifetime, 60 * SECOND);
    let mut grabber = process(ticket(), false, 60, at(1));
    let own = standing("ge", 9, 7, Ticket { lifetime: SECOND, attempt: 3, ..ticket() });
    list(&mut grabber, &[own], 20, at(1));
    assert_eq!(write(&mut grabber, 9, 21, at(1)).lifetime, 10 * SECOND);
}

#[test]
fn a_requester_does_not_wait_for_itself() {
    let below = Name::parse("a/b").expect("a name");
    for other in [
        standing("g2", 9, 7, Ticket { name: below, ..ticket() }),
        standing("ge", 9, 7, Ticket { mode: Mode::Shared, ..ticket() }),
    ] {
        let mut grabber = process(ticket(), false, 10, at(1));
        list(&mut grabber, &[other], 20, at(1));
        assert!(matches!(grabber.ended(), Some(Grabbed::Overlaps(_))), "{:?}", grabber.ended());
    }
}

/// Its number is that of the new ticket, or it would come before others that it does not.
#[test]
fn a_ticket_that_the_requester_has_begun_anew_meanwhile_counts_as_new() {
    let mut grabber = process(ticket(), false, 10, at(1));
    list(&mut grabber, &[], 20, at(1));
    write(&mut grabber, 0, 21, at(1));
    let other = standing("other", 23, 23, Ticket { incarnation: Incarnation(2), ..ticket() });
    let anew = standing("ge", 24, 24, Ticket { attempt: 7, ..ticket() });
    list(&mut grabber, &[other.clone(), anew.clone()], 24, at(1));
    let written = write(&mut grabber, 24, 25, at(1));
    list(&mut grabber, &[other, standing("ge", 25, 24, written)], 25, at(1));
    write(&mut grabber, 25, 26, at(1));
    assert_eq!(queued(&grabber), (24, 1));
}

#[test]
fn a_ticket_is_begun_anew_in_the_place_of_the_tombstone_that_is_found() {
    let mut grabber = process(ticket(), false, 10, at(1));
    list(&mut grabber, &[], 20, at(1));
    assert!(matches!(grabber.next(at(1)), Step::WriteAndList(Revision(0), None, ..)));
    grabber.handle(Input::Written(Written::Moved(Some(Revision(19))), at(1)), at(1));
    assert!(matches!(grabber.next(at(1)), Step::ReadOwn(_)));
    grabber.handle(Input::Own(Ok((Revision(19), None))), at(1));
    list(&mut grabber, &[], 20, at(1));
    let written = write(&mut grabber, 19, 21, at(1));
    list(&mut grabber, &[standing("ge", 21, 21, written)], 21, at(1));
    assert!(matches!(grabber.ended(), Some(Grabbed::Granted { term: 21, .. })));
}

/// V counts from the first copy, and another process's write is not taken for it.
#[test]
fn a_write_without_an_answer_is_repeated_unchanged_and_recognized_by_its_attempt() {
    for (attempt, is_own) in [(101, true), (777, false)] {
        let mut grabber = process(ticket(), false, 10, at(1));
        list(&mut grabber, &[], 20, at(1));
        let Step::WriteAndList(_, _, first, ..) = grabber.next(at(1)) else {
            panic!("not written")
        };
        let unknown = Written::Unknown("no answer".to_owned());
        grabber.handle(Input::Written(unknown, at(1)), at(1));
        let Step::Rest(until) = grabber.next(at(1)) else { panic!("no pause") };
        grabber.handle(Input::Rested, until);
        let Step::WriteAndList(_, _, copy, ..) = grabber.next(until) else {
            panic!("not repeated")
        };
        assert_eq!(copy, first);
        grabber.handle(Input::Written(Written::Moved(None), until), until);
        let stored = Ticket { attempt, ..first };
        grabber.handle(Input::Own(Ok((Revision(21), Some(stored.clone())))), until);
        list(&mut grabber, &[standing("ge", 21, 21, stored)], 21, until);
        let due = Grabbed::Granted { term: 21, valid_until: at(1).after(9_900 * SECOND / 1000) };
        assert_eq!(grabber.ended() == Some(&due), is_own, "{:?}", grabber.ended());
    }
}

#[test]
fn a_listing_that_does_not_reach_the_ticket_grants_nothing() {
    let mut grabber = process(ticket(), false, 10, at(1));
    list(&mut grabber, &[], 20, at(1));
    write(&mut grabber, 0, 25, at(1));
    list(&mut grabber, &[], 23, at(1));
    assert!(matches!(grabber.next(at(1)), Step::Rest(_)), "{:?}", grabber.ended());
}

#[test]
fn a_process_that_was_stopped_until_v_writes_again() {
    let mut grabber = process(ticket(), false, 10, at(1));
    list(&mut grabber, &[], 20, at(1));
    let written = write(&mut grabber, 0, 21, at(1));
    list(&mut grabber, &[standing("ge", 21, 21, written)], 21, at(12));
    write(&mut grabber, 21, 22, at(12));
}

/// It may be another bucket, in which nothing is known.
#[test]
fn a_ticket_that_has_gone_is_begun_anew_in_a_bucket_that_was_opened_again() {
    let mut grabber = process(ticket(), false, 10, at(1));
    list(&mut grabber, &[], 20, at(1));
    write(&mut grabber, 0, 21, at(1));
    list(&mut grabber, &[], 22, at(1));
    assert!(matches!(grabber.next(at(1)), Step::Open(_)));
}

#[test]
fn a_listing_beside_the_write_decides_only_if_it_reaches_the_ticket() {
    for (last, is_granted) in [(20, true), (19, false)] {
        let mut grabber = process(ticket(), false, 10, at(1));
        list(&mut grabber, &[], 18, at(1));
        let Step::WriteAndList(..) = grabber.next(at(1)) else { panic!("not written") };
        let (written, listed) = (Written::Stored(Revision(21)), Ok((Vec::new(), Revision(last))));
        grabber.handle(Input::WrittenAndListed(written, at(1), listed), at(1));
        assert_eq!(grabber.ended().is_some(), is_granted, "{last}");
        let lists = matches!(grabber.next(at(1)), Step::List(..));
        assert_eq!(lists, !is_granted, "it is listed again at once");
    }
}

/// A write that is under way while the bucket is lost finds no key of the new one.
#[test]
fn a_ticket_has_another_key_in_another_bucket() {
    let of = |epoch: &str| {
        let id = BucketId { epoch: epoch.to_owned(), created: String::new() };
        element_in("g", Some(&id))
    };
    assert_ne!(of("0123456789abcdef"), of("1123456789abcdef"));
    assert_eq!(of("0123456789abcdef").len(), 1 + EPOCH_LETTERS);
    // An administrator may write any epoch.
    assert_eq!(of("a *.>\u{e9}b"), "gab");
}

fn run_seeds(first: u64, count: u64) -> usize {
    let mut grants = 0;
    for seed in first..first + count {
        let ended = std::panic::catch_unwind(|| Simulation::new(seed).run());
        grants += ended.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    grants
}

#[test]
fn no_two_have_the_lock_at_once_whatever_is_killed_lost_or_late() {
    let grants = run_seeds(1, 1_500);
    assert!(grants > 8_000, "only {grants} times the lock was had");
}

/// `PUTEX_SEEDS=FIRST,COUNT` chooses the seeds.
#[test]
#[ignore = "takes minutes"]
fn many_seeds() {
    let text = std::env::var("PUTEX_SEEDS").unwrap_or_else(|_| "1,100000".to_owned());
    let (first, count) = text.split_once(',').expect("FIRST,COUNT");
    let grants = run_seeds(first.parse().expect("a number"), count.parse().expect("a number"));
    println!("{count} seeds, {grants} grants");
}
