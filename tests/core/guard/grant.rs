//! When the service may run, and when the guard leaves.

use putex::core::command::{Command, LockContext, Outcome};
use putex::core::guard::{Guard, GuardAction, GuardInput};
use putex::core::protocol::{Grant, GuardConfig, ServiceState, Stake, StopOrder, ToGuard};
use putex::core::record::Revision;
use putex::core::service_report::ServiceReport;
use putex::core::time::Ms;
use putex::core::timing::Timing;

use super::bench::{
    Bench, KILL_CGROUP, config, context, failed, grant, kill, late_time, order, ran, release, run,
    with_last_resort,
};
use super::{TICK, dead_by, ms, timing, v};

#[test]
fn nothing_is_done_while_the_agent_renews() {
    let mut bench = Bench::up(config());
    for stroke in 1..100 {
        let now = ms(stroke * 500);
        assert_eq!(bench.renew(now.after(timing().validity()), now), []);
        assert!(bench.guard.deadline() > Some(now));
    }
}

#[test]
fn a_service_whose_grant_runs_out_is_stopped_at_once_and_not_before() {
    let mut bench = Bench::up(config());
    assert_eq!(bench.guard.deadline(), Some(v()));
    assert_eq!(bench.tick(v().before(TICK)), []);
    assert_eq!(bench.tick(v()), [run(Command::Stop, dead_by())]);
    assert!(bench.has_said(&ServiceReport::LockOver));
}

#[test]
fn a_lost_agent_has_until_v_to_be_back() {
    let mut bench = Bench::up(config());
    assert_eq!(bench.leave_agent(ms(100)), []);
    assert!(bench.has_said(&ServiceReport::AgentGone(Ms(v().since(ms(100))))));
    assert_eq!(bench.guard.deadline(), Some(v()));
    assert_eq!(bench.tick(v().before(TICK)), []);
    assert_eq!(bench.tick(v()), [run(Command::Stop, dead_by())]);
    assert!(bench.has_said(&ServiceReport::LockOverWithoutAgent));
    let end = ms(1500);
    assert_eq!(bench.stop_counts(end), [GuardAction::Exit]);
}

#[test]
fn a_grant_in_the_past_starts_nothing() {
    let mut bench = Bench::new(config(), true);
    assert_eq!(bench.renew(v(), v()), []);
    assert_eq!(bench.tell(ToGuard::AssertStart, v()), []);
    assert_eq!(bench.service(), &ServiceState::Down);
    assert_eq!(bench.guard.deadline(), None);
    assert_eq!(bench.renew(v().after(TICK), v()), []);
    assert!(matches!(bench.service(), ServiceState::Up(..)));
}

#[test]
fn a_guard_that_did_not_run_for_a_while_learns_first_that_the_agent_renewed() {
    let mut bench = Bench::up(config());
    bench.said.clear();
    let late = dead_by().after(timing().renewal() * 2);
    // The messages of the meantime, in their order: the first of them have run out too.
    for stroke in 1..=6 {
        let renewed = grant(timing(), ms(1485 + stroke * 500));
        let message = GuardInput::Received(ToGuard::Grant(renewed));
        assert_eq!(bench.handle(message, late), [], "stroke {stroke}");
    }
    assert_eq!(bench.tick(late), []);
    assert!(bench.said.is_empty(), "{:?}", bench.said);
}

/// The next agent may know of the lock, and is there soon. Agents that come and go have as long
/// as the first, all of them together.
#[test]
fn a_guard_that_was_told_nothing_waits_for_its_next_agent_as_long_as_for_the_first() {
    let mut bench = Bench::new(with_last_resort(), false);
    let by = ms(0).after(timing().renewal() / 4);
    assert_eq!(bench.tick(ms(10)), [], "it has an agent");
    for now in [ms(20), ms(30)] {
        assert_eq!(bench.leave_agent(now), []);
        let hello = ToGuard::Hello(with_last_resort());
        assert_eq!(bench.feed(GuardInput::Received(hello), now), []);
    }
    assert_eq!(bench.leave_agent(by.before(TICK)), []);
    let until = by.after(timing().stop_budget());
    assert_eq!(bench.tick(by), [run(Command::Stop, until)]);
    assert_eq!(bench.tick(until), [kill(Command::Stop), KILL_CGROUP], "no lock is known of");
    bench.ended(Command::Stop, Outcome::Overran, until);
    assert_eq!(bench.stop_counts(until.after(TICK)), [GuardAction::Exit]);
}

/// An agent that did not run for a while knew of a lock: the service must be down at the deadline
/// of that lock, whatever becomes of the agent.
#[test]
fn a_guard_that_learns_of_a_lock_that_has_run_out_stops_what_an_earlier_guard_has_left() {
    for agent_goes in [true, false] {
        let mut bench = Bench::new(with_last_resort(), false);
        let late = v().after(TICK);
        let told = ToGuard::Grant(grant(timing(), v()));
        assert_eq!(bench.handle(GuardInput::Received(told), late), []);
        if agent_goes {
            assert_eq!(bench.handle(GuardInput::Disconnected, late), []);
        }
        assert_eq!(bench.tick(late), [run(Command::Stop, dead_by())]);
        assert_eq!(bench.guard.context(), context(8));
        assert_eq!(ran(&bench.tick(dead_by())), Some(Command::LastResort));
    }
}

