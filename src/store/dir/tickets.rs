//! The tickets of `putex lock` and `putex grab` on one host: entries that end by themselves.
//!
//! The key of a ticket is `lock.`, its name with dots, and its number. Tickets are listed, judged
//! and written under the lock of the folder: see `Folder::enter`. So a ticket that was
//! granted once stays so as long as it stands, and needs no renewal.
//!
//! A ticket of `putex lock` stands as long as a process has a shared lock of its file, which is one
//! of the open file description (`F_OFD_SETLK` of fcntl(2)): the lock ends with the last descriptor
//! of that description, however the processes end. The command inherits a second description, which
//! has the file locked too, and cannot write. A waiter for the end of a ticket asks for an
//! exclusive lock of its file, which no ticket has. The file of a ticket that has ended is removed
//! by the process that finds it.
//!
//! A ticket of `putex grab` has no process. It stands until an instant of this boot, which is in
//! its header `Putex-Until`.
//!
//! # Invariants
//!
//! * A file is created, written and locked while nobody else lists tickets. So a process that is
//!   killed at any instant leaves a gap in the numbers, and files that nobody has locked.
//! * No number is that of two tickets, so a process that ends a ticket needs no lock.
//! * A file of which nobody knows whether its ticket stands is an error that names it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::rc::Rc;

use rustix::fs::{Mode, OFlags};

use super::folder::{FLAGS, Folder, HeldLock, TEMP};
use super::text::{self, Kind};
use super::ticket_time::{TicketTime, UNTIL};
use crate::core::tickets::{Name, StoredTicket, Ticket};
use crate::core::{Instant, Revision};
use crate::store::tickets::entry;
use crate::store::{Entry, StoreError, StoreResult};
use crate::sys;
use crate::sys::raw::{self, FileLock};

/// How many tickets for other names are looked at when one is added: the file of a ticket that has
/// ended is removed also if nobody asks for its name again.
const LOOKED_AT: usize = 2;

/// A number above those of all tickets that stand.
pub const LAST: Revision = Revision(u64::MAX);

/// The tickets for a name, and those above and below it.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// The tickets that stand, in their order.
    pub standing: Vec<StoredTicket>,
    /// The instants at which some of these tickets end by themselves, by their keys.
    pub ends: BTreeMap<String, Instant>,
}

impl Listed {
    /// Returns the tickets that this requester has without a process.
    pub fn of_requester<'a>(
        &'a self,
        token: &'a str,
    ) -> impl Iterator<Item = (&'a StoredTicket, &'a Ticket)> + Clone {
        let timed = self.standing.iter().filter(|stored| self.ends.contains_key(&stored.key));
        let readable = timed.filter_map(|stored| Some((stored, stored.ticket.as_ref().ok()?)));
        readable.filter(move |(_, ticket)| ticket.token == token)
    }
}

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
    /// Returns a ticket, and when it ends by itself, if it does; `None` if it has ended. The caller
    /// holds the lock.
    pub(super) fn ticket(
        &self,
        kind: Kind,
        key: &str,
    ) -> StoreResult<Option<(Entry, Option<Instant>)>> {
        let name = kind.file_of(key);
        let Some(file) = self.open_file(&name, OFlags::RDONLY)? else { return Ok(None) };
        if kind == Kind::Held {
            let is_held = raw::is_shared_by_others(&file);
            if !is_held.map_err(|error| self.failed("lock", &name, error))? {
                return Ok(None);
            }
        }
        let (revision, content) = self.read(&name, &file, text::decode_record)?;
        let mut ends_at = None;
        if kind == Kind::Until {
            let time = content.header(UNTIL).and_then(TicketTime::from_text);
            let time = time.ok_or_else(|| self.unexpected(&name))?;
            let now = self.has_clock_of_host.then(sys::now);
            if time.is_of_earlier_boot(&self.boot, now) {
                return Ok(None);
            }
            if now.ok_or_else(|| self.has_other_clock())? >= time.until {
                return Ok(None);
            }
            ends_at = Some(time.until);
        }
        let key = key.to_owned();
        Ok(Some((Entry { key, revision, content, age: None }, ends_at)))
    }

    /// Returns the error of a process that cannot tell when tickets end.
    fn has_other_clock(&self) -> StoreError {
        self.damaged(
            "",
            "has no ticket of putex grab for a time namespace, whose clock is another one than \
             that of the host; leave that namespace",
        )
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
        let mut keys = self.key_files()?;
        keys.retain(|(kind, _)| matches!(kind, Kind::Held | Kind::Until));
        Ok(Some(Entered { folder: self, held, keys }))
    }

    /// Opens the file of a ticket that a process has, for [`wait_for_end`]; `None` if it has ended,
    /// or was written anew since it was found: one that got a slot ends no wait for that slot.
    ///
    /// # Errors
    ///
    /// When it cannot be opened or read.
    pub(crate) fn open_to_wait(&self, ticket: &StoredTicket) -> StoreResult<Option<File>> {
        let name = Kind::Held.file_of(&ticket.key);
        let Some(file) = self.open_file(&name, OFlags::RDWR)? else { return Ok(None) };
        let (revision, _) = self.read(&name, &file, text::decode_record)?;
        Ok((revision == ticket.revision).then_some(file))
    }
}

