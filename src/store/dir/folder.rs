//! One bucket's folder: its lock, its files, and the compare-and-set over them.
//!
//! Everything is done relative to one descriptor of the folder, so that a folder
//! that is moved away or replaced in between is never written to by mistake for
//! the other.

mod inspect;

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::permissions::{check_names, open_private};
use super::text::{self, Names};
use crate::core::event::{Opened, Written};
use crate::core::record::{BucketId, KeyState, KeyValue, Record, Revision};
use crate::core::time::Instant;
use crate::store::OpenError;
use crate::sys::{self, Alarm, Want};

/// Name of the file with the bucket's random id.
pub(super) const EPOCH: &str = "epoch";
const SEQUENCE: &str = "sequence";
const TEMP: &str = "new";
/// Largest file that is written or read: a token and ten short headers take
/// less than 1 KiB. A larger file is not ours and is not read into memory.
const FILE_BYTES_MAX: usize = 64 * 1024;
/// How often a held lock is tried again. It is held for some 0.1 ms in memory
/// and for some 10 ms on a disk; shorter than 1 ms only burns the processor.
const LOCK_POLL: Duration = Duration::from_millis(1);
/// Why the folder did not do what it was asked for. Nothing was stored.
#[derive(Debug)]
pub(super) enum FolderError {
    /// The folder is not the one that was opened, or is no more.
    Gone(String),
    /// A file, or the folder, is not as this program leaves it.
    Damaged(String),
    /// Another process held the lock until the deadline.
    Busy(String),
    /// The system refused.
    Failed(String),
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (FolderError::Gone(text)
        | FolderError::Damaged(text)
        | FolderError::Busy(text)
        | FolderError::Failed(text)) = self;
        f.write_str(text)
    }
}

impl From<FolderError> for OpenError {
    fn from(fault: FolderError) -> OpenError {
        match fault {
            FolderError::Damaged(text) => OpenError::Unsafe(text),
            FolderError::Gone(text) | FolderError::Busy(text) | FolderError::Failed(text) => {
                OpenError::Unreachable(text)
            }
        }
    }
}

/// Does not create, follow links, wait for a pipe's other end, or outlive exec.
fn flags() -> OFlags {
    OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC
}

/// A bucket's folder, held open.
#[derive(Debug)]
pub(super) struct Folder {
    dir: File,
    path: PathBuf,
    /// Body of the epoch file when the folder was opened.
    epoch: String,
    /// Where the kernel tells of changes; `None` when it would not.
    pub(super) inotify: Option<OwnedFd>,
    alarm: Alarm,
}

/// The lock, until dropped. Unlocked and not only closed: a child that is between
/// fork and exec still has the descriptor.
struct LockGuard<'a>(&'a File);

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        // Cannot fail on a lock that is held; the kernel drops it at exit anyhow.
        let _ = self.0.unlock();
    }
}

impl Folder {
    /// Opens the folder `base/bucket`, makes it when it is not there, and says
    /// how it stands for the key of `names`.
    ///
    /// # Errors
    ///
    /// [`OpenError::Unsafe`] when others could write to it, when it is not a
    /// folder of ours, or when a file in it is damaged or missing.
    pub(super) fn open(
        base: &Path,
        bucket: &str,
        names: &Names,
        deadline: Instant,
    ) -> Result<(Folder, Opened), OpenError> {
        check_names(bucket, names)?;
        let path = base.join(bucket);
        let alarm =
            Alarm::new().map_err(|error| OpenError::Unreachable(format!("no timer: {error}")))?;
        let mut folder = Folder {
            dir: open_private(base, &path)?,
            path,
            epoch: String::new(),
            inotify: None,
            alarm,
        };
        let mut remarks = Vec::new();
        let held = folder.lock(deadline)?;
        let epoch = match folder.file(EPOCH)? {
            Some(body) => body,
            None => {
                remarks.push(format!("created the bucket {}", folder.path.display()));
                folder.create()?
            }
        };
        // Before the key is read, so that no change after it goes unseen.
        let inotify = folder.subscribe();
        let (key_state, last) = folder.state(names)?;
        drop(held);
        folder.epoch = epoch;
        match inotify {
            Ok(queue) => folder.inotify = Some(queue),
            Err(error) => remarks.push(format!(
                "no hints of changes in {}: inotify: {error}",
                folder.path.display()
            )),
        }
        folder.verify()?;
        let (id, created) = folder.epoch_parts()?;
        let opened = Opened {
            bucket: BucketId {
                epoch: id.to_owned(),
                created: created.to_owned(),
            },
            last,
            age: age(created),
            key_state,
            replicas: 1,
            remarks,
        };
        Ok((folder, opened))
    }

