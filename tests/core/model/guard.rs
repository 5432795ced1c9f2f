//! The shipped guard as an automaton.

use std::rc::Rc;

use putex::core::command::{LockContext, Outcome};
use putex::core::guard::{Guard, GuardAction, GuardInput as CoreInput};
use putex::core::protocol::{ServiceState, Stake, StartState, StopOrder, ToGuard};

use super::automaton::{Automaton, FIRST, Node, Step, at, from};
use super::canon::{self, Frame};
use super::messages::{End, Grant, GuardInput, GuardOutput, Job, Message, Service, Start};
use super::pump::{config, core_grant, grant};

/// A guard.
pub(crate) struct GuardState {
    pub(crate) guard: Guard,
    /// The guard keeps a term that its next input counts from.
    term: bool,
    /// The guard stops the service in time, whatever becomes of its agent.
    in_charge: bool,
}

pub(crate) type Guards = Automaton<GuardState, GuardInput, GuardOutput>;

impl Guards {
    /// Returns a guard that was told nothing yet.
    pub(crate) fn begin(&mut self, down: bool, start_alive: bool) -> u32 {
        let frame = self.begin_frame();
        let guard =
            Guard::new(config(self.timing).guard(), down, start_alive, None, at(frame.now, 0));
        self.keep_guard(guard, frame).0
    }

    /// Returns the number of a state, and what its numbers count from.
    fn keep_guard(&mut self, guard: Guard, frame: Frame) -> (u32, Frame) {
        let mut text = format!("{guard:?}");
        let received = canon::first_number(&text, "heard: Some(");
        if received.is_none()
            && let Some(at) = text.find("reported: ")
        {
            // The first message of the next agent is answered all the same.
            text.truncate(at);
        }
        let base = match canon::highest_revision(&text) {
            0 => FIRST,
            highest => highest,
        };
        let messages = received.unwrap_or(0);
        let frame = Frame { base, messages, ..frame };
        let state = GuardState {
            term: canon::highest_revision(&text) > 0,
            in_charge: text.contains(" state: Up {") || text.contains(" state: Stopping("),
            guard,
        };
        let node = Node {
            deadline: state.guard.deadline().map(|deadline| from(frame, deadline)),
            machine: Rc::new(state),
            frame,
        };
        (self.keep(node, &text).0, frame)
    }

    /// Returns whether a guard keeps a term that its next input counts from.
    pub(crate) fn keeps_term(&self, id: u32) -> bool {
        self.get(id).machine.term
    }

    /// Returns whether a guard stops the service in time, whatever becomes of its agent.
    pub(crate) fn is_in_charge(&self, id: u32) -> bool {
        self.get(id).machine.in_charge
    }

    /// Returns whether a guard knows that the service is down.
    pub(crate) fn is_down(&self, id: u32) -> bool {
        self.get(id).machine.guard.is_down()
    }

    /// Returns the name of a state of the guard.
    pub(crate) fn state(&self, id: u32) -> String {
        let text = format!("{:?}", self.get(id).machine.guard);
        let after = text.split_once(" state: ").map_or("", |(_, after)| after);
        let name = after.split([',', '(', ' ']).next().unwrap_or_default();
        name.to_lowercase()
    }

    pub(crate) fn step(&mut self, id: u32, input: GuardInput) -> Rc<Step<GuardOutput>> {
        if let Some(step) = self.steps.get(&(id, input)) {
            return Rc::clone(step);
        }
        let node = self.get(id);
        let mut frame = node.frame;
        let mut guard = node.machine.guard.clone();
        let actions = match self.input(input, frame) {
            Some(input) => guard.handle(input, at(frame.now, 0)),
            None => Vec::new(),
        };
        if let GuardInput::Wait(wait) = input {
            frame.now += i64::from(wait);
        }
        let context = guard.context();
        let (new, after) = self.keep_guard(guard, frame);
        let frame = Frame { base: after.base, ..frame };
        let outputs = actions.iter();
        let outputs = outputs.filter_map(|action| output(action, frame, &context, after.messages));
        let grown = after.base.cast_signed() - self.get(id).frame.base.cast_signed();
        let step = Rc::new(Step {
            id: new,
            grown: i16::try_from(grown).expect("a few revisions"),
            counted: u8::try_from(after.messages.saturating_sub(frame.messages))
                .expect("a few messages"),
            wanted: outputs.collect(),
        });
        self.steps.insert((id, input), Rc::clone(&step));
        step
    }

