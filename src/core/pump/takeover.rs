//! The waits before a lock may be taken.

use std::time::Duration;

use super::context::Context;
use super::holders::Times;
use crate::core::record::{KeyState, KeyValue, Record, RecordState};
use crate::core::report::{FreeReason, Holder, LockState};
use crate::core::seat::Seat;
use crate::core::text::{sanitize, sanitize_field};
use crate::core::time::Instant;

/// The waits before a lock may be taken, and the state of the lock, which is the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Takeover {
    /// How long the revision must stand still, from when it was first seen.
    pub(super) wait: Duration,
    /// How long to renew, after the take, before the service is started.
    pub(super) confirm: Option<Duration>,
    /// The holder of the lock, or why it is free.
    pub(super) lock: LockState,
}

impl Takeover {
    /// Returns whether this agent has the lock.
    pub(super) fn is_of_own(&self) -> bool {
        matches!(self.lock, LockState::Held(Holder::Own | Holder::OwnUnconfirmed))
    }

    /// Returns whether this agent is to have the lock before all others.
    pub(super) fn is_for_own(&self) -> bool {
        let is_released = matches!(self.lock, LockState::Free(FreeReason::ReleasedToThis(_)));
        self.is_of_own() || is_released
    }

    /// Decides on the waits before the lock of a seat with this `key_state` may be taken. The waits
    /// are zero only if no other agent can run the service.
    pub(super) fn decide(
        context: &Context,
        seat: Seat,
        key_state: &KeyState,
        now: Instant,
    ) -> Takeover {
        let timing = context.config.timing;
        let key = context.store.key_of(seat);
        let is_own = context.id.wrote(key_state);
        let older = key.is_older(key_state);
        let Times { lock, grace, .. } = key.holders.binding(key_state, older, now);
        let wait = timing.takeover_wait(timing.lock_time().max(lock));
        let confirm = Some(timing.confirmation().max(grace));
        let no_wait = Duration::ZERO;
        let held =
            |wait, confirm, holder| Takeover { wait, confirm, lock: LockState::Held(holder) };
        let free = |wait, confirm, why| Takeover { wait, confirm, lock: LockState::Free(why) };
        let lost = key.holders.has_lost(now);
        let known_for = timing.lock_time() + timing.confirmation();
        let predecessors = context.predecessor_term_in(key_state).is_some();
        let old_enough = context.store.age.is_some_and(|age| age >= known_for);
        match &key_state.value {
            KeyValue::Marker => free(wait, confirm, FreeReason::Deleted),
            KeyValue::Absent if key.max_seen.is_some() => free(wait, confirm, FreeReason::Gone),
            KeyValue::Absent if old_enough => free(no_wait, None, FreeReason::Never),
            KeyValue::Absent => free(wait, confirm, FreeReason::Unwatched),
            KeyValue::Record(record) if lost => {
                held(wait, confirm, Holder::InRollback(name(record)))
            }
            KeyValue::Record(record) if older => held(wait, confirm, Holder::InOlder(name(record))),
            KeyValue::Record(record) => match &record.lease {
                None if record.is_blank() => free(wait, confirm, FreeReason::Blanked),
                None => held(wait, confirm, Holder::Somebody(name(record))),
                Some(lease) if is_own && key.may_be_late(lease, key_state.revision) => {
                    held(wait, confirm, Holder::OwnLate)
                }
                Some(lease) => match (lease.state, is_own) {
                    // This agent released the lock because it was unfit here: the others go first.
                    (RecordState::Released, true) => free(wait, None, FreeReason::ReleasedHere),
                    (RecordState::Released, false) => {
                        let host = sanitize_field(&lease.host);
                        match &lease.released_to {
                            None => free(no_wait, None, FreeReason::Released(host)),
                            // The token is compared as it stands in a header.
                            Some(token) if *token == sanitize(&context.id.token) => {
                                free(no_wait, None, FreeReason::ReleasedToThis(host))
                            }
                            // The agent of this token has T to take the lock before all others.
                            Some(token) => free(
                                wait,
                                None,
                                FreeReason::ReleasedTo(sanitize_field(token), host),
                            ),
                        }
                    }
                    (RecordState::Active, false) if predecessors => {
                        held(wait, confirm, Holder::Predecessor)
                    }
                    (RecordState::Active, true) => held(no_wait, None, Holder::Own),
                    (RecordState::Taking, true) => held(no_wait, confirm, Holder::OwnUnconfirmed),
                    (RecordState::Active | RecordState::Taking, false) => {
                        held(wait, confirm, Holder::Somebody(name(record)))
                    }
                },
            },
        }
    }
}

fn name(record: &Record) -> String {
    match &record.lease {
        // The record may stand for a lost one, which had a holder.
        Some(_) | None if record.is_blank() => "an unknown holder".to_owned(),
        Some(lease) if lease.host != record.token => {
            format!("{} on host {}", sanitize_field(&record.token), sanitize_field(&lease.host))
        }
        Some(_) | None => sanitize_field(&record.token),
    }
}
