//! The tickets of `putex lock` and `putex grab` on one host: entries that end by themselves.
//!
//! Tickets are listed, judged and written under the lock of the folder: see `Folder::enter`.
//!
//! The key of a ticket of `putex lock` is `lock.`, its name with dots, and its number. Once it was
//! granted it stays so as long as it stands, and needs no renewal. It stands as long as a process
//! has a shared lock of its file, which is one of the open file description (`F_OFD_SETLK` of
//! fcntl(2)): the lock ends with the last descriptor of that description, however the processes
//! end. The command inherits a second description, which has the file locked too, and cannot write.
//! A waiter for the end of a ticket asks for an exclusive lock of its file, which no ticket has.
//! The file of a ticket that has ended is removed by the process that finds it.
//!
//! A ticket of `putex grab` has no process. It is an entry as in NATS, and stands until the instant
//! of this boot at which it has run out, as its header `Putex-Runs-Out` says. From then on it
//! counts as absent, also for a renewal.
//!
//! # Invariants
//!
//! * A file is created, written and locked while nobody else lists tickets. So a process that is
//!   killed at any instant leaves a gap in the numbers, and files that nobody has locked.
//! * No number is that of two tickets, so a process that ends a ticket needs no lock.
//! * A file of which nobody knows whether its ticket stands is an error that names it.

use std::fs::File;
use std::io;
use std::rc::Rc;

use rustix::fs::{Mode, OFlags};

use super::folder::{FLAGS, Folder, HeldLock, TEMP};
use super::text::{self, Kind};
use super::ticket_time::is_of_earlier_boot;
use crate::core::tickets::{Name, StoredTicket, Ticket};
use crate::core::{Instant, Revision};
use crate::store::lifetime::lifetime;
use crate::store::name::TICKET_ROOT;
use crate::store::tickets::entry;
use crate::store::{Entry, StoreErrorKind, StoreResult};
use crate::sys;
use crate::sys::raw::{self, FileLock};

/// How many tickets for other names are looked at when one is added: the file of a ticket that has
/// ended is removed also if nobody asks for its name again.
const LOOKED_AT: usize = 2;

/// A number above those of all tickets that stand.
pub const LAST: Revision = Revision(u64::MAX);

/// Why a process cannot tell when tickets end.
pub const OTHER_CLOCK: &str = "a directory has no ticket of putex grab for a time namespace, whose \
                               clock is another one than that of the host; leave that namespace";

/// The right to list and to write tickets, which one process has at a time.
pub struct Entered<'a> {
    folder: &'a Rc<Folder>,
    held: HeldLock<'a>,
    /// The kinds and the keys of the tickets that were there when it was got.
    keys: Vec<(Kind, String)>,
}

/// A ticket of this process. It ends when it is dropped, unless the command, or a process that the
/// command has left behind, has the ticket too.
pub struct OwnTicket {
    folder: Rc<Folder>,
    file_name: String,
    /// The number of the ticket.
    pub number: Revision,
    file: File,
    /// The file that the command inherits, which then has the ticket too; `None` if the command
    /// does not inherit it.
    pub inherited: Option<File>,
}

impl Folder {
    /// Returns a ticket; `None` if it has ended. The caller holds the lock.
    pub(super) fn ticket(&self, kind: Kind, key: &str) -> StoreResult<Option<Entry>> {
        let name = kind.file_of(key);
        let Some(file) = self.open_file(&name, OFlags::RDONLY)? else { return Ok(None) };
        if kind == Kind::Held {
            let is_held = raw::is_shared_by_others(&file);
            if !is_held.map_err(|error| self.failed("lock", &name, error))? {
                return Ok(None);
            }
        }
        let (revision, content) = self.read(&name, &file, text::decode_record)?;
        let times = entry::runs_out(&content).zip(lifetime(&content));
        if let (Kind::Until, Some((time, lifetime))) = (kind, times) {
            let now = self.has_clock_of_host.then(sys::now);
            if is_of_earlier_boot(&time, lifetime, &self.boot, now) {
                return Ok(None);
            }
            let other_clock = || StoreErrorKind::Unsafe.error(OTHER_CLOCK);
            if now.ok_or_else(other_clock)? >= time.at {
                return Ok(None);
            }
        }
        Ok(Some(Entry { key: key.to_owned(), revision, content }))
    }

