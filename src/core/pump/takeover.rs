//! What must be waited for before a lock may be had.

use std::time::Duration;

use super::context::Context;
use super::holders::Times;
use super::write::attempt;
use crate::core::record::{KeyState, KeyValue, Record, RecordState};
use crate::core::report::Holder;
use crate::core::seat::Seat;
use crate::core::text::sanitize_field;
use crate::core::time::Instant;

/// What must be waited for before a lock may be had, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Takeover {
    /// How long the revision must stand still, from when it was first seen.
    pub(super) wait: Duration,
    /// How long agents of a higher priority go first, from then on.
    pub(super) delay: Duration,
    /// How long to renew, after the take, before the service is started.
    pub(super) confirm: Option<Duration>,
    /// Who or what holds the lock.
    pub(super) holder: Holder,
}

impl Takeover {
    /// Returns whether this agent has the lock.
    pub(super) fn is_of_own(&self) -> bool {
        matches!(self.holder, Holder::Own | Holder::OwnUnconfirmed)
    }
}

impl Context {
    /// Returns what this agent waits for before it has the lock of a seat that `key_state` shows:
    /// what must be waited for, and, for a lock that is not its own, those who go first.
    pub(super) fn takeover(&self, seat: Seat, key_state: &KeyState, now: Instant) -> Takeover {
        let must = self.takeover_of_first(seat, key_state, now);
        match must.is_of_own() {
            true => must,
            false => Takeover { delay: self.config.priority.delay(attempt(self)), ..must },
        }
    }

    /// Decides what must be waited for before the lock that `key_state` shows may be
    /// had. Immediate start is for a clean absence alone.
    fn takeover_of_first(&self, seat: Seat, key_state: &KeyState, now: Instant) -> Takeover {
        let timing = self.config.timing;
        let key = &self.store.keys[seat.index()];
        let older = key.is_older(key_state);
        let Times { lock, grace } = key.holders.binding(key_state, older, now);
        let wait = timing.takeover_wait(timing.lock_time().max(lock));
        let confirm = Some(timing.confirmation().max(grace));
        let no_wait = Duration::ZERO;
        let takeover = |wait, confirm, holder| Takeover { wait, delay: no_wait, confirm, holder };
        let lost = key.holders.has_lost(now);
        let known_for = timing.lock_time() + timing.confirmation();
        let predecessors = self.predecessor_term_in(key_state).is_some();
        let old_enough = self.store.age.is_some_and(|age| age >= known_for);
        match &key_state.value {
            KeyValue::Marker => takeover(wait, confirm, Holder::Deleted),
            KeyValue::Absent if key.max_seen.is_some() => takeover(wait, confirm, Holder::Gone),
            KeyValue::Absent if old_enough => takeover(no_wait, None, Holder::Never),
            KeyValue::Absent => takeover(wait, confirm, Holder::Unwatched),
            KeyValue::Record(record) if lost => {
                takeover(wait, confirm, Holder::InRollback(name(record)))
            }
            KeyValue::Record(record) if older => {
                takeover(wait, confirm, Holder::InOlder(name(record)))
            }
            KeyValue::Record(record) => match &record.lease {
                None if record.token.is_empty() => takeover(wait, confirm, Holder::Blanked),
                None => takeover(wait, confirm, Holder::Somebody(name(record))),
                Some(lease) => match (lease.state, lease.incarnation == self.id.incarnation) {
                    // Released because it was unfit here: the others go first.
                    (RecordState::Released, true) => takeover(wait, None, Holder::ReleasedHere),
                    (RecordState::Released, false) => {
                        takeover(no_wait, None, Holder::Released(sanitize_field(&lease.host)))
                    }
                    (RecordState::Active, false) if predecessors => {
                        takeover(wait, confirm, Holder::Predecessor)
                    }
                    (RecordState::Active, true) => takeover(no_wait, None, Holder::Own),
                    (RecordState::Taking, true) => {
                        takeover(no_wait, confirm, Holder::OwnUnconfirmed)
                    }
                    (RecordState::Active | RecordState::Taking, false) => {
                        takeover(wait, confirm, Holder::Somebody(name(record)))
                    }
                },
            },
        }
    }
}

fn name(record: &Record) -> String {
    match &record.lease {
        Some(_) | None if record.token.is_empty() => "nobody".to_owned(),
        Some(lease) if lease.host != record.token => {
            format!("{} on host {}", sanitize_field(&record.token), sanitize_field(&lease.host))
        }
        Some(_) | None => sanitize_field(&record.token),
    }
}
