//! The tickets of one requester: a script has no other memory of its lock.

use super::{Asker, EarlierKeys, Own, Phase, TicketOwner};
use crate::core::tickets::{End, StoredTicket, Ticket};
use crate::core::time::{Instant, StoreTime};

impl TicketOwner {
    /// Returns whether this is a ticket of the same script for a name that overlaps.
    pub(super) fn is_of_requester(&self, other: &StoredTicket) -> bool {
        let is_its = |it: &Ticket| {
            it.incarnation == self.ticket.incarnation && it.name.overlaps(&self.ticket.name)
        };
        matches!(self.asker, Asker::Script { .. }) && other.ticket.as_ref().is_ok_and(is_its)
    }

    /// Returns those of the requester's tickets on which no process of the requester relies, and
    /// those that stand, the first one first. A ticket that has run out by the clock of this server
    /// alone is neither: another process may rely on it, so others wait for it.
    pub(super) fn standing(
        &self,
        mut mine: Vec<StoredTicket>,
        others: &[StoredTicket],
        at: Option<StoreTime>,
    ) -> (Vec<StoredTicket>, Vec<StoredTicket>) {
        mine.sort_by_key(|other| other.number);
        let is_over = |it: &mut StoredTicket| it.has_run_out_everywhere(at) || it.had_ended(others);
        let over = mine.extract_if(.., is_over).collect();
        mine.retain(|it| !it.has_run_out(at));
        (over, mine)
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
        let earlier = mine.iter().filter_map(|it| it.ticket.as_ref().ok());
        let longest = earlier.map(|it| it.lifetime).max().unwrap_or_default();
        self.ticket.lifetime = longest.max(self.timing.lifetime());
        let Some(StoredTicket { key, revision, number, ticket: Ok(ticket), .. }) =
            mine.into_iter().next()
        else {
            return;
        };
        // Until then no server restores it if it ends, and a write finds it only if it stands. The
        // store counts from the listing, which may have been on its way for long: V is never later
        // than the time by which the renewal has to be stored. Another process of the requester may
        // rely on the ticket for longer.
        let validity = self.timing.validity_of(ticket.lifetime);
        self.own = Some(Own {
            element: key.rsplit('.').next().unwrap_or_default().to_owned(),
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
        Ok(ticket) => format!("{} has {}", other.describe(), ticket.name),
        Err(_) => other.describe(),
    }
}
