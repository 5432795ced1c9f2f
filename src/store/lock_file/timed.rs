//! Timed tickets: of nobody's process, until an instant of this boot, or until they are ended.
//! The caller holds the door.
//!
//! A ticket that has run out does not stand. Its record stays until its room is needed, or until
//! somebody comes whom it would keep waiting, and removes it. So the token that finds its record
//! takes the ticket again with its number: nobody was granted the names meanwhile.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::format::{self, BLOCK_BYTES, HEADER_BYTES, Record, UNTIL_END};
use super::{Added, Loaded, LockFile};
use crate::core::tickets::{Mode, Name, StoredTicket, Ticket, are_same, overlap};
use crate::core::{Instant, Revision};
use crate::store::StoreResult;
use crate::sys;

/// What has become of the timed ticket that was to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The ticket, if it stood, or had run out and nobody had removed it.
    pub ended: Option<StoredTicket>,
    /// The other tickets that stand for these names, or for parts of them, in their order.
    pub others: Vec<StoredTicket>,
    /// When some of them end by themselves.
    pub timed: BTreeMap<Revision, Instant>,
}

impl Loaded {
    /// Returns when the timed tickets that stand end by themselves.
    pub(super) fn ends(&self) -> BTreeMap<Revision, Instant> {
        let ends = |(_, it): (usize, Record)| Some((Revision(it.number), it.until?));
        self.records(0).0.into_iter().filter_map(ends).collect()
    }

    /// Returns the timed tickets that have run out and were not removed, with their blocks. A slot
    /// may be another's by now.
    fn run_out(&self) -> Vec<(usize, Record)> {
        let has_run_out = |record: &Record| match (record.until, self.now) {
            (Some(until), Some(now)) => {
                let has_slots = matches!(record.ticket.mode, Mode::Slots(_));
                record.number >= self.header.first && until <= now && !has_slots
            }
            (_, _) => false,
        };
        format::records(self.bytes.get(HEADER_BYTES..).unwrap_or_default(), has_run_out, 0).0
    }

    /// Returns the timed ticket of a token for these names and its block, if it stands, or has run
    /// out.
    fn timed(&self, names: &[Name], token: &str) -> Option<(usize, Record)> {
        let is_own = |record: &Record| {
            let ticket = &record.ticket;
            record.until.is_some() && are_same(&ticket.names, names) && ticket.token == token
        };
        let all = self.records(0).0.into_iter().chain(self.run_out());
        all.into_iter().find(|(_, record)| is_own(record))
    }
}

impl LockFile {
    /// Removes the timed tickets that have run out and that a ticket of this number would wait for
    /// if they stood. They cannot be taken again.
    pub(super) fn remove_run_out(
        &self,
        loaded: &Loaded,
        ticket: &Ticket,
        number: u64,
    ) -> StoreResult<Vec<StoredTicket>> {
        let mut removed = Vec::new();
        for (block, record) in loaded.run_out() {
            if record.number < number && record.ticket.conflicts(ticket) {
                self.erase(block)?;
                removed.push(self.stored(record.number, Ok(record.ticket)));
            }
        }
        Ok(removed)
    }

    /// Erases a record. What is left of it is none.
    fn erase(&self, block: usize) -> StoreResult<()> {
        self.write(&[0; UNTIL_END], HEADER_BYTES + block * BLOCK_BYTES)
    }

