//! Timed tickets: of nobody's process, until an instant of this boot, or until they are ended.
//! The caller holds the door.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::format::{BLOCK_BYTES, HEADER_BYTES, Record, UNTIL_END};
use super::{Added, Loaded, LockFile};
use crate::core::tickets::{Name, Ticket};
use crate::store::StoreResult;
use crate::sys;

impl Loaded {
    /// Returns the timed ticket of a token for these names, if it stands, and its block.
    fn timed(&self, names: &[Name], token: &str) -> Option<(usize, Record)> {
        let is_own = |record: &Record| {
            let ticket = &record.ticket;
            record.until.is_some() && ticket.names == names && ticket.token == token
        };
        self.records(0).0.into_iter().find(|(_, record)| is_own(record))
    }
}

impl LockFile {
    /// Adds a ticket that stands for so long from now, and leaves by the door. The one that the
    /// same token has for the same names and mode keeps its number and its slot, and stands for so
    /// long.
    ///
    /// # Errors
    ///
    /// As [`LockFile::add`], and when the system does not tell which boot this is.
    pub fn add_timed(
        &self,
        ticket: &Ticket,
        lasts: Duration,
        only_if_free: bool,
    ) -> StoreResult<Added> {
        if self.boot.is_empty() {
            return Err(self.refused("takes no timed ticket: the system does not tell its boot"));
        }
        let mut loaded = self.load()?;
        let until = sys::now().after(lasts);
        let own = loaded.timed(&ticket.names, &ticket.token);
        let own = own.filter(|(_, record)| record.ticket.mode == ticket.mode);
        let Some((block, Record { number, ticket, .. })) = own else {
            return self.put(loaded, ticket, Some(until), only_if_free);
        };
        loaded.header.timed_until = loaded.header.timed_until.max(until);
        self.write(&loaded.header.encode(), 0)?;
        let (added, record) = self.decide(&loaded, &ticket, number);
        let encoded = Record { until: Some(until), ..record }.encode();
        // Where the rest stays it is not written: a short write is done as a whole.
        let length = if added.slot == ticket.slot { UNTIL_END } else { encoded.len() };
        let at = HEADER_BYTES + block * BLOCK_BYTES;
        self.write(&encoded[..length], at)?;
        self.leave()?;
        Ok(Added { at, ..added })
    }

    /// Ends the timed ticket of a token for these names, whoever asks, and leaves by the door;
    /// returns its number, if it stood.
    ///
    /// # Errors
    ///
    /// As [`LockFile::add`].
    pub fn end_timed(&self, names: &[Name], token: &str) -> StoreResult<Option<u64>> {
        let own = self.load()?.timed(names, token);
        if let Some((block, _)) = &own {
            self.write(&[0; UNTIL_END], HEADER_BYTES + block * BLOCK_BYTES)?;
        }
        self.leave()?;
        Ok(own.map(|(_, record)| record.number))
    }

    /// Returns what becomes readable whenever the file is written; `None` where the system has no
    /// such descriptor left.
    pub fn changes(&self) -> Option<OwnedFd> {
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        inotify::add_watch(&queue, &self.path, WatchFlags::MODIFY).ok()?;
        Some(queue)
    }
}
