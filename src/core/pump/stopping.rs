//! The service is stopped first, and the lock is released after that.
//!
//! The guard stops the service. This state waits for its report that the service is down,
//! and then gives the lock back, if it may.

use std::time::Duration;

use log::Level;

use super::context::Context;
use super::deadline::{Timer, Timers};
use super::hold::Hold;
use super::standby::Standby;
use super::write::{NewWrite, prepare_write};
use super::{Next, State, end};
use crate::core::event::{Effect, Ending, Event, Written};
use crate::core::protocol::{Grant, ServiceState, Stake, StopOrder, ToGuard};
use crate::core::record::RecordState;
use crate::core::report::{Reason, Report};
use crate::core::service_report::ServiceReport;
use crate::core::text::sanitize_field;
use crate::core::time::{Instant, Ms};
use crate::core::timing::SLACK;

/// The lock under which the service may have been started.
pub(super) enum ServiceLock {
    /// No lock is known.
    None,
    /// The lock is held, and given back by this write when the service is down.
    Held(Grant, NewWrite),
    /// The lock was lost, or is the previous instance's. An agent that has overwritten the record
    /// may count its wait from before now.
    Lost(Grant),
}

impl ServiceLock {
    /// Returns a held lock, which is released to the agent with this token if one is named.
    pub(super) fn held(context: &Context, hold: &Hold, to: Option<String>) -> ServiceLock {
        let write = NewWrite { released_to: to, ..hold.write(RecordState::Released) };
        ServiceLock::Held(hold.grant(context), write)
    }

    /// Returns the lock of the previous instance, if that has left the service running.
    pub(super) fn inherited(grant: Option<Grant>) -> ServiceLock {
        grant.map_or(ServiceLock::None, ServiceLock::Lost)
    }
}

/// The release of the lock, which is due when the service is down.
#[derive(Clone, Debug)]
enum Release {
    /// There is nothing to give back.
    No,
    /// The lock is given back by this write when the service is down.
    Wanted(NewWrite),
    /// The release was sent, and is not answered.
    Sent,
}

#[derive(Clone, Debug)]
pub(super) struct Stopping {
    release: Release,
    /// When the release is given up; `None` before the service is down.
    release_by: Option<Instant>,
    /// The order that the guard was given, and that a new guard has to be told.
    pub(super) order: StopOrder,
    /// How the agent ends after the stop, if it was told to end.
    ending: Option<Ending>,
    /// When an agent that was told to end does so although the service is not known to be
    /// down.
    give_up_at: Instant,
    /// When a connected guard has to have reported that the service is overdue.
    guard_overdue_by: Instant,
    /// The agent was suspended when the service had to be down.
    was_suspended: bool,
    /// The agent has seen that the service is overdue.
    overdue: bool,
}

impl Stopping {
    /// Stops the service, and then gives the lock back if it is held.
    pub(super) fn begin(
        context: &mut Context,
        lock: ServiceLock,
        why: Reason,
        now: Instant,
    ) -> Next {
        Next::Go(State::Stopping(Stopping::new(context, lock, now)), why, Level::Warn)
    }

    /// Stops the service, and gives the lock to the agent with this token.
    pub(super) fn hand_over(context: &mut Context, hold: &Hold, to: &str, now: Instant) -> Next {
        let lock = ServiceLock::held(context, hold, Some(to.to_owned()));
        let stopping = Stopping::new(context, lock, now);
        Next::Go(State::Stopping(stopping), Reason::Switchover(sanitize_field(to)), Level::Info)
    }

    /// Stops the service and ends the agent, at once where there is nothing to stop or give back.
    pub(super) fn to_end(
        context: &mut Context,
        lock: ServiceLock,
        ending: Ending,
        why: Reason,
        now: Instant,
    ) -> Next {
        if context.guard.is_down() && !matches!(lock, ServiceLock::Held(..)) {
            context.kill_check();
            context.report(Report::Ends(why));
            return end(context, ending);
        }
        let mut stopping = Stopping::new(context, lock, now);
        let level = match (&ending, stopping.order.stake) {
            (Ending::Rejected(_), Stake::Lock) => Level::Warn,
            // The agent says at its end why the store is refused.
            (Ending::Rejected(_), Stake::Assurance) => Level::Debug,
            (Ending::Clean | Ending::NotStopped, _) => Level::Info,
        };
        stopping.end_with(ending, context, now);
        Next::Go(State::Stopping(stopping), why, level)
    }

