//! What one process leaves to the next one of its host when it does not get the lock in time.
//!
//! The ticket of a dead holder is removed by whoever has seen it unmoved for its lifetime. A
//! process that asks once, or waits for less, never sees it for so long. So it notes in the bucket
//! what it has seen, as `putex grab` does in its ticket, and the next process goes on from there.

use super::{Goal, Phase, TicketOwner};
use crate::core::observed::Observed;
use crate::core::record::Revision;
use crate::core::tickets::{End, Mark, StoredTicket};
use crate::core::time::Instant;

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// These tickets come first.
    ForTickets(Vec<StoredTicket>),
    /// This mark may be written later.
    ForBucket(Mark),
}

impl Waited {
    pub(super) fn for_tickets(blockers: &[StoredTicket]) -> Waited {
        Waited::ForTickets(blockers.to_vec())
    }
}

impl TicketOwner {
    /// Has the owner read and write notes with others that have this clock.
    #[must_use]
    pub fn with_notes(self, clock: String) -> TicketOwner {
        TicketOwner { seen: Observed::nothing(&clock, ""), ..self }
    }

    /// Leaves the wait if its time is over; says so. The notes are read before.
    pub(super) fn leaves(&mut self, why: &str, waited: Waited, now: Instant) -> bool {
        if self.seen.clock().is_empty() {
            return self.gave_up(why, now);
        }
        let is_over = matches!(self.goal, Goal::Get(Some(limit)) if now >= limit);
        if is_over {
            self.phase = Phase::Recalling(why.to_owned(), waited);
        }
        is_over
    }

    /// The notes were read, or could not be. What has been seen for long enough by all processes
    /// together ends the wait; otherwise the notes are written anew.
    pub(super) fn recalled(&mut self, notes: Option<(Revision, Observed)>, now: Instant) {
        let Phase::Recalling(why, waited) = &self.phase else { return };
        let (why, waited) = (why.clone(), waited.clone());
        let Some((revision, noted)) = notes else { return self.end(End::NotHad(why), now) };
        self.seen.is_told_more(&noted, now);
        match waited {
            Waited::ForTickets(blockers) => {
                if self.removes_dead(&blockers, now) {
                    return;
                }
            }
            Waited::ForBucket(mark) => {
                let wait = self.timing.removal_wait(mark.lifetime);
                if self.seen.see_bucket(now).after(wait) <= now {
                    self.phase = Phase::Young(now, mark);
                    return;
                }
            }
        }
        self.phase = Phase::Noting(why, revision, self.seen.clone());
    }
}
