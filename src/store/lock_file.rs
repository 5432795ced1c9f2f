//! The tickets of `putex lock` for the processes of one host: a file with their records, and a
//! locked byte for each.
//!
//! A ticket stands as long as somebody has its byte locked as a reader: the one at its number,
//! behind the end of every file. The lock is of the open file description (`F_OFD_SETLK` of
//! fcntl(2)), so it ends with the last descriptor of that, however the processes end. The command
//! inherits a second description, which locks the byte too, and cannot write: a command that has
//! given up the rights of its user cannot change the tickets of others. The locked bytes say which
//! tickets stand, and the records say what they are for: a record whose byte is free is room for
//! another.
//!
//! Who takes a ticket holds the door, which is the byte before the first ticket's. A waiter needs
//! no door: it waits for a lock of the byte of the last ticket before its own. Numbers are not
//! used again, so no byte becomes that of another ticket meanwhile. Waiters lock bytes as
//! writers, and at once unlock them: nobody takes that for a ticket.
//!
//! A timed ticket has no process. It stands until an instant of this boot, which its record says;
//! `timed` has the operations, and the rule by which it is taken again when it has run out.
//!
//! # Invariants
//!
//! * The header is written before the record, and a record into the room of an ended ticket, so
//!   a process that is killed at any instant leaves a gap in the numbers at worst. A write within
//!   256 bytes is done as a whole: the kernel looks for a fatal signal between pages.
//! * A byte that is locked and has no whole record is a ticket that conflicts with all.
//! * The header counts the records of timed tickets: up after such a record is written, down before
//!   it is erased or written over. So a process that is killed leaves one more at most, and where
//!   there are less, some are damaged. Then nothing is granted while one of them may stand.
//! * A damaged header is an error that names the file, and is never overwritten.

mod deciding;
pub(crate) mod format;
mod listing;
mod timed;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use self::format::{BLOCK_BYTES, HEADER_BYTES, Header, Record};
pub use self::timed::Ended;
use super::dir::permissions;
use super::{StoreError, StoreErrorKind, StoreResult, name};
use crate::core::tickets::{Decision, StoredTicket, Ticket};
use crate::core::{Incarnation, Instant, Revision};
use crate::sys;
use crate::sys::host_clock;
use crate::sys::raw::{self, ByteLock, FoundLock};

/// The name of the file.
const NAME: &str = "locks";

/// The door: the byte before those of the tickets.
const DOOR: u64 = 1 << 62;

/// The size of a new file: the first tickets need no more room on the disk.
const NEW_BYTES: usize = 4096;

/// The largest file: one that is larger is not of this program.
const BYTES_MAX: usize = 4 << 20;

/// How often the door is tried before it is waited for: others hold it for some microseconds.
const TRIES: u32 = 100;

/// The file with the tickets of a bucket.
#[derive(Debug)]
pub struct LockFile {
    file: File,
    path: PathBuf,
    /// The device and the inode of the file.
    identity: (u64, u64),
    /// The name of this boot; blank if it is not known.
    boot: String,
    has_clock_of_host: bool,
}

/// What stands in the file.
struct Loaded {
    header: Header,
    /// No header was written yet.
    is_new: bool,
    bytes: Vec<u8>,
    /// The numbers of the tickets that others have locked.
    locked: Vec<u64>,
    /// The present, if there may be timed tickets.
    now: Option<Instant>,
}

/// A ticket that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its number; `None` if none was written.
    pub number: Option<u64>,
    /// The random id of the file.
    pub epoch: String,
    /// Whether it is granted, and what it waits for otherwise.
    pub decision: Decision,
    /// The slot of a granted ticket with slots. It stands in the file.
    pub slot: Option<u32>,
    /// The tickets before it.
    pub standing: Vec<StoredTicket>,
    /// When some of them end by themselves.
    pub timed: BTreeMap<Revision, Instant>,
    /// When it ends by itself; of a timed ticket.
    pub until: Option<Instant>,
    /// The timed tickets that had run out, and were removed for it.
    pub removed: Vec<StoredTicket>,
    /// Where its record stands.
    at: usize,
}

