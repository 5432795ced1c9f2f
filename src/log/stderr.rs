//! stderr, as the log thread writes it: a reader that does not read blocks that thread alone.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// stderr, which may end in a part of a line.
pub(super) struct Stderr {
    file: File,
    /// The file ends in a part of a line: there was no room for the rest.
    is_torn: bool,
}

impl Stderr {
    pub(super) fn new(file: File) -> Stderr {
        Stderr { file, is_torn: false }
    }

    /// Returns whether it is a file of a disk, which may hang.
    pub(super) fn is_file(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.is_file())
    }

    /// Writes a line. Behind a part of one it begins with a newline: it would be no line of its
    /// own.
    pub(super) fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        let with_newline = self.is_torn.then(|| [b"\n", line].concat());
        let mut rest = with_newline.as_deref().unwrap_or(line);
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.is_torn = rest[count - 1] != b'\n';
                    rest = &rest[count..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl AsFd for Stderr {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn a_line_behind_a_part_of_one_begins_on_its_own() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("a page");
        rustix::io::ioctl_fionbio(&writer, true).expect("it can be set");
        let mut stderr = Stderr::new(OwnedFd::from(writer).into());
        let long = "x".repeat(5000);
        let error = stderr.write_line(format!("{long}\n").as_bytes()).expect_err("no room");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        stderr.write_line(b"lost\n").expect_err("no room");
        reader.read_exact(&mut [0; 4096]).expect("a part");
        for line in ["one\n", "two\n"] {
            stderr.write_line(line.as_bytes()).expect("there is room");
        }
        drop(stderr);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("it is text");
        assert_eq!(text, "\none\ntwo\n");
    }
}
