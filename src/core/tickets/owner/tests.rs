//! Stories of one owner, and many seeds of the simulation.

mod denied;
mod ends;
mod exhaustive;
mod keys;
mod listings;
mod modes;
mod notes;
mod reached;
mod removals;
mod script_seeds;
mod script_simulation;
mod scripts;
mod simulated_bucket;
mod simulation;

use self::simulation::{DRIFT_PPM, Simulation};
use super::*;
use crate::core::event::{BucketInfo, StoreErrorKind, Written};
use crate::core::random::chosen_seeds;
use crate::core::record::Incarnation;
use crate::core::tickets::times::LIFETIME_DEFAULT;
use crate::core::tickets::{TicketsListed, TicketsOpened};

/// Plays these seeds; returns how often a lock was granted, and how many kills of the server have
/// restored a ticket.
fn run_seeds(first: u64, count: u64, play: fn(u64) -> (usize, usize)) -> (usize, usize) {
    let (mut grants, mut restored) = (0, 0);
    for seed in first..first + count {
        let ended = std::panic::catch_unwind(|| play(seed));
        let ended = ended.unwrap_or_else(|_| panic!("seed {seed}"));
        (grants, restored) = (grants + ended.0, restored + ended.1);
    }
    (grants, restored)
}

/// The time of the store at the listings of these tests.
const LISTED_AT: StoreTime = StoreTime(Duration::from_secs(1_000_000));

/// Returns a listing of these tickets, up to this revision.
fn listing(standing: Vec<StoredTicket>, last: Revision) -> Result<TicketsListed, String> {
    Ok(TicketsListed { standing, ended: Vec::new(), last, at: Some(LISTED_AT) })
}

/// Returns that a bucket was opened which has this mark.
fn bucket_opened_with(info: &BucketInfo, mark: Mark) -> Input {
    let (info, notes) = (info.clone(), (Revision(0), Observed::default()));
    Input::Opened(Ok(Box::new(TicketsOpened { info, mark, notes })))
}

/// Returns that a bucket was opened which was there for long.
fn bucket_opened(info: &BucketInfo) -> Input {
    let epoch = info.id.epoch.clone();
    bucket_opened_with(info, Mark { revision: Revision(1), epoch, lifetime: LIFETIME_DEFAULT })
}

/// Returns the bucket of [`opened`].
fn info(last: u64) -> BucketInfo {
    let id = BucketId { epoch: "1".to_owned(), created: String::new() };
    let (last, remarks) = (Revision(last), Vec::new());
    BucketInfo { id, last, age: None, may_be_lost: true, replicas: 1, remarks, retires: Ok(()) }
}

/// Plays a seed of commands.
fn play(seed: u64) -> (usize, usize) {
    let mut simulation = Simulation::new(seed);
    simulation.run();
    (simulation.grants, simulation.restored)
}

/// A write without an answer had been stored: its ticket keeps its number and its place, and V
/// counts from the first copy.
#[test]
fn a_copy_that_was_stored_before_is_recognized() {
    let (mut owner, begin) = opened();
    let Step::Write(at, None, first, ..) = owner.next(begin) else { panic!("it is written") };
    let unknown = Written::Unknown("no answer".to_owned());
    owner.handle(Input::Written(unknown), begin);
    let later = begin.after(Duration::from_secs(1));
    owner.handle(Input::Rested, later);
    let Step::Write(again, None, copy, ..) = owner.next(later) else { panic!("it is repeated") };
    assert_eq!((again, &copy), (at, &first), "it is repeated unchanged");
    owner.handle(Input::Written(Written::Moved(None)), later);
    assert!(matches!(owner.next(later), Step::ReadOwn(_)));
    owner.handle(Input::Own(Ok((Revision(7), Some(first)))), later);
    let valid_until = begin.after(owner.validity());
    assert_eq!(
        owner.own.as_ref().map(|own| (own.number, own.valid_until)),
        Some((Revision(7), valid_until))
    );
}

