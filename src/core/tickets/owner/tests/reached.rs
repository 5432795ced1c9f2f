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
        let mut owner = TicketOwner::new(timing, ticket, 1, Some(wait), begin);
        assert_eq!(owner.next(begin), Step::Open(begin.after(REACH_MAX)));
        let later = begin.after(6 * second);
        let id = BucketId { epoch: "1".to_owned(), created: String::new() };
        let (last, replicas, remarks) = (Revision(1), 1, Vec::new());
        let info = BucketInfo { id, last, age: None, replicas, remarks, retires: Ok(()) };
        owner.handle(Input::Opened(Ok(info.clone())), later);
        assert_eq!(owner.goal, Goal::Get(Some(later.after(wait))));
        // Only then.
        owner.handle(Input::Gone("lost".to_owned()), later);
        assert!(matches!(owner.next(later), Step::Open(by) if by < later.after(REACH_MAX)));
        owner.handle(Input::Opened(Ok(info)), later.after(second));
        assert_eq!(owner.goal, Goal::Get(Some(later.after(wait))));
    }
}

/// An older server under a lock that is held was asked 2,000 times a second, until V, and the line
/// did not say what was wrong.
#[test]
fn a_holder_whose_bucket_takes_no_tickets_any_more_pauses_and_says_so() {
    let (mut owner, begin) = opened();
    assert!(matches!(owner.next(begin), Step::WriteAndList(..)));
    owner.handle(Input::Written(Written::Stored(Revision(7))), begin);
    owner.granted();
    owner.handle(Input::Gone("lost".to_owned()), begin);
    let id = owner.bucket.clone().expect("it was opened");
    let retires = Err("tickets would stay for ever".to_owned());
    let info =
        BucketInfo { id, last: Revision(7), age: None, replicas: 1, remarks: Vec::new(), retires };
    let (mut now, mut openings) = (begin, 0);
    while owner.goal == Goal::Keep {
        let step = owner.next(now);
        if let Step::Rest(until) = step {
            now = now.after(Duration::from_millis(1)).max(until);
            owner.handle(Input::Rested, now);
        } else {
            assert!(matches!(step, Step::Open(_)), "{step:?}");
            openings += 1;
            owner.handle(Input::Opened(Ok(info.clone())), now);
        }
    }
    let took = now.since(begin);
    assert!(openings <= took.as_millis() / 50 + 1, "{openings} in {took:?}");
    let said = owner.take_messages().pop();
    let why = "it was not renewed in time: tickets would stay for ever";
    assert_eq!(said, Some(ToFront::Lost(why.to_owned())));
}
