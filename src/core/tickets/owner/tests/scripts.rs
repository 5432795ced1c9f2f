//! Scripts: rule by rule with inputs by hand.

mod late;
mod noted;
mod run_out;
mod several;

use super::*;
use crate::core::observed::Observed;
use crate::core::tickets::grab::timing;
use crate::core::tickets::{Mode, Name, RunsOut};

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Instant {
    Instant::from_boot(SECOND * seconds as u32)
}

/// A ticket of the requester 1 for the name `a`, for 10 s.
fn ticket() -> Ticket {
    let (lifetime, token) = (10 * SECOND, "one".to_owned());
    Ticket { lifetime, token, attempt: 100, ..Ticket::sample("a") }
}

fn standing(element: &str, revision: u64, number: u64, ticket: Ticket) -> StoredTicket {
    let key = format!("lock.a.{element}");
    let (revision, number) = (Revision(revision), Revision(number));
    let is_renewal = revision != number && ticket.counts_if_stored_by.is_none();
    let by = if is_renewal { Some(LISTED_AT) } else { ticket.counts_if_stored_by };
    let (stored_at, ticket) =
        (LISTED_AT.before(SECOND / 2), Ticket { counts_if_stored_by: by, ..ticket });
    StoredTicket { key, revision, number, stored_at: Some(stored_at), ticket: Ok(ticket) }
}

/// The ticket of another, which has the number 5.
fn other(revision: u64) -> StoredTicket {
    standing("other", revision, 5, Ticket { incarnation: Incarnation(2), ..ticket() })
}

fn runs_out(clock: &str, at: Instant) -> Option<RunsOut> {
    Some(RunsOut { clock: clock.to_owned(), at })
}

/// The last element of the key of a ticket that a process of these tests has begun.
const NEW: &str = "g0000000000000000000000000000000e0";

fn mark(seconds: u32) -> Mark {
    Mark { revision: Revision(1), epoch: "e".to_owned(), lifetime: SECOND * seconds }
}

fn bucket(last: u64) -> BucketInfo {
    let id = BucketId { epoch: "e".to_owned(), created: String::new() };
    BucketInfo { id, ..info(last) }
}

/// Returns a process whose bucket is open, and has a mark for so many seconds.
fn process(withdraws: bool, marked: u32, now: Instant) -> TicketOwner {
    process_of(ticket(), ("boot", nothing()), withdraws, marked, now)
}

/// Returns no notes.
fn nothing() -> (Revision, Observed) {
    (Revision(0), Observed::default())
}

/// Returns such a process with this ticket and clock, which finds these notes.
fn process_of(
    ticket: Ticket,
    (clock, notes): (&str, (Revision, Observed)),
    withdraws: bool,
    marked: u32,
    now: Instant,
) -> TicketOwner {
    let timing = timing(10 * SECOND, 10_000).expect("times");
    let (asker, wait) = (Asker::Script { withdraws }, Some(Duration::ZERO));
    let mut owner = TicketOwner::new(timing, ticket, 14, asker, wait, now).with_notes(clock);
    assert!(matches!(owner.next(now), Step::Open(_)));
    let opened = TicketsOpened { info: bucket(20), mark: mark(marked), notes };
    owner.handle(Input::Opened(Ok(Box::new(opened))), now);
    owner
}

/// Returns the last message to a process, if it has ended.
fn ended(owner: &TicketOwner) -> Option<ToFront> {
    let last = owner.last_message.clone();
    last.filter(|_| owner.phase == Phase::Done)
}

fn is_granted(owner: &TicketOwner, number: u64) -> bool {
    matches!(ended(owner), Some(ToFront::Granted { term, .. }) if term == number)
}

fn list(grabber: &mut TicketOwner, standing: &[StoredTicket], last: u64, now: Instant) {
    assert!(matches!(grabber.next(now), Step::List(..)));
    grabber.handle(Input::Listed(listing(standing.to_vec(), Revision(last))), now);
}

/// Expects a write in the place of this revision, and has it stored; returns the ticket.
fn write(grabber: &mut TicketOwner, replaces: u64, stored: u64, now: Instant) -> Ticket {
    let Step::Write(at, _, ticket, _) = grabber.next(now) else { panic!("it is not written") };
    assert_eq!(at, Revision(replaces));
    grabber.handle(Input::Written(Written::Stored(Revision(stored))), now);
    ticket
}