/// Returns an owner whose ticket has the number 7 and waits behind another one, and the instant
/// at which it was written.
fn waiting() -> (TicketOwner, Instant) {
    let (mut owner, begin) = opened();
    let Step::Write(_, None, ticket, ..) = owner.next(begin) else { panic!("it is written") };
    owner.handle(Input::Written(Written::Stored(Revision(7))), begin);
    let mut first = StoredTicket {
        key: "lock.a.first".to_owned(),
        revision: Revision(5),
        number: Revision(5),
        stored_at: None,
        ticket: Ok(Ticket { incarnation: Incarnation(9), ..ticket.clone() }),
    };
    let listing = |owner: &mut TicketOwner, first: &StoredTicket, revision, ticket: &Ticket| {
        assert!(matches!(owner.next(begin), Step::List(..)));
        let key = format!("lock.a.{}", owner.key_element());
        let (number, ticket) = (Revision(7), Ok(ticket.clone()));
        let own = StoredTicket { key, revision, number, stored_at: None, ticket };
        owner.handle(Input::Listed(listing(vec![first.clone(), own], revision)), begin);
    };
    listing(&mut owner, &first, Revision(7), &ticket);
    assert_eq!(owner.next(begin), Step::Watch(["lock.a.first".to_owned()].into()));
    owner.handle(Input::Subscribed, begin);
    // An end that is stored before the renewal is in the listing behind it.
    let Step::Write(at, number, ticket, ..) = owner.next(begin) else { panic!("it is renewed") };
    assert_eq!((at, number), (Revision(7), Some(Revision(7))));
    owner.handle(Input::Written(Written::Stored(Revision(8))), begin);
    first.revision = Revision(6);
    listing(&mut owner, &first, Revision(8), &ticket);
    assert!(matches!(owner.next(begin), Step::Rest(_)));
    (owner, begin)
}

/// The last write of the own ticket was sent then.
fn sent_at(owner: &mut TicketOwner, sent: Instant) {
    let (valid_until, renew_at) = (sent.after(owner.validity()), sent.after(owner.step()));
    owner.own = owner.own.take().map(|own| Own { valid_until, renew_at, ..own });
}

/// Returns an owner in an open bucket that has written nothing, and the time.
fn opened() -> (TicketOwner, Instant) {
    let begin = Instant::from_boot(Duration::from_secs(1_000));
    let second = Duration::from_secs(1);
    let timing = LockTiming::new(second, 3, DRIFT_PPM as u32, second / 4).expect("safe");
    let ticket = Ticket { lifetime: timing.lifetime(), attempt: 0, ..Ticket::sample("a") };
    let mut owner = TicketOwner::new(timing, ticket, 1, Asker::Command(None), None, begin);
    owner.bucket = Some(BucketId { epoch: "1".to_owned(), created: String::new() });
    owner.phase = Phase::Writing;
    (owner, begin)
}

/// A server that is no leader any more may list what stood before.
#[test]
fn a_listing_after_the_first_write_grants_unless_it_lacks_earlier_writes() {
    for (last, is_granted) in [(5, false), (6, true), (7, true)] {
        let (mut owner, begin) = opened();
        let Step::Write(_, None, ticket, ..) = owner.next(begin) else { panic!("not written") };
        let key = format!("lock.a.{}", owner.key_element());
        let (number, ticket) = (Revision(7), Ok(ticket));
        let own = StoredTicket { key, revision: number, number, stored_at: None, ticket };
        let standing = if last == 7 { vec![own] } else { Vec::new() };
        let listed = listing(standing, Revision(last));
        owner.handle(Input::Written(Written::Stored(number)), begin);
        owner.handle(Input::Listed(listed), begin);
        let granted = matches!(owner.take_messages()[..], [ToFront::Granted { term: 7, .. }]);
        assert_eq!(granted, is_granted, "a listing up to {last}");
    }
}

#[test]
fn a_ticket_that_waits_is_renewed_each_r() {
    let (mut owner, begin) = waiting();
    let renew_at = begin.after(owner.timing.renewal());
    assert_eq!(owner.next(begin), Step::Rest(renew_at));
    owner.handle(Input::Rested, renew_at);
    let Step::Write(at, Some(number), ..) = owner.next(renew_at) else { panic!("not renewed") };
    assert_eq!((at, number), (Revision(8), Revision(7)));
}

#[test]
fn a_hint_is_followed_by_a_listing_that_reaches_it() {
    let (mut owner, begin) = waiting();
    owner.handle(Input::Ended(Some(Revision(9))), begin);
    assert!(matches!(owner.next(begin), Step::List(..)), "at once");
    owner.handle(Input::Listed(listing(Vec::new(), Revision(8))), begin);
    assert!(matches!(owner.next(begin), Step::Rest(_)), "an older listing tells nothing");
}

