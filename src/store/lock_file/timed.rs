//! Timed tickets: of nobody's process, until an instant of the host's clock, or until they are
//! ended. The caller holds the door.
//!
//! A ticket that has run out does not stand. Its record stays until its room is needed, or until
//! somebody comes whom it would keep waiting, and removes it. So the token that finds its record
//! takes the ticket again with its number: nobody was granted the name meanwhile.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::format::{self, BLOCK_BYTES, HEADER_BYTES, NAME_AT, Record};
use super::{Added, Loaded, LockFile};
use crate::core::tickets::{Mode, Name, StoredTicket, Ticket};
use crate::core::{Instant, Ms, Revision};
use crate::store::{StoreError, StoreResult};
use crate::sys;

/// What has become of the timed ticket that was to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The ticket, if it stood, or had run out and nobody had removed it.
    pub ended: Option<StoredTicket>,
    /// The other tickets that stand for this name, or one above or below it, in their order.
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

    /// Returns how many records of timed tickets there are, but for what has its place in a part of
    /// the file.
    pub(super) fn timed_without(&self, from: usize, bytes: usize) -> u64 {
        if self.now.is_none() {
            return 0;
        }
        let mut rest = self.bytes.clone();
        rest.iter_mut().skip(from).take(bytes).for_each(|byte| *byte = 0);
        let is_timed = |it: &Record| it.until.is_some() && it.number >= self.header.first;
        format::records(rest.get(HEADER_BYTES..).unwrap_or_default(), is_timed, 0).0.len() as u64
    }

    /// Returns the timed ticket of a token for this name and its block, if it stands, or has run
    /// out.
    fn timed(&self, name: &Name, token: &str) -> Option<(usize, Record)> {
        let is_own = |record: &Record| {
            let ticket = &record.ticket;
            record.until.is_some() && ticket.name == *name && ticket.token == token
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
        loaded: &mut Loaded,
        ticket: &Ticket,
        number: u64,
    ) -> StoreResult<Vec<StoredTicket>> {
        let is_in_the_way =
            |(_, it): &(usize, Record)| it.number < number && it.ticket.conflicts(ticket);
        let removed: Vec<_> = loaded.run_out().into_iter().filter(is_in_the_way).collect();
        self.erase(loaded, &removed)?;
        Ok(removed.into_iter().map(|(_, it)| self.stored(it.number, Ok(it.ticket))).collect())
    }

    /// Erases records. What is left of them is none.
    fn erase(&self, loaded: &mut Loaded, records: &[(usize, Record)]) -> StoreResult<()> {
        let mut places = records.iter().map(|(block, _)| HEADER_BYTES + block * BLOCK_BYTES);
        for at in places.clone() {
            loaded.bytes[at..at + NAME_AT].fill(0);
        }
        if !records.is_empty() {
            loaded.header.timed = loaded.timed_without(0, 0);
            self.write(&loaded.header.encode(), 0)?;
        }
        places.try_for_each(|at| self.write(&[0; NAME_AT], at))
    }

    /// Counts the records of timed tickets. If one is missing that may stand, the file is damaged.
    pub(super) fn count_timed(&self, loaded: &mut Loaded) -> StoreResult<()> {
        let Some(now) = loaded.now else { return Ok(()) };
        let (counted, found) = (loaded.header.timed, loaded.timed_without(0, 0));
        let until = loaded.header.timed_until;
        if found < counted && now < until {
            let (lost, rest) = (counted - found, Ms(until.since(now)));
            return Err(self.refused(&format!(
                "is damaged: {lost} of its tickets of putex grab cannot be read; it can be used \
                 again when all of them have ended, in {rest} at most"
            )));
        }
        loaded.header.timed = found;
        Ok(())
    }

    /// Returns the error of a process that cannot tell when timed tickets end.
    pub(super) fn has_other_clock(&self) -> StoreError {
        self.refused(
            "takes no ticket of putex grab in a time namespace, whose clock is another one than \
             that of the host; leave that namespace",
        )
    }

    /// Adds a ticket that stands for so long from now, and leaves by the door. The one that the
    /// same token has for the same name and mode keeps its number and its slot, and stands for so
    /// long, and as long as it did. One that overlaps with another timed ticket of the token would
    /// wait for itself: then that is returned, and none is added.
    ///
    /// # Errors
    ///
    /// As [`LockFile::add`], and in a time namespace that is not the host's.
    pub fn add_timed(
        &self,
        ticket: &Ticket,
        lasts: Duration,
        only_if_free: bool,
    ) -> StoreResult<Result<Added, StoredTicket>> {
        if !self.has_clock_of_host {
            return Err(self.has_other_clock());
        }
        let mut loaded = self.load()?;
        if let Some(other) = self.overlapping(&loaded, ticket) {
            self.leave()?;
            return Ok(Err(other));
        }
        let until = sys::now().after(lasts);
        let own = loaded.timed(&ticket.name, &ticket.token);
        let own = own.filter(|(_, record)| record.ticket.mode == ticket.mode);
        let Some((block, Record { number, ticket, until: stood_until })) = own else {
            return self.put(loaded, ticket, Some(until), only_if_free).map(Ok);
        };
        let until = stood_until.map_or(until, |stood| stood.max(until));
        let removed = self.remove_run_out(&mut loaded, &ticket, number)?;
        loaded.header.timed_until = loaded.header.timed_until.max(until);
        self.write(&loaded.header.encode(), 0)?;
        let (added, record) = self.decide(&loaded, &ticket, number);
        let encoded = Record { until: Some(until), ..record }.encode();
        // The rest stays and is not written: a short write is done as a whole.
        let at = HEADER_BYTES + block * BLOCK_BYTES;
        self.write(&encoded[..NAME_AT], at)?;
        self.leave()?;
        Ok(Ok(Added { until: Some(until), removed, at, ..added }))
    }

    /// Returns the timed ticket of the same token that this one would wait for, or that would wait
    /// for this one, were it added.
    fn overlapping(&self, loaded: &Loaded, ticket: &Ticket) -> Option<StoredTicket> {
        let is_other = |record: &Record| {
            let Ticket { name, mode, token, .. } = &record.ticket;
            record.until.is_some()
                && *token == ticket.token
                && name.overlaps(&ticket.name)
                && !(*name == ticket.name && *mode == ticket.mode)
        };
        let other = loaded.records(0).0.into_iter().find(|(_, record)| is_other(record));
        other.map(|(_, record)| self.stored(record.number, Ok(record.ticket)))
    }

    /// Decides about the timed ticket of the same token, name and mode, if it stands, without a
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
            record.until.is_some() && is_same && it.name == ticket.name
        };
        let own = loaded.records(0).0.into_iter().find(|(_, record)| is_own(record));
        let added = own.map(|(_, Record { number, until, ticket })| {
            let (added, _) = self.decide(&loaded, &ticket, number);
            Added { until, ..added }
        });
        self.leave()?;
        Ok(added)
    }

    /// Ends the timed ticket of a token for this name, whoever asks, and leaves by the door.
    ///
    /// # Errors
    ///
    /// As [`LockFile::add`].
    pub fn end_timed(&self, name: &Name, token: &str) -> StoreResult<Ended> {
        let mut loaded = self.load()?;
        let own = loaded.timed(name, token);
        self.erase(&mut loaded, own.as_slice())?;
        let ended = own.map(|(_, record)| self.stored(record.number, Ok(record.ticket)));
        let others = self.standing(&loaded).into_iter().filter(|other| {
            let is_ended = ended.as_ref().is_some_and(|ended| ended.number == other.number);
            let ticket = other.ticket.as_ref();
            !is_ended && ticket.map_or(true, |it| it.name.overlaps(name))
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
