//! The private directory of an agent and its guard on a host: one for each key and token.
//!
//! | file | use |
//! |---|---|
//! | `agent.lock` | locked by the agent: there is one at a time |
//! | `lock` | locked by the guard for as long as it lives; its content is [`super::note`] |
//! | `socket` | where the guard takes the connection of the next agent |
//!
//! Nobody else may write to the directory, or to one above it: whoever could bind the socket
//! or hold the locks could keep a service from being stopped.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags};
use rustix::net::sockopt;
use rustix::process::PidfdFlags;

use super::note::BYTES_MAX as NOTE_MAX;
use super::socket;
use crate::sys;

/// What all instances of an agent have in common, and no two agents of a user and a host.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The place of the lock: servers, or a directory.
    pub location: String,
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: String,
    /// The token.
    pub token: String,
}

/// The directory of all private directories, beside those of buckets: no bucket's name has a dot.
const AGENTS_DIR: &str = ".agents";

/// The file that the agent locks.
pub const AGENT_LOCK: &str = "agent.lock";

/// The file that the guard locks.
pub(super) const GUARD_LOCK: &str = "lock";

/// Where the guard listens.
const SOCKET: &str = "socket";

/// A socket that is made and removed, so that it is known whether one can be made.
const TRIED_SOCKET: &str = "tried";

/// How often a lock is tried.
const LOCK_EVERY: Duration = Duration::from_millis(2);

/// How much of a key stands in the name of its directory, for people.
const KEY_BYTES: usize = 40;

/// Bytes of the digest in the name of a directory.
const DIGEST_BYTES: usize = 16;

impl Identity {
    /// Returns the name of the directory: as short as a socket's path has to be, and another
    /// one for every identity.
    fn name(&self) -> String {
        let parts = [&self.location, &self.bucket, &self.key, &self.token];
        let mut text = Vec::new();
        for part in parts {
            text.extend_from_slice(part.as_bytes());
            text.push(0);
        }
        let digest = ring::digest::digest(&ring::digest::SHA256, &text);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let key = self.key.bytes().take(KEY_BYTES);
        let mut name: String =
            key.map(|byte| if plain(byte) { char::from(byte) } else { '_' }).collect();
        name.push('-');
        for byte in digest.as_ref().iter().take(DIGEST_BYTES) {
            name.push_str(&format!("{byte:02x}"));
        }
        name
    }
}

/// The private directory, open.
#[derive(Debug)]
pub struct InstanceDir {
    path: PathBuf,
    dir: File,
}

impl InstanceDir {
    /// Opens the directory of an identity below `base`, and makes it where it is not there.
    ///
    /// # Errors
    ///
    /// When it cannot be made, or somebody else can write to it or to a directory above it.
    /// The text names the directory.
    pub fn open(base: &Path, identity: &Identity) -> io::Result<InstanceDir> {
        InstanceDir::at(sys::absolute(base).join(AGENTS_DIR).join(identity.name()))
    }

