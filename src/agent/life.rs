//! The file by which one life of an agent knows the one before.
//!
//! It is locked for as long as the process lives, so whoever gets the lock knows
//! that every incarnation named in it is dead: the kernel lets go of the lock only
//! when the last thread is gone. The name of the boot says that they lived on this
//! host, since it was started last.
//!
//! `putex finish` shares the lock with its like: an agent that begins waits for it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags};

use crate::core::record::Incarnation;
use crate::sys;

/// First line of the file.
const FORMAT: &str = "putex life 1";

/// Lives that are remembered: one is enough unless it died before it adopted.
const LIVES_MAX: usize = 8;

/// How long the lock is tried for, and how often.
const LOCK_WITHIN: Duration = Duration::from_millis(100);
const LOCK_EVERY: Duration = Duration::from_millis(5);

/// Longest file that is read.
const BYTES_MAX: u64 = 4096;

/// The lives before this one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// They are dead.
    pub(crate) dead: Vec<Incarnation>,
    /// Name of the guard that watched the last of them.
    pub(crate) guard: Option<String>,
}

/// This agent's life, as the next one will find it.
#[derive(Debug)]
pub(super) struct Life {
    file: File,
    boot: String,
    lives: Vec<Incarnation>,
}

/// What all lives of an agent have in common, and no two agents of a user and a host.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Where its lock is kept: servers, or a directory.
    pub place: String,
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: String,
    /// The token.
    pub token: String,
}

impl Identity {
    /// Where the file of the agent is: one folder each for place, bucket and key.
    pub(super) fn path(&self, base: &Path) -> PathBuf {
        let parts = [&self.place, &self.bucket, &self.key, &self.token];
        let mut path = base.join(".agents");
        path.extend(parts.map(|part| plain(part)));
        path
    }
}

/// Writes what is no letter, digit, `-` or `_` as its number, so that any name is a
/// file name and no two become one.
fn plain(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02x}"));
        }
    }
    out
}

impl Life {
    /// Begins a life: gets the lock, reads who lived before in this boot, and writes
    /// this one in. Waits for a `putex finish` that runs stop: that must not hit the
    /// service of this life.
    ///
    /// # Errors
    ///
    /// In words: that an agent of this name lives, or that there can be no file.
    pub(super) fn begin(
        path: &Path,
        me: Incarnation,
        boot: &str,
    ) -> Result<(Life, Before), String> {
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        if boot.is_empty() {
            return Err("the kernel does not name its boot".to_owned());
        }
        let file = open(path).map_err(failed)?;
        while !lock(&file, EXCLUSIVE).map_err(failed)? {
            if lock(&file, SHARED).map_err(failed)? {
                continue;
            }
            let path = path.display();
            return Err(format!("{path}: another agent with this token runs here"));
        }
        let mut text = String::new();
        // What cannot be read says nothing of a life before.
        let _ = (&file).take(BYTES_MAX).read_to_string(&mut text);
        let before = parse(&text, boot).unwrap_or_default();
        let mut lives = vec![me];
        lives.extend(before.dead.iter().take(LIVES_MAX - 1));
        let life = Life {
            file,
            boot: boot.to_owned(),
            lives,
        };
        life.write(before.guard.as_deref()).map_err(failed)?;
        Ok((life, before))
    }

    /// Returns a name that all lives of this agent share and no other agent of this host has.
    ///
    /// # Errors
    ///
    /// When the system does not tell one file from another.
    pub(super) fn name(&self) -> io::Result<String> {
        let about = self.file.metadata()?;
        Ok(format!("{:x}-{:x}", about.dev(), about.ino()))
    }

    /// The service is down: the next life has nothing to look after.
    ///
    /// # Errors
    ///
    /// When the file system fails.
    pub(super) fn leave_nothing(&self) -> io::Result<()> {
        self.file.set_len(0)
    }

    /// Writes down where the next life finds the guard.
    ///
    /// # Errors
    ///
    /// When the file system is full or fails.
    pub(super) fn write(&self, guard: Option<&str>) -> io::Result<()> {
        let text = render(&self.boot, &self.lives, guard);
        // Never empty in between: a write that is cut short has no end.
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)
    }
}

