//! The file with the metrics of an agent, which the agent writes and removes at its end.
//!
//! A new file beside it replaces it as a whole, so no symbolic link is followed. A file is replaced
//! or removed only if it belongs to this user and its first line names this agent: an operator may
//! have named another file by mistake.
//!
//! A file system may hang. So no thread that has a deadline calls this module. Only `putex check`
//! waits for the file system without a limit.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};

use crate::sys::{self, private_file};

/// The mode of the file: the collector that reads the file is another user.
const MODE: u32 = 0o644;

/// Begins the first line; the name of the agent's private directory follows.
const FIRST_LINE: &str = "# putex agent ";

/// The file with the metrics of one agent.
pub struct MetricsFile {
    path: PathBuf,
    first_line: String,
    /// The name of the file until it is complete. All instances of this agent use this name, and no
    /// other agent: each removes the file that an earlier instance has left behind.
    new_path: PathBuf,
}

impl MetricsFile {
    /// Returns the file of the agent with this private directory. `path` is absolute.
    pub(super) fn new(path: &str, dir: &Path) -> MetricsFile {
        let (path, agent) = (PathBuf::from(path), dir.file_name().unwrap_or_default().display());
        let new_path = path.with_file_name(format!(".{agent}.new"));
        MetricsFile { path, first_line: format!("{FIRST_LINE}{agent}\n"), new_path }
    }

    /// Writes the file anew, with this text below its first line.
    ///
    /// # Errors
    ///
    /// The error of the file system, or that the file is another's. The text begins with the path.
    pub(super) fn write(&self, text: &str) -> io::Result<()> {
        let text = format!("{}{text}", self.first_line);
        let replace =
            || private_file::replace_by(&self.new_path, &self.path, MODE, text.as_bytes());
        self.check_replaceable().and_then(|()| replace()).map_err(sys::named(self.path.display()))
    }

    /// Checks, without writing, whether this user can write the file of an agent at this path. A
    /// file of another agent passes: the name of the agent is not known here.
    ///
    /// # Errors
    ///
    /// As those of the agent that writes the file.
    pub fn inspect(path: &str) -> io::Result<()> {
        let file = MetricsFile {
            first_line: FIRST_LINE.to_owned(),
            ..MetricsFile::new(path, Path::new(""))
        };
        let dir = file.path.parent().unwrap_or(&file.path);
        let needed = Access::WRITE_OK | Access::EXEC_OK;
        let inspect = || {
            file.check_replaceable()?;
            Ok(rustix::fs::accessat(CWD, dir, needed, AtFlags::EACCESS)?)
        };
        inspect().map_err(sys::named(file.path.display()))
    }

    /// Removes the file if it is this agent's.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.new_path);
        if self.check_replaceable().is_ok() {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Checks that the path is free, or has a file of this agent or a blank file of this user.
    fn check_replaceable(&self) -> io::Result<()> {
        // The file is inspected before it is opened: to open a device may start it.
        let found = match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        if !found.is_file() || found.uid() != sys::user_id() {
            return Err(io::Error::other("it is no regular file of this user"));
        }
        let mut line = Vec::new();
        File::open(&self.path)?.take(self.first_line.len() as u64).read_to_end(&mut line)?;
        if line.is_empty() || line == self.first_line.as_bytes() {
            return Ok(());
        }
        Err(io::Error::other("it is no file of this agent; write another --metrics-file"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use rustix::fs::{FileType, Mode};

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
        assert_eq!((names(&path), mode & 0o7777), (vec!["a.prom".to_owned()], MODE));
        fs::write(path.join(".web-0a.new"), "half").expect("room");
        file.remove();
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
            file.remove();
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
        let mode = Mode::from_raw_mode(MODE);
        rustix::fs::mknodat(CWD, &at, FileType::Fifo, mode, 0).expect("a pipe");
        assert!(!kept("a pipe").is_file());
        fs::remove_file(&at).expect("it is there");
        for text in ["# putex agent web-1b\na 3\n", "root:x:0:0\n"] {
            fs::write(&at, text).expect("room");
            assert_eq!(kept("another's").len(), text.len() as u64);
        }
        // A blank file that an operator has made for the agent.
        fs::write(&at, "").expect("room");
        file.write("a 1\n").expect("it is this agent's now");
        assert_eq!(fs::read_to_string(&target).ok(), Some(file.first_line.clone()));
        fs::remove_dir_all(&path).expect("it is there");
    }
}
