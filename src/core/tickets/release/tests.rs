//! Answers by hand: tickets that stand, tickets that have moved, and requests that had no answer.

use super::*;
use crate::core::event::StoreErrorKind;
use crate::core::record::Revision;

fn now() -> Instant {
    Instant::from_boot(Duration::from_secs(1))
}

fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

fn ticket(token: &str, of: &str) -> Ticket {
    let lifetime = Duration::from_secs(10);
    Ticket { lifetime, token: token.to_owned(), ..Ticket::sample(of) }
}

fn standing(number: u64, revision: u64, token: &str, of: &str) -> StoredTicket {
    let (key, number, revision) = (format!("k{number}"), Revision(number), Revision(revision));
    let ticket = Ticket { counts_if_stored_by: Some(LISTED_AT), ..ticket(token, of) };
    let stored_at = Some(LISTED_AT.before(Duration::from_secs(9)));
    StoredTicket { key, revision, number, stored_at, ticket: Ok(ticket) }
}

fn of(whose: Whose) -> Releaser {
    Releaser::new(name("a"), whose, now())
}

fn own() -> Releaser {
    of(Whose::Own(Incarnation(1)))
}

/// The time of the store at the first listing.
const LISTED_AT: StoreTime = StoreTime(Duration::from_secs(1_000_000));

fn listed(standing: &[StoredTicket], ended: &[&str], at: StoreTime) -> Input {
    let (standing, last, at) = (standing.to_vec(), Revision(99), Some(at));
    let ended = ended.iter().map(|key| (*key).to_owned()).collect();
    Input::Listed(Ok(TicketsListed { standing, ended, last, at }))
}

fn list(releaser: &mut Releaser, standing: &[StoredTicket]) {
    assert!(matches!(releaser.next(now()), Step::List(..)));
    releaser.handle(listed(standing, &[], LISTED_AT), now());
}

fn write(releaser: &mut Releaser, revision: u64, written: Written) {
    let step = releaser.next(now());
    let at = if let Step::Remove(other, _) = &step { Some(other.revision) } else { None };
    assert_eq!(at, Some(Revision(revision)), "{step:?}");
    releaser.handle(Input::Written(written), now());
}

fn rest(releaser: &mut Releaser) {
    let Step::Rest(until) = releaser.next(now()) else { panic!("no pause") };
    releaser.handle(Input::Rested, until);
}

fn unknown() -> Written {
    Written::Unknown("no answer".to_owned())
}

#[test]
fn a_ticket_that_is_renewed_meanwhile_is_ended_all_the_same() {
    let mut releaser = own();
    list(&mut releaser, &[standing(3, 5, "one", "a")]);
    write(&mut releaser, 5, Written::Moved(None));
    list(&mut releaser, &[standing(3, 6, "one", "a")]);
    write(&mut releaser, 6, Written::Stored(Revision(7)));
    assert_eq!(releaser.ended(), Some(&Released::Ended));
}

/// Somebody else had ended it by force, and another had the lock: the release ended with 0.
#[test]
fn who_hears_nothing_of_the_end_has_ended_the_ticket_if_its_marker_says_so() {
    let ours = (&["k3"][..], Released::Ended);
    for (ended, due) in [ours, (&[], Released::Absent(None)), (&["k4"], Released::Absent(None))] {
        let mut releaser = own();
        list(&mut releaser, &[standing(3, 5, "one", "a")]);
        write(&mut releaser, 5, unknown());
        rest(&mut releaser);
        releaser.handle(listed(&[], ended, LISTED_AT), now());
        assert_eq!(releaser.ended(), Some(&due), "{ended:?}");
    }
}

/// The write was on its way for so long that another requester had removed the ticket, and had the
/// lock: the release ended with 0.
#[test]
fn a_ticket_that_another_may_have_removed_is_not_said_to_have_been_released() {
    for (later_ms, due) in [(999, Released::Ended), (1_000, Released::Absent(None))] {
        let mut releaser = own();
        list(&mut releaser, &[standing(3, 5, "one", "a")]);
        write(&mut releaser, 5, unknown());
        rest(&mut releaser);
        let later = LISTED_AT.after(Duration::from_millis(later_ms));
        releaser.handle(listed(&[], &["k3"], later), now());
        assert_eq!(releaser.ended(), Some(&due), "{later_ms}");
    }
}

#[test]
fn a_ticket_that_was_removed_or_never_was_is_not_said_to_have_been_released() {
    let mut removed = own();
    list(&mut removed, &[standing(3, 5, "one", "a")]);
    write(&mut removed, 5, Written::Moved(None));
    list(&mut removed, &[]);
    let mut never = own();
    let mut of_another = standing(3, 5, "two", "a");
    of_another.ticket = Ok(Ticket { incarnation: Incarnation(2), ..ticket("two", "a") });
    list(&mut never, &[of_another]);
    for (releaser, other) in [(&removed, None), (&never, Some("two has a ticket for a"))] {
        assert_eq!(releaser.ended(), Some(&Released::Absent(other.map(str::to_owned))));
    }
    let mut with_others = own();
    list(&mut with_others, &[standing(3, 4, "one", "a/x"), standing(5, 5, "one", "z")]);
    let due = Released::Absent(Some("one has a ticket for a/x".to_owned()));
    assert_eq!(with_others.ended(), Some(&due));
}