    fn new(context: &mut Context, lock: ServiceLock, now: Instant) -> Stopping {
        let mut release = Release::No;
        let order = match lock {
            ServiceLock::None => context.stop_order(now),
            ServiceLock::Held(grant, write) => {
                release = Release::Wanted(write);
                grant.stop_order()
            }
            // The lock of a seat that the settings have no more was not lost.
            ServiceLock::Lost(grant) if context.seat_gone(&grant).is_some() => grant.stop_order(),
            ServiceLock::Lost(grant) => {
                let counts_from = grant.valid_until.min(now);
                let dead_by = counts_from.after(context.config.timing.stop_budget());
                StopOrder { dead_by, ..grant.stop_order() }
            }
        };
        context.kill_check();
        context.tell_guard(ToGuard::Stop(order.clone()), now);
        let was_suspended = now > order.dead_by.after(SLACK);
        Stopping {
            release,
            release_by: None,
            give_up_at: order.dead_by,
            guard_overdue_by: match was_suspended {
                true => guard_report_by(context, now),
                false => order.dead_by.max(now).after(SLACK / 2),
            },
            order,
            ending: None,
            was_suspended: false,
            overdue: false,
        }
    }

    fn end_with(&mut self, ending: Ending, context: &Context, now: Instant) {
        if self.ending.is_none() {
            self.ending = Some(ending);
            let replaced_within = context.config.timing.guard_replaced_within();
            self.give_up_at = self.order.dead_by.max(now).after(replaced_within);
            if !self.overdue && now > self.order.dead_by.after(SLACK) {
                self.wait_for_an_attempt(context, now);
            }
        }
    }

    /// This agent, and its guard as a rule, were suspended when the service had to be down: stop
    /// has a whole attempt from now on.
    fn wait_for_an_attempt(&mut self, context: &Context, now: Instant) {
        let timing = context.config.timing;
        let attempt_ends = now.after(timing.stop_budget());
        self.give_up_at = attempt_ends.after(timing.guard_replaced_within());
    }

    pub(super) fn turn(mut self, context: &mut Context, event: &Event, now: Instant) -> Next {
        if let Event::Shutdown(_) = event {
            self.end_with(Ending::Clean, context, now);
        } else if let Event::Written(written) = event {
            self.written(context, written);
        } else if let (Release::Sent, Event::Closed(_)) = (&self.release, event) {
            self.drop_release(Report::NotReleased, context);
        }
        // In a restored store, another agent may have written at the revision of this lock.
        if context.foreign_key(event).is_some() {
            self.drop_release(Report::NothingToRelease, context);
        } else if context.store.rolled_back {
            self.drop_release(Report::NotReleased, context);
        }
        self.advance(context, now)
    }

    /// An answer to a renewal that was still under way tells which revision to release; an answer
    /// to the release ends it. The agent makes one attempt only.
    fn written(&mut self, context: &mut Context, written: &Written) {
        if let Written::Stored(revision) = written {
            context.store.key_mut().stored = Some(*revision);
        }
        match (&mut self.release, written) {
            (Release::Sent, Written::Stored(revision)) => {
                self.drop_release(Report::Released(*revision), context);
            }
            (Release::Wanted(write), Written::Stored(stored)) => write.expected = *stored,
            (_, Written::Moved(_)) => self.drop_release(Report::NothingToRelease, context),
            (Release::Sent, Written::Denied(_) | Written::Unknown(_)) => {
                self.drop_release(Report::NotReleased, context);
            }
            (Release::Wanted(_), Written::Denied(_) | Written::Unknown(_)) | (Release::No, _) => {}
        }
    }

