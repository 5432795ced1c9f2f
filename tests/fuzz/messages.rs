//! Packets between agent and guard, and what the guard makes of them.

use std::time::Duration;

use super::assert_one_line;
use crate::command::Commands;
use crate::core::command::{Command, Outcome};
use crate::core::guard::{Guard, GuardAction, GuardInput};
use crate::core::protocol::{DeviceUse, Grant, GuardConfig, GuardReport, ServiceState, ToGuard};
use crate::core::time::Instant;
use crate::core::timing::Timing;
use crate::guard::protocol::{AgentPacket, GuardPacket, PACKET_MAX, Settings, decode, encode};

/// How much longer a packet may be when it is sent again: with the names of its fields, which
/// may be left out where it is read.
const GROWTH_MAX: usize = 4;

/// Most actions that one input leads to.
const ACTIONS_MAX: usize = 16;

/// Packets, each with its length before it in two bytes: one that is understood
/// means the same when it is sent again, and nothing when it is cut short. A guard
/// takes each message in, whatever numbers are in it; a packet of one byte is what else
/// happens to the guard. The guard reports `Down` only after a stop that counts, runs start
/// only under a grant that is valid, and never waits for ever while the service may run.
pub fn messages(data: &[u8]) -> bool {
    // The state that the previous guard has left.
    let mut guard = match data.len() % 3 {
        0 => FuzzedGuard::new(true, false),
        1 => FuzzedGuard::new(false, true),
        _ => FuzzedGuard::new(false, false),
    };
    let mut rest = data;
    let mut known = false;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (packet, after) = after.split_at(length);
        rest = after;
        if guard.left {
            break;
        }
        if let [what] = packet {
            guard.happens(*what);
            continue;
        }
        known |= report(packet);
        if let Some(message) = understood(packet) {
            known = true;
            guard.received(message);
        }
    }
    known
}

/// A command, as the code that runs it sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Process {
    #[default]
    None,
    /// The command was asked for and is being spawned.
    Asked,
    /// The command waits for its release.
    Waiting,
    /// The command runs.
    Released,
    /// The command was killed while it waited.
    KilledUnbegun,
    /// The command was killed while it ran.
    Killed,
}

impl Process {
    /// Returns whether the command may still do something.
    fn has_begun(self) -> bool {
        matches!(self, Process::Released | Process::Killed)
    }
}

/// A guard with all that it acts upon.
struct FuzzedGuard {
    guard: Guard,
    now: Instant,
    connected: bool,
    heard: u64,
    /// The messages that the last report answers.
    answered: u64,
    start: Process,
    stop: Process,
    last_resort: Process,
    /// A start had begun and not ended when the stop that runs was asked for.
    beside_start: bool,
    /// A stop that counts has succeeded, and nothing was run or allowed since.
    stopped: bool,
    /// The control group is being emptied.
    emptying: bool,
    /// The service is known to be down.
    down: bool,
    /// The service may run, or is being stopped.
    busy: bool,
    /// The grant that was reported last.
    grant: Option<Grant>,
    /// The control group was killed since the service was granted or stopped.
    killed: bool,
    device: DeviceUse,
    device_open: bool,
    left: bool,
}

impl FuzzedGuard {
    fn new(down: bool, start_alive: bool) -> FuzzedGuard {
        let timing = Timing::new(Duration::from_millis(500), 3, 1, 10_000).expect("it is safe");
        let config = GuardConfig { timing, last_resort: true, device: DeviceUse::None };
        let mut guard = FuzzedGuard {
            guard: Guard::new(
                config,
                down,
                start_alive,
                None,
                Instant::from_boot(Duration::from_secs(1)),
            ),
            now: Instant::from_boot(Duration::from_secs(1)),
            connected: true,
            heard: 0,
            answered: 0,
            start: if start_alive { Process::Killed } else { Process::None },
            stop: Process::None,
            last_resort: Process::None,
            beside_start: false,
            stopped: false,
            emptying: false,
            down,
            busy: false,
            grant: None,
            killed: false,
            device: DeviceUse::None,
            device_open: false,
            left: false,
        };
        guard.received(ToGuard::Hello(config));
        guard
    }

    fn received(&mut self, message: ToGuard) {
        if !self.connected {
            // Another agent has connected: its first message is always this.
            self.connected = true;
            self.heard = 0;
            self.received(ToGuard::Hello(self.guard.config()));
        }
        self.heard += u64::from(message.is_counted());
        if let ToGuard::Hello(config) = &message {
            self.device = config.device;
        }
        self.handle(GuardInput::Received(message));
        assert_eq!(self.answered, self.heard, "a message without an answer");
        self.tick(Duration::from_millis(1));
    }

