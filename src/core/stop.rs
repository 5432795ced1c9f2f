//! The stop procedure: how a service is brought down. It is the only one in the program.
//!
//! ```text
//!            start ended, or           succeeded          control group
//!            SLACK over                and counts         is empty
//! EndingStart ----------> Running(stop) -------> Emptying ------------> Down
//!                          ^       | failed
//!                          |       v
//!                          +--- Waiting
//! ```
//!
//! At `dead_by`, in every phase: stop is killed, the control group is killed, MAY STILL RUN
//! is said, and the last resort is run. Then stop goes on until one run of it counts.
//!
//! # Rules
//!
//! 1. Start is killed before stop begins. Stop waits for the end of start for at most
//!    [`SLACK`], or half of the time that is left.
//! 2. A run of stop counts when it succeeded and no start was alive when it began. One that
//!    began beside a dying start is killed when that start has ended, and run again.
//! 3. After a run that counts, the control group of start is emptied before the service is
//!    reported as down.
//! 4. A stop that failed is run again after R/4; once the service is overdue, after R.
//! 5. At `dead_by` stop and the control group are killed, and the last resort is run. It is
//!    run again in turn with stop until it has succeeded once.
//! 6. One stop and one last resort at a time. A last resort that cannot be killed does not
//!    hold stop up.
//! 7. The procedure ends in `Down` and nowhere else.

use crate::core::command::{Command, Outcome};
pub use crate::core::protocol::Stake;
use crate::core::service_report::ServiceReport;
use crate::core::time::Instant;
use crate::core::timing::{SLACK, Timing};

/// What the procedure wants done. Actions are performed in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceAction {
    /// Run a command. It waits for [`ServiceAction::Release`] before it begins. For stop and
    /// the last resort the instant is when it is killed, which the command is told.
    Run(Command, Instant),
    /// Let a command begin that was spawned.
    Release(Command),
    /// Kill a command with its process group. The end is told all the same.
    Kill(Command),
    /// Kill all processes in the control group of start. Nobody waits for their end.
    KillCgroup,
    /// Kill all processes in the control group of start, say so if there are any, and tell
    /// when it is empty.
    EmptyCgroup,
    /// Tell the operator.
    Report(ServiceReport),
}

/// Whether the last resort may be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastResort {
    /// There is none, it has succeeded, or it is not for this case.
    Never,
    /// It is run next.
    Next,
    /// It has failed; it is run again when stop has failed after it.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Start was killed: stop begins when start has ended, at this instant at the latest.
    EndingStart(Instant),
    /// A command runs.
    Running(Running),
    /// The next command is run at this instant.
    Waiting(Instant),
    /// Stop has succeeded; the control group is being emptied.
    Emptying,
    /// The service is down.
    Down,
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
    killed: bool,
}

/// One run of the procedure.
#[derive(Clone, Debug)]
pub struct StopProcedure {
    timing: Timing,
    stake: Stake,
    dead_by: Instant,
    last_resort: LastResort,
    phase: Phase,
    /// A stop was run and has not ended, whatever the phase.
    stop_alive: bool,
    /// The same of the last resort.
    last_resort_alive: bool,
    /// `dead_by` has passed.
    overdue: bool,
    /// The failure that was said last; the same is not said again.
    said: Option<Outcome>,
    actions: Vec<ServiceAction>,
}

impl StopProcedure {
    /// Begins to stop the service: kills start, if one is alive. `last_resort_alive` tells
    /// that one of an earlier procedure has not ended.
    #[must_use]
    pub fn begin(
        timing: Timing,
        stake: Stake,
        last_resort: bool,
        dead_by: Instant,
        start_alive: bool,
        last_resort_alive: bool,
        now: Instant,
    ) -> StopProcedure {
        let mut procedure = StopProcedure {
            timing,
            stake,
            dead_by,
            last_resort: if last_resort && stake == Stake::Lock {
                LastResort::Next
            } else {
                LastResort::Never
            },
            phase: Phase::EndingStart(now.after(SLACK.min(dead_by.since(now) / 2))),
            stop_alive: false,
            last_resort_alive,
            overdue: false,
            said: None,
            actions: Vec::new(),
        };
        if start_alive {
            procedure.act(ServiceAction::Kill(Command::Start));
        }
        procedure
    }

