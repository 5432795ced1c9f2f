//! The lock is this agent's: check, renew, assert start, every R.
//!
//! A check may take as long as the lock is valid from when the check began. One
//! that runs over R would leave no time to renew after it, so the lock is renewed
//! once beside it.

use super::context::Context;
use super::deadline::{Deadline, Timer, earliest};
use super::stopping::Stopping;
use super::write::{NewWrite, Pending, Verdict, prepare_write};
use super::{Hold, Next, State};
use crate::core::command::{Command, Outcome, Role, Run};
use crate::core::event::{Effect, Event};
use crate::core::protocol::{Grant, ServiceState, ToGuard};
use crate::core::record::{RecordState, Revision};
use crate::core::report::{Excuse, LockLoss, Reason, Report};
use crate::core::time::Instant;

#[derive(Clone, Debug)]
pub(super) struct Active {
    hold: Hold,
    stroke_at: Instant,
    phase: Phase,
    /// The renewal that is under way.
    renewal: Option<Box<Pending>>,
    /// V of the last grant that the guard was told; `None` before the first.
    granted_until: Option<Instant>,
    started: Started,
    /// Active checks that have failed, since one passed.
    check_failures: u32,
}

/// Whether start was asserted in this term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Started {
    /// Not yet.
    No,
    /// For the first time at this instant.
    At(Instant),
    /// By an earlier instance of this agent, which has left the service running.
    Earlier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The stroke begins.
    Due,
    /// The check runs: whether it was said to run over R, and whether the lock was
    /// renewed beside it.
    Checking { began: Instant, warned: bool, beside: bool },
    /// The check has passed; the renewal is under way.
    Renewing,
    /// The lock is renewed; start is to be asserted.
    Renewed,
    /// Until the next stroke.
    Resting,
}

impl Active {
    /// A free lock was just taken, after a check: that was this stroke's renewal.
    pub(super) fn taken(hold: Hold, now: Instant) -> Active {
        Active { phase: Phase::Renewed, ..Active::confirmed(hold, now) }
    }

    /// The service runs already: a previous life of this agent started it.
    pub(super) fn adopted(hold: Hold, now: Instant) -> Active {
        Active { started: Started::Earlier, ..Active::confirmed(hold, now) }
    }

    /// The wait for the holder before is over: the stroke that starts the service
    /// begins with a check and a renewal.
    pub(super) fn confirmed(hold: Hold, now: Instant) -> Active {
        Active {
            hold,
            stroke_at: now,
            phase: Phase::Due,
            renewal: None,
            granted_until: None,
            started: Started::No,
            check_failures: 0,
        }
    }

    /// Returns what the guard is told of the lock.
    pub(super) fn grant(&self, context: &Context) -> Grant {
        let valid_until = self.hold.valid_until;
        Grant {
            holder: context.id.incarnation,
            context: context.lock_context(Some(&self.hold)),
            valid_until,
            dead_by: valid_until.after(context.config.timing.stop_budget()),
        }
    }

    pub(super) fn turn(mut self, context: &mut Context, event: &Event, now: Instant) -> Next {
        match event {
            Event::Shutdown(signal) => {
                return Stopping::hold_to_end(context, self.hold, Reason::Told(signal), now);
            }
            Event::CheckEnded(outcome) => {
                if let Phase::Checking { began, .. } = self.phase {
                    if let Some(why) = self.judge_check(context, outcome, began, now) {
                        return Stopping::and_release(context, self.hold, why, now);
                    }
                    self.phase = Phase::Renewing;
                }
            }
            Event::Tick
            | Event::Opened(_)
            | Event::Closed(_)
            | Event::Rejected(_)
            | Event::Read(_)
            | Event::Written(_)
            | Event::Hint(_)
            | Event::DuplicateToken(_)
            | Event::Guard(..)
            | Event::Upgrade => {}
        }
        let lost = self.receive_renewal(context, event, now);
        if let Some(why) = lost.or_else(|| self.hold.contradicted(context, event)) {
            return Stopping::lost(context, &self.hold, why, now);
        }
        if now >= self.hold.valid_until {
            let why = LockLoss::NotRenewed(context.config.timing.validity());
            return Stopping::lost(context, &self.hold, why, now);
        }
        if let Some(why) = self.guard_objects(context) {
            return Stopping::and_release(context, self.hold, why, now);
        }
        if let Some(at) = self.check_by(context)
            && now >= at
        {
            let why = Reason::CheckHangs(context.config.timing.validity());
            return Stopping::and_release(context, self.hold, why, now);
        }
        self.advance(context, now);
        Next::Stay(State::Active(self))
    }

