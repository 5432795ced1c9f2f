//! The folder of one bucket: its lock, its files, its identity.
//!
//! Every access is relative to one descriptor of the folder: if the folder is moved or
//! replaced meanwhile, nothing is written to the other one.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::permissions::open_private;
use super::text::{self, Kind};
use crate::core::{BucketId, Instant};
use crate::store::{BucketInfo, StoreError, StoreErrorKind, StoreResult, name};
use crate::sys::{self, host_clock};

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

/// Flags for opening a file: follow no symbolic link, do not wait for the writer of a pipe,
/// close at exec.
const FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// A bucket's folder, held open.
pub(super) struct Folder {
    dir: File,
    pub(super) path: PathBuf,
    /// The body of the epoch file when the folder was opened.
    epoch: Vec<u8>,
    /// The reason why the folder must be opened again, if it must.
    pub(super) lost: OnceCell<String>,
}

/// The held lock of the bucket. Dropping it unlocks explicitly: after a mere close, a child
/// between fork and exec would still hold the lock.
pub(super) struct HeldLock<'a>(&'a File);

impl Drop for HeldLock<'_> {
    fn drop(&mut self) {
        // Cannot fail on a held lock; at exit the kernel releases it anyway.
        let _ = self.0.unlock();
    }
}

impl Folder {
    /// Opens the folder `base/bucket` and creates it when it does not exist.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Unsafe`] when other users could write to it, when it is not a
    /// folder of this program, or when a file in it is damaged or missing.
    pub(super) fn open(
        base: &Path,
        bucket: &str,
        deadline: Instant,
    ) -> StoreResult<(Folder, BucketInfo)> {
        // The name of a bucket has neither a slash nor a dot.
        name::valid_bucket(bucket).map_err(|text| StoreErrorKind::Unsafe.error(text))?;
        let path = base.join(bucket);
        let dir = open_private(base, &path)?;
        let mut folder = Folder { dir, path, epoch: Vec::new(), lost: OnceCell::new() };
        let mut remarks = Vec::new();
        let held = folder.lock(deadline)?;
        let epoch = match folder.file(EPOCH)? {
            Some(body) => body,
            None => {
                remarks.push(format!("created the bucket {}", folder.path.display()));
                folder.create()?
            }
        };
        let last = folder.last()?;
        drop(held);
        folder.epoch = epoch;
        let id = folder.id()?;
        // A key that was removed with all its files looks like one that never existed.
        let age = age(&id.created).filter(|_| last.0 == 0);
        let info = BucketInfo { id, last, age, replicas: 1, remarks, retires: Ok(()) };
        Ok((folder, info))
    }

    /// Writes the sequence and then the epoch, which completes the bucket.
    fn create(&self) -> StoreResult<Vec<u8>> {
        if self.key_files()?.iter().any(|(kind, _)| *kind == Kind::Record) {
            return Err(self.damaged(EPOCH, "is missing while there are records"));
        }
        // A sequence of an interrupted creation, or of a bucket whose other files were
        // removed, is kept.
        if self.file(SEQUENCE)?.is_none() {
            self.replace(SEQUENCE, b"sequence 0")?;
        }
        let id = sys::random().map_err(|error| {
            StoreErrorKind::Unreachable.error(format!("no random number: {error}"))
        })?;
        let (boot, since) = (host_clock::name(), sys::now().since_boot().as_nanos());
        let body = format!("epoch {id:032x}\ncreated {since} ns after the start of boot {boot}");
        self.replace(EPOCH, body.as_bytes())?;
        self.sync()?;
        Ok(body.into_bytes())
    }

    /// Returns the kinds and the keys of the files of keys.
    pub(super) fn key_files(&self) -> StoreResult<Vec<(Kind, String)>> {
        let failed = |error: Errno| self.failed("list", "", error);
        let mut files = Vec::new();
        for entry in Dir::read_from(&self.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            files.extend(entry.file_name().to_str().ok().and_then(text::key_of));
        }
        Ok(files)
    }

    /// Returns the identity of the bucket, from the body of the epoch file.
    fn id(&self) -> StoreResult<BucketId> {
        let parts = str::from_utf8(&self.epoch).ok().and_then(|text| text.split_once('\n'));
        let parts = parts.and_then(|(id, created)| Some((id.strip_prefix("epoch ")?, created)));
        let (epoch, created) = parts.ok_or_else(|| self.unexpected(EPOCH))?;
        Ok(BucketId { epoch: epoch.to_owned(), created: created.to_owned() })
    }

