//! Reports of the guard to its agent.

use putex::core::command::Command;
use putex::core::protocol::{Grant, ServiceState, Stake, StartState, ToGuard};

use super::bench::{Bench, config, context, failed, grant, order, with_last_resort};
use super::{dead_by, ms, timing, v};

/// The part of a report about the starts of the term.
fn start_of(bench: &Bench) -> StartState {
    let ServiceState::Up(_, start) = bench.service() else {
        panic!("not up: {:?}", bench.service());
    };
    *start
}

#[test]
fn every_word_is_answered_and_counted_also_where_it_changes_nothing() {
    let mut bench = Bench::new(config(), true);
    let messages = [
        ToGuard::AssertStart,
        ToGuard::Grant(grant(timing(), v())),
        ToGuard::Grant(grant(timing(), v())),
        ToGuard::AssertStart,
        ToGuard::AssertStart,
        ToGuard::Stop(order(ms(900), Stake::Lock)),
        ToGuard::Stop(order(ms(900), Stake::Lock)),
        ToGuard::Grant(grant(timing(), v())),
        ToGuard::Hello(config()),
    ];
    for (number, message) in (2..).zip(messages) {
        bench.reports.clear();
        bench.tell(message.clone(), ms(number));
        let heard: Vec<_> = bench.reports.iter().map(|report| report.heard).collect();
        assert!(heard.contains(&number), "{message:?}: {heard:?}");
        assert!(heard.iter().all(|heard| *heard == number), "{heard:?}");
    }
}

#[test]
fn the_starts_of_each_term_are_told_apart() {
    let mut bench = Bench::up(config());
    assert_eq!(start_of(&bench), StartState::Ended);
    let next = Grant { context: context(11), ..grant(timing(), v()) };
    bench.tell(ToGuard::Grant(next), ms(100));
    assert_eq!(start_of(&bench), StartState::NotRun);
}

#[test]
fn a_failing_start_is_reported_of_this_term_and_not_of_a_service_that_goes() {
    let failure = |bench: &Bench| bench.reports.last().expect("a report").start_failure.clone();
    let failing = || {
        let mut bench = Bench::starting(config());
        bench.ended(Command::Start, failed(), ms(3));
        assert_eq!(failure(&bench).as_deref(), Some("exit status 1"));
        bench
    };
    let mut adopted = failing();
    adopted.leave_agent(ms(100));
    adopted.tell(ToGuard::Hello(config()), ms(110));
    assert_eq!(failure(&adopted).as_deref(), Some("exit status 1"));
    let next = Grant { context: context(11), ..grant(timing(), v()) };
    adopted.tell(ToGuard::Grant(next), ms(120));
    assert_eq!(failure(&adopted), None);
    let mut stopping = failing();
    stopping.tick(v());
    assert_eq!(failure(&stopping), None);
    stopping.stop_counts(ms(1500));
    assert_eq!((stopping.service(), failure(&stopping)), (&ServiceState::Down, None));
}

#[test]
fn stop_orders_that_are_repeated_are_answered_with_what_became_of_the_first() {
    let mut bench = Bench::stopping(with_last_resort());
    for _ in 0..3 {
        bench.reports.clear();
        let again = ToGuard::Stop(order(dead_by(), Stake::Lock));
        assert_eq!(bench.tell(again, ms(1600)), []);
        assert_eq!(bench.service(), &ServiceState::Stopping { overdue: false });
    }
}

/// The agent asks again and again while the service runs or is being stopped: a question may cross
/// any other message, and is not counted, so it does not make an older report one that holds.
#[test]
fn a_question_is_answered_in_each_state_and_changes_and_counts_nothing() {
    let unknown = || {
        let mut bench = Bench::new(config(), false);
        bench.tell(ToGuard::Hello(config()), ms(0));
        bench
    };
    let down = || Bench::new(config(), true);
    let benches = [unknown(), down(), Bench::up(config()), Bench::stopping(config())];
    for mut bench in benches {
        let last = bench.reports.last().expect("a report").clone();
        bench.reports.clear();
        assert_eq!(bench.tell(ToGuard::AskReport, ms(5)), []);
        assert_eq!(bench.reports, [last]);
    }
}
