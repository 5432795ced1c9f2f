//! The stop procedure, as the guard carries it out.

use putex::core::command::{Command, Outcome};
use putex::core::guard::GuardAction;
use putex::core::protocol::{GuardConfig, ServiceState, Stake, ToGuard};
use putex::core::service_report::ServiceReport;
use putex::core::time::Ms;
use putex::core::timing::Timing;

use super::bench::{
    Bench, EMPTY_CGROUP, KILL_CGROUP, config, failed, kill, late_time, order, run, stop_failed,
};
use super::{TICK, dead_by, ms, timing, v};

#[test]
fn a_service_is_not_down_before_its_control_group_is_empty() {
    let mut bench = Bench::stopping(config());
    let deeds = bench.ended(Command::Stop, Outcome::Succeeded, ms(1500));
    assert_eq!(deeds, [EMPTY_CGROUP]);
    assert!(!bench.guard.is_down());
    let stopping = ServiceState::Stopping { overdue: false };
    assert_eq!(bench.service(), &stopping);
    assert_eq!(bench.emptied(ms(1600)), []);
    assert!(bench.guard.is_down());
    assert_eq!(bench.service(), &ServiceState::Down);
    assert!(bench.has_said(&ServiceReport::DownInTime(Ms(dead_by().since(ms(1600))))));
}

#[test]
fn a_control_group_that_does_not_empty_makes_the_service_overdue() {
    let mut bench = Bench::stopping(config());
    bench.ended(Command::Stop, Outcome::Succeeded, ms(1500));
    assert_eq!(bench.guard.deadline(), Some(dead_by()));
    assert_eq!(bench.tick(dead_by()), [KILL_CGROUP]);
    assert!(bench.has_said(&ServiceReport::MayStillRun));
    assert_eq!(bench.service(), &ServiceState::Stopping { overdue: true });
    assert_eq!(bench.guard.deadline(), None, "its end is told");
    assert_eq!(bench.emptied(ms(2500)), []);
    assert!(bench.guard.is_down());
    assert!(bench.has_said(&ServiceReport::DownLate));
}

#[test]
fn a_failure_is_said_once_for_a_row_of_equal_ones_and_again_when_the_service_is_overdue() {
    let mut bench = Bench::stopping(config());
    bench.said.clear();
    bench.ended(Command::Stop, failed(), ms(1490));
    assert_eq!(bench.failed_stops().len(), 1);
    bench.tick(ms(1615));
    bench.ended(Command::Stop, failed(), ms(1620));
    assert_eq!(bench.failed_stops(), []);
    bench.tick(ms(1745));
    bench.tick(dead_by());
    bench.said.clear();
    bench.ended(Command::Stop, failed(), ms(1960));
    assert_eq!(bench.failed_stops().len(), 1);
}

#[test]
fn at_the_instant_when_the_service_must_be_down_stop_and_control_group_are_killed() {
    let mut bench = Bench::stopping(config());
    assert_eq!(bench.tick(dead_by().before(TICK)), []);
    let deeds = bench.tick(dead_by());
    assert_eq!(deeds, [kill(Command::Stop), KILL_CGROUP]);
    assert!(bench.has_said(&ServiceReport::MayStillRun));
    assert_eq!(bench.service(), &ServiceState::Stopping { overdue: true });
}

#[test]
fn a_stop_that_was_killed_for_being_late_is_run_again_at_once() {
    let (mut bench, _) = Bench::overdue(config());
    let now = dead_by().after(TICK);
    let deeds = bench.ended(Command::Stop, Outcome::Overran, now);
    assert_eq!(deeds, [run(Command::Stop, now.after(late_time()))]);
    let took = now.since(v());
    assert!(bench.has_said(&stop_failed(Outcome::Overran, took, Stake::Lock)));
}

#[test]
fn a_stop_that_fails_when_the_service_is_overdue_is_run_every_r() {
    let (mut bench, _) = Bench::overdue(config());
    bench.ended(Command::Stop, Outcome::Overran, dead_by());
    let mut now = ms(2000);
    for _ in 0..10 {
        assert_eq!(bench.ended(Command::Stop, failed(), now), []);
        let again = now.after(timing().renewal());
        assert_eq!(bench.guard.deadline(), Some(again));
        let stop = run(Command::Stop, again.after(late_time()));
        assert_eq!(bench.tick(again), [stop]);
        now = again;
    }
    assert_eq!(bench.stop_counts(now), []);
    assert!(bench.guard.is_down());
}