/// An agent that is dead, or never lived. None of its name begins while this is kept.
#[derive(Debug)]
pub(super) struct Dead {
    _file: File,
    /// The name of its last guard in this boot.
    pub(super) guard: Option<String>,
}

/// Looks for an agent without beginning a life; `None` when it lives.
///
/// # Errors
///
/// When there can be no file: whether the agent lives is not known then.
pub(super) fn trace(path: &Path) -> io::Result<Option<Dead>> {
    // Made where there was none, so that there is something to lock.
    let file = open(path)?;
    if !lock(&file, SHARED)? {
        return Ok(None);
    }
    let mut text = String::new();
    // What cannot be read says nothing of a guard.
    let _ = (&file).take(BYTES_MAX).read_to_string(&mut text);
    let guard = parse(&text, &sys::boot_id()).and_then(|before| before.guard);
    Ok(Some(Dead { _file: file, guard }))
}

/// How an agent that lives locks the file, and how whoever needs it dead does.
const EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;
const SHARED: FlockOperation = FlockOperation::NonBlockingLockShared;

/// Says whether the file could be locked. A child of a dead agent that has not come
/// to execute its program yet keeps the lock a moment longer.
fn lock(file: &File, how: FlockOperation) -> io::Result<bool> {
    sys::lock_within(file, how, LOCK_WITHIN, LOCK_EVERY)
}

/// Opens the file, making it and its folders; nobody else may write there.
fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let metadata = fs::metadata(folder)?;
        let own = rustix::process::geteuid().as_raw();
        if metadata.uid() != own || metadata.mode() & 0o022 != 0 {
            return Err(io::Error::other("others can write to its folder"));
        }
    }
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
}

/// Returns the text of the file.
pub(crate) fn render(boot: &str, lives: &[Incarnation], guard: Option<&str>) -> String {
    let mut text = format!("{FORMAT}\nboot {boot}\n");
    for life in lives {
        text.push_str(&format!("life {life}\n"));
    }
    if let Some(guard) = guard {
        text.push_str(&format!("guard {guard}\n"));
    }
    text.push_str("end\n");
    text
}