    /// Something happens to the guard, if it can.
    fn happens(&mut self, what: u8) {
        let (how, more) = (what % 16, u64::from(what / 16));
        match how {
            0..=3 => self.tick(Duration::from_millis(1 << (2 * how + 1)) * (more as u32 + 1)),
            4 => {
                let deadline = self.guard.deadline().unwrap_or(self.now);
                self.tick(deadline.since(self.now));
            }
            5 if self.connected => {
                self.connected = false;
                self.handle(GuardInput::Disconnected);
                self.tick(Duration::ZERO);
            }
            6 => self.spawned(Command::Start, more),
            7 => self.spawned(Command::Stop, more),
            8 => self.spawned(Command::LastResort, more),
            9 => self.ended(Command::Start, more % 2 == 0),
            10..=12 => self.ended(Command::Stop, how != 10),
            13 => self.ended(Command::LastResort, more % 2 == 0),
            14 | 15 if self.emptying => {
                self.emptying = false;
                if self.stopped {
                    (self.down, self.busy) = (true, false);
                }
                self.handle(GuardInput::CgroupEmptied);
                self.tick(Duration::ZERO);
            }
            _ => {}
        }
    }

    fn process(&mut self, command: Command) -> &mut Process {
        match command {
            Command::Check | Command::OnChange | Command::Start => &mut self.start,
            Command::Stop => &mut self.stop,
            Command::LastResort => &mut self.last_resort,
        }
    }

    /// The guard did not run for a while, and takes this in before it looks at the time.
    fn spawned(&mut self, command: Command, late: u64) {
        self.now = self.now.after(Duration::from_millis(200 * late));
        if *self.process(command) != Process::Asked {
            return;
        }
        *self.process(command) = Process::Waiting;
        self.handle(GuardInput::Spawned(command));
        let after = *self.process(command);
        assert!(
            matches!(after, Process::Released | Process::KilledUnbegun),
            "{command:?} is neither released nor killed"
        );
        self.tick(Duration::ZERO);
    }

    fn ended(&mut self, command: Command, success: bool) {
        let outcome = match *self.process(command) {
            Process::None | Process::Waiting => return,
            Process::Asked => Outcome::Failed("it could not be run".to_owned()),
            Process::Killed | Process::KilledUnbegun => Outcome::Overran,
            Process::Released if success => Outcome::Succeeded,
            Process::Released => Outcome::Failed("exit status 1".to_owned()),
        };
        *self.process(command) = Process::None;
        let counts = command == Command::Stop && outcome == Outcome::Succeeded;
        self.stopped |= counts && !self.beside_start;
        self.handle(GuardInput::Ended(command, outcome));
        self.tick(Duration::ZERO);
    }

    fn tick(&mut self, after: Duration) {
        self.now = self.now.after(after);
        self.handle(GuardInput::Tick);
        if let Some(grant) = &self.grant {
            let over = self.connected && self.now >= grant.valid_until;
            assert!(!over, "the grant has run out and the service may run");
        }
        let waits = self.guard.deadline().is_some()
            || self.emptying
            || [self.start, self.stop, self.last_resort] != [Process::None; 3];
        assert!(self.left || !self.busy || waits, "it waits for ever");
    }

    fn handle(&mut self, input: GuardInput) -> Vec<GuardAction> {
        let actions = self.guard.handle(input, self.now);
        assert!(actions.len() <= ACTIONS_MAX, "{actions:?}");
        for action in &actions {
            assert!(!self.left, "{action:?} after the end");
            self.perform(action);
        }
        actions
    }

    fn perform(&mut self, action: &GuardAction) {
        match action {
            GuardAction::Run(command, _) => self.ordered(*command),
            GuardAction::Release(command) => {
                let process = self.process(*command);
                assert_eq!(*process, Process::Waiting, "{command:?}");
                *process = Process::Released;
                if *command == Command::Start {
                    self.start_allowed();
                }
            }
            // A command that is being spawned cannot be killed yet.
            GuardAction::Kill(command) => {
                let process = self.process(*command);
                match process {
                    Process::Waiting => *process = Process::KilledUnbegun,
                    Process::Released => *process = Process::Killed,
                    Process::None | Process::Asked => {}
                    Process::KilledUnbegun | Process::Killed => {}
                }
            }
            GuardAction::KillCgroup => self.killed = true,
            GuardAction::EmptyCgroup => self.emptying = true,
            GuardAction::Log(report) => assert_one_line(&report.to_string()),
            GuardAction::Report(report) => self.reported(report),
            GuardAction::TryDevice => {
                assert!(self.down, "a trial stops the device");
                self.handle(self.device_answer(GuardInput::DeviceClosed));
            }
            GuardAction::OpenDevice => {
                assert_ne!(self.device, DeviceUse::None);
                assert!(!self.device_open);
                let opened = GuardInput::DeviceOpened(Duration::from_secs(1));
                let answer = self.device_answer(opened.clone());
                self.device_open = answer == opened;
                self.handle(answer);
            }
            GuardAction::KickDevice => assert!(self.device_open),
            GuardAction::CloseDevice => {
                assert!(self.down, "the device is stopped and the service is not down");
                self.device_open = false;
                self.handle(GuardInput::DeviceClosed);
            }
            GuardAction::Exit => {
                assert!(!self.busy && !self.connected, "it leaves its service alone");
                self.left = true;
            }
        }
    }