    /// Says why the service has to be stopped, when the guard will not let it run.
    fn guard_objects(&self, context: &Context) -> Option<Reason> {
        let report = context.guard.report()?;
        self.granted_until?;
        if report.unfit.is_some() {
            return Some(Reason::Unfit);
        }
        match &report.service {
            ServiceState::Up(..) => None,
            ServiceState::Unknown | ServiceState::Down | ServiceState::Stopping { .. } => {
                Some(Reason::GuardStopped)
            }
        }
    }

    /// Says why the service has to move, if a health check that has ended says so.
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
            Outcome::Overran => {
                return Some(Reason::CheckKilled(now.since(began)));
            }
            Outcome::Failed(why) => why.clone(),
        };
        if let Some(excuse) = self.excuse(context, now) {
            context.report(Report::CheckExcused(why, excuse));
            return None;
        }
        self.check_failures += 1;
        let most = context.config.check_failures;
        if self.check_failures >= most || self.started == Started::No {
            return Some(Reason::CheckFailed(why));
        }
        let excuse = Excuse::Failure(self.check_failures, most);
        context.report(Report::CheckExcused(why, excuse));
        None
    }

    /// Says why a failing check of a service that has only just been started does not count.
    fn excuse(&self, context: &Context, now: Instant) -> Option<Excuse> {
        let grace = context.config.start_grace;
        if let Started::At(first) = self.started
            && now < first.after(grace)
        {
            return Some(Excuse::Grace(grace));
        }
        self.first_start_runs(context).then_some(Excuse::StartRuns)
    }

    fn first_start_runs(&self, context: &Context) -> bool {
        let asserted = match self.started {
            Started::No => false,
            Started::At(_) | Started::Earlier => true,
        };
        context.guard.first_start_runs(asserted)
    }

    /// Takes in what became of the renewal; says why, when the lock is lost.
    fn receive_renewal(
        &mut self,
        context: &mut Context,
        event: &Event,
        now: Instant,
    ) -> Option<LockLoss> {
        match self.renewal.as_mut()?.receive(context, event, now) {
            Verdict::Open => None,
            Verdict::Held { revision, sent } => {
                self.renewal = None;
                self.hold.renewed(context, revision, sent);
                match self.phase {
                    Phase::Renewing => self.phase = Phase::Renewed,
                    Phase::Checking { .. } => {
                        if let Some(at) = self.check_by(context) {
                            context.want(Effect::ExtendCheck(at));
                        }
                    }
                    Phase::Due | Phase::Renewed | Phase::Resting => {}
                }
                None
            }
            Verdict::Lost(why) => Some(why),
        }
    }

    fn advance(&mut self, context: &mut Context, now: Instant) {
        let r = context.config.timing.renewal();
        if self.granted_until != Some(self.hold.valid_until) {
            self.granted_until = Some(self.hold.valid_until);
            let grant = self.grant(context);
            context.tell_guard(ToGuard::Grant(grant), now);
        }
        if self.phase == Phase::Renewed {
            self.phase = Phase::Resting;
            self.assert_start(context, now);
        }
        if self.phase == Phase::Resting && now >= self.stroke_at.after(r) {
            // At once when it ran over, but then the lost time is lost.
            self.stroke_at = self.stroke_at.after(r).max(now.before(r / 2));
            self.phase = Phase::Due;
        }
        if self.phase == Phase::Due && !context.check_runs {
            self.phase = Phase::Renewing;
            if context.config.check {
                self.phase = Phase::Checking { began: now, warned: false, beside: false };
                let deadline = self.check_by(context).unwrap_or(now);
                self.run_check(context, deadline);
            }
        }
        self.advance_check(context, now);
        if self.phase == Phase::Renewing && self.renewal.is_none() {
            self.renew(context, now);
        }
        match &mut self.renewal {
            Some(renewal) => renewal.advance(context, now),
            None => self.hold.follow_hint(context, now),
        }
        self.upgrade(context);
    }

    /// Executes the program anew when nothing is under way that it would have to know of.
    fn upgrade(&self, context: &mut Context) {
        let quiet = self.phase == Phase::Resting && self.renewal.is_none() && !context.check_runs;
        let up = matches!(context.guard.service(), Some(ServiceState::Up(..)));
        if context.upgrade && quiet && up && context.is_idle() {
            context.upgrade = false;
            context.want(Effect::Upgrade);
        }
    }

    /// Warns of a slow check, and renews the lock beside it in time.
    fn advance_check(&mut self, context: &mut Context, now: Instant) {
        let r = context.config.timing.renewal();
        if let Phase::Checking { began, warned, beside } = self.phase {
            let warn = !warned && now >= began.after(r);
            if warn {
                context.report(Report::CheckSlow(r));
            }
            let renew = !beside && now >= self.beside_at(began, context);
            if renew {
                self.renew(context, now);
            }
            self.phase = Phase::Checking { began, warned: warned || warn, beside: beside || renew };
        }
    }

    /// Without a guard, which another takes the place of at once, this waits for the next
    /// stroke.
    fn assert_start(&mut self, context: &mut Context, now: Instant) {
        if !context.guard.is_present() {
            return;
        }
        if self.started == Started::No {
            self.started = Started::At(now);
        }
        context.tell_guard(ToGuard::AssertStart, now);
    }

    /// A check is told `active` once the service was started: before, it can only
    /// judge what a standby's check does.
    fn run_check(&self, context: &mut Context, deadline: Instant) {
        let role = match self.started {
            Started::No => Role::Standby,
            Started::At(_) | Started::Earlier => Role::Active,
        };
        let check = Run {
            command: Command::Check,
            role,
            deadline,
            starting: self.first_start_runs(context),
            context: context.lock_context(Some(&self.hold)),
        };
        context.run_check(check);
    }

    fn renew(&mut self, context: &mut Context, now: Instant) {
        let write = NewWrite {
            expected: self.hold.revision,
            state: RecordState::Active,
            term: Some(self.hold.term),
            grace: context.config.timing.confirmation(),
        };
        self.renewal = Some(Box::new(prepare_write(context, write, now, self.hold.valid_until)));
    }

    /// Returns when the running check is killed: when the lock runs out, and not
    /// later than it would have without the renewal beside the check.
    fn check_by(&self, context: &Context) -> Option<Instant> {
        let Phase::Checking { began, .. } = self.phase else {
            return None;
        };
        Some(began.after(context.config.timing.validity()).min(self.hold.valid_until))
    }

    /// Returns when the lock is renewed beside a check that has not ended: after R,
    /// or while there is still time for it.
    fn beside_at(&self, began: Instant, context: &Context) -> Instant {
        let r = context.config.timing.renewal();
        began.after(r).min(self.hold.valid_until.before(r / 2))
    }

    pub(super) fn deadline(&self, context: &Context) -> Option<Deadline> {
        let r = context.config.timing.renewal();
        let step = match self.phase {
            Phase::Resting => Some(Timer::Stroke.at(self.stroke_at.after(r))),
            Phase::Checking { began, warned, beside } => {
                let over = self.check_by(context).map(|at| Timer::CheckOver.at(at));
                let renew = Timer::RenewBesideCheck.at(self.beside_at(began, context));
                let warn = Timer::SlowCheck.at(began.after(r));
                let beside = (!beside).then_some(renew);
                earliest(over, earliest(beside, (!warned).then_some(warn)))
            }
            Phase::Due | Phase::Renewing | Phase::Renewed => None,
        };
        let renewal = self.renewal.as_ref().and_then(|renewal| renewal.deadline(context));
        let over = Timer::LockOver.at(self.hold.valid_until);
        earliest(Some(over), earliest(step, renewal))
    }
}