    fn lock_own(&self, name: &str, file: &File) -> StoreResult<()> {
        match raw::try_lock_file(file, FileLock::Shared) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.damaged(name, "is locked by another program")),
            Err(error) => Err(self.failed("lock", name, error)),
        }
    }

    /// Waits until nobody else lists or writes tickets, until this instant or for ever; `None` if
    /// that was not so in time. Completes a bucket that is new.
    ///
    /// # Errors
    ///
    /// When the bucket is lost or damaged, or the file system has no locks.
    pub(crate) fn enter(
        self: &Rc<Folder>,
        until: Option<Instant>,
    ) -> StoreResult<Option<Entered<'_>>> {
        let Some(held) = self.lock_until(until)? else { return Ok(None) };
        Ok(Some(Entered { folder: self, held, keys: self.ticket_files()? }))
    }

    /// Returns the kinds and the keys of the files of tickets.
    pub(super) fn ticket_files(&self) -> StoreResult<Vec<(Kind, String)>> {
        let mut keys = self.key_files()?;
        keys.retain(|(kind, _)| matches!(kind, Kind::Held | Kind::Until));
        Ok(keys)
    }

    /// Removes the files of some tickets that have ended, whatever their names. Each number looks
    /// at other files.
    pub(super) fn remove_some(&self, keys: &[(Kind, String)], number: Revision) {
        let first = number.0.checked_rem(keys.len() as u64).unwrap_or_default();
        for (kind, key) in keys.iter().cycle().skip(first as usize).take(LOOKED_AT) {
            // Best effort: a process that asks for that name is told the error.
            if let Ok(None) = self.ticket(*kind, key) {
                let _ = self.unlink(&kind.file_of(key));
            }
        }
    }

    /// Opens the file of the ticket of this key that a process has, for [`wait_for_end`], and
    /// returns the revision that stands there; `None` if it has ended.
    ///
    /// # Errors
    ///
    /// When it cannot be opened or read.
    pub(crate) fn open_to_wait(&self, key: &str) -> StoreResult<Option<(File, Revision)>> {
        let name = Kind::Held.file_of(key);
        let Some(file) = self.open_file(&name, OFlags::RDWR)? else { return Ok(None) };
        let (revision, _) = self.read(&name, &file, text::decode_record)?;
        Ok(Some((file, revision)))
    }
}

