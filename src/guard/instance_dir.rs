//! The private directory of an agent and its guard on a host: one for each key and token.
//!
//! | file | use |
//! |---|---|
//! | `agent.lock` | locked by the agent: there is one at a time |
//! | `lock` | locked by the guard for as long as it lives; its content is [`super::note`] |
//! | `socket` | where the guard takes the connection of the next agent |
//! | `status` | the status of the agent, see [`super::status_file`] |
//!
//! Nobody else may write to the directory, or to one above it: a user who could bind the socket or
//! hold the locks could keep a service from being stopped.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use libc::{O_DIRECTORY, O_NOFOLLOW};
use rustix::fs::Access;
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

use super::{note, socket};
use crate::core::{Ms, Timing, guard_answer_time};
use crate::sys::{self, named, raw, safe_path};

/// The identity of an agent: the same for all its instances, and another for every agent of a user
/// and a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
pub(super) const AGENTS_DIR: &str = ".agents";

/// The file that the agent locks.
pub(super) const AGENT_LOCK: &str = "agent.lock";

/// The file that the guard locks.
pub(super) const GUARD_LOCK: &str = "lock";

/// Where the guard listens.
const SOCKET: &str = "socket";

/// How often a lock is tried.
pub(super) const LOCK_EVERY: Duration = Duration::from_millis(2);

/// How much of a key stands in the name of its directory, for people.
const KEY_BYTES: usize = 40;

/// Bytes of the digest in the name of a directory.
const DIGEST_BYTES: usize = 16;

impl Identity {
    /// Returns the name of the directory: as short as a socket's path has to be, and another
    /// one for every identity.
    fn name(&self) -> String {
        let Identity { location, bucket, key, token } = self;
        let text = format!("{location}\0{bucket}\0{key}\0{token}\0");
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let key = key.bytes().take(KEY_BYTES);
        let key: String =
            key.map(|byte| if plain(byte) { char::from(byte) } else { '_' }).collect();
        format!("{key}-{}", digest(&text, DIGEST_BYTES))
    }
}

/// Returns the first bytes of the SHA-256 of a text, in hexadecimal digits.
///
/// # Panics
///
/// When there are to be more than 32 bytes.
pub fn digest(text: &str, bytes: usize) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref()[..bytes].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The private directory, open.
pub struct InstanceDir {
    /// The path of the directory.
    pub path: PathBuf,
    dir: File,
}

impl InstanceDir {
    /// Opens the directory of an identity below `base`, and makes it where it is not there.
    ///
    /// # Errors
    ///
    /// When the directory cannot be made, or somebody else can write to it or to one above it. The
    /// text names the directory.
    pub fn open(base: &Path, identity: &Identity) -> io::Result<InstanceDir> {
        let path = sys::absolute(base).join(AGENTS_DIR).join(identity.name());
        InstanceDir::at(path).map_err(|error| match sys::user_id() {
            0 => error,
            _ => io::Error::other(format!("{error}; correct or unset XDG_RUNTIME_DIR and TMPDIR")),
        })
    }

    /// Opens the directory as the next instance of an agent does, and tries whether a file can be
    /// made there.
    ///
    /// # Errors
    ///
    /// As those of [`InstanceDir::open`]; and when no file can be made.
    pub fn try_out(base: &Path, identity: &Identity) -> io::Result<()> {
        let dir = InstanceDir::open(base, identity)?;
        rustix::fs::access(&dir.path, Access::WRITE_OK)
            .map_err(|error| named(dir.path.display())(error.into()))
    }

    /// As [`InstanceDir::open`], by the path.
    ///
    /// # Errors
    ///
    /// As those of [`InstanceDir::open`].
    pub fn at(path: PathBuf) -> io::Result<InstanceDir> {
        for own in [path.parent().unwrap_or(&path), &path] {
            safe_path::make_dir(own)?;
            let metadata = fs::symlink_metadata(own).map_err(named(own.display()))?;
            sys::check_own(own, &metadata).map_err(io::Error::other)?;
        }
        let dir = File::options().read(true).custom_flags(O_NOFOLLOW | O_DIRECTORY).open(&path);
        let dir = dir.map_err(named(path.display()))?;
        Ok(InstanceDir { path, dir })
    }

