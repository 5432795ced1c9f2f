//! The store for agents of one host: a folder with one file for each key.
//!
//! | file | content | written |
//! |---|---|---|
//! | `epoch` | random id of the bucket; boot and time since boot at its creation | once |
//! | `sequence` | highest revision of the whole bucket | before every record |
//! | `KEY.key` | revision, headers, blank line, payload | by compare-and-set |
//! | `KEY.first` | revision of the key's first record | after that record |
//! | `KEY.asked` | nothing: a command asks the agents of the key | by [`Bucket::ask_agents`] |
//! | `new` | the next content of one of these; without meaning otherwise | under the lock |
//! | `locks` | tickets of `putex lock` | by [`LockFile`](super::lock_file::LockFile) |
//!
//! In `KEY` all characters but letters, digits and `-_=.` are escaped with `%`. Every file
//! begins with `putex 1` and ends with a checksum, so that damage is detected; a damaged
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
//!   grow after a record was removed by hand. The key then has a tombstone at the revision
//!   of `KEY.first`.
//! * A wait ends at the caller's deadline. An operation on the disk may take longer, on a
//!   file system that hangs; `/run` is in memory.

mod entries;
mod folder;
pub(super) mod permissions;
pub(crate) mod text;

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use self::folder::{EPOCH, Folder};
use self::text::Kind;
use super::name::EPOCH_KEY;
use super::{
    AgentQuestion, Bucket, BucketInfo, Content, Entry, Expected, FirstKeys, Hint, Listing,
    Selection, Stays, StoreError, StoreErrorKind, StoreResult,
};
use crate::core::{Instant, Revision, Written};
use crate::sys::{self, Alarm, PollFlags};

/// How long a question waits for the lock: it is best effort and has no deadline.
const QUESTION_MAX: Duration = Duration::from_millis(50);
/// How long an opening waits for the lock: others hold it for milliseconds.
const OPEN_MAX: Duration = Duration::from_secs(2);
/// Buffer for inotify events, in bytes: 15 of the longest names. Further events wait.
const EVENT_BYTES: usize = 4096;

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
    alarm: Alarm,
    /// The queue of inotify events; `None` when the kernel has none left.
    queue: Option<OwnedFd>,
    subscribed: Vec<String>,
    /// Files of events that were read from the kernel and not returned yet.
    changed: BTreeSet<(Kind, String)>,
}

impl DirStore {
    /// Returns the store in the folder `base/bucket`, without any access to the disk.
    pub fn new(base: PathBuf, bucket: &str) -> DirStore {
        DirStore { base, bucket: bucket.to_owned(), open: None }
    }

    /// Replaces a file that is no entry.
    fn replace(&self, name: &str, body: &[u8]) -> StoreResult<()> {
        let folder = self.folder()?;
        let _held = folder.lock(sys::now().after(QUESTION_MAX))?;
        folder.verify()?;
        folder.replace(name, body)
    }

    /// Returns the folder, or an error if it is not open.
    fn folder(&self) -> StoreResult<&Folder> {
        self.open.as_ref().map(|open| &open.folder).ok_or_else(not_open)
    }
}

impl OpenFolder {
    /// Returns the next hint of the events that were read from the kernel.
    fn next_hint(&mut self) -> Option<Hint> {
        if let Some(why) = self.folder.lost.get() {
            return Some(Hint::Gone(why.clone()));
        }
        let (kind, key) = self.changed.pop_first()?;
        if kind == Kind::Question {
            return Some(Hint::StatusRequested { reads_requests: false });
        }
        // A record that was removed has no new revision.
        let record = self.folder.record(&key).ok().flatten();
        let revision = record.map(|(revision, _)| revision);
        Some(Hint::Changed { key, revision })
    }

    /// Reads events from the kernel, as many as one read returns.
    fn read_events(&mut self) -> StoreResult<()> {
        let OpenFolder { folder, queue: Some(queue), subscribed, changed, .. } = self else {
            return Ok(());
        };
        // The events after which the kernel sends no more events, or those of another folder.
        let moved = ReadFlags::MOVE_SELF | ReadFlags::DELETE_SELF;
        let ended = moved | ReadFlags::UNMOUNT | ReadFlags::IGNORED;
        let mut verify = false;
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut events = Reader::new(queue, &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(error) => return Err(folder.failed("watch", "", error)),
            };
            if event.events().intersects(ended) {
                return Err(folder.gone("was moved, removed or unmounted"));
            }
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                changed.extend(subscribed.iter().map(|key| (Kind::Record, key.clone())));
                verify = true;
            }
            let name = event.file_name().map_or(&b""[..], CStr::to_bytes);
            verify |= name == EPOCH.as_bytes();
            let file = str::from_utf8(name).ok().and_then(text::key_of);
            let file = file.filter(|(kind, key)| *kind != Kind::First && subscribed.contains(key));
            changed.extend(file);
            if events.is_buffer_empty() {
                break;
            }
        }
        if verify { folder.verify() } else { Ok(()) }
    }
}

fn not_open() -> StoreError {
    StoreErrorKind::Unreachable.error("the folder is not open")
}

/// Creates a queue of inotify events about the files of a folder.
fn subscribe(path: &Path) -> io::Result<OwnedFd> {
    let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let files = WatchFlags::MOVE | WatchFlags::DELETE | WatchFlags::CREATE;
    let folder = WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF | WatchFlags::ONLYDIR;
    inotify::add_watch(&queue, path, files | folder)?;
    Ok(queue)
}

