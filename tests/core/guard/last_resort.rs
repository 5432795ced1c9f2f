//! The last resort: the command that is run when the service is not down in time.

use putex::core::command::{Command, Outcome};
use putex::core::protocol::{Stake, ToGuard};
use putex::core::service_report::{ServiceReport, StopFailure};
use putex::core::time::Ms;

use super::bench::{
    Bench, KILL_CGROUP, config, failed, kill, late_time, order, ran, release, run, with_last_resort,
};
use super::{dead_by, ms, timing, v};

#[test]
fn the_last_resort_is_run_when_the_service_must_be_down_and_stop_is_killed_first() {
    let (mut bench, deeds) = Bench::overdue(with_last_resort());
    let last_resort = run(Command::LastResort, dead_by().after(late_time()));
    assert_eq!(deeds, [kill(Command::Stop), KILL_CGROUP, last_resort]);
    assert!(bench.has_said(&ServiceReport::LastResort));
    let begins = bench.spawned(Command::LastResort, ms(1957));
    assert_eq!(begins, [release(Command::LastResort)]);
}

#[test]
fn a_stop_that_is_killed_for_it_is_named_with_how_long_it_ran() {
    let (mut bench, _) = Bench::overdue(with_last_resort());
    let why = StopFailure::Overran(Ms(dead_by().since(v())));
    let said = ServiceReport::StopFailed(why);
    assert!(bench.has_said(&said));
}

#[test]
fn there_is_none_where_none_was_asked_for_and_no_lock_is_at_stake() {
    let (_, deeds) = Bench::overdue(config());
    assert_eq!(ran(&deeds), None);
    let mut bench = Bench::new(with_last_resort(), true);
    bench.tell(ToGuard::Stop(order(ms(400), Stake::Assurance)), ms(0));
    let deeds = bench.tick(ms(400));
    assert_eq!(ran(&deeds), None);
}

#[test]
fn it_is_run_in_every_phase_of_the_procedure() {
    let running: fn() -> Bench = || Bench::stopping(with_last_resort());
    let waiting: fn() -> Bench = || {
        let mut bench = Bench::stopping(with_last_resort());
        bench.ended(Command::Stop, failed(), dead_by().before(timing().renewal() / 8));
        bench
    };
    let emptying: fn() -> Bench = || {
        let mut bench = Bench::stopping(with_last_resort());
        bench.ended(Command::Stop, Outcome::Succeeded, ms(1900));
        bench
    };
    let ending_start: fn() -> Bench = || {
        let mut bench = Bench::starting(with_last_resort());
        bench.tell(ToGuard::Stop(order(dead_by(), Stake::Lock)), ms(1955));
        bench
    };
    for (phase, bench) in [
        ("running", running),
        ("waiting", waiting),
        ("emptying", emptying),
        ("ending start", ending_start),
    ] {
        let mut bench = bench();
        let deeds = bench.tick(dead_by());
        assert!(deeds.contains(&KILL_CGROUP), "{phase}: {deeds:?}");
        assert_eq!(ran(&deeds), Some(Command::LastResort), "{phase}");
        assert!(bench.has_said(&ServiceReport::MayStillRun), "{phase}");
        let late = dead_by().after(late_time());
        bench.ended(Command::Stop, Outcome::Overran, late);
        let deeds = bench.ended(Command::LastResort, Outcome::Succeeded, late);
        assert_eq!(ran(&deeds), Some(Command::Stop), "{phase}");
    }
}

#[test]
fn only_stop_tells_that_the_service_is_down() {
    let (mut bench, _) = Bench::overdue(with_last_resort());
    bench.ended(Command::Stop, Outcome::Overran, dead_by());
    let now = ms(2000);
    let deeds = bench.ended(Command::LastResort, Outcome::Succeeded, now);
    assert_eq!(deeds, [run(Command::Stop, now.after(late_time()))]);
    let said = ServiceReport::LastResortSucceeded;
    assert!(bench.has_said(&said));
    assert!(!bench.guard.is_down());
    assert_eq!(bench.stop_counts(ms(2100)), []);
    assert!(bench.guard.is_down());
}

#[test]
fn a_last_resort_that_failed_is_run_again_in_turn_with_stop_until_it_has_succeeded() {
    let (mut bench, _) = Bench::overdue(with_last_resort());
    bench.ended(Command::Stop, Outcome::Overran, dead_by());
    let mut now = dead_by();
    for outcome in [failed(), Outcome::Overran, failed(), Outcome::Succeeded] {
        now = now.after(late_time() / 2);
        let succeeded = outcome == Outcome::Succeeded;
        let deeds = bench.ended(Command::LastResort, outcome, now);
        assert_eq!(ran(&deeds), Some(Command::Stop));
        assert_eq!(bench.ended(Command::Stop, failed(), now), []);
        now = bench.guard.deadline().expect("something is due");
        let next = if succeeded { Command::Stop } else { Command::LastResort };
        assert_eq!(ran(&bench.tick(now)), Some(next));
    }
    for _ in 0..5 {
        assert_eq!(bench.ended(Command::Stop, failed(), now), []);
        now = bench.guard.deadline().expect("something is due");
        assert_eq!(ran(&bench.tick(now)), Some(Command::Stop), "never again");
    }
}