/// A client that may publish hints kept a waiter from the lock, and its ticket from being renewed.
#[test]
fn false_hints_cost_one_listing_and_no_renewal() {
    let (mut owner, begin) = waiting();
    owner.handle(Input::Ended(Some(Revision(u64::MAX))), begin);
    owner.handle(Input::Listed(listing(Vec::new(), Revision(8))), begin);
    let Step::Rest(until) = owner.next(begin) else { panic!("asked again at once") };
    owner.handle(Input::Rested, until);
    owner.handle(Input::Listed(listing(Vec::new(), Revision(8))), until);
    let Step::Write(at, None, ..) = owner.next(until) else {
        panic!("the listing, without the own ticket, tells nothing")
    };
    assert_eq!(at, Revision(0));
    let (mut owner, begin) = waiting();
    let renew_at = begin.after(owner.timing.renewal());
    owner.handle(Input::Ended(Some(Revision(u64::MAX))), renew_at);
    assert!(matches!(owner.next(renew_at), Step::Write(..)), "not renewed");
}

/// The hint was false, or of a bucket that has gone back. A later write is known.
#[test]
fn a_hint_that_no_listing_reaches_is_forgotten_at_the_next_renewal() {
    let (mut owner, begin) = waiting();
    owner.handle(Input::Ended(Some(Revision(u64::MAX))), begin);
    let renew_at = begin.after(owner.timing.renewal());
    owner.handle(
        Input::Listed(Err("no answer".to_owned())),
        renew_at.before(Duration::from_micros(1)),
    );
    let later = renew_at.after(Duration::from_secs(1));
    owner.handle(Input::Rested, later);
    assert!(matches!(owner.next(later), Step::Write(..)));
    owner.handle(Input::Written(Written::Stored(Revision(10))), later);
    assert!(matches!(owner.next(later), Step::List(..)));
    assert_eq!(owner.hinted, Revision(10));
}

/// The bucket was restored from a backup, or is another one: the tickets since then are gone.
#[test]
fn a_bucket_that_has_gone_back_or_was_made_anew_has_lost_its_tickets() {
    for (epoch, last, is_lost) in [("1", 8, false), ("1", 7, true), ("2", 9, true)] {
        let (mut owner, begin) = waiting();
        owner.goal = Goal::Keep;
        owner.handle(Input::Gone("the server ended".to_owned()), begin);
        assert!(matches!(owner.next(begin), Step::Open(_)));
        let id = BucketId { epoch: epoch.to_owned(), created: String::new() };
        owner.handle(bucket_opened(&BucketInfo { id, ..info(last) }), begin);
        let said = owner.take_messages();
        let lost = said.iter().any(|said| matches!(said, ToFront::Lost(_)));
        assert_eq!(lost, is_lost, "epoch {epoch} at {last}: {said:?}");
    }
}

#[test]
fn the_front_is_told_of_a_loss_in_time_for_the_command_to_end() {
    let (mut owner, begin) = waiting();
    owner.goal = Goal::Keep;
    let times = owner.kill_times().expect("a command may run");
    let early = times.terminate_at.before(Duration::from_micros(1));
    owner.next(early);
    assert!(!owner.take_messages().iter().any(|said| matches!(said, ToFront::Lost(_))));
    owner.next(times.terminate_at);
    assert!(owner.take_messages().iter().any(|said| matches!(said, ToFront::Lost(_))));
    assert!(times.terminate_at < begin.after(owner.validity()));
}

/// The removal was tried again without a pause and without an end, with a line on stderr each time.
#[test]
fn a_removal_that_the_store_denies_is_not_repeated_at_once_and_does_not_keep_from_giving_up() {
    let denied = || Written::Denied(StoreErrorKind::Credentials.error("no permission"));
    for limit in [None, Some(Duration::from_secs(60))] {
        let (mut owner, begin) = waiting();
        owner.goal = Goal::Get(limit.map(|limit| begin.after(limit)));
        let dead_at = begin.after(owner.timing.removal_wait(owner.timing.lifetime()));
        // The own ticket was renewed since.
        sent_at(&mut owner, dead_at);
        let (mut now, mut removals, ticket) = (dead_at, Vec::new(), owner.ticket.clone());
        let first = StoredTicket {
            key: "lock.a.first".to_owned(),
            revision: Revision(6),
            number: Revision(5),
            stored_at: None,
            ticket: Ok(Ticket { incarnation: Incarnation(9), ..ticket }),
        };
        while now < begin.after(Duration::from_secs(90)) && owner.phase != Phase::Done {
            let step = owner.next(now);
            let input = if let Step::Remove(..) = step {
                removals.push(now);
                Input::Written(denied())
            } else if let Step::Rest(until) = step {
                now = now.max(until);
                Input::Rested
            } else if let Step::Write(at, ..) | Step::End(at, ..) = step {
                Input::Written(Written::Stored(Revision(at.0 + 1)))
            } else if let (Step::List(..), Some(number)) =
                (&step, owner.own.as_ref().map(|own| own.number))
            {
                let key = format!("lock.a.{}", owner.key_element());
                let (revision, ticket) = (owner.last, Ok(owner.ticket.clone()));
                let own = StoredTicket { key, revision, number, stored_at: None, ticket };
                Input::Listed(listing(vec![first.clone(), own], revision))
            } else {
                panic!("{step:?}")
            };
            owner.handle(input, now);
        }
        let least = owner.timing.lifetime();
        assert!(removals.windows(2).all(|two| two[1].since(two[0]) > least), "{removals:?}");
        assert_eq!(owner.phase == Phase::Done, limit.is_some());
    }
}

