//! This agent holds the lock: every R it checks the service, renews the lock and asserts start.
//!
//! A check must end within T·(1 − e). While a check runs longer than R, the lock is renewed
//! once beside it.

use super::context::Context;
use super::deadline::{Timer, Timers};
use super::hold::Hold;
use super::stopping::{ServiceLock, Stopping};
use super::{Next, State};
use crate::core::command::{Outcome, Role};
use crate::core::event::{Effect, Event, SwitchoverRequest};
use crate::core::protocol::{ServiceState, ToGuard};
use crate::core::record::RecordState;
use crate::core::report::{Excuse, Reason, Report};
use crate::core::time::{Instant, Ms};

#[derive(Clone, Debug)]
pub(super) struct Active {
    pub(super) hold: Hold,
    /// When the next stroke begins.
    stroke_at: Instant,
    phase: Phase,
    started: Started,
    /// Consecutive failed checks.
    check_failures: u32,
}

/// The assertion of start in this term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Started {
    /// Start was not asserted yet.
    No,
    /// Start was asserted for the first time at this instant. `warned`: a warning was logged that
    /// start takes longer than both T and its grace.
    At { first: Instant, warned: bool },
    /// The previous instance of this agent asserted start, and has left the service running.
    ByPreviousInstance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The check runs. `warned`: a warning was logged that the check takes longer than R. `beside`:
    /// the lock was renewed beside it.
    Checking { began: Instant, warned: bool, beside: bool },
    /// The check has passed; the renewal is under way.
    Renewing,
    /// The lock is renewed; start is to be asserted once the pause is read.
    Renewed,
    /// The agent waits for the next stroke.
    Resting,
}

impl Active {
    /// The state after a free lock was taken; the take counts as this stroke's renewal.
    pub(super) fn taken(context: &Context, hold: Hold, now: Instant) -> Active {
        let stroke_at = now.after(context.config.timing.renewal());
        Active { phase: Phase::Renewed, stroke_at, ..Active::confirmed(hold, now) }
    }

    /// The state after an adoption: the previous instance started the service.
    pub(super) fn adopted(hold: Hold, now: Instant) -> Active {
        Active { started: Started::ByPreviousInstance, ..Active::confirmed(hold, now) }
    }

    /// The state after the wait for the previous holder: the stroke that starts the service
    /// begins with a check and a renewal.
    pub(super) fn confirmed(hold: Hold, now: Instant) -> Active {
        Active {
            hold,
            stroke_at: now,
            phase: Phase::Resting,
            started: Started::No,
            check_failures: 0,
        }
    }

    pub(super) fn turn(mut self, context: &mut Context, event: &Event, now: Instant) -> Next {
        if context.pauses.is_paused()
            && let Phase::Checking { .. } = self.phase
        {
            // In a pause no check runs.
            context.kill_check();
            self.phase = Phase::Renewing;
        }
        if let (Event::CheckEnded(outcome), Phase::Checking { began, .. }) = (event, self.phase) {
            if let Some(why) = self.judge_check(context, outcome, began, now) {
                return self.stop(context, why, now);
            }
            self.phase = Phase::Renewing;
        }
        match self.hold.receive(context, event, now) {
            Err(why) => {
                let lock = ServiceLock::Lost(self.hold.grant(context));
                return Stopping::begin(context, lock, Reason::Lost(why), now);
            }
            Ok(true) => self.renewed(context),
            Ok(false) => {}
        }
        if let Some(why) = self.reason_to_stop(context, now) {
            return self.stop(context, why, now);
        }
        if let Event::SwitchoverRequested(request) = event
            && self.is_to_follow(context, request, now)
        {
            return Stopping::hand_over(context, &self.hold, &request.to, now);
        }
        self.advance(context, now);
        Next::Stay(State::Active(self))
    }

    /// Stops the service, and gives the lock back.
    fn stop(&self, context: &mut Context, why: Reason, now: Instant) -> Next {
        let lock = ServiceLock::held(context, &self.hold, None);
        Stopping::begin(context, lock, why, now)
    }

    /// Returns whether a request is for this very lock, in time, and to another agent. Without a
    /// store the lock could not be released to that agent, and in a pause that agent would not take
    /// it.
    fn is_to_follow(&self, context: &Context, request: &SwitchoverRequest, now: Instant) -> bool {
        let SwitchoverRequest { seat, term, to, until } = request;
        let is_of_this = *seat == context.store.seat && *term == self.hold.term;
        let may_follow = context.store.is_open() && !context.pauses.is_paused();
        is_of_this && may_follow && now < *until && *to != context.id.token
    }

    /// Returns the reason to stop the service, if the guard's report rules out a running
    /// service or the health check hangs.
    fn reason_to_stop(&self, context: &Context, now: Instant) -> Option<Reason> {
        if let Some(report) = context.guard.report()
            && context.guard.is_granted(self.hold.valid_until)
        {
            if report.unfit.is_some() {
                return Some(Reason::Unfit);
            }
            if !matches!(report.service, ServiceState::Up(..)) {
                return Some(Reason::GuardStopped);
            }
        }
        let hangs = self.is_over(Timer::CheckOver, context, now);
        hangs.then(|| Reason::CheckHangs(Ms(context.config.timing.validity())))
    }