impl AsFd for LockFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl LockFile {
    /// Opens the file of a bucket; makes it, and the folders above, if they do not exist.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Unsafe`] if other users or hosts could change it.
    pub fn open(base: &Path, bucket: &str) -> StoreResult<LockFile> {
        name::valid_bucket(bucket).map_err(|text| StoreErrorKind::Unsafe.error(text))?;
        let folder = base.join(bucket);
        let dir = permissions::open_private(base, &folder)?;
        let path = folder.join(NAME);
        let shown = path.display();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = match rustix::fs::openat(&dir, NAME, flags | OFlags::CLOEXEC, mode) {
            Ok(file) => File::from(file),
            Err(Errno::LOOP) => return Err(refused(&path, "is a symbolic link")),
            Err(Errno::ISDIR) => return Err(refused(&path, "is no file")),
            Err(error) => {
                let text = format!("cannot open {shown}: {}", io::Error::from(error));
                return Err(StoreErrorKind::Unreachable.error(text));
            }
        };
        let (boot, has_clock_of_host) = (host_clock::boot(), host_clock::has_clock_of_host());
        let mut file = LockFile { file, path, identity: (0, 0), boot, has_clock_of_host };
        let metadata = file.file.metadata().map_err(|error| file.failed("check", &error))?;
        file.identity = (metadata.dev(), metadata.ino());
        let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
        if !metadata.is_file() {
            return Err(file.refused("is no file"));
        }
        if owner != sys::user_id() {
            return Err(file.refused(&format!("belongs to user {owner}")));
        }
        if mode & 0o022 != 0 {
            return Err(file.refused(&format!("is writable by others (mode {mode:04o})")));
        }
        Ok(file)
    }

    fn failed(&self, what: &str, error: &io::Error) -> StoreError {
        let text = format!("cannot {what} {}: {error}", self.path.display());
        StoreErrorKind::Unreachable.error(text)
    }

    fn refused(&self, why: &str) -> StoreError {
        refused(&self.path, why)
    }

    /// Returns the error of a system call that locks bytes.
    fn no_lock(&self, error: &io::Error) -> StoreError {
        let has_none = [libc::EINVAL, libc::EOPNOTSUPP, libc::ENOSYS];
        if error.raw_os_error().is_some_and(|number| has_none.contains(&number)) {
            let why = "is on a file system without locks of open files; use another directory";
            return self.refused(why);
        }
        self.failed("lock", error)
    }

    fn is_foreign(&self) -> StoreError {
        self.refused("is locked by another program")
    }

    fn lock(&self, how: ByteLock, at: u64, wait: bool) -> StoreResult<bool> {
        self.lock_by(&self.file, how, at, wait)
    }

