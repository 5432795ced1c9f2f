//! The store for agents of one host: a folder with one file for each key.
//!
//! | file | content | written |
//! |---|---|---|
//! | `epoch` | random id of the bucket; boot and time since boot at its creation | once |
//! | `sequence` | highest revision of the whole bucket | before every record |
//! | `KEY.key` | revision, headers, blank line, payload | by compare-and-set |
//! | `KEY.asked` | nothing: a command asks the agents of the key | by [`Bucket::ask_agents`] |
//! | `KEY.held` | as `KEY.key`: a ticket that a process has, see [`tickets`] | by that process |
//! | `KEY.until` | as `KEY.key`: a ticket that stands until an instant | by `putex grab` |
//! | `new` | the next content of one of these; without meaning otherwise | under the lock |
//!
//! In `KEY` all characters but letters, digits and `-_=.` are escaped with `%`. Every file
//! begins with `putex 2` and ends with a checksum, so that damage is detected; a damaged
//! file is an error that names it, and is never overwritten.
//!
//! The lock is flock(2) on the folder itself: it cannot be deleted apart from the files
//! that it protects, and ends with its holder. Under it a write compares, raises
//! `sequence`, and renames `new` to the record. A process that is killed at any instant
//! therefore leaves the old record or the new one, and at worst a gap in the revisions. A
//! reader of one key takes no lock: it reads the old record or the new one.
//!
//! # Invariants
//!
//! * Only [`Bucket::open`] creates folders. Every other call reports a folder that was
//!   removed, replaced or given another epoch, and leaves the disk as it is.
//! * `sequence` is never less than the revision of a record, so revisions and terms still
//!   grow after a record was removed by hand.
//! * A wait ends at the caller's deadline. An operation on the disk may take longer, on a
//!   file system that hangs; `/run` is in memory.

mod entries;
pub(crate) mod folder;
pub(super) mod permissions;
pub(crate) mod sequence;
pub(crate) mod text;
pub(crate) mod ticket_time;
pub mod tickets;
pub(crate) mod watch;

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::folder::{EPOCH, Folder};
use self::permissions::refused;
use self::text::Kind;
use self::watch::Watch;
use super::{
    AgentQuestion, Bucket, BucketInfo, Content, Entry, Expected, Hint, Listing, OpenedBucket,
    Opening, Selection, StoreError, StoreErrorKind, StoreResult,
};
use crate::core::{Instant, Written};
use crate::sys::{self, Alarm, PollFlags};

/// How long a question waits for the lock: it is best effort and has no deadline.
const QUESTION_MAX: Duration = Duration::from_millis(50);
/// How long an opening waits for the lock: others hold it for milliseconds.
const OPEN_MAX: Duration = Duration::from_secs(2);

/// Returns the folder for files that do not outlive a boot: `/run/putex` for root, else
/// `putex` in `runtime` (the value of `XDG_RUNTIME_DIR`), else
/// `putex-UID` in `temp`. A `runtime` that is blank or relative counts as unset.
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
pub struct DirStore {
    base: PathBuf,
    bucket: String,
    open: Option<OpenFolder>,
}

/// The folder since it was opened.
struct OpenFolder {
    folder: Folder,
    watch: Watch,
}

impl DirStore {
    /// Returns the store in the folder `base/bucket`, without any access to the disk.
    pub fn new(base: PathBuf, bucket: &str) -> DirStore {
        DirStore { base, bucket: bucket.to_owned(), open: None }
    }

    /// Returns whether the bucket was made. One that this user may not see is an error, and a place
    /// where it may not be made.
    fn exists(&self) -> StoreResult<bool> {
        let path = self.base.join(&self.bucket).join(EPOCH);
        let exists = path.try_exists().map_err(|error| refused("open", &path, &error))?;
        if !exists {
            permissions::check_place(&self.base)?;
        }
        Ok(exists)
    }

    /// Returns the folder, or an error if it is not open.
    fn folder(&self) -> StoreResult<&Folder> {
        self.open.as_ref().map(|open| &open.folder).ok_or_else(not_open)
    }
}

fn not_open() -> StoreError {
    StoreErrorKind::Unreachable.error("the folder is not open")
}

