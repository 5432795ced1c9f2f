//! The folder of one bucket: its lock, its files, its identity.
//!
//! Every access is relative to one descriptor of the folder: if the folder is moved or
//! replaced meanwhile, nothing is written to the other one.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::permissions::{open_private, refused};
use super::sequence::{SEQUENCE, Sequence};
use super::text::{self, Kind};
use crate::core::{BucketId, Instant};
use crate::store::{StoreError, StoreErrorKind, StoreResult, name};
use crate::sys::{self, host_clock};

/// Name of the file with the bucket's random id.
pub(super) const EPOCH: &str = "epoch";
/// Name of a file that is being written.
pub(super) const TEMP: &str = "new";
/// Most files have less bytes, and are read at once.
const FILE_BYTES: usize = 1024;
/// Largest file that is written or read, in bytes: a token and ten short headers take
/// less than 1 KiB. A larger file is not of this program and is not read into memory.
const FILE_BYTES_MAX: usize = 64 * 1024;
/// Pause before a held lock is tried again. An agent holds it for about 10 ms on a disk; a pause
/// below 1 ms only costs processor time.
const LOCK_POLL: Duration = Duration::from_millis(1);

/// Flags for opening a file: follow no symbolic link, do not wait for the writer of a pipe,
/// close at exec.
pub(super) const FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// A bucket's folder, held open.
pub(crate) struct Folder {
    dir: File,
    pub(super) path: PathBuf,
    /// The identity of the bucket when the lock was had first.
    id: OnceCell<BucketId>,
    /// The name of this boot; blank if it is not known.
    pub(super) boot: String,
    /// Whether the clock of this process is that of the host.
    pub(super) has_clock_of_host: bool,
    /// The reason why the folder must be opened again, if it must.
    pub(super) lost: OnceCell<String>,
}

/// The held lock of the bucket.
pub(super) struct HeldLock<'a> {
    _flock: Flock<'a>,
    /// The identity of the bucket.
    pub(super) id: &'a BucketId,
    /// Whether this has made the bucket.
    pub(super) has_made_it: bool,
}

/// Dropping it unlocks explicitly: after a mere close, a child between fork and exec would still
/// hold the lock.
struct Flock<'a>(&'a File);

impl Drop for Flock<'_> {
    fn drop(&mut self) {
        // Cannot fail on a held lock; at exit the kernel releases it anyway.
        let _ = self.0.unlock();
    }
}

