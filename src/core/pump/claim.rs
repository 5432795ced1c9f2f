//! What must be waited for before a lock may be had.

use std::time::Duration;

use super::facts::Facts;
use super::holders::Times;
use crate::core::record::{KeyState, KeyValue, Record, RecordState, Revision, told};
use crate::core::time::Instant;

/// What must be waited for before a lock may be had, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// How long the revision must stand still, from when it was first seen.
    pub(super) wait: Duration,
    /// How long to renew, after the take, before the service is started.
    pub(super) confirm: Option<Duration>,
    /// In words, who or what holds the lock.
    pub(super) holder: String,
    /// The term under which a previous life of this agent, which is dead, ran the
    /// service here: where its guard still watches that, it goes on under it.
    pub(super) adopt: Option<Revision>,
}

impl Facts {
    /// Decides what must be waited for before the lock that `sight` shows may be
    /// had. Immediate start is for a clean absence alone.
    pub(super) fn claim(&self, key_state: &KeyState, now: Instant) -> Claim {
        let timing = self.config.timing;
        let older = self.is_older(key_state);
        let Times { lock, grace } = self.holders.binding(key_state, older, now);
        let wait = timing.takeover_wait(timing.lock_time().max(lock));
        let confirm = Some(timing.confirmation().max(grace));
        let claim = |wait, confirm, holder: &str| Claim {
            wait,
            confirm,
            holder: holder.to_owned(),
            adopt: None,
        };
        let free = Duration::ZERO;
        let lost = self.holders.has_lost(now);
        let old_enough = self
            .age
            .is_some_and(|age| age >= timing.lock_time() + timing.confirmation());
        match &key_state.found {
            KeyValue::Marker => claim(wait, confirm, "nobody (the key was deleted)"),
            KeyValue::Absent if self.shown.is_some() => {
                claim(wait, confirm, "nobody (the key is gone)")
            }
            KeyValue::Absent if old_enough => claim(free, None, "nobody (the key never existed)"),
            KeyValue::Absent => claim(
                wait,
                confirm,
                "nobody (the key does not exist, in a bucket not watched for long yet)",
            ),
            KeyValue::Record(record) if lost => claim(
                wait,
                confirm,
                &format!("{}, in a bucket that has rolled back", name(record)),
            ),
            KeyValue::Record(record) if older => claim(
                wait,
                confirm,
                &format!("{}, in a record older than one seen before", name(record)),
            ),
            KeyValue::Record(record) => match &record.lease {
                None if record.token.is_empty() => claim(
                    wait,
                    confirm,
                    "nobody (blanked, but not by this version of putex)",
                ),
                None => claim(wait, confirm, &name(record)),
                Some(lease) => match (lease.standing, lease.incarnation == self.me.incarnation) {
                    // Released because it was unfit here: the others go first.
                    (RecordState::Released, true) => {
                        claim(wait, None, "nobody (released by this agent)")
                    }
                    (RecordState::Released, false) => claim(
                        free,
                        None,
                        &format!("nobody (released on host {})", told(&lease.host)),
                    ),
                    (RecordState::Active, false) if self.me.is_predecessor(lease) => Claim {
                        adopt: Some(lease.term.unwrap_or(key_state.revision)),
                        ..claim(wait, confirm, PREVIOUS_LIFE)
                    },
                    (RecordState::Active, true) => claim(free, None, "this agent"),
                    (RecordState::Taking, true) => claim(free, confirm, "this agent, unconfirmed"),
                    (RecordState::Active | RecordState::Taking, false) => {
                        claim(wait, confirm, &name(record))
                    }
                },
            },
        }
    }
}

/// An agent of this host and token that is known to be dead.
const PREVIOUS_LIFE: &str = "this agent's previous life";

fn name(record: &Record) -> String {
    match &record.lease {
        Some(_) | None if record.token.is_empty() => "nobody".to_owned(),
        Some(lease) if lease.host != record.token => {
            format!("{} on host {}", told(&record.token), told(&lease.host))
        }
        Some(_) | None => told(&record.token),
    }
}
