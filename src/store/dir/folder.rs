//! The folder of one bucket: its lock, its files, its identity.
//!
//! Every access is relative to one descriptor of the folder, so that a folder that is
//! moved or replaced meanwhile is never written to by mistake for the other.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::permissions::{find_private, open_private};
use super::text::{self, Kind};
use crate::core::record::BucketId;
use crate::core::time::Instant;
use crate::store::{BucketInfo, StoreError, name};
use crate::sys::{self, Alarm, Want};

/// Name of the file with the bucket's random id.
pub(super) const EPOCH: &str = "epoch";
/// Name of the file with the highest revision.
pub(super) const SEQUENCE: &str = "sequence";
/// Name of a file that is being written.
const TEMP: &str = "new";
/// Largest file that is written or read, in bytes: a token and ten short headers take
/// less than 1 KiB. A larger file is not of this program and is not read into memory.
const FILE_BYTES_MAX: usize = 64 * 1024;
/// Pause before a held lock is tried again. A process holds it for about 0.1 ms in memory
/// and 10 ms on a disk; a pause below 1 ms only costs processor time.
const LOCK_POLL: Duration = Duration::from_millis(1);

/// Why an operation on the folder failed. Nothing was stored.
#[derive(Debug)]
pub(super) enum FolderError {
    /// The folder is not the one that was opened, or was removed.
    Gone(String),
    /// A file is damaged or missing.
    Damaged(String),
    /// Another process held the lock until the deadline.
    Busy(String),
    /// A system call failed.
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

impl From<FolderError> for StoreError {
    fn from(fault: FolderError) -> StoreError {
        match fault {
            FolderError::Damaged(text) => StoreError::Unsafe(text),
            FolderError::Gone(text) | FolderError::Busy(text) | FolderError::Failed(text) => {
                StoreError::Unreachable(text)
            }
        }
    }
}

/// Opening a file follows no link, does not wait for a pipe, and closes the file at exec.
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
    /// The queue of inotify events; `None` when the kernel has none left.
    pub(super) inotify: Option<OwnedFd>,
    alarm: Alarm,
}

/// The lock, until dropped. Dropping unlocks, since closing is not enough: a child between
/// fork and exec still has the descriptor.
pub(super) struct LockGuard<'a>(&'a File);

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        // Cannot fail on a lock that is held; the kernel drops it at exit anyhow.
        let _ = self.0.unlock();
    }
}

impl Folder {
    fn new(dir: File, path: PathBuf) -> Result<Folder, StoreError> {
        let no_timer = |error| StoreError::Unreachable(format!("no timer: {error}"));
        Ok(Folder {
            dir,
            path,
            epoch: String::new(),
            inotify: None,
            alarm: Alarm::new().map_err(no_timer)?,
        })
    }

    /// Opens the folder `base/bucket` and creates it when it does not exist.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsafe`] when other users could write to it, when it is not a
    /// folder of this program, or when a file in it is damaged or missing.
    pub(super) fn open(
        base: &Path,
        bucket: &str,
        deadline: Instant,
    ) -> Result<(Folder, BucketInfo), StoreError> {
        let path = path_of(base, bucket)?;
        let mut folder = Folder::new(open_private(base, &path)?, path)?;
        let mut remarks = Vec::new();
        let held = folder.lock(deadline)?;
        let epoch = match folder.text_file(EPOCH)? {
            Some(body) => body,
            None => {
                remarks.push(format!("created the bucket {}", folder.path.display()));
                folder.create()?
            }
        };
        // Before any key is read, so that no change after that is missed.
        let inotify = folder.subscribe();
        let last = folder.last()?;
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
        let info = BucketInfo {
            id: BucketId { epoch: id.to_owned(), created: created.to_owned() },
            last,
            age: age(created),
            replicas: 1,
            remarks,
        };
        Ok((folder, info))
    }

