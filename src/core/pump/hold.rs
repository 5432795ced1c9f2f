//! A lock that this agent holds, confirmed or not: its renewals, and how it is lost.

use std::time::Duration;

use super::context::Context;
use super::deadline::{Timer, Timers};
use super::write::{NewWrite, Pending, Verdict, prepare_write};
use crate::core::event::Event;
use crate::core::protocol::Grant;
use crate::core::record::{RecordState, Revision};
use crate::core::report::{Holder, LockLoss, LockState};
use crate::core::time::{Instant, Ms};

/// A lock that this agent holds.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    /// The revision of the last acknowledged write.
    pub(super) revision: Revision,
    /// Revision of the acquiring write.
    pub(super) term: Revision,
    /// V: from here on another agent may take the lock.
    pub(super) valid_until: Instant,
    /// Token of the previous holder.
    pub(super) previous: Option<String>,
    /// The pause was read since this lock was taken, or as the store was opened: start may be
    /// asserted unless there is a pause. The writer of a later pause waits until this agent, which
    /// holds the lock, has observed it.
    pub(super) pause_is_read: bool,
    /// The renewal that is under way.
    pub(super) renewal: Option<Pending>,
}

impl Hold {
    /// Handles an event; returns whether the lock was renewed by it.
    ///
    /// # Errors
    ///
    /// The reason, when this agent has lost the lock.
    pub(super) fn receive(
        &mut self,
        context: &mut Context,
        event: &Event,
        now: Instant,
    ) -> Result<bool, LockLoss> {
        self.pause_is_read |= matches!(event, Event::PauseRead(_) | Event::Opened(_));
        let renewal = self.renewal.as_mut();
        let verdict = renewal.map(|renewal| renewal.receive(context, event, now));
        let renewed = match verdict {
            Some(Verdict::Held { revision, valid_until }) => {
                self.renewal = None;
                self.revision = revision;
                self.valid_until = valid_until;
                true
            }
            Some(Verdict::Lost(why)) => return Err(why),
            Some(Verdict::Undecided) | None => false,
        };
        if context.store.rolled_back {
            return Err(LockLoss::RolledBack);
        }
        if let Some(key_state) = context.foreign_key(event)
            && key_state.revision >= self.revision
        {
            let seen = context.store.key().seen.as_ref();
            let lock = seen.map(|seen| seen.takeover.lock.clone());
            let lock = lock.unwrap_or(LockState::Held(Holder::Somebody("another".to_owned())));
            return Err(LockLoss::HeldBy(key_state.revision, lock));
        }
        if now >= self.valid_until {
            return Err(LockLoss::NotRenewed(Ms(context.config.timing.validity())));
        }
        Ok(renewed)
    }

    /// Prepares a renewal by this write, which [`Hold::advance`] sends.
    pub(super) fn renew(&mut self, context: &mut Context, write: NewWrite, now: Instant) {
        self.renewal = Some(prepare_write(context, write, now, self.valid_until));
    }

    /// Returns the write by which the lock gets this state.
    pub(super) fn write(&self, state: RecordState) -> NewWrite {
        let (expected, term) = (self.revision, Some(self.term));
        NewWrite { expected, state, term, grace: Duration::ZERO, released_to: None }
    }

    /// Sends the renewal that is under way when that is due. Without one the key is read when a
    /// hint names a revision that this agent did not write: a hint alone decides nothing.
    pub(super) fn advance(&mut self, context: &mut Context, now: Instant) {
        if let Some(renewal) = &mut self.renewal {
            renewal.advance(context, now);
        } else if context.store.key().hinted > self.revision && context.store.is_idle() {
            context.read(now);
        }
    }

    pub(super) fn set_timers(&self, timers: &mut Timers, context: &Context) {
        timers.set(Timer::LockOver, self.valid_until);
        if let Some(renewal) = &self.renewal {
            renewal.set_timers(timers, context);
        }
    }

    /// Returns the grant of the lock for the guard.
    pub(super) fn grant(&self, context: &Context) -> Grant {
        let valid_until = self.valid_until;
        Grant {
            holder: context.id.incarnation,
            context: context.lock_context(Some(self)),
            valid_until,
            dead_by: valid_until.after(context.config.timing.stop_budget()),
        }
    }
}
