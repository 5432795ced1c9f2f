//! The take of a lock: the acquiring write, and the wait until the previous holder must be dead.

use std::time::Duration;

use log::Level;

use super::active::Active;
use super::context::Context;
use super::deadline::{Timer, Timers};
use super::hold::Hold;
use super::standby::Standby;
use super::stopping::{ServiceLock, Stopping};
use super::store_view::Seen;
use super::write::{NewWrite, Pending, Verdict, prepare_write};
use super::{Next, State};
use crate::core::agent_status::AgentState;
use crate::core::event::{Effect, Event};
use crate::core::protocol::Grant;
use crate::core::record::{RecordState, Revision};
use crate::core::report::{Reason, Report};
use crate::core::seat::Seat;
use crate::core::time::{Instant, Ms};

/// The acquiring write is under way.
#[derive(Clone, Debug)]
pub(super) struct Taking {
    pending: Pending,
    confirm: Option<Duration>,
    previous: Option<String>,
    /// The grant of the previous instance, whose service goes on under the same term.
    pub(super) adoption: Option<Grant>,
    /// The write before this one was refused. While the store refuses, the log shows no takes.
    again: bool,
}

impl Taking {
    /// Begins to take the lock of a seat, whose key still stands as it was seen.
    pub(super) fn begin(context: &mut Context, seat: Seat, seen: &Seen, now: Instant) -> Next {
        context.store.choose_seat(seat, &mut context.effects);
        let Seen { key_state, takeover, .. } = seen;
        let give_up = now.after(context.config.timing.renewal());
        // The token of the previous holder, for fencing: never this agent's own one, or the agent
        // would fence itself.
        let previous = key_state.value.holder().map(|record| record.token.clone());
        let previous = previous.filter(|token| *token != context.id.token);
        let confirm = takeover.confirm;
        let state = if confirm.is_some() { RecordState::Taking } else { RecordState::Active };
        let grace = confirm.unwrap_or_default();
        let expected = key_state.revision;
        let (term, released_to) = (None, None);
        let write = NewWrite { expected, state, term, grace, released_to };
        let mut pending = prepare_write(context, write, now, give_up);
        pending.advance(context, now);
        let again = context.store.refused.is_some();
        let taking = Taking { pending, confirm, previous, adoption: None, again };
        let why = Reason::of_take(takeover.lock.clone(), takeover.wait);
        let level = if again { Level::Debug } else { Level::Info };
        Next::Go(State::Taking(taking), why, level)
    }

    /// Returns the level of the report of this take's end: debug if the store has refused this take
    /// too. Otherwise the log shows first that the take began.
    fn level_of_end(&self, context: &mut Context) -> Level {
        if self.again && context.store.refused.is_some() {
            return Level::Debug;
        }
        self.report_begin(context);
        Level::Info
    }

    /// Reports that the take began, if the log does not show that.
    pub(super) fn report_begin(&self, context: &mut Context) {
        if self.again {
            let (from, to) = (AgentState::Standby, AgentState::Taking);
            let (why, level) = (Reason::TriedAgain, Level::Info);
            context.report(Report::Moved { from, to, why, level });
        }
    }

    /// Renews the record of the previous instance of this agent, if a seat's key has it: the
    /// service neither stops nor starts. The guard has given `grant`: a record alone does not tell
    /// that the service runs.
    pub(super) fn adopt(context: &mut Context, grant: Grant, now: Instant) -> Next {
        let Some((seat, expected, term)) = adoptable(context) else {
            let why = context.seat_gone(&grant).map_or(Reason::NotPredecessors, Reason::SeatGone);
            return Stopping::begin(context, ServiceLock::Lost(grant), why, now);
        };
        context.store.choose_seat(seat, &mut context.effects);
        context.store.forget_other_seats();
        let (state, grace, give_up) = (RecordState::Active, Duration::ZERO, grant.valid_until);
        let write = NewWrite { expected, state, term: Some(term), grace, released_to: None };
        let mut pending = prepare_write(context, write, now, give_up);
        pending.advance(context, now);
        let previous = grant.context.previous.clone();
        let adoption = Some(grant);
        let taking = Taking { pending, confirm: None, previous, adoption, again: false };
        Next::Go(State::Taking(taking), Reason::Predecessor(term), Level::Info)
    }

    /// The lock was not taken: a service that the previous instance left running is stopped.
    fn fail(self, context: &mut Context, why: Reason, now: Instant) -> Next {
        match self.adoption {
            Some(grant) => Stopping::begin(context, ServiceLock::Lost(grant), why, now),
            None => {
                let level = self.level_of_end(context);
                Next::Go(State::Standby(Standby::new(context, now, now)), why, level)
            }
        }
    }

