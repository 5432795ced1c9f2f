//! Processes of one host that do not wait: together they see that a holder is dead.

use super::*;
use crate::core::observed::{BUCKET, Observed};

/// Returns a process by this clock that asks once, in a bucket that was opened with these notes and
/// this mark.
fn attempt_with(clock: &str, notes: (Revision, Observed), mark: Mark, now: Instant) -> TicketOwner {
    let mut owner = opened().0.with_notes(clock);
    (owner.began, owner.goal, owner.bucket) = (now, Goal::Get(Some(now)), None);
    let opened = TicketsOpened { info: info(1), mark, notes };
    owner.handle(Input::Opened(Ok(Box::new(opened))), now);
    owner
}

/// Returns no notes.
fn nothing() -> (Revision, Observed) {
    (Revision(0), Observed::default())
}

/// Lets a process by this clock, which has found these notes, ask once, with a ticket of this
/// number, behind a holder that stands at this revision.
fn attempt(
    (clock, notes): (&str, (Revision, Observed)),
    number: u64,
    holder: u64,
    now: Instant,
) -> (TicketOwner, StoredTicket) {
    let at = Revision(number);
    let mark = Mark { revision: Revision(1), epoch: "1".to_owned(), lifetime: LIFETIME_DEFAULT };
    let mut owner = attempt_with(clock, notes, mark, now);
    let Step::Write(_, None, ticket, ..) = owner.next(now) else { panic!("not written") };
    let key = format!("lock.a.{}", owner.key_element());
    let own =
        StoredTicket { key, revision: at, number: at, stored_at: None, ticket: Ok(ticket.clone()) };
    let holder = StoredTicket {
        key: "lock.a.holder".to_owned(),
        revision: Revision(holder),
        number: Revision(5),
        stored_at: None,
        ticket: Ok(Ticket { incarnation: Incarnation(9), ..ticket }),
    };
    let listed = listing(vec![holder.clone(), own], at);
    owner.handle(Input::Written(Written::Stored(at)), now);
    owner.handle(Input::Listed(listed), now);
    (owner, holder)
}

/// Returns the notes that a process writes in the place of this revision before it ends.
fn noted(mut owner: TicketOwner, at: u64, now: Instant) -> Observed {
    let Step::WriteNotes(expected, seen, _) = owner.next(now) else {
        panic!("{:?}", owner.next(now))
    };
    assert_eq!(expected, Revision(at));
    owner.handle(Input::Written(Written::Unknown("no answer".to_owned())), now);
    assert!(matches!(owner.next(now), Step::End(..)), "its ticket is ended");
    seen
}

/// A job on a host that asks once an hour, with -n, never got the lock of a host that was dead.
#[test]
fn who_asks_once_gets_rid_of_a_dead_holder_at_a_later_attempt() {
    let (_, begin) = opened();
    let (first, _) = attempt(("clock", nothing()), 7, 5, begin);
    let seen = noted(first, 0, begin);
    assert_eq!(seen.since(Revision(5)), Some(begin));
    let wait = opened().0.timing.removal_wait(opened().0.timing.lifetime());
    let soon = begin.after(wait - Duration::from_millis(1));
    let (mut second, _) = attempt(("clock", (Revision(9), seen.clone())), 11, 5, soon);
    // The ticket has not stood for long enough yet, and the same is noted already.
    assert!(matches!(second.next(soon), Step::End(..)), "{:?}", second.next(soon));
    let later = begin.after(wait);
    let (mut third, holder) = attempt(("clock", (Revision(13), seen)), 15, 5, later);
    let Step::Remove(removed, _) = third.next(later) else { panic!("{:?}", third.next(later)) };
    assert_eq!(removed, holder);
    third.handle(Input::Written(Written::Stored(Revision(16))), later);
    let Step::List(..) = third.next(later) else { panic!("{:?}", third.next(later)) };
    let key = format!("lock.a.{}", third.key_element());
    let (number, ticket) = (Revision(15), Ok(third.ticket().clone()));
    let own = StoredTicket { key, revision: number, number, stored_at: None, ticket };
    third.handle(Input::Listed(listing(vec![own], Revision(16))), later);
    let told = third.take_messages().pop();
    assert!(matches!(told, Some(ToFront::Granted { term: 15, .. })), "{told:?}");
}

