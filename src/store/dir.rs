//! The store for agents of one host: a folder with one file for each key.
//!
//! | file | content | written |
//! |---|---|---|
//! | `epoch` | random id of the bucket; boot and time since boot at its creation | once |
//! | `sequence` | highest revision of the whole bucket | before every record |
//! | `KEY.key` | revision, headers, blank line, payload | by compare-and-set |
//! | `KEY.first` | revision of the key's first record | after that record |
//! | `KEY.twin` | headers, blank line, payload of the last announcement | by [`Bucket::announce`] |
//! | `new` | the next content of one of these; without meaning otherwise | under the lock |
//!
//! In `KEY` all characters but letters, digits and `-_=.` are escaped with `%`. Every file
//! begins with `putex 1` and ends with a checksum, so that damage is detected; a damaged
//! file is an error that names it, and is never overwritten.
//!
//! The lock is flock(2) on the folder itself: it cannot be deleted apart from the files
//! that it protects, and ends with its holder. Under it a write compares, raises
//! `sequence`, and renames `new` to the record. A process that is killed at any instant
//! therefore leaves the old record or the new one, and at worst a gap in the revisions. A
//! reader of one key sees one of the two as well and takes no lock.
//!
//! # Invariants
//!
//! * Only [`Bucket::open`] creates folders. Every other call reports a folder that was
//!   removed, replaced or given another epoch, and leaves the disk as it is.
//! * `sequence` is never less than the revision of a record, so revisions and
//!   terms go on growing when a record is removed by hand. The key then has a tombstone
//!   at the revision of `KEY.first`.
//! * A wait is bounded by the caller's deadline. An operation on the disk is not: a file
//!   system that hangs holds the call. `/run` is in memory.

mod entries;
mod folder;
mod permissions;
pub(crate) mod text;

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{ReadFlags, Reader};
use rustix::io::Errno;

use self::folder::{EPOCH, Folder, FolderError};
use self::permissions::check_key;
use self::text::{Kind, Names};
use super::{
    Bucket, BucketInfo, Content, Entry, Expected, Filter, Hint, Listing, ReadFrom, StoreError,
};
use crate::core::event::Written;
use crate::core::time::Instant;
use crate::sys;

/// How long an announcement waits for the lock: it is best effort and has no deadline.
const ANNOUNCE_MAX: Duration = Duration::from_millis(50);
/// Buffer for inotify events, in bytes: 15 of the longest names. Further events wait.
const EVENT_BYTES: usize = 4096;

/// Returns the folder of all buckets when no other is named: `/run/putex` for
/// root, else `putex` in `runtime` (the value of `XDG_RUNTIME_DIR`), else
/// `putex-UID` in `temp`. A `runtime` that is blank or relative counts as unset.
#[must_use]
pub fn default_base(uid: u32, runtime: Option<&OsStr>, temp: &Path) -> PathBuf {
    if uid == 0 {
        return PathBuf::from("/run/putex");
    }
    match runtime.map(Path::new).filter(|path| path.is_absolute()) {
        Some(path) => path.join("putex"),
        None => temp.join(format!("putex-{uid}")),
    }
}

/// A bucket in a folder.
///
/// When the lock is not free by the deadline a write is [`Written::Denied`]: nothing was
/// written and nothing will be. [`Written::Unknown`] only follows a disk that
/// fails during, or right after, the rename that stores.
#[derive(Debug)]
pub struct DirStore {
    base: PathBuf,
    bucket: String,
    folder: Option<Folder>,
    filters: Vec<Filter>,
    /// Keys of events that were read from the kernel and not returned yet.
    changed: BTreeSet<String>,
    announced: BTreeSet<String>,
    /// Why the folder must be opened again.
    lost: Option<String>,
}

impl DirStore {
    /// Returns the store in the folder `base/bucket`, without any access to the disk.
    #[must_use]
    pub fn new(base: PathBuf, bucket: &str) -> DirStore {
        DirStore {
            base,
            bucket: bucket.to_owned(),
            folder: None,
            filters: Vec::new(),
            changed: BTreeSet::new(),
            announced: BTreeSet::new(),
            lost: None,
        }
    }

    /// Returns the entry of a key without creating or changing anything. The outer
    /// `None` means that there is no bucket yet.
    ///
    /// # Errors
    ///
    /// Why an agent could not use the bucket.
    pub fn inspect(&self, key: &str) -> Result<Option<Option<Entry>>, StoreError> {
        check_key(&Names::new(key))?;
        match Folder::find(&self.base, &self.bucket)? {
            Some(folder) => Ok(Some(folder.entry(key)?)),
            None => Ok(None),
        }
    }

    /// Returns the folder, or that it is not open.
    fn folder(&self) -> Result<&Folder, FolderError> {
        let closed = || FolderError::Gone("the folder is not open".to_owned());
        self.folder.as_ref().ok_or_else(closed)
    }

    /// Records the loss of the folder, if that is the error.
    fn noting_loss<T>(&mut self, result: Result<T, FolderError>) -> Result<T, FolderError> {
        if let Err(FolderError::Gone(text)) = &result {
            self.lost = Some(text.clone());
        }
        result
    }