    pub(super) fn turn(mut self, context: &mut Context, event: &Event, now: Instant) -> Next {
        match self.pending.receive(context, event, now) {
            Verdict::Undecided => {}
            Verdict::Held { revision, valid_until } => {
                return self.held(context, revision, valid_until, now);
            }
            Verdict::Lost(why) => return self.fail(context, Reason::NotTaken(why), now),
        }
        // A write that is unresolved by then is left alone: the next read shows its outcome.
        if context.store.rolled_back || now >= self.pending.give_up {
            let r = Ms(context.config.timing.renewal());
            let why = match &self.adoption {
                Some(_) => Reason::PredecessorOver,
                None if context.store.refused.is_some() => Reason::TakeRefused(r),
                None => Reason::TakeUnanswered(r),
            };
            return self.fail(context, why, now);
        }
        self.pending.advance(context, now);
        Next::Stay(State::Taking(self))
    }

    pub(super) fn set_timers(&self, timers: &mut Timers, context: &Context) {
        timers.set(Timer::GiveUpWrite, self.pending.give_up);
        self.pending.set_timers(timers, context);
    }

    fn held(
        self,
        context: &mut Context,
        revision: Revision,
        valid_until: Instant,
        now: Instant,
    ) -> Next {
        if now >= valid_until {
            return self.fail(context, Reason::TakeTooLate, now);
        }
        context.store.forget_other_seats();
        let level = self.level_of_end(context);
        let term = self.adoption.as_ref().and_then(|grant| grant.context.term);
        let hold = Hold {
            revision,
            term: term.unwrap_or(revision),
            valid_until,
            previous: self.previous,
            pause_is_read: self.adoption.is_some(),
            renewal: None,
        };
        if self.adoption.is_some() {
            let active = Active::adopted(hold, now);
            return Next::Go(State::Active(active), Reason::Adopted(revision), level);
        }
        // A message about a pause may have been lost.
        context.want(Effect::ReadPause);
        let (state, why) = match self.confirm {
            None => (State::Active(Active::taken(context, hold, now)), Reason::TakenFree(revision)),
            Some(grace) => {
                let renew_at = now.after(context.config.timing.renewal());
                let confirming = Confirming { hold, until: now.after(grace), renew_at, grace };
                (State::Confirming(confirming), Reason::Taken(revision, Ms(grace)))
            }
        };
        Next::Go(state, why, level)
    }
}

/// The lock is held, and renewed every R, until the previous holder must be dead.
#[derive(Clone, Debug)]
pub(super) struct Confirming {
    pub(super) hold: Hold,
    /// The service may start from here on.
    until: Instant,
    renew_at: Instant,
    grace: Duration,
}

impl Confirming {
    pub(super) fn turn(mut self, context: &mut Context, event: &Event, now: Instant) -> Next {
        if let Err(why) = self.hold.receive(context, event, now) {
            context.store.key_mut().seen = None;
            return Standby::begin(context, Reason::LostUnconfirmed(why), now);
        }
        if self.hold.renewal.is_none() && now >= self.until {
            let active = State::Active(Active::confirmed(self.hold, now));
            return Next::Go(active, Reason::Confirmed(Ms(self.grace)), Level::Info);
        }
        if self.hold.renewal.is_none() && now >= self.renew_at {
            self.renew_at = self.renew_at.after(context.config.timing.renewal()).max(now);
            let write = NewWrite { grace: self.grace, ..self.hold.write(RecordState::Taking) };
            self.hold.renew(context, write, now);
        }
        self.hold.advance(context, now);
        Next::Stay(State::Confirming(self))
    }

    pub(super) fn set_timers(&self, timers: &mut Timers, context: &Context) {
        self.hold.set_timers(timers, context);
        if self.hold.renewal.is_none() {
            timers.set(Timer::Confirmed, self.until);
            timers.set(Timer::RenewUnconfirmed, self.renew_at);
        }
    }
}

/// Returns the seat whose record an earlier instance of this agent wrote for the term of the
/// guard's grant, if there is one, with its revision and term.
fn adoptable(context: &Context) -> Option<(Seat, Revision, Revision)> {
    Seat::all(context.config.seats).find_map(|seat| {
        let key_state = &context.store.key_of(seat).seen.as_ref()?.key_state;
        let active = key_state.value.lease()?.state == RecordState::Active;
        let term = context.predecessor_term_in(key_state).filter(|_| active)?;
        Some((seat, key_state.revision, term))
    })
}
