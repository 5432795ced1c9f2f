use std::time::Duration;

use super::*;
use crate::core::tickets::ticket::Unreadable;

fn ticket(name: &str, mode: Mode) -> Ticket {
    Ticket { mode, ..Ticket::sample(name) }
}

fn standing(number: u64, ticket: Ticket) -> StoredTicket {
    StoredTicket {
        stored_at: None,
        key: format!("k{number}"),
        revision: Revision(number + 100),
        number: Revision(number),
        ticket: Ok(ticket),
    }
}

/// The numbers of the tickets that are waited for, and of those that are watched.
fn waits(decision: Decision) -> (Vec<u64>, Vec<String>) {
    let Decision::Wait { blockers, watched } = decision else { panic!("{decision:?}") };
    (blockers.iter().map(|it| it.number.0).collect(), watched.into_iter().collect())
}

#[test]
fn earlier_tickets_that_conflict_are_waited_for_and_the_latest_is_watched() {
    let own = ticket("a", Mode::Shared);
    let mut unreadable = standing(30, ticket("z", Mode::Shared));
    unreadable.ticket = Err(Unreadable { why: "?".to_owned(), lifetime: None });
    let all = [
        standing(9, ticket("a", Mode::Exclusive)),
        standing(3, ticket("a/b", Mode::Exclusive)),
        standing(4, ticket("a", Mode::Shared)),
        standing(5, ticket("b", Mode::Exclusive)),
        standing(20, ticket("a", Mode::Exclusive)),
        unreadable,
    ];
    let found = waits(decide(&own, Revision(10), &all));
    assert_eq!(found, (vec![3, 9, 30], vec!["k30".to_owned()]));
    assert_eq!(waits(decide(&own, Revision(2), &all)).0, [30]);
    assert_eq!(waits(decide(&own, Revision(10), &all[..5])).1, ["k9"]);
    assert_eq!(decide(&own, Revision(3), &all[..5]), Decision::Granted);
}

/// A server that was killed restores earlier tickets that had ended: the script that was told that
/// it has the lock would wait for them.
#[test]
fn a_ticket_that_was_granted_waits_for_none_that_is_restored() {
    let own = Ticket { is_granted: true, ..ticket("a", Mode::Exclusive) };
    let restored = [standing(9, ticket("a", Mode::Exclusive))];
    assert_eq!(decide(&own, Revision(10), &restored), Decision::Granted);
}

/// A ticket for one of three slots of `a`.
fn of_three(slot: Option<u32>) -> Ticket {
    Ticket { slot, ..ticket("a", Mode::Slots(3)) }
}

#[test]
fn a_slot_is_the_lowest_that_no_earlier_ticket_has_and_is_written_before_it_is_granted() {
    let own = of_three(None);
    assert_eq!(decide(&own, Revision(9), &[]), Decision::Slot(0));
    let two = [standing(1, of_three(Some(1))), standing(2, of_three(Some(0)))];
    assert_eq!(decide(&own, Revision(9), &two), Decision::Slot(2));
    assert_eq!(decide(&own, Revision(9), &two[1..]), Decision::Slot(1));
    let later = [standing(10, of_three(Some(0))), standing(11, of_three(None))];
    assert_eq!(decide(&own, Revision(9), &later), Decision::Slot(0));
    assert_eq!(decide(&of_three(Some(2)), Revision(9), &two), Decision::Granted);
}

/// A ticket without a slot may have seen more tickets than stand now, and get any slot.
#[test]
fn nobody_gets_a_slot_while_an_earlier_ticket_has_none_yet() {
    let all = [standing(1, of_three(Some(0))), standing(2, of_three(None))];
    let found = waits(decide(&of_three(None), Revision(9), &all));
    assert_eq!(found, (vec![2], vec!["k2".to_owned()]));
}

#[test]
fn who_is_next_for_a_slot_hears_of_each_holder_and_who_is_behind_of_the_one_before() {
    let own = of_three(None);
    let holders: Vec<_> =
        (0..3).map(|at| standing(1 + u64::from(at), of_three(Some(at)))).collect();
    let found = waits(decide(&own, Revision(9), &holders));
    assert_eq!(found, (vec![1, 2, 3], ["k1", "k2", "k3"].map(str::to_owned).to_vec()));
    let more = [&holders[..], &[standing(5, of_three(None))]].concat();
    assert_eq!(waits(decide(&own, Revision(9), &more)), (vec![1, 2, 3, 5], vec!["k5".to_owned()]));
}

#[test]
fn slots_exclude_every_other_ticket_of_their_names() {
    let own = of_three(None);
    for mode in [Mode::Exclusive, Mode::Shared] {
        for name in ["a", "a/b"] {
            let other = standing(1, ticket(name, mode));
            assert_eq!(waits(decide(&own, Revision(9), &[other])).0, [1], "{name} {mode:?}");
        }
    }
    let below = Ticket { slot: Some(0), ..ticket("a/b", Mode::Slots(3)) };
    let below = standing(1, below);
    assert_eq!(waits(decide(&own, Revision(9), &[below])).0, [1]);
    let shared = ticket("a", Mode::Shared);
    let holder = standing(1, of_three(Some(0)));
    assert_eq!(waits(decide(&shared, Revision(9), &[holder])).0, [1]);
}

/// A ticket with another number of slots was refused: a dead one then refused the name for ever.
#[test]
fn tickets_with_another_number_of_slots_are_waited_for() {
    let four = [standing(5, Ticket { slot: Some(0), ..ticket("a", Mode::Slots(4)) })];
    let found = waits(decide(&of_three(None), Revision(9), &four));
    assert_eq!(found, (vec![5], vec!["k5".to_owned()]));
    assert_eq!(decide(&of_three(None), Revision(2), &four), Decision::Slot(0));
    let elsewhere = [standing(5, ticket("b", Mode::Slots(4)))];
    assert_eq!(decide(&of_three(None), Revision(9), &elsewhere), Decision::Slot(0));
}

/// The host of a holder had died. Who came next was told that the holder has the lock.
#[test]
fn a_ticket_that_was_not_renewed_in_time_is_described_so() {
    let written = StoreTime(Duration::from_secs(1000));
    let sample = Ticket::sample("a");
    let in_time = written.after(sample.lifetime / 2);
    let late = written.after(sample.lifetime);
    let mut all = vec![StoredTicket { stored_at: Some(written), ..standing(1, sample) }];
    let told = |all: &[StoredTicket]| [None, Some(in_time), Some(late)].map(|at| describe(all, at));
    let due = "behind alpha, which has not renewed it in time";
    assert_eq!(told(&all), ["behind alpha", "behind alpha", due]);
    all.push(standing(2, Ticket::sample("a")));
    assert_eq!(told(&all)[2], format!("{due}, and 1 more"));
}
