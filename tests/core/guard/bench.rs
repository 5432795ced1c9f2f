//! A guard, what it is told, and what it does.

use std::time::Duration;

use putex::core::command::{Command, LockContext, Outcome};
use putex::core::guard::{Guard, GuardAction, GuardInput};
use putex::core::protocol::{
    DeviceUse, Grant, GuardConfig, GuardReport, ServiceState, Stake, StopOrder, ToGuard,
};
use putex::core::record::{Incarnation, Revision};
use putex::core::service_report::{ServiceReport, StopFailure};
use putex::core::time::{Instant, Ms};
use putex::core::timing::Timing;

use super::{dead_by, ms, timing, v};

/// A guard without last resort and device.
pub(crate) fn config() -> GuardConfig {
    GuardConfig { timing: timing(), last_resort: false, device: DeviceUse::None }
}

/// As [`config`], with a last resort.
pub(crate) fn with_last_resort() -> GuardConfig {
    GuardConfig { last_resort: true, ..config() }
}

/// The lock of term 8, valid until then.
pub(crate) fn grant(timing: Timing, valid_until: Instant) -> Grant {
    Grant {
        holder: Incarnation(7),
        context: context(8),
        valid_until,
        dead_by: valid_until.after(timing.stop_budget()),
    }
}

pub(crate) fn context(term: u64) -> LockContext {
    LockContext {
        term: Some(Revision(term)),
        epoch: Some("e1".to_owned()),
        previous: Some("beta".to_owned()),
        seat: None,
    }
}

pub(crate) fn order(dead_by: Instant, stake: Stake) -> StopOrder {
    StopOrder { dead_by, stake, context: context(9) }
}

/// The report that a stop, which is run again, failed after `took`.
pub(crate) fn stop_failed(outcome: Outcome, took: Duration, stake: Stake) -> ServiceReport {
    let why = match outcome {
        Outcome::Succeeded => StopFailure::BesideStart,
        Outcome::Failed(why) => StopFailure::Failed(why),
        Outcome::Overran => StopFailure::Overran(Ms(took)),
    };
    match stake {
        Stake::Lock => ServiceReport::StopFailedUnderLock(why),
        Stake::Assurance => ServiceReport::StopFailedWithoutLock(why),
    }
}

pub(crate) fn failed() -> Outcome {
    Outcome::Failed("exit status 1".to_owned())
}

pub(crate) fn run(command: Command, until: Instant) -> GuardAction {
    GuardAction::Run(command, until)
}

pub(crate) fn release(command: Command) -> GuardAction {
    GuardAction::Release(command)
}

pub(crate) fn kill(command: Command) -> GuardAction {
    GuardAction::Kill(command)
}

/// Returns which command is run, if one is.
pub(crate) fn ran(deeds: &[GuardAction]) -> Option<Command> {
    deeds.iter().find_map(|deed| match deed {
        GuardAction::Run(command, _) => Some(*command),
        GuardAction::Release(_)
        | GuardAction::Kill(_)
        | GuardAction::KillCgroup
        | GuardAction::EmptyCgroup
        | GuardAction::Log(_)
        | GuardAction::Report(_)
        | GuardAction::TryDevice
        | GuardAction::OpenDevice
        | GuardAction::KickDevice
        | GuardAction::CloseDevice
        | GuardAction::Exit => None,
    })
}

pub(crate) const KILL_CGROUP: GuardAction = GuardAction::KillCgroup;
pub(crate) const EMPTY_CGROUP: GuardAction = GuardAction::EmptyCgroup;

/// How long a command has that begins when the service is overdue.
pub(crate) fn late_time() -> Duration {
    timing().stop_budget().max(timing().renewal())
}

/// A guard under test. Its log and its reports are kept apart from its other actions.
pub(crate) struct Bench {
    pub(crate) guard: Guard,
    /// Lines that the guard logged since this list was emptied.
    pub(crate) said: Vec<ServiceReport>,
    /// Reports to the agent since this list was emptied.
    pub(crate) reports: Vec<GuardReport>,
}

impl Bench {
    pub(crate) fn of(guard: Guard) -> Bench {
        Bench { guard, said: Vec::new(), reports: Vec::new() }
    }

    /// A guard that an agent has said hello to. `down` tells what the note of the previous guard
    /// it says.
    pub(crate) fn new(config: GuardConfig, down: bool) -> Bench {
        let mut bench = Bench::of(Guard::new(config, down, false, None, ms(0)));
        bench.handle(GuardInput::Received(ToGuard::Hello(config)), ms(0));
        bench
    }

    /// A guard that was given the lock at 0, until [`v`].
    pub(crate) fn granted(config: GuardConfig) -> Bench {
        let mut bench = Bench::new(config, true);
        let message = ToGuard::Grant(grant(config.timing, ms(0).after(config.timing.validity())));
        bench.tell(message, ms(0));
        bench
    }

    /// A guard whose service was started at 0, under a lock that is valid until [`v`].
    pub(crate) fn up(config: GuardConfig) -> Bench {
        let mut bench = Bench::starting(config);
        assert_eq!(bench.ended(Command::Start, Outcome::Succeeded, ms(2)), []);
        bench
    }