impl Bucket for DirStore {
    fn open(
        &mut self,
        first: FirstKeys<'_>,
        deadline: Instant,
    ) -> StoreResult<(BucketInfo, Vec<Option<Entry>>)> {
        self.open = None;
        let deadline = deadline.min(sys::now().after(OPEN_MAX));
        let (folder, mut info) = Folder::open(&self.base, &self.bucket, deadline)?;
        let no_timer = |error| StoreErrorKind::Unreachable.error(format!("no timer: {error}"));
        let alarm = Alarm::new().map_err(no_timer)?;
        // Before any key is read, so that no change after that is missed.
        let queue = subscribe(&folder.path);
        if let Err(error) = &queue {
            let path = folder.path.display();
            info.remarks.push(format!("no hints of changes in {path}: inotify: {error}"));
        }
        folder.verify()?;
        let entries = first.read.iter().map(|key| folder.entry(key)).collect::<StoreResult<_>>()?;
        let subscribed = first.subscribed.iter().map(|key| (*key).to_owned()).collect();
        let (queue, changed) = (queue.ok(), BTreeSet::new());
        self.open = Some(OpenFolder { folder, alarm, queue, subscribed, changed });
        Ok((info, entries))
    }

    fn open_existing(&mut self, deadline: Instant) -> StoreResult<Option<BucketInfo>> {
        self.open = None;
        // A bucket that this user may not see is not one that does not exist.
        let path = self.base.join(&self.bucket).join(EPOCH);
        match path.try_exists() {
            Ok(false) => return Ok(None),
            // A file in the place of a directory is told below.
            Err(error) if error.kind() != io::ErrorKind::NotADirectory => {
                let text = format!("cannot open {}: {error}", path.display());
                return Err(StoreErrorKind::Unreachable.error(text));
            }
            Ok(true) | Err(_) => {}
        }
        self.open(FirstKeys::read(&[EPOCH_KEY]), deadline).map(|(info, _)| Some(info))
    }

    fn ages(
        &mut self,
        entries: &[Entry],
        _deadline: Instant,
    ) -> StoreResult<Vec<Option<Duration>>> {
        let folder = self.folder()?;
        folder.verify()?;
        entries.iter().map(|entry| folder.age(entry)).collect()
    }

    fn get(&mut self, key: &str, _deadline: Instant) -> StoreResult<Option<Entry>> {
        let folder = self.folder()?;
        folder.verify()?;
        folder.entry(key)
    }

    /// Each read checks that already.
    fn verify(&mut self, _epoch: &str, _deadline: Instant) -> StoreResult<()> {
        self.folder()?.verify()
    }

    fn list(&mut self, selection: Selection<'_>, deadline: Instant) -> StoreResult<Listing> {
        self.folder()?.list(selection, deadline)
    }

    fn compare_and_set(
        &mut self,
        key: &str,
        expected: Expected<'_>,
        content: &Content,
        deadline: Instant,
    ) -> Written {
        if let Err(text) = content.check() {
            return Written::Denied(text);
        }
        let folder = self.folder();
        let written =
            folder.and_then(|folder| folder.compare_and_set(key, expected, content, deadline));
        written.unwrap_or_else(|error| Written::Denied(error.to_string()))
    }

    fn write_for(
        &mut self,
        stays: Stays,
        key: &str,
        expected: Revision,
        content: &Content,
        deadline: Instant,
    ) -> Written {
        let written = self.compare_and_set(key, Expected::Key(expected), content, deadline);
        if let (Stays::Retired, Written::Stored(revision)) = (stays, &written)
            && let Ok(folder) = self.folder()
        {
            // Best effort: what is left does no harm.
            let _ = folder.remove(key, *revision, deadline);
        }
        written
    }

    fn subscribe(&mut self, keys: &[&str]) -> StoreResult<()> {
        let keys = keys.iter().map(|key| (*key).to_owned());
        self.open.as_mut().ok_or_else(not_open)?.subscribed.extend(keys);
        Ok(())
    }

    fn ask_agents(&mut self, question: &AgentQuestion) {
        for key in &question.keys {
            // Best effort: it is asked again.
            let _ = self.replace(&Kind::Question.file_of(key), b"");
        }
    }

    fn wait(&mut self, wake: BorrowedFd<'_>, deadline: Option<Instant>) -> Hint {
        let Some(open) = &mut self.open else { return Hint::Gone(not_open().to_string()) };
        // Only a loss matters here; `next_hint` returns it.
        let _ = open.folder.verify();
        loop {
            if let Some(hint) = open.next_hint() {
                return hint;
            }
            // Without a queue `wake` is polled twice, and its first result counts.
            let queue = open.queue.as_ref().map_or(wake, AsFd::as_fd);
            match open.alarm.wait([(wake, PollFlags::IN), (queue, PollFlags::IN)], deadline) {
                Ok([true, _]) => return Hint::Woken,
                Ok([false, false]) => return Hint::Elapsed,
                Ok([false, true]) => {
                    if let Err(error) = open.read_events() {
                        open.folder.lose(error.to_string());
                    }
                }
                Err(error) => return Hint::Gone(format!("cannot wait: {error}")),
            }
            // Events of other keys must not extend the deadline.
            if deadline.is_some_and(|at| sys::now() >= at) {
                return open.next_hint().unwrap_or(Hint::Elapsed);
            }
        }
    }
}