    /// Locks a byte for an open description of the file.
    fn lock_by(&self, file: &File, how: ByteLock, at: u64, wait: bool) -> StoreResult<bool> {
        match raw::lock_byte(file.as_fd(), how, at, wait) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            // What other systems return for a byte that is locked.
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => Ok(false),
            Err(error) => Err(self.no_lock(&error)),
        }
    }

    /// Enters by the door, unless somebody stays in it.
    ///
    /// # Errors
    ///
    /// When the file system has no such locks.
    pub fn try_to_enter(&self) -> StoreResult<bool> {
        for _ in 0..TRIES {
            if self.lock(ByteLock::Exclusive, DOOR, false)? {
                return Ok(true);
            }
            std::thread::yield_now();
        }
        Ok(false)
    }

    /// Waits until it has entered by the door.
    ///
    /// # Errors
    ///
    /// When the file system has no such locks.
    pub fn enter(&self) -> StoreResult<()> {
        self.lock(ByteLock::Exclusive, DOOR, true).map(drop)
    }

    /// Leaves by the door.
    ///
    /// # Errors
    ///
    /// When the file system has no such locks.
    pub fn leave(&self) -> StoreResult<()> {
        self.lock(ByteLock::Unlocked, DOOR, false).map(drop)
    }

    /// Waits until the ticket of this number has ended. It ends with its processes.
    ///
    /// # Errors
    ///
    /// When the file system has no such locks.
    pub fn wait_for_end_of(&self, number: Revision) -> StoreResult<()> {
        self.lock(ByteLock::Exclusive, DOOR + number.0, true)?;
        self.lock(ByteLock::Unlocked, DOOR + number.0, false).map(drop)
    }

    /// Returns a description of the file, for reading only, that has the ticket of this number
    /// too; `None` if the path names another file by now.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened again, or the file system has no such locks.
    pub fn reader_of(&self, number: Revision) -> StoreResult<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(self.failed("open", &error.into())),
        };
        let metadata = file.metadata().map_err(|error| self.failed("check", &error))?;
        if (metadata.dev(), metadata.ino()) != self.identity {
            return Ok(None);
        }
        match self.lock_by(&file, ByteLock::Shared, DOOR + number.0, false)? {
            true => Ok(Some(file)),
            false => Err(self.is_foreign()),
        }
    }

    /// Returns whether the path still names this file: a ticket in another one is unknown to
    /// those who come.
    ///
    /// # Errors
    ///
    /// When the file cannot be inspected.
    pub fn is_current(&self) -> StoreResult<bool> {
        match std::fs::symlink_metadata(&self.path) {
            Ok(there) => Ok((there.dev(), there.ino()) == self.identity),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed("check", &error)),
        }
    }

    /// Returns the numbers of the tickets that others have locked.
    fn locked(&self) -> StoreResult<Vec<u64>> {
        let mut found = Vec::new();
        // Numbers from the first to before the last; without a last, all above.
        let mut parts = vec![(1, None)];
        while let Some((from, to)) = parts.pop() {
            if to.is_some_and(|to| to <= from) {
                continue;
            }
            let bytes = to.map_or(0, |to| to - from);
            match raw::find_lock(self.as_fd(), DOOR + from, bytes) {
                Ok(None) => {}
                Ok(Some(FoundLock { how, from: byte, bytes })) if byte > DOOR && bytes > 0 => {
                    let (number, end) = (byte - DOOR, byte - DOOR + bytes);
                    match (how, bytes) {
                        (ByteLock::Shared, 1) => found.push(number),
                        (ByteLock::Shared, _) => return Err(self.is_foreign()),
                        // Of who waits, or of its threads for several.
                        (ByteLock::Exclusive | ByteLock::Unlocked, _) => {}
                    }
                    // It may reach beyond the part.
                    parts.extend([(from, Some(number.max(from))), (end, to)]);
                }
                Ok(Some(_)) => return Err(self.is_foreign()),
                Err(error) => return Err(self.no_lock(&error)),
            }
        }
        Ok(found)
    }

    /// Reads the file: its beginning, or all of it.
    fn read(&self, all: bool) -> StoreResult<Vec<u8>> {
        let mut bytes = vec![0; if all { BYTES_MAX + 1 } else { NEW_BYTES }];
        let mut length = 0;
        while length < bytes.len() {
            match self.file.read_at(&mut bytes[length..], length as u64) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("read", &error)),
            }
        }
        if length > BYTES_MAX {
            return Err(self.refused("is larger than any file of ours"));
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    fn write(&self, bytes: &[u8], at: usize) -> StoreResult<()> {
        let written = self.file.write_all_at(bytes, at as u64);
        written.map_err(|error| self.failed("write", &error))
    }

    /// Reads what stands in the file. The caller holds the door.
    fn load(&self) -> StoreResult<Loaded> {
        let mut bytes = self.read(false)?;
        let locked = self.locked()?;
        let decoded = Header::decode(&bytes).map_err(|what| self.refused(what))?;
        let is_new = decoded.is_none();
        if is_new && !locked.is_empty() {
            return Err(self.refused("was emptied while locks are held"));
        }
        let mut header = match decoded {
            Some(header) => header,
            None => Header::new(Incarnation(sys::random().map_err(|error| {
                StoreErrorKind::Unreachable.error(format!("no random number: {error}"))
            })?)),
        };
        let now = self.has_clock_of_host.then(sys::now);
        header.enter_boot(&self.boot, now);
        let may_be_timed = header.timed_until > Instant::from_boot(Duration::ZERO);
        if may_be_timed && now.is_none() {
            return Err(self.has_other_clock());
        }
        let now = now.filter(|_| may_be_timed);
        // One that has run out may be taken again, unless it is seen and removed here.
        if bytes.len() == NEW_BYTES && (now.is_some() || !locked.is_empty()) {
            bytes = self.read(true)?;
        }
        let mut loaded = Loaded { header, is_new, bytes, locked, now };
        self.count_timed(&mut loaded)?;
        Ok(loaded)
    }

    /// Adds a ticket, and leaves by the door through which the caller has entered. `only_if_free`
    /// adds none that has to wait. The ticket ends with the last descriptor of this file.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Unsafe`] if the file is damaged; [`StoreErrorKind::Unreachable`] if it
    /// could not be read or written: then no ticket is there, and the file is to be dropped.
    pub fn add(&self, ticket: &Ticket, only_if_free: bool) -> StoreResult<Added> {
        self.put(self.load()?, ticket, None, only_if_free)
    }

    /// Decides about a ticket without adding it, and leaves by the door.
    ///
    /// # Errors
    ///
    /// As [`LockFile::add`].
    pub fn inspect(&self, ticket: &Ticket) -> StoreResult<Added> {
        let loaded = self.load()?;
        let (added, _) = self.decide(&loaded, ticket, loaded.header.next);
        self.leave()?;
        Ok(Added { number: None, ..added })
    }

    /// Puts a new ticket into the file.
    fn put(
        &self,
        mut loaded: Loaded,
        ticket: &Ticket,
        until: Option<Instant>,
        only_if_free: bool,
    ) -> StoreResult<Added> {
        let floor = loaded.locked.iter().copied().max().unwrap_or(0);
        let mut header = loaded.header.clone();
        let (number, is_reservation) = header
            .take_number(floor)
            .ok_or_else(|| self.refused("has no number left; remove it when nobody uses it"))?;
        let removed = self.remove_run_out(&mut loaded, ticket, number)?;
        let (mut added, mut record) = self.decide(&loaded, ticket, number);
        (record.until, added.until, added.removed) = (until, until, removed);
        let encoded = record.encode();
        let is_refused = match added.decision {
            Decision::Wait { .. } => only_if_free,
            Decision::Granted | Decision::Slot(_) => false,
        };
        if is_refused {
            self.leave()?;
            return Ok(Added { number: None, ..added });
        }
        let (_, room) = loaded.records(encoded.len() / BLOCK_BYTES);
        added.at = HEADER_BYTES + room * BLOCK_BYTES;
        if added.at + encoded.len() > BYTES_MAX {
            let text = format!("{} has no room for more tickets", self.path.display());
            return Err(StoreErrorKind::Unreachable.error(text));
        }
        if loaded.is_new {
            self.begin()?;
        }
        // Records of timed tickets that have run out may be in the room.
        header.timed = loaded.timed_without(added.at, encoded.len());
        if let Some(until) = until {
            header.timed_until = header.timed_until.max(until);
        } else if !self.lock(ByteLock::Shared, DOOR + number, false)? {
            return Err(self.is_foreign());
        }
        let written = self.write_ticket(&header, is_reservation, &encoded, added.at);
        let written = written.and_then(|()| match until {
            Some(_) => {
                header.timed += 1;
                self.write(&header.encode(), 0)
            }
            None => Ok(()),
        });
        if let Err(error) = written {
            self.lock(ByteLock::Unlocked, DOOR + number, false)?;
            return Err(error);
        }
        self.leave()?;
        Ok(added)
    }

    /// Makes room in a new file for the header and the first tickets.
    fn begin(&self) -> StoreResult<()> {
        self.write(&[0; NEW_BYTES], 0).inspect_err(|_| {
            // What is left of it does no harm, and is room on a full disk.
            let _ = self.file.set_len(0);
        })
    }

    /// Writes the header, and then the record.
    fn write_ticket(
        &self,
        header: &Header,
        is_reservation: bool,
        record: &[u8],
        at: usize,
    ) -> StoreResult<()> {
        let header = header.encode();
        if is_reservation || at != HEADER_BYTES {
            self.write(&header, 0)?;
        }
        if is_reservation {
            self.file.sync_data().map_err(|error| self.failed("sync", &error))?;
        }
        if at == HEADER_BYTES {
            self.write(&[&header, record].concat(), 0)
        } else {
            self.write(record, at)
        }
    }
}

impl Loaded {
    /// Returns the records of the tickets that stand, with their blocks, and the first block of so
    /// many that are free.
    fn records(&self, wanted: usize) -> (Vec<(usize, Record)>, usize) {
        let stands = |record: &Record| match (record.until, self.now) {
            (None, _) => self.locked.contains(&record.number),
            (Some(until), Some(now)) => record.number >= self.header.first && now < until,
            (Some(_), None) => false,
        };
        format::records(self.bytes.get(HEADER_BYTES..).unwrap_or_default(), stands, wanted)
    }
}

fn refused(path: &Path, why: &str) -> StoreError {
    StoreErrorKind::Unsafe.error(format!("{} {why}", path.display()))
}

#[cfg(test)]
mod tests;
