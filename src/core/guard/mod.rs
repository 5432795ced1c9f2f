//! The guard: a second process that owns the service and outlives the agent.
//!
//! ```text
//!            Grant               V over, or Stop             stop counts, and
//!                                                            control group empty
//!  Unknown, Down ------> Up ----------------------> Stopping ------------------> Down
//!         |                                            ^
//!         +-- Stop; from Unknown also on its own ------+
//! ```
//!
//! # Rules
//!
//! 1. Start is run only while a grant is valid. A grant that has run out only tells until when a
//!    service that the previous guard has left may run.
//! 2. The service is stopped when its grant runs out, whatever has kept the agent from renewing it.
//! 3. `Down` is reported only after the stop procedure is over.
//! 4. A service that the previous guard has left is stopped when the agent has gone, or does not
//!    say in time what becomes of it. The guard leaves without its agent, and in `Down` only.
//! 5. Messages are handled before a deadline counts: a guard that did not run for a while
//!    learns first that the agent renewed meanwhile. But a grant that came too late starts nothing.
//! 6. The watchdog device: see `device`.

mod device;

use std::time::Duration;

use self::device::Device;
use crate::core::command::{Command, LockContext, Outcome};
use crate::core::protocol::{
    Grant, GuardConfig, GuardReport, ServiceState, Stake, StartState, StopOrder, ToGuard,
};
use crate::core::record::Revision;
pub use crate::core::service::GuardAction;
use crate::core::service::Processes;
use crate::core::service_report::ServiceReport;
use crate::core::stop::StopProcedure;
use crate::core::text::sanitize_field;
use crate::core::time::{Instant, Ms};
use crate::core::timing::{SLACK, Timing};
use crate::core::watchdog_timeout::wanted_timeout;

/// An input of the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardInput {
    /// A deadline may have passed. All inputs before this instant were handled.
    Tick,
    /// The agent has sent a message.
    Received(ToGuard),
    /// The agent has closed its end.
    Disconnected,
    /// The process of a command waits for [`GuardAction::Release`].
    Spawned(Command),
    /// A command has ended.
    Ended(Command, Outcome),
    /// The control group of start is empty.
    CgroupEmptied,
    /// The watchdog device runs, with this timeout.
    DeviceOpened(Duration),
    /// The watchdog device can be used, and does not run.
    DeviceClosed,
    /// The watchdog device cannot be used; why.
    DeviceFailed(String),
}

/// The guard's knowledge of the service.
#[derive(Clone, Debug)]
enum State {
    /// The previous guard may have left the service running.
    Unknown {
        /// The service is stopped at this instant unless a grant comes before.
        stop_at: Instant,
        /// The times of the previous guard, if known. Other hosts wait only as long as these say,
        /// even if R or C of this guard are larger.
        times: Option<Timing>,
    },
    /// The service is down.
    Down,
    /// The service may run.
    Up {
        grant: Grant,
        start: StartState,
        /// The outcome of the last start that has ended.
        outcome: Option<Outcome>,
    },
    /// The service is being stopped.
    Stopping(StopProcedure),
}

/// The state machine of the guard.
#[derive(Clone, Debug)]
pub struct Guard {
    config: GuardConfig,
    state: State,
    processes: Processes,
    device: Device,
    /// Messages received on this connection; `None` without an agent.
    heard: Option<u64>,
    /// The last report to the agent.
    reported: Option<GuardReport>,
}

impl Guard {
    /// Returns a guard without an agent. `down` tells that the previous guard has left the
    /// service down; `start_alive`, that a start of the previous guard was killed and has not
    /// ended; `times` are those under which it let the service run, if they are known. A service
    /// that is not known to be down is stopped at the first [`GuardInput::Tick`], unless an agent
    /// is there then.
    pub fn new(
        config: GuardConfig,
        down: bool,
        start_alive: bool,
        times: Option<Timing>,
        now: Instant,
    ) -> Guard {
        Guard {
            config,
            state: match down {
                true => State::Down,
                false => State::Unknown { stop_at: now, times },
            },
            processes: Processes::new(start_alive),
            device: Device::new(config.device),
            heard: None,
            reported: None,
        }
    }

