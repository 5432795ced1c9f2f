//! What the tickets that stand mean for one of them.

use std::os::fd::AsFd as _;

use super::format::Record;
use super::{Added, DOOR, Loaded, LockFile};
use crate::core::Revision;
use crate::core::tickets::{self, Decision, StoredTicket, Ticket, Unreadable};
use crate::store::StoreResult;
use crate::sys::raw::{self, ByteLock};

impl LockFile {
    /// Returns the tickets that stand.
    pub(super) fn standing(&self, loaded: &Loaded) -> Vec<StoredTicket> {
        let (found, _) = loaded.records(0);
        let is_known = |number: &&u64| found.iter().any(|(_, it)| it.number == **number);
        let unknown = loaded.locked.iter().filter(|number| !is_known(number)).map(|number| {
            let (why, lifetime) = ("its record is damaged".to_owned(), None);
            self.stored(*number, Err(Unreadable { why, lifetime }))
        });
        let mut standing: Vec<_> = unknown.collect();
        standing.extend(found.into_iter().map(|(_, it)| self.stored(it.number, Ok(it.ticket))));
        standing.sort_by_key(|other| other.number);
        standing
    }

    /// Decides about a ticket of this number, by the tickets that stand; returns its record too.
    pub(super) fn decide(&self, loaded: &Loaded, ticket: &Ticket, number: u64) -> (Added, Record) {
        let mut standing = self.standing(loaded);
        standing.retain(|other| other.number.0 != number);
        let decision = tickets::decide(ticket, Revision(number), &standing);
        let slot = match decision {
            Decision::Slot(slot) => Some(slot),
            Decision::Granted | Decision::Wait { .. } => ticket.slot,
        };
        let record = Record { number, until: None, ticket: Ticket { slot, ..ticket.clone() } };
        let (number, epoch) = (Some(number), loaded.header.epoch.to_string());
        let (timed, until, removed, at) = (loaded.ends(), None, Vec::new(), 0);
        (Added { number, epoch, decision, slot, standing, timed, until, removed, at }, record)
    }

    /// Decides anew about a ticket that waits, and leaves by the door through which the caller has
    /// entered. A slot that it gets stands in the file then.
    ///
    /// # Errors
    ///
    /// As [`LockFile::add`].
    pub fn decide_again(&self, ticket: &Ticket, added: Added) -> StoreResult<Added> {
        let Some(number) = added.number else { return Ok(added) };
        let mut loaded = self.load()?;
        let removed = self.remove_run_out(&mut loaded, ticket, number)?;
        let (again, record) = self.decide(&loaded, ticket, number);
        if let Decision::Slot(_) = again.decision {
            self.write(&record.encode(), added.at)?;
        }
        self.leave()?;
        Ok(Added { at: added.at, removed, ..again })
    }

    /// As [`LockFile::decide_again`], without the door: for a ticket that waits for the end of
    /// others only, which all end with their processes.
    ///
    /// # Errors
    ///
    /// When the file system has no such locks.
    pub fn decide_without(&self, ticket: &Ticket, added: Added) -> StoreResult<Added> {
        let (Decision::Wait { blockers, .. }, Some(number)) = (&added.decision, added.number)
        else {
            return Ok(added);
        };
        let mut standing = Vec::new();
        for blocker in blockers {
            let found = raw::find_lock(self.as_fd(), DOOR + blocker.number.0, 1);
            let found = found.map_err(|error| self.no_lock(&error))?;
            if found.is_some_and(|found| found.how == ByteLock::Shared) {
                standing.push(blocker.clone());
            }
        }
        let decision = tickets::decide(ticket, Revision(number), &standing);
        Ok(Added { decision, standing, ..added })
    }

    pub(super) fn stored(&self, number: u64, ticket: Result<Ticket, Unreadable>) -> StoredTicket {
        let key = format!("number {number} in {}", self.path.display());
        let number = Revision(number);
        StoredTicket { key, revision: number, number, age: None, ticket }
    }
}
