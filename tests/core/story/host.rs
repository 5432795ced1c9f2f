//! The guard's side of a host: the guard, its commands, the connection to the agent.

use std::collections::VecDeque;
use std::time::Duration;

use putex::core::command::{Command, LockContext, Outcome};
use putex::core::event::{Effect, Event, GuardEvent, PauseEntry};
use putex::core::guard::{Guard, GuardAction, GuardInput};
use putex::core::protocol::{Grant, GuardConfig, GuardReport, ServiceState, ToGuard};
use putex::core::pump::Config;
use putex::core::record::{Incarnation, Revision};
use putex::core::time::Instant;
use putex::core::timing::Timing;

use super::parse::{GuardHappening, Said, Words};
use super::{guard_event, ms, show};

/// Timeout of the watchdog device.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(1);

/// The guard of a host, and all that an agent's death leaves there.
pub(super) struct Host {
    /// Events that the pump has not received yet.
    pub(super) events: VecDeque<Event>,
    guard: Option<Guard>,
    frozen: bool,
    /// Inputs that the guard has not received yet.
    inputs: VecDeque<GuardInput>,
    link: u64,
    reported: Option<GuardReport>,
    /// The story tells what a guard says, and there is none.
    guard_is_told: bool,
    /// Messages sent on this link, and the last grant.
    said: u64,
    grant: Option<Grant>,
    running: [bool; Command::ALL.len()],
    /// The note of the guard for the guard after it: the service is down.
    noted_down: bool,
    slow_spawn: bool,
    device_fails: bool,
    busy_cgroup: bool,
    /// The story tells when the pause is read; else it is read at once, and there is none.
    pause_is_told: bool,
    timing: Timing,
}

impl Host {
    pub(super) fn new(words: &Words<'_>, config: &Config) -> Result<Host, String> {
        let guard = words.get("guard");
        let mut host = Host {
            events: VecDeque::new(),
            guard: None,
            frozen: false,
            inputs: VecDeque::new(),
            link: 0,
            reported: None,
            guard_is_told: guard == Some("told"),
            said: 0,
            grant: None,
            running: [false; Command::ALL.len()],
            noted_down: guard == Some("down"),
            slow_spawn: words.get("spawn") == Some("slow"),
            device_fails: words.get("device-fails").is_some(),
            busy_cgroup: words.get("cgroup") == Some("busy"),
            pause_is_told: words.get("pause") == Some("told"),
            timing: config.timing,
        };
        let valid_until = words.number("inherited", 0)?;
        if valid_until > 0 {
            let start_runs = words.get("start") == Some("runs");
            host.inherit(config.guard(), ms(valid_until), start_runs)?;
        }
        Ok(host)
    }

    /// The guard of the previous instance goes on with its service.
    fn inherit(
        &mut self,
        config: GuardConfig,
        valid_until: Instant,
        start_runs: bool,
    ) -> Result<(), String> {
        let grant = predecessors_grant(Incarnation(u128::from(b'b')), valid_until, self.timing);
        self.guard = Some(Guard::new(config, true, false, None, ms(0)));
        let messages = [ToGuard::Hello(config), ToGuard::Grant(grant), ToGuard::AssertStart];
        self.inputs.extend(messages.map(GuardInput::Received));
        let mut unseen = Vec::new();
        while self.turn(ms(0), &mut unseen)? {}
        if !start_runs {
            self.end(Command::Start, Outcome::Succeeded)?;
        }
        self.disconnect();
        while self.turn(ms(0), &mut unseen)? {}
        self.events.clear();
        Ok(())
    }

    pub(super) fn is_told(&self) -> bool {
        self.guard_is_told
    }

    /// The agent has died.
    pub(super) fn disconnect(&mut self) {
        self.events.clear();
        self.running[Command::Check as usize] = false;
        self.inputs.push_back(GuardInput::Disconnected);
    }

