//! The lock is another's, or nobody's yet: assert stop, check, watch the keys of all seats.
//!
//! Each key is read every R. A round of stop and health check begins every T, as in the flowchart:
//! their results are needed when the lock may be taken, which is T after a change at the earliest.
//! The guard runs stop until it succeeds.

use std::time::Duration;

use log::Level;

use super::context::Context;
use super::deadline::{Timer, Timers};
use super::failback::Failback;
use super::reads::Reads;
use super::stopping::{ServiceLock, Stopping};
use super::store_view::Seen;
use super::taking::Taking;
use super::{Next, State};
use crate::core::command::{Outcome, Role};
use crate::core::event::Event;
use crate::core::protocol::{ServiceState, ToGuard};
use crate::core::report::{Reason, Report};
use crate::core::seat::Seat;
use crate::core::time::Instant;

/// How much longer than the last check a confirming check may take, as a divisor.
const CHECK_SPREAD: u32 = 4;

#[derive(Clone, Debug)]
pub(super) struct Standby {
    /// When the next stroke, which asserts stop, may begin.
    stroke_at: Instant,
    reads: Reads,
    /// No confirming check begins before this instant: the last one failed.
    retry_at: Instant,
    phase: Phase,
    /// How long the last check took, and whether it passed. Without a health check it has.
    check_took: Duration,
    healthy: Option<bool>,
    failback: Failback,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The agent waits for the next stroke, or until the lock may be taken.
    Resting,
    /// The guard of this link asserts stop.
    Stopping { link: u64 },
    /// A check runs: the one of the stroke, or the one that decides on a takeover.
    Checking { began: Instant, decides: bool },
    /// The check that decides on a takeover has passed, and counts for R; the lock may be taken
    /// once its time has come.
    Ready { since: Instant },
}

impl Standby {
    /// Returns the state of an agent that reads the keys at `read_at` for the first time.
    pub(super) fn new(context: &Context, read_at: Instant, now: Instant) -> Standby {
        Standby {
            stroke_at: now,
            reads: Reads::new(context.config.seats, read_at),
            retry_at: now,
            phase: Phase::Resting,
            check_took: Duration::ZERO,
            healthy: (!context.config.check).then_some(true),
            failback: Failback::default(),
        }
    }

    /// Begins to stand by.
    pub(super) fn begin(context: &Context, why: Reason, now: Instant) -> Next {
        Next::Go(State::Standby(Standby::new(context, now, now)), why, Level::Info)
    }

    pub(super) fn turn(mut self, context: &mut Context, event: &Event, now: Instant) -> Next {
        if let Some(ending) = context.store.ending() {
            return Stopping::to_end(context, ServiceLock::None, ending, Reason::Refused, now);
        }
        if let Event::CheckEnded(outcome) = event {
            self.checked(context, outcome, now);
        }
        self.reads.receive(context, event, now);
        self.follow_stop(context, now);
        self.advance(context, now)
    }

    /// Waits for the guard to assert stop: the check comes after that. If the guard is gone, the
    /// next one has to assert stop.
    fn follow_stop(&mut self, context: &mut Context, now: Instant) {
        let Phase::Stopping { link } = self.phase else {
            return;
        };
        if context.guard.link() != Some(link) {
            self.stroke_at = now;
            self.phase = Phase::Resting;
        } else if context.guard.is_down() {
            self.phase = Phase::Resting;
            if !context.check_runs && context.config.check {
                self.check(context, false, now);
            }
        }
    }

    /// Runs a check; none runs.
    fn check(&mut self, context: &mut Context, decides: bool, now: Instant) {
        let deadline = now.after(context.config.timing.lock_time());
        context.run_check(Role::Standby, deadline, false, None);
        self.phase = Phase::Checking { began: now, decides };
    }

    fn checked(&mut self, context: &mut Context, outcome: &Outcome, now: Instant) {
        let Phase::Checking { began, decides } = self.phase else {
            // An earlier state has killed this check.
            return;
        };
        let passed = *outcome == Outcome::Succeeded;
        if self.healthy != Some(passed) {
            context.report(match passed {
                true => Report::Candidate,
                false => Report::NotCandidate(outcome.to_string()),
            });
            self.healthy = Some(passed);
        }
        self.check_took = now.since(began);
        self.phase = if decides && passed { Phase::Ready { since: now } } else { Phase::Resting };
        if decides && !passed {
            self.retry_at = began.after(context.config.timing.renewal()).max(now);
        }
    }

    /// Does the work of this phase, and of each phase that follows at once.
    fn advance(mut self, context: &mut Context, now: Instant) -> Next {
        loop {
            let before = self.phase;
            let to_take = self.seat_to_take(context, now);
            self.reads.advance(context, to_take, now);
            self.failback.advance(context, self.healthy == Some(true), now);
            if let Phase::Ready { .. } = self.phase
                && let Some(next) = self.take_if_due(context, now)
            {
                return next;
            }
            let timers = self.timers(context);
            if timers.is_over(Timer::TakeoverCheck, now) {
                // Without a health check the check has passed.
                match context.config.check {
                    true => self.check(context, true, now),
                    false => self.phase = Phase::Ready { since: now },
                }
            } else if self.must_stop(context) || timers.is_over(Timer::Stroke, now) {
                self.begin_stroke(context, now);
            }
            if self.phase == before {
                return Next::Stay(State::Standby(self));
            }
        }
    }