    /// Returns the times of a service that may run, for the next guard.
    pub fn times(&self) -> Option<Timing> {
        matches!(self.state, State::Up { .. }).then_some(self.config.timing)
    }

    /// Returns the lock under which commands run.
    pub fn context(&self) -> LockContext {
        match &self.state {
            State::Unknown { .. } | State::Down => LockContext::default(),
            State::Up { grant, .. } => grant.context.clone(),
            State::Stopping(procedure) => procedure.order().context.clone(),
        }
    }

    /// Returns how the guard is set up.
    pub fn config(&self) -> GuardConfig {
        self.config
    }

    /// Returns whether the service is known to be down.
    pub fn is_down(&self) -> bool {
        matches!(self.state, State::Down)
    }

    /// Returns when the guard wants a [`GuardInput::Tick`] if nothing happens before.
    pub fn deadline(&self) -> Option<Instant> {
        let step = match &self.state {
            State::Unknown { stop_at, .. } => Some(*stop_at),
            State::Down => None,
            State::Up { grant, .. } => Some(grant.valid_until),
            State::Stopping(procedure) => procedure.deadline(),
        };
        let kick = self.device.kick_at(self.reset_before());
        step.into_iter().chain(kick).min()
    }

    /// Takes an input in, and returns the actions that follow. Deadlines are looked at on
    /// [`GuardInput::Tick`] alone, which follows all other inputs.
    #[must_use]
    pub fn handle(&mut self, input: GuardInput, now: Instant) -> Vec<GuardAction> {
        let answer = matches!(input, GuardInput::Received(_));
        match input {
            GuardInput::Tick => self.advance(now),
            GuardInput::Received(message) => self.receive(message, now),
            GuardInput::Disconnected => self.disconnected(now),
            GuardInput::Spawned(command) => self.spawned(command, now),
            GuardInput::Ended(command, outcome) => self.ended(command, &outcome, now),
            GuardInput::CgroupEmptied => self.cgroup_emptied(now),
            GuardInput::DeviceOpened(timeout) => {
                self.device.opened(timeout, self.device_timeout(), now);
            }
            GuardInput::DeviceClosed => self.device.closed(),
            GuardInput::DeviceFailed(why) => self.device.failed(why),
        }
        // The answer of the device, which comes at once, is reported with the rest.
        let device_answers = |action: &GuardAction| {
            matches!(action, GuardAction::TryDevice | GuardAction::OpenDevice)
        };
        if !self.processes.actions.iter().any(device_answers) {
            self.report(answer);
        }
        std::mem::take(&mut self.processes.actions)
    }

    fn advance(&mut self, now: Instant) {
        match &self.state {
            State::Unknown { stop_at, .. } if now >= *stop_at => {
                let dead_by = now.after(self.config.timing.stop_budget());
                let context = LockContext::default();
                self.stop(StopOrder { dead_by, stake: Stake::Assurance, context }, now);
            }
            State::Up { grant, .. } if now >= grant.valid_until => {
                let order = grant.stop_order();
                self.processes.report(match self.heard {
                    Some(_) => ServiceReport::LockOver,
                    None => ServiceReport::LockOverWithoutAgent,
                });
                self.stop(order, now);
            }
            State::Unknown { .. } | State::Down | State::Up { .. } | State::Stopping(_) => {}
        }
        if let State::Stopping(procedure) = &mut self.state {
            procedure.advance(&mut self.processes, now);
        }
        if self.device.kick_at(self.reset_before()).is_some_and(|at| now >= at) {
            self.kick_device(now);
        }
        if self.heard.is_none() && self.is_down() {
            if self.device.is_open() {
                self.processes.act(GuardAction::CloseDevice);
            }
            self.processes.act(GuardAction::Exit);
        }
    }

