//! The shipped pump as an automaton.

use std::rc::Rc;
use std::time::Duration;

use putex::core::AgentState;
use putex::core::command::LockContext;
use putex::core::event::{BucketInfo, Effect, Event, GuardEvent, Opened, PauseEntry, Written};
use putex::core::priority::Priority;
use putex::core::protocol::{
    DeviceUse, Grant as CoreGrant, GuardReport, ServiceState, Stake, StartState, ToGuard,
};
use putex::core::pump::{AgentId, Config, Pump, bounce};
use putex::core::record::{BucketId, Incarnation, KeyState, KeyValue, Lease, Record, Revision};
use putex::core::report;
use putex::core::timing::Timing;

use super::automaton::{Automaton, BEGIN, Node, Step, at, from};
use super::canon::{self, Frame, TERM_AGO_MAX, canon};
use super::messages::{
    BACK_MAX, Grant, Instance, Message, OLD, OLD_TERM, PumpInput, PumpOutput, RecordKind, Report,
    Service, Start, StoredRecord, TERM_BACK_MAX,
};

pub(crate) type Pumps = Automaton<(Pump, Instance), PumpInput, PumpOutput>;

/// Returns how an agent is set up.
pub(crate) fn config(timing: Timing) -> Config {
    Config {
        timing,
        check: false,
        start_grace: Duration::ZERO,
        check_failures: 1,
        priority: Priority::FIRST,
        failback: None,
        seats: 1,
        observes: false,
        agents: None,
        last_resort: true,
        device: DeviceUse::None,
    }
}

impl Pumps {
    /// Returns the pump of an instance that begins.
    pub(crate) fn begin(&mut self, instance: Instance) -> u32 {
        let id = AgentId {
            token: instance.name().to_owned(),
            incarnation: Incarnation(instance.0.into()),
            host: instance.name().to_owned(),
            boot: BOOT.to_owned(),
        };
        let pump = Pump::new(config(self.timing), id, None, at(BEGIN, 0));
        let frame = self.begin_frame();
        self.keep_pump(pump, frame, instance).0
    }

    /// Returns the state of the agent in a state of the pump.
    pub(crate) fn state(&self, id: u32) -> AgentState {
        self.get(id).machine.0.state()
    }

    /// Returns the number of a state, and what its numbers count from.
    fn keep_pump(&mut self, pump: Pump, frame: Frame, instance: Instance) -> (u32, Frame) {
        let text = format!("{pump:?}");
        let high_water = canon::first_number(&text, "high_water: Revision(");
        let frame = Frame {
            base: high_water.filter(|high| *high > 0).unwrap_or(frame.base),
            nonce: canon::last_number(&text, "nonce: ").unwrap_or(0),
            messages: canon::first_number(&text, "sent_count: ").unwrap_or(0),
            link: canon::first_number(&text, "number: ").unwrap_or(0),
            ..frame
        };
        let node = Node {
            deadline: pump.deadline().map(|deadline| from(frame, deadline.at)),
            machine: Rc::new((pump, instance)),
            frame,
        };
        let (number, merged) = self.keep(node, &text);
        if let Some(merged) = merged
            && self.merged.is_multiple_of(COMPARED)
        {
            let before = self.get(number);
            let same = future(before) == future(&merged);
            assert!(same, "taken for the same:\n{:?}\n{text}", before.machine.0);
        }
        (number, frame)
    }

    pub(crate) fn step(&mut self, id: u32, input: PumpInput) -> Rc<Step<PumpOutput>> {
        if let Some(step) = self.steps.get(&(id, input)) {
            return Rc::clone(step);
        }
        let node = self.get(id);
        let mut frame = node.frame;
        let (pump, instance) = (*node.machine).clone();
        let (after, wanted) = if let PumpInput::Wait(wait) = input {
            frame.now += i64::from(wait);
            (pump, Vec::new())
        } else {
            let event = self.event(node, input);
            let (mut after, mut effects) = bounce(pump, &event, at(frame.now, 0));
            if effects.contains(&Effect::ReadPause) {
                let more;
                let pause = Event::PauseRead(PauseEntry::default());
                (after, more) = bounce(after, &pause, at(frame.now, 0));
                effects.extend(more);
            }
            (after, outputs(&effects, frame))
        };
        let (new, now_in) = self.keep_pump(after, frame, instance);
        let grown = now_in.base - frame.base;
        let attempts = now_in.nonce - frame.nonce;
        let step = Rc::new(Step {
            id: new,
            grown: i16::try_from(grown).expect("a few revisions"),
            counted: u8::try_from(attempts).expect("a few attempts"),
            wanted,
        });
        self.steps.insert((id, input), Rc::clone(&step));
        step
    }