/// Expects that the ticket, which stands at this revision, is written once more as granted before
/// the process ends.
fn grant(grabber: &mut TicketOwner, (revision, number): (u64, u64), now: Instant) {
    assert_eq!(ended(grabber), None);
    let written = write(grabber, revision, revision + 1, now);
    assert!(written.is_granted);
    assert!(is_granted(grabber, number), "{:?}", ended(grabber));
}

/// Returns the number of a ticket that keeps its place, and how many come first.
fn queued(grabber: &TicketOwner) -> (u64, usize) {
    match ended(grabber) {
        Some(ToFront::Waiting { ahead, .. }) => (grabber.term().expect("a ticket"), ahead),
        other => panic!("{other:?}"),
    }
}

/// Returns the notes that are written where there were none.
fn noted(grabber: &mut TicketOwner, now: Instant) -> Observed {
    let Step::WriteNotes(Revision(0), seen, _) = grabber.next(now) else { panic!("not noted") };
    grabber.handle(Input::Written(Written::Stored(Revision(22))), now);
    seen
}

#[test]
fn a_ticket_that_is_found_keeps_its_number_and_is_granted_by_what_is_listed_behind_the_write() {
    let mut grabber = process(false, 10, at(1));
    let own = standing("ge", 9, 7, Ticket { attempt: 3, ..ticket() });
    list(&mut grabber, &[own], 20, at(1));
    let Step::Write(_, number, ..) = grabber.next(at(2)) else { panic!("it is not written") };
    assert_eq!(number, Some(Revision(7)));
    let written = write(&mut grabber, 9, 21, at(2));
    list(&mut grabber, &[standing("ge", 21, 7, written)], 21, at(3));
    grant(&mut grabber, (21, 7), at(4));
}

/// Nobody was granted the names meanwhile: the write has found its own revision.
#[test]
fn a_ticket_that_was_granted_and_is_found_is_granted_by_one_write() {
    let mut grabber = process(false, 10, at(1));
    let own = standing("ge", 9, 7, Ticket { attempt: 3, is_granted: true, ..ticket() });
    list(&mut grabber, &[own], 20, at(1));
    assert!(matches!(grabber.next(at(2)), Step::Write(_, Some(Revision(7)), ..)));
    write(&mut grabber, 9, 21, at(2));
    let valid_until = at(2).after(Duration::from_millis(9_900));
    assert!(is_granted(&grabber, 7));
    assert_eq!(grabber.valid_until(), Some(valid_until));
}