    fn input(&self, input: GuardInput, frame: Frame) -> Option<CoreInput> {
        Some(match input {
            GuardInput::Wait(_) => return None,
            GuardInput::Tick => CoreInput::Tick,
            GuardInput::Message(Message::Gone) => CoreInput::Disconnected,
            GuardInput::Message(Message::Hello) => {
                CoreInput::Received(ToGuard::Hello(config(self.timing).guard()))
            }
            GuardInput::Message(Message::Grant(told)) => {
                CoreInput::Received(ToGuard::Grant(core_grant(frame, told)))
            }
            GuardInput::Message(Message::AssertStart) => CoreInput::Received(ToGuard::AssertStart),
            GuardInput::Message(Message::AskReport) => CoreInput::Received(ToGuard::AskReport),
            GuardInput::Message(Message::Stop { dead_by, lock_at_stake }) => {
                CoreInput::Received(ToGuard::Stop(StopOrder {
                    dead_by: at(frame.now, dead_by),
                    stake: if lock_at_stake { Stake::Lock } else { Stake::Assurance },
                    context: LockContext::default(),
                }))
            }
            GuardInput::Spawned(job) => CoreInput::Spawned(job.command()),
            GuardInput::Ended(job, end) => {
                let outcome = match end {
                    End::Well => Outcome::Succeeded,
                    End::Failed => Outcome::Failed("exit status 1".to_owned()),
                    End::Overran => Outcome::Overran,
                };
                CoreInput::Ended(job.command(), outcome)
            }
            GuardInput::CgroupEmptied => CoreInput::CgroupEmptied,
        })
    }
}

fn job(command: putex::core::command::Command) -> Job {
    Job::of(command).expect("no guard runs a health check")
}

fn output(
    action: &GuardAction,
    frame: Frame,
    context: &LockContext,
    received: u64,
) -> Option<GuardOutput> {
    Some(match action {
        GuardAction::Run(command, _) => GuardOutput::Run {
            job: job(*command),
            term: context.term.map(|term| {
                let from_base = term.0.cast_signed() - frame.base.cast_signed();
                i16::try_from(from_base).expect("a few revisions")
            }),
        },
        GuardAction::Release(command) => GuardOutput::Release(job(*command)),
        GuardAction::Kill(command) => GuardOutput::Kill(job(*command)),
        GuardAction::KillCgroup => GuardOutput::KillCgroup,
        GuardAction::EmptyCgroup => GuardOutput::EmptyCgroup,
        GuardAction::Log(_) => return None,
        GuardAction::Report(report) => {
            let uncounted = received.cast_signed() - report.heard.cast_signed();
            GuardOutput::Report {
                uncounted: i8::try_from(uncounted).expect("a few messages"),
                service: service(&report.service, frame),
            }
        }
        GuardAction::Exit => GuardOutput::Exit,
        GuardAction::TryDevice
        | GuardAction::OpenDevice
        | GuardAction::KickDevice
        | GuardAction::CloseDevice => unreachable!("there is no device"),
    })
}

fn service(report: &ServiceState, frame: Frame) -> Service {
    match report {
        ServiceState::Unknown => Service::Unknown,
        ServiceState::Down => Service::Down,
        ServiceState::Up(told, start) => {
            let start = match start {
                StartState::NotRun => Start::NotRun,
                StartState::FirstRuns => Start::FirstRuns,
                StartState::Ended => Start::Ended,
            };
            let told: Grant = grant(frame, told);
            Service::Up(told, start)
        }
        ServiceState::Stopping { overdue } => Service::Stopping { overdue: *overdue },
    }
}
