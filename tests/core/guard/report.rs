//! What the guard tells its agent.

use putex::core::command::{Command, Outcome};
use putex::core::guard::{Guard, GuardInput};
use putex::core::protocol::{Grant, GuardReport, ServiceState, Stake, StartState, ToGuard};
use putex::core::record::Revision;
use putex::core::service_report::ServiceReport;

use super::bench::{Bench, config, context, failed, grant, order, ran, with_last_resort};
use super::{dead_by, ms, timing, v};

/// What a report says of the starts of the term.
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
fn the_messages_of_each_connection_are_counted_from_the_first() {
    let mut bench = Bench::up(config());
    assert_eq!(bench.reports.last().map(|report| report.heard), Some(3));
    bench.leave_agent(ms(100));
    bench.tell(ToGuard::Hello(config()), ms(110));
    assert_eq!(bench.reports.last().map(|report| report.heard), Some(1));
}

#[test]
fn a_change_is_reported_and_nothing_else_without_a_word() {
    let mut bench = Bench::up(config());
    bench.reports.clear();
    bench.tick(ms(500));
    bench.tick(ms(600));
    assert!(bench.reports.is_empty(), "{:?}", bench.reports);
    bench.tick(v());
    let stopping = ServiceState::Stopping { overdue: false };
    assert_eq!(bench.service(), &stopping);
    bench.tick(dead_by());
    let overdue = ServiceState::Stopping { overdue: true };
    assert_eq!(bench.service(), &overdue);
    bench.ended(Command::Stop, Outcome::Overran, dead_by());
    bench.stop_counts(ms(2000));
    assert_eq!(bench.service(), &ServiceState::Down);
    assert_eq!(bench.reports.len(), 3, "{:?}", bench.reports);
}

#[test]
fn a_guard_without_an_agent_reports_nothing() {
    let mut bench = Bench::up(config());
    bench.leave_agent(ms(100));
    bench.reports.clear();
    bench.tick(v());
    bench.stop_counts(ms(1500));
    assert!(bench.reports.is_empty(), "{:?}", bench.reports);
}

#[test]
fn the_first_report_says_what_the_note_of_the_guard_before_tells() {
    for (down, service) in [(true, ServiceState::Down), (false, ServiceState::Unknown)] {
        let bench = Bench::new(config(), down);
        assert_eq!(bench.service(), &service);
        assert_eq!(bench.guard.is_down(), down);
    }
}

#[test]
fn a_report_says_what_became_of_the_starts_of_the_term() {
    let mut bench = Bench::granted(config());
    assert_eq!(start_of(&bench), StartState::NotRun);
    bench.tell(ToGuard::AssertStart, ms(1));
    assert_eq!(start_of(&bench), StartState::FirstRuns);
    bench.spawned(Command::Start, ms(2));
    bench.ended(Command::Start, failed(), ms(3));
    assert_eq!(start_of(&bench), StartState::Ended, "failed or not");
    bench.tell(ToGuard::AssertStart, ms(500));
    assert_eq!(start_of(&bench), StartState::Ended, "it is not the first");
    bench.renew(ms(2000), ms(510));
    assert_eq!(start_of(&bench), StartState::Ended, "the same term");
}

#[test]
fn the_starts_of_each_term_are_told_apart() {
    let mut bench = Bench::up(config());
    assert_eq!(start_of(&bench), StartState::Ended);
    let next = Grant { context: context(11), ..grant(timing(), v()) };
    bench.tell(ToGuard::Grant(next), ms(100));
    assert_eq!(start_of(&bench), StartState::NotRun);
}

/// So that whoever asks for the status of an active agent sees that its service is not there.
#[test]
fn a_failing_start_is_reported_until_one_succeeds_and_once_for_each_way_to_fail() {
    let mut bench = Bench::granted(config());
    let mut failure = |outcome: Outcome, now| {
        bench.tell(ToGuard::AssertStart, ms(now));
        bench.spawned(Command::Start, ms(now));
        bench.reports.clear();
        bench.ended(Command::Start, outcome, ms(now + 1));
        let failure = |report: &GuardReport| report.start_failure.clone();
        bench.reports.iter().map(failure).collect::<Vec<_>>()
    };
    let exit = || Some("exit status 1".to_owned());
    let killed = || Some("it did not end in time and was killed".to_owned());
    assert_eq!(failure(failed(), 10), [exit()]);
    assert_eq!(failure(failed(), 20), []);
    assert_eq!(failure(Outcome::Overran, 30), [killed()]);
    assert_eq!(failure(Outcome::Succeeded, 40), [None]);
    assert_eq!(failure(Outcome::Succeeded, 50), []);
    let forged = Outcome::Failed(format!("\u{1b}[2J{}", "x".repeat(300)));
    let shown = format!("?[2J{}...", "x".repeat(251));
    assert_eq!(failure(forged, 60), [Some(shown)]);
    // The next one has not ended yet.
    bench.reports.clear();
    bench.tell(ToGuard::AssertStart, ms(70));
    assert!(bench.reports.iter().all(|report| report.start_failure.is_some()));
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
fn a_start_of_the_guard_before_is_no_start_of_this_term() {
    let mut bench = Bench::of(Guard::new(config(), false, true, ms(0)));
    bench.handle(GuardInput::Received(ToGuard::Hello(config())), ms(0));
    bench.renew(v(), ms(1));
    bench.ended(Command::Start, Outcome::Overran, ms(10));
    assert_eq!(start_of(&bench), StartState::NotRun);
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

/// The agent says it again until it hears that the service is down.
#[test]
fn a_stop_order_that_crosses_the_report_down_is_answered_and_not_carried_out_again() {
    let mut bench = Bench::up(config());
    let order = |by| ToGuard::Stop(order(by, Stake::Lock));
    assert_eq!(ran(&bench.tell(order(ms(900)), ms(100))), Some(Command::Stop));
    bench.tell(order(ms(900)), ms(200));
    bench.stop_counts(ms(210));
    bench.reports.clear();
    assert_eq!(bench.tell(order(ms(900)), ms(220)), []);
    assert_eq!(bench.service(), &ServiceState::Down);
    assert_eq!(ran(&bench.tell(order(ms(901)), ms(230))), Some(Command::Stop), "another one");
}

#[test]
fn how_start_ended_is_said_once_for_a_row_of_equal_ends() {
    let mut bench = Bench::granted(config());
    let mut said = |outcome: Outcome, now| {
        bench.tell(ToGuard::AssertStart, ms(now));
        bench.spawned(Command::Start, ms(now));
        bench.ended(Command::Start, outcome, ms(now + 1));
        std::mem::take(&mut bench.said)
    };
    let start_failed = [ServiceReport::StartFailed(failed())];
    let started = [ServiceReport::Started(Revision(8))];
    assert_eq!(said(failed(), 10), start_failed);
    assert_eq!(said(failed(), 20), []);
    assert_eq!(said(Outcome::Succeeded, 30), started);
    assert_eq!(said(Outcome::Succeeded, 40), []);
    assert_eq!(said(failed(), 50), start_failed);
}
