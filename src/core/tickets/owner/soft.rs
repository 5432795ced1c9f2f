//! Soft tickets: while others hold the names, there is no ticket that newcomers would wait behind.
//! The names are probed until they are free; a ticket that is not granted at once is withdrawn.

use std::time::Duration;

use super::notes::Waited;
use super::{Goal, Phase, TicketOwner};
use crate::core::record::Revision;
use crate::core::tickets::decision::describe;
use crate::core::tickets::{StoredTicket, ToFront};
use crate::core::time::Instant;

/// Bounds of the pause between two probes.
const PROBE_MIN: Duration = Duration::from_millis(10);
const PROBE_MAX: Duration = Duration::from_millis(500);

/// How a ticket keeps out of the way of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Soft {
    /// How long the names have to have been free before a ticket is written.
    pub quiet_for: Duration,
    /// After so long it queues as any other.
    pub hard_after: Option<Duration>,
}

impl TicketOwner {
    /// Has the ticket keep out of the way of others.
    #[must_use]
    pub fn with_soft(self, soft: Option<Soft>) -> TicketOwner {
        TicketOwner { soft, ..self }
    }

    /// Returns whether a ticket that is not granted at once is to be withdrawn.
    pub(super) fn is_soft(&self, now: Instant) -> bool {
        matches!(self.goal, Goal::Get(_))
            && self.soft.is_some_and(|soft| {
                soft.hard_after.is_none_or(|after| now < self.began.after(after))
            })
    }

    /// Begins to get the lock in a bucket that has the mark.
    pub(super) fn begin(&mut self, now: Instant) {
        self.phase = if self.is_soft(now) { Phase::Probing } else { Phase::Writing };
    }

    /// The names were probed, while there is no ticket.
    pub(super) fn probed(&mut self, standing: Vec<StoredTicket>, last: Revision, now: Instant) {
        if last < self.last {
            return self.failed("the listing is old".to_owned(), Phase::Probing, now);
        }
        if !self.is_soft(now) {
            self.phase = Phase::Writing;
            return;
        }
        let conflicts = |other: &StoredTicket| {
            other.ticket.as_ref().map_or(true, |other| other.conflicts(&self.ticket))
        };
        let blockers: Vec<_> = standing.into_iter().filter(conflicts).collect();
        let pause = (self.timing.renewal() / 8).clamp(PROBE_MIN, PROBE_MAX);
        let mut probe_at = now.after(pause);
        let why = if blockers.is_empty() {
            let quiet_since = *self.quiet_since.get_or_insert(now);
            let quiet_for = self.soft.map_or(Duration::ZERO, |soft| soft.quiet_for);
            let quiet_at = quiet_since.after(quiet_for);
            if now >= quiet_at {
                self.phase = Phase::Writing;
                return;
            }
            probe_at = probe_at.min(quiet_at);
            "free, but not for long enough yet".to_owned()
        } else {
            self.quiet_since = None;
            describe(&blockers)
        };
        if self.removes_dead(&blockers, now)
            || self.leaves(&why, Waited::for_tickets(&blockers), now)
        {
            return;
        }
        self.phase = Phase::Resting(probe_at, Box::new(Phase::Probing));
        self.tell(ToFront::Waiting { ahead: 0, why });
    }

    /// The own ticket was withdrawn.
    pub(super) fn withdrawn(&mut self, now: Instant) {
        self.take_new_key();
        self.quiet_since = None;
        self.rest(now, Phase::Probing);
    }
}
