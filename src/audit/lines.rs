//! The lines of files, however long they are and whatever is in them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

use crate::exit::{Exit, Refusal};
use crate::log::LINE_MAX;

/// The longest line that is kept, in bytes: one of putex, and what others have put before it.
const KEPT_MAX: usize = LINE_MAX + 1024;

/// The lines of a file, or of standard input.
pub(super) struct Lines<R = File> {
    name: String,
    reader: BufReader<R>,
    line: Vec<u8>,
}

impl Lines {
    /// Opens the file of this name; `-` is standard input.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is neither a file nor a pipe.
    pub(super) fn open(name: &str) -> Result<Lines, Refusal> {
        let failed = |errno: rustix::io::Errno| io::Error::from(errno).to_string();
        let file = match name {
            "-" => rustix::io::dup(rustix::stdio::stdin()).map(File::from).map_err(failed),
            _ => open(Path::new(name)),
        };
        let refuse = |why| Refusal::new(Exit::Usage, format!("--log: {name}: {why}"));
        let reader = BufReader::with_capacity(64 * 1024, file.map_err(refuse)?);
        Ok(Lines { name: name.to_owned(), reader, line: Vec::new() })
    }
}

impl<R: Read> Lines<R> {
    /// Returns the next line without its end; `None` at the end. The rest of a line that is too
    /// long is left out.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, Refusal> {
        self.line.clear();
        let mut is_any = false;
        loop {
            let bytes = match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                bytes => bytes.map_err(|error| {
                    Refusal::new(Exit::System, format!("--log: {}: {error}", self.name))
                })?,
            };
            if bytes.is_empty() {
                return Ok(is_any.then_some(&self.line));
            }
            is_any = true;
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let room = KEPT_MAX - self.line.len();
            self.line.extend(&part[..part.len().min(room)]);
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                return Ok(Some(&self.line));
            }
        }
    }
}

/// Opens a file or a pipe. A pipe that nobody writes has an end at once.
fn open(path: &Path) -> Result<File, String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let failed = |errno: rustix::io::Errno| io::Error::from(errno).to_string();
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Fifo => {
            rustix::fs::fcntl_setfl(&file, OFlags::empty()).map_err(failed)?;
        }
        FileType::Directory => return Err("is a directory; write the files in it".to_owned()),
        FileType::Symlink
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => return Err("is neither a file nor a pipe".to_owned()),
    }
    Ok(File::from(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Vec<Vec<u8>> {
        let reader = BufReader::with_capacity(7, text);
        let mut lines = Lines { name: "x".to_owned(), reader, line: Vec::new() };
        let mut all = Vec::new();
        while let Ok(Some(line)) = lines.next() {
            all.push(line.to_vec());
        }
        all
    }

    #[test]
    fn a_file_is_read_line_by_line_and_of_a_long_line_only_the_beginning() {
        assert_eq!(lines(b""), Vec::<Vec<u8>>::new());
        assert_eq!(lines(b"one\n\ntwo"), [&b"one"[..], b"", b"two"]);
        let long = [b"a".repeat(KEPT_MAX + 100), b"\nb\n".to_vec()].concat();
        assert_eq!(lines(&long), [&b"a".repeat(KEPT_MAX)[..], b"b"]);
    }

    #[test]
    fn what_is_no_log_is_refused() {
        for (path, why) in [
            ("/", "is a directory; write the files in it"),
            ("/dev/zero", "is neither a file nor a pipe"),
            ("/nonexistent", "No such file or directory (os error 2)"),
        ] {
            let refusal = Lines::open(path).err().expect(path);
            assert_eq!(refusal.text, format!("--log: {path}: {why}"));
            assert_eq!(refusal.exit, Exit::Usage);
        }
    }
}