    fn event(&self, node: &Node<(Pump, Instance)>, input: PumpInput) -> Event {
        let link = node.frame.link;
        let key_state = |at, record| self.key_state(node, at, record);
        match input {
            PumpInput::Wait(_) | PumpInput::Tick => Event::Tick,
            PumpInput::Opened { at, record } => {
                let key_state = key_state(at, record);
                let bucket = BucketInfo {
                    id: BucketId { epoch: EPOCH.to_owned(), created: "before".to_owned() },
                    last: key_state.revision,
                    age: Some(Duration::from_secs(3600)),
                    may_be_lost: false,
                    replicas: 1,
                    remarks: Vec::new(),
                    retires: Ok(()),
                };
                let pause = PauseEntry::default();
                Event::Opened(Opened { bucket, key_states: vec![key_state], pause })
            }
            PumpInput::Closed => Event::Closed("cut off".to_owned()),
            PumpInput::Read { at, record } => Event::Read(Ok(key_state(at, record))),
            PumpInput::ReadFailed => Event::Read(Err("no answer".to_owned())),
            PumpInput::Stored(at) => Event::Written(Written::Stored(revision(node.frame, at))),
            PumpInput::Moved(at) => Event::Written(Written::Moved(Some(revision(node.frame, at)))),
            PumpInput::Unknown => Event::Written(Written::Unknown("no answer".to_owned())),
            PumpInput::Report(told) => {
                Event::Guard(link, GuardEvent::Report(report(node.frame, told)))
            }
            PumpInput::GuardLost => Event::Guard(link, GuardEvent::Lost("it has ended".to_owned())),
            PumpInput::Shutdown => Event::Shutdown("SIGTERM"),
        }
    }

    /// Writes out what the bucket shows, as this pump would have it.
    fn key_state(&self, node: &Node<(Pump, Instance)>, at: i16, record: StoredRecord) -> KeyState {
        let timing = self.timing;
        let revision = revision(node.frame, at);
        let own_host = record.by.host() == node.machine.1.host();
        let term = record.term_ago.map(|ago| match ago {
            // Nobody looks at another's.
            ago if ago == OLD || !own_host => Revision(canon::OLD_TERM),
            ago => Revision(revision.0 - u64::from(ago)),
        });
        let own = record.by == node.machine.1;
        let lease = Lease {
            incarnation: Incarnation(record.by.0.into()),
            // Nobody looks at another's.
            nonce: if own {
                let ago = u64::from(record.nonce_ago);
                node.frame.nonce.wrapping_sub(ago)
            } else {
                canon::OTHERS_NONCE
            },
            host: record.by.name().to_owned(),
            boot: BOOT.to_owned(),
            renewal: timing.renewal(),
            failures: timing.failures(),
            confirmations: timing.confirmations(),
            grace: timing.confirmation(),
            term,
            state: record.kind.state(),
            priority: Priority::FIRST,
            released_to: None,
        };
        let token = match record.kind {
            RecordKind::Taking | RecordKind::Active => record.by.name().to_owned(),
            RecordKind::Released => String::new(),
        };
        let record = Record { token, lease: Some(lease) };
        KeyState { revision, value: KeyValue::Record(record) }
    }
}

/// The name of every host's boot: hosts differ by their own names.
const BOOT: &str = "boot";

/// The bucket's epoch.
pub(crate) const EPOCH: &str = "e";

/// Of so many states that are taken for one found before, one is compared with it.
const COMPARED: u64 = 256;

/// Returns what a pump does at some later instants, and what it is then. What is past by half of
/// [`Frame::past`] is past alike: of two instants before that, which were taken for the same, one
/// that follows from them is later, by the stop budget at most.
fn future(node: &Node<(Pump, Instance)>) -> Vec<(u128, Vec<PumpOutput>)> {
    let waits = [0, 100_000, 200_000, 800_000, 1_600_000, 3_000_000];
    let events = [Event::Tick, Event::Shutdown("SIGTERM")];
    let mut told = Vec::new();
    for (wait, event) in waits.into_iter().flat_map(|wait| {
        let events = events.iter();
        events.map(move |event| (wait, event))
    }) {
        let now = node.frame.now + wait;
        let (after, effects) = bounce(node.machine.0.clone(), event, at(now, 0));
        let frame = Frame { now, past: node.frame.past / 2, ..node.frame };
        let text = format!("{after:?}");
        let after = Frame {
            nonce: canon::last_number(&text, "nonce: ").unwrap_or(0),
            messages: canon::first_number(&text, "sent_count: ").unwrap_or(0),
            link: canon::first_number(&text, "number: ").unwrap_or(0),
            ..frame
        };
        told.push((canon(&text, after), outputs(&effects, frame)));
    }
    told
}

fn revision(frame: Frame, at: i16) -> Revision {
    let number = frame.base.cast_signed() + i64::from(at);
    Revision(u64::try_from(number).expect("an automaton begins far above 0"))
}

