//! Failback: the lock goes back to an agent of a higher priority.
//!
//! On standby that agent counts for how long it has been fit. Then it requests the lock from the
//! holder, every R, in a message that nothing stores: a message that is lost costs R. The holder
//! judges by its own setting, stops the service, and releases the lock to the agent that requested
//! it. So a lock moves only when both sides want it, and only to an agent that has lived a moment
//! before. As when a lock is taken, each priority lets those before it go first.
//!
//! An agent may be fit on standby and not when it is active. So whoever requests a lock again,
//! without having run the service for long enough since, waits for twice as long each time; and
//! whoever has taken a lock gives it to nobody for a while.

use std::time::Duration;

use super::context::Context;
use super::deadline::Timer;
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
    /// When the last turn was.
    turned_at: Option<Instant>,
    /// Since when it is fit without a break.
    fit_since: Option<Instant>,
    /// Since when there is a lock to be requested.
    due_since: Option<Instant>,
    /// When it requested that last.
    requested_at: Option<Instant>,
    /// How many times it did so in a row.
    requests: usize,
}

/// A failback that is tried again and again: how many times since the last one that was good.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tries(u32);

/// Limit of [`Tries`], which double a time.
const TRIES_MAX: u32 = 10;

/// How many requests for a seat are made before another seat is requested.
const REQUESTS_MAX: usize = 3;

impl Failback {
    /// Nothing is known but when the turn is.
    fn at(now: Instant) -> Failback {
        Failback { turned_at: Some(now), ..Failback::default() }
    }

    /// Requests a lock when that is due. `healthy`: the last health check has passed.
    pub(super) fn advance(&mut self, context: &mut Context, healthy: bool, now: Instant) {
        let r = context.config.timing.renewal();
        // An agent on standby has a turn every R, unless it was stopped or its host suspended.
        if self.turned_at.replace(now).is_some_and(|at| now > at.after(r * 2)) {
            *self = Failback::at(now);
        }
        let able = context.is_open() && context.store.refused.is_none() && context.pause.is_none();
        let fit = healthy && able && context.guard.unfit().is_none();
        let Some(after) = context.failback_wait().filter(|_| fit) else {
            *self = Failback::at(now);
            return;
        };
        // While the guard asserts stop, it is not known whether the service is down.
        if !context.guard.is_down() {
            return;
        }
        let fit_since = *self.fit_since.get_or_insert(now);
        let Some((seat, than)) = context.seat_to_request(self.requests, now) else {
            *self = Failback { fit_since: Some(fit_since), ..Failback::at(now) };
            return;
        };
        let due_since = *self.due_since.get_or_insert(now);
        let delay = context.config.priority.delay(context.config.timing.attempt());
        let first_at = fit_since.after(after).max(due_since).after(delay);
        let request_at = self.requested_at.map_or(first_at, |at| at.after(r));
        if !context.due(Timer::RequestFailback, request_at, now) {
            return;
        }
        if self.requested_at.is_none() {
            context.failback_tries.0 = (context.failback_tries.0 + 1).min(TRIES_MAX);
            let lock = context.lock_name(seat);
            context.report(Report::RequestsFailback { lock, than });
        }
        self.requested_at = Some(now);
        self.requests += 1;
        context.arm(Timer::RequestFailback, now.after(r));
        let (token, priority) = (context.id.token.clone(), context.config.priority);
        let fit_for = now.since(fit_since);
        context.want(Effect::RequestFailback(FailbackRequest { seat, token, priority, fit_for }));
    }
}

impl Context {
    /// Returns for how long this agent must be fit before it requests a lock; `None`: it requests
    /// none.
    fn failback_wait(&self) -> Option<Duration> {
        let after = self.config.failback.filter(|_| !self.config.observes)?;
        let Tries(tries) = self.failback_tries;
        match tries {
            0 => Some(after),
            tries => Some(self.failback_hold(after) * (1 << tries)),
        }
    }

    /// Returns how long a lock that was taken is kept from all requests.
    fn failback_hold(&self, after: Duration) -> Duration {
        after.max(self.config.timing.lock_time())
    }

    /// Notes that the service has run since `since`: if that is long enough, this agent is as fit
    /// as any other.
    pub(super) fn note_good_term(&mut self, since: Instant, now: Instant) {
        if self.failback_wait().is_some_and(|wait| now >= since.after(wait)) {
            self.failback_tries = Tries::default();
        }
    }

    /// Returns the seat whose holder has the lowest priority, with that priority, if it is lower
    /// than that of this agent, and no seat is free, changes hands or may be taken. After some
    /// requests that nobody has followed, it is the next seat with a lower priority.
    fn seat_to_request(&self, requests: usize, now: Instant) -> Option<(Seat, Priority)> {
        let held = |seat: Seat| {
            let seen = self.store.keys[seat.index()].seen.as_ref()?;
            let lease = seen.key_state.value.lease()?;
            let held = lease.state == RecordState::Active && now < self.take_at(seen);
            held.then_some((lease.priority, seat))
        };
        let holders: Option<Vec<_>> = Seat::all(self.config.seats).map(held).collect();
        let own = self.config.priority;
        let lower = |(priority, seat): (Option<Priority>, Seat)| {
            priority.filter(|priority| *priority > own).map(|priority| (priority, seat))
        };
        let mut lower: Vec<_> = holders?.into_iter().filter_map(lower).collect();
        lower.sort_unstable_by(|one, other| other.cmp(one));
        let (priority, seat) = lower.get(requests / REQUESTS_MAX % lower.len().max(1))?;
        Some((*seat, *priority))
    }

    /// Returns why this agent, which has run the service since `since`, gives the lock to the one
    /// that requests it; `None` if it does not.
    pub(super) fn reason_to_give(
        &self,
        request: &FailbackRequest,
        since: Instant,
        now: Instant,
    ) -> Option<Reason> {
        let least = self.config.failback?;
        if now < since.after(self.failback_hold(least)) {
            return None;
        }
        let goes_first = request.priority < self.config.priority && request.token != self.id.token;
        let given = request.seat == self.seat && goes_first && request.fit_for >= least;
        let token = sanitize_field(&request.token);
        given.then_some(Reason::Failback(token, request.priority, Ms(request.fit_for)))
    }
}
