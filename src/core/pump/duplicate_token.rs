//! Two live agents with one token.

use std::time::Duration;

use super::context::Context;
use super::store_view::Seen;
use crate::core::record::{KeyState, KeyValue, Lease, Record};
use crate::core::report::Report;
use crate::core::text::sanitize_field;
use crate::core::time::Instant;

/// How often two live agents with one token are reported again.
const REPORT_EVERY: Duration = Duration::from_secs(60);

impl Context {
    /// Two incarnations with one token are two agents, or one that was restarted:
    /// only a record that moves while it is watched proves that the other lives.
    pub(super) fn watch_for_duplicate_token(
        &mut self,
        before: Option<&Seen>,
        key_state: &KeyState,
        now: Instant,
    ) {
        let Some(theirs) = self.duplicate_in(key_state) else {
            return;
        };
        let (incarnation, host) = (theirs.incarnation, sanitize_field(&theirs.host));
        let before = before.and_then(|seen| self.duplicate_in(&seen.key_state));
        if before.map(|lease| lease.incarnation) != Some(incarnation) {
            // The guard may yet tell that this was the previous instance.
            if !self.guard.has_reported() {
                return;
            }
            let token = self.id.token.clone();
            self.report(Report::OwnToken { token, host });
        } else if self.duplicate_is_due(now) {
            let (token, incarnation) = (self.id.token.clone(), incarnation.to_string());
            self.report(Report::DuplicateToken { token, host, incarnation });
        }
    }

    fn duplicate_in<'a>(&self, key_state: &'a KeyState) -> Option<&'a Lease> {
        let KeyValue::Record(Record { token, lease: Some(lease) }) = &key_state.value else {
            return None;
        };
        let other = lease.incarnation != self.id.incarnation && *token == self.id.token;
        (other && self.predecessor_term_in(key_state).is_none()).then_some(lease)
    }

    fn duplicate_is_due(&mut self, now: Instant) -> bool {
        let due = self.duplicate_reported_at.is_none_or(|at| now.since(at) >= REPORT_EVERY);
        if due {
            self.duplicate_reported_at = Some(now);
        }
        due
    }
}
