//! A record of anybody, and what an agent that meets it wants of the world.

use std::time::Duration;

use super::{Noise, assert_one_line};
use crate::command::Commands;
use crate::core::command::{Command, Outcome, Run};
use crate::core::event::{
    BucketInfo, Effect, Event, GuardEvent, Opened, PauseEntry, StoreErrorKind, Written,
};
use crate::core::priority::Priority;
use crate::core::protocol::{
    DeviceUse, Grant, GuardReport, ServiceState, StartState, StopOrder, ToGuard,
};
use crate::core::pump::{AgentId, Config, Pump, bounce};
use crate::core::record::{BucketId, Incarnation, KeyState, KeyValue, Record, Revision};
use crate::core::time::Instant;
use crate::core::timing::Timing;
use crate::guard::protocol::{AgentPacket, PACKET_MAX, Settings, decode, encode};
use crate::nats::Headers;
use crate::store::record;

/// Longest value of a variable that a command is given here. The kernel's limit is
/// 128 KiB, and no name of anything is near it.
const VARIABLE_BYTES_MAX: usize = 1024;

/// A header block with the value behind it: an agent that finds it under its key, in
/// a bucket with the value as its epoch, wants nothing that cannot be done. Every
/// command can be run, the guard understands every message, every line is one line; and the
/// agent always has something to wait for.
pub fn holder(data: &[u8]) -> bool {
    let end = data.windows(4).position(|four| four == b"\r\n\r\n");
    let (block, value) = data.split_at(end.map_or(0, |at| at + 4));
    let headers = Headers::parse(block);
    let token = String::from_utf8_lossy(value).into_owned();
    let find = |name: &str| headers.iter().find(|field| field.0 == name).map(|field| field.1);
    let lease = record::from_headers(find);
    let ours = lease.is_some();
    let mut world = World::new(token, Noise::of(data));
    let record = Record { token: world.value.clone(), lease };
    world.key_state.value = KeyValue::Record(record);
    world.meet();
    ours
}

/// All that an agent sees, and what it waits for.
struct World {
    value: String,
    noise: Noise,
    key_state: KeyState,
    now: Instant,
    reading: bool,
    reading_pause: bool,
    writing: Option<Record>,
    checking: bool,
    settings: Settings,
    guard: GuardThere,
}

/// The guard at the other end.
struct GuardThere {
    number: u64,
    there: bool,
    heard: u64,
    service: ServiceState,
    /// The guard has a report to make.
    reports: bool,
}

impl World {
    fn new(value: String, noise: Noise) -> World {
        let timing = Timing::new(Duration::from_millis(500), 3, 1, 10_000).expect("it is safe");
        World {
            value,
            noise,
            key_state: KeyState { revision: Revision(5), value: KeyValue::Absent },
            now: Instant::from_boot(Duration::from_secs(100)),
            reading: false,
            reading_pause: false,
            writing: None,
            checking: false,
            settings: Settings {
                dir: "/run/putex/.agents/web".to_owned(),
                timing,
                commands: Commands {
                    check: None,
                    start: "true".to_owned(),
                    stop: "true".to_owned(),
                    last_resort: Some("true".to_owned()),
                    environment: None,
                    on_change: None,
                    key: "web".to_owned(),
                    token: "alpha".to_owned(),
                },
                device: None,
                level: 3,
                syslog: false,
                clock: Instant::from_boot(Duration::from_secs(7)),
            },
            guard: GuardThere {
                number: 0,
                there: false,
                heard: 0,
                service: ServiceState::Down,
                reports: false,
            },
        }
    }

    fn meet(&mut self) {
        let config = Config {
            timing: self.settings.timing,
            check: true,
            start_grace: Duration::ZERO,
            priority: Priority::FIRST,
            failback: None,
            seats: 1,
            observes: false,
            agents: None,
            check_failures: 1,
            last_resort: true,
            device: DeviceUse::None,
        };
        let me = AgentId {
            token: "alpha".to_owned(),
            incarnation: Incarnation(1),
            host: "node1".to_owned(),
            boot: "b1".to_owned(),
        };
        let mut pump = Pump::new(config, me, None, self.now);
        let mut event = Event::Tick;
        for step in 0..64 {
            let (next, effects) = bounce(pump, &event, self.now);
            pump = next;
            if !effects.into_iter().all(|effect| self.can(effect)) {
                return;
            }
            let waits = self.reading
                || self.reading_pause
                || self.writing.is_some()
                || self.checking
                || self.guard.reports;
            assert!(waits || pump.deadline().is_some(), "nothing to wait for");
            event = if step == 0 { Event::Opened(self.opened()) } else { self.next(&pump) };
        }
    }

    fn opened(&self) -> Opened {
        let epoch = self.value.clone();
        let id = BucketId { epoch, created: self.value.clone() };
        let (last, age) = (self.key_state.revision, Some(Duration::MAX));
        let bucket = BucketInfo {
            id,
            last,
            age,
            may_be_lost: false,
            replicas: 1,
            remarks: Vec::new(),
            retires: Ok(()),
        };
        let pause = PauseEntry::default();
        Opened { bucket, key_states: vec![self.key_state.clone()], pause }
    }