    /// As [`Bench::up`], while the first start runs.
    pub(crate) fn starting(config: GuardConfig) -> Bench {
        let mut bench = Bench::granted(config);
        let start = run(Command::Start, v());
        assert_eq!(bench.tell(ToGuard::AssertStart, ms(0)), [start]);
        assert_eq!(bench.spawned(Command::Start, ms(1)), [release(Command::Start)]);
        bench
    }

    /// A guard of a service whose lock has run out and that runs stop.
    pub(crate) fn stopping(config: GuardConfig) -> Bench {
        let mut bench = Bench::up(config);
        assert_eq!(bench.tick(v()), [run(Command::Stop, dead_by())]);
        assert_eq!(bench.spawned(Command::Stop, v()), [release(Command::Stop)]);
        bench
    }

    /// As [`Bench::stopping`], when stop has not ended by the time it had to.
    pub(crate) fn overdue(config: GuardConfig) -> (Bench, Vec<GuardAction>) {
        let mut bench = Bench::stopping(config);
        let deeds = bench.tick(dead_by());
        (bench, deeds)
    }

    /// Takes in one thing alone, and returns what the guard does.
    pub(crate) fn handle(&mut self, input: GuardInput, now: Instant) -> Vec<GuardAction> {
        let mut deeds = Vec::new();
        for action in self.guard.handle(input, now) {
            match action {
                GuardAction::Log(report) => self.said.push(report),
                GuardAction::Report(report) => self.reports.push(report),
                GuardAction::Run(..)
                | GuardAction::Release(_)
                | GuardAction::Kill(_)
                | GuardAction::KillCgroup
                | GuardAction::EmptyCgroup
                | GuardAction::TryDevice
                | GuardAction::OpenDevice
                | GuardAction::KickDevice
                | GuardAction::CloseDevice
                | GuardAction::Exit => deeds.push(action),
            }
        }
        deeds
    }

    /// As [`Bench::take`], with the tick that follows.
    pub(crate) fn feed(&mut self, input: GuardInput, now: Instant) -> Vec<GuardAction> {
        let mut deeds = self.handle(input, now);
        deeds.extend(self.tick(now));
        deeds
    }

    pub(crate) fn tick(&mut self, now: Instant) -> Vec<GuardAction> {
        self.handle(GuardInput::Tick, now)
    }

    pub(crate) fn tell(&mut self, message: ToGuard, now: Instant) -> Vec<GuardAction> {
        self.feed(GuardInput::Received(message), now)
    }

    /// The lock was renewed, and is valid until then.
    pub(crate) fn renew(&mut self, valid_until: Instant, now: Instant) -> Vec<GuardAction> {
        self.tell(ToGuard::Grant(grant(timing(), valid_until)), now)
    }

    pub(crate) fn leave_agent(&mut self, now: Instant) -> Vec<GuardAction> {
        self.feed(GuardInput::Disconnected, now)
    }

    pub(crate) fn spawned(&mut self, command: Command, now: Instant) -> Vec<GuardAction> {
        self.feed(GuardInput::Spawned(command), now)
    }

    pub(crate) fn ended(
        &mut self,
        command: Command,
        outcome: Outcome,
        now: Instant,
    ) -> Vec<GuardAction> {
        self.feed(GuardInput::Ended(command, outcome), now)
    }

    pub(crate) fn emptied(&mut self, now: Instant) -> Vec<GuardAction> {
        self.feed(GuardInput::CgroupEmptied, now)
    }

    /// Stop succeeds, and leaves nothing behind.
    pub(crate) fn stop_counts(&mut self, now: Instant) -> Vec<GuardAction> {
        let deeds = self.ended(Command::Stop, Outcome::Succeeded, now);
        assert_eq!(deeds, [EMPTY_CGROUP]);
        self.emptied(now)
    }

    /// Lets time pass to each deadline until `end`, and returns what is done, and when.
    pub(crate) fn pass(&mut self, end: Instant) -> Vec<(Instant, GuardAction)> {
        let mut done = Vec::new();
        while let Some(at) = self.guard.deadline().filter(|at| *at < end) {
            let deeds = self.tick(at);
            done.extend(deeds.into_iter().map(|deed| (at, deed)));
            let later = self.guard.deadline().is_none_or(|next| next > at);
            assert!(later, "the deadline {at:?} stays");
        }
        done
    }

    /// Returns what was reported last.
    pub(crate) fn service(&self) -> &ServiceState {
        &self.reports.last().expect("it has reported").service
    }

    /// Returns whether it has said this, and forgets all.
    pub(crate) fn has_said(&mut self, report: &ServiceReport) -> bool {
        std::mem::take(&mut self.said).contains(report)
    }

    /// Returns the runs of stop that it has said to have failed, and forgets all.
    pub(crate) fn failed_stops(&mut self) -> Vec<ServiceReport> {
        let said = std::mem::take(&mut self.said).into_iter();
        said.filter(|report| report.to_string().starts_with("stop failed: ")).collect()
    }
}