impl Entered<'_> {
    /// Returns the random id of the bucket.
    pub fn epoch(&self) -> &str {
        &self.held.id.epoch
    }

    /// Returns the tickets that stand for a name, and those above and below it, in their order.
    /// With a number, those before that only, as far as a process has them.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub fn list(&self, name: &Name, before: Option<Revision>) -> StoreResult<Vec<StoredTicket>> {
        let folder = self.folder;
        let mut standing = Vec::new();
        for (kind, key) in &self.keys {
            let Some((other, number)) = parts_of(key) else { continue };
            let is_later = before.zip(number).is_some_and(|(before, number)| number >= before);
            if !other.overlaps(name) || is_later {
                continue;
            }
            match folder.ticket(*kind, key)? {
                Some(entry) => standing.extend(entry::standing(entry)),
                None => folder.unlink(&kind.file_of(key))?,
            }
        }
        standing.sort_by_key(|stored| stored.number);
        Ok(standing)
    }

    /// Returns a number above those of all tickets: a ticket of the same number would be
    /// overwritten.
    fn next(&self) -> StoreResult<Revision> {
        let numbers = self.keys.iter().filter_map(|(_, key)| parts_of(key)?.1);
        self.folder.next(numbers.max().unwrap_or_default())
    }

    /// Adds a ticket, which this process has.
    ///
    /// # Errors
    ///
    /// When it cannot be written; then there is none.
    pub fn add(&self, ticket: &Ticket) -> StoreResult<OwnTicket> {
        let number = self.next()?;
        let file_name = Kind::Held.file_of(&key_of(ticket, number));
        let body = text::encode_record(number, &entry::to_content(ticket, Some(number)));
        let (file, inherited) = self.create(&file_name, &file_name, &body)?;
        self.folder.remove_some(&self.keys, number);
        let (folder, inherited) = (Rc::clone(self.folder), Some(inherited));
        Ok(OwnTicket { folder, file_name, number, file, inherited })
    }

    /// Writes another content of a ticket of this process.
    ///
    /// # Errors
    ///
    /// When it cannot be written; then it stands as it was.
    pub fn replace(&self, own: &mut OwnTicket, ticket: &Ticket) -> StoreResult<()> {
        let revision = self.next()?;
        let folder = self.folder;
        let body = text::encode_record(revision, &entry::to_content(ticket, Some(own.number)));
        let (file, inherited) = self.create(TEMP, &own.file_name, &body)?;
        folder.publish(&own.file_name)?;
        (own.file, own.inherited) = (file, Some(inherited));
        Ok(())
    }

    /// Creates the file `at` with the content of a ticket's file, and locks it, also for a second
    /// description that cannot write.
    fn create(&self, at: &str, file_name: &str, body: &[u8]) -> StoreResult<(File, File)> {
        let folder = self.folder;
        let file = folder.create_file(at, file_name, body)?;
        let lock_both = || {
            let inherited = folder.openat(at, FLAGS | OFlags::RDONLY, Mode::empty());
            let inherited = inherited.map_err(|error| folder.failed("open", at, error))?;
            folder.lock_own(file_name, &file)?;
            folder.lock_own(file_name, &inherited)?;
            Ok(inherited)
        };
        let locked = lock_both();
        if locked.is_err() {
            // Best effort: the process that finds a file that nobody has locked removes it.
            let _ = folder.unlink(at);
        }
        Ok((file, locked?))
    }

    /// Returns whether a ticket of this process was not removed by somebody.
    ///
    /// # Errors
    ///
    /// When that cannot be told.
    pub fn has(&self, own: &OwnTicket) -> StoreResult<bool> {
        self.folder.names(&own.file_name, &own.file)
    }
}

impl Drop for OwnTicket {
    fn drop(&mut self) {
        let OwnTicket { folder, file_name, file, inherited, .. } = self;
        drop(inherited.take());
        // Best effort: a file that is left is removed by the process that finds it. Others may have
        // the ticket, and another file may have its name.
        let is_last = || raw::try_lock_file(&*file, FileLock::Exclusive).is_ok_and(|it| it);
        if folder.names(file_name, file) == Ok(true) && is_last() {
            let _ = folder.unlink(file_name);
        }
    }
}

/// Waits until no process has the ticket of this file any more.
///
/// # Errors
///
/// When the file system has no such locks, or the system no random numbers.
pub fn wait_for_end(file: File) -> io::Result<()> {
    // Each waiter locks a byte of its own: one that is stopped while it has the lock keeps no other
    // waiting. The lock ends with the file.
    raw::lock_byte(file, sys::random()? as u32)
}

fn key_of(ticket: &Ticket, number: Revision) -> String {
    format!("{TICKET_ROOT}.{}.{number}", ticket.name.elements().join("."))
}

/// Returns the name in the key of a ticket, and the number, which the key of a ticket of
/// `putex grab` lacks; `None` for another key.
fn parts_of(key: &str) -> Option<(Name, Option<Revision>)> {
    let (path, number) = key.strip_prefix(TICKET_ROOT)?.strip_prefix('.')?.rsplit_once('.')?;
    Some((Name::parse(&path.replace('.', "/")).ok()?, number.parse().ok().map(Revision)))
}

#[cfg(test)]
mod tests;