impl Entered<'_> {
    /// Returns the random id of the bucket.
    pub fn epoch(&self) -> &str {
        &self.held.id.epoch
    }

    /// Checks that this process has the clock of the host, by which tickets end.
    ///
    /// # Errors
    ///
    /// If not: then it cannot tell when a ticket ends that no process has.
    pub fn check_clock(&self) -> StoreResult<()> {
        let folder = self.folder;
        folder.has_clock_of_host.then_some(()).ok_or_else(|| folder.has_other_clock())
    }

    /// Returns the tickets for a name, and those above and below it. With a number, those before
    /// that only, as far as a process has them.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub fn list(&self, name: &Name, before: Option<Revision>) -> StoreResult<Listed> {
        let folder = self.folder;
        let mut found = Listed::default();
        for (kind, key) in &self.keys {
            let Some((other, number)) = parts_of(key) else { continue };
            let is_later = before.is_some_and(|before| number >= before);
            if !other.overlaps(name) || is_later && *kind == Kind::Held {
                continue;
            }
            let Some((entry, ends_at)) = folder.ticket(*kind, key)? else {
                folder.unlink(&kind.file_of(key))?;
                continue;
            };
            let Some(stored) = entry::standing(entry) else { continue };
            found.ends.extend(ends_at.map(|at| (key.clone(), at)));
            found.standing.push(stored);
        }
        found.standing.sort_by_key(|stored| stored.number);
        Ok(found)
    }

    /// Returns a number above those of all tickets: a ticket of the same number would be
    /// overwritten.
    fn next(&self) -> StoreResult<Revision> {
        let numbers = self.keys.iter().filter_map(|(_, key)| Some(parts_of(key)?.1));
        self.folder.next(numbers.max().unwrap_or_default())
    }

    /// Adds a ticket, which this process has.
    ///
    /// # Errors
    ///
    /// When it cannot be written; then there is none.
    pub fn add(&self, ticket: &Ticket) -> StoreResult<OwnTicket> {
        let number = self.next()?;
        let file_name = Kind::Held.file_of(&entry::key_of(&ticket.name, number));
        let body = text::encode_record(number, &entry::to_content(ticket, Some(number)));
        let (file, inherited) = self.create(&file_name, &file_name, &body)?;
        self.remove_some(number);
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

    /// Removes the files of some tickets that have ended, whatever their names. Each number looks
    /// at other files.
    fn remove_some(&self, number: Revision) {
        let folder = self.folder;
        let first = number.0.checked_rem(self.keys.len() as u64).unwrap_or_default();
        for (kind, key) in self.keys.iter().cycle().skip(first as usize).take(LOOKED_AT) {
            // Best effort: a process that asks for that name is told the error.
            if let Ok(None) = folder.ticket(*kind, key) {
                let _ = folder.unlink(&kind.file_of(key));
            }
        }
    }

    /// Returns whether a ticket of this process was not removed by somebody.
    ///
    /// # Errors
    ///
    /// When that cannot be told.
    pub fn has(&self, own: &OwnTicket) -> StoreResult<bool> {
        self.folder.names(&own.file_name, &own.file)
    }

    /// Writes a ticket that no process has, which ends then; a new one without a number. Returns
    /// its number. The caller has the clock of the host: [`Entered::check_clock`].
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write_until(
        &self,
        ticket: &Ticket,
        number: Option<Revision>,
        until: Instant,
    ) -> StoreResult<Revision> {
        let folder = self.folder;
        let revision = self.next()?;
        let number = number.unwrap_or(revision);
        let time = TicketTime { written: sys::now(), until, boot: folder.boot.clone() };
        let mut content = entry::to_content(ticket, Some(number));
        content.headers.push((UNTIL.to_owned(), time.to_text()));
        let name = Kind::Until.file_of(&entry::key_of(&ticket.name, number));
        folder.replace(&name, &text::encode_record(revision, &content))?;
        self.remove_some(revision);
        Ok(number)
    }

    /// Removes a ticket that no process has.
    ///
    /// # Errors
    ///
    /// When it cannot be removed.
    pub fn remove(&self, ticket: &StoredTicket) -> StoreResult<()> {
        self.folder.unlink(&Kind::Until.file_of(&ticket.key))
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

/// Returns the name and the number in the key of a ticket; `None` for another key.
fn parts_of(key: &str) -> Option<(Name, Revision)> {
    let (_, number) = key.rsplit_once('.')?;
    Some((entry::name_of(key).ok()?, Revision(number.parse().ok()?)))
}

#[cfg(test)]
mod tests;
