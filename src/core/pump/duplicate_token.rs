//! Two live agents with one token.

use std::time::Duration;

use super::context::Context;
use super::store_view::Seen;
use crate::core::record::{KeyState, Lease};
use crate::core::report::Report;
use crate::core::text::sanitize_field;
use crate::core::time::Instant;

/// How often two live agents with one token are reported again.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// Two incarnations with one token are two agents, or one that was restarted: only a record that
/// moves while it is watched proves that the other agent lives.
pub(super) fn report_duplicate(
    context: &mut Context,
    before: Option<&Seen>,
    key_state: &KeyState,
    now: Instant,
) {
    let Some(theirs) = duplicate_in(context, key_state) else { return };
    let (token, host) = (context.id.token.clone(), sanitize_field(&theirs.host));
    let before = before.and_then(|seen| duplicate_in(context, &seen.key_state));
    if before.map(|lease| lease.incarnation) != Some(theirs.incarnation) {
        // The guard may yet tell that the other one was the previous instance.
        if context.guard.has_reported() {
            context.report(Report::OwnToken { token, host });
        }
        return;
    }
    let reported_at = &mut context.duplicate_reported_at;
    if reported_at.is_none_or(|at| now.since(at) >= REPORT_EVERY) {
        *reported_at = Some(now);
        let incarnation = theirs.incarnation.to_string();
        context.report(Report::DuplicateToken { token, host, incarnation });
    }
}

fn duplicate_in<'a>(context: &Context, key_state: &'a KeyState) -> Option<&'a Lease> {
    let is_predecessors = context.predecessor_term_in(key_state).is_some();
    context.id.namesake(key_state).filter(|_| !is_predecessors)
}
