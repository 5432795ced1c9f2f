//! The file with the metrics of an agent. The agent writes it; its guard, or `putex finish`,
//! removes that of an agent that was killed: the file would say for ever that it holds the lock.
//!
//! The file may be in a directory where others can write. So all names are looked up in the
//! directory that was opened, no symbolic link is followed, and a file is replaced or removed only
//! if it belongs to this user and its first line names this agent.
//!
//! A file system may hang. So no thread that has a deadline calls this. Only `putex check` waits
//! for it without a limit.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::instance_dir::{AGENT_LOCK, InstanceDir};
use super::protocol::Settings;
use crate::sys::{self, Alarm, PollFlags, SMALL_STACK_BYTES, Waker};

/// Who may read the file: whoever collects it is another user.
const MODE: Mode = Mode::from_raw_mode(0o644);

/// Begins the first line; the name of the agent's private directory follows.
const FIRST_LINE: &str = "# putex agent ";

/// How long the kernel may take to let go of the lock of an agent that has ended.
const LOCK_WITHIN: Duration = Duration::from_millis(100);

/// How long whoever ends waits for the removal.
const REMOVE_WITHIN: Duration = Duration::from_millis(500);

/// The file with the metrics of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsFile {
    path: PathBuf,
    /// The private directory of the agent.
    dir: PathBuf,
    first_line: String,
    /// The name that the file has until it is complete. No other agent has it, and each instance
    /// of this one has the same: what one has left behind, the next one removes.
    new_name: String,
}

impl MetricsFile {
    /// Returns the file of the agent with this private directory. `path` is absolute.
    pub fn new(path: &str, dir: &Path) -> MetricsFile {
        let agent = dir.file_name().unwrap_or_default().to_string_lossy();
        MetricsFile {
            path: path.into(),
            dir: dir.to_owned(),
            first_line: format!("{FIRST_LINE}{agent}\n"),
            new_name: format!(".{agent}.new"),
        }
    }

    /// Returns the file of the agent with these settings and this private directory, if it
    /// writes one.
    pub(super) fn of(settings: &Settings, dir: &Path) -> Option<MetricsFile> {
        settings.metrics_file.as_ref().map(|path| MetricsFile::new(path, dir))
    }

    /// Writes the file anew, with this text below its first line.
    ///
    /// # Errors
    ///
    /// What the file system says, or that the file is another's. The text begins with the path.
    pub fn write(&self, text: &str) -> io::Result<()> {
        self.replace(text).map_err(|error| self.named(error))
    }

    /// Checks, without writing, whether this user can write the file of an agent at this path. A
    /// file of another agent passes: the name of the agent is not known here.
    ///
    /// # Errors
    ///
    /// As those of [`MetricsFile::write`].
    pub fn inspect(path: &str) -> io::Result<()> {
        let file = MetricsFile {
            first_line: FIRST_LINE.to_owned(),
            ..MetricsFile::new(path, Path::new(""))
        };
        let inspect = || {
            file.name()?;
            let dir = file.open_replaceable()?;
            Ok(rustix::fs::accessat(
                dir,
                ".",
                Access::WRITE_OK | Access::EXEC_OK,
                AtFlags::EACCESS,
            )?)
        };
        inspect().map_err(|error| file.named(error))
    }