    fn receive(&mut self, message: ToGuard, now: Instant) {
        if message.is_counted() {
            self.heard = Some(self.heard.unwrap_or(0) + 1);
        }
        match message {
            ToGuard::Hello(config) => self.greeted(config, now),
            ToGuard::Grant(grant) => self.granted(grant, now),
            ToGuard::AssertStart => self.assert_start(now),
            ToGuard::Stop(order) => self.stop(order, now),
            ToGuard::AskReport => {}
        }
    }

    fn greeted(&mut self, config: GuardConfig, now: Instant) {
        if let State::Up { grant, .. } = &self.state
            && config.timing != self.config.timing
        {
            // Other agents wait for as long as the old times say, and not as the new ones do.
            let order = grant.stop_order();
            self.processes.report(ServiceReport::OtherTimes);
            self.stop(order, now);
        }
        self.config = config;
        if let State::Unknown { stop_at, times } = &mut self.state
            && *stop_at <= now
        {
            // An agent that has a lock sends its grant at once. A later agent gets no more time:
            // agents that come and go must not keep the service up.
            let renewal = config.timing.renewal();
            let renewal = times.map_or(renewal, |times| times.renewal().min(renewal));
            *stop_at = now.after(SLACK.max(renewal / 4));
        }
        self.device.configure(config.device);
        self.try_device();
    }

    /// Takes in a grant. One that has run out, as of an agent that was suspended, lets nothing
    /// start, but tells in `Unknown` until when a service that the previous guard has left may run.
    fn granted(&mut self, grant: Grant, now: Instant) {
        match &mut self.state {
            State::Stopping(_) => return,
            State::Down if now >= grant.valid_until => return,
            State::Up { grant: known, .. } if known.context.term == grant.context.term => {
                *known = grant;
            }
            State::Unknown { .. } | State::Down | State::Up { .. } => {
                self.device.retry();
                self.state = State::Up { grant, start: StartState::NotRun, outcome: None };
            }
        }
        if self.device.wants_opening(self.reset_before(), self.device_timeout(), now) {
            self.processes.act(GuardAction::OpenDevice);
        } else {
            self.kick_device(now);
        }
    }

    fn assert_start(&mut self, now: Instant) {
        let State::Up { grant, start, .. } = &mut self.state else {
            return;
        };
        let until = grant.valid_until;
        let alive = self.processes.is_alive(Command::Start);
        if now < until && !alive && self.device.allows_start() {
            if *start == StartState::NotRun {
                *start = StartState::FirstRuns;
            }
            self.processes.run(Command::Start, until);
        }
    }

    /// Stops the service, by the earliest `dead_by` that is known.
    fn stop(&mut self, order: StopOrder, now: Instant) {
        // Only an agent that had the lock knows when the service must be down. The order of an
        // agent without it does not cut a running stop short.
        let known = match order.stake {
            Stake::Lock => Some(order.dead_by),
            Stake::Assurance => None,
        };
        let order = match &mut self.state {
            State::Stopping(procedure) => {
                return known.into_iter().for_each(|at| procedure.hasten(at));
            }
            State::Up { grant, .. } => {
                let order = grant.stop_order();
                let dead_by = known.map_or(order.dead_by, |at| at.min(order.dead_by));
                StopOrder { dead_by, ..order }
            }
            State::Down => StopOrder { stake: Stake::Assurance, ..order },
            State::Unknown { times: Some(times), .. } if known.is_none() => {
                StopOrder { dead_by: order.dead_by.min(now.after(times.stop_budget())), ..order }
            }
            State::Unknown { .. } => order,
        };
        let procedure = StopProcedure::begin(self.config, order, &mut self.processes, now);
        self.state = State::Stopping(procedure);
    }

    fn disconnected(&mut self, now: Instant) {
        // The next agent knows of no report.
        self.reported = None;
        // A client that has sent nothing was no agent.
        if self.heard.take().is_some()
            && let State::Up { grant, .. } = &self.state
            && now < grant.valid_until
        {
            let left = Ms(grant.valid_until.since(now));
            self.processes.report(ServiceReport::AgentGone(left));
        }
    }

