//! Failback: the lock goes back to an agent of a higher priority.
//!
//! An agent on standby measures how long it has been fit. After its failback time, T at least, it
//! requests the lock of the holder with the lowest priority by a switchover, as an operator does,
//! and begins to measure anew. Without that least time, an agent that is fit on standby only would
//! move the service again and again. Each priority waits longer than the one before, as in a take.

use super::context::Context;
use super::deadline::{Timer, Timers};
use crate::core::event::{Effect, Switchover};
use crate::core::priority::Priority;
use crate::core::record::{KeyValue, Record, RecordState};
use crate::core::report::Report;
use crate::core::seat::Seat;
use crate::core::time::Instant;

/// How an agent on standby gets a lock back.
#[derive(Clone, Debug, Default)]
pub(super) struct Failback {
    /// The instant of the last turn.
    turned_at: Option<Instant>,
    /// Since when the agent is fit without a break, and has requested nothing.
    fit_since: Option<Instant>,
    /// When a lock is requested, if there is one to request.
    request_at: Option<Instant>,
}

impl Failback {
    /// Requests a lock when that is due. `healthy`: the last health check has passed.
    pub(super) fn advance(&mut self, context: &mut Context, healthy: bool, now: Instant) {
        let timing = context.config.timing;
        // An agent on standby has a turn every R, unless it was stopped or its host suspended.
        let was_stopped = self.turned_at.is_some_and(|at| now > at.after(timing.renewal() * 2));
        let able = context.obstacle().is_none() && context.store.refused.is_none();
        let fit = healthy && able;
        let wanted = context.config.failback.filter(|_| fit && !context.config.observes);
        if was_stopped || wanted.is_none() {
            *self = Failback::default();
        }
        self.turned_at = Some(now);
        let Some(after) = wanted else { return };
        // While the guard asserts stop, it is not known whether the service is down.
        if !context.guard.is_down() {
            return;
        }
        let fit_since = *self.fit_since.get_or_insert(now);
        let Some((than, seat)) = seat_to_request(context, now) else {
            self.request_at = None;
            return;
        };
        let wait = after.max(timing.lock_time());
        let delay = context.config.priority.delay(timing.attempt());
        let first = fit_since.after(wait).max(now).after(delay);
        if now >= *self.request_at.get_or_insert(first) {
            self.fit_since = Some(now);
            self.request_at = Some(now.after(wait).after(delay));
            request_lock(context, seat, than);
        }
    }

    pub(super) fn set_timers(&self, timers: &mut Timers, context: &Context) {
        if let Some(at) = self.request_at.filter(|_| context.guard.is_down()) {
            timers.set(Timer::RequestFailback, at);
        }
    }
}

/// Returns the seat whose holder has the lowest priority, with that priority, if it is lower than
/// that of this agent, and no seat is free, changes hands or may be taken.
fn seat_to_request(context: &Context, now: Instant) -> Option<(Priority, Seat)> {
    let held = |seat: Seat| {
        let seen = context.store.key_of(seat).seen.as_ref()?;
        let lease = seen.key_state.value.lease()?;
        let held = lease.state == RecordState::Active && now < seen.take_at(&context.config);
        held.then_some((lease.priority, seat))
    };
    let holders: Option<Vec<_>> = Seat::all(context.config.seats).map(held).collect();
    holders?.into_iter().filter(|(priority, _)| *priority > context.config.priority).max()
}

/// Requests the lock of a seat for this agent from its holder, which has priority `than`.
fn request_lock(context: &mut Context, seat: Seat, than: Priority) {
    let Some(seen) = &context.store.key_of(seat).seen else { return };
    let KeyValue::Record(Record { token, lease: Some(lease) }) = &seen.key_state.value else {
        return;
    };
    let term = lease.term.unwrap_or(seen.key_state.revision);
    let (from, to) = (token.clone(), context.id.token.clone());
    let lasts = context.config.timing.lock_time();
    let lock = context.lock_name(seat);
    context.report(Report::RequestsFailback { lock, than });
    let request = Switchover { seat, term, from, by: to.clone(), to, lasts, number: 0 };
    context.want(Effect::RequestSwitchover(request));
}