    /// Waits for the lock of the whole bucket.
    pub(super) fn lock(&self, deadline: Instant) -> StoreResult<HeldLock<'_>> {
        let how = FlockOperation::NonBlockingLockExclusive;
        let within = deadline.since(sys::now());
        let locked = sys::lock_within(&self.dir, how, within, LOCK_POLL);
        let locked = locked.map_err(|error| self.failed("lock", "", error))?;
        let held = locked.then(|| HeldLock(&self.dir)).filter(|_| sys::now() < deadline);
        let path = self.path.display();
        let busy =
            || StoreErrorKind::Unreachable.error(format!("the lock of {path} was not had in time"));
        held.ok_or_else(busy)
    }

    /// Checks that the path still names this folder, and that the epoch is the same.
    ///
    /// # Errors
    ///
    /// If not: the folder is lost then.
    pub(super) fn verify(&self) -> StoreResult<()> {
        let here = self.dir.metadata().map_err(|error| self.failed("check", "", error))?;
        match fs::symlink_metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (here.dev(), here.ino()) => {}
            Ok(_) => return Err(self.gone("was replaced")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(self.gone("was removed"));
            }
            Err(error) => return Err(self.failed("check", "", error)),
        }
        match self.file(EPOCH) {
            Ok(Some(body)) if body == self.epoch => Ok(()),
            Ok(Some(_)) => Err(self.gone("has another epoch")),
            Ok(None) => Err(self.gone("has lost its epoch")),
            Err(StoreError { kind: StoreErrorKind::Unsafe, text }) => Err(self.lose(text)),
            Err(other) => Err(other),
        }
    }

    /// Returns the body of a file, `None` when there is no such file.
    pub(super) fn file(&self, name: &str) -> StoreResult<Option<Vec<u8>>> {
        let fd = match rustix::fs::openat(&self.dir, name, FLAGS, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(self.damaged(name, "is a symbolic link")),
            Err(error) => return Err(self.failed("open", name, error)),
        };
        let mut content = Vec::new();
        let limit = FILE_BYTES_MAX as u64 + 1;
        let read = File::from(fd).take(limit).read_to_end(&mut content);
        read.map_err(|error| self.failed("read", name, error))?;
        if content.len() > FILE_BYTES_MAX {
            return Err(self.damaged(name, "is larger than any file of ours"));
        }
        let body = text::unframe(&content).map_err(|what| self.damaged(name, what))?;
        Ok(Some(body.to_vec()))
    }

    /// Returns the parsed body of a file, `None` when there is no such file.
    pub(super) fn parsed<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&[u8]) -> Option<T>,
    ) -> StoreResult<Option<T>> {
        let Some(body) = self.file(name)? else { return Ok(None) };
        parse(&body).map(Some).ok_or_else(|| self.unexpected(name))
    }

    /// Returns the number in a file with the one line `LABEL N`.
    pub(super) fn number<N: FromStr>(&self, name: &str, label: &str) -> StoreResult<Option<N>> {
        self.parsed(name, |body| text::parse_number(label, str::from_utf8(body).ok()?))
    }

    /// Replaces a file by one with this body, atomically. The caller holds the lock.
    pub(super) fn replace(&self, name: &str, body: &[u8]) -> StoreResult<()> {
        self.prepare(name, body)?;
        self.publish(name).map_err(|error| self.failed("write", name, error))
    }

    /// Writes the next content of `name` to the temporary file. The caller holds the lock.
    pub(super) fn prepare(&self, name: &str, body: &[u8]) -> StoreResult<()> {
        let content = text::frame(body);
        if content.len() > FILE_BYTES_MAX {
            let (size, path) = (content.len(), self.file_path(name));
            return Err(StoreErrorKind::Unreachable.error(format!(
                "cannot write {path}: {size} bytes are more than the maximum of {FILE_BYTES_MAX}"
            )));
        }
        let write = || -> io::Result<()> {
            let flags = FLAGS | OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
            let mode = Mode::RUSR | Mode::WUSR;
            let mut file = File::from(rustix::fs::openat(&self.dir, TEMP, flags, mode)?);
            file.write_all(&content)?;
            file.sync_data()
        };
        write().map_err(|error| {
            // Frees space on a full disk.
            let _ = rustix::fs::unlinkat(&self.dir, TEMP, AtFlags::empty());
            self.failed("write", name, error)
        })
    }

    /// Renames the temporary file to `name`.
    pub(super) fn publish(&self, name: &str) -> Result<(), Errno> {
        rustix::fs::renameat(&self.dir, TEMP, &self.dir, name)
    }

    /// Removes a file. The caller holds the lock.
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
        let (path, error) = (self.file_path(name), error.into());
        StoreErrorKind::Unreachable.error(format!("cannot {what} {path}: {error}"))
    }

    pub(super) fn damaged(&self, name: &str, what: &str) -> StoreError {
        StoreErrorKind::Unsafe.error(format!("{} {what}", self.file_path(name)))
    }

    fn unexpected(&self, name: &str) -> StoreError {
        self.damaged(name, "does not say what it should")
    }

    fn file_path(&self, name: &str) -> String {
        let path = match name {
            "" => self.path.clone(),
            name => self.path.join(name),
        };
        path.display().to_string()
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

/// Returns the time since the creation in `created`; `None` if the clock of that instant or that of
/// this process is not known to be that of the host. A bucket of an earlier boot is older than
/// every process of this host.
fn age(created: &str) -> Option<Duration> {
    let (nanos, rest) = created.strip_prefix("created ")?.split_once(" ns ")?;
    let boot = rest.strip_prefix("after the start of boot ")?;
    let present = host_clock::name();
    if boot.is_empty() || present.is_empty() {
        return None;
    }
    if boot != present {
        return Some(Duration::MAX);
    }
    let then = Instant::from_boot(Duration::from_nanos(nanos.parse().ok()?));
    Some(sys::now().since(then))
}
