//! The guard: a second process that owns the service and outlives the agent.
//!
//! ```text
//!            Grant               V over, or Stop             stop counts, and
//!                                                            control group empty
//!  Unknown, Down ------> Up ----------------------> Stopping ------------------> Down
//!         |                                            ^
//!         +------------------------ Stop --------------+
//! ```
//!
//! # Rules
//!
//! 1. Start is run only while a grant is valid. A grant that has run out is refused.
//! 2. The service is stopped when its grant runs out, whoever fell silent and why.
//! 3. `Down` is reported only after the [`StopProcedure`] is over.
//! 4. The guard leaves only when its agent has gone and the service is not to be stopped: in
//!    `Down`, or in `Unknown`, where it was told nothing.
//! 5. Words are taken in before a deadline counts: a guard that did not run for a while
//!    learns first that the agent renewed meanwhile. But what came too late starts nothing.
//! 6. The watchdog device: see `device`.

mod device;

use self::device::{Device, KickUntil};
use crate::core::command::{Command, LockContext, Outcome};
use crate::core::protocol::{
    Grant, GuardConfig, GuardReport, ServiceState, Stake, StartState, StopOrder, ToGuard,
};
use crate::core::record::Revision;
use crate::core::service_report::ServiceReport;
use crate::core::stop::{ServiceAction, StopProcedure};
use crate::core::time::Instant;
use crate::core::watchdog_timeout::wanted_timeout;

/// What happened to the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardInput {
    /// A deadline may have passed, and all that is known has been told.
    Tick,
    /// The agent has said something.
    Received(ToGuard),
    /// The agent has closed its end.
    Disconnected,
    /// The process of a command waits for [`ServiceAction::Release`].
    Spawned(Command),
    /// A command has ended.
    Ended(Command, Outcome),
    /// The control group of start is empty.
    CgroupEmptied,
    /// The watchdog device runs, with this timeout.
    DeviceOpened(std::time::Duration),
    /// The watchdog device can be used, and does not run.
    DeviceClosed,
    /// The watchdog device cannot be used; why.
    DeviceFailed(String),
}

/// What the guard does. Actions are performed in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardAction {
    /// Something is to be done to the service.
    Service(ServiceAction),
    /// Tell the agent, if there is one.
    Report(GuardReport),
    /// Open the watchdog device and close it again, so that it is known whether it can be
    /// used; answered at once with `DeviceClosed`, `DeviceOpened` or `DeviceFailed`.
    TryDevice,
    /// Open the watchdog device; answered at once with `DeviceOpened` or `DeviceFailed`.
    OpenDevice,
    /// Kick the watchdog device.
    KickDevice,
    /// Close the watchdog device so that it does not bite; answered at once with
    /// `DeviceClosed`, or not at all when the device cannot be stopped.
    CloseDevice,
    /// End. The last action there is.
    Leave,
}

/// What the guard knows of the service.
#[derive(Clone, Debug)]
enum State {
    /// The guard of an earlier instance may have left it running.
    Unknown,
    /// It is down.
    Down,
    /// It may run.
    Up(Grant),
    /// It is being stopped.
    Stopping(StopProcedure),
}

/// The process of start. One that waits for its release can do nothing to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartProcess {
    /// There is none.
    None,
    /// It is being spawned, or waits for its release.
    Waiting,
    /// The same, but it will not be released.
    Unwanted,
    /// It was released and has not ended, killed or not. Or it is one of the guard before.
    Alive,
}

/// All that the guard knows.
#[derive(Clone, Debug)]
pub struct Guard {
    config: GuardConfig,
    state: State,
    device: Device,
    /// Words received on this connection; `None` without an agent.
    heard: Option<u64>,
    /// The lock under which commands run.
    context: LockContext,
    start_process: StartProcess,
    /// The last resort of a stop procedure that is over has not ended.
    last_resort_alive: bool,
    /// The starts of this term.
    start: StartState,
    /// How the last start of this term ended.
    start_outcome: Option<Outcome>,
    /// What was reported last.
    reported: Option<GuardReport>,
    actions: Vec<GuardAction>,
}