impl Bucket for DirStore {
    fn open(&mut self, how: Opening<'_>, deadline: Instant) -> StoreResult<Option<OpenedBucket>> {
        self.open = None;
        if !how.makes_bucket && !self.exists()? {
            return Ok(None);
        }
        let deadline = deadline.min(sys::now().after(OPEN_MAX));
        let folder = Folder::open(&self.base, &self.bucket)?;
        let (path, mut remarks) = (folder.path.display().to_string(), Vec::new());
        // Before any key is read, so that no change after that is missed.
        let (mut watch, no_hints) = Watch::new(&folder);
        remarks
            .extend(no_hints.map(|why| format!("no hints of changes in {path}: inotify: {why}")));
        watch.subscribe(how.subscribed);
        let held = folder.lock(deadline)?;
        if held.has_made_it {
            remarks.push(format!("created the bucket {path}"));
        }
        let entries = how.read.iter().map(|key| folder.entry(key));
        let entries: Vec<Option<Entry>> = entries.collect::<StoreResult<_>>()?;
        let (id, last) = (held.id.clone(), folder.last()?);
        let mut revisions = entries.iter().flatten().map(|entry| entry.revision);
        revisions.try_for_each(|revision| folder.check_revision(revision, last))?;
        drop(held);
        // A key that was removed with all its files looks like one that never existed.
        let age = if last.0 == 0 { folder.time_since_creation(&id) } else { None };
        let (may_be_lost, retires) = (false, Ok(()));
        let info = BucketInfo { id, last, age, may_be_lost, replicas: 1, remarks, retires };
        self.open = Some(OpenFolder { folder, watch });
        Ok(Some((info, entries)))
    }

    fn get(&mut self, key: &str, _deadline: Instant) -> StoreResult<Option<Entry>> {
        let folder = self.folder()?;
        folder.verify()?;
        folder.entry(key)
    }

    fn list(&mut self, selection: Selection<'_>, deadline: Instant) -> StoreResult<Listing> {
        self.folder()?.list(selection, deadline)
    }

    fn write(
        &mut self,
        key: &str,
        expected: Expected<'_>,
        content: &Content,
        _lasts: Option<Duration>,
        deadline: Instant,
    ) -> Written {
        if let Err(text) = content.check() {
            return Written::Denied(StoreErrorKind::Unsafe.error(text));
        }
        let folder = self.folder();
        let written =
            folder.and_then(|folder| folder.compare_and_set(key, expected, content, deadline));
        written.unwrap_or_else(Written::Denied)
    }

    fn subscribe(&mut self, keys: &[&str]) -> StoreResult<()> {
        self.open.as_mut().ok_or_else(not_open)?.watch.subscribe(keys);
        Ok(())
    }

    fn ask_agents(&mut self, question: &AgentQuestion) {
        let Ok(folder) = self.folder() else { return };
        let Ok(_held) = folder.lock(sys::now().after(QUESTION_MAX)) else { return };
        for key in &question.keys {
            // Best effort: it is asked again.
            let _ = folder.replace(&Kind::Question.file_of(key), b"");
        }
    }

    fn wait(&mut self, wake: BorrowedFd<'_>, deadline: Option<Instant>) -> Hint {
        let Some(open) = &mut self.open else { return Hint::Gone(not_open().to_string()) };
        let OpenFolder { folder, watch } = open;
        // Only a loss matters here; `next_hint` returns it.
        let _ = folder.verify();
        loop {
            if let Some(hint) = watch.next_hint(folder) {
                return hint;
            }
            // Without a queue `wake` is polled twice, and its first result counts.
            let queue = watch.queue().unwrap_or(wake);
            let polled = [(wake, PollFlags::IN), (queue, PollFlags::IN)];
            match Alarm::new().and_then(|alarm| alarm.wait(polled, deadline)) {
                Ok([true, _]) => return Hint::Woken,
                Ok([false, false]) => return Hint::Elapsed,
                Ok([false, true]) => watch.read_events(folder),
                Err(error) => return Hint::Gone(format!("cannot wait: {error}")),
            }
            // Events of other keys must not extend the deadline.
            if deadline.is_some_and(|at| sys::now() >= at) {
                return watch.next_hint(folder).unwrap_or(Hint::Elapsed);
            }
        }
    }
}
