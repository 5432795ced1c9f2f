//! Which key the ticket of an owner has.

use super::*;

/// Others may have removed a ticket that was stored without an answer, and the store its tombstone.
/// The key was written again then: whoever read the tombstone from a server that was behind was
/// granted the lock beside the new ticket.
#[test]
fn a_key_whose_first_write_has_no_answer_for_too_long_is_not_written_again() {
    let (mut owner, begin) = opened();
    let keys_at = |owner: &mut TicketOwner, now| {
        let Step::WriteAndList(at, None, ..) = owner.next(now) else { panic!("it is written") };
        assert_eq!(at, Revision(0));
        owner.handle(Input::Written(Written::Unknown("no answer".to_owned()), now), now);
        owner.handle(Input::Rested, now.after(Duration::from_millis(500)));
        owner.key_element()
    };
    let validity = owner.timing.validity();
    let first = keys_at(&mut owner, begin);
    let still = keys_at(&mut owner, begin.after(validity - Duration::from_millis(1)));
    let next = keys_at(&mut owner, begin.after(validity));
    assert_eq!(first, still);
    assert_ne!(first, next);
    // Nor does the answer to a write count that comes too late.
    let late = begin.after(validity * 2);
    owner.handle(Input::Written(Written::Stored(Revision(7)), begin.after(validity)), late);
    assert!(owner.valid_until().is_none() && owner.key_element() != next);
}