    /// Returns what happens next: mostly what is waited for.
    fn next(&mut self, pump: &Pump) -> Event {
        self.now = self.now.after(Duration::from_millis(1));
        if self.guard.reports && self.noise.below(16) > 0 {
            return self.report();
        }
        if self.reading {
            self.reading = false;
            return Event::Read(Ok(self.key_state.clone()));
        }
        if std::mem::take(&mut self.reading_pause) {
            return Event::PauseRead(PauseEntry::default());
        }
        if let Some(record) = self.writing.take() {
            return Event::Written(match self.noise.below(8) {
                0 => Written::Unknown("no answer".to_owned()),
                1 => Written::Denied(StoreErrorKind::Unreachable.error("no room")),
                2 => Written::Moved(None),
                _ => {
                    self.key_state.revision = Revision(self.key_state.revision.0 + 1);
                    self.key_state.value = KeyValue::Record(record);
                    Written::Stored(self.key_state.revision)
                }
            });
        }
        match self.noise.below(24) {
            0..=2 => return Event::Opened(self.opened()),
            3 if self.guard.there => {
                self.guard.there = false;
                self.guard.reports = false;
                let lost = GuardEvent::Lost("it has ended".to_owned());
                return Event::Guard(self.guard.number, lost);
            }
            4 => return Event::Shutdown("SIGTERM"),
            _ => {}
        }
        if self.checking {
            self.checking = false;
            let failed = self.noise.below(8) == 0;
            let failed = failed.then(|| Outcome::Failed("status 1".to_owned()));
            return Event::CheckEnded(failed.unwrap_or(Outcome::Succeeded));
        }
        let deadline = pump.deadline().map(|deadline| deadline.at);
        self.now = deadline.unwrap_or(self.now).max(self.now);
        Event::Tick
    }

    /// The guard reports, and a stop that it was running succeeds after the report.
    fn report(&mut self) -> Event {
        let guard = &mut self.guard;
        let report = GuardReport {
            heard: guard.heard,
            service: guard.service.clone(),
            unfit: None,
            start_failure: None,
            start_waits: false,
        };
        match guard.service.clone() {
            ServiceState::Stopping { .. } => guard.service = ServiceState::Down,
            ServiceState::Up(grant, StartState::FirstRuns) => {
                guard.service = ServiceState::Up(grant, StartState::Ended);
            }
            ServiceState::Up(_, StartState::NotRun | StartState::Ended)
            | ServiceState::Unknown
            | ServiceState::Down => guard.reports = false,
        }
        Event::Guard(guard.number, GuardEvent::Report(report))
    }

    /// Checks that an effect can be done, and notes it; false at the end.
    fn can(&mut self, effect: Effect) -> bool {
        match effect {
            Effect::RequestSwitchover { .. } => {}
            Effect::ReadPause => self.reading_pause = true,
            Effect::Read { .. } => self.reading = true,
            Effect::Write { record, .. } => self.writing = Some(record),
            Effect::RunCheck(run) => {
                assert_eq!(run.command, Command::Check);
                runs(&self.settings, &run, self.now);
                self.checking = true;
            }
            Effect::Report(report) => assert_one_line(&report.to_string()),
            Effect::ConnectGuard(number, messages) => {
                let first = messages.first();
                assert!(matches!(first, Some(ToGuard::Hello(_))), "{first:?}");
                self.guard.number = number;
                self.guard.there = true;
                self.guard.heard = 0;
                messages.into_iter().for_each(|message| self.tell(message));
            }
            Effect::TellGuard(message) => self.tell(message),
            Effect::KillGuard => {
                self.guard.there = false;
                self.guard.reports = false;
            }
            Effect::Exit(_) => return false,
            Effect::ExtendCheck(_) | Effect::KillCheck | Effect::KillCgroup => {}
        }
        true
    }

    /// Checks that the guard understands a message, and that the commands which it runs by it
    /// can be run.
    fn tell(&mut self, message: ToGuard) {
        assert!(self.guard.there, "{message:?} to nobody");
        let packet = encode(&message, &self.settings, self.settings.clock);
        assert!(packet.len() <= PACKET_MAX, "{} bytes", packet.len());
        let understood = decode(&packet);
        self.guard.heard += u64::from(message.is_counted());
        self.guard.reports = true;
        let expected = match &message {
            ToGuard::Hello(config) => {
                assert_eq!(*config, self.settings.config());
                AgentPacket::Hello(Box::new(self.settings.clone()))
            }
            ToGuard::Grant(_) | ToGuard::AssertStart | ToGuard::Stop(_) | ToGuard::AskReport => {
                AgentPacket::Message(message.clone())
            }
        };
        assert_eq!(understood, Some(expected));
        let (command, context) = match &message {
            ToGuard::Hello(_) | ToGuard::AssertStart | ToGuard::AskReport => return,
            ToGuard::Grant(Grant { context, .. }) => (Command::Start, context.clone()),
            ToGuard::Stop(StopOrder { context, .. }) => (Command::Stop, context.clone()),
        };
        let run = Run {
            command,
            role: crate::core::command::Role::Standby,
            deadline: self.now,
            starting: false,
            context,
        };
        runs(&self.settings, &run, self.now);
        match message {
            ToGuard::Grant(grant) => {
                self.guard.service = ServiceState::Up(grant, StartState::FirstRuns);
            }
            ToGuard::Stop(_) => self.guard.service = ServiceState::Stopping { overdue: false },
            ToGuard::Hello(_) | ToGuard::AssertStart | ToGuard::AskReport => {}
        }
    }
}

/// Checks that the kernel would take the environment of a command.
fn runs(settings: &Settings, run: &Run, now: Instant) {
    let commands = &settings.commands;
    let prepared = commands.prepare(run, None, now);
    for (name, value) in prepared.command.get_envs() {
        let Some(value) = value else { continue };
        let (name, value) = (name.display().to_string(), value.as_encoded_bytes());
        if !name.starts_with("PUTEX_") {
            continue;
        }
        // The library would put this text in the place of a value with a zero byte.
        assert!(value != b"<string-with-nul>", "{name} has a zero byte");
        assert!(value.len() <= VARIABLE_BYTES_MAX, "{name} has {} bytes", value.len());
    }
}
