//! Failback: the lock goes back to an agent of a higher priority.
//!
//! On standby that agent counts for how long it has been fit. Then it requests the lock from the
//! holder, every R, in a message that nothing stores: a message that is lost costs R. The holder
//! judges by its own setting, stops the service, and releases the lock to the agent that requested
//! it. So a lock moves only when both sides want it, and only to an agent that has lived a moment
//! before. As when a lock is taken, each priority lets those before it go first.

use super::context::Context;
use super::deadline::Timer;
use super::write::attempt;
use crate::core::event::{Effect, FailbackRequest};
use crate::core::priority::Priority;
use crate::core::record::RecordState;
use crate::core::report::{Reason, Report};
use crate::core::seat::Seat;
use crate::core::text::sanitize_field;
use crate::core::time::{Instant, Ms};

/// How an agent on standby gets a lock back.
#[derive(Clone, Debug, Default)]
pub(super) struct Failback {
    /// Since when it is fit without a break.
    fit_since: Option<Instant>,
    /// Since when there is a lock to be requested.
    due_since: Option<Instant>,
    /// When it requested that last.
    requested_at: Option<Instant>,
}

impl Failback {
    /// Requests a lock when that is due. `healthy`: the last health check has passed.
    pub(super) fn advance(&mut self, context: &mut Context, healthy: bool, now: Instant) {
        let fit = healthy && context.is_open() && context.guard.unfit().is_none();
        let Some(after) = context.config.reloadable.failback.filter(|_| fit) else {
            *self = Failback::default();
            return;
        };
        // While the guard asserts stop, it is not known whether the service is down.
        if !context.guard.is_down() {
            return;
        }
        let fit_since = *self.fit_since.get_or_insert(now);
        let Some((seat, than)) = context.seat_to_request(now) else {
            *self = Failback { fit_since: Some(fit_since), ..Failback::default() };
            return;
        };
        let r = context.config.timing.renewal();
        let due_since = *self.due_since.get_or_insert(now);
        let delay = context.config.reloadable.priority.delay(attempt(context));
        let first_at = fit_since.after(after).max(due_since).after(delay);
        let request_at = self.requested_at.map_or(first_at, |at| at.after(r));
        if !context.due(Timer::RequestFailback, request_at, now) {
            return;
        }
        if self.requested_at.is_none() {
            let lock = context.lock_name(seat);
            context.report(Report::RequestsFailback { lock, than });
        }
        self.requested_at = Some(now);
        context.arm(Timer::RequestFailback, now.after(r));
        let (token, priority) = (context.id.token.clone(), context.config.reloadable.priority);
        let fit_for = now.since(fit_since);
        context.want(Effect::RequestFailback(FailbackRequest { seat, token, priority, fit_for }));
    }
}

impl Context {
    /// Returns the seat whose holder has the lowest priority, with that priority, if it is lower
    /// than that of this agent, and no seat is free, changes hands or may be taken.
    fn seat_to_request(&self, now: Instant) -> Option<(Seat, Priority)> {
        let held = |seat: Seat| {
            let seen = self.store.keys[seat.index()].seen.as_ref()?;
            let lease = seen.key_state.value.lease()?;
            let held = lease.state == RecordState::Active && now < self.take_at(seen);
            held.then_some((lease.priority, seat))
        };
        let holders: Option<Vec<_>> = Seat::all(self.config.seats).map(held).collect();
        let last = holders?.into_iter().max()?;
        let (Some(priority), seat) = last else { return None };
        (priority > self.config.reloadable.priority).then_some((seat, priority))
    }

    /// Returns why this agent, which has the lock, gives it to the one that asks; `None` if it does
    /// not.
    pub(super) fn reason_to_give(&self, request: &FailbackRequest) -> Option<Reason> {
        let least = self.config.reloadable.failback?;
        let goes_first =
            request.priority < self.config.reloadable.priority && request.token != self.id.token;
        let given = request.seat == self.seat && goes_first && request.fit_for >= least;
        let token = sanitize_field(&request.token);
        given.then_some(Reason::Failback(token, request.priority, Ms(request.fit_for)))
    }
}