    /// Opens the folder `base/bucket` without creating or writing anything; `None` when
    /// there is no bucket.
    ///
    /// # Errors
    ///
    /// As [`Folder::open`].
    pub(super) fn find(base: &Path, bucket: &str) -> Result<Option<Folder>, StoreError> {
        let path = path_of(base, bucket)?;
        let Some(dir) = find_private(base, &path)? else {
            return Ok(None);
        };
        let mut folder = Folder::new(dir, path)?;
        let Some(epoch) = folder.text_file(EPOCH)? else {
            return Ok(None);
        };
        folder.epoch = epoch;
        folder.epoch_parts()?;
        Ok(Some(folder))
    }

    /// Writes the sequence and then the epoch, which completes the bucket.
    fn create(&self) -> Result<String, FolderError> {
        let files = self.file_names()?;
        if files.iter().any(|name| matches!(text::key_of(name), Some((_, Kind::Record)))) {
            return Err(self.damaged(EPOCH, "is missing while there are records"));
        }
        // A sequence of an interrupted creation, or of a bucket whose other files were
        // removed, is kept.
        if self.file(SEQUENCE)?.is_none() {
            self.replace(SEQUENCE, b"sequence 0")?;
        }
        let random = |error: io::Error| FolderError::Failed(format!("no random number: {error}"));
        let id = sys::random().map_err(random)?;
        let (boot, since) = (sys::boot_id(), sys::now().since_boot().as_nanos());
        let body = format!("epoch {id:032x}\ncreated {since} ns after the start of boot {boot}");
        self.replace(EPOCH, body.as_bytes())?;
        self.sync()?;
        Ok(body)
    }