/// The page says 69 of a store that does not answer: it was 75, as for a lock that is held.
#[test]
fn who_gets_no_listing_in_time_says_that_the_store_does_not_answer() {
    let (mut owner, begin) = waiting();
    owner.goal = Goal::Get(Some(begin));
    owner.phase = Phase::Listing;
    owner.handle(Input::Listed(Err("no answer".to_owned())), begin);
    let Goal::End(End::Refused(error), _) = &owner.goal else { panic!("{:?}", owner.goal) };
    assert_eq!(error.kind, StoreErrorKind::Unreachable);
}

/// The end of its time must not make it write the mark early.
#[test]
fn who_gives_up_waiting_for_a_new_bucket_writes_no_mark() {
    let (mut owner, begin) = opened();
    let limit = begin.after(Duration::from_millis(1));
    owner.goal = Goal::Get(Some(limit));
    owner.phase = Phase::Closed;
    let none = Mark { revision: Revision(0), epoch: String::new(), lifetime: Duration::ZERO };
    owner.handle(bucket_opened_with(&info(6), none), begin);
    write_first(&mut owner, begin);
    assert_eq!(owner.next(begin), Step::Rest(limit));
    owner.handle(Input::Rested, limit);
    list_own(&mut owner, limit);
    assert!(matches!(owner.next(limit), Step::End(..)));
    owner.handle(Input::Written(Written::Stored(Revision(9))), limit);
    assert_eq!(owner.next(limit), Step::Exit);
    let ended = owner.take_messages().pop();
    assert!(matches!(ended, Some(ToFront::Ended(End::NotHad(_)))), "{ended:?}");
}

/// The ticket is written, and no other stands.
fn write_first(owner: &mut TicketOwner, now: Instant) {
    assert!(matches!(owner.next(now), Step::Write(_, None, ..)));
    owner.handle(Input::Written(Written::Stored(Revision(7))), now);
    list_own(owner, now);
}

/// A listing shows the own ticket alone.
fn list_own(owner: &mut TicketOwner, now: Instant) {
    assert!(matches!(owner.next(now), Step::List(..)));
    let key = format!("lock.a.{}", owner.key_element());
    let own = owner.own.as_ref().expect("it was written");
    let (revision, number, ticket) = (own.revision, own.number, Ok(owner.ticket.clone()));
    let own = StoredTicket { key, revision, number, stored_at: None, ticket };
    owner.handle(Input::Listed(listing(vec![own], revision)), now);
}

#[test]
fn a_hint_ends_no_rest_but_that_before_a_listing() {
    let (mut owner, begin) = opened();
    owner.phase = Phase::Closed;
    let no_answer = StoreErrorKind::Unreachable.error("no answer");
    owner.handle(Input::Opened(Err(no_answer)), begin);
    let Step::Rest(until) = owner.next(begin) else { panic!("it does not rest") };
    owner.handle(Input::Ended(Some(Revision(9))), begin);
    assert_eq!(owner.next(begin), Step::Rest(until));
    owner.handle(Input::Rested, until);
    assert!(matches!(owner.next(until), Step::Open(_)));
}

/// Nobody kills the command during a request, if the front is stopped.
#[test]
fn a_request_of_a_holder_ends_when_its_command_has_to_be_killed() {
    let (mut owner, begin) = waiting();
    let timing = LockTiming::new(Duration::from_secs(20), 3, DRIFT_PPM as u32, Duration::ZERO);
    owner.timing = timing.expect("times");
    owner.goal = Goal::Keep;
    sent_at(&mut owner, begin);
    owner.ticket.is_granted = true;
    let times = owner.kill_times().expect("a command may run");
    for phase in [Phase::Writing, Phase::Closed] {
        owner.phase = phase;
        let step = owner.next(times.terminate_at.before(Duration::from_millis(1)));
        let (Step::Write(.., by) | Step::Open(by)) = step else { panic!("no request") };
        assert!(by <= times.kill_at, "{by:?} is after {:?}", times.kill_at);
    }
}