    /// Ends the release, with this report if a release was wanted.
    fn drop_release(&mut self, report: Report, context: &mut Context) {
        if !matches!(self.release, Release::No) {
            context.report(report);
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
        self.advance_release(context, now);
        match self.release {
            Release::No => self.done(context, now),
            Release::Wanted(_) | Release::Sent => Next::Stay(State::Stopping(self)),
        }
    }

    /// Gives the lock back when the store is idle; the service is down.
    fn advance_release(&mut self, context: &mut Context, now: Instant) {
        let attempt = now.after(context.config.timing.attempt());
        let release_by = *self.release_by.get_or_insert(attempt);
        match &self.release {
            Release::Wanted(write) if context.store.is_idle() && now < release_by => {
                prepare_write(context, write.clone(), now, attempt).advance(context, now);
                self.release = Release::Sent;
                self.release_by = Some(attempt);
            }
            Release::Wanted(_) if !context.store.is_open() => {
                self.drop_release(Report::NotReleased, context);
            }
            Release::Wanted(_) | Release::Sent if now >= release_by => {
                self.drop_release(Report::NotReleased, context);
            }
            Release::No | Release::Wanted(_) | Release::Sent => {}
        }
    }

    /// Without a guard that acts, only this agent can end the service, and only by killing the
    /// control group. A guard acts when it says that the service is overdue.
    fn become_overdue(&mut self, context: &mut Context, now: Instant) {
        let guard_acts = guard_acts(context);
        let at = self.overdue_at(context);
        if self.overdue || (!guard_acts && now < at) {
            return;
        }
        if now > at.after(SLACK) && !self.was_suspended {
            self.was_suspended = true;
            self.wait_for_an_attempt(context, now);
            if !guard_acts && context.guard.link().is_some() {
                self.guard_overdue_by = guard_report_by(context, now);
                return;
            }
        }
        self.overdue = true;
        if !guard_acts {
            context.want(Effect::KillCgroup);
            if self.order.stake == Stake::Lock {
                context.report(Report::Service(ServiceReport::MayStillRun));
            }
        }
    }

    /// Returns whether the service, which had a lock, had to be down by now.
    pub(super) fn may_still_run(&self) -> bool {
        self.overdue && self.order.stake == Stake::Lock
    }

    pub(super) fn set_timers(&self, timers: &mut Timers, context: &Context) {
        if context.guard.is_down() {
            self.release_by.iter().for_each(|at| timers.set(Timer::GiveUpRelease, *at));
            return;
        }
        if !self.overdue && !guard_acts(context) {
            timers.set(Timer::DeadBy, self.overdue_at(context));
        }
        if self.ending.is_some() {
            timers.set(Timer::GiveUpStop, self.give_up_at);
        }
    }

    fn overdue_at(&self, context: &Context) -> Instant {
        if context.guard.link().is_some() { self.guard_overdue_by } else { self.order.dead_by }
    }

    fn done(self, context: &mut Context, now: Instant) -> Next {
        if let Some(ending) = self.ending {
            return end(context, ending);
        }
        let why = if now > self.order.dead_by {
            Reason::DownLate(Ms(now.since(self.order.dead_by)))
        } else {
            Reason::Down(Ms(self.order.dead_by.since(now)))
        };
        Standby::begin(context, why, now)
    }
}

/// Returns whether the guard has noticed that the service is overdue, and ends it.
fn guard_acts(context: &Context) -> bool {
    context.guard.service() == Some(&ServiceState::Stopping { overdue: true })
}

/// The longest time that an agent which was suspended waits for a report of its guard.
const REPORT_WITHIN: Duration = Duration::from_millis(250);

/// Returns until when an agent that was suspended waits for its guard to act: a report of the guard
/// may not have been read yet, and a host that was suspended is busy.
fn guard_report_by(context: &Context, now: Instant) -> Instant {
    now.after(REPORT_WITHIN.min(context.config.timing.renewal() / 4))
}