    /// As [`InstanceDir::open`], by the path: somebody may have removed it since.
    ///
    /// # Errors
    ///
    /// As those of [`InstanceDir::open`].
    pub fn at(path: PathBuf) -> io::Result<InstanceDir> {
        let agents = path.parent().unwrap_or(&path);
        let base = agents.parent().unwrap_or(agents);
        // Nothing is made in a directory that was not checked.
        make(base)?;
        check_parents(base)?;
        check_own(base, 0o022)?;
        for own in [agents, &path] {
            make(own)?;
            check_own(own, 0o077)?;
        }
        let flags = (OFlags::NOFOLLOW | OFlags::DIRECTORY).bits();
        let dir = OpenOptions::new()
            .read(true)
            .custom_flags(i32::try_from(flags).unwrap_or(0))
            .open(&path)
            .map_err(|error| named(&path, &error))?;
        Ok(InstanceDir { path, dir })
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Locks one of its files as soon as nobody else has it locked; `None` when that takes
    /// longer. The lock ends with the file.
    ///
    /// # Errors
    ///
    /// When the file cannot be made, or the file system has no locks.
    pub fn lock(&self, name: &str, within: Duration) -> io::Result<Option<File>> {
        loop {
            let file = self.file(name)?;
            let how = FlockOperation::NonBlockingLockExclusive;
            if !sys::lock_within(&file, how, within, LOCK_EVERY)? {
                return Ok(None);
            }
            // One that was removed meanwhile locks nobody out.
            if self.is_current(name, &file)? {
                return Ok(Some(file));
            }
        }
    }

    /// Returns whether a file is still the one that has the name.
    fn is_current(&self, name: &str, file: &File) -> io::Result<bool> {
        let path = self.path.join(name);
        let known = |metadata: Metadata| (metadata.dev(), metadata.ino());
        match fs::symlink_metadata(&path) {
            Ok(named) => Ok(known(file.metadata()?) == known(named)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(named(&path, &error)),
        }
    }

    fn file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::NOFOLLOW.bits();
        let path = self.path.join(name);
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(i32::try_from(flags).unwrap_or(0))
            .open(&path)
            .map_err(|error| named(&path, &error))
    }

    /// Listens on the socket. Whoever does holds the guard's lock, so a socket that is there is
    /// that of a dead guard.
    ///
    /// # Errors
    ///
    /// When the directory is gone or full, or the process has no descriptor left.
    pub fn listen(&self) -> io::Result<OwnedFd> {
        self.listen_at(SOCKET)
    }

    fn listen_at(&self, name: &str) -> io::Result<OwnedFd> {
        let path = self.socket(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        socket::listen(&path)
    }

    /// Connects to the guard that lives, and opens its process; `None` when there is none.
    #[must_use]
    pub fn connect(&self) -> Option<(OwnedFd, OwnedFd)> {
        let socket = socket::connect(&self.socket(SOCKET))?;
        let peer = sockopt::socket_peercred(&socket).ok()?;
        let process = rustix::process::pidfd_open(peer.pid, PidfdFlags::empty()).ok()?;
        Some((socket, process))
    }

    /// A path that is short enough for a socket's address, wherever the directory is.
    fn socket(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.dir.as_raw_fd()))
    }
}

/// The private directory as the agent holds it.
#[derive(Debug)]
pub struct HeldDir {
    /// The directory.
    pub dir: InstanceDir,
    /// Keeps the lock of the agent.
    lock: File,
    /// What the guard notes, also where somebody has removed the file.
    note: File,
}

impl HeldDir {
    /// Takes the directory whose agent has this lock.
    ///
    /// # Errors
    ///
    /// When the file of the guard cannot be made.
    pub fn new(dir: InstanceDir, lock: File) -> io::Result<HeldDir> {
        let note = dir.file(GUARD_LOCK)?;
        Ok(HeldDir { dir, lock, note })
    }

    /// Returns whether the next agent would find a guard that listens.
    ///
    /// # Errors
    ///
    /// When that cannot be known.
    pub fn shows_guard(&self) -> io::Result<bool> {
        let has_socket = self.dir.path.join(SOCKET).try_exists()?;
        Ok(has_socket && self.dir.is_current(GUARD_LOCK, &self.note)?)
    }

    /// Makes what somebody has removed anew, but for the file of the guard. Returns whether the
    /// agent has the lock: another may have taken it meanwhile.
    ///
    /// # Errors
    ///
    /// When the directory cannot be made, or others can write to it.
    pub fn mend(&mut self) -> io::Result<bool> {
        if !self.dir.is_current(AGENT_LOCK, &self.lock)? {
            let dir = InstanceDir::at(self.dir.path.clone())?;
            let Some(lock) = dir.lock(AGENT_LOCK, Duration::ZERO)? else {
                return Ok(false);
            };
            (self.dir, self.lock) = (dir, lock);
        }
        Ok(true)
    }

    /// Tries all that another guard needs of the directory: a guard that lives is worth more
    /// than one that cannot begin.
    ///
    /// # Errors
    ///
    /// When another guard could not begin: others can write to the directory, the file system is
    /// full, or something else has the name of one of its files.
    pub fn try_out(&self) -> io::Result<()> {
        let dir = InstanceDir::at(self.dir.path.clone())?;
        drop(dir.listen_at(TRIED_SOCKET)?);
        fs::remove_file(dir.socket(TRIED_SOCKET))?;
        let socket = fs::symlink_metadata(dir.socket(SOCKET));
        if socket.is_ok_and(|socket| socket.is_dir()) {
            return Err(io::Error::other(format!("{SOCKET} is a directory")));
        }
        if !self.dir.is_current(GUARD_LOCK, &self.note)? {
            self.copy_note(&dir)?;
        }
        Ok(())
    }