/// Regression: while the killed stop hung in the kernel, the last resort was not run again, and a
/// start that came late left the service up until that stop had ended.
#[test]
fn a_last_resort_beside_a_dying_start_is_run_again_although_stop_does_not_die() {
    let mut bench = Bench::starting(with_last_resort());
    bench.tell(ToGuard::Stop(order(dead_by(), Stake::Lock)), ms(1900));
    assert_eq!(ran(&bench.tick(bench.guard.deadline().expect("stop is due"))), Some(Command::Stop));
    assert_eq!(ran(&bench.tick(dead_by())), Some(Command::LastResort));
    let now = dead_by().after(super::TICK);
    let deeds = bench.ended(Command::LastResort, Outcome::Succeeded, now);
    assert_eq!(ran(&deeds), None, "stop has not ended");
    assert!(bench.has_said(&ServiceReport::LastResortBesideStart));
    let deeds = bench.ended(Command::Start, Outcome::Overran, now);
    assert_eq!(ran(&deeds), Some(Command::LastResort), "one that counts");
    let deeds = bench.ended(Command::LastResort, failed(), now);
    assert_eq!(ran(&deeds), None, "it fails, and does not begin in a loop");
    let again = bench.guard.deadline().expect("it is run again");
    assert!(again > now);
    assert_eq!(ran(&bench.tick(again)), Some(Command::LastResort));
    let deeds = bench.ended(Command::LastResort, Outcome::Succeeded, again);
    assert_eq!(ran(&deeds), None);
    bench.ended(Command::Stop, Outcome::Overran, again);
    let due = bench.guard.deadline().expect("stop is due");
    assert_eq!(ran(&bench.tick(due)), Some(Command::Stop));
}

#[test]
fn a_last_resort_beside_a_dying_start_is_not_disturbed_by_the_end_of_that() {
    let mut bench = Bench::starting(with_last_resort());
    let woken = ms(3_600_000);
    assert_eq!(ran(&bench.tick(woken)), Some(Command::LastResort));
    let deeds = bench.ended(Command::Start, Outcome::Overran, woken);
    assert_eq!(deeds, []);
    let begins = bench.spawned(Command::LastResort, woken);
    assert_eq!(begins, [release(Command::LastResort)]);
}

#[test]
fn a_last_resort_that_does_not_die_is_not_run_twice_in_a_later_term_either() {
    let (mut bench, _) = Bench::overdue(with_last_resort());
    bench.ended(Command::Stop, Outcome::Overran, dead_by());
    let (r, until) = (timing().renewal(), dead_by().after(late_time()));
    bench.tick(until);
    bench.tick(until.after(r));
    bench.tick(until.after(r * 2));
    let down = until.after(r * 2);
    bench.stop_counts(down);
    for (ended, next) in [(false, None), (true, Some(Command::LastResort))] {
        let now = down.after(r);
        if ended {
            bench.ended(Command::LastResort, failed(), now);
        }
        let valid_until = now.after(r);
        bench.renew(valid_until, now);
        bench.tick(valid_until);
        let dead_by = valid_until.after(timing().stop_budget());
        assert_eq!(ran(&bench.tick(dead_by)), next, "has ended: {ended}");
        bench.ended(Command::Stop, Outcome::Overran, dead_by);
        if ended {
            return;
        }
        bench.stop_counts(dead_by);
    }
}

#[test]
fn a_stop_that_does_not_die_is_not_run_twice_after_the_last_resort() {
    let (mut bench, _) = Bench::overdue(with_last_resort());
    let deeds = bench.ended(Command::LastResort, Outcome::Succeeded, ms(2000));
    assert_eq!(deeds, [kill(Command::Stop)], "the one of before");
    let again = bench.guard.deadline().expect("it is killed again");
    assert_eq!(again, ms(2000).after(timing().renewal() / 4));
    assert_eq!(bench.tick(again), [kill(Command::Stop)]);
    bench.ended(Command::Stop, Outcome::Overran, ms(2200));
    let due = bench.guard.deadline().expect("stop is due");
    assert_eq!(ran(&bench.tick(due)), Some(Command::Stop));
}