#[test]
fn what_an_attempt_has_seen_is_noted_and_a_later_one_of_this_clock_removes_it() {
    let mut first = process(false, 10, at(1));
    list(&mut first, &[other(6)], 20, at(1));
    let own = write(&mut first, 0, 21, at(1));
    list(&mut first, &[other(6), standing(NEW, 21, 21, own.clone())], 21, at(2));
    let seen = noted(&mut first, at(2));
    assert_eq!((seen.since(Revision(6)), queued(&first)), (Some(at(2)), (21, 1)));
    let after = |clock: &str, revision: u64, now: Instant| {
        let ticket = Ticket { attempt: 200, ..ticket() };
        let notes = (Revision(22), seen.clone());
        let mut later = process_of(ticket, (clock, notes), false, 10, now);
        let own = aged(standing("ge", 22, 21, own.clone()), 1);
        list(&mut later, &[other(revision), own.clone()], 30, now);
        let written = write(&mut later, 22, 31, now);
        let behind = [other(revision), standing("ge", 31, 21, written)];
        list(&mut later, &behind, 31, now);
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
    let mut first = process(false, 9, at(1));
    list(&mut first, &[], 20, at(1));
    let own = write(&mut first, 0, 21, at(1));
    list(&mut first, &[standing(NEW, 21, 21, own.clone())], 21, at(2));
    let seen = noted(&mut first, at(2));
    assert_eq!((seen.since(Revision(0)), queued(&first)), (Some(at(2)), (21, 0)));
    let due = at(2).after(Duration::from_millis(10_100));
    for (now, is_due) in [(due.before(Duration::from_millis(1)), false), (due, true)] {
        let (ticket, notes) = (Ticket { attempt: 200, ..ticket() }, (Revision(22), seen.clone()));
        let mut later = process_of(ticket, ("boot", notes), false, 9, now);
        list(&mut later, &[standing("ge", 22, 21, own.clone())], 30, now);
        let written = write(&mut later, 22, 31, now);
        let behind = [standing("ge", 31, 21, written)];
        list(&mut later, &behind, 31, now);
        if !is_due {
            assert_eq!(queued(&later), (21, 0));
            continue;
        }
        let Step::WriteMark(mark, _) = later.next(now) else { panic!("no mark is written") };
        assert_eq!(mark.lifetime, 10 * SECOND);
        later.handle(Input::Written(Written::Stored(Revision(32))), now);
        assert!(matches!(later.next(now), Step::Open(_)));
        later.handle(bucket_opened_with(&bucket(32), mark), now);
        let written = write(&mut later, 31, 33, now);
        list(&mut later, &[standing("ge", 33, 21, written)], 33, now);
        grant(&mut later, (33, 21), now);
    }
}

/// A server that is killed may restore one that was before it.
#[test]
fn a_ticket_that_was_granted_is_granted_whatever_is_restored_before_it() {
    for was_granted in [true, false] {
        let mut grabber = process(true, 10, at(1));
        let own = Ticket { attempt: 3, is_granted: was_granted, ..ticket() };
        list(&mut grabber, &[other(6), standing("ge", 9, 7, own)], 20, at(1));
        let written = write(&mut grabber, 9, 21, at(1));
        if !was_granted {
            list(&mut grabber, &[other(6), standing("ge", 21, 7, written)], 21, at(2));
        }
        assert_eq!(is_granted(&grabber, 7), was_granted);
        let notes = matches!(grabber.next(at(2)), Step::WriteNotes(..));
        assert_eq!(notes, !was_granted, "withdrawn");
    }
}

/// An attempt that is withdrawn leaves no ticket.
#[test]
fn attempts_that_keep_no_place_get_rid_of_a_dead_holder_together() {
    let attempt = |noted: (Revision, Observed), now: Instant| {
        let mut grabber = process_of(ticket(), ("boot", noted), true, 10, now);
        list(&mut grabber, &[other(6)], 20, now);
        let written = write(&mut grabber, 0, 21, now);
        let behind = [other(6), standing(NEW, 21, 21, written)];
        list(&mut grabber, &behind, 21, now);
        grabber
    };
    let mut first = attempt(nothing(), at(1));
    let seen = noted(&mut first, at(1));
    assert!(matches!(first.next(at(1)), Step::End(Revision(21), ..)));
    let due = at(1).after(Duration::from_millis(10_100));
    let mut later = attempt((Revision(22), seen.clone()), due);
    assert!(matches!(later.next(due), Step::Remove(..)), "{:?}", later.next(due));
    // The dead ticket has not stood for long enough yet, and the same is noted already.
    let soon = due.before(Duration::from_millis(1));
    let mut early = attempt((Revision(22), seen), soon);
    assert!(matches!(early.next(soon), Step::End(Revision(21), ..)), "{:?}", early.next(soon));
}

#[test]
fn a_ticket_never_runs_out_earlier_than_its_requester_was_told() {
    let mut grabber = process(false, 60, at(1));
    let own = standing("ge", 9, 7, Ticket { lifetime: 60 * SECOND, attempt: 3, ..ticket() });
    list(&mut grabber, &[own], 20, at(1));
    let written = write(&mut grabber, 9, 21, at(1));
    assert_eq!(written.lifetime, 60 * SECOND);
    // The V that it is told now is not earlier either.
    list(&mut grabber, &[standing("ge", 21, 7, written)], 21, at(1));
    grant(&mut grabber, (21, 7), at(1));
    let valid_until = at(1).after(60 * SECOND - 600 * SECOND / 1000);
    assert_eq!(grabber.valid_until(), Some(valid_until));
    let mut grabber = process(false, 60, at(1));
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
        let mut grabber = process(false, 10, at(1));
        list(&mut grabber, &[other], 20, at(1));
        let ended = ended(&grabber);
        assert!(matches!(ended, Some(ToFront::Ended(End::Overlaps(_)))), "{ended:?}");
    }
}

