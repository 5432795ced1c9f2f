//! Seats and priorities: five agents over one server, each behind a link of its own.

mod group;
mod pause;
mod site;
mod switchover;

use std::time::Duration;

use crate::support::clock::{At, ms, now, observe_for, until_true};
use crate::support::proxy::Mode;
use group::{Group, R, STEP, TAKEOVER};
use rustix::process::Signal;

/// A holder is lost so many times.
const ROUNDS: usize = 6;

/// Checks that a service did not come up before its seat was free and the better agents had had
/// their turn, and says by how much later.
#[track_caller]
fn check_takeover(what: &str, better: u32, renewed_at: At, up_at: At) {
    let (took, due) = (up_at.saturating_sub(renewed_at), TAKEOVER + STEP * better);
    println!("{what}: up {:.1} ms after the last renewal, due {:.1} ms", ms(took), ms(due));
    // The proxy sees a renewal later than its agent has sent it.
    assert!(took + Duration::from_millis(20) >= due, "{what}: {took:?} is too early for {due:?}");
}

#[test]
fn of_five_agents_two_are_active_and_whoever_loses_a_seat_moves_no_other() {
    let Some(mut group) = Group::new(&["1", "2", "3", "4", "5"], 2, &[]) else { return };
    group.start_all();
    let mut holders = group.wait_for_all();
    for round in 0..ROUNDS {
        let seat = (round / 3) % 2;
        let (lost, other) = (holders[seat], holders[1 - seat]);
        let since = now();
        if round % 3 == 2 {
            // Within T: nothing moves.
            group.server.kill();
            group.server.restart().expect("the server comes back");
            observe_for(R * 4);
            assert_eq!(group.observer.changes_since(since), 0, "round {round}: a restart moves");
            continue;
        }
        let best = (0..5).find(|host| !holders.contains(host)).expect("three stand by");
        let cut = round % 3 == 1;
        let renewed_at = if cut { group.freeze(lost) } else { group.kill_host(lost) };
        let (next, up_at) = group.next_holder(seat, lost, since);
        assert_eq!(next, best, "round {round}: the best agent without a seat takes it");
        let what = if cut { "cut off" } else { "killed" };
        check_takeover(
            &format!("round {round}, seat {seat}, {what}"),
            best as u32,
            renewed_at,
            up_at,
        );
        let back_at = now();
        if cut {
            group.hosts[lost].proxy.turn(Mode::Pass);
        } else {
            group.start(lost);
        }
        // The agent that is back stands by, whatever its priority is.
        group.wait_for_line(lost, "held by host-", back_at);
        holders[seat] = next;
        assert_eq!(group.wait_for_all(), holders, "round {round}");
        let moved = |(_, pipe): &(At, usize)| pipe / 2 == other;
        let moves = group.observer.ups_since(since).into_iter().filter(moved).count();
        assert_eq!(moves, 0, "round {round}: the other seat was moved");
    }
    group.check_history();
}

#[test]
fn the_priorities_are_the_order_in_which_five_agents_get_the_service() {
    let Some(mut group) = Group::new(&["1", "2", "8", "15", "never"], 1, &[]) else { return };
    group.start_all();
    assert_eq!(group.wait_for_all(), [0], "priority 1 goes first");
    for (next, better) in [(1, 1), (2, 7), (3, 14)] {
        let since = now();
        let renewed_at = group.kill_host(next - 1);
        let (host, up_at) = group.next_holder(0, next - 1, since);
        assert_eq!(host, next);
        check_takeover(&format!("host {next}"), better, renewed_at, up_at);
    }
    group.kill_host(3);
    observe_for(TAKEOVER + STEP * 20);
    assert_eq!(group.holder(0), None, "an agent that takes no lock has taken one");
    group.start(2);
    assert_eq!(group.wait_for_all(), [2]);
    // A late comer of a higher priority is only a candidate.
    let since = now();
    group.start(0);
    group.wait_for_line(0, "held by host-2", since);
    observe_for(TAKEOVER * 2);
    assert_eq!((group.holder(0), group.observer.changes_since(since)), (Some(2), 0));
    group.check_history();
}

#[test]
fn the_service_goes_back_to_the_best_agent_that_was_fit_for_long_enough() {
    let back_after = Duration::from_secs(2);
    let flags = ["--failback", "2s"];
    let Some(mut group) = Group::new(&["1", "2", "never"], 1, &flags) else { return };
    group.start(2);
    group.start(1);
    assert_eq!(group.wait_for_all(), [1]);
    let since = now();
    group.start(0);
    let (next, up_at) = group.next_holder(0, 1, since);
    assert_eq!(next, 0);
    let took = up_at - since;
    println!("back {:.1} ms after the agent was started, due {:.1} ms", ms(took), ms(back_after));
    assert!(took >= back_after, "{took:?}");
    // And stays there.
    let since = now();
    observe_for(back_after * 2);
    assert_eq!(group.observer.changes_since(since), 0);
    // An agent that is told to end hands over to the next.
    group.hosts[0].agent.as_ref().expect("it runs").signal(Signal::TERM);
    until_true("host 1 has the service", || group.holder(0) == Some(1));
    group.check_history();
}