    /// Takes the lock that may be taken first, if its time has come. An agent that only observes
    /// reports instead that it would take the lock, and rests; an agent whose check is out of date
    /// rests too.
    fn take_if_due(&mut self, context: &mut Context, now: Instant) -> Option<Next> {
        let timers = self.timers(context);
        let is_stale = timers.is_over(Timer::CheckStale, now);
        let Some((seat, seen)) = self.takeable(context).filter(|_| !is_stale) else {
            self.phase = Phase::Resting;
            return None;
        };
        if !timers.is_over(Timer::Take, now) {
            return None;
        }
        if context.config.observes {
            self.reads.report_take(context, seat);
            self.phase = Phase::Resting;
            return None;
        }
        let seen = seen.clone();
        Some(Taking::begin(context, seat, &seen, now))
    }

    /// Has the guard assert stop; the check follows. An agent that only observes begins with the
    /// check.
    fn begin_stroke(&mut self, context: &mut Context, now: Instant) {
        self.stroke_at = now.after(context.config.timing.lock_time());
        match context.guard.link() {
            Some(link) => {
                self.phase = Phase::Stopping { link };
                context.tell_guard(ToGuard::Stop(context.stop_order(now)), now);
            }
            None => self.check(context, false, now),
        }
    }

    /// Returns whether a stroke or a takeover check may begin.
    fn rests(&self, context: &Context) -> bool {
        self.phase == Phase::Resting && !context.check_runs
    }

    pub(super) fn set_timers(&self, timers: &mut Timers, context: &Context) {
        self.reads.set_timers(timers, context);
        self.failback.set_timers(timers, context);
        let config = &context.config;
        let takeable = self.takeable(context).map(|(_, seen)| seen);
        let may_write = takeable.filter(|_| context.store.is_idle());
        if let Phase::Ready { since } = self.phase {
            // A takeover check that has passed counts for R.
            timers.set(Timer::CheckStale, since.after(config.timing.renewal()));
            may_write.iter().for_each(|seen| timers.set(Timer::Take, seen.take_at(config)));
        }
        if !self.rests(context) {
            return;
        }
        if let Some(seen) = may_write {
            // The check begins early, so that it ends when the lock may be taken.
            let lead = self.check_took + self.check_took / CHECK_SPREAD;
            let check_at = seen.take_at(config).before(lead.min(seen.wait(config)));
            timers.set(Timer::TakeoverCheck, check_at.max(self.retry_at));
        }
        // A stroke needs a guard that has answered; the stroke of an agent that only observes is a
        // check.
        let may_begin =
            if config.observes { config.check } else { context.guard.report().is_some() };
        if may_begin && !context.pauses.is_paused() {
            // A stroke that is due less than R before the lock may be taken waits until after the
            // take, which its stop would delay.
            let near = self.stroke_at.after(config.timing.renewal());
            let take_at = takeable.map(|seen| seen.take_at(config)).filter(|at| *at < near);
            let after_take = take_at.map(|at| at.after(config.timing.attempt()));
            timers.set(Timer::Stroke, self.stroke_at.max(after_take.unwrap_or(self.stroke_at)));
        }
    }

    fn timers(&self, context: &Context) -> Timers {
        let mut timers = Timers::default();
        self.set_timers(&mut timers, context);
        timers
    }

    /// Returns the seat whose takeover check, or take, is due now.
    fn seat_to_take(&self, context: &Context, now: Instant) -> Option<Seat> {
        let timers = self.timers(context);
        let is_due = timers.is_over(Timer::TakeoverCheck, now)
            || timers.is_over(Timer::Take, now) && !timers.is_over(Timer::CheckStale, now);
        self.takeable(context).map(|(seat, _)| seat).filter(|_| is_due)
    }

    /// Returns whether the guard asserts stop for the stroke, and is in time. A take waits for its
    /// end.
    fn is_asserting_stop(&self, context: &Context) -> bool {
        let is_of_stroke = matches!(self.phase, Phase::Stopping { .. });
        is_of_stroke && context.guard.service() == Some(&ServiceState::Stopping { overdue: false })
    }

    /// Returns why this agent would not take a free lock; `None` if it would.
    pub(super) fn why_no_candidate<'a>(&self, context: &'a Context) -> Option<&'a str> {
        if context.config.observes {
            Some("it only observes")
        } else if !context.config.priority.is_candidate() {
            Some("priority never")
        } else if let Some(why) = context.obstacle() {
            Some(why)
        } else if !context.guard.is_down() && !self.is_asserting_stop(context) {
            Some("stop has not succeeded yet: see its log")
        } else if self.healthy == Some(false) {
            Some("the health check has failed")
        } else {
            self.healthy.is_none().then_some("no health check has ended yet")
        }
    }

    /// Returns the seat that this agent may take first, its own before all others, and the state of
    /// its key. An agent takes no lock, not even a free one, before its service is known to be
    /// down: nobody else may know of a service that its previous instance left running.
    fn takeable<'a>(&self, context: &'a Context) -> Option<(Seat, &'a Seen)> {
        if context.obstacle().is_some() || !context.guard.is_down() {
            return None;
        }
        let is_candidate = context.config.priority.is_candidate();
        let seen = Seat::all(context.config.seats).filter_map(|seat| {
            let seen = context.store.key_of(seat).seen.as_ref()?;
            let may = is_candidate || seen.takeover.is_of_own();
            let is_reported = self.reads.has_reported_take(seat, seen.key_state.revision);
            (may && !is_reported).then_some((seat, seen))
        });
        seen.min_by_key(|(_, seen)| (!seen.takeover.is_of_own(), seen.take_at(&context.config)))
    }

    /// Returns whether stop is to be asserted at once: the guard reports that the service may run.
    fn must_stop(&self, context: &Context) -> bool {
        let may_run = match context.guard.service() {
            Some(ServiceState::Unknown | ServiceState::Up(..)) => true,
            Some(ServiceState::Down | ServiceState::Stopping { .. }) | None => false,
        };
        may_run && self.rests(context)
    }
}
