//! The tickets of one requester: a script has no other memory of its lock.

use std::time::Duration;

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

    /// Returns those of the requester's tickets that have run out, or had ended, and those that
    /// stand, the first one first. A server whose clock is ahead takes a ticket for one that has
    /// run out on which another process relies. An own ticket that is alike keeps others from the
    /// lock as that one does; one for another name or in another mode does not, so that one stands
    /// for longer.
    pub(super) fn standing(
        &self,
        mut mine: Vec<StoredTicket>,
        others: &[StoredTicket],
        at: Option<StoreTime>,
    ) -> (Vec<StoredTicket>, Vec<StoredTicket>) {
        mine.sort_by_key(|other| other.number);
        let all = [others, &mine].concat();
        let granted = self.own.as_ref().filter(|_| self.ticket.is_granted);
        mine.into_iter().partition(|it| {
            let had_ended = it.had_ended(&all) || granted.is_some_and(|own| it.number < own.number);
            let is_over = it.has_run_out_everywhere(at) || had_ended;
            is_over || it.has_run_out(at) && self.is_alike(it)
        })
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

    /// The names are free but for tickets of the requester that have run out. They are removed
    /// once the own ticket was written later, for no shorter time, and as granted: no process of
    /// the requester withdraws it.
    pub(super) fn replace(&mut self, run_out: Vec<StoredTicket>) {
        let Some(own) = &self.own else { return };
        let longest = longest(&run_out);
        let is_later = run_out.iter().any(|it| it.revision > own.revision);
        let is_longer = longest > own.lifetime;
        let is_written = self.ticket.is_granted && !is_later && !is_longer;
        self.ticket.lifetime = self.ticket.lifetime.max(longest);
        (self.ticket.is_granted, self.replaces) = (true, true);
        self.phase = if is_written { Phase::Removing(run_out) } else { Phase::Writing };
    }

    /// There is no own ticket yet. `mine` are the tickets of the requester that stand, the oldest
    /// first, and `run_out` those that have run out.
    pub(super) fn find(&mut self, mine: Vec<StoredTicket>, run_out: &[StoredTicket], now: Instant) {
        if let Some(other) = mine.iter().find(|other| !self.is_alike(other)) {
            return self.end(End::Overlaps(of_requester(other)), now);
        }
        self.phase = Phase::Writing;
        let longest = longest(&mine).max(longest(run_out));
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
        self.replaces = ticket.is_granted && !run_out.is_empty();
    }
}

/// Returns the longest lifetime of these tickets.
fn longest(tickets: &[StoredTicket]) -> Duration {
    let readable = tickets.iter().filter_map(|it| it.ticket.as_ref().ok());
    readable.map(|it| it.lifetime).max().unwrap_or_default()
}

/// Describes another ticket of the requester.
pub fn of_requester(other: &StoredTicket) -> String {
    match &other.ticket {
        Ok(ticket) => format!("{} has {}", other.describe(), ticket.name),
        Err(_) => other.describe(),
    }
}
