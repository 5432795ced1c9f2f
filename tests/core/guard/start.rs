//! A start: when it is run, when it begins, and one that was killed and has not ended.

use putex::core::command::{Command, Outcome};
use putex::core::guard::GuardInput;
use putex::core::protocol::{Stake, ToGuard};
use putex::core::timing::SLACK;

use super::bench::{Bench, config, failed, kill, order, release, run, stop_failed};
use super::{TICK, dead_by, ms, timing, v};

#[test]
fn start_is_run_under_a_grant_only() {
    let mut bench = Bench::new(config(), true);
    assert_eq!(bench.tell(ToGuard::AssertStart, ms(0)), []);
    bench.renew(v(), ms(1));
    let start = run(Command::Start, v());
    assert_eq!(bench.tell(ToGuard::AssertStart, ms(2)), [start]);
}

#[test]
fn start_that_is_asserted_when_the_grant_has_run_out_is_not_run() {
    for (now, runs) in [(v().before(TICK), true), (v(), false)] {
        let mut bench = Bench::granted(config());
        // The guard has not looked at the clock yet.
        let message = GuardInput::Received(ToGuard::AssertStart);
        let deeds = bench.handle(message, now);
        assert_eq!(!deeds.is_empty(), runs, "{deeds:?}");
    }
}

#[test]
fn a_start_that_was_spawned_too_late_is_killed_and_does_not_begin() {
    let mut bench = Bench::granted(config());
    bench.tell(ToGuard::AssertStart, ms(0));
    // The guard has not looked at the clock yet.
    let deeds = bench.handle(GuardInput::Spawned(Command::Start), v());
    assert_eq!(deeds, [kill(Command::Start)]);
}

#[test]
fn a_start_that_was_not_wanted_any_more_does_not_begin_in_the_next_term_either() {
    let mut bench = Bench::granted(config());
    bench.tell(ToGuard::AssertStart, ms(0));
    bench.tick(v());
    bench.stop_counts(ms(1490));
    bench.renew(ms(4000), ms(2000));
    let assert_start = || ToGuard::AssertStart;
    assert_eq!(bench.tell(assert_start(), ms(2000)), [], "one at a time");
    let deeds = bench.spawned(Command::Start, ms(2100));
    assert_eq!(deeds, [kill(Command::Start)]);
    assert_eq!(bench.tell(assert_start(), ms(2200)), [], "it is dying");
    bench.said.clear();
    bench.ended(Command::Start, Outcome::Overran, ms(2300));
    assert!(bench.said.is_empty(), "not that of this term: {:?}", bench.said);
    let start = run(Command::Start, ms(4000));
    assert_eq!(bench.tell(assert_start(), ms(2500)), [start]);
}

#[test]
fn start_is_killed_first_and_stop_follows_its_end() {
    let mut bench = Bench::starting(config());
    assert_eq!(bench.tick(v()), [kill(Command::Start)]);
    let deeds = bench.ended(Command::Start, failed(), ms(1486));
    assert_eq!(deeds, [run(Command::Stop, dead_by())]);
    assert_eq!(bench.stop_counts(ms(1490)), []);
    assert!(bench.guard.is_down());
}

#[test]
fn where_there_is_little_time_left_half_of_it_is_waited_for_the_end_of_start() {
    let mut bench = Bench::starting(config());
    bench.tell(ToGuard::Stop(order(ms(110), Stake::Lock)), ms(100));
    assert_eq!(bench.guard.deadline(), Some(ms(105)));
    assert_eq!(bench.tick(ms(105)), [run(Command::Stop, ms(110))]);
}

/// A guard that runs stop beside a start that was killed and has not ended.
fn stopping_beside_a_start() -> Bench {
    let mut bench = Bench::starting(config());
    bench.tick(v());
    let until = v().after(SLACK);
    assert_eq!(bench.tick(until), [run(Command::Stop, dead_by())]);
    let begins = bench.spawned(Command::Stop, until);
    assert_eq!(begins, [release(Command::Stop)]);
    bench
}

#[test]
fn a_stop_beside_a_dying_start_does_not_count() {
    let mut bench = stopping_beside_a_start();
    let deeds = bench.ended(Command::Stop, Outcome::Succeeded, ms(1510));
    assert_eq!(deeds, []);
    let took = ms(1510).since(v().after(SLACK));
    assert!(bench.has_said(&stop_failed(Outcome::Succeeded, took, Stake::Lock)));
    assert!(!bench.guard.is_down());
    let again = ms(1510).after(timing().renewal() / 4);
    assert_eq!(bench.guard.deadline(), Some(again));
    assert_eq!(bench.tick(again), [run(Command::Stop, dead_by())]);
    let deeds = bench.ended(Command::Stop, Outcome::Succeeded, ms(1700));
    assert_eq!(deeds, [], "start has still not ended");
}

/// A stop that takes its whole time would leave none for one that counts.
#[test]
fn a_stop_beside_a_dying_start_is_killed_when_that_has_ended() {
    let mut bench = stopping_beside_a_start();
    let deeds = bench.ended(Command::Start, Outcome::Overran, ms(1520));
    assert_eq!(deeds, [kill(Command::Stop)]);
    let deeds = bench.ended(Command::Stop, Outcome::Overran, ms(1521));
    assert_eq!(deeds, [run(Command::Stop, dead_by())]);
    assert_eq!(bench.stop_counts(ms(1900)), []);
    assert!(bench.guard.is_down());
}
