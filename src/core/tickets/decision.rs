//! Whether a ticket is granted, and what it waits for otherwise.
//!
//! A ticket is granted when no earlier one conflicts with it. A ticket for one of K slots is
//! granted when fewer than K earlier ones for the same name stand and all of these have their
//! slots: then it writes the lowest free slot into the bucket, and has it from then on. So no
//! two have one slot, whatever each of them has seen of the others.

use std::collections::BTreeSet;

use super::ticket::{Mode, StoredTicket, Ticket};
use crate::core::record::Revision;
use crate::core::time::StoreTime;

/// The decision about a ticket, by the tickets that stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The ticket is granted.
    Granted,
    /// This slot is to be written into the ticket, which is granted after that.
    Slot(u32),
    /// The ticket waits for others.
    Wait {
        /// The tickets before it that have to end or to get their slots, the latest last.
        blockers: Vec<StoredTicket>,
        /// The keys of the tickets whose changes have to be heard of.
        watched: BTreeSet<String>,
    },
}

/// Decides about `own`, of this number, whose slot is in the bucket if it has one.
pub fn decide(own: &Ticket, number: Revision, standing: &[StoredTicket]) -> Decision {
    if own.is_granted {
        return Decision::Granted;
    }
    let mut earlier: Vec<&StoredTicket> = standing.iter().collect();
    earlier.sort_by_key(|other| other.number);
    let wait = |blockers: &[&StoredTicket], watched: &[&StoredTicket]| Decision::Wait {
        blockers: blockers.iter().copied().cloned().collect(),
        watched: watched.iter().map(|other| other.key.clone()).collect(),
    };
    let blocks = |other: &&&StoredTicket| other.blocks(own, number);
    let blockers: Vec<_> = earlier.iter().filter(blocks).copied().collect();
    if let Some(latest) = blockers.last() {
        return wait(&blockers, &[latest]);
    }
    let Mode::Slots(count) = own.mode else { return Decision::Granted };
    let shares = |other: &&&StoredTicket| {
        other.number < number && other.ticket.as_ref().is_ok_and(|other| other.shares_slots(own))
    };
    let sharers: Vec<_> = earlier.iter().filter(shares).copied().collect();
    if sharers.len() >= count as usize {
        // Each of the holders may be the first to end. A later ticket watches only the ticket
        // before its own: its end, and the slot that it gets.
        let watched =
            &sharers[if sharers.len() == count as usize { 0 } else { sharers.len() - 1 }..];
        return wait(&sharers, watched);
    }
    let slot_of = |other: &StoredTicket| other.ticket.as_ref().ok().and_then(|other| other.slot);
    let without: Vec<_> =
        sharers.iter().filter(|other| slot_of(other).is_none()).copied().collect();
    if let Some(latest) = without.last() {
        return wait(&without, &[latest]);
    }
    let taken: BTreeSet<u32> = sharers.iter().filter_map(|other| slot_of(other)).collect();
    match own.slot {
        Some(_) => Decision::Granted,
        None => Decision::Slot((0..).find(|slot| !taken.contains(slot)).unwrap_or_default()),
    }
}

/// Returns whether the last of these blockers itself waits for all the others. As long as that one
/// is renewed, the others need not be read.
pub fn last_waits_for_all(blockers: &[StoredTicket]) -> bool {
    let Some((last, others)) = blockers.split_last() else { return false };
    let waits =
        |own: &Ticket| !own.is_granted && others.iter().all(|it| it.blocks(own, last.number));
    others.is_empty() || last.ticket.as_ref().is_ok_and(waits)
}

/// Most tickets that are removed before the others are listed again.
const REMOVALS_MAX: usize = 16;

/// Returns the dead tickets that are removed now, the last one first; `None` if there are none.
/// Each owner begins with another ticket, by its random `number`: otherwise dozens of owners would
/// remove the same one of hundreds that crashed hosts have left.
pub fn some_of_dead(mut dead: Vec<StoredTicket>, number: u128) -> Option<Vec<StoredTicket>> {
    let first = number.checked_rem(dead.len() as u128)?;
    dead.rotate_left(first as usize);
    dead.truncate(REMOVALS_MAX);
    Some(dead)
}

/// Describes tickets for people: the first of them, at this time of the store, and how many there
/// are. The first one may itself wait, for tickets that do not conflict with the own one.
pub fn describe(blockers: &[StoredTicket], at: Option<StoreTime>) -> String {
    let Some(one) = blockers.first() else { return String::new() };
    let is_late = one.is_older_than(|lifetime| lifetime, at);
    let late = if is_late { ", which has not renewed it in time" } else { "" };
    let first = format!("{}{late}", one.describe());
    match blockers.len() {
        0 | 1 => format!("behind {first}"),
        more => format!("behind {first}, and {} more", more - 1),
    }
}

#[cfg(test)]
mod tests;