    /// A device fails now and then.
    fn device_answer(&self, answer: GuardInput) -> GuardInput {
        if self.heard.is_multiple_of(4) {
            GuardInput::DeviceFailed("it is gone".to_owned())
        } else {
            answer
        }
    }

    fn ordered(&mut self, command: Command) {
        assert_eq!(*self.process(command), Process::None, "two of {command:?}");
        *self.process(command) = Process::Asked;
        match command {
            Command::Check | Command::OnChange => panic!("the agent runs it"),
            Command::Start => self.start_allowed(),
            Command::Stop => {
                self.killed &= self.busy;
                self.busy = true;
                self.down = false;
                self.stopped = false;
                self.beside_start = self.start.has_begun();
            }
            Command::LastResort => {
                assert!(self.busy, "the last resort, and nothing is to be stopped");
                self.stopped = false;
            }
        }
    }

    /// Start is run, or released: only under a grant.
    fn start_allowed(&mut self) {
        if let Some(grant) = &self.grant {
            assert!(self.now < grant.valid_until, "start after the end of its grant");
        }
        assert!(self.busy && !self.down, "start without a grant");
        self.stopped = false;
    }

    fn reported(&mut self, report: &GuardReport) {
        self.answered = report.heard;
        assert!(self.connected, "a report to nobody");
        assert_eq!(report.heard, self.heard);
        let packet = GuardPacket::Report(1, report.clone());
        let text = serde_json::to_vec(&packet).unwrap_or_default();
        assert_eq!(serde_json::from_slice(&text).ok(), Some(packet));
        let known = self.grant.take();
        match &report.service {
            ServiceState::Unknown => assert!(!self.busy && !self.down),
            ServiceState::Down => {
                assert!(self.down, "down, and no stop has counted");
                self.busy = false;
            }
            ServiceState::Up(grant, _) => {
                // The report tells how long a service may run that may be up.
                let may_be_up = known.is_some() || !self.busy && !self.down;
                let valid = self.now < grant.valid_until;
                assert!(may_be_up || valid, "it ran out before it came");
                (self.busy, self.down, self.stopped) = (true, false, false);
                self.killed = false;
                self.grant = Some(grant.clone());
            }
            ServiceState::Stopping { overdue } => {
                assert!(!*overdue || self.killed, "overdue, and nothing was killed");
                (self.busy, self.down) = (true, false);
            }
        }
    }
}

/// Reads a packet as a message of an agent.
fn understood(packet: &[u8]) -> Option<ToGuard> {
    let decoded = decode(packet)?;
    let (message, settings) = match &decoded {
        AgentPacket::Hello(settings) => {
            checked(settings);
            (ToGuard::Hello(settings.config()), (**settings).clone())
        }
        AgentPacket::Message(message) => (message.clone(), some_settings()),
        AgentPacket::OtherVersion => return None,
    };
    let plain = encode(&message, &settings, settings.clock);
    assert!(plain.len() <= packet.len() * GROWTH_MAX, "it grew");
    assert_eq!(decode(&plain).as_ref(), Some(&decoded));
    for length in 0..plain.len() {
        assert_eq!(decode(&plain[..length]), None, "{message:?} at {length}");
    }
    Some(message)
}

fn some_settings() -> Settings {
    Settings {
        dir: "/".to_owned(),
        timing: Timing::new(Duration::from_millis(500), 3, 1, 10_000).expect("it is safe"),
        commands: Commands {
            check: None,
            start: "true".to_owned(),
            stop: "true".to_owned(),
            last_resort: None,
            environment: None,
            on_change: None,
            key: "web".to_owned(),
            token: "alpha".to_owned(),
        },
        device: None,
        level: 3,
        syslog: false,
        clock: Instant::from_boot(Duration::from_secs(7)),
    }
}

fn checked(settings: &Settings) {
    let t = settings.timing;
    let again = Timing::new(t.renewal(), t.failures(), t.confirmations(), t.drift_ppm());
    assert_eq!(again.ok(), Some(t));
    let commands = &settings.commands;
    let texts = [&settings.dir, &commands.key, &commands.token, &commands.stop];
    assert!(texts.iter().map(|text| text.len()).sum::<usize>() <= PACKET_MAX);
}

/// Reads a packet of a guard; returns whether it is one.
fn report(packet: &[u8]) -> bool {
    let Ok(decoded) = serde_json::from_slice::<GuardPacket>(packet) else {
        return false;
    };
    let plain = serde_json::to_vec(&decoded).unwrap_or_default();
    assert!(plain.len() <= packet.len() * GROWTH_MAX, "it grew");
    assert_eq!(serde_json::from_slice(&plain).ok().as_ref(), Some(&decoded));
    for length in 0..plain.len() {
        let cut = serde_json::from_slice::<GuardPacket>(&plain[..length]);
        assert!(cut.is_err(), "{decoded:?} at {length}");
    }
    true
}
