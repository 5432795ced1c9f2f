//! The store for agents of one host: a folder with one file a key.
//!
//! | file | content | written |
//! |---|---|---|
//! | `epoch` | random id of the bucket; boot and time since boot at its creation | once |
//! | `sequence` | highest revision of the whole bucket | before every record |
//! | `KEY.key` | revision, headers, blank line, token | by compare-and-set |
//! | `KEY.first` | revision of the key's first record | after that record |
//! | `KEY.twin` | the last notice | by [`Store::announce`] |
//! | `new` | what is about to become one of these; of no meaning otherwise | under the lock |
//!
//! `KEY` has all but letters, digits and `-_=.` escaped with `%`. Every file
//! begins with `putex 1` and ends with a checksum, so that a damaged one is
//! known; it is an error that names it, and is never written over.
//!
//! The lock is flock(2) on the folder itself: it cannot be deleted apart from
//! what it protects, and dies with its holder. Under it a write compares, raises
//! `sequence`, and renames `new` over the record. A process that is killed at
//! any instant therefore leaves the old record or the new one, and at worst a
//! gap in the revisions. A reader sees one of the two as well and takes no lock.
//!
//! # Invariants
//!
//! * Only [`Store::open`] makes folders. Whatever else finds the folder gone,
//!   replaced or of another epoch says so and leaves the disk as it is.
//! * `sequence` is never less than the revision of a record, so revisions and
//!   terms go on growing when a record is removed by hand. Such a removal shows
//!   as [`Marker`], at the revision of `KEY.first`.
//! * A wait is bounded by the caller's deadline. The disk is not waited for but
//!   used: a file system that hangs holds the call. `/run` is in memory.
//!
//! [`Marker`]: crate::core::record::KeyValue::Marker

mod folder;
mod permissions;
pub(crate) mod text;

use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{ReadFlags, Reader};
use rustix::io::Errno;

use self::folder::{EPOCH, Folder, FolderError};
use self::text::Names;
use super::{OpenError, Store, Watched};
use crate::core::event::{Notice, Opened, Written};
use crate::core::record::{KeyState, Record, Revision};
use crate::core::time::Instant;
use crate::sys;

/// How long a notice waits for the lock: it is best effort and has no deadline.
const ANNOUNCE_MAX: Duration = Duration::from_millis(50);
/// Room for inotify events, in bytes: 15 of the longest names. More wait.
const EVENT_BYTES: usize = 4096;

/// Returns the folder of all buckets when none was asked for: `/run/putex` for
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

/// One key of one bucket in a folder.
///
/// A lock that cannot be had by the deadline is [`Written::Denied`]: nothing was
/// written and nothing will be. [`Written::Unknown`] is left for a disk that
/// fails in, or right after, the rename that stores.
#[derive(Debug)]
pub struct DirStore {
    base: PathBuf,
    bucket: String,
    names: Names,
    folder: Option<Folder>,
    /// Revision that the caller was last told; a hint at it would be no news.
    seen: Revision,
    /// Incarnation of our own last notice.
    announced: Option<String>,
    /// Events that were taken from the kernel and not yet told.
    changed: bool,
    twin: bool,
    /// Why the folder must be opened again.
    lost: Option<String>,
}

impl DirStore {
    /// Makes the store of `key` in the folder `base/bucket`. Touches no disk.
    #[must_use]
    pub fn new(base: PathBuf, bucket: &str, key: &str) -> DirStore {
        DirStore {
            base,
            bucket: bucket.to_owned(),
            names: Names::new(key),
            folder: None,
            seen: Revision(0),
            announced: None,
            changed: false,
            twin: false,
            lost: None,
        }
    }

    /// Looks at the bucket and the key and changes nothing. `None` where there is no
    /// bucket yet.
    ///
    /// # Errors
    ///
    /// Why an agent could not use it.
    pub fn inspect(&self) -> Result<Option<KeyState>, OpenError> {
        Folder::inspect(&self.base, &self.bucket, &self.names)
    }

    /// Returns the folder, or that there is none.
    fn folder(&self) -> Result<&Folder, FolderError> {
        let lost = || FolderError::Gone("the folder is not open".to_owned());
        self.folder.as_ref().ok_or_else(lost)
    }

    /// Keeps in mind that the folder is lost, if that is what `fault` says.
    fn note_loss(&mut self, fault: &FolderError) {
        if let FolderError::Gone(text) = fault {
            self.lost = Some(text.clone());
        }
    }

