//! Actions of agent and guard, in the words of a story.

use std::fmt::Write as _;

use log::Level;
use putex::core::command::{LockContext, Run};
use putex::core::event::{Effect, Ending, Switchover};
use putex::core::guard::GuardAction;
use putex::core::protocol::{GuardReport, ServiceState, Stake, StartState, ToGuard};
use putex::core::record::Record;
use putex::core::seat::Seat;
use putex::core::time::Instant;

/// Shows an instant in milliseconds since boot.
pub(super) fn at(at: Instant) -> String {
    let micros = at.since_boot().as_micros();
    if micros.is_multiple_of(1000) {
        return format!("{}", micros / 1000);
    }
    format!("{}.{:03}", micros / 1000, micros % 1000)
}

/// Shows which seat, where there are several.
fn of(seat: Seat) -> String {
    match seat {
        Seat::FIRST => String::new(),
        Seat(number) => format!(" seat {number}"),
    }
}

/// Shows what the pump wants.
pub(super) fn effect(effect: &Effect) -> String {
    match effect {
        Effect::Read { seat, deadline } => format!("read{} by {}", of(*seat), at(*deadline)),
        Effect::Write { seat, expected, record, deadline } => {
            let (of, what) = (of(*seat), show_record(record));
            format!("write{of} if {expected}: {what}, by {}", at(*deadline))
        }
        Effect::ReadPause => "read the pause".to_owned(),
        Effect::RequestSwitchover(Switchover { seat, term, from, lasts, .. }) => {
            let (of, lasts) = (of(*seat), lasts.as_millis());
            format!("request the lock{of} of {from}, term {term}, for {lasts}")
        }
        Effect::ConnectGuard(link, messages) => {
            let messages: Vec<_> = messages.iter().map(message).collect();
            format!("start guard {link}: {}", messages.join("; "))
        }
        Effect::TellGuard(said) => format!("tell guard: {}", message(said)),
        Effect::KillGuard => "kill the guard".to_owned(),
        Effect::KillCgroup => "kill the control group".to_owned(),
        Effect::RunCheck(run) => show_check(run),
        Effect::ExtendCheck(until) => format!("extend healthcheck to {}", at(*until)),
        Effect::KillCheck => "kill healthcheck".to_owned(),
        Effect::Report(report) => say(report.level(), &report.to_string()),
        Effect::Exit(Ending::Rejected(error)) => {
            format!("exit Rejected({:?}({:?}))", error.kind, error.text)
        }
        Effect::Exit(ending) => format!("exit {ending:?}"),
    }
}

/// Shows what the guard does under a lock.
pub(super) fn action(action: &GuardAction, context: &LockContext) -> String {
    let text = match action {
        GuardAction::Run(command, until) => {
            let lock = show_lock(context);
            format!("run {} by {}{lock}", command.name(), at(*until))
        }
        GuardAction::Release(command) => {
            format!("release {}", command.name())
        }
        GuardAction::Kill(command) => format!("kill {}", command.name()),
        GuardAction::KillCgroup => "kill the control group".to_owned(),
        GuardAction::EmptyCgroup => "empty the control group".to_owned(),
        GuardAction::Log(report) => say(report.level(), &report.to_string()),
        GuardAction::Report(report) => format!("report {}", service(report)),
        GuardAction::TryDevice => "try the device".to_owned(),
        GuardAction::OpenDevice => "open the device".to_owned(),
        GuardAction::KickDevice => "kick the device".to_owned(),
        GuardAction::CloseDevice => "close the device".to_owned(),
        GuardAction::Exit => "leave".to_owned(),
    };
    format!("guard: {text}")
}

/// Names what a guard says of the service.
pub(super) fn service(report: &GuardReport) -> &'static str {
    match report.service {
        _ if report.unfit.is_some() => "unfit",
        ServiceState::Unknown => "unknown",
        ServiceState::Down => "down",
        ServiceState::Up(_, StartState::NotRun) => "up-not-run",
        ServiceState::Up(_, StartState::FirstRuns) => "up-first-start",
        ServiceState::Up(_, StartState::Ended) => "up",
        ServiceState::Stopping { overdue: false } => "stopping",
        ServiceState::Stopping { overdue: true } => "overdue",
    }
}

fn message(message: &ToGuard) -> String {
    match message {
        ToGuard::Hello(_) => "hello".to_owned(),
        ToGuard::Grant(grant) => {
            let (until, dead_by) = (at(grant.valid_until), at(grant.dead_by));
            let lock = show_lock(&grant.context);
            format!("grant until {until}, dead by {dead_by}{lock}")
        }
        ToGuard::AssertStart => "assert start".to_owned(),
        ToGuard::AskReport => "ask report".to_owned(),
        ToGuard::Stop(order) => {
            let stake = match order.stake {
                Stake::Lock => ", lock at stake",
                Stake::Assurance => "",
            };
            format!("stop by {}{stake}", at(order.dead_by))
        }
    }
}

fn say(level: Level, text: &str) -> String {
    let level = match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug | Level::Trace => "debug",
    };
    format!("{level}: {text}")
}

fn show_check(run: &Run) -> String {
    let (role, until) = (run.role, at(run.deadline));
    let starting = if run.starting { " starting" } else { "" };
    let lock = show_lock(&run.context);
    format!("run {} {role} by {until}{starting}{lock}", run.command.name())
}

fn show_lock(context: &LockContext) -> String {
    let mut text = String::new();
    if let Some(term) = context.term {
        write!(text, " term={term}").unwrap();
    }
    if let Some(previous) = &context.previous {
        write!(text, " previous={previous}").unwrap();
    }
    if let Some(seat) = context.seat {
        write!(text, " seat={seat}").unwrap();
    }
    text
}

fn show_record(record: &Record) -> String {
    let lease = record.lease.as_ref().expect("the pump writes leases only");
    let token = if record.token.is_empty() { "(blank)" } else { &record.token };
    let term = lease.term.map_or("new".to_owned(), |term| term.to_string());
    let (state, grace) = (lease.state, lease.grace.as_millis());
    let state = format!("{state:?}").to_lowercase();
    let to = lease.released_to.as_ref().map_or(String::new(), |to| format!(" to={to}"));
    format!("{token} {state} term={term} nonce={} grace={grace}{to}", lease.nonce)
}