impl Folder {
    /// Opens the folder `base/bucket` and creates it when it does not exist. Its files are not read
    /// before the lock is had: see [`Folder::lock_until`].
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Unsafe`] when other users could write to it.
    pub(crate) fn open(base: &Path, bucket: &str) -> StoreResult<Folder> {
        // The name of a bucket has neither a slash nor a dot.
        name::valid_bucket(bucket).map_err(|text| StoreErrorKind::Unsafe.error(text))?;
        let path = base.join(bucket);
        let dir = open_private(base, &path)?;
        let (boot, has_clock_of_host) = (host_clock::boot(), host_clock::has_clock_of_host());
        let (id, lost) = (OnceCell::new(), OnceCell::new());
        Ok(Folder { dir, path, id, boot, has_clock_of_host, lost })
    }

    /// Writes the sequence and then the epoch, which completes the bucket. The caller has the lock.
    fn create(&self) -> StoreResult<BucketId> {
        if self.key_files()?.iter().any(|(kind, _)| *kind == Kind::Record) {
            return Err(self.damaged(EPOCH, "is missing while there are records"));
        }
        // A sequence of an interrupted creation, or of a bucket whose other files were
        // removed, is kept.
        if self.open_file(SEQUENCE, OFlags::RDONLY)?.is_none() {
            self.replace(SEQUENCE, Sequence::new(&self.boot).encode().as_bytes())?;
        }
        let id = sys::random()
            .map_err(|error| StoreErrorKind::System.error(format!("no random number: {error}")))?;
        let boot = if self.has_clock_of_host { &self.boot } else { "" };
        let since = sys::now().since_boot().as_nanos();
        let epoch = format!("{id:032x}");
        let created = format!("created {since} ns after the start of boot {boot}");
        self.replace(EPOCH, format!("epoch {epoch}\n{created}").as_bytes())?;
        self.sync()?;
        Ok(BucketId { epoch, created })
    }

    /// Returns how long ago the bucket was created; `None` if the clock of that instant or that of
    /// this process is not known to be that of the host. A bucket of an earlier boot is older than
    /// every process of this host.
    pub(super) fn time_since_creation(&self, id: &BucketId) -> Option<Duration> {
        let (nanos, rest) = id.created.strip_prefix("created ")?.split_once(" ns ")?;
        let boot = rest.strip_prefix("after the start of boot ")?;
        if boot.is_empty() || self.boot.is_empty() || !self.has_clock_of_host {
            return None;
        }
        if boot != self.boot {
            return Some(Duration::MAX);
        }
        let then = Instant::from_boot(Duration::from_nanos(nanos.parse().ok()?));
        Some(sys::now().since(then))
    }

    pub(super) fn key_files(&self) -> StoreResult<Vec<(Kind, String)>> {
        let failed = |error: Errno| self.failed("list", "", error);
        let mut files = Vec::new();
        for entry in Dir::read_from(&self.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            files.extend(entry.file_name().to_str().ok().and_then(text::key_of));
        }
        Ok(files)
    }

    /// Waits for the lock of the whole bucket, as [`Folder::lock_until`].
    pub(super) fn lock(&self, deadline: Instant) -> StoreResult<HeldLock<'_>> {
        let path = self.path.display();
        let busy = || {
            StoreErrorKind::Unreachable.error(format!(
                "the lock of {path} was not had in time: too many processes ask for it, one that \
                 has it is stopped, or the disk"
            ))
        };
        self.lock_until(Some(deadline))?.ok_or_else(busy)
    }

    /// Waits for the lock of the whole bucket until this instant, or for ever; `None` if it was not
    /// had in time. The holder of the lock of an incomplete bucket completes it. The identity of
    /// the bucket stays the one that this process has had before.
    ///
    /// # Errors
    ///
    /// As of [`Folder::verify`]; and [`StoreErrorKind::Unsafe`] when this is not a folder of this
    /// program, or when a file in it is damaged or missing.
    pub(super) fn lock_until(&self, until: Option<Instant>) -> StoreResult<Option<HeldLock<'_>>> {
        let Some(flock) = self.flock(until)? else { return Ok(None) };
        self.verify_path()?;
        if let Some(id) = self.id.get() {
            self.verify_epoch()?;
            return Ok(Some(HeldLock { _flock: flock, id, has_made_it: false }));
        }
        let found = self.parsed(EPOCH, id_of)?;
        let has_made_it = found.is_none();
        let id = found.map_or_else(|| self.create(), Ok)?;
        Ok(Some(HeldLock { _flock: flock, id: self.id.get_or_init(|| id), has_made_it }))
    }

    fn flock(&self, until: Option<Instant>) -> StoreResult<Option<Flock<'_>>> {
        let locked = match until {
            Some(until) => {
                let how = FlockOperation::NonBlockingLockExclusive;
                let lock = || rustix::fs::flock(&self.dir, how);
                sys::lock_within(lock, until.since(sys::now()), LOCK_POLL)
            }
            None => {
                let lock = || rustix::fs::flock(&self.dir, FlockOperation::LockExclusive);
                rustix::io::retry_on_intr(lock).map_err(io::Error::from).map(|()| true)
            }
        };
        let is_locked = locked.map_err(|error| self.failed("lock", "", error))?;
        let flock = is_locked.then(|| Flock(&self.dir));
        Ok(flock.filter(|_| until.is_none_or(|until| sys::now() < until)))
    }

    /// Checks that the path still names this folder, and that the epoch is the same.
    ///
    /// # Errors
    ///
    /// If not: the folder is lost then.
    pub(super) fn verify(&self) -> StoreResult<()> {
        self.verify_path()?;
        self.verify_epoch()
    }

    fn verify_path(&self) -> StoreResult<()> {
        let here = self.dir.metadata().map_err(|error| self.failed("check", "", error))?;
        match fs::symlink_metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (here.dev(), here.ino()) => Ok(()),
            Ok(_) => Err(self.gone("was replaced")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(self.gone("was removed")),
            Err(error) => Err(self.failed("check", "", error)),
        }
    }

    fn verify_epoch(&self) -> StoreResult<()> {
        match self.parsed(EPOCH, id_of) {
            Ok(Some(id)) if self.id.get() == Some(&id) => Ok(()),
            Ok(Some(_)) => Err(self.gone("has another epoch")),
            Ok(None) => Err(self.gone("has lost its epoch")),
            Err(StoreError { kind: StoreErrorKind::Unsafe, text }) => Err(self.lose(text)),
            Err(other) => Err(other),
        }
    }

    /// Opens a file, if there is one.
    pub(super) fn open_file(&self, name: &str, how: OFlags) -> StoreResult<Option<File>> {
        match self.openat(name, FLAGS | how, Mode::empty()) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.failed("open", name, error)),
        }
    }

    /// Returns whether this name is that of an open file.
    pub(super) fn names(&self, name: &str, file: &File) -> StoreResult<bool> {
        let here = file.metadata().map_err(|error| self.failed("check", name, error))?;
        match rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => Ok((there.st_dev, there.st_ino) == (here.dev(), here.ino())),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.failed("check", name, error)),
        }
    }

    pub(super) fn openat(&self, name: &str, flags: OFlags, mode: Mode) -> rustix::io::Result<File> {
        rustix::fs::openat(&self.dir, name, flags, mode).map(File::from)
    }

    /// Returns the parsed body of a file that was opened.
    pub(super) fn read<T>(
        &self,
        name: &str,
        file: &File,
        parse: impl FnOnce(&[u8]) -> Option<T>,
    ) -> StoreResult<T> {
        let mut content = Vec::with_capacity(FILE_BYTES);
        let limit = FILE_BYTES_MAX as u64 + 1;
        let read = file.take(limit).read_to_end(&mut content);
        read.map_err(|error| self.failed("read", name, error))?;
        if content.len() > FILE_BYTES_MAX {
            return Err(self.damaged(name, "is larger than any file of ours"));
        }
        let body = text::unframe(&content).map_err(|what| self.damaged(name, what))?;
        parse(body).ok_or_else(|| self.unexpected(name))
    }

    /// Returns the parsed body of a file, `None` when there is no such file.
    pub(super) fn parsed<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&[u8]) -> Option<T>,
    ) -> StoreResult<Option<T>> {
        let file = self.open_file(name, OFlags::RDONLY)?;
        file.map(|file| self.read(name, &file, parse)).transpose()
    }

    /// Replaces a file by one with this body, atomically. The caller holds the lock.
    pub(super) fn replace(&self, name: &str, body: &[u8]) -> StoreResult<()> {
        self.prepare(name, body)?;
        self.publish(name)
    }

    /// Writes the next content of `name` to the temporary file, and that to the disk. The caller
    /// holds the lock.
    pub(super) fn prepare(&self, name: &str, body: &[u8]) -> StoreResult<()> {
        let synced = self.create_file(TEMP, name, body)?.sync_data();
        synced.map_err(|error| self.not_written(TEMP, name, error))
    }

    /// Creates the file `at` with the content of `name`, in memory, and returns it for writing. The
    /// caller holds the lock.
    pub(super) fn create_file(&self, at: &str, name: &str, body: &[u8]) -> StoreResult<File> {
        let content = text::frame(body);
        if content.len() > FILE_BYTES_MAX {
            let (size, path) = (content.len(), self.file_path(name));
            return Err(StoreErrorKind::Unreachable.error(format!(
                "cannot write {}: {size} bytes are more than the maximum of {FILE_BYTES_MAX}",
                path.display()
            )));
        }
        let write = || -> io::Result<File> {
            let flags = FLAGS | OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
            let mode = Mode::RUSR | Mode::WUSR;
            let mut file = self.openat(at, flags, mode)?;
            // The umask may have taken from it.
            rustix::fs::fchmod(&file, mode)?;
            file.write_all(&content)?;
            Ok(file)
        };
        write().map_err(|error| self.not_written(at, name, error))
    }

    /// Removes a file that could not be written, which frees space on a full disk.
    fn not_written(&self, at: &str, name: &str, error: io::Error) -> StoreError {
        let _ = self.unlink(at);
        self.failed("write", name, error)
    }

    /// Renames the temporary file to `name`.
    pub(super) fn publish(&self, name: &str) -> StoreResult<()> {
        let renamed = rustix::fs::renameat(&self.dir, TEMP, &self.dir, name);
        renamed.map_err(|error| self.failed("write", name, error))
    }

    /// Removes a file. The caller holds the lock, unless nobody else writes that file.
    pub(super) fn unlink(&self, name: &str) -> StoreResult<()> {
        match rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.failed("remove", name, error)),
        }
    }

    /// Makes the renames survive a power failure. Only the growth of terms depends on this:
    /// no holder of the lock survives a power failure.
    pub(super) fn sync(&self) -> StoreResult<()> {
        self.dir.sync_all().map_err(|error| self.failed("sync", "", error))
    }

    /// Returns the error of operation `what` on the file `name`, or on the folder itself if
    /// `name` is empty.
    pub(super) fn failed(&self, what: &str, name: &str, error: impl Into<io::Error>) -> StoreError {
        refused(what, &self.file_path(name), &error.into())
    }

    pub(super) fn damaged(&self, name: &str, what: &str) -> StoreError {
        StoreErrorKind::Unsafe.error(format!("{} {what}", self.file_path(name).display()))
    }

    pub(super) fn unexpected(&self, name: &str) -> StoreError {
        self.damaged(name, "does not say what it should")
    }

    fn file_path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.path.clone() } else { self.path.join(name) }
    }

    /// Returns whether the bucket was removed or replaced: its content is worth nothing.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Records that the opened folder is gone, and returns that as an error.
    pub(super) fn gone(&self, what: &str) -> StoreError {
        self.lose(format!("{} {what}", self.path.display()))
    }

    /// Records the reason why the folder must be opened again, and returns it as an error. The
    /// first reason stays.
    pub(super) fn lose(&self, why: String) -> StoreError {
        StoreErrorKind::Unreachable.error(self.lost.get_or_init(|| why).clone())
    }
}

/// Returns the identity in the body of the file with the epoch.
fn id_of(body: &[u8]) -> Option<BucketId> {
    let (epoch, created) = str::from_utf8(body).ok()?.split_once('\n')?;
    let epoch = epoch.strip_prefix("epoch ")?.to_owned();
    Some(BucketId { epoch, created: created.to_owned() })
}
