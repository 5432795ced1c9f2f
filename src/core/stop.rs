//! The stop procedure: how a guard brings a service down.
//!
//! ```text
//!  start ended, or      succeeded          control group
//!  SLACK over           and counts         is empty
//! Waiting ------> Running(stop) ----> Emptying --------> down
//!    ^               | failed
//!    +---------------+
//! ```
//!
//! At `dead_by`, in every phase: stop is killed, the control group is killed, MAY STILL RUN is
//! logged, and the last resort is run. Then stop goes on until one run of it counts.
//!
//! # Rules
//!
//! 1. Start is killed before stop begins. Stop waits for the end of start for at most
//!    [`SLACK`], or half of the time that is left.
//! 2. A run of stop counts when it succeeded and no start was alive when it began. A run that
//!    began beside a dying start is killed when that start has ended, and run again.
//! 3. After a run that counts, the control group of start is emptied before the service is
//!    reported as down.
//! 4. A stop that failed is run again after R/4; once the service is overdue, after R.
//! 5. At `dead_by` stop and the control group are killed, and the last resort is run. It is
//!    run again in turn with stop until it has succeeded once.
//! 6. One stop and one last resort at a time. Either goes on although the other cannot be
//!    killed.
//! 7. The procedure ends when the service is down, and never before.

use std::time::Duration;

use crate::core::command::{Command, Outcome};
use crate::core::protocol::{GuardConfig, Stake, StopOrder};
use crate::core::service::{GuardAction, Processes};
use crate::core::service_report::{ServiceReport, StopFailure};
use crate::core::time::{Instant, Ms};
use crate::core::timing::{SLACK, Timing};

/// Whether the last resort may be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastResort {
    /// There is no last resort, it has succeeded, or no lock is at stake.
    Never,
    /// The last resort is run next.
    Next,
    /// The last resort has failed; it is run again when stop has failed after it, or cannot be
    /// killed.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The next command is run at this instant, or when start has ended.
    Waiting(Instant),
    /// A command runs.
    Running(Running),
    /// Stop has succeeded; the control group is being emptied.
    Emptying,
}

/// A stop or a last resort that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Running {
    command: Command,
    began: Instant,
    /// When the command is killed, or killed again.
    until: Instant,
    /// A start was alive when the command began: its success does not count.
    beside_start: bool,
}

#[derive(Clone, Debug)]
pub(super) struct StopProcedure {
    timing: Timing,
    /// The order that is carried out: when the service must be down, what is at stake, and the lock
    /// that the commands are told.
    order: StopOrder,
    last_resort: LastResort,
    phase: Phase,
    /// `dead_by` has passed.
    overdue: bool,
    /// The failure that was reported last; the same is not reported again.
    said: Option<Outcome>,
}

impl StopProcedure {
    /// Begins to stop the service: kills start, if one is alive.
    pub(super) fn begin(
        config: GuardConfig,
        order: StopOrder,
        processes: &mut Processes,
        now: Instant,
    ) -> StopProcedure {
        let wait = if processes.has_begun(Command::Start) {
            processes.kill(Command::Start);
            SLACK.min(order.dead_by.since(now) / 2)
        } else {
            processes.withdraw(Command::Start);
            Duration::ZERO
        };
        StopProcedure {
            timing: config.timing,
            last_resort: match order.stake {
                Stake::Lock if config.last_resort => LastResort::Next,
                Stake::Lock | Stake::Assurance => LastResort::Never,
            },
            order,
            phase: Phase::Waiting(now.after(wait)),
            overdue: false,
            said: None,
        }
    }

    /// Returns the order that is carried out.
    pub(super) fn order(&self) -> &StopOrder {
        &self.order
    }