    /// Does what the pump wants.
    pub(super) fn perform(&mut self, effect: Effect, now: Instant) -> Result<(), String> {
        match effect {
            Effect::ConnectGuard(link, messages) => {
                self.link = link;
                self.said = 0;
                self.reported = None;
                if self.guard.is_none() && !self.guard_is_told {
                    let start_alive = self.running[Command::Start as usize];
                    let [ToGuard::Hello(config), ..] = messages[..] else {
                        return Err("a guard is not told first how it is set up".to_owned());
                    };
                    self.guard = Some(Guard::new(config, self.noted_down, start_alive, None, now));
                }
                for message in messages {
                    self.receive(message);
                }
            }
            Effect::TellGuard(message) => self.receive(message),
            Effect::KillGuard => {
                self.die();
                let of_guard = |event: &Event| matches!(event, Event::Guard(..));
                self.events.retain(|event| !of_guard(event));
            }
            Effect::RunCheck(run) => self.begin(run.command)?,
            Effect::ReadPause if self.pause_is_told => {}
            Effect::ReadPause => self.events.push_back(Event::PauseRead(PauseEntry::default())),
            Effect::Read { .. }
            | Effect::Write { .. }
            | Effect::RequestSwitchover { .. }
            | Effect::KillCgroup
            | Effect::ExtendCheck(_)
            | Effect::KillCheck
            | Effect::Report(_)
            | Effect::Exit(_) => {}
        }
        Ok(())
    }

    fn receive(&mut self, message: ToGuard) {
        self.said += u64::from(message.is_counted());
        if let ToGuard::Grant(grant) = &message {
            self.grant = Some(grant.clone());
        }
        if self.guard.is_some() {
            self.inputs.push_back(GuardInput::Received(message));
        }
    }

    /// The guard is killed. The guard after it kills what it was running, and is told the end
    /// of start alone.
    fn die(&mut self) {
        self.guard = None;
        self.frozen = false;
        self.inputs.clear();
        self.reported = None;
        self.running[Command::Stop as usize] = false;
        self.running[Command::LastResort as usize] = false;
    }

    /// Something happens to the guard or its commands.
    pub(super) fn happen(&mut self, happening: GuardHappening) -> Result<(), String> {
        match happening {
            GuardHappening::Lost(why) => {
                self.die();
                self.events.push_back(guard_event(self.link, GuardEvent::Lost(why)));
            }
            GuardHappening::Freezes => self.frozen = true,
            GuardHappening::Thaws => self.frozen = false,
            GuardHappening::Spawned(command) => self.inputs.push_back(GuardInput::Spawned(command)),
            GuardHappening::Ended(command, outcome) => self.end(command, outcome)?,
            GuardHappening::CgroupEmptied => self.inputs.push_back(GuardInput::CgroupEmptied),
            GuardHappening::Says(said) if self.guard_is_told => self.say(&said),
            GuardHappening::Says(_) => return Err("there is a guard, which says that".to_owned()),
        }
        Ok(())
    }

    fn say(&mut self, said: &Said) {
        let grant = match said.grant {
            Some((holder, until)) => Some(predecessors_grant(holder, until, self.timing)),
            None => self.grant.clone(),
        };
        let service = match (&said.start, grant) {
            (Some(start), Some(grant)) => ServiceState::Up(grant, *start),
            (Some(_) | None, _) => said.service.clone(),
        };
        let report = GuardReport {
            heard: said.heard.unwrap_or(self.said),
            service,
            unfit: said.unfit.clone(),
            start_failure: None,
            start_waits: false,
        };
        let link = said.link.unwrap_or(self.link);
        if link == self.link {
            self.reported = Some(report.clone());
        }
        self.events.push_back(guard_event(link, GuardEvent::Report(report)));
    }

    fn begin(&mut self, command: Command) -> Result<(), String> {
        if std::mem::replace(&mut self.running[command as usize], true) {
            return Err(format!("two instances of {}", command.name()));
        }
        Ok(())
    }

    fn end(&mut self, command: Command, outcome: Outcome) -> Result<(), String> {
        if !std::mem::take(&mut self.running[command as usize]) {
            return Err(format!("{} does not run", command.name()));
        }
        if command == Command::Check {
            self.events.push_back(Event::CheckEnded(outcome));
        } else {
            self.inputs.push_back(GuardInput::Ended(command, outcome));
        }
        Ok(())
    }

