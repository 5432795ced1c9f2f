//! Renewals that come too late.

use super::*;

/// A renewal was on its way for so long that the marker of the end of its ticket had been removed,
/// and found the ticket that a killed server had restored: the renewal made the ticket young beside
/// the next holder.
#[test]
fn a_renewal_that_comes_too_late_is_not_continued() {
    let mut first = process(false, 10, at(1));
    list(&mut first, &[aged(standing("ge", 9, 7, ticket()), 3)], 20, at(1));
    let Step::Write(Revision(9), _, sent, ..) = first.next(at(1)) else { panic!("no write") };
    let by = LISTED_AT.after(10 * SECOND);
    assert_eq!(sent.counts_if_stored_by, Some(by));
    let ms = Duration::from_millis(1);
    for (stored_at, replaces) in [(by, 21), (by.after(ms), 0)] {
        let mut later = process(false, 10, at(1));
        assert!(matches!(later.next(at(1)), Step::List(..)));
        let stored_at = Some(stored_at);
        let standing = vec![StoredTicket { stored_at, ..standing("ge", 21, 7, sent.clone()) }];
        let (last, read_at) = (Revision(21), Some(by.after(2 * ms)));
        let listed = TicketsListed { standing, ended: Vec::new(), last, at: read_at };
        later.handle(Input::Listed(Ok(listed)), at(1));
        write(&mut later, replaces, 22, at(1));
    }
    // A renewal that names no time may have been sent at any time.
    let mut later = process(false, 10, at(1));
    let mut own = standing("ge", 9, 7, ticket());
    own.ticket = Ok(ticket());
    list(&mut later, &[own], 20, at(1));
    write(&mut later, 0, 21, at(1));
}

/// The requester may ask for a longer time with the renewal: the marker of the ticket that it
/// replaces stays for the time of that one.
#[test]
fn a_renewal_counts_for_the_lifetime_of_the_ticket_that_it_replaces() {
    let mut grabber = process(false, 10, at(1));
    let short = Ticket { lifetime: 2 * SECOND, ..ticket() };
    list(&mut grabber, &[standing("ge", 9, 7, short)], 20, at(1));
    let written = write(&mut grabber, 9, 21, at(1));
    let by = LISTED_AT.after(2 * SECOND);
    assert_eq!((written.lifetime, written.counts_if_stored_by), (10 * SECOND, Some(by)));
    // The renewal was sent for 10 s.
    list(&mut grabber, &[standing("ge", 21, 7, written)], 21, at(1));
    let granted = write(&mut grabber, 21, 22, at(1));
    assert_eq!(granted.counts_if_stored_by, Some(LISTED_AT.after(10 * SECOND)));
}

/// The process was stopped while the listing was on its way. The store counts from the listing, so
/// that the renewal would count for nobody else.
#[test]
fn a_ticket_that_was_found_runs_out_as_counted_from_before_the_listing() {
    for (listed, continues) in [(at(10), true), (at(12), false)] {
        let mut grabber = process(false, 10, at(1));
        assert!(matches!(grabber.next(at(1)), Step::List(..)));
        let found = listing(vec![standing("ge", 9, 7, ticket())], Revision(20));
        grabber.handle(Input::Listed(found), listed);
        let step = grabber.next(listed);
        assert_eq!(matches!(step, Step::Write(Revision(9), ..)), continues, "{step:?}");
        assert_eq!(matches!(step, Step::List(..)), !continues, "{step:?}");
    }
}