    /// Returns the names of all files.
    pub(super) fn file_names(&self) -> Result<Vec<String>, FolderError> {
        let failed = |error: Errno| self.failed("list", "", &error.into());
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            names.extend(entry.file_name().to_str().map(str::to_owned));
        }
        Ok(names)
    }

    /// Returns the random id, and the rest of the epoch file.
    fn epoch_parts(&self) -> Result<(&str, &str), FolderError> {
        let parts = self.epoch.strip_prefix("epoch ");
        parts
            .and_then(|rest| rest.split_once('\n'))
            .ok_or_else(|| self.damaged(EPOCH, "does not say what it should"))
    }

    /// Creates a queue of inotify events about the files.
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

    /// Waits for `wake`, for a change in the folder, or until `deadline`; returns which
    /// of the first two happened.
    pub(super) fn wait(
        &self,
        wake: BorrowedFd<'_>,
        deadline: Option<Instant>,
    ) -> io::Result<[bool; 2]> {
        let wake = (wake, Want::Read);
        match &self.inotify {
            Some(queue) => self.alarm.wait([wake, (queue.as_fd(), Want::Read)], deadline),
            None => {
                let ready = self.alarm.wait([wake], deadline);
                ready.map(|[woken]| [woken, false])
            }
        }
    }

    /// Waits for the lock of the whole bucket.
    pub(super) fn lock(&self, deadline: Instant) -> Result<LockGuard<'_>, FolderError> {
        loop {
            let free = match self.dir.try_lock() {
                Ok(()) => Some(LockGuard(&self.dir)),
                Err(TryLockError::WouldBlock) => None,
                Err(TryLockError::Error(error)) => return Err(self.failed("lock", "", &error)),
            };
            let now = sys::now();
            if now >= deadline {
                let path = self.path.display();
                return Err(FolderError::Busy(format!("the lock of {path} was not had in time")));
            }
            if let Some(held) = free {
                return Ok(held);
            }
            // Only a pause: the loop reads the clock again.
            let _ = self.alarm.wait([], Some(deadline.min(now.after(LOCK_POLL))));
        }
    }

    /// Checks that the path still leads here and that the epoch is still the same.
    ///
    /// # Errors
    ///
    /// [`FolderError::Gone`] when not.
    pub(super) fn verify(&self) -> Result<(), FolderError> {
        let gone = |what: &str| Err(FolderError::Gone(format!("{} {what}", self.path.display())));
        let here = self.dir.metadata().map_err(|e| self.failed("check", "", &e))?;
        match fs::symlink_metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (here.dev(), here.ino()) => {}
            Ok(_) => return gone("was replaced"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return gone("was removed"),
            Err(error) => return Err(self.failed("check", "", &error)),
        }
        match self.text_file(EPOCH) {
            Ok(Some(body)) if body == self.epoch => Ok(()),
            Ok(Some(_)) => gone("has another epoch"),
            Ok(None) => gone("has lost its epoch"),
            Err(FolderError::Damaged(text)) => Err(FolderError::Gone(text)),
            Err(other) => Err(other),
        }
    }

    /// Returns the body of a file, `None` when there is no such file.
    pub(super) fn file(&self, name: &str) -> Result<Option<Vec<u8>>, FolderError> {
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
        let body = body.map_err(|what| self.damaged(name, what))?;
        Ok(Some(body.to_vec()))
    }

    /// Returns the body of a file that is text.
    pub(super) fn text_file(&self, name: &str) -> Result<Option<String>, FolderError> {
        let body = self.file(name)?.map(String::from_utf8).transpose();
        body.map_err(|_| self.damaged(name, "is not text"))
    }

    /// Replaces a file by another with this body, atomically. Needs the lock.
    pub(super) fn replace(&self, name: &str, body: &[u8]) -> Result<(), FolderError> {
        self.prepare(name, body)?;
        let published = self.publish(name);
        published.map_err(|error| self.failed("write", name, &error.into()))
    }

    /// Writes the next content of `name` to the temporary file. Needs the lock.
    pub(super) fn prepare(&self, name: &str, body: &[u8]) -> Result<(), FolderError> {
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
            file.write_all(&content)?;
            file.sync_data()
        };
        write().map_err(|error| {
            // Frees the space on a full disk; the next write would truncate the file anyway.
            let _ = rustix::fs::unlinkat(&self.dir, TEMP, AtFlags::empty());
            self.failed("write", name, &error)
        })
    }

    /// Renames the temporary file to `name`.
    pub(super) fn publish(&self, name: &str) -> Result<(), Errno> {
        rustix::fs::renameat(&self.dir, TEMP, &self.dir, name)
    }

    /// Makes the renames survive a power failure. Only the growth of terms depends on it:
    /// no process that could hold the lock survives one.
    pub(super) fn sync(&self) -> Result<(), FolderError> {
        let synced = self.dir.sync_all();
        synced.map_err(|error| self.failed("sync", "", &error))
    }

    /// Returns the error that operation `what` on the file `name` failed; the folder
    /// itself has a blank name.
    pub(super) fn failed(&self, what: &str, name: &str, error: &io::Error) -> FolderError {
        FolderError::Failed(format!("cannot {what} {}: {error}", self.file_path(name)))
    }

    pub(super) fn damaged(&self, name: &str, what: &str) -> FolderError {
        FolderError::Damaged(format!("{} {what}", self.file_path(name)))
    }

    fn file_path(&self, name: &str) -> String {
        let path = match name {
            "" => self.path.clone(),
            name => self.path.join(name),
        };
        path.display().to_string()
    }

    /// Returns the error for the kernel's event that the folder is gone.
    pub(super) fn watch_ended(&self) -> FolderError {
        let path = self.path.display();
        FolderError::Gone(format!("{path} was moved, removed or unmounted"))
    }
}

/// Returns the folder of a bucket. Its name has neither a slash nor a dot.
fn path_of(base: &Path, bucket: &str) -> Result<PathBuf, StoreError> {
    name::valid_bucket(bucket).map_err(StoreError::Unsafe)?;
    Ok(base.join(bucket))
}

/// Returns the time since the creation in `created`. A bucket of an earlier boot is older
/// than every process of this host.
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