    /// Returns what is to be done, once.
    pub fn take_actions(&mut self) -> Vec<ServiceAction> {
        std::mem::take(&mut self.actions)
    }

    /// Returns whether the service is down: the procedure is over.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.phase == Phase::Down
    }

    /// Returns whether `dead_by` has passed.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// Returns when the service must be down.
    #[must_use]
    pub fn dead_by(&self) -> Instant {
        self.dead_by
    }

    /// Returns whether a last resort was run that has not ended.
    #[must_use]
    pub fn last_resort_alive(&self) -> bool {
        self.last_resort_alive
    }

    /// Returns what is at stake.
    #[must_use]
    pub fn stake(&self) -> Stake {
        self.stake
    }

    /// Returns when [`StopProcedure::advance`] has something to do that no event announces.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let step = match self.phase {
            Phase::EndingStart(at) | Phase::Waiting(at) => Some(at),
            Phase::Running(running) => Some(running.until),
            Phase::Emptying => None,
            Phase::Down => return None,
        };
        let dead_by = (!self.overdue).then_some(self.dead_by);
        step.into_iter().chain(dead_by).min()
    }

    /// The service must be down earlier than was known. A later instant changes nothing.
    pub fn hasten(&mut self, dead_by: Instant) {
        self.dead_by = self.dead_by.min(dead_by);
    }

    /// A command was spawned and waits: lets it begin, or kills a command that is not wanted
    /// any more. A stop after `dead_by` is never too late.
    pub fn spawned(&mut self, command: Command) {
        let wanted = matches!(
            self.phase,
            Phase::Running(running) if running.command == command && !running.killed
        );
        self.act(if wanted {
            ServiceAction::Release(command)
        } else {
            ServiceAction::Kill(command)
        });
    }

    /// Start has ended, killed or not: a run of stop counts from now on.
    pub fn start_ended(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Running(running) if running.command == Command::Stop && running.beside_start => {
                running.killed = true;
                self.act(ServiceAction::Kill(Command::Stop));
            }
            Phase::Waiting(at) => *at = now.min(*at),
            Phase::EndingStart(_) | Phase::Running(_) | Phase::Emptying | Phase::Down => {}
        }
    }

    /// Stop or the last resort has ended.
    pub fn ended(&mut self, command: Command, outcome: &Outcome, start_alive: bool, now: Instant) {
        match command {
            Command::Stop => self.stop_alive = false,
            Command::LastResort => self.last_resort_alive = false,
            Command::Check | Command::Start => {}
        }
        let Phase::Running(running) = self.phase else {
            return;
        };
        if running.command != command {
            return;
        }
        let counts = *outcome == Outcome::Succeeded && !running.beside_start;
        if command == Command::LastResort {
            self.last_resort_ended(outcome, counts);
            // Only stop can tell that the service is down.
            self.phase = Phase::Waiting(now);
        } else if counts {
            self.phase = Phase::Emptying;
            self.act(ServiceAction::EmptyCgroup);
        } else {
            self.stop_failed(running, outcome, start_alive, now);
        }
    }

    fn stop_failed(
        &mut self,
        running: Running,
        outcome: &Outcome,
        start_alive: bool,
        now: Instant,
    ) {
        let start_has_ended = running.beside_start && !start_alive;
        if self.said.as_ref() != Some(outcome) {
            self.said = Some(outcome.clone());
            self.report(ServiceReport::StopFailed {
                outcome: outcome.clone(),
                cut_short: start_has_ended,
                took: now.since(running.began),
                stake: Some(self.stake),
            });
        }
        if self.last_resort == LastResort::Failed {
            self.last_resort = LastResort::Next;
        }
        let r = self.timing.renewal();
        let late = self.overdue || now >= self.dead_by;
        self.phase = Phase::Waiting(match outcome {
            _ if start_has_ended => now,
            // That one has had its time, or had none while this process did not run.
            Outcome::Overran if late => now,
            Outcome::Succeeded | Outcome::Failed(_) | Outcome::Overran if late => now.after(r),
            Outcome::Succeeded | Outcome::Failed(_) | Outcome::Overran => now.after(r / 4),
        });
    }

    fn last_resort_ended(&mut self, outcome: &Outcome, counts: bool) {
        self.last_resort = if counts { LastResort::Never } else { LastResort::Failed };
        self.report(ServiceReport::LastResortEnded { outcome: outcome.clone(), counts });
    }

    /// The control group of start is empty.
    pub fn cgroup_emptied(&mut self, now: Instant) {
        if self.phase != Phase::Emptying {
            return;
        }
        self.phase = Phase::Down;
        match self.stake {
            Stake::Lock if self.overdue => self.report(ServiceReport::DownLate),
            Stake::Lock => self.report(ServiceReport::DownInTime(self.dead_by.since(now))),
            Stake::Assurance if self.said.is_some() => self.report(ServiceReport::Down),
            Stake::Assurance => {}
        }
    }

    /// Does what is due.
    pub fn advance(&mut self, start_alive: bool, now: Instant) {
        if !self.overdue && now >= self.dead_by && self.phase != Phase::Down {
            self.become_overdue(start_alive, now);
        }
        match self.phase {
            Phase::EndingStart(until) if !start_alive || now >= until => {
                self.run_stop(start_alive, now);
            }
            Phase::Running(running) if now >= running.until => self.overran(running, now),
            Phase::Waiting(until) if now >= until => self.run_next(start_alive, now),
            Phase::EndingStart(_)
            | Phase::Running(_)
            | Phase::Waiting(_)
            | Phase::Emptying
            | Phase::Down => {}
        }
    }

    /// Kills a command that has had its time, and again every R. A last resort that does not
    /// end although it was killed does not hold stop up.
    fn overran(&mut self, running: Running, now: Instant) {
        self.act(ServiceAction::Kill(running.command));
        let until = now.after(self.timing.renewal());
        self.phase = if running.killed && running.command == Command::LastResort {
            self.last_resort = LastResort::Failed;
            Phase::Waiting(until)
        } else {
            Phase::Running(Running { killed: true, until, ..running })
        };
    }

    /// The service must be down, and is not known to be.
    fn become_overdue(&mut self, start_alive: bool, now: Instant) {
        self.overdue = true;
        self.said = None;
        if self.stop_alive {
            self.act(ServiceAction::Kill(Command::Stop));
            if let Phase::Running(running) = &mut self.phase {
                running.killed = true;
                running.until = now.after(self.timing.renewal());
                let took = now.since(running.began);
                if self.last_resort_is_next() {
                    // Its end is not waited for.
                    self.report(ServiceReport::StopFailed {
                        outcome: Outcome::Overran,
                        cut_short: false,
                        took,
                        stake: None,
                    });
                }
            }
        }
        self.act(ServiceAction::KillCgroup);
        if self.stake == Stake::Lock {
            self.report(ServiceReport::MayStillRun);
        }
        if self.last_resort_is_next() {
            self.run_last_resort(start_alive, now);
        }
    }

    fn last_resort_is_next(&self) -> bool {
        self.last_resort == LastResort::Next && !self.last_resort_alive
    }

    fn run_next(&mut self, start_alive: bool, now: Instant) {
        if self.stop_alive {
            // It was killed and has not ended.
            self.act(ServiceAction::Kill(Command::Stop));
            self.phase = Phase::Waiting(now.after(self.timing.renewal() / 4));
        } else if self.overdue && self.last_resort_is_next() {
            self.run_last_resort(start_alive, now);
        } else {
            self.run_stop(start_alive, now);
        }
    }

    fn run_stop(&mut self, start_alive: bool, now: Instant) {
        self.stop_alive = true;
        let until = if now < self.dead_by { self.dead_by } else { now.after(self.late_time()) };
        self.run(Command::Stop, until, start_alive, now);
    }

    fn run_last_resort(&mut self, start_alive: bool, now: Instant) {
        self.report(ServiceReport::LastResort);
        self.last_resort_alive = true;
        let until = now.after(self.late_time());
        self.run(Command::LastResort, until, start_alive, now);
    }

    /// How long a command may take that begins when the service is overdue.
    fn late_time(&self) -> std::time::Duration {
        self.timing.stop_budget().max(self.timing.renewal())
    }

    fn run(&mut self, command: Command, until: Instant, start_alive: bool, now: Instant) {
        self.phase = Phase::Running(Running {
            command,
            began: now,
            until,
            beside_start: start_alive,
            killed: false,
        });
        self.act(ServiceAction::Run(command, until));
    }

    fn report(&mut self, report: ServiceReport) {
        self.act(ServiceAction::Report(report));
    }

    fn act(&mut self, action: ServiceAction) {
        self.actions.push(action);
    }
}