impl Guard {
    /// Returns a guard that was told nothing yet. `down` tells that no guard before it has
    /// left a service running in this boot; `start_alive`, that a start of the guard before
    /// it was killed and has not ended.
    #[must_use]
    pub fn new(config: GuardConfig, down: bool, start_alive: bool) -> Guard {
        Guard {
            config,
            state: if down { State::Down } else { State::Unknown },
            device: Device::new(config.device),
            heard: None,
            context: LockContext::default(),
            start_process: if start_alive { StartProcess::Alive } else { StartProcess::None },
            last_resort_alive: false,
            start: StartState::NotRun,
            start_outcome: None,
            reported: None,
            actions: Vec::with_capacity(8),
        }
    }

    /// Returns a guard without an agent, which stops the service and leaves.
    #[must_use]
    pub fn finishing(config: GuardConfig, start_alive: bool, now: Instant) -> Guard {
        let mut guard = Guard::new(config, false, start_alive);
        let order = StopOrder {
            dead_by: now.after(config.timing.stop_budget()),
            stake: Stake::Assurance,
            context: LockContext::default(),
        };
        guard.stop(order, now);
        guard
    }

    /// Returns the lock under which commands run.
    #[must_use]
    pub fn context(&self) -> &LockContext {
        &self.context
    }

    /// Returns how the guard is set up.
    #[must_use]
    pub fn config(&self) -> GuardConfig {
        self.config
    }

    /// Returns whether the service is known to be down.
    #[must_use]
    pub fn is_down(&self) -> bool {
        matches!(self.state, State::Down)
    }