/// Reads who lived before in this boot; `None` when the file is not whole.
pub(crate) fn parse(text: &str, boot: &str) -> Option<Before> {
    let body = text.strip_prefix(FORMAT)?.strip_suffix("\nend\n")?;
    let (mut before, mut here) = (Before::default(), false);
    for line in body.split('\n').filter(|line| !line.is_empty()) {
        match line.split_once(' ')? {
            ("boot", theirs) if theirs == boot => here = true,
            ("boot", _) => return None,
            ("life", number) => {
                let number = u128::from_str_radix(number, 16).ok()?;
                before.dead.push(Incarnation(number));
            }
            ("guard", name) => before.guard = Some(name.to_owned()),
            _ => return None,
        }
    }
    // Lives of no boot may have been lived on another host.
    here.then_some(before)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn path(base: &Path, [place, bucket, key, token]: [&str; 4]) -> PathBuf {
        let [place, bucket, key, token] = [place, bucket, key, token].map(str::to_owned);
        let name = Identity {
            place,
            bucket,
            key,
            token,
        };
        name.path(base)
    }

    /// A folder that is removed when it is dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("putex-life-{}-{name}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).expect("the temporary folder can be written");
            Folder(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_next_life_learns_of_the_one_before_when_that_is_dead() {
        let folder = Folder::new("next");
        let path = path(&folder.0, ["p", "b", "a/b", "host.1"]);
        let (first, before) = Life::begin(&path, Incarnation(1), "boot").expect("it is the first");
        assert_eq!(before, Before::default());
        first.write(Some("guard-1")).expect("there is room");
        let twin = Life::begin(&path, Incarnation(2), "boot").expect_err("the first lives");
        assert!(twin.contains("another agent with this token"), "{twin}");
        drop(first);
        let (_, before) = Life::begin(&path, Incarnation(3), "boot").expect("the first is dead");
        assert_eq!(before.dead, [Incarnation(1)]);
        assert_eq!(before.guard.as_deref(), Some("guard-1"));
    }

    #[test]
    fn a_life_that_ended_with_the_service_down_leaves_nothing_to_look_after() {
        let folder = Folder::new("clean");
        let path = path(&folder.0, ["p", "b", "k", "t"]);
        let (first, _) = Life::begin(&path, Incarnation(1), "boot").expect("it is the first");
        first.write(Some("guard-1")).expect("there is room");
        first.leave_nothing().expect("it can be cut");
        drop(first);
        let (_, before) = Life::begin(&path, Incarnation(2), "boot").expect("it is free");
        assert_eq!(before, Before::default());
    }

    #[test]
    fn a_life_begins_when_those_who_need_the_one_before_dead_have_done() {
        let folder = Folder::new("dead");
        let path = path(&folder.0, ["p", "b", "k", "t"]);
        let (life, _) = Life::begin(&path, Incarnation(1), "boot").expect("it is the first");
        assert!(trace(&path).expect("there is a file").is_none(), "it lives");
        drop(life);
        let dead = trace(&path).expect("there is a file").expect("it is dead");
        let other = trace(&path).expect("there is a file").expect("it is dead");
        let own = path.clone();
        let next = thread::spawn(move || Life::begin(&own, Incarnation(2), "boot").map(drop));
        drop(other);
        let later = sys::now().after(3 * LOCK_WITHIN);
        let alarm = sys::Alarm::new().expect("a timer");
        alarm.wait([], Some(later)).expect("a wait");
        assert!(!next.is_finished(), "one is still at it");
        drop(dead);
        next.join().expect("no panic").expect("nobody is at it");
    }

    #[test]
    fn whether_an_agent_lives_is_not_guessed() {
        let folder = Folder::new("taken");
        let taken = folder.0.join("file");
        fs::write(&taken, "").expect("there is room");
        trace(&taken.join("t")).expect_err("there can be no file");
    }

    #[test]
    fn a_life_of_another_boot_proves_nothing() {
        let folder = Folder::new("boot");
        let path = path(&folder.0, ["p", "b", "k", "t"]);
        drop(Life::begin(&path, Incarnation(1), "boot-1").expect("it is the first"));
        let (_, before) = Life::begin(&path, Incarnation(2), "boot-2").expect("it is free");
        assert_eq!(before, Before::default());
    }

    #[test]
    fn a_file_that_was_cut_short_proves_nothing() {
        let folder = Folder::new("cut");
        let path = path(&folder.0, ["p", "b", "k", "t"]);
        drop(Life::begin(&path, Incarnation(1), "boot").expect("it is the first"));
        let text = fs::read_to_string(&path).expect("it is there");
        for length in 0..text.len() {
            assert_eq!(parse(&text[..length], "boot"), None, "{length}");
        }
        assert!(parse(&text, "boot").is_some());
    }

    #[test]
    fn a_file_without_a_boot_proves_nothing() {
        let life = |middle: &str| format!("{FORMAT}\n{middle}life 1\nend\n");
        assert!(parse(&life("boot here\n"), "here").is_some());
        for middle in ["", "boot \n", "boot here\r\n"] {
            assert_eq!(parse(&life(middle), "here"), None, "{middle:?}");
        }
    }

    #[test]
    fn no_two_names_share_a_file() {
        let base = Path::new("/run/putex");
        let one = path(base, ["p", "b", "a/b", "c"]);
        assert_ne!(one, path(base, ["p", "b", "a", "b/c"]));
        assert_ne!(
            path(base, ["p", "b", "..", "t"]),
            path(base, ["p", "b", ".", "t"])
        );
        assert!(path(base, ["p", "b", "..", ".."]).starts_with("/run/putex/.agents/p/b"));
        assert_ne!(one, path(base, ["q", "b", "a/b", "c"]), "another store");
    }
}
