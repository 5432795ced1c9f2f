use std::time::Duration;

use super::*;
use crate::core::record::Incarnation;
use crate::core::tickets::Seen;
use crate::core::tickets::ticket::{Name, Unreadable};

fn ticket(names: &[&str], mode: Mode) -> Ticket {
    Ticket {
        names: names.iter().map(|name| Name::parse(name).expect(name)).collect(),
        mode,
        slot: None,
        held: Vec::new(),
        lifetime: Duration::from_secs(15),
        token: "alpha".to_owned(),
        incarnation: Incarnation(1),
        attempt: 1,
        seen: Seen::default(),
    }
}

fn standing(number: u64, ticket: Ticket) -> StoredTicket {
    StoredTicket {
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
    let own = ticket(&["a"], Mode::Shared);
    let mut unreadable = standing(30, ticket(&["z"], Mode::Shared));
    unreadable.ticket = Err(Unreadable { why: "?".to_owned(), lifetime: None });
    let all = [
        standing(9, ticket(&["a"], Mode::Exclusive)),
        standing(3, ticket(&["a/b"], Mode::Exclusive)),
        standing(4, ticket(&["a"], Mode::Shared)),
        standing(5, ticket(&["b"], Mode::Exclusive)),
        standing(20, ticket(&["a"], Mode::Exclusive)),
        unreadable,
    ];
    let found = waits(decide(&own, Revision(10), &all));
    assert_eq!(found, (vec![3, 9, 30], vec!["k30".to_owned()]));
    assert_eq!(waits(decide(&own, Revision(2), &all)).0, [30]);
    assert_eq!(waits(decide(&own, Revision(10), &all[..5])).1, ["k9"]);
    assert_eq!(decide(&own, Revision(3), &all[..5]), Decision::Granted);
}

/// A ticket for one of three slots of `a`.
fn of_three(slot: Option<u32>) -> Ticket {
    Ticket { slot, ..ticket(&["a"], Mode::Slots(3)) }
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

/// It may have seen more tickets than stand now, and get any slot.
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
            let other = standing(1, ticket(&[name], mode));
            assert_eq!(waits(decide(&own, Revision(9), &[other])).0, [1], "{name} {mode:?}");
        }
    }
    let below = Ticket { slot: Some(0), ..ticket(&["a/b"], Mode::Slots(3)) };
    let below = standing(1, below);
    assert_eq!(waits(decide(&own, Revision(9), &[below])).0, [1]);
    let shared = ticket(&["a"], Mode::Shared);
    let holder = standing(1, of_three(Some(0)));
    assert_eq!(waits(decide(&shared, Revision(9), &[holder])).0, [1]);
}

#[test]
fn another_number_of_slots_is_refused_to_who_comes_later() {
    let four = [standing(5, ticket(&["a"], Mode::Slots(4)))];
    assert_eq!(decide(&of_three(None), Revision(9), &four), Decision::OtherCount(4));
    assert_eq!(decide(&of_three(None), Revision(2), &four), Decision::Slot(0));
    let elsewhere = [standing(5, ticket(&["b"], Mode::Slots(4)))];
    assert_eq!(decide(&of_three(None), Revision(9), &elsewhere), Decision::Slot(0));
}

fn inside(names: &[&str], held: &[(&str, u64)]) -> Ticket {
    let held =
        held.iter().map(|(name, number)| (Name::parse(name).expect("a name"), Revision(*number)));
    Ticket { held: held.collect(), ..ticket(names, Mode::Exclusive) }
}

#[test]
fn who_closes_a_circle_of_waits_finds_it_and_nobody_else() {
    // 1 holds a, 2 holds b; 3, inside 2, waits for a; 4, inside 1, waits for b.
    let all = [
        standing(1, inside(&["a"], &[])),
        standing(2, inside(&["b"], &[])),
        standing(3, inside(&["a"], &[("b", 2)])),
        standing(4, inside(&["b"], &[("a", 1)])),
    ];
    let of = |at: usize, all: &[StoredTicket]| {
        let own = all[at].ticket.as_ref().expect("readable");
        circle(own, all[at].number, all).map(|it| it.number.0)
    };
    assert_eq!(of(3, &all), Some(2));
    assert_eq!(of(2, &all), None, "it was there first");
    assert_eq!(of(2, &all[..3]), None);
}

#[test]
fn a_circle_of_three_with_a_waiter_between_is_found() {
    // 5, inside 1, waits for b: behind 4, which waits for 2, inside which 6 waits for c of 3,
    // inside which 7 waits for a.
    let all = [
        standing(1, inside(&["a"], &[])),
        standing(2, inside(&["b"], &[])),
        standing(3, inside(&["c"], &[])),
        standing(4, inside(&["b/x"], &[])),
        standing(5, inside(&["b/x"], &[("a", 1)])),
        standing(6, inside(&["c"], &[("b", 2)])),
        standing(7, inside(&["a"], &[("c", 3)])),
    ];
    let own = all[6].ticket.as_ref().expect("readable");
    assert_eq!(circle(own, Revision(7), &all).map(|it| it.number.0), Some(1));
    let without: Vec<_> = all.iter().filter(|it| it.number.0 != 6).cloned().collect();
    assert_eq!(circle(own, Revision(7), &without), None);
}

#[test]
fn a_wait_inside_a_lock_that_nobody_inside_waits_for_is_no_circle() {
    let all = [
        standing(1, inside(&["a"], &[])),
        standing(2, inside(&["b"], &[])),
        // Another bucket had a ticket 2 of another name.
        standing(3, inside(&["a"], &[("c", 2)])),
    ];
    assert_eq!(circle(&inside(&["b"], &[("a", 1)]), Revision(4), &all), None);
}