/// V counts from the first copy, and another process's write is not taken for it.
#[test]
fn a_write_without_an_answer_is_repeated_unchanged_and_recognized_by_its_attempt() {
    for (attempt, is_own) in [(101, true), (777, false)] {
        let mut grabber = process(false, 10, at(1));
        list(&mut grabber, &[], 20, at(1));
        let Step::Write(_, _, first, ..) = grabber.next(at(1)) else { panic!("not written") };
        let unknown = Written::Unknown("no answer".to_owned());
        grabber.handle(Input::Written(unknown), at(1));
        let Step::Rest(until) = grabber.next(at(1)) else { panic!("no pause") };
        grabber.handle(Input::Rested, until);
        let Step::Write(_, _, copy, ..) = grabber.next(until) else { panic!("not repeated") };
        // V may count from this copy.
        let runs_out = runs_out("boot", until.after(Duration::from_millis(10_100)));
        assert_eq!(copy, Ticket { runs_out, ..first.clone() });
        grabber.handle(Input::Written(Written::Moved(None)), until);
        let stored = Ticket { attempt, ..first };
        grabber.handle(Input::Own(Ok((Revision(21), Some(stored)))), until);
        let valid_until = at(1).after(grabber.validity());
        assert_eq!(grabber.valid_until(), is_own.then_some(valid_until));
    }
}

#[test]
fn a_listing_that_does_not_reach_the_ticket_grants_nothing() {
    let mut grabber = process(false, 10, at(1));
    list(&mut grabber, &[], 20, at(1));
    write(&mut grabber, 0, 25, at(1));
    list(&mut grabber, &[], 23, at(1));
    assert!(matches!(grabber.next(at(1)), Step::Rest(_)), "{:?}", ended(&grabber));
}

/// Others may have removed its ticket, and a server that was killed may have restored it.
#[test]
fn a_process_that_was_stopped_until_v_begins_anew() {
    let mut grabber = process(false, 10, at(1));
    list(&mut grabber, &[], 20, at(1));
    let written = write(&mut grabber, 0, 21, at(1));
    let old = aged(standing(NEW, 21, 21, written), 11);
    list(&mut grabber, std::slice::from_ref(&old), 21, at(12));
    list(&mut grabber, std::slice::from_ref(&old), 21, at(12));
    assert_ne!(grabber.key_element(), NEW);
    write(&mut grabber, 0, 22, at(12));
}

/// A pause is over.
fn rest(grabber: &mut TicketOwner, now: Instant) {
    let Step::Rest(until) = grabber.next(now) else { panic!("no pause") };
    grabber.handle(Input::Rested, until);
}

fn aged(stored: StoredTicket, seconds: u32) -> StoredTicket {
    StoredTicket { stored_at: Some(LISTED_AT.before(SECOND * seconds)), ..stored }
}

/// The listing said how old it was; when the process went on, it might have been restored.
#[test]
fn a_ticket_that_was_found_is_looked_for_again_by_a_process_that_was_stopped_since() {
    for (now, continues) in [(at(10), true), (at(11), false)] {
        let mut grabber = process(false, 10, at(1));
        let own = aged(standing("ge", 9, 7, ticket()), 1);
        list(&mut grabber, std::slice::from_ref(&own), 20, at(1));
        let step = grabber.next(now);
        assert_eq!(matches!(step, Step::Write(Revision(9), ..)), continues, "{step:?}");
        assert_eq!(matches!(step, Step::List(..)), !continues, "{step:?}");
    }
}

/// The write may have found a ticket that was restored. That ticket was ended, and another process
/// of the requester had been told that it has the lock by it.
#[test]
fn a_write_that_is_answered_after_v_of_the_one_before_is_looked_for_again() {
    let mut grabber = process(false, 10, at(1));
    list(&mut grabber, &[aged(standing("ge", 9, 7, ticket()), 1)], 20, at(1));
    let Step::Write(..) = grabber.next(at(2)) else { panic!("it is not written") };
    grabber.handle(Input::Written(Written::Stored(Revision(21))), at(20));
    list(&mut grabber, &[], 22, at(20));
    write(&mut grabber, 0, 23, at(20));
}

