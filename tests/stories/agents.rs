//! Agents and guards: when the service moves, when it stops, and when nothing may touch it.

use rustix::process::Signal;

use crate::hosts::{Pair, Store, TAKEOVER, turn};
use crate::support::clock::{now, until_true};
use crate::support::process::signal;

/// An agent that is told to end runs stop and releases the lock: the other need not wait for T.
#[test]
fn an_agent_that_is_told_to_end_hands_the_service_over() {
    let _turn = turn();
    let Some(store) = Store::server() else { return };
    let mut pair = Pair::running(store);
    pair.hosts[0].signal(Signal::TERM);
    pair.wait_active(1);
    assert_eq!(pair.hosts[0].wait_end(), Some(0));
    assert!(pair.hosts[0].has_said("the lock is released"));
    pair.end();
}

/// All processes of a host are killed at once: nobody releases the lock, and the other host waits
/// for T and C * R.
#[test]
fn the_service_of_a_lost_host_starts_elsewhere_after_t_and_c_times_r() {
    let _turn = turn();
    let Some(store) = Store::server() else { return };
    let mut pair = Pair::running(store);
    pair.wait_two_strokes(0);
    // The last renewal is later than the check before it.
    let renewed_after = now();
    pair.wait_two_strokes(0);
    pair.hosts[0].kill();
    pair.wait_active(1);
    let ups = pair.observer.ups_since(renewed_after);
    let (up_at, host) = *ups.last().expect("the service is up");
    assert_eq!(host, 1);
    assert!(up_at >= renewed_after + TAKEOVER, "too early: {up_at:?}, {renewed_after:?}");
    pair.end();
}

/// The guard outlives its agent, and stops the service before another host may start it.
#[test]
fn the_guard_of_a_killed_agent_stops_the_service() {
    let _turn = turn();
    let mut pair = Pair::running(Store::directory());
    pair.hosts[0].kill_agent();
    pair.wait_active(1);
    assert!(!pair.hosts[0].service.stops().is_empty(), "the guard ran no stop");
    pair.end();
}

/// A crash of the agent, an upgrade and the death of the guard: the service is neither stopped nor
/// started.
#[test]
fn what_happens_to_agent_or_guard_alone_does_not_touch_the_service() {
    let _turn = turn();
    let Some(store) = Store::server() else { return };
    let mut pair = Pair::running(store);
    let service = pair.hosts[0].service.pid();
    let since = now();
    let adoptions = |pair: &Pair| pair.hosts[0].log.text().matches("adopted as revision").count();
    pair.hosts[0].kill_agent();
    pair.start(0);
    until_true("an adoption", || adoptions(&pair) == 1);
    pair.wait_two_strokes(0);
    pair.hosts[0].signal(Signal::USR2);
    until_true("another adoption", || adoptions(&pair) == 2);
    pair.wait_two_strokes(0);
    let guards = || pair.hosts[0].service.sandbox.guards("web");
    let guard = guards()[0];
    signal(guard, Signal::KILL);
    until_true("another guard", || guards().iter().any(|pid| *pid != guard));
    pair.wait_two_strokes(0);
    assert_eq!(pair.observer.changes_since(since), 0, "{}", pair.hosts[0].log.text());
    assert_eq!(pair.hosts[0].service.pid(), service);
    pair.end();
}

/// A failing health check moves the service, and so does one that hangs, which is killed at T.
/// Where all checks fail nobody runs the service.
#[test]
fn a_health_check_that_fails_or_hangs_moves_the_service() {
    let _turn = turn();
    let pair = Pair::running(Store::directory());
    pair.hosts[0].service.set_sick(true);
    pair.wait_active(1);
    pair.hosts[0].service.set_sick(false);
    pair.hosts[1].service.set_slow(TAKEOVER * 100);
    pair.wait_active(0);
    pair.hosts[0].service.set_sick(true);
    pair.wait_none();
    pair.end();
}

/// The lock is not released before stop has succeeded. A stop that hangs is killed before another
/// host may start the service, and the last resort ends the service.
#[test]
fn a_stop_that_fails_is_run_again_and_one_that_hangs_is_followed_by_the_last_resort() {
    let _turn = turn();
    let mut pair = Pair::new(Store::directory());
    pair.has_last_resort = true;
    pair.start_both();
    pair.hosts[0].service.set_stop_failures(2);
    pair.hosts[0].signal(Signal::TERM);
    pair.wait_active(1);
    assert_eq!(pair.hosts[0].wait_end(), Some(0));
    assert!(pair.hosts[0].service.stops().len() >= 3);
    assert!(pair.hosts[0].service.resorted_at().is_none());
    pair.start(0);
    until_true("a standby", || pair.hosts[0].log.text().matches("-> standby").count() >= 2);
    pair.hosts[1].service.set_stop_hang(true);
    pair.hosts[1].signal(Signal::TERM);
    pair.wait_active(0);
    assert!(pair.hosts[1].service.resorted_at().is_some());
    pair.end();
}

/// No host runs the service while the lock cannot be renewed, and one does when it can be again.
#[test]
fn without_its_server_the_service_stops_and_with_it_one_runs_again() {
    let _turn = turn();
    let Some(store) = Store::server() else { return };
    let mut pair = Pair::running(store);
    pair.store.server_mut().stop(Signal::TERM);
    pair.wait_none();
    pair.store.server_mut().restart().expect("it starts again");
    until_true("one service", || pair.observer.only_active().is_some());
    pair.end();
}