    /// Opens the directory, unless what has the name there is no file of this agent.
    fn open_replaceable(&self) -> io::Result<OwnedFd> {
        let dir = self.open_dir()?;
        match self.first_line_in(dir.as_fd()) {
            Err(Errno::NOENT) => {}
            Ok(line) if line == self.first_line || line.is_empty() => {}
            Ok(_) => return Err(io::Error::other("it is no file of this agent: remove it")),
            Err(Errno::INVAL) => {
                return Err(io::Error::other("it is no regular file of this user"));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(dir)
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        let dir = self.open_replaceable()?;
        // It is there if an earlier instance was killed before it had a complete file.
        let _ = rustix::fs::unlinkat(&dir, &self.new_name, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&dir, &self.new_name, flags | OFlags::NOFOLLOW, MODE)?;
        let written = self
            .fill(file, text)
            .and_then(|()| Ok(rustix::fs::renameat(&dir, &self.new_name, &dir, self.name()?)?));
        if written.is_err() {
            let _ = rustix::fs::unlinkat(&dir, &self.new_name, AtFlags::empty());
        }
        written
    }

    fn fill(&self, file: OwnedFd, text: &str) -> io::Result<()> {
        // Whatever the umask is.
        rustix::fs::fchmod(&file, MODE)?;
        File::from(file).write_all(format!("{}{text}", self.first_line).as_bytes())
    }

    /// Removes the file if it is this agent's.
    ///
    /// # Errors
    ///
    /// What the file system says. The text begins with the path.
    pub fn remove(&self) -> io::Result<()> {
        let remove = || {
            let dir = self.open_dir()?;
            let _ = rustix::fs::unlinkat(&dir, &self.new_name, AtFlags::empty());
            match self.first_line_in(dir.as_fd()) {
                Ok(line) if line == self.first_line => {
                    Ok(rustix::fs::unlinkat(&dir, self.name()?, AtFlags::empty())?)
                }
                Ok(_) | Err(Errno::NOENT | Errno::INVAL) => Ok(()),
                Err(error) => Err(error.into()),
            }
        };
        remove().map_err(|error| self.named(error))
    }

    /// Removes the file of an agent that has ended, if no other instance of it lives, which has
    /// written it anew or will. A thread does so: this waits for half a second at the most, and
    /// reports no error. Nobody has a deadline any more, and no lock that another needs.
    pub fn remove_if_ended(self) {
        let Ok(done) = Waker::new().map(Arc::new) else { return };
        let (ended, alarm) = (Arc::clone(&done), Alarm::new());
        let remove = move || {
            // The lock is not kept: a file system that hangs would keep the next instance out.
            let lock =
                InstanceDir::at(self.dir.clone()).and_then(|dir| dir.lock(AGENT_LOCK, LOCK_WITHIN));
            if let Ok(Some(lock)) = lock {
                drop(lock);
                let _ = self.remove();
            }
            ended.wake();
        };
        if in_thread(remove).is_ok()
            && let Ok(alarm) = alarm
        {
            let until = sys::now().after(REMOVE_WITHIN);
            let _ = alarm.wait([(done.as_fd(), PollFlags::IN)], Some(until));
        }
    }

    /// Removes the file: the agent has another one from now on, or none. Does not wait.
    pub fn forget(self) {
        let _ = in_thread(move || drop(self.remove()));
    }

    fn open_dir(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = self.path.parent().unwrap_or(&self.path);
        Ok(rustix::fs::openat(CWD, dir, flags, Mode::empty())?)
    }

    fn name(&self) -> io::Result<&std::ffi::OsStr> {
        self.path.file_name().ok_or_else(|| io::ErrorKind::InvalidFilename.into())
    }

    /// Returns the first line of the file; as much of it as the first line of this agent has
    /// bytes. `INVAL` for what is no regular file of this user.
    fn first_line_in(&self, dir: impl AsFd) -> Result<String, Errno> {
        let name = self.path.file_name().ok_or(Errno::NOENT)?;
        let check = |stat: rustix::fs::Stat| {
            let is_own = stat.st_uid == sys::user_id();
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            if is_own && is_file { Ok(()) } else { Err(Errno::INVAL) }
        };
        // Before it is opened: to open a device may start it.
        check(rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&dir, name, flags, Mode::empty())?;
        check(rustix::fs::fstat(&file)?)?;
        let mut line = Vec::new();
        let read = File::from(file).take(self.first_line.len() as u64).read_to_end(&mut line);
        read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    fn named(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
    }
}

fn in_thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name("putex-metrics".to_owned());
    thread.stack_size(SMALL_STACK_BYTES).spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Makes a directory of its own for a test, with the metrics file of an agent in it.
    fn directory(name: &str) -> (PathBuf, MetricsFile) {
        let path = std::env::temp_dir().join(format!("putex-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("it is new");
        let file = path.join("a.prom").display().to_string();
        (path.clone(), MetricsFile::new(&file, &path.join("web-0a")))
    }

    fn names(path: &Path) -> Vec<String> {
        let names = fs::read_dir(path).expect("it is there");
        let names = names.map(|entry| entry.expect("an entry").file_name());
        names.map(|name| name.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_file_is_whole_readable_by_all_and_removed_with_what_an_instance_left() {
        let (path, file) = directory("metrics");
        fs::write(path.join(".web-0a.new"), "half").expect("room");
        for text in ["a 1\n", "a 2\n"] {
            file.write(text).expect("it is written");
            let written = fs::read_to_string(path.join("a.prom")).expect("it is there");
            assert_eq!(written, format!("# putex agent web-0a\n{text}"));
        }
        let mode = fs::metadata(path.join("a.prom")).expect("it is there").permissions().mode();
        assert_eq!((names(&path), mode & 0o7777), (vec!["a.prom".to_owned()], 0o644));
        fs::write(path.join(".web-0a.new"), "half").expect("room");
        file.remove().expect("it is removed");
        file.remove().expect("it is gone");
        assert_eq!(names(&path), Vec::<String>::new());
        fs::remove_dir(&path).expect("it is empty");
    }

    #[test]
    fn nothing_that_is_not_this_agents_is_replaced_or_removed() {
        let (path, file) = directory("others");
        let (at, target) = (path.join("a.prom"), path.join("target"));
        fs::write(&target, &file.first_line).expect("room");
        let kept = |why: &str| {
            let error = file.write("a 1\n").expect_err(why).to_string();
            file.remove().expect("nothing to remove");
            assert!(error.starts_with(&format!("{}: it is no ", at.display())), "{error}");
            let metadata = fs::symlink_metadata(&at).expect("it is there");
            // Another agent's file cannot be told from this agent's beforehand.
            let is_no_metrics_file = !metadata.is_file()
                || fs::read(&at).is_ok_and(|text| !text.starts_with(FIRST_LINE.as_bytes()));
            let seen = MetricsFile::inspect(&at.display().to_string());
            assert_eq!(
                seen.err().map(|seen| seen.to_string()),
                is_no_metrics_file.then_some(error)
            );
            assert!(!path.join(".web-0a.new").exists());
            metadata
        };
        symlink(&target, &at).expect("a link");
        assert!(kept("a link").is_symlink());
        fs::remove_file(&at).expect("it is there");
        rustix::fs::mknodat(CWD, &at, FileType::Fifo, MODE, 0).expect("a pipe");
        assert!(!kept("a pipe").is_file());
        fs::remove_file(&at).expect("it is there");
        for text in ["# putex agent web-1b\na 3\n", "root:x:0:0\n"] {
            fs::write(&at, text).expect("room");
            assert_eq!(kept("another's").len(), text.len() as u64);
        }
        // One that an operator has made for it.
        fs::write(&at, "").expect("room");
        file.write("a 1\n").expect("it is this agent's now");
        assert_eq!(fs::read_to_string(&target).ok(), Some(file.first_line.clone()));
        fs::remove_dir_all(&path).expect("it is there");
    }
}
