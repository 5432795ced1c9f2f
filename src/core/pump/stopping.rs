//! The service must go, and after it the lock: stop first, release after.
//!
//! The guard stops the service. This state waits for its report that the service is down,
//! and then gives the lock back, if it may.

use super::context::Context;
use super::deadline::{Deadline, Timer, earliest};
use super::standby::Standby;
use super::write::{NewWrite, attempt, prepare_write};
use super::{Hold, Next, State, end};
use crate::core::event::{Effect, Ending, Event, Written};
use crate::core::protocol::{Grant, ServiceState, StopOrder, ToGuard};
use crate::core::record::RecordState;
use crate::core::report::{LockLoss, Reason, Report};
use crate::core::stop::Stake;
use crate::core::time::Instant;
use crate::core::timing::SLACK;

/// What becomes of the lock when the service is down.
#[derive(Clone, Debug)]
enum Release {
    /// There is nothing to give back.
    No,
    /// It is given back when the service is down.
    Wanted(Hold),
    /// The service is down; the release waits for the store until this instant.
    Waiting(Hold, Instant),
    /// The release is with the store, and is waited for until this instant.
    Sent(Instant),
}

#[derive(Clone, Debug)]
pub(super) struct Stopping {
    release: Release,
    /// What the guard was told.
    order: StopOrder,
    /// How the agent ends after it, when it was told to.
    ending: Option<Ending>,
    /// When an agent that was told to end does so although the service is not known to be
    /// down.
    give_up_at: Instant,
    /// When a guard that is there has to have said that the service is overdue.
    guard_overdue_by: Instant,
    /// That the service is overdue was seen.
    overdue: bool,
}

impl Stopping {
    /// Stops the service of a lock that cannot be kept, and gives the lock back.
    pub(super) fn and_release(
        context: &mut Context,
        hold: Hold,
        why: Reason,
        now: Instant,
    ) -> Next {
        let stopping = Stopping::of_hold(context, hold, now);
        Next::Go(State::Stopping(stopping), why)
    }

    /// Stops the service of a lock that was lost. Whoever wrote over this agent's record may
    /// count from before now.
    pub(super) fn lost(context: &mut Context, hold: &Hold, why: LockLoss, now: Instant) -> Next {
        let lost_at = hold.valid_until.min(now);
        let lock = context.lock_context(Some(hold));
        let order = StopOrder {
            dead_by: lost_at.after(context.config.timing.stop_budget()),
            stake: Stake::Lock,
            context: lock,
        };
        let stopping = Stopping::new(context, Release::No, order, now);
        Next::Go(State::Stopping(stopping), Reason::Lost(why))
    }

    /// Stops the service that an earlier instance of this agent left running.
    pub(super) fn inherited(
        context: &mut Context,
        grant: Grant,
        why: Reason,
        now: Instant,
    ) -> Next {
        let order = inherited_order(context, grant, now);
        let stopping = Stopping::new(context, Release::No, order, now);
        Next::Go(State::Stopping(stopping), why)
    }

    /// Stops the service, gives a lock back that is held, and ends.
    pub(super) fn hold_to_end(
        context: &mut Context,
        hold: Hold,
        why: Reason,
        now: Instant,
    ) -> Next {
        let mut stopping = Stopping::of_hold(context, hold, now);
        stopping.end_with(Ending::Clean, context, now);
        Next::Go(State::Stopping(stopping), why)
    }

    /// Stops what an earlier instance left running, if anything, and ends. No lock is held.
    pub(super) fn to_end(
        context: &mut Context,
        inherited: Option<Grant>,
        ending: Ending,
        why: Reason,
        now: Instant,
    ) -> Next {
        if context.guard.is_down() {
            context.kill_check();
            context.report(Report::Ends(why));
            return end(context, ending);
        }
        let order = match inherited {
            Some(grant) => inherited_order(context, grant, now),
            None => StopOrder {
                dead_by: now.after(context.config.timing.stop_budget()),
                stake: Stake::Assurance,
                context: context.lock_context(None),
            },
        };
        let mut stopping = Stopping::new(context, Release::No, order, now);
        stopping.end_with(ending, context, now);
        Next::Go(State::Stopping(stopping), why)
    }

    fn of_hold(context: &mut Context, hold: Hold, now: Instant) -> Stopping {
        let order = StopOrder {
            dead_by: hold.valid_until.after(context.config.timing.stop_budget()),
            stake: Stake::Lock,
            context: context.lock_context(Some(&hold)),
        };
        Stopping::new(context, Release::Wanted(hold), order, now)
    }

    fn new(context: &mut Context, release: Release, order: StopOrder, now: Instant) -> Stopping {
        context.kill_check();
        context.tell_guard(ToGuard::Stop(order.clone()), now);
        Stopping {
            release,
            give_up_at: order.dead_by,
            guard_overdue_by: order.dead_by.max(now).after(SLACK / 2),
            order,
            ending: None,
            overdue: false,
        }
    }

    fn end_with(&mut self, ending: Ending, context: &Context, now: Instant) {
        if self.ending.is_none() {
            self.ending = Some(ending);
            let r = context.config.timing.renewal();
            self.give_up_at = self.order.dead_by.max(now).after(r);
        }
    }

    /// Returns what a new guard has to be told.
    pub(super) fn order(&self) -> &StopOrder {
        &self.order
    }