    /// Adds a ticket that stands for so long from now, and leaves by the door. The one that the
    /// same token has for the same names and mode keeps its number and its slot, and stands for so
    /// long, and as long as it did. One that overlaps with another timed ticket of the token would
    /// wait for itself: then that is returned, and none is added.
    ///
    /// # Errors
    ///
    /// As [`LockFile::add`], and when the system does not tell which boot this is.
    pub fn add_timed(
        &self,
        ticket: &Ticket,
        lasts: Duration,
        only_if_free: bool,
    ) -> StoreResult<Result<Added, StoredTicket>> {
        if self.boot.is_empty() {
            return Err(self.refused("takes no timed ticket: the system does not tell its boot"));
        }
        let mut loaded = self.load()?;
        if let Some(other) = self.overlapping(&loaded, ticket) {
            self.leave()?;
            return Ok(Err(other));
        }
        let until = sys::now().after(lasts);
        let own = loaded.timed(&ticket.names, &ticket.token);
        let own = own.filter(|(_, record)| record.ticket.mode == ticket.mode);
        let Some((block, Record { number, ticket, until: stood_until })) = own else {
            return self.put(loaded, ticket, Some(until), only_if_free).map(Ok);
        };
        let until = stood_until.map_or(until, |stood| stood.max(until));
        let removed = self.remove_run_out(&loaded, &ticket, number)?;
        loaded.header.timed_until = loaded.header.timed_until.max(until);
        self.write(&loaded.header.encode(), 0)?;
        let (added, record) = self.decide(&loaded, &ticket, number);
        let encoded = Record { until: Some(until), ..record }.encode();
        // Where the rest stays it is not written: a short write is done as a whole.
        let length = if added.slot == ticket.slot { UNTIL_END } else { encoded.len() };
        let at = HEADER_BYTES + block * BLOCK_BYTES;
        self.write(&encoded[..length], at)?;
        self.leave()?;
        Ok(Ok(Added { until: Some(until), removed, at, ..added }))
    }

    /// Returns the timed ticket of the same token that this one would wait for, or that would wait
    /// for this one, were it added.
    fn overlapping(&self, loaded: &Loaded, ticket: &Ticket) -> Option<StoredTicket> {
        let is_other = |record: &Record| {
            let Ticket { names, mode, token, .. } = &record.ticket;
            record.until.is_some()
                && *token == ticket.token
                && overlap(names, &ticket.names)
                && !(are_same(names, &ticket.names) && *mode == ticket.mode)
        };
        let other = loaded.records(0).0.into_iter().find(|(_, record)| is_other(record));
        other.map(|(_, record)| self.stored(record.number, Ok(record.ticket)))
    }

    /// Decides about the timed ticket of the same token, names and mode, if it stands, without a
    /// write, and leaves by the door.
    ///
    /// # Errors
    ///
    /// As [`LockFile::add`].
    pub fn inspect_timed(&self, ticket: &Ticket) -> StoreResult<Option<Added>> {
        let loaded = self.load()?;
        let is_own = |record: &Record| {
            let it = &record.ticket;
            let is_same = it.mode == ticket.mode && it.token == ticket.token;
            record.until.is_some() && is_same && are_same(&it.names, &ticket.names)
        };
        let own = loaded.records(0).0.into_iter().find(|(_, record)| is_own(record));
        let added = own.map(|(_, Record { number, until, ticket })| {
            let (added, _) = self.decide(&loaded, &ticket, number);
            Added { until, ..added }
        });
        self.leave()?;
        Ok(added)
    }

    /// Ends the timed ticket of a token for these names, whoever asks, and leaves by the door.
    ///
    /// # Errors
    ///
    /// As [`LockFile::add`].
    pub fn end_timed(&self, names: &[Name], token: &str) -> StoreResult<Ended> {
        let loaded = self.load()?;
        let own = loaded.timed(names, token);
        if let Some((block, _)) = &own {
            self.erase(*block)?;
        }
        let ended = own.map(|(_, record)| self.stored(record.number, Ok(record.ticket)));
        let others = self.standing(&loaded).into_iter().filter(|other| {
            let is_ended = ended.as_ref().is_some_and(|ended| ended.number == other.number);
            let ticket = other.ticket.as_ref();
            !is_ended && ticket.map_or(true, |it| overlap(&it.names, names))
        });
        let others = others.collect();
        let timed = loaded.ends();
        self.leave()?;
        Ok(Ended { ended, others, timed })
    }

    /// Returns what becomes readable whenever the file is written; `None` where the system has no
    /// such descriptor left.
    pub fn changes(&self) -> Option<OwnedFd> {
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        inotify::add_watch(&queue, &self.path, WatchFlags::MODIFY).ok()?;
        Some(queue)
    }
}