/// V and the wait before a removal differ by twice the drift: the slowest clock of an owner and the
/// fastest of another leave no time in which both have the lock.
#[test]
fn a_ticket_is_valid_for_less_than_its_lifetime_and_removed_after_more() {
    let (mut owner, begin) = waiting();
    let lifetime = owner.timing.lifetime();
    let drift = lifetime * DRIFT_PPM as u32 / 1_000_000;
    let stored = |owner: &TicketOwner, number, name: &str| StoredTicket {
        key: format!("lock.a.{name}"),
        revision: Revision(6),
        number: Revision(number),
        stored_at: None,
        ticket: Ok(Ticket { incarnation: Incarnation(9), ..owner.ticket.clone() }),
    };
    let own = StoredTicket { revision: Revision(8), ..stored(&owner, 7, &owner.key_element()) };
    let both = vec![stored(&owner, 5, "first"), own.clone()];
    for (at, is_removed) in
        [(lifetime + drift - Duration::from_micros(1), false), (lifetime + drift, true)]
    {
        owner.phase = Phase::Listing;
        owner.handle(Input::Listed(listing(both.clone(), Revision(8))), begin.after(at));
        assert_eq!(matches!(owner.phase, Phase::Removing(_)), is_removed, "after {at:?}");
    }
    owner.phase = Phase::Listing;
    owner.handle(Input::Listed(listing(vec![own], Revision(9))), begin);
    let granted = owner.take_messages().pop();
    let valid_until = begin.after(lifetime - drift);
    let expected = ToFront::Granted { valid_until, term: 7, epoch: "1".to_owned(), slot: None };
    assert_eq!(granted, Some(expected));
    let kill_at = owner.kill_times().map(|times| times.kill_at);
    assert_eq!(kill_at, Some(owner.timing.kill_times(valid_until).kill_at));
}

/// A mark may come from another bucket: its write was under way when that was lost. A holder that
/// still runs under a ticket of a lost bucket may have a longer lifetime than whoever comes first
/// to the new one: two were active at once.
#[test]
fn a_bucket_is_waited_for_unless_it_has_a_mark_of_its_own_and_of_this_lifetime() {
    let lifetime = opened().0.timing.lifetime();
    assert!(lifetime < LIFETIME_DEFAULT);
    let (short, long) = (lifetime - Duration::from_millis(1), 2 * LIFETIME_DEFAULT);
    let after = |wait: Duration| opened().0.timing.removal_wait(wait);
    for (epoch, marked, wait) in [
        ("1", lifetime, None),
        ("1", 2 * lifetime, None),
        ("1", short, Some(after(lifetime))),
        ("0", lifetime, Some(after(LIFETIME_DEFAULT))),
        ("0", long, Some(after(long))),
        ("", Duration::ZERO, Some(after(LIFETIME_DEFAULT))),
    ] {
        let (mut owner, begin) = opened();
        let mark = Mark { revision: Revision(3), epoch: epoch.to_owned(), lifetime: marked };
        owner.phase = Phase::Closed;
        owner.handle(bucket_opened_with(&info(6), mark), begin);
        write_first(&mut owner, begin);
        let told = owner.take_messages().pop();
        let granted = matches!(told, Some(ToFront::Granted { .. }));
        assert_eq!(granted, wait.is_none(), "{epoch} {marked:?}: {told:?}");
        let believed_at = owner.believed_at(begin);
        assert_eq!(believed_at, wait.map(|wait| begin.after(wait)), "{epoch} {marked:?}");
        if let Some(at) = believed_at {
            (owner.phase, owner.own) = (Phase::Listing, owner.own.take());
            list_own(&mut owner, at.before(Duration::from_millis(1)));
            assert!(matches!(owner.phase, Phase::Resting(..)));
            owner.phase = Phase::Listing;
            list_own(&mut owner, at);
            assert!(matches!(owner.next(at), Step::WriteMark(..)), "{epoch} {marked:?}");
        }
    }
}

#[test]
fn no_two_conflicting_commands_run_at_once_whatever_is_lost_late_or_paused() {
    let (grants, restored) = run_seeds(1, 3_000, play);
    assert!(grants > 5_000, "only {grants} were granted");
    assert!(restored > 1_000, "only {restored} kills of the server restored a ticket");
}

/// Plays the seeds that `PUTEX_SEEDS=FIRST,COUNT` chooses.
fn run_chosen_seeds(play: fn(u64) -> (usize, usize)) {
    let (first, count) = chosen_seeds(100_000);
    let (grants, restored) = run_seeds(first, count, play);
    println!("{count} seeds, {grants} grants, {restored} kills that restored a ticket");
}

#[test]
#[ignore = "takes minutes"]
fn many_seeds() {
    run_chosen_seeds(play);
}