    /// Returns what the events that were taken so far come to, if anything.
    fn next_event(&mut self) -> Option<Watched> {
        if let Some(text) = &self.lost {
            return Some(Watched::Gone(text.clone()));
        }
        let folder = self.folder.as_ref()?;
        if std::mem::take(&mut self.twin)
            && let Ok(Some(body)) = folder.file(&self.names.notice)
            && let Some(notice) = text::decode_notice(&body)
            && self.announced.as_ref() != Some(&notice.incarnation)
        {
            return Some(Watched::Twin(notice));
        }
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        match folder.state(&self.names) {
            Ok((key_state, _)) if key_state.revision == self.seen => None,
            Ok((key_state, _)) if key_state.revision == Revision(0) => Some(Watched::Hint(None)),
            Ok((key_state, _)) => Some(Watched::Hint(Some(key_state.revision))),
            Err(_) => Some(Watched::Hint(None)),
        }
    }

    /// Takes events from the kernel, as many as one read gives.
    fn take_events(&mut self) -> Result<(), FolderError> {
        let folder = self.folder()?;
        let Some(queue) = &folder.inotify else {
            return Ok(());
        };
        let (mut changed, mut twin, mut verify) = (false, false, false);
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut events = Reader::new(queue, &mut buffer);
        loop {
            match events.next() {
                Ok(event) if event.events().intersects(watch_ended()) => {
                    return Err(folder.watch_ended());
                }
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    (changed, verify) = (true, true);
                }
                Ok(event) => {
                    let name = event.file_name().map_or(&b""[..], CStr::to_bytes);
                    changed |= name == self.names.record.as_bytes();
                    twin |= name == self.names.notice.as_bytes();
                    verify |= name == EPOCH.as_bytes();
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(error) => return Err(folder.failed("watch", "", &error.into())),
            }
            if events.is_buffer_empty() {
                break;
            }
        }
        let verified = if verify { folder.verify() } else { Ok(()) };
        self.changed |= changed;
        self.twin |= twin;
        verified
    }
}

/// The events after which the kernel tells nothing more, or of another place.
fn watch_ended() -> ReadFlags {
    ReadFlags::MOVE_SELF | ReadFlags::DELETE_SELF | ReadFlags::UNMOUNT | ReadFlags::IGNORED
}

impl Store for DirStore {
    fn open(&mut self, deadline: Instant) -> Result<Opened, OpenError> {
        self.folder = None;
        (self.changed, self.twin, self.lost) = (false, false, None);
        let (folder, opened) = Folder::open(&self.base, &self.bucket, &self.names, deadline)?;
        self.seen = opened.key_state.revision;
        self.folder = Some(folder);
        Ok(opened)
    }

    fn read(&mut self, _deadline: Instant) -> Result<KeyState, String> {
        let state = self.folder().and_then(|folder| {
            folder.verify()?;
            folder.state(&self.names)
        });
        match state {
            Ok((key_state, _)) => {
                self.seen = key_state.revision;
                Ok(key_state)
            }
            Err(fault) => {
                self.note_loss(&fault);
                Err(fault.to_string())
            }
        }
    }

    fn write(&mut self, expected: Revision, record: &Record, deadline: Instant) -> Written {
        let written = self
            .folder()
            .and_then(|folder| folder.compare_and_set(&self.names, expected, record, deadline));
        match written {
            Ok(Written::Stored(revision)) => {
                self.seen = revision;
                Written::Stored(revision)
            }
            Ok(other) => other,
            Err(fault) => {
                self.note_loss(&fault);
                Written::Denied(fault.to_string())
            }
        }
    }

    fn announce(&mut self, notice: &Notice) {
        self.announced = Some(notice.incarnation.clone());
        let deadline = sys::now().after(ANNOUNCE_MAX);
        // Best effort: whoever is told nothing now is told at the next notice.
        let body = text::encode_notice(notice);
        let _ = self
            .folder()
            .and_then(|at| at.announce(&self.names, &body, deadline));
    }

    fn watch(&mut self, wake: BorrowedFd<'_>, deadline: Option<Instant>) -> Watched {
        if let Err(fault) = self.folder().and_then(Folder::verify) {
            self.note_loss(&fault);
        }
        loop {
            if let Some(event) = self.next_event() {
                return event;
            }
            let waited = match self.folder() {
                Ok(folder) => folder.wait(wake, deadline),
                Err(fault) => return Watched::Gone(fault.to_string()),
            };
            match waited {
                Ok([true, _]) => return Watched::Woken,
                Ok([false, false]) => return Watched::Elapsed,
                Ok([false, true]) => {
                    if let Err(fault) = self.take_events() {
                        self.lost = Some(fault.to_string());
                    }
                }
                Err(error) => return Watched::Gone(format!("cannot wait: {error}")),
            }
            // Events of other keys alone must not hold the call.
            if let (Some(at), false, None) = (deadline, self.changed || self.twin, &self.lost)
                && sys::now() >= at
            {
                return Watched::Elapsed;
            }
        }
    }
}