    /// Locks one of the directory's files as soon as nobody else has it locked; `None` when that
    /// takes longer. The lock ends with the process, or when it closes any descriptor of that file:
    /// a process that has the lock opens the file nowhere else.
    ///
    /// # Errors
    ///
    /// When the file cannot be made, or the file system has no locks.
    pub fn lock(&self, name: &str, within: Duration) -> io::Result<Option<File>> {
        loop {
            let file = self.file(name)?;
            if !sys::lock_record_within(&file, within, LOCK_EVERY)? {
                return Ok(None);
            }
            // A file that was removed meanwhile locks nobody out.
            if self.is_current(name, &file)? {
                return Ok(Some(file));
            }
        }
    }

    /// Locks the file of the agent for this process if no other agent has it, or executes its
    /// program anew: such an agent takes the lock again at once.
    ///
    /// # Errors
    ///
    /// When the file cannot be made, or the file system has no locks.
    pub fn lock_for_agent(&self) -> io::Result<Option<File>> {
        let Some(file) = self.lock(AGENT_LOCK, Duration::ZERO)? else { return Ok(None) };
        let own = rustix::process::getpid();
        if owner_of(&file).is_some_and(|owner| owner != own) {
            return Ok(None);
        }
        let line = format!("{own} {}\n", sys::start_ticks(own).unwrap_or_default());
        // Without the note another agent may come between two instances, as if this one had ended.
        let _ = file.set_len(0).and_then(|()| file.write_all_at(line.as_bytes(), 0));
        Ok(Some(file))
    }

    /// Returns whether the agent lives, which may let go of its lock within this time if it has
    /// ended. An agent that executes its program anew has no lock for a moment.
    ///
    /// # Errors
    ///
    /// When the file cannot be made, or the file system has no locks.
    pub(super) fn agent_lives(&self, within: Duration) -> io::Result<bool> {
        let file = self.lock(AGENT_LOCK, within)?;
        Ok(file.is_none_or(|file| owner_of(&file).is_some()))
    }