    /// Returns whether `dead_by` has passed.
    pub(super) fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// Returns when [`StopProcedure::advance`] has something to do that no event announces.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let step = match self.phase {
            Phase::Waiting(at) => Some(at),
            Phase::Running(running) => Some(running.until),
            Phase::Emptying => None,
        };
        let dead_by = (!self.overdue).then_some(self.order.dead_by);
        step.into_iter().chain(dead_by).min()
    }

    /// The service must be down earlier than was known. A later instant changes nothing.
    pub(super) fn hasten(&mut self, dead_by: Instant) {
        self.order.dead_by = self.order.dead_by.min(dead_by);
    }

    /// A command has ended.
    pub(super) fn ended(
        &mut self,
        command: Command,
        outcome: &Outcome,
        processes: &mut Processes,
        now: Instant,
    ) {
        match &mut self.phase {
            // A run of stop counts from now on.
            Phase::Waiting(at) if command == Command::Start => *at = now.min(*at),
            Phase::Running(running) if command == Command::Start => {
                if running.command == Command::Stop && running.beside_start {
                    processes.kill(Command::Stop);
                }
            }
            Phase::Running(running) if command == running.command => {
                let running = *running;
                let counts = *outcome == Outcome::Succeeded && !running.beside_start;
                if command == Command::LastResort {
                    self.last_resort = if counts { LastResort::Never } else { LastResort::Failed };
                    processes.report(match outcome {
                        Outcome::Succeeded if counts => ServiceReport::LastResortSucceeded,
                        Outcome::Succeeded => ServiceReport::LastResortBesideStart,
                        Outcome::Failed(_) | Outcome::Overran => {
                            ServiceReport::LastResortFailed(outcome.clone())
                        }
                    });
                    // Only stop can tell that the service is down.
                    self.phase = Phase::Waiting(now);
                } else if counts {
                    self.phase = Phase::Emptying;
                    processes.act(GuardAction::EmptyCgroup);
                } else {
                    self.stop_failed(running, outcome, processes, now);
                }
            }
            Phase::Waiting(_) | Phase::Running(_) | Phase::Emptying => {}
        }
    }

    fn stop_failed(
        &mut self,
        running: Running,
        outcome: &Outcome,
        processes: &mut Processes,
        now: Instant,
    ) {
        let start_has_ended = running.beside_start && !processes.has_begun(Command::Start);
        if self.said.as_ref() != Some(outcome) {
            self.said = Some(outcome.clone());
            let why = match outcome {
                Outcome::Overran if !start_has_ended => {
                    StopFailure::Overran(Ms(now.since(running.began)))
                }
                Outcome::Succeeded | Outcome::Overran => StopFailure::BesideStart,
                Outcome::Failed(why) => StopFailure::Failed(why.clone()),
            };
            processes.report(match self.order.stake {
                Stake::Lock => ServiceReport::StopFailedUnderLock(why),
                Stake::Assurance => ServiceReport::StopFailedWithoutLock(why),
            });
        }
        self.pass_turn_to_last_resort();
        let r = self.timing.renewal();
        let late = self.overdue || now >= self.order.dead_by;
        self.phase = Phase::Waiting(match outcome {
            _ if start_has_ended => now,
            // Stop has used its time, or this process was suspended meanwhile: stop is run again
            // now.
            Outcome::Overran if late => now,
            Outcome::Succeeded | Outcome::Failed(_) | Outcome::Overran if late => now.after(r),
            Outcome::Succeeded | Outcome::Failed(_) | Outcome::Overran => now.after(r / 4),
        });
    }

    /// The control group of start is empty. Returns whether the service is down: the procedure
    /// is over.
    pub(super) fn cgroup_emptied(&self, processes: &mut Processes, now: Instant) -> bool {
        let down = self.phase == Phase::Emptying;
        if down {
            match self.order.stake {
                Stake::Lock if self.overdue => processes.report(ServiceReport::DownLate),
                Stake::Lock => {
                    let left = Ms(self.order.dead_by.since(now));
                    processes.report(ServiceReport::DownInTime(left));
                }
                Stake::Assurance if self.said.is_some() => processes.report(ServiceReport::Down),
                Stake::Assurance => {}
            }
        }
        down
    }

    /// Takes the steps that are due.
    pub(super) fn advance(&mut self, processes: &mut Processes, now: Instant) {
        if !self.overdue && now >= self.order.dead_by {
            self.become_overdue(processes, now);
        }
        match self.phase {
            Phase::Running(running) if now >= running.until => {
                self.overran(running, processes, now);
            }
            Phase::Waiting(until) if now >= until => self.run_next(processes, now),
            Phase::Running(_) | Phase::Waiting(_) | Phase::Emptying => {}
        }
    }

    /// Kills a command whose time is over, and again every R. A last resort that does not end
    /// although it was killed does not delay stop.
    fn overran(&mut self, running: Running, processes: &mut Processes, now: Instant) {
        let again = processes.is_killed(running.command);
        processes.kill(running.command);
        let until = now.after(self.timing.renewal());
        self.phase = if again && running.command == Command::LastResort {
            self.last_resort = LastResort::Failed;
            Phase::Waiting(until)
        } else {
            Phase::Running(Running { until, ..running })
        };
    }

    /// The service must be down, and is not known to be.
    fn become_overdue(&mut self, processes: &mut Processes, now: Instant) {
        self.overdue = true;
        self.said = None;
        let last_resort = self.last_resort_is_next(processes);
        if let Phase::Running(running) = &mut self.phase {
            processes.kill(Command::Stop);
            running.until = now.after(self.timing.renewal());
            if last_resort {
                // The last resort does not wait for the end of stop.
                let why = StopFailure::Overran(Ms(now.since(running.began)));
                processes.report(ServiceReport::StopFailed(why));
            }
        }
        processes.act(GuardAction::KillCgroup);
        if self.order.stake == Stake::Lock {
            processes.report(ServiceReport::MayStillRun);
        }
        if last_resort {
            self.run_last_resort(processes, now);
        }
    }

    fn pass_turn_to_last_resort(&mut self) {
        if self.last_resort == LastResort::Failed {
            self.last_resort = LastResort::Next;
        }
    }

    fn last_resort_is_next(&self, processes: &Processes) -> bool {
        self.last_resort == LastResort::Next && !processes.is_alive(Command::LastResort)
    }

    fn run_next(&mut self, processes: &mut Processes, now: Instant) {
        if self.overdue && self.last_resort_is_next(processes) {
            self.run_last_resort(processes, now);
        } else if processes.is_alive(Command::Stop) {
            // Stop was killed and has not ended.
            processes.kill(Command::Stop);
            self.pass_turn_to_last_resort();
            self.phase = Phase::Waiting(now.after(self.timing.renewal() / 4));
        } else {
            let dead_by = self.order.dead_by;
            let until = if now < dead_by { dead_by } else { now.after(self.late_time()) };
            self.run(Command::Stop, until, processes, now);
        }
    }

    fn run_last_resort(&mut self, processes: &mut Processes, now: Instant) {
        processes.report(ServiceReport::LastResort);
        self.run(Command::LastResort, now.after(self.late_time()), processes, now);
    }

    /// How long a command may take that begins when the service is overdue.
    fn late_time(&self) -> Duration {
        self.timing.stop_budget().max(self.timing.renewal())
    }

    fn run(&mut self, command: Command, until: Instant, processes: &mut Processes, now: Instant) {
        let beside_start = processes.has_begun(Command::Start);
        self.phase = Phase::Running(Running { command, began: now, until, beside_start });
        processes.run(command, until);
    }
}