    pub(super) fn turn(mut self, context: &mut Context, event: &Event, now: Instant) -> Next {
        match event {
            Event::Shutdown(_) => self.end_with(Ending::Clean, context, now),
            Event::Written(written) => self.written(context, written),
            Event::Closed(_) => self.not_released(context),
            Event::Tick
            | Event::Opened(_)
            | Event::Rejected(_)
            | Event::Read(_)
            | Event::Hint(_)
            | Event::DuplicateToken(_)
            | Event::Guard(..)
            | Event::CheckEnded(_)
            | Event::Upgrade => {}
        }
        if context.store.rolled_back.is_some() {
            self.release = Release::No;
        }
        self.advance(context, now)
    }

    /// An answer to a renewal that was still under way says which revision to release; an
    /// answer to the release ends it. One attempt only.
    fn written(&mut self, context: &mut Context, written: &Written) {
        match (&mut self.release, written) {
            (Release::Sent(_), Written::Stored(revision)) => {
                context.report(Report::Released(*revision));
                self.release = Release::No;
            }
            (Release::Sent(_), Written::Moved(_)) => {
                context.report(Report::NothingToRelease);
                self.release = Release::No;
            }
            (Release::Sent(_), Written::Denied(_) | Written::Unknown(_)) => {
                self.not_released(context);
            }
            (Release::Wanted(hold) | Release::Waiting(hold, _), Written::Stored(revision)) => {
                hold.revision = *revision;
            }
            (Release::Wanted(_) | Release::Waiting(..), Written::Moved(_)) => {
                self.release = Release::No;
            }
            (
                Release::Wanted(_) | Release::Waiting(..),
                Written::Denied(_) | Written::Unknown(_),
            )
            | (Release::No, _) => {}
        }
    }

    /// The release, if one is under way, came to nothing.
    fn not_released(&mut self, context: &mut Context) {
        if let Release::Sent(_) = self.release {
            context.report(Report::NotReleased);
            self.release = Release::No;
        }
    }

    fn advance(mut self, context: &mut Context, now: Instant) -> Next {
        if !context.guard.is_down() {
            self.become_overdue(context, now);
            if self.ending.is_some() && now >= self.give_up_at {
                return end(context, Ending::NotStopped);
            }
            return Next::Stay(State::Stopping(self));
        }
        if let Release::Sent(until) = self.release
            && now >= until
        {
            self.not_released(context);
        }
        self.release = self.release.advance(context, now);
        match self.release {
            Release::No => self.done(context, now),
            Release::Wanted(_) | Release::Waiting(..) | Release::Sent(_) => {
                Next::Stay(State::Stopping(self))
            }
        }
    }

    /// Without a guard that acts, nobody but this agent can end the service, and that in one
    /// way only. A guard acts when it says that the service is overdue.
    fn become_overdue(&mut self, context: &mut Context, now: Instant) {
        let guard_acts = context.guard.service() == Some(&ServiceState::Stopping { overdue: true });
        if self.overdue || (!guard_acts && now < self.overdue_at(context)) {
            return;
        }
        self.overdue = true;
        if !guard_acts {
            context.want(Effect::KillCgroup);
            if self.order.stake == Stake::Lock {
                context.report(Report::MayStillRun);
            }
        }
    }

    fn overdue_at(&self, context: &Context) -> Instant {
        if context.guard.is_present() { self.guard_overdue_by } else { self.order.dead_by }
    }

    fn done(self, context: &mut Context, now: Instant) -> Next {
        if let Some(ending) = self.ending {
            return end(context, ending);
        }
        let why = if now > self.order.dead_by {
            Reason::DownLate
        } else {
            Reason::Down(self.order.dead_by.since(now))
        };
        Next::Go(State::Standby(Standby::new(now)), why)
    }

    pub(super) fn deadline(&self, context: &Context) -> Option<Deadline> {
        if context.guard.is_down() {
            return match self.release {
                Release::Waiting(_, until) | Release::Sent(until) => {
                    Some(Timer::GiveUpRelease.at(until))
                }
                Release::No | Release::Wanted(_) => None,
            };
        }
        let dead_by = (!self.overdue).then(|| Timer::DeadBy.at(self.overdue_at(context)));
        let give_up = self.ending.as_ref().map(|_| Timer::GiveUpStop.at(self.give_up_at));
        earliest(dead_by, give_up)
    }
}

impl Release {
    /// Goes one step on; the service is down.
    fn advance(self, context: &mut Context, now: Instant) -> Release {
        let (hold, until) = match self {
            Release::Wanted(hold) => (hold, now.after(attempt(context))),
            Release::Waiting(hold, until) => (hold, until),
            Release::No | Release::Sent(_) => return self,
        };
        if !context.is_open() || now >= until {
            return Release::No;
        }
        if !context.is_idle() {
            return Release::Waiting(hold, until);
        }
        let write = NewWrite {
            expected: hold.revision,
            state: RecordState::Released,
            term: Some(hold.term),
            grace: context.config.timing.confirmation(),
        };
        let until = now.after(attempt(context));
        prepare_write(context, write, now, until).advance(context, now);
        Release::Sent(until)
    }
}

/// Of an earlier instance's lock the stop budget is what is left of it, but not more than a
/// loss that was noticed now would have.
fn inherited_order(context: &Context, grant: Grant, now: Instant) -> StopOrder {
    let budget = context.config.timing.stop_budget();
    StopOrder {
        dead_by: grant.dead_by.min(now.after(budget)),
        stake: Stake::Lock,
        context: grant.context,
    }
}
