//! A store that is reached late, and one that is not fit any more.

use super::*;

/// With a dead first name server a command with `-n` found no server: the resolver asks the second
/// one after 5 s.
#[test]
fn a_wait_begins_when_the_store_has_answered_for_the_first_time() {
    let (limited, begin) = opened();
    let second = Duration::from_secs(1);
    for wait in [Duration::ZERO, 2 * second] {
        let (timing, ticket) = (limited.timing, limited.ticket.clone());
        let asker = Asker::Command(None);
        let mut owner = TicketOwner::new(timing, ticket, 1, asker, Some(wait), begin);
        assert_eq!(owner.next(begin), Step::Open(begin.after(REACH_MAX)));
        let later = begin.after(6 * second);
        owner.handle(bucket_opened(&info(1)), later);
        assert_eq!(owner.goal, Goal::Get(Some(later.after(wait))));
        // Only then.
        owner.handle(Input::Gone("lost".to_owned()), later);
        assert!(matches!(owner.next(later), Step::Open(by) if by < later.after(REACH_MAX)));
        owner.handle(bucket_opened(&info(1)), later.after(second));
        assert_eq!(owner.goal, Goal::Get(Some(later.after(wait))));
    }
}

/// On a slow link an attempt ended with 69 in the place of 75, and noted nothing: a request that
/// began when the wait was over had a sixteenth of T.
#[test]
fn a_request_has_r_for_its_answer_also_when_the_wait_is_over() {
    let (mut owner, begin) = opened();
    owner.goal = Goal::Get(Some(begin));
    let by = begin.after(owner.timing.renewal());
    let Step::Write(.., until) = owner.next(begin) else { panic!("it is written") };
    assert_eq!(until, by);
    owner.handle(Input::Written(Written::Stored(Revision(7))), begin);
    let step = owner.next(begin);
    assert!(matches!(step, Step::List(_, until) if until == by), "{step:?}");
}

/// An older server under a lock that is held was asked 2,000 times a second, until V, and the line
/// did not say what was wrong.
#[test]
fn a_holder_whose_bucket_takes_no_tickets_any_more_pauses_and_says_so() {
    let (mut owner, begin) = opened();
    assert!(matches!(owner.next(begin), Step::Write(..)));
    owner.handle(Input::Written(Written::Stored(Revision(7))), begin);
    owner.granted();
    owner.handle(Input::Gone("lost".to_owned()), begin);
    let retires = Err("tickets would stay for ever".to_owned());
    let info = BucketInfo { retires, ..info(7) };
    let (mut now, mut openings) = (begin, 0);
    while owner.goal == Goal::Keep {
        let step = owner.next(now);
        if let Step::Rest(until) = step {
            now = now.after(Duration::from_millis(1)).max(until);
            owner.handle(Input::Rested, now);
        } else {
            assert!(matches!(step, Step::Open(_)), "{step:?}");
            openings += 1;
            owner.handle(bucket_opened(&info), now);
        }
    }
    let took = now.since(begin);
    assert!(openings <= took.as_millis() / 50 + 1, "{openings} in {took:?}");
    let said = owner.take_messages().pop();
    let why = "it was not renewed in time: tickets would stay for ever";
    assert_eq!(said, Some(ToFront::Lost(why.to_owned())));
}

/// A server that was killed had stored a write and not acknowledged it. The write was among the
/// entries when the store was reached again, so the bucket was taken for one that has gone back: a
/// waiter ended with 78, and the command of a holder was killed.
#[test]
fn a_write_that_was_stored_before_the_store_was_lost_is_recognized() {
    for is_held in [false, true] {
        let (mut owner, begin) = if is_held { waiting() } else { opened() };
        if is_held {
            (owner.goal, owner.phase) = (Goal::Keep, Phase::Writing);
        }
        let Step::Write(_, _, sent, _) = owner.next(begin) else { panic!("it is written") };
        owner.handle(Input::Written(Written::Unknown("connection lost".to_owned())), begin);
        owner.handle(Input::Gone("lost".to_owned()), begin);
        assert!(matches!(owner.next(begin), Step::Open(_)));
        owner.handle(bucket_opened(&info(12)), begin);
        let again = owner.next(begin);
        assert!(matches!(again, Step::Write(..)), "{again:?}");
        owner.handle(Input::Written(Written::Moved(None)), begin);
        owner.handle(Input::Own(Ok((Revision(12), Some(sent)))), begin);
        assert_eq!(owner.own.as_ref().map(|own| own.revision), Some(Revision(12)));
        let is_as_before = matches!(owner.goal, Goal::Keep) == is_held;
        assert!(is_as_before && owner.write.is_none(), "{:?}", owner.goal);
    }
}