    /// Returns whether a file is still the one that has the name.
    fn is_current(&self, name: &str, file: &File) -> io::Result<bool> {
        let path = self.path.join(name);
        let known = |metadata: Metadata| (metadata.dev(), metadata.ino());
        match fs::symlink_metadata(&path) {
            Ok(named) => Ok(known(file.metadata()?) == known(named)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(named(path.display())(error)),
        }
    }

    pub(super) fn file(&self, name: &str) -> io::Result<File> {
        let path = self.path.join(name);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        options.mode(0o600).custom_flags(O_NOFOLLOW).open(&path).map_err(named(path.display()))
    }

    /// Listens on the socket, if `lock` is still the file of the guard's lock: then a socket that
    /// is there is that of a dead guard.
    ///
    /// # Errors
    ///
    /// When somebody has removed the lock: the socket may be that of a guard that lives. When the
    /// directory is gone or full, or the process has no descriptor left.
    pub(super) fn listen(&self, lock: &File) -> io::Result<OwnedFd> {
        if !self.is_current(GUARD_LOCK, lock)? {
            return Err(io::Error::other("somebody has removed the private directory"));
        }
        let path = self.socket();
        // A socket that cannot be removed cannot be listened on.
        let _ = fs::remove_file(&path);
        socket::listen(&path).map_err(named(self.path.join(SOCKET).display()))
    }

    /// Returns the file of the guard's lock, not locked. A guard is given it as stdout: text that
    /// is printed there by mistake must not get into it.
    ///
    /// # Errors
    ///
    /// When the file cannot be made.
    pub fn guard_lock(&self) -> io::Result<File> {
        self.file(GUARD_LOCK)?;
        File::open(self.path.join(GUARD_LOCK)).map_err(named(self.path.display()))
    }

    /// Connects to the guard that has this lock, and opens its process; `None` when there is none,
    /// or when the system does not tell. `renewal` is R of its agent.
    ///
    /// # Errors
    ///
    /// A guard may hang while somebody has removed its socket. So one that does not listen within
    /// the time of an answer is killed. That has taken as long as its agent waits for an answer:
    /// another guard is for the next attempt.
    pub fn connect(&self, lock: &File, renewal: Duration) -> io::Result<Option<RunningGuard>> {
        let (began, within) = (sys::now(), self.answer_time(renewal));
        loop {
            let Ok(Some(holder)) = raw::record_lock_holder(lock) else { return Ok(None) };
            if let Some(guard) = self.connect_by_socket() {
                return Ok(Some(guard));
            }
            let Some(process) = open_guard(holder, lock) else { return Ok(None) };
            if sys::now() >= began.after(within) {
                log::error!("the guard does not listen within {}, and is killed", Ms(within));
                // The next guard waits for the lock.
                let _ = rustix::process::pidfd_send_signal(&process, Signal::KILL);
                return Err(io::Error::other("the one before did not listen and was killed"));
            }
            sys::pause(LOCK_EVERY);
        }
    }

    /// Returns how long the guard may take to answer, by R of its agent and by what it has noted.
    pub(super) fn answer_time(&self, renewal: Duration) -> Duration {
        guard_answer_time(renewal, self.noted_times())
    }

    /// Returns the times that the last guard has noted, if it is of this boot.
    pub(crate) fn noted_times(&self) -> Option<Timing> {
        note::times_in(&self.path.join(GUARD_LOCK))
    }

    fn connect_by_socket(&self) -> Option<RunningGuard> {
        let socket = socket::connect(&self.socket())?;
        let peer = sockopt::socket_peercred(&socket).ok()?;
        let process = rustix::process::pidfd_open(peer.pid, PidfdFlags::empty()).ok()?;
        Some(RunningGuard { socket, process, pid: peer.pid })
    }

    /// A path that is short enough for a socket's address, wherever the directory is.
    fn socket(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", self.dir.as_raw_fd()))
    }
}

/// A guard that lives and was connected to.
pub struct RunningGuard {
    /// The connection.
    pub socket: OwnedFd,
    /// The process of the guard.
    pub process: OwnedFd,
    /// The number of the process, for people: the number may be given out again.
    pub pid: Pid,
}

/// Opens the process of the guard that has this lock; `None` when another program has it, such as
/// `putex finish`.
fn open_guard(pid: Pid, lock: &File) -> Option<OwnedFd> {
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let is_guard = words.starts_with(b"putex\0guard\0");
    // A process that had the lock before and after has had its number meanwhile.
    let still_holds = raw::record_lock_holder(lock).ok()? == Some(pid);
    (is_guard && still_holds).then_some(process)
}

/// Returns the agent that had its file locked last, if it lives.
fn owner_of(file: &File) -> Option<Pid> {
    let mut text = [0; 64];
    let count = file.read_at(&mut text, 0).ok()?;
    let (number, ticks) = std::str::from_utf8(&text[..count]).ok()?.trim_end().split_once(' ')?;
    let owner = Pid::from_raw(number.parse().ok().filter(|number| *number > 0)?)?;
    let is_same = sys::start_ticks(owner)? == ticks.parse::<u64>().ok()?;
    (is_same && !sys::is_ending(owner)).then_some(owner)
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags};

    use super::*;

    fn identity([location, bucket, key, token]: [&str; 4]) -> Identity {
        let [location, bucket, key, token] = [location, bucket, key, token].map(str::to_owned);
        Identity { location, bucket, key, token }
    }

    /// Makes a directory of its own for a test.
    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("putex-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("it is new");
        path
    }

    fn open(path: &Path) -> InstanceDir {
        InstanceDir { path: path.to_owned(), dir: File::open(path).expect("made") }
    }

    /// Returns how many descriptors of this process are of this file.
    fn times_open(file: &Path) -> usize {
        let descriptors = fs::read_dir("/proc/self/fd").expect("descriptors");
        let names = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        names.filter(|name| name == file).count()
    }

    /// A process that waits for such a lock would hold one that keeps nobody else out.
    #[test]
    fn the_lock_on_a_file_that_was_removed_is_not_taken_for_the_lock() {
        let path = directory("lock");
        let dir = open(&path);
        let lock = |dir: &InstanceDir, within| dir.lock(AGENT_LOCK, within).expect("a lock");
        let mut holder = Holder::start(&dir);
        let waiting = open(&path);
        let got = std::thread::scope(|scope| {
            let got = scope.spawn(|| lock(&waiting, Duration::from_secs(60)));
            let give_up = sys::now().after(sys::PATIENCE);
            while times_open(&path.join(AGENT_LOCK)) == 0 {
                assert!(sys::now() < give_up, "it does not open the file");
            }
            fs::remove_file(path.join(AGENT_LOCK)).expect("it is there");
            holder.end();
            got.join().expect("it ends").expect("nobody has it")
        });
        let is_current = dir.is_current(AGENT_LOCK, &got).expect("it is known");
        fs::remove_dir_all(&path).expect("it is there");
        assert!(is_current);
    }

