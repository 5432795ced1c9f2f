//! The tickets of one requester: a script has no other memory of its lock.

use std::time::Duration;

use super::{Asker, EarlierKeys, Own, Phase, TicketOwner};
use crate::core::tickets::key::last_element;
use crate::core::tickets::{End, StoredTicket, Ticket};
use crate::core::time::Instant;

impl TicketOwner {
    /// Returns whether this is a ticket of the same script for a name that overlaps.
    pub(super) fn is_of_requester(&self, other: &StoredTicket) -> bool {
        matches!(self.asker, Asker::Script { .. }) && other.is_of_script(&self.ticket)
    }

    /// Returns whether a ticket is for the same name in the same mode.
    fn is_alike(&self, other: &StoredTicket) -> bool {
        let own = &self.ticket;
        let is_like = |it: &Ticket| it.mode == own.mode && it.name == own.name;
        other.ticket.as_ref().is_ok_and(is_like)
    }

    /// An earlier ticket of the requester stands: the own one is ended.
    pub(super) fn give_way(&mut self, first: &StoredTicket, now: Instant) {
        match self.is_alike(first) {
            true => self.phase = Phase::Ending,
            false => self.end(End::Overlaps(of_requester(first)), now),
        }
    }

    /// There is no own ticket yet. `mine` are the tickets of the requester that stand, the oldest
    /// first.
    pub(super) fn find(&mut self, mine: Vec<StoredTicket>, now: Instant) {
        if let Some(other) = mine.iter().find(|other| !self.is_alike(other)) {
            return self.end(End::Overlaps(of_requester(other)), now);
        }
        self.phase = Phase::Writing;
        let lifetimes = mine.iter().filter_map(|it| Some(it.ticket.as_ref().ok()?.lifetime));
        self.ticket.lifetime = lifetimes.fold(self.timing.lifetime(), Duration::max);
        let Some(StoredTicket { key, revision, number, ticket: Ok(ticket), .. }) =
            mine.into_iter().next()
        else {
            return;
        };
        // V counts from the request of the listing, so it is not later than the time by which the
        // renewal has to be stored. Until V no server restores the ticket after its end, so the
        // renewal finds it only if it stands. Another process of the requester may rely on it for
        // longer.
        let validity = self.timing.validity_of(ticket.lifetime);
        self.own = Some(Own {
            element: last_element(&key).to_owned(),
            number,
            revision,
            lifetime: ticket.lifetime,
            valid_until: self.requested.after(validity),
            renew_at: now,
            earlier_keys: EarlierKeys::default(),
        });
        self.ticket.is_granted = ticket.is_granted;
    }
}

/// Describes another ticket of the requester.
pub fn of_requester(other: &StoredTicket) -> String {
    match &other.ticket {
        Ok(ticket) => format!("{} has a ticket for {}", other.describe(), ticket.name),
        Err(_) => other.describe(),
    }
}