#[test]
fn a_late_stop_has_the_budget_or_r_whichever_is_longer() {
    let (r, budget) = (timing().renewal(), timing().stop_budget());
    assert!(r > budget && late_time() == r);
    let slow = Timing::new(r, 3, 4, 10_000).expect("it is safe");
    let slow_config = GuardConfig { timing: slow, ..config() };
    let mut bench = Bench::up(slow_config);
    bench.tick(ms(60_000));
    let deeds = bench.ended(Command::Stop, Outcome::Overran, ms(60_001));
    let until = ms(60_001).after(slow.stop_budget());
    assert_eq!(deeds, [run(Command::Stop, until)]);
}

#[test]
fn a_stop_that_does_not_die_is_killed_again_and_never_run_twice() {
    let (mut bench, _) = Bench::overdue(config());
    let deeds = bench.pass(ms(20_000));
    assert!(deeds.len() > 10);
    for (at, deed) in deeds {
        assert_eq!(deed, kill(Command::Stop), "at {at:?}");
    }
}

#[test]
fn a_stop_that_had_no_time_since_the_host_slept_is_run_again_at_once() {
    let mut bench = Bench::stopping(config());
    let woken = ms(3_600_000);
    let deeds = bench.ended(Command::Stop, Outcome::Overran, woken);
    assert_eq!(deeds, [KILL_CGROUP, run(Command::Stop, woken.after(late_time()))]);
}

#[test]
fn a_service_that_must_be_down_earlier_than_was_known_is_overdue_then() {
    let mut bench = Bench::up(config());
    bench.tell(ToGuard::Stop(order(ms(900), Stake::Lock)), ms(100));
    let sooner = ToGuard::Stop(order(ms(500), Stake::Lock));
    assert_eq!(bench.tell(sooner, ms(200)), []);
    assert_eq!(bench.guard.deadline(), Some(ms(500)));
    assert_eq!(
        bench.tick(ms(500)),
        [kill(Command::Stop), KILL_CGROUP],
        "the stop that runs has no longer either"
    );
    let later = ToGuard::Stop(order(ms(900), Stake::Lock));
    bench.tell(later, ms(510));
    assert_eq!(bench.service(), &ServiceState::Stopping { overdue: true });
}

#[test]
fn a_stop_that_runs_is_not_cut_short_for_an_agent_that_only_makes_sure() {
    let mut bench = Bench::stopping(config());
    let sure = ToGuard::Stop(order(ms(1600), Stake::Assurance));
    assert_eq!(bench.tell(sure, ms(1500)), []);
    assert_eq!(bench.guard.deadline(), Some(dead_by()));
}

#[test]
fn stop_of_a_service_that_is_down_is_run_all_the_same() {
    let mut bench = Bench::new(config(), true);
    let deeds = bench.tell(ToGuard::Stop(order(ms(470), Stake::Assurance)), ms(0));
    assert_eq!(deeds, [run(Command::Stop, ms(470))]);
    assert!(!bench.guard.is_down(), "until that has succeeded");
    assert_eq!(bench.ended(Command::Stop, failed(), ms(10)), []);
    let took = ms(10).since(ms(0));
    assert!(bench.has_said(&stop_failed(failed(), took, Stake::Assurance)));
    bench.tick(ms(135));
    assert_eq!(bench.stop_counts(ms(140)), []);
    assert!(bench.guard.is_down());
    assert!(bench.has_said(&ServiceReport::Down));
}

#[test]
fn the_procedure_waits_for_nothing_for_ever() {
    // In every phase there is a deadline, or a command whose end is reported to the guard.
    let mut bench = Bench::starting(config());
    bench.tick(v());
    let mut kills = 0;
    for (_, deed) in bench.pass(ms(10_000)) {
        kills += usize::from(deed == kill(Command::Stop));
        assert_ne!(deed, GuardAction::Exit);
    }
    assert!(kills > 10, "{kills}");
}