    /// A command was spawned. A start whose grant has run out meanwhile is not begun.
    fn spawned(&mut self, command: Command, now: Instant) {
        let over = matches!(&self.state, State::Up { grant, .. } if now >= grant.valid_until);
        self.processes.spawned(command, !over);
    }

    fn ended(&mut self, command: Command, outcome: &Outcome, now: Instant) {
        self.processes.ended(command);
        match &mut self.state {
            State::Stopping(procedure) => {
                procedure.ended(command, outcome, &mut self.processes, now);
            }
            // A start of an earlier term, or of the previous guard, tells nothing of this term.
            State::Up { grant, start, outcome: last }
                if command == Command::Start && *start != StartState::NotRun =>
            {
                *start = StartState::Ended;
                if last.replace(outcome.clone()).as_ref() != Some(outcome) {
                    let term = grant.context.term.unwrap_or(Revision(0));
                    self.processes.report(match outcome {
                        Outcome::Succeeded => ServiceReport::Started(term),
                        Outcome::Failed(_) | Outcome::Overran => {
                            ServiceReport::StartFailed(outcome.clone())
                        }
                    });
                }
            }
            State::Unknown { .. } | State::Down | State::Up { .. } => {}
        }
    }

    fn cgroup_emptied(&mut self, now: Instant) {
        if let State::Stopping(procedure) = &self.state
            && procedure.cgroup_emptied(&mut self.processes, now)
        {
            self.state = State::Down;
            if self.device.is_open() {
                self.processes.act(GuardAction::CloseDevice);
            } else {
                self.try_device();
            }
        }
    }

    fn report(&mut self, answer: bool) {
        let Some(heard) = self.heard else {
            return;
        };
        let service = match &self.state {
            State::Unknown { .. } => ServiceState::Unknown,
            State::Down => ServiceState::Down,
            State::Up { grant, start, .. } => ServiceState::Up(grant.clone(), *start),
            State::Stopping(procedure) => {
                ServiceState::Stopping { overdue: procedure.is_overdue() }
            }
        };
        let report = GuardReport {
            heard,
            service,
            unfit: self.device.unfit().map(str::to_owned),
            start_failure: self.start_failure(),
            start_waits: self.processes.is_waiting(Command::Start),
        };
        if answer || self.reported.as_ref() != Some(&report) {
            self.reported = Some(report.clone());
            self.processes.act(GuardAction::Report(report));
        }
    }

    /// Returns how the last start of this term that has ended failed, if it did.
    fn start_failure(&self) -> Option<String> {
        let State::Up { outcome, .. } = &self.state else { return None };
        let failed = outcome.as_ref().filter(|outcome| **outcome != Outcome::Succeeded);
        failed.map(|outcome| sanitize_field(&outcome.to_string()))
    }

    /// Returns the instant before which a device that is not kicked has to reset the host, since
    /// the service must be down then; `None` if no lock is at stake.
    fn reset_before(&self) -> Option<Instant> {
        match &self.state {
            // No device runs yet.
            State::Unknown { .. } | State::Down => None,
            State::Up { grant, .. } => Some(grant.dead_by),
            State::Stopping(procedure) => match procedure.order().stake {
                Stake::Lock => Some(procedure.order().dead_by),
                Stake::Assurance => None,
            },
        }
    }

    /// Returns the timeout that a device is asked for.
    fn device_timeout(&self) -> Duration {
        wanted_timeout(self.config.timing).unwrap_or_default()
    }

    fn kick_device(&mut self, now: Instant) {
        if self.device.kick(self.reset_before(), now) {
            self.processes.act(GuardAction::KickDevice);
        }
    }

    /// A device that the previous guard has left running is stopped by its trial.
    fn try_device(&mut self) {
        if self.is_down() && self.device.wants_trial() {
            self.processes.act(GuardAction::TryDevice);
        }
    }
}