/// The names of the ticket may have been another's since, and a server that was killed may have
/// restored it.
#[test]
fn a_ticket_that_has_run_out_is_ended_and_its_requester_is_told_that_it_had_none() {
    for (age, is_held) in [(9_999, true), (10_000, false)] {
        let mut releaser = own();
        let stored_at = Some(LISTED_AT.before(Duration::from_millis(age)));
        let ticket = StoredTicket { stored_at, ..standing(3, 5, "one", "a") };
        list(&mut releaser, &[ticket]);
        write(&mut releaser, 5, Written::Stored(Revision(7)));
        let due = if is_held { Released::Ended } else { Released::Absent(None) };
        assert_eq!(releaser.ended(), Some(&due), "{stored_at:?}");
    }
}

/// Two of its processes have begun at once.
#[test]
fn all_tickets_of_the_requester_are_released() {
    let mut releaser = own();
    list(&mut releaser, &[standing(3, 5, "one", "a"), standing(4, 4, "one", "a")]);
    write(&mut releaser, 5, Written::Stored(Revision(7)));
    write(&mut releaser, 4, Written::Stored(Revision(8)));
    assert_eq!(releaser.ended(), Some(&Released::Ended));
}

#[test]
fn all_tickets_of_the_holder_for_this_name_are_broken_and_no_others() {
    let mut releaser = of(Whose::OfHolder("one".to_owned()));
    let all = [
        standing(3, 13, "one", "a"),
        standing(4, 14, "two", "a"),
        standing(5, 15, "one", "a/b"),
        standing(6, 16, "one", "a"),
    ];
    list(&mut releaser, &all);
    write(&mut releaser, 13, Written::Stored(Revision(20)));
    // The second ticket was renewed, and one more has come meanwhile.
    write(&mut releaser, 16, Written::Moved(None));
    list(&mut releaser, &[standing(6, 21, "one", "a"), standing(22, 22, "one", "a")]);
    write(&mut releaser, 21, Written::Stored(Revision(23)));
    let broken = |term| Broken { term, holder: "one".to_owned(), mode: Mode::Exclusive };
    assert_eq!(releaser.ended(), Some(&Released::Broken(vec![broken(3), broken(6)])));
}

#[test]
fn a_ticket_that_ends_by_itself_is_not_said_to_be_broken() {
    for (written, ended, count) in
        [(Written::Moved(None), &[][..], 0), (unknown(), &[], 0), (unknown(), &["k3"], 1)]
    {
        let mut releaser = of(Whose::OfHolder("one".to_owned()));
        list(&mut releaser, &[standing(3, 13, "one", "a")]);
        let is_unknown = written == unknown();
        write(&mut releaser, 13, written);
        if is_unknown {
            rest(&mut releaser);
        }
        // A later one of the holder is not that ticket.
        releaser.handle(listed(&[standing(22, 22, "one", "a")], ended, LISTED_AT), now());
        let Some(Released::Broken(broken)) = releaser.ended() else {
            panic!("{:?}", releaser.ended())
        };
        assert_eq!(broken.len(), count);
    }
}

#[test]
fn nothing_is_broken_of_another_holder_who_is_named() {
    let mut releaser = of(Whose::OfHolder("one".to_owned()));
    let two = [standing(4, 14, "two", "a"), standing(5, 15, "three", "a")];
    list(&mut releaser, &two);
    assert_eq!(releaser.ended(), Some(&Released::NotHeldBy("two has a ticket for a".to_owned())));
    let mut releaser = of(Whose::OfHolder("one".to_owned()));
    list(&mut releaser, &[standing(4, 14, "one", "z")]);
    assert_eq!(releaser.ended(), Some(&Released::Absent(None)));
}

#[test]
fn a_store_that_does_not_answer_is_given_up_after_a_while() {
    let mut releaser = own();
    let error = || Input::Listed(Err("no answer".to_owned()));
    releaser.handle(error(), now());
    rest(&mut releaser);
    assert_eq!(releaser.ended(), None);
    releaser.handle(error(), now().after(REACH_MAX));
    let Some(Released::Refused(error)) = releaser.ended() else { panic!("{releaser:?}") };
    assert_eq!(error.kind, StoreErrorKind::Unreachable);
}

/// The first of two tickets had ended, and nobody was told.
#[test]
fn a_release_that_fails_names_the_tickets_that_it_has_ended() {
    let mut releaser = own();
    list(&mut releaser, &[standing(3, 5, "one", "a"), standing(4, 6, "one", "a")]);
    write(&mut releaser, 5, Written::Stored(Revision(7)));
    write(&mut releaser, 6, Written::Denied(StoreErrorKind::Credentials.error("no right")));
    let text = "no right; the ticket with term 3 has ended";
    let due = Released::Refused(StoreErrorKind::Credentials.error(text));
    assert_eq!(releaser.ended(), Some(&due));
}

/// A user without the right to write was told after 10 s that the store is out of reach. What has
/// become of a write without an answer is not known.
#[test]
fn a_release_that_the_store_denies_ends_at_once_unless_an_earlier_copy_may_be_stored() {
    let denied = || Written::Denied(StoreErrorKind::Credentials.error("no right"));
    let ticket = || standing(3, 5, "one", "a");
    let mut releaser = own();
    list(&mut releaser, &[ticket()]);
    write(&mut releaser, 5, denied());
    let due = Released::Refused(StoreErrorKind::Credentials.error("no right"));
    assert_eq!(releaser.ended(), Some(&due));
    let mut unsure = own();
    list(&mut unsure, &[ticket()]);
    write(&mut unsure, 5, unknown());
    rest(&mut unsure);
    unsure.handle(listed(&[ticket()], &[], LISTED_AT), now());
    write(&mut unsure, 5, denied());
    assert_eq!(unsure.ended(), None);
    rest(&mut unsure);
    unsure.handle(listed(&[], &["k3"], LISTED_AT), now());
    assert_eq!(unsure.ended(), Some(&Released::Ended));
}
