//! Failback: the lock goes back to an agent of a higher priority.
//!
//! On standby that agent counts for how long it has been fit. Then it requests the lock of the
//! holder with the lowest priority as an operator does, by a switchover, and counts anew. The time
//! is T at least: an agent may be fit on standby and not when it is active. As when a lock is
//! taken, each priority lets those before it go first.

use super::context::Context;
use super::deadline::{Deadline, Timer, has_run_out};
use crate::core::event::Effect;
use crate::core::priority::Priority;
use crate::core::record::{KeyValue, Record, RecordState};
use crate::core::report::Report;
use crate::core::seat::Seat;
use crate::core::time::Instant;

/// How an agent on standby gets a lock back.
#[derive(Clone, Debug, Default)]
pub(super) struct Failback {
    /// When the last turn was.
    turned_at: Option<Instant>,
    /// Since when it is fit without a break, and has requested nothing.
    fit_since: Option<Instant>,
    /// When a lock is requested, if there is one to be requested.
    request_at: Option<Instant>,
}

impl Failback {
    /// Requests a lock when that is due. `healthy`: the last health check has passed.
    pub(super) fn advance(&mut self, context: &mut Context, healthy: bool, now: Instant) {
        let timing = context.config.timing;
        // An agent on standby has a turn every R, unless it was stopped or its host suspended.
        let was_away = self.turned_at.is_some_and(|at| now > at.after(timing.renewal() * 2));
        let able = context.is_open() && context.store.refused.is_none() && context.pause.is_none();
        let fit = healthy && able && context.guard.unfit().is_none() && !was_away;
        let wanted = context.config.failback.filter(|_| fit && !context.config.observes);
        let Some(after) = wanted else {
            *self = Failback { turned_at: Some(now), ..Failback::default() };
            return;
        };
        self.turned_at = Some(now);
        // While the guard asserts stop, it is not known whether the service is down.
        if !context.guard.is_down() {
            return;
        }
        let fit_since = *self.fit_since.get_or_insert(now);
        let Some((than, seat)) = context.seat_to_request(now) else {
            self.request_at = None;
            return;
        };
        let wait = after.max(timing.lock_time());
        let delay = context.config.priority.delay(timing.attempt());
        self.request_at.get_or_insert(fit_since.after(wait).max(now).after(delay));
        if has_run_out(self.deadline(context), now) {
            self.fit_since = Some(now);
            self.request_at = Some(now.after(wait).after(delay));
            context.request_lock(seat, than);
        }
    }

    pub(super) fn deadline(&self, context: &Context) -> Option<Deadline> {
        let request_at = self.request_at.filter(|_| context.guard.is_down());
        request_at.map(|at| Timer::RequestFailback.at(at))
    }
}

impl Context {
    /// Returns the seat whose holder has the lowest priority, with that priority, if it is lower
    /// than that of this agent, and no seat is free, changes hands or may be taken.
    fn seat_to_request(&self, now: Instant) -> Option<(Priority, Seat)> {
        let held = |seat: Seat| {
            let seen = self.store.keys[seat.index()].seen.as_ref()?;
            let lease = seen.key_state.value.lease()?;
            let held = lease.state == RecordState::Active && now < self.take_at(seen);
            held.then_some((lease.priority, seat))
        };
        let holders: Option<Vec<_>> = Seat::all(self.config.seats).map(held).collect();
        let of_lower = |(priority, seat): (Option<Priority>, Seat)| {
            priority.filter(|priority| *priority > self.config.priority).map(|it| (it, seat))
        };
        holders?.into_iter().filter_map(of_lower).max()
    }

    /// Requests the lock of a seat for this agent from its holder, which has priority `than`.
    fn request_lock(&mut self, seat: Seat, than: Priority) {
        let Some(seen) = &self.store.keys[seat.index()].seen else { return };
        let KeyValue::Record(Record { token, lease: Some(lease) }) = &seen.key_state.value else {
            return;
        };
        let term = lease.term.unwrap_or(seen.key_state.revision);
        let (from, to) = (token.clone(), self.id.token.clone());
        let lasts = self.config.timing.lock_time();
        let lock = self.lock_name(seat);
        self.report(Report::RequestsFailback { lock, than });
        self.want(Effect::RequestSwitchover { seat, term, from, to, lasts });
    }
}