impl Hold {
    /// A renewal was acknowledged as this revision; `sent` is when it was sent.
    pub(super) fn renewed(&mut self, context: &Context, revision: Revision, sent: Instant) {
        self.revision = revision;
        self.valid_until = sent.after(context.config.timing.validity());
    }

    /// Says why, when an event shows that the lock is not this agent's any more:
    /// a rollback, or a newer record of somebody else.
    pub(super) fn contradicted(&self, context: &Context, event: &Event) -> Option<LockLoss> {
        if let Some(how) = &context.store.rolled_back {
            return Some(LockLoss::RolledBack(Some(how.clone())));
        }
        let key_state = match event {
            Event::Opened(opened) => &opened.key_state,
            Event::Read(Ok(key_state)) => key_state,
            Event::Tick
            | Event::Closed(_)
            | Event::Rejected(_)
            | Event::Read(Err(_))
            | Event::Written(_)
            | Event::Hint(_)
            | Event::DuplicateToken(_)
            | Event::Guard(..)
            | Event::CheckEnded(_)
            | Event::Upgrade
            | Event::Shutdown(_) => return None,
        };
        if key_state.revision < self.revision || context.is_mine(key_state) {
            return None;
        }
        let seen = context.store.seen.as_ref();
        let holder = seen.map(|seen| seen.takeover.holder.clone());
        Some(LockLoss::HeldBy(key_state.revision, holder))
    }

    /// A hint wakes, a read decides: asks for one when a hint names a revision
    /// that this agent did not write.
    pub(super) fn follow_hint(&self, context: &mut Context, now: Instant) {
        if context.store.hinted > self.revision && context.is_idle() {
            context.read(now);
        }
    }
}
