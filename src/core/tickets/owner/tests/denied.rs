//! A user without the right to write: what the store denies it would deny again.

use super::*;

fn denied() -> Input {
    Input::Written(Written::Denied(StoreErrorKind::Credentials.error("no right")))
}

fn unknown() -> Input {
    Input::Written(Written::Unknown("no answer".to_owned()))
}

/// The last message to an asker that was refused for lack of a right.
fn refused() -> Option<ToFront> {
    let no_right = StoreErrorKind::Credentials.error("no right");
    Some(ToFront::Ended(End::Refused(no_right)))
}

/// A lock wrote its ticket again and again for 15 s, and a grab for 5 s. The missing mark of a
/// bucket was written as often.
#[test]
fn who_may_not_write_is_told_so_at_once() {
    let mark = Mark { revision: Revision(0), epoch: "1".to_owned(), lifetime: Duration::ZERO };
    let script = Asker::Script { withdraws: false };
    for asker in [Asker::Command(None), script] {
        for phase in [Phase::Writing, Phase::WritingMark(mark.clone())] {
            let (mut owner, begin) = opened();
            (owner.asker, owner.phase) = (asker, phase);
            owner.next(begin);
            owner.handle(denied(), begin);
            assert_eq!(owner.take_messages().pop(), refused(), "{asker:?}");
            assert_eq!(owner.next(begin), Step::Exit);
        }
    }
}

/// A second grab ended as one whose store is out of reach, after 5 s. Its ticket stands, and may be
/// granted.
#[test]
fn a_ticket_that_may_not_be_renewed_is_waited_with_no_longer() {
    for asker in [Asker::Command(None), Asker::Script { withdraws: true }] {
        let (mut owner, begin) = waiting();
        (owner.asker, owner.phase) = (asker, Phase::Writing);
        assert!(matches!(owner.next(begin), Step::Write(Revision(8), ..)));
        owner.handle(denied(), begin);
        if let Asker::Command(_) = asker {
            let own = owner.ticket.clone();
            assert!(matches!(owner.next(begin), Step::ReadOwn(_)));
            owner.handle(Input::Own(Ok((Revision(8), Some(own)))), begin);
            assert!(matches!(owner.next(begin), Step::End(Revision(8), ..)));
            owner.handle(denied(), begin);
            owner.next(begin);
        }
        let Some(ToFront::Ended(End::Refused(error))) = owner.take_messages().pop() else {
            panic!("{:?}", owner.goal)
        };
        assert_eq!(error.kind, StoreErrorKind::Credentials);
        let doubt = if let Asker::Command(_) = asker { MAY_STAND } else { "" };
        assert_eq!(error.text, format!("no right{doubt}"), "{asker:?}");
    }
}

/// The end of a ticket that the store has not ended.
const MAY_STAND: &str = "; the own ticket may stand until it runs out: no right";

/// A lock that could not be released was said to be released, and one that was not had in time said
/// nothing of its ticket, which others waited for.
#[test]
fn a_command_whose_ticket_may_not_be_ended_is_told_so() {
    let not_had = End::NotHad("behind other".to_owned());
    let released = StoreErrorKind::Credentials.error(&MAY_STAND[2..]);
    let doubtful = End::NotHad(format!("behind other{MAY_STAND}"));
    for (end, due) in [(End::Released, End::Refused(released)), (not_had, doubtful)] {
        let (mut owner, begin) = waiting();
        owner.phase = Phase::Listing;
        owner.take_messages();
        // The answer to a renewal does not count.
        owner.why_unrenewed = Some(StoreErrorKind::Credentials.error("not renewed"));
        owner.end(end, begin);
        assert!(matches!(owner.next(begin), Step::End(..)));
        assert_eq!(owner.take_messages(), []);
        owner.handle(denied(), begin);
        // The owner goes on.
        assert!(matches!(owner.next(begin), Step::Rest(_)));
        assert_eq!(owner.take_messages(), [ToFront::Ended(due)]);
    }
}

/// A grab with -n that was not granted its lock said for 5 s nothing of its ticket, which stands.
#[test]
fn a_ticket_that_may_not_be_withdrawn_is_not_said_to_be_gone() {
    let (mut owner, begin) = waiting();
    (owner.asker, owner.phase) = (Asker::Script { withdraws: true }, Phase::Listing);
    owner.end(End::NotHad("others come first".to_owned()), begin);
    assert!(matches!(owner.next(begin), Step::End(..)));
    owner.handle(denied(), begin);
    assert_eq!(owner.next(begin), Step::Exit);
    let Some(ToFront::Ended(End::Refused(error))) = owner.take_messages().pop() else {
        panic!("{:?}", owner.goal)
    };
    assert_eq!(error.kind, StoreErrorKind::Credentials);
    assert_eq!(error.text, "the own ticket may stand until it runs out: no right");
}

/// The store did not answer until V: the lock was said to be released, and the next one waited for
/// as long as others have to see the ticket unmoved.
#[test]
fn a_command_whose_ticket_runs_out_before_its_end_is_answered_is_told_so() {
    let (mut owner, begin) = waiting();
    owner.phase = Phase::Listing;
    owner.take_messages();
    let until = owner.valid_until().expect("a ticket");
    owner.end(End::Released, until.before(Duration::from_millis(1)));
    assert!(matches!(owner.next(begin), Step::End(..)));
    owner.handle(unknown(), until);
    assert_eq!(owner.next(until), Step::Exit);
    let Some(ToFront::Ended(End::Refused(error))) = owner.take_messages().pop() else {
        panic!("{:?}", owner.goal)
    };
    assert_eq!(error.text, "the own ticket may stand until it runs out: no answer");
}

/// The first copy may be stored, and its ticket granted.
#[test]
fn a_denied_copy_of_a_write_without_an_answer_tells_nothing() {
    let (mut owner, begin) = opened();
    owner.asker = Asker::Script { withdraws: false };
    owner.goal = Goal::Get(Some(begin));
    let Step::Write(_, None, first, _) = owner.next(begin) else { panic!("it is written") };
    owner.handle(unknown(), begin);
    for _ in 0..2 {
        let Step::Rest(until) = owner.next(begin) else { panic!("{:?}", owner.goal) };
        owner.handle(Input::Rested, until);
        assert!(matches!(owner.next(until), Step::Write(_, None, copy, _) if copy == first));
        owner.handle(denied(), until);
    }
    let limit = begin.after(owner.step());
    owner.next(limit);
    owner.phase = Phase::Writing;
    owner.handle(denied(), limit);
    let Some(ToFront::Ended(End::Refused(error))) = owner.take_messages().pop() else {
        panic!("{:?}", owner.goal)
    };
    assert_eq!(error.kind, StoreErrorKind::Unreachable, "it is not known what has become of it");
}

/// The right may be granted again before the lock is lost.
#[test]
fn a_holder_that_may_not_renew_its_ticket_keeps_the_lock_until_it_runs_out() {
    let (mut owner, begin) = waiting();
    (owner.goal, owner.phase) = (Goal::Keep, Phase::Writing);
    owner.take_messages();
    assert!(matches!(owner.next(begin), Step::Write(..)));
    owner.handle(denied(), begin);
    assert!(matches!(owner.next(begin), Step::Rest(_)));
    assert_eq!((owner.take_messages(), &owner.goal), (Vec::new(), &Goal::Keep));
    assert!(owner.why_unrenewed().is_some());
}