    /// A child that a disk keeps from its program has all descriptors of its parent.
    #[test]
    fn a_lock_ends_with_its_process_whatever_children_that_has() {
        let path = directory("child");
        let dir = open(&path);
        let mut holder = Holder::start(&dir);
        let child = fs::read_to_string(path.join("child")).expect("it is there");
        let child = Pid::from_raw(child.parse().expect("a number")).expect("a process");
        assert!(dir.lock(AGENT_LOCK, Duration::ZERO).expect("a lock").is_none());
        holder.end();
        let lock = dir.lock(AGENT_LOCK, Duration::ZERO).expect("a lock");
        rustix::process::kill_process(child, Signal::KILL).expect("it lives");
        fs::remove_dir_all(&path).expect("it is there");
        assert!(lock.is_some());
    }

    /// Another process that has the lock of the agent, and a child that has inherited the file.
    struct Holder(std::process::Child);

    impl Holder {
        fn start(dir: &InstanceDir) -> Holder {
            let mut process = std::process::Command::new(std::env::current_exe().expect("it is"));
            process.args(["--exact", "guard::instance_dir::tests::holder"]);
            let process = process.env("HELD", &dir.path).spawn().expect("it runs");
            let until = sys::now().after(Duration::from_secs(30));
            while !dir.path.join("child").exists() {
                assert!(sys::now() < until, "the lock is not held");
                std::thread::yield_now();
            }
            Holder(process)
        }

        fn end(&mut self) {
            self.0.kill().expect("it lives");
            self.0.wait().expect("it was killed");
        }
    }

    /// No test: the process of a [`Holder`].
    #[test]
    fn holder() {
        let Some(path) = std::env::var_os("HELD").map(PathBuf::from) else { return };
        let lock = open(&path).lock(AGENT_LOCK, Duration::ZERO).expect("a lock");
        let lock = lock.expect("it is free");
        rustix::io::fcntl_setfd(&lock, rustix::io::FdFlags::empty()).expect("it is open");
        let mut sleep = std::process::Command::new("sleep").arg("60").spawn().expect("it runs");
        let number = path.join("number");
        fs::write(&number, sleep.id().to_string()).expect("there is room");
        fs::rename(number, path.join("child")).expect("it is there");
        sleep.wait().expect("it ends");
        drop(lock);
    }

    /// The file is the stdout of a guard, and libraries may print to it.
    #[test]
    fn nothing_can_be_printed_into_the_lock_that_a_guard_is_given() {
        let path = directory("stdout");
        let dir = open(&path);
        let mut lock = dir.guard_lock().expect("it is ours");
        let printed = io::Write::write(&mut lock, b"x");
        fs::remove_dir_all(&path).expect("it is there");
        assert!(printed.is_err());
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

    /// The other agent took the service over while the first one executed its program anew.
    #[test]
    fn an_agent_that_is_between_two_instances_keeps_its_file() {
        let path = directory("between");
        let dir = open(&path);
        let mut other = std::process::Command::new("sleep").arg("1000").spawn().expect("it runs");
        let owner = Pid::from_child(&other);
        let line = format!("{owner} {}\n", sys::start_ticks(owner).expect("it lives"));
        fs::write(path.join(AGENT_LOCK), line).expect("there is room");
        assert!(dir.lock_for_agent().expect("locks").is_none());
        let exit = rustix::process::pidfd_open(owner, PidfdFlags::empty()).expect("it lives");
        other.kill().expect("it lives");
        sys::poll(&mut [PollFd::new(&exit, PollFlags::IN)]).expect("it waits");
        let lock = dir.lock_for_agent().expect("locks");
        assert_eq!(lock.as_ref().and_then(owner_of), Some(rustix::process::getpid()));
        other.wait().expect("it was killed");
        drop(lock);
        assert!(dir.lock_for_agent().expect("locks").is_some(), "its own");
        fs::remove_dir_all(&path).expect("it is there");
    }
}