/// The messages of the meantime may wait behind it.
#[test]
fn a_lock_that_has_run_out_stops_nothing_before_all_messages_were_received() {
    let mut bench = Bench::new(config(), false);
    let late = v().after(TICK);
    for valid_until in [v(), ms(2000)] {
        let message = ToGuard::Grant(grant(timing(), valid_until));
        assert_eq!(bench.handle(GuardInput::Received(message), late), []);
    }
    assert_eq!(bench.tick(late), []);
    let ServiceState::Up(grant, _) = bench.service() else {
        panic!("not up: {:?}", bench.service());
    };
    assert_eq!(grant.valid_until, ms(2000));
}

#[test]
fn a_guard_never_leaves_while_the_service_is_not_known_to_be_down() {
    let (mut bench, _) = Bench::overdue(config());
    bench.leave_agent(dead_by());
    let mut now = dead_by();
    let mut runs = 0;
    for _ in 0..100 {
        let mut deeds = bench.ended(Command::Stop, failed(), now);
        now = bench.guard.deadline().expect("it goes on");
        deeds.extend(bench.tick(now));
        assert!(!deeds.contains(&GuardAction::Exit), "{deeds:?}");
        assert!(!bench.guard.is_down());
        runs += usize::from(deeds.contains(&run(Command::Stop, now.after(late_time()))));
    }
    assert_eq!(runs, 100, "stop is run again and again");
    assert_eq!(bench.stop_counts(now), [GuardAction::Exit]);
}

#[test]
fn a_grant_of_another_term_is_told_to_commands_and_starts_anew() {
    let mut bench = Bench::up(config());
    bench.tell(ToGuard::Stop(order(ms(900), Stake::Lock)), ms(600));
    bench.stop_counts(ms(610));
    let again = Grant { context: context(11), ..grant(timing(), ms(2200)) };
    bench.tell(ToGuard::Grant(again), ms(700));
    assert_eq!(bench.guard.context().term, Some(Revision(11)));
    let start = run(Command::Start, ms(2200));
    assert_eq!(bench.tell(ToGuard::AssertStart, ms(700)), [start]);
    let began = bench.spawned(Command::Start, ms(701));
    assert_eq!(began, [release(Command::Start)]);
    bench.said.clear();
    bench.ended(Command::Start, Outcome::Succeeded, ms(710));
    assert!(bench.has_said(&ServiceReport::Started(Revision(11))));
}

#[test]
fn a_guard_that_finishes_goes_on_when_its_time_is_over() {
    let mut bench = Bench::of(Guard::new(config(), false, true, None, ms(100)));
    assert_eq!(bench.tick(ms(100)), [kill(Command::Start)]);
    let until = ms(100).after(timing().stop_budget());
    let stop = run(Command::Stop, until);
    let deeds = bench.ended(Command::Start, Outcome::Overran, ms(105));
    assert_eq!(deeds, [stop]);
    bench.tick(until);
    let deeds = bench.ended(Command::Stop, Outcome::Overran, until);
    assert_eq!(deeds, [run(Command::Stop, until.after(late_time()))]);
    assert_eq!(bench.stop_counts(ms(700)), [GuardAction::Exit]);
}

#[test]
fn what_a_guard_of_a_smaller_c_has_left_is_stopped_within_its_stop_budget() {
    let bench = Bench::up(config());
    let times = bench.guard.times();
    assert_eq!(times, Some(timing()));
    // The agent is started again with a larger C, and kills a guard that does not answer it.
    let larger = Timing::new(timing().renewal(), timing().failures(), 3, timing().drift_ppm());
    let larger = GuardConfig { timing: larger.expect("it is safe"), ..config() };
    let mut bench = Bench::of(Guard::new(larger, false, false, times, ms(100)));
    bench.tell(ToGuard::Hello(larger), ms(100));
    let dead_by = ms(110).after(larger.timing.stop_budget());
    let stake = Stake::Assurance;
    let sure = StopOrder { dead_by, stake, context: LockContext::default() };
    let until = ms(110).after(timing().stop_budget());
    assert_eq!(bench.tell(ToGuard::Stop(sure), ms(110)), [run(Command::Stop, until)]);
}

/// Other agents wait for as long as the times of the record say.
#[test]
fn a_service_whose_agent_comes_back_with_other_times_is_stopped_within_the_old_ones() {
    for (renewal, failures, confirmations, drift_ppm) in [
        (timing().renewal() * 2, timing().failures(), timing().confirmations(), 10_000),
        (timing().renewal(), timing().failures() + 1, timing().confirmations(), 10_000),
        (timing().renewal(), timing().failures(), timing().confirmations() + 5, 10_000),
        (timing().renewal(), timing().failures(), timing().confirmations(), 20_000),
    ] {
        let other = Timing::new(renewal, failures, confirmations, drift_ppm).expect("it is safe");
        let mut bench = Bench::up(config());
        bench.leave_agent(ms(50));
        let hello = ToGuard::Hello(GuardConfig { timing: other, ..config() });
        let deeds = bench.tell(hello, ms(60));
        assert_eq!(deeds, [run(Command::Stop, dead_by())], "{other:?}");
        assert!(bench.has_said(&ServiceReport::OtherTimes));
        assert_eq!(*bench.service(), ServiceState::Stopping { overdue: false });
    }
    let mut same = Bench::up(config());
    same.leave_agent(ms(50));
    assert_eq!(same.tell(ToGuard::Hello(config()), ms(60)), []);
    assert!(matches!(same.service(), ServiceState::Up(..)), "it is adopted");
}