    /// Returns the next hint of the events that were read from the kernel.
    fn next_hint(&mut self) -> Option<Hint> {
        if let Some(text) = &self.lost {
            return Some(Hint::Gone(text.clone()));
        }
        let folder = self.folder.as_ref()?;
        while let Some(key) = self.announced.pop_first() {
            let body = folder.file(&Names::new(&key).announcement);
            let body = body.ok().flatten();
            if let Some(content) = body.and_then(|body| text::decode_content(&body)) {
                return Some(Hint::Announced { key, content });
            }
        }
        let key = self.changed.pop_first()?;
        // Only a record has a new revision: after a removal the key stands at an old one.
        let record = folder.record(&key).ok().flatten();
        let revision = record.map(|entry| entry.revision);
        Some(Hint::Changed { key, revision })
    }

    /// Reads events from the kernel, as many as one read returns.
    fn read_events(&mut self) -> Result<(), FolderError> {
        let folder = self.folder()?;
        let Some(queue) = &folder.inotify else {
            return Ok(());
        };
        let (mut changed, mut announced) = (BTreeSet::new(), BTreeSet::new());
        let mut verify = false;
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut events = Reader::new(queue, &mut buffer);
        loop {
            match events.next() {
                Ok(event) if event.events().intersects(watch_ended()) => {
                    return Err(folder.watch_ended());
                }
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    changed.extend(self.filters.iter().map(Filter::name).map(str::to_owned));
                    verify = true;
                }
                Ok(event) => {
                    let name = event.file_name().map_or(&b""[..], CStr::to_bytes);
                    verify |= name == EPOCH.as_bytes();
                    let key = str::from_utf8(name).ok().and_then(text::key_of);
                    let selected = |key: &str| self.filters.iter().any(|one| one.matches(key));
                    match key.filter(|(key, _)| selected(key)) {
                        Some((key, Kind::Record)) => drop(changed.insert(key)),
                        Some((key, Kind::Announcement)) => drop(announced.insert(key)),
                        Some((_, Kind::First)) | None => {}
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(error) => return Err(folder.failed("watch", "", &error.into())),
            }
            if events.is_buffer_empty() {
                break;
            }
        }
        let verified = if verify { folder.verify() } else { Ok(()) };
        self.changed.append(&mut changed);
        self.announced.append(&mut announced);
        verified
    }
}

/// The events after which the kernel sends no more, or events of another folder.
fn watch_ended() -> ReadFlags {
    ReadFlags::MOVE_SELF | ReadFlags::DELETE_SELF | ReadFlags::UNMOUNT | ReadFlags::IGNORED
}

impl Bucket for DirStore {
    fn open(&mut self, deadline: Instant) -> Result<BucketInfo, StoreError> {
        *self = DirStore::new(self.base.clone(), &self.bucket);
        let (folder, info) = Folder::open(&self.base, &self.bucket, deadline)?;
        self.folder = Some(folder);
        Ok(info)
    }

    fn get(
        &mut self,
        key: &str,
        _from: ReadFrom,
        _deadline: Instant,
    ) -> Result<Option<Entry>, StoreError> {
        check_key(&Names::new(key))?;
        let entry = self.folder().and_then(|folder| {
            folder.verify()?;
            folder.entry(key)
        });
        Ok(self.noting_loss(entry)?)
    }

    fn list(&mut self, prefix: &str, deadline: Instant) -> Result<Listing, StoreError> {
        let folder = self.folder();
        let listing = folder.and_then(|folder| folder.list(prefix, deadline));
        Ok(self.noting_loss(listing)?)
    }

    fn compare_and_set(
        &mut self,
        key: &str,
        expected: Expected<'_>,
        content: &Content,
        deadline: Instant,
    ) -> Written {
        let checked = check_key(&Names::new(key)).map_err(|error| error.to_string());
        if let Err(text) = checked.and_then(|()| content.check()) {
            return Written::Denied(text);
        }
        let folder = self.folder();
        let written =
            folder.and_then(|folder| folder.compare_and_set(key, expected, content, deadline));
        let written = self.noting_loss(written);
        written.unwrap_or_else(|error| Written::Denied(error.to_string()))
    }

    fn subscribe(&mut self, filter: &Filter) -> Result<(), StoreError> {
        self.folder()?;
        if !self.filters.contains(filter) {
            self.filters.push(filter.clone());
        }
        Ok(())
    }

    fn announce(&mut self, key: &str, content: &Content) {
        let deadline = sys::now().after(ANNOUNCE_MAX);
        // Best effort: the sender announces again.
        let _ = self.folder().and_then(|folder| folder.announce(key, content, deadline));
    }

    fn wait(&mut self, wake: BorrowedFd<'_>, deadline: Option<Instant>) -> Hint {
        let verified = self.folder().and_then(Folder::verify);
        // Another failure than the loss says nothing about hints.
        let _ = self.noting_loss(verified);
        loop {
            if let Some(hint) = self.next_hint() {
                return hint;
            }
            let waited = match self.folder() {
                Ok(folder) => folder.wait(wake, deadline),
                Err(error) => return Hint::Gone(error.to_string()),
            };
            match waited {
                Ok([true, _]) => return Hint::Woken,
                Ok([false, false]) => return Hint::Elapsed,
                Ok([false, true]) => {
                    if let Err(error) = self.read_events() {
                        self.lost = Some(error.to_string());
                    }
                }
                Err(error) => return Hint::Gone(format!("cannot wait: {error}")),
            }
            // Events of other keys must not extend the deadline.
            let pending = !self.changed.is_empty() || !self.announced.is_empty();
            if !pending && self.lost.is_none() && deadline.is_some_and(|at| sys::now() >= at) {
                return Hint::Elapsed;
            }
        }
    }
}