    /// Writes the sequence and then the epoch, which makes the bucket complete.
    fn create(&self) -> Result<String, FolderError> {
        let failed = |error: io::Error| self.failed("list", "", &error);
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if name
                .as_encoded_bytes()
                .ends_with(text::RECORD_SUFFIX.as_bytes())
            {
                return Err(self.damaged(EPOCH, "is missing while there are records"));
            }
        }
        // One that is there already is what a creation cut short left behind, or
        // what a bucket had before its other files were removed: it stays.
        if self.file(SEQUENCE)?.is_none() {
            self.replace(SEQUENCE, "sequence 0")?;
        }
        let random = |error: io::Error| FolderError::Failed(format!("no random number: {error}"));
        let id = sys::random().map_err(random)?;
        let (boot, since) = (sys::boot_id(), sys::now().since_boot().as_nanos());
        let body = format!("epoch {id:032x}\ncreated {since} ns after the start of boot {boot}");
        self.replace(EPOCH, &body)?;
        self.sync()?;
        Ok(body)
    }

    /// Returns the random id, and all else that the epoch file says.
    fn epoch_parts(&self) -> Result<(&str, &str), FolderError> {
        let parts = self.epoch.strip_prefix("epoch ");
        parts
            .and_then(|rest| rest.split_once('\n'))
            .ok_or_else(|| self.damaged(EPOCH, "does not say what it should"))
    }

    /// Asks the kernel to tell of files that come and go.
    fn subscribe(&self) -> io::Result<OwnedFd> {
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let events = WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::CREATE
            | WatchFlags::MOVE_SELF
            | WatchFlags::DELETE_SELF
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&queue, &self.path, events)?;
        Ok(queue)
    }

    /// Waits for `wake`, for a change in the folder, or until `deadline`; says which
    /// of the first two it was.
    pub(super) fn wait(
        &self,
        wake: BorrowedFd<'_>,
        deadline: Option<Instant>,
    ) -> io::Result<[bool; 2]> {
        let wake = (wake, Want::Read);
        match &self.inotify {
            Some(queue) => self
                .alarm
                .wait([wake, (queue.as_fd(), Want::Read)], deadline),
            None => {
                let ready = self.alarm.wait([wake], deadline);
                ready.map(|[woken]| [woken, false])
            }
        }
    }

    /// Waits for the lock of the whole bucket.
    fn lock(&self, deadline: Instant) -> Result<LockGuard<'_>, FolderError> {
        loop {
            let free = match self.dir.try_lock() {
                Ok(()) => Some(LockGuard(&self.dir)),
                Err(TryLockError::WouldBlock) => None,
                Err(TryLockError::Error(error)) => return Err(self.failed("lock", "", &error)),
            };
            let now = sys::now();
            if now >= deadline {
                let path = self.path.display();
                return Err(FolderError::Busy(format!(
                    "the lock of {path} was not had in time"
                )));
            }
            if let Some(held) = free {
                return Ok(held);
            }
            // Only a pause; the loop looks at the clock again in any case.
            let _ = self
                .alarm
                .wait([], Some(deadline.min(now.after(LOCK_POLL))));
        }
    }

    /// Checks that the path still leads here and that the epoch is still the same.
    ///
    /// # Errors
    ///
    /// [`FolderError::Gone`] when not.
    pub(super) fn verify(&self) -> Result<(), FolderError> {
        let gone = |what: &str| Err(FolderError::Gone(format!("{} {what}", self.path.display())));
        let here = self
            .dir
            .metadata()
            .map_err(|e| self.failed("check", "", &e))?;
        match fs::symlink_metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (here.dev(), here.ino()) => {}
            Ok(_) => return gone("was replaced"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return gone("was removed"),
            Err(error) => return Err(self.failed("check", "", &error)),
        }
        match self.file(EPOCH) {
            Ok(Some(body)) if body == self.epoch => Ok(()),
            Ok(Some(_)) => gone("has another epoch"),
            Ok(None) => gone("has lost its epoch"),
            Err(FolderError::Damaged(text)) => Err(FolderError::Gone(text)),
            Err(other) => Err(other),
        }
    }

    /// Returns what stands under the key, and the bucket's highest revision.
    pub(super) fn state(&self, names: &Names) -> Result<(KeyState, Revision), FolderError> {
        // The sequence last: without the lock it may only be too new.
        let key_state = self.key_state(names)?;
        let Some(body) = self.file(SEQUENCE)? else {
            return Err(self.damaged(SEQUENCE, "is missing"));
        };
        let Some(last) = text::parse_number("sequence", &body) else {
            return Err(self.damaged(SEQUENCE, "does not say what it should"));
        };
        let revision = key_state.revision;
        if revision > Revision(last) {
            let what = format!("stands at {last}, before revision {revision} of a record");
            return Err(self.damaged(SEQUENCE, &what));
        }
        Ok((key_state, Revision(last)))
    }

    fn key_state(&self, names: &Names) -> Result<KeyState, FolderError> {
        if let Some(key_state) = self.record(names)? {
            return Ok(key_state);
        }
        let Some(body) = self.file(&names.first)? else {
            return Ok(KeyState {
                revision: Revision(0),
                found: KeyValue::Absent,
            });
        };
        // The key's first record may have been stored since the look above.
        if let Some(key_state) = self.record(names)? {
            return Ok(key_state);
        }
        match text::parse_number("first", &body) {
            Some(revision) if revision > 0 => Ok(KeyState {
                revision: Revision(revision),
                found: KeyValue::Marker,
            }),
            _ => Err(self.damaged(&names.first, "does not say what it should")),
        }
    }

    fn record(&self, names: &Names) -> Result<Option<KeyState>, FolderError> {
        let Some(body) = self.file(&names.record)? else {
            return Ok(None);
        };
        match text::decode_record(&body) {
            Some((revision, record)) if revision > Revision(0) => Ok(Some(KeyState {
                revision,
                found: KeyValue::Record(record),
            })),
            _ => Err(self.damaged(&names.record, "does not say what it should")),
        }
    }

    /// Stores `record` if the key stands at `expected`. An error means not stored.
    pub(super) fn compare_and_set(
        &self,
        names: &Names,
        expected: Revision,
        record: &Record,
        deadline: Instant,
    ) -> Result<Written, FolderError> {
        let _held = self.lock(deadline)?;
        self.verify()?;
        let (key_state, last) = self.state(names)?;
        if key_state.revision != expected {
            return Ok(Written::Moved(Some(key_state.revision)));
        }
        let Some(next) = last.0.checked_add(1) else {
            return Err(self.damaged(SEQUENCE, "has no number left"));
        };
        self.replace(SEQUENCE, &format!("sequence {next}"))?;
        self.prepare(&names.record, &text::encode_record(Revision(next), record))?;
        match self.publish(&names.record) {
            Ok(()) => {}
            // The one answer of rename(2) after which either name may stand.
            Err(Errno::IO) => {
                let fault = self.failed("write", &names.record, &Errno::IO.into());
                return Ok(Written::Unknown(fault.to_string()));
            }
            Err(error) => return Err(self.failed("write", &names.record, &error.into())),
        }
        // Failing to leave this trace costs nothing: the next write tries again.
        if matches!(self.file(&names.first), Ok(None)) {
            let _ = self.replace(&names.first, &format!("first {next}"));
        }
        match self.sync() {
            Ok(()) => Ok(Written::Stored(Revision(next))),
            Err(fault) => Ok(Written::Unknown(fault.to_string())),
        }
    }

    /// Writes the notice of `names`.
    pub(super) fn announce(
        &self,
        names: &Names,
        body: &str,
        deadline: Instant,
    ) -> Result<(), FolderError> {
        let _held = self.lock(deadline)?;
        self.verify()?;
        self.replace(&names.notice, body)
    }

    /// Returns the body of a file, `None` when there is no such file.
    pub(super) fn file(&self, name: &str) -> Result<Option<String>, FolderError> {
        let fd = match rustix::fs::openat(&self.dir, name, flags(), Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(self.damaged(name, "is a symbolic link")),
            Err(error) => return Err(self.failed("open", name, &error.into())),
        };
        let mut content = Vec::new();
        let most = FILE_BYTES_MAX as u64 + 1;
        let read = File::from(fd).take(most).read_to_end(&mut content);
        read.map_err(|error| self.failed("read", name, &error))?;
        if content.len() > FILE_BYTES_MAX {
            return Err(self.damaged(name, "is larger than any file of ours"));
        }
        let body = text::unframe(&content);
        body.map(Some).map_err(|what| self.damaged(name, what))
    }

    /// Replaces a file by another with this body, at one instant.
    fn replace(&self, name: &str, body: &str) -> Result<(), FolderError> {
        self.prepare(name, body)?;
        let published = self.publish(name);
        published.map_err(|error| self.failed("write", name, &error.into()))
    }

    /// Writes what is to become `name`. Needs the lock, as there is one place for it.
    fn prepare(&self, name: &str, body: &str) -> Result<(), FolderError> {
        let content = text::frame(body);
        if content.len() > FILE_BYTES_MAX {
            let (size, path) = (content.len(), self.path.join(name));
            return Err(FolderError::Failed(format!(
                "cannot write {}: {size} bytes are more than the maximum of {FILE_BYTES_MAX}",
                path.display()
            )));
        }
        let write = || -> io::Result<()> {
            let flags = flags() | OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
            let mode = Mode::RUSR | Mode::WUSR;
            let mut file = File::from(rustix::fs::openat(&self.dir, TEMP, flags, mode)?);
            file.write_all(content.as_bytes())?;
            file.sync_data()
        };
        write().map_err(|error| {
            // A full disk needs the room; the next write would truncate it anyhow.
            let _ = rustix::fs::unlinkat(&self.dir, TEMP, AtFlags::empty());
            self.failed("write", name, &error)
        })
    }

    /// Gives what was prepared the name that it was prepared for.
    fn publish(&self, name: &str) -> Result<(), Errno> {
        rustix::fs::renameat(&self.dir, TEMP, &self.dir, name)
    }

    /// Makes the renames survive a power cut. Only the terms depend on it: of the
    /// processes that could hold the lock, none survives one.
    fn sync(&self) -> Result<(), FolderError> {
        let synced = self.dir.sync_all();
        synced.map_err(|error| self.failed("sync", "", &error))
    }

    /// Returns the fault that doing `what` to the file `name` failed; the folder
    /// itself has a blank name.
    pub(super) fn failed(&self, what: &str, name: &str, error: &io::Error) -> FolderError {
        FolderError::Failed(format!("cannot {what} {}: {error}", self.file_path(name)))
    }

    fn damaged(&self, name: &str, what: &str) -> FolderError {
        FolderError::Damaged(format!("{} {what}", self.file_path(name)))
    }

    fn file_path(&self, name: &str) -> String {
        let path = match name {
            "" => self.path.clone(),
            name => self.path.join(name),
        };
        path.display().to_string()
    }

    /// Returns the fault that the kernel has said the folder is no more.
    pub(super) fn watch_ended(&self) -> FolderError {
        let path = self.path.display();
        FolderError::Gone(format!("{path} was moved, removed or unmounted"))
    }
}

/// Returns the time since the creation, as `created` tells it. A bucket of an
/// earlier boot is older than every process of this host: for ever, so to speak.
fn age(created: &str) -> Option<Duration> {
    let (nanos, rest) = created.strip_prefix("created ")?.split_once(" ns ")?;
    let boot = rest.strip_prefix("after the start of boot ")?;
    let present = sys::boot_id();
    if boot.is_empty() || present.is_empty() {
        return None;
    }
    if boot != present {
        return Some(Duration::MAX);
    }
    let then = Instant::from_boot(Duration::from_nanos(nanos.parse().ok()?));
    Some(sys::now().since(then))
}