    /// Hands what the guard before has noted on to the next one where somebody has removed the
    /// file. The guard before is dead.
    ///
    /// # Errors
    ///
    /// When the file cannot be made, or the file system is full.
    pub fn hand_note_on(&mut self) -> io::Result<()> {
        if !self.dir.is_current(GUARD_LOCK, &self.note)? {
            self.note = self.copy_note(&self.dir)?;
        }
        Ok(())
    }

    fn copy_note(&self, dir: &InstanceDir) -> io::Result<File> {
        let mut noted = vec![0; NOTE_MAX];
        let count = self.note.read_at(&mut noted, 0)?;
        let note = dir.file(GUARD_LOCK)?;
        note.write_all_at(&noted[..count], 0)?;
        Ok(note)
    }
}

/// Returns an error whose text begins with the path.
pub(super) fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Makes a directory, unless it is there.
fn make(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(path);
    made.map_err(|error| named(path, &error))
}

/// Checks all directories above the base, both by the path that was given and by the one that
/// symbolic links in it lead to.
fn check_parents(base: &Path) -> io::Result<()> {
    let Some(parent) = base.parent() else {
        return Ok(());
    };
    let real = fs::canonicalize(parent).map_err(|error| named(parent, &error))?;
    parent.ancestors().chain(real.ancestors()).try_for_each(check_parent)
}

/// Checks a directory above the base, or a symbolic link to one.
fn check_parent(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path).map_err(|error| named(path, &error))?;
    sys::check_entries_safe(path, &metadata).map_err(io::Error::other)
}

/// Checks a directory of this user's: others have none of the rights in `forbidden`.
fn check_own(path: &Path, forbidden: u32) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path).map_err(|error| named(path, &error))?;
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    let fault = if !metadata.is_dir() {
        "is no directory".to_owned()
    } else if owner != sys::user_id() {
        format!("belongs to user {owner}")
    } else if mode & forbidden != 0 {
        format!("is open to others (mode {mode:04o})")
    } else {
        return Ok(());
    };
    Err(io::Error::other(format!("{} {fault}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity([location, bucket, key, token]: [&str; 4]) -> Identity {
        let [location, bucket, key, token] = [location, bucket, key, token].map(str::to_owned);
        Identity { location, bucket, key, token }
    }

    /// Whoever waits for it would hold a lock that keeps nobody else out.
    #[test]
    fn the_lock_on_a_file_that_was_removed_is_not_taken_for_the_lock() {
        let path = std::env::temp_dir().join(format!("putex-lock-{}", std::process::id()));
        fs::create_dir(&path).expect("it is new");
        let open = || InstanceDir { path: path.clone(), dir: File::open(&path).expect("made") };
        let dir = open();
        let lock = |dir: &InstanceDir, within| dir.lock(AGENT_LOCK, within).expect("a lock");
        let held = lock(&dir, Duration::ZERO).expect("nobody has it");
        let waiting = open();
        let got = std::thread::scope(|scope| {
            let got = scope.spawn(|| lock(&waiting, Duration::from_secs(60)));
            // It has the file open by then, as a rule.
            let soon = sys::now().after(Duration::from_millis(50));
            let alarm = sys::Alarm::new().expect("a descriptor");
            alarm.wait([], Some(soon)).expect("it waits");
            fs::remove_file(path.join(AGENT_LOCK)).expect("it is there");
            drop(held);
            got.join().expect("it ends").expect("nobody has it")
        });
        let is_current = dir.is_current(AGENT_LOCK, &got).expect("it is known");
        let another = lock(&dir, Duration::ZERO);
        fs::remove_dir_all(&path).expect("it is there");
        assert!(is_current && another.is_none());
    }

    #[test]
    fn no_two_identities_share_a_directory() {
        let name = |parts| identity(parts).name();
        let one = name(["p", "b", "a/b", "c"]);
        assert!(one.starts_with("a_b-"), "{one}");
        for other in [
            ["p", "b", "a", "b/c"],
            ["p", "b", "a_b", "c"],
            ["q", "b", "a/b", "c"],
            ["p", "ba", "/b", "c"],
        ] {
            assert_ne!(one, name(other), "{other:?}");
        }
        let long = "k".repeat(200);
        assert!(name(["p", "b", &long, &long]).len() < 80);
    }
}