    /// Returns when the guard wants a [`GuardInput::Tick`] if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let step = match &self.state {
            State::Unknown | State::Down => None,
            State::Up(grant) => Some(grant.valid_until),
            State::Stopping(procedure) => procedure.deadline(),
        };
        let kick = self.device.kick_at(self.kick_until());
        step.into_iter().chain(kick).min()
    }

    /// Takes in what happened, and returns what to do about it. Deadlines are looked at on
    /// [`GuardInput::Tick`] alone, which follows all other inputs.
    #[must_use]
    pub fn handle(&mut self, input: GuardInput, now: Instant) -> Vec<GuardAction> {
        let answer = matches!(input, GuardInput::Received(_));
        match input {
            GuardInput::Tick => self.advance(now),
            GuardInput::Received(word) => self.receive(word, now),
            GuardInput::Disconnected => self.disconnected(now),
            GuardInput::Spawned(command) => self.spawned(command, now),
            GuardInput::Ended(Command::Start, outcome) => self.start_ended(&outcome, now),
            GuardInput::Ended(command, outcome) => {
                let start_alive = self.start_alive();
                self.last_resort_alive &= command != Command::LastResort;
                if let State::Stopping(procedure) = &mut self.state {
                    procedure.ended(command, &outcome, start_alive, now);
                }
            }
            GuardInput::CgroupEmptied => {
                if let State::Stopping(procedure) = &mut self.state {
                    procedure.cgroup_emptied(now);
                }
            }
            GuardInput::DeviceOpened(timeout) => self.device.opened(timeout, now),
            GuardInput::DeviceClosed => self.device.closed(),
            GuardInput::DeviceFailed(why) => self.device.failed(why),
        }
        self.follow_procedure();
        // What the device answers at once is reported with the rest.
        let device_answers = |action: &GuardAction| {
            matches!(action, GuardAction::TryDevice | GuardAction::OpenDevice)
        };
        if !self.actions.iter().any(device_answers) {
            self.report(answer);
        }
        std::mem::take(&mut self.actions)
    }

    fn advance(&mut self, now: Instant) {
        match &mut self.state {
            State::Up(grant) if now >= grant.valid_until => {
                let order = StopOrder {
                    dead_by: grant.dead_by,
                    stake: Stake::Lock,
                    context: grant.context.clone(),
                };
                self.say(ServiceReport::LockOver { agent_gone: self.heard.is_none() });
                self.stop(order, now);
            }
            State::Unknown | State::Down | State::Up(_) | State::Stopping(_) => {}
        }
        let start_alive = self.start_alive();
        if let State::Stopping(procedure) = &mut self.state {
            procedure.advance(start_alive, now);
        }
        self.kick_device_when_due(now);
        if self.heard.is_none() && matches!(self.state, State::Unknown | State::Down) {
            if self.is_down() && self.device.is_open() {
                self.act(GuardAction::CloseDevice);
            }
            self.act(GuardAction::Leave);
        }
    }

    fn receive(&mut self, word: ToGuard, now: Instant) {
        self.heard = Some(self.heard.unwrap_or(0) + 1);
        match word {
            ToGuard::Hello(config) => {
                self.config = config;
                self.device.configure(config.device);
                if self.is_down() && self.device.wants_trial() {
                    self.act(GuardAction::TryDevice);
                }
            }
            ToGuard::Grant(grant) => self.granted(grant, now),
            ToGuard::AssertStart => self.assert_start(now),
            ToGuard::Stop(order) => self.stop(order, now),
        }
    }

    fn granted(&mut self, grant: Grant, now: Instant) {
        match &self.state {
            State::Stopping(_) => return,
            // An agent that did not run for a while has no lock any more.
            State::Unknown | State::Down | State::Up(_) if now >= grant.valid_until => return,
            State::Up(before) if before.context.term == grant.context.term => {}
            State::Unknown | State::Down | State::Up(_) => {
                self.start = StartState::NotRun;
                self.start_outcome = None;
            }
        }
        self.context = grant.context.clone();
        self.state = State::Up(grant);
        let timeout = wanted_timeout(self.config.timing).unwrap_or_default();
        if self.device.wants_opening(self.kick_until(), timeout, now) {
            self.act(GuardAction::OpenDevice);
        } else {
            self.kick_device(now);
        }
    }

    fn assert_start(&mut self, now: Instant) {
        let State::Up(grant) = &self.state else {
            return;
        };
        let until = grant.valid_until;
        let none = self.start_process == StartProcess::None;
        if now < until && none && self.device.allows_start() {
            self.start_process = StartProcess::Waiting;
            if self.start == StartState::NotRun {
                self.start = StartState::FirstRuns;
            }
            self.act(GuardAction::Service(ServiceAction::Run(Command::Start, until)));
        }
    }

    fn stop(&mut self, order: StopOrder, now: Instant) {
        // When the service must be down is known to whom had its lock: a stop that runs is not
        // cut short for an agent that only makes sure.
        let known = match order.stake {
            Stake::Lock => Some(order.dead_by),
            Stake::Assurance => None,
        };
        let (stake, dead_by) = match &mut self.state {
            State::Stopping(procedure) => {
                return known.into_iter().for_each(|at| procedure.hasten(at));
            }
            State::Up(grant) => {
                let dead_by = known.map_or(grant.dead_by, |at| at.min(grant.dead_by));
                (Stake::Lock, dead_by)
            }
            State::Down => (Stake::Assurance, order.dead_by),
            State::Unknown => (order.stake, order.dead_by),
        };
        if !matches!(self.state, State::Up(_)) {
            self.context = order.context;
        }
        if self.start_process == StartProcess::Waiting {
            self.start_process = StartProcess::Unwanted;
        }
        self.state = State::Stopping(StopProcedure::begin(
            self.config.timing,
            stake,
            self.config.last_resort,
            dead_by,
            self.start_alive(),
            self.last_resort_alive,
            now,
        ));
        self.follow_procedure();
    }

    fn disconnected(&mut self, now: Instant) {
        self.heard = None;
        if let State::Up(grant) = &self.state
            && now < grant.valid_until
        {
            self.say(ServiceReport::AgentGone(grant.valid_until.since(now)));
        }
    }

    /// A start that was held up until its grant had run out is not begun.
    fn spawned(&mut self, command: Command, now: Instant) {
        let wanted = match (&mut self.state, command) {
            (State::Up(grant), Command::Start) => {
                now < grant.valid_until && self.start_process == StartProcess::Waiting
            }
            (State::Unknown | State::Down | State::Stopping(_), Command::Start) => false,
            (State::Stopping(procedure), command) => return procedure.spawned(command),
            (State::Unknown | State::Down | State::Up(_), _) => false,
        };
        if wanted {
            self.start_process = StartProcess::Alive;
            self.act(GuardAction::Service(ServiceAction::Release(command)));
        } else {
            self.act(GuardAction::Service(ServiceAction::Kill(command)));
        }
    }

    /// Whether a start may still bring the service up.
    fn start_alive(&self) -> bool {
        self.start_process == StartProcess::Alive
    }

    fn start_ended(&mut self, outcome: &Outcome, now: Instant) {
        self.start_process = StartProcess::None;
        match &mut self.state {
            State::Stopping(procedure) => procedure.start_ended(now),
            State::Unknown | State::Down => {}
            // One of an earlier term, or of the guard before, tells nothing of this term.
            State::Up(_) if self.start == StartState::NotRun => {}
            State::Up(_) => {
                self.start = StartState::Ended;
                self.say_start_outcome(outcome);
            }
        }
    }

    /// Says how start ended, once for a row of equal ends.
    fn say_start_outcome(&mut self, outcome: &Outcome) {
        if self.start_outcome.replace(outcome.clone()).as_ref() == Some(outcome) {
            return;
        }
        self.say(match outcome {
            Outcome::Succeeded => ServiceReport::Started(self.context.term.unwrap_or(Revision(0))),
            Outcome::Failed(_) | Outcome::Overran => ServiceReport::StartFailed(outcome.clone()),
        });
    }

    /// Does what the stop procedure wants, and notes its end.
    fn follow_procedure(&mut self) {
        let State::Stopping(procedure) = &mut self.state else {
            return;
        };
        let wanted = procedure.take_actions();
        self.actions.extend(wanted.into_iter().map(GuardAction::Service));
        if procedure.is_down() {
            self.last_resort_alive = procedure.last_resort_alive();
            self.state = State::Down;
            self.start = StartState::NotRun;
            if self.device.is_open() {
                self.act(GuardAction::CloseDevice);
            } else if self.device.wants_trial() {
                self.act(GuardAction::TryDevice);
            }
        }
    }

    fn report(&mut self, answer: bool) {
        let Some(heard) = self.heard else {
            return;
        };
        let service = match &self.state {
            State::Unknown => ServiceState::Unknown,
            State::Down => ServiceState::Down,
            State::Up(grant) => ServiceState::Up(grant.clone(), self.start),
            State::Stopping(procedure) => {
                ServiceState::Stopping { overdue: procedure.is_overdue() }
            }
        };
        let report = GuardReport { heard, service, unfit: self.device.unfit().map(str::to_owned) };
        if answer || self.reported.as_ref() != Some(&report) {
            self.reported = Some(report.clone());
            self.act(GuardAction::Report(report));
        }
    }

    fn kick_until(&self) -> KickUntil {
        match &self.state {
            State::Unknown => KickUntil::Never,
            State::Down => KickUntil::Always,
            State::Up(grant) => KickUntil::DeadBy(grant.dead_by),
            State::Stopping(procedure) => match procedure.stake() {
                Stake::Lock => KickUntil::DeadBy(procedure.dead_by()),
                Stake::Assurance => KickUntil::Always,
            },
        }
    }

    fn kick_device_when_due(&mut self, now: Instant) {
        let due = self.device.kick_at(self.kick_until());
        if due.is_some_and(|at| now >= at) {
            self.kick_device(now);
        }
    }

    fn kick_device(&mut self, now: Instant) {
        if self.device.kick(self.kick_until(), now) {
            self.act(GuardAction::KickDevice);
        }
    }

    fn say(&mut self, report: ServiceReport) {
        self.act(GuardAction::Service(ServiceAction::Report(report)));
    }

    fn act(&mut self, action: GuardAction) {
        self.actions.push(action);
    }
}
