//! Tickets of a requester that have run out, or seem so where the clocks of servers differ.

use super::super::simulated_bucket::Bucket;
use super::*;

/// Returns the step of a process that finds this ticket run out, behind its own new one.
fn step_behind(mode: Mode, old: &StoredTicket) -> Step {
    let mut grabber =
        process_of(Ticket { mode, ..ticket() }, ("boot", nothing()), false, 10, at(1));
    list(&mut grabber, std::slice::from_ref(old), 20, at(1));
    let new = standing(NEW, 21, 21, write(&mut grabber, 0, 21, at(1)));
    list(&mut grabber, &[old.clone(), new], 21, at(1));
    grabber.next(at(1))
}

/// A server whose clock is ahead of that of the one before took over: the ticket seemed to have run
/// out, and another had the lock while a process of the requester relied on it.
#[test]
fn a_ticket_that_has_run_out_is_not_continued_and_is_waited_for_in_each_mode() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        for old_mode in [Mode::Exclusive, Mode::Shared] {
            let old = standing("ge", 9, 7, Ticket { mode: old_mode, ..ticket() });
            let step = step_behind(mode, &aged(old, 10));
            assert!(matches!(step, Step::WriteNotes(..)), "{mode:?} {old_mode:?}: {step:?}");
        }
    }
}

/// A script whose time had run out, and which began anew on the same host, had the lock at once.
#[test]
fn a_ticket_is_removed_once_the_host_that_wrote_it_counts_it_as_run_out() {
    let ms = Duration::from_millis(1);
    for (runs_out, is_removed) in [
        (runs_out("boot", at(1)), true),
        (runs_out("boot", at(1).after(ms)), false),
        (runs_out("another", at(1)), false),
    ] {
        for incarnation in [Incarnation(1), Incarnation(2)] {
            let old = Ticket { runs_out: runs_out.clone(), incarnation, ..ticket() };
            let step = step_behind(Mode::Exclusive, &aged(standing("ge", 9, 7, old), 10));
            assert_eq!(matches!(step, Step::Remove(..)), is_removed, "{runs_out:?}: {step:?}");
        }
    }
}

/// The requester need not have seen a ticket that no server takes for young.
#[test]
fn a_ticket_of_the_requester_is_removed_once_it_has_run_out_by_the_clock_of_each_server() {
    for (age, incarnation, is_removed) in [(29, 1, false), (30, 1, true), (30, 2, false)] {
        let old = Ticket { incarnation: Incarnation(incarnation), ..ticket() };
        let step = step_behind(Mode::Exclusive, &aged(standing("ge", 9, 7, old), age));
        assert_eq!(matches!(step, Step::Remove(..)), is_removed, "{age} {incarnation}: {step:?}");
    }
}

/// A server that was behind showed the old entry again and again: it was listed and removed without
/// an end.
#[test]
fn a_ticket_that_has_run_out_and_is_not_removed_is_listed_again_after_a_pause() {
    let old = Ticket { runs_out: runs_out("boot", at(1)), ..ticket() };
    let old = aged(standing("ge", 9, 7, old), 10);
    let mut grabber = process(false, 10, at(1));
    list(&mut grabber, std::slice::from_ref(&old), 20, at(1));
    let new = standing(NEW, 21, 21, write(&mut grabber, 0, 21, at(1)));
    list(&mut grabber, &[old, new], 21, at(1));
    assert!(matches!(grabber.next(at(1)), Step::Remove(..)));
    grabber.handle(Input::Written(Written::Moved(None)), at(1));
    let step = grabber.next(at(1));
    assert!(matches!(step, Step::Rest(until) if until > at(1)), "{step:?}");
}

/// The ticket that a server restores when it is killed was continued: two had the lock. Where the
/// clocks of servers differ, it may look young. A later one of the same requester shows as well
/// that it had ended: the term went back.
#[test]
fn a_ticket_is_not_continued_if_a_later_one_was_granted() {
    for (incarnation, mode, is_granted, replaces) in [
        (2, Mode::Exclusive, false, 9),
        (2, Mode::Exclusive, true, 0),
        (1, Mode::Exclusive, false, 9),
        (1, Mode::Exclusive, true, 8),
        (1, Mode::Shared, true, 8),
    ] {
        let mut grabber =
            process_of(Ticket { mode, ..ticket() }, ("boot", nothing()), false, 10, at(1));
        let old = aged(standing("ge", 9, 7, Ticket { mode, ..ticket() }), 9);
        let incarnation = Incarnation(incarnation);
        let later = Ticket { incarnation, mode, is_granted, ..ticket() };
        list(&mut grabber, &[old, standing("g2", 8, 8, later)], 20, at(1));
        write(&mut grabber, replaces, 21, at(1));
    }
}

/// Performs the steps of a process at a server whose clock is ahead by this, in microseconds.
fn perform(grabber: &mut TicketOwner, bucket: &mut Bucket, ahead: u64, now: Instant) {
    (bucket.now, bucket.ahead) = (now.since_boot().as_micros() as u64, ahead);
    for _ in 0..30 {
        let step = grabber.next(now);
        if step == Step::Exit {
            return;
        }
        let element = grabber.key_element();
        let answer = bucket.answer(step, &element, false).0;
        grabber.handle(answer, now);
    }
    panic!("it does not end: {:?}", grabber.next(now));
}

/// The ticket of a process that had been told that it has the lock was removed for one that had run
/// out, and one that keeps no place withdrew the next: others had the lock before V.
#[test]
fn no_process_of_the_requester_takes_the_lock_away_from_another() {
    let mut bucket = Bucket::new(1);
    let mark = Mark { revision: Revision(0), epoch: "1".to_owned(), lifetime: 10 * SECOND };
    bucket.answer(Step::WriteMark(mark, at(0)), "", false);
    let begin = |nonce: u128, seconds: u32, requester: u128, clock: &str, now: Instant| {
        let timing = timing(seconds * SECOND, 10_000).expect("times");
        let (lifetime, incarnation) = (seconds * SECOND, Incarnation(requester));
        let ticket = Ticket { lifetime, incarnation, attempt: (nonce as u64) << 9, ..ticket() };
        let (asker, wait) = (Asker::Script { withdraws: nonce == 3 }, Some(Duration::ZERO));
        TicketOwner::new(timing, ticket, nonce, asker, wait, now).with_notes(clock)
    };
    let mut perform = |mut grabber: TicketOwner, ahead: u64, now: Instant| {
        perform(&mut grabber, &mut bucket, ahead, now);
        (ended(&grabber), grabber.valid_until())
    };
    let (granted, valid_until) = perform(begin(1, 10, 1, "one", at(1)), 0, at(1));
    assert!(matches!(granted, Some(ToFront::Granted { term: 2, .. })), "{granted:?}");
    assert!(valid_until > Some(at(10)));
    // Another server leads, whose clock is ahead. There is no mark for 20 s.
    for (nonce, seconds, requester) in [(2, 10, 1), (3, 20, 1), (4, 10, 2)] {
        let other = perform(begin(nonce, seconds, requester, "two", at(3)), 9_000_000, at(3)).0;
        assert!(!matches!(other, Some(ToFront::Granted { .. })), "{nonce}: {other:?}");
    }
    // The host of the first process knows when V has passed.
    for (nonce, ms, is_granted) in [(5, 10_050, false), (6, 10_150, true)] {
        let now = at(1).after(Duration::from_millis(ms));
        let message = perform(begin(nonce, 10, 2, "one", now), 9_000_000, now).0;
        assert_eq!(matches!(message, Some(ToFront::Granted { .. })), is_granted, "{message:?}");
    }
}