    /// Evaluates a health check that has ended; returns the reason to move the service, if any.
    fn judge_check(
        &mut self,
        context: &mut Context,
        outcome: &Outcome,
        began: Instant,
        now: Instant,
    ) -> Option<Reason> {
        let why = match outcome {
            Outcome::Succeeded => {
                self.check_failures = 0;
                return None;
            }
            Outcome::Overran => return Some(Reason::CheckKilled(Ms(now.since(began)))),
            Outcome::Failed(why) => why.clone(),
        };
        // In the grace of start, a failed check does not count.
        let in_grace = matches!(
            self.started,
            Started::At { first, .. } if now < first.after(context.config.start_grace)
        );
        let excuse = if in_grace {
            Excuse::Grace(Ms(context.config.start_grace))
        } else if self.first_start_runs(context) {
            Excuse::StartRuns
        } else {
            self.check_failures += 1;
            let most = context.config.check_failures;
            if self.check_failures >= most || self.started == Started::No {
                return Some(Reason::CheckFailed(why));
            }
            Excuse::Failure(self.check_failures, most)
        };
        context.report(Report::CheckExcused(why, excuse));
        None
    }

    fn first_start_runs(&self, context: &Context) -> bool {
        context.guard.first_start_runs(self.is_start_asserted())
    }

    /// Returns whether start was asserted in this term.
    pub(super) fn is_start_asserted(&self) -> bool {
        self.started != Started::No
    }

    /// A renewal was acknowledged.
    fn renewed(&mut self, context: &mut Context) {
        match self.phase {
            Phase::Renewing => {
                self.phase = Phase::Renewed;
                if !self.hold.pause_is_read {
                    context.want(Effect::ReadPause);
                }
            }
            Phase::Checking { began, .. } => {
                context.want(Effect::ExtendCheck(self.check_by(context, began)));
            }
            Phase::Renewed | Phase::Resting => {}
        }
    }

    fn advance(&mut self, context: &mut Context, now: Instant) {
        let r = context.config.timing.renewal();
        if !context.guard.is_granted(self.hold.valid_until) {
            context.tell_guard(ToGuard::Grant(self.hold.grant(context)), now);
        }
        if self.phase == Phase::Renewed && self.hold.pause_is_read {
            self.phase = Phase::Resting;
            if !context.pauses.is_paused() {
                self.assert_start(context, now);
            }
        }
        if self.is_over(Timer::Stroke, context, now) {
            // A late stroke begins at once; missed strokes are not made up for.
            self.stroke_at = self.stroke_at.max(now.before(r / 2)).after(r);
            self.phase = Phase::Renewing;
            if context.config.check && !context.pauses.is_paused() {
                self.phase = Phase::Checking { began: now, warned: false, beside: false };
                self.run_check(context, now);
            }
        }
        self.advance_check(context, now);
        if self.phase == Phase::Renewing && self.hold.renewal.is_none() {
            self.hold.renew(context, self.hold.write(RecordState::Active), now);
        }
        self.hold.advance(context, now);
    }

    /// Warns of a slow check, and renews the lock beside it in time.
    fn advance_check(&mut self, context: &mut Context, now: Instant) {
        let warn = self.is_over(Timer::SlowCheck, context, now);
        let renew = self.is_over(Timer::RenewBesideCheck, context, now);
        if let Phase::Checking { warned, beside, .. } = &mut self.phase {
            *warned |= warn;
            *beside |= renew;
        }
        if warn {
            context.report(Report::CheckSlow(Ms(context.config.timing.renewal())));
        }
        if renew {
            self.hold.renew(context, self.hold.write(RecordState::Active), now);
        }
    }

    /// Has the guard assert start. Without a guard, start is asserted in the next stroke;
    /// another guard is started at once.
    fn assert_start(&mut self, context: &mut Context, now: Instant) {
        if context.guard.link().is_none() {
            return;
        }
        let runs = self.first_start_runs(context);
        let long = context.config.timing.lock_time().max(context.config.start_grace);
        match &mut self.started {
            Started::No => self.started = Started::At { first: now, warned: false },
            Started::At { first, warned: warned @ false } if runs => {
                // After the loss of a guard the next one runs it again.
                let began = context.guard.since().map_or(*first, |since| since.max(*first));
                let runs_for = now.since(began);
                if runs_for >= long {
                    *warned = true;
                    context.report(Report::StartRuns(Ms(runs_for)));
                }
            }
            Started::At { .. } | Started::ByPreviousInstance => {}
        }
        context.tell_guard(ToGuard::AssertStart, now);
    }

    /// Runs a health check. Its role is `active` once the service was started: before, the check
    /// judges only the host, as on standby.
    fn run_check(&self, context: &mut Context, now: Instant) {
        let role = if self.is_start_asserted() { Role::Active } else { Role::Standby };
        let (deadline, starting) = (self.check_by(context, now), self.first_start_runs(context));
        context.run_check(role, deadline, starting, Some(&self.hold));
    }

    /// Returns when a check is killed: T·(1 − e) after it began, at V at the latest.
    fn check_by(&self, context: &Context, began: Instant) -> Instant {
        began.after(context.config.timing.validity()).min(self.hold.valid_until)
    }

    pub(super) fn set_timers(&self, timers: &mut Timers, context: &Context) {
        self.hold.set_timers(timers, context);
        let r = context.config.timing.renewal();
        // The next stroke waits for the end of this one, and of a check that was killed.
        let is_renewed = matches!(self.phase, Phase::Renewed | Phase::Resting);
        if is_renewed && !context.check_runs {
            timers.set(Timer::Stroke, self.stroke_at);
        }
        if let Phase::Checking { began, warned, beside } = self.phase {
            timers.set(Timer::CheckOver, self.check_by(context, began));
            if !warned {
                timers.set(Timer::SlowCheck, began.after(r));
            }
            if !beside {
                // The renewal is due after R, at R/2 before V at the latest.
                let latest = self.hold.valid_until.before(r / 2);
                timers.set(Timer::RenewBesideCheck, began.after(r).min(latest));
            }
        }
    }

    fn is_over(&self, timer: Timer, context: &Context, now: Instant) -> bool {
        let mut timers = Timers::default();
        self.set_timers(&mut timers, context);
        timers.is_over(timer, now)
    }
}