fn report(frame: Frame, report: Report) -> GuardReport {
    let service = match report.service {
        Service::Unknown => ServiceState::Unknown,
        Service::Down => ServiceState::Down,
        Service::Up(grant, start) => {
            let start = match start {
                Start::NotRun => StartState::NotRun,
                Start::FirstRuns => StartState::FirstRuns,
                Start::Ended => StartState::Ended,
            };
            ServiceState::Up(core_grant(frame, grant), start)
        }
        Service::Stopping { overdue } => ServiceState::Stopping { overdue },
    };
    GuardReport {
        heard: frame.messages - u64::from(!report.complete),
        service,
        unfit: None,
        start_failure: None,
        start_waits: false,
    }
}

/// Writes a grant out as an automaton would have it.
pub(crate) fn core_grant(frame: Frame, grant: Grant) -> CoreGrant {
    let term = match grant.term {
        OLD_TERM => Revision(canon::OLD_TERM),
        at => revision(frame, at),
    };
    CoreGrant {
        holder: Incarnation(grant.holder.0.into()),
        context: LockContext {
            term: Some(term),
            epoch: Some(EPOCH.to_owned()),
            previous: None,
            seat: None,
        },
        valid_until: at(frame.now, grant.valid_until),
        dead_by: at(frame.now, grant.dead_by),
    }
}

/// Returns a grant in small numbers.
pub(crate) fn grant(frame: Frame, grant: &CoreGrant) -> Grant {
    let holder = u8::try_from(grant.holder.0).expect("an instance of this world");
    Grant {
        holder: Instance(holder),
        term: grant.context.term.map_or(OLD_TERM, |term| relative(term, frame.base, TERM_BACK_MAX)),
        valid_until: from(frame, grant.valid_until),
        dead_by: from(frame, grant.dead_by),
    }
}

/// Returns a revision counted from the highest that is known; all revisions that are too far back
/// are alike.
fn relative(revision: Revision, base: u64, back_max: i16) -> i16 {
    let from_base = revision.0.cast_signed() - base.cast_signed();
    i16::try_from(from_base.max(i64::from(-back_max))).expect("a few revisions")
}

fn outputs(effects: &[Effect], frame: Frame) -> Vec<PumpOutput> {
    let mut out = Vec::new();
    for effect in effects {
        output(effect, frame, &mut out);
    }
    out
}

fn output(effect: &Effect, frame: Frame, out: &mut Vec<PumpOutput>) {
    let base = frame.base;
    out.push(match effect {
        Effect::Read { deadline, .. } => PumpOutput::Read { deadline: from(frame, *deadline) },
        Effect::Write { expected, record, deadline, .. } => {
            let lease = record.lease.as_ref().expect("an agent's record");
            let term_ago = lease.term.map(|term| {
                let ago = expected.0 + 1 - term.0;
                let known = u8::try_from(ago).ok();
                known.filter(|ago| i64::from(*ago) <= TERM_AGO_MAX).unwrap_or(OLD)
            });
            PumpOutput::Write {
                expected: relative(*expected, base, BACK_MAX),
                kind: RecordKind::of(lease.state),
                term_ago,
                deadline: from(frame, *deadline),
            }
        }
        Effect::ConnectGuard(_, messages) => {
            let count = u8::try_from(messages.len()).expect("a few messages");
            out.push(PumpOutput::ConnectGuard(count));
            out.extend(messages.iter().map(|said| PumpOutput::Tell(message(said, frame))));
            return;
        }
        Effect::TellGuard(said) => PumpOutput::Tell(message(said, frame)),
        Effect::KillGuard => PumpOutput::KillGuard,
        Effect::KillCgroup => PumpOutput::KillCgroup,
        Effect::Exit(_) => PumpOutput::Exit,
        Effect::Report(report::Report::RolledBack(_)) => PumpOutput::SayRollback,
        Effect::Report(_) => return,
        // The pause is read at once, and there is none.
        Effect::ReadPause => return,
        Effect::RequestSwitchover { .. } => unreachable!("no lock goes back"),
        Effect::RunCheck(_) | Effect::ExtendCheck(_) | Effect::KillCheck => {
            unreachable!("there is no health check")
        }
    });
}

/// Under which lock stop is run is for the command alone, and left out.
fn message(message: &ToGuard, frame: Frame) -> Message {
    match message {
        ToGuard::Hello(_) => Message::Hello,
        ToGuard::Grant(told) => Message::Grant(grant(frame, told)),
        ToGuard::AssertStart => Message::AssertStart,
        ToGuard::AskReport => Message::AskReport,
        ToGuard::Stop(order) => Message::Stop {
            dead_by: from(frame, order.dead_by),
            lock_at_stake: order.stake == Stake::Lock,
        },
    }
}
