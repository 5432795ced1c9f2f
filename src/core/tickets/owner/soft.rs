//! Soft tickets: while others hold the names, no ticket is written that newcomers would wait
//! behind. The names are probed until they are free; a ticket that is not granted at once is
//! withdrawn.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Asker, Goal, Phase, TicketOwner};
use crate::core::record::Revision;
use crate::core::tickets::StoredTicket;
use crate::core::tickets::decision::describe;
use crate::core::time::{Instant, StoreTime};

/// Bounds of the pause between two probes.
const PROBE_MIN: Duration = Duration::from_millis(10);
const PROBE_MAX: Duration = Duration::from_millis(500);

/// The settings of a soft ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Soft {
    /// How long the names have to have been free before a ticket is written.
    pub quiet_for: Duration,
    /// After this time the ticket queues as any other.
    pub hard_after: Option<Duration>,
}

impl TicketOwner {
    /// Returns whether a ticket that is not granted at once is to be withdrawn.
    pub(super) fn is_soft(&self, now: Instant) -> bool {
        let (Goal::Get(_), Asker::Command(Some(soft))) = (&self.goal, self.asker) else {
            return false;
        };
        soft.hard_after.is_none_or(|after| now < self.began.after(after))
    }

    /// Returns when the names are probed again: when they may have been quiet for long enough.
    pub(super) fn probe_at(&self, now: Instant) -> Instant {
        let pause = (self.timing.renewal() / 8).clamp(PROBE_MIN, PROBE_MAX);
        let quiet_at = self.quiet_at().filter(|at| *at > now);
        quiet_at.map_or(now.after(pause), |at| at.min(now.after(pause)))
    }

    /// Returns when the names will have been free for long enough, if they are.
    fn quiet_at(&self) -> Option<Instant> {
        let Asker::Command(Some(soft)) = self.asker else { return None };
        self.quiet_since.map(|since| since.after(soft.quiet_for))
    }

    /// Probes the names: there is no own ticket, and `others` stand.
    pub(super) fn probe(&mut self, others: Vec<StoredTicket>, at: Option<StoreTime>, now: Instant) {
        // The own ticket would come after all that stand.
        let blocks = |other: &StoredTicket| other.blocks(&self.ticket, Revision(u64::MAX));
        let blockers: Vec<_> = others.into_iter().filter(blocks).collect();
        let why = if blockers.is_empty() {
            self.quiet_since.get_or_insert(now);
            if self.missing_mark.is_none() && self.quiet_at().is_some_and(|at| now >= at) {
                self.phase = Phase::Writing;
                return;
            }
            "free, but not for long enough yet".to_owned()
        } else {
            self.quiet_since = None;
            describe(&blockers, at)
        };
        self.wait_for(&blockers, BTreeSet::new(), why, now);
    }
}