/// Two processes of one requester have found no ticket, and each has written one.
#[test]
fn of_two_tickets_of_a_requester_the_first_one_stays() {
    let mut grabber = process(false, 10, at(1));
    list(&mut grabber, &[], 20, at(1));
    let second = standing(NEW, 22, 22, write(&mut grabber, 0, 22, at(1)));
    let first = standing("ge", 21, 21, Ticket { attempt: 7, ..ticket() });
    list(&mut grabber, &[first.clone(), second], 22, at(1));
    let Step::End(Revision(22), lifetime, _) = grabber.next(at(1)) else { panic!("both stay") };
    assert_eq!(lifetime, 10 * SECOND);
    grabber.handle(Input::Written(Written::Stored(Revision(23))), at(1));
    rest(&mut grabber, at(1));
    list(&mut grabber, std::slice::from_ref(&first), 23, at(1));
    let written = write(&mut grabber, 21, 24, at(1));
    list(&mut grabber, &[standing("ge", 24, 21, written)], 24, at(1));
    grant(&mut grabber, (24, 21), at(1));
    // The process that has written the first ticket goes on with it.
    let mut grabber = process(false, 10, at(1));
    list(&mut grabber, &[], 20, at(1));
    let first = standing(NEW, 21, 21, write(&mut grabber, 0, 21, at(1)));
    let second = standing("ge", 22, 22, Ticket { attempt: 7, ..ticket() });
    list(&mut grabber, &[first, second], 22, at(1));
    grant(&mut grabber, (21, 21), at(1));
}

#[test]
fn a_requester_that_asks_for_both_modes_at_once_is_told_so() {
    let mut grabber = process(false, 10, at(1));
    list(&mut grabber, &[], 20, at(1));
    let own = standing(NEW, 22, 22, write(&mut grabber, 0, 22, at(1)));
    let first = standing("ge", 21, 21, Ticket { mode: Mode::Shared, ..ticket() });
    list(&mut grabber, &[first, own], 22, at(1));
    assert!(matches!(grabber.next(at(1)), Step::End(Revision(22), ..)));
    grabber.handle(Input::Written(Written::Stored(Revision(23))), at(1));
    let ended = ended(&grabber);
    assert!(matches!(ended, Some(ToFront::Ended(End::Overlaps(_)))), "{ended:?}");
}

#[test]
fn a_ticket_whose_number_is_below_a_known_revision_is_refused() {
    for (stored, is_refused) in [(20, true), (21, false)] {
        let mut grabber = process(false, 10, at(1));
        list(&mut grabber, &[], 20, at(1));
        write(&mut grabber, 0, stored, at(1));
        let ended = ended(&grabber);
        let refused = matches!(ended, Some(ToFront::Ended(End::Refused(..))));
        assert_eq!(refused, is_refused, "{ended:?}");
    }
}

#[test]
fn a_ticket_that_has_gone_is_looked_for_again() {
    let mut grabber = process(false, 10, at(1));
    list(&mut grabber, &[], 20, at(1));
    write(&mut grabber, 0, 21, at(1));
    list(&mut grabber, &[], 22, at(1));
    list(&mut grabber, &[], 22, at(1));
    write(&mut grabber, 0, 23, at(1));
    assert_ne!(grabber.key_element(), NEW);
}

#[test]
fn a_listing_after_the_write_decides_only_if_it_reaches_the_ticket() {
    for (last, is_granted) in [(21, true), (20, false)] {
        let mut grabber = process(false, 10, at(1));
        list(&mut grabber, &[], 20, at(1));
        let Step::Write(..) = grabber.next(at(1)) else { panic!("not written") };
        let (written, listed) =
            (Written::Stored(Revision(22)), listing(Vec::new(), Revision(last)));
        grabber.handle(Input::Written(written), at(1));
        grabber.handle(Input::Listed(listed), at(1));
        let grants = matches!(grabber.next(at(1)), Step::Write(Revision(22), ..));
        assert_eq!(grants, is_granted, "{last}");
    }
}