#[test]
fn notes_of_a_holder_that_has_moved_or_of_another_clock_count_for_nothing() {
    let (_, begin) = opened();
    let (first, _) = attempt(("clock", nothing()), 7, 5, begin);
    let seen = noted(first, 0, begin);
    let later = begin.after(Duration::from_secs(3600));
    for (clock, holder) in [("clock", 8), ("another", 5)] {
        let (second, _) = attempt((clock, (Revision(9), seen.clone())), 11, holder, later);
        let seen = noted(second, 9, later);
        assert_eq!(seen.since(Revision(holder)), Some(later), "{clock}");
        assert_eq!(seen.clock(), clock);
    }
}

/// Two jobs on a host, one of which waits for the other alone, dropped each other's notes, and both
/// waited for ever for a dead holder.
#[test]
fn what_others_have_noted_stays_in_the_notes_while_it_stands() {
    let (_, begin) = opened();
    let mut noted = Observed::nothing("clock", "1");
    noted.see([3, 4].map(Revision).into_iter(), begin);
    let later = begin.after(Duration::from_secs(1));
    let mark = Mark { revision: Revision(1), epoch: "1".to_owned(), lifetime: LIFETIME_DEFAULT };
    let mut owner = attempt_with("clock", (Revision(9), noted), mark, later);
    owner.ticket.mode = Mode::Shared;
    let Step::Write(_, None, own, ..) = owner.next(later) else { panic!("not written") };
    let stored = |key: String, number: u64, ticket: Ticket| {
        let number = Revision(number);
        StoredTicket { key, revision: number, number, stored_at: None, ticket: Ok(ticket) }
    };
    let other =
        |incarnation, mode| Ticket { incarnation: Incarnation(incarnation), mode, ..own.clone() };
    let dead = stored("lock.a.dead".to_owned(), 3, other(8, Mode::Shared));
    let ahead = stored("lock.a.ahead".to_owned(), 5, other(9, Mode::Exclusive));
    let own = stored(format!("lock.a.{}", owner.key_element()), 7, own.clone());
    let listed = listing(vec![dead, ahead, own], Revision(7));
    owner.handle(Input::Written(Written::Stored(Revision(7))), later);
    owner.handle(Input::Listed(listed), later);
    let Step::WriteNotes(_, seen, _) = owner.next(later) else { panic!("{:?}", owner.next(later)) };
    let since = [3, 4, 5].map(|revision| seen.since(Revision(revision)));
    assert_eq!(since, [Some(begin), None, Some(later)], "4 stands no more");
}

/// Every process waited for the mark from its own beginning, so it never came.
#[test]
fn who_asks_once_writes_the_mark_of_a_new_bucket_when_others_have_waited_for_it() {
    let (_, begin) = opened();
    let none = Mark { revision: Revision(0), epoch: String::new(), lifetime: Duration::ZERO };
    let attempt_with_mark = |notes, at: Instant| {
        let mut owner = attempt_with("clock", notes, none.clone(), at);
        write_first(&mut owner, at);
        owner
    };
    let mut first = attempt_with_mark(nothing(), begin);
    let Step::WriteNotes(_, seen, _) = first.next(begin) else { panic!("{:?}", first.next(begin)) };
    assert_eq!(seen.since(BUCKET), Some(begin));
    let wait = first.timing.removal_wait(LIFETIME_DEFAULT);
    for (passed, is_written) in [(wait - Duration::from_millis(1), false), (wait, true)] {
        let now = begin.after(passed);
        let mut owner = attempt_with_mark((Revision(3), seen.clone()), now);
        let step = owner.next(now);
        assert_eq!(matches!(step, Step::WriteMark(..)), is_written, "{passed:?}: {step:?}");
    }
}

/// The process wrote the mark again for ever.
#[test]
fn a_process_ends_where_the_mark_is_not_stored() {
    for waits in [false, true] {
        let (mut owner, begin) = opened();
        let mark = Mark { revision: Revision(0), epoch: "1".to_owned(), lifetime: Duration::ZERO };
        let limit = (!waits).then_some(begin);
        (owner.goal, owner.phase) = (Goal::Get(limit), Phase::WritingMark(mark));
        owner.take_messages();
        // A process that waits has tried for T.
        let now = if waits { begin.after(owner.timing.lifetime()) } else { begin };
        assert!(matches!(owner.next(now), Step::WriteMark(..)));
        owner.handle(
            Input::Written(Written::Denied(StoreErrorKind::Unreachable.error("no room"))),
            now,
        );
        let refused = End::Refused(StoreErrorKind::Unreachable.error("no room"));
        assert_eq!(owner.take_messages(), [ToFront::Ended(refused)]);
        assert_eq!(owner.next(now), Step::Exit);
    }
}
