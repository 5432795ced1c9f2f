//! What must be waited for before a lock may be had.

use std::time::Duration;

use super::context::Context;
use super::holders::Times;
use crate::core::record::{KeyState, KeyValue, Record, RecordState};
use crate::core::text::sanitize_field;
use crate::core::time::Instant;

/// What must be waited for before a lock may be had, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Takeover {
    /// How long the revision must stand still, from when it was first seen.
    pub(super) wait: Duration,
    /// How long to renew, after the take, before the service is started.
    pub(super) confirm: Option<Duration>,
    /// In words, who or what holds the lock.
    pub(super) holder: String,
}

impl Context {
    /// Decides what must be waited for before the lock that `key_state` shows may be
    /// had. Immediate start is for a clean absence alone.
    pub(super) fn takeover(&self, key_state: &KeyState, now: Instant) -> Takeover {
        let timing = self.config.timing;
        let older = self.is_older(key_state);
        let Times { lock, grace } = self.store.holders.binding(key_state, older, now);
        let wait = timing.takeover_wait(timing.lock_time().max(lock));
        let confirm = Some(timing.confirmation().max(grace));
        let takeover =
            |wait, confirm, holder: &str| Takeover { wait, confirm, holder: holder.to_owned() };
        let free = Duration::ZERO;
        let lost = self.store.holders.has_lost(now);
        let known_for = timing.lock_time() + timing.confirmation();
        let old_enough = self.store.age.is_some_and(|age| age >= known_for);
        match &key_state.value {
            KeyValue::Marker => takeover(wait, confirm, "nobody (the key was deleted)"),
            KeyValue::Absent if self.store.max_seen.is_some() => {
                takeover(wait, confirm, "nobody (the key is gone)")
            }
            KeyValue::Absent if old_enough => {
                takeover(free, None, "nobody (the key never existed)")
            }
            KeyValue::Absent => takeover(
                wait,
                confirm,
                "nobody (the key does not exist, in a bucket not watched for long yet)",
            ),
            KeyValue::Record(record) if lost => takeover(
                wait,
                confirm,
                &format!("{}, in a bucket that has rolled back", name(record)),
            ),
            KeyValue::Record(record) if older => takeover(
                wait,
                confirm,
                &format!("{}, in a record older than one seen before", name(record)),
            ),
            KeyValue::Record(record) => match &record.lease {
                None if record.token.is_empty() => {
                    takeover(wait, confirm, "nobody (blanked, but not by this version of putex)")
                }
                None => takeover(wait, confirm, &name(record)),
                Some(lease) => match (lease.standing, lease.incarnation == self.id.incarnation) {
                    // Released because it was unfit here: the others go first.
                    (RecordState::Released, true) => {
                        takeover(wait, None, "nobody (released by this agent)")
                    }
                    (RecordState::Released, false) => takeover(
                        free,
                        None,
                        &format!("nobody (released on host {})", sanitize_field(&lease.host)),
                    ),
                    (RecordState::Active, false) if self.is_predecessor(lease) => {
                        takeover(wait, confirm, PREDECESSOR)
                    }
                    (RecordState::Active, true) => takeover(free, None, "this agent"),
                    (RecordState::Taking, true) => {
                        takeover(free, confirm, "this agent, unconfirmed")
                    }
                    (RecordState::Active | RecordState::Taking, false) => {
                        takeover(wait, confirm, &name(record))
                    }
                },
            },
        }
    }
}

/// An agent of this host and token that is known to be dead.
const PREDECESSOR: &str = "this agent's previous instance";

fn name(record: &Record) -> String {
    match &record.lease {
        Some(_) | None if record.token.is_empty() => "nobody".to_owned(),
        Some(lease) if lease.host != record.token => {
            format!("{} on host {}", sanitize_field(&record.token), sanitize_field(&lease.host))
        }
        Some(_) | None => sanitize_field(&record.token),
    }
}