    /// Lets the guard take in one thing, or look at its deadlines; returns whether anything
    /// came of it.
    pub(super) fn turn(&mut self, now: Instant, lines: &mut Vec<String>) -> Result<bool, String> {
        let Some(guard) = self.guard.as_mut().filter(|_| !self.frozen) else {
            return Ok(false);
        };
        let input = self.inputs.pop_front();
        let ticks = input.is_none();
        let actions = guard.handle(input.unwrap_or(GuardInput::Tick), now);
        let moved = !(ticks && actions.is_empty());
        self.noted_down |= guard.is_down();
        let context = guard.context();
        for action in actions {
            if !self.is_silent(&action) {
                lines.push(show::action(&action, &context));
            }
            self.act(action)?;
        }
        Ok(moved)
    }

    /// Returns whether an action is not worth a line: what follows from it does at once.
    fn is_silent(&self, action: &GuardAction) -> bool {
        match action {
            GuardAction::Report(_) => true,
            GuardAction::Release(_) => !self.slow_spawn,
            GuardAction::EmptyCgroup => !self.busy_cgroup,
            GuardAction::Run(..)
            | GuardAction::Kill(_)
            | GuardAction::KillCgroup
            | GuardAction::Log(_)
            | GuardAction::TryDevice
            | GuardAction::OpenDevice
            | GuardAction::KickDevice
            | GuardAction::CloseDevice
            | GuardAction::Exit => false,
        }
    }

    /// The device answers before the guard takes in anything else.
    fn act(&mut self, action: GuardAction) -> Result<(), String> {
        match action {
            GuardAction::Run(command, _) => {
                self.begin(command)?;
                self.noted_down &= command != Command::Start;
                if !self.slow_spawn {
                    self.inputs.push_back(GuardInput::Spawned(command));
                }
            }
            GuardAction::EmptyCgroup if !self.busy_cgroup => {
                self.inputs.push_back(GuardInput::CgroupEmptied);
            }
            GuardAction::Report(report) => {
                self.reported = Some(report.clone());
                self.events.push_back(guard_event(self.link, GuardEvent::Report(report)));
            }
            GuardAction::TryDevice | GuardAction::OpenDevice if self.device_fails => {
                let why = "/dev/watchdog: another process has it open".to_owned();
                self.inputs.push_front(GuardInput::DeviceFailed(why));
            }
            GuardAction::TryDevice | GuardAction::CloseDevice => {
                self.inputs.push_front(GuardInput::DeviceClosed);
            }
            GuardAction::OpenDevice => {
                self.inputs.push_front(GuardInput::DeviceOpened(DEVICE_TIMEOUT));
            }
            GuardAction::Exit => self.die(),
            GuardAction::Release(_)
            | GuardAction::Kill(_)
            | GuardAction::KillCgroup
            | GuardAction::EmptyCgroup
            | GuardAction::Log(_)
            | GuardAction::KickDevice => {}
        }
        Ok(())
    }

    /// Returns whether the last report answers all messages and says that the service is down.
    pub(super) fn agent_knows_that_it_is_down(&self) -> bool {
        let known = self.reported.as_ref().filter(|report| report.heard == self.said);
        known.is_some_and(|report| report.service == ServiceState::Down)
    }

    /// Returns whether the last report answers all messages and says that the service may run.
    pub(super) fn agent_knows_that_it_may_run(&self) -> bool {
        let known = self.reported.as_ref().filter(|report| report.heard == self.said);
        known.is_some_and(|report| matches!(report.service, ServiceState::Up(..)))
    }

    pub(super) fn summary(&self, now: Instant) -> Result<String, String> {
        let Some(guard) = &self.guard else {
            let absent = if self.guard_is_told { "" } else { "; no guard" };
            return Ok(absent.to_owned());
        };
        let state = self.reported.as_ref().map_or("silent", show::service);
        let frozen = if self.frozen { " (frozen)" } else { "" };
        let Some(next) = guard.deadline() else {
            return Ok(format!("; guard {state}{frozen}"));
        };
        if next <= now && !self.frozen {
            return Err(format!("the guard's next deadline, {next:?}, is not in the future"));
        }
        Ok(format!("; guard {state}{frozen}, next {}", show::at(next)))
    }
}

/// The grant of the previous instance.
fn predecessors_grant(holder: Incarnation, valid_until: Instant, timing: Timing) -> Grant {
    Grant {
        holder,
        context: LockContext {
            term: Some(Revision(8)),
            epoch: Some("e1".to_owned()),
            previous: Some("beta".to_owned()),
            seat: None,
        },
        valid_until,
        dead_by: valid_until.after(timing.stop_budget()),
    }
}
