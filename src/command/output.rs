//! The output of a command: a pipe that is read line by line.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use crate::core::Command;

/// A longer line of output is passed on in pieces of this many bytes: each has room in a line
/// of the log.
const LINE_MAX: usize = 3072;

/// How much output is read at once, so that a command that floods its pipe cannot
/// keep the thread from the others.
const READ_MAX: u64 = 16 * 1024;

/// How often so much output is read when a command has ended: a pipe has 64 KiB.
const READS_AT_END: u32 = 4;

/// The pipe that a command writes its output to.
pub struct OutputPipe {
    /// The command.
    pub command: Command,
    reader: PipeReader,
    /// The writing end, kept open, so that the pipe never ends.
    pub writer: PipeWriter,
    partial: Vec<u8>,
}

impl OutputPipe {
    /// Makes the pipe of a command, or goes on with the reading end of one.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub fn new(command: Command, reader: Option<OwnedFd>) -> io::Result<OutputPipe> {
        let (reader, writer) = match reader {
            None => io::pipe()?,
            Some(reader) => {
                let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
                let writer = File::options().write(true).open(path)?;
                (reader.into(), OwnedFd::from(writer).into())
            }
        };
        rustix::io::ioctl_fionbio(&reader, true)?;
        Ok(OutputPipe { command, reader, writer, partial: Vec::new() })
    }

    /// Passes on the output that is there, whole lines of it, but at most `READ_MAX` bytes. Returns
    /// whether there was some.
    pub fn pass_on(&mut self, line: &mut dyn FnMut(Command, &[u8])) -> bool {
        let before = self.partial.len();
        // The bytes that were read before the pipe was empty are kept.
        let _ = self.reader.by_ref().take(READ_MAX).read_to_end(&mut self.partial);
        let was_some = self.partial.len() > before;
        let mut rest = self.partial.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            line(self.command, &rest[..end]);
            rest = &rest[end + 1..];
        }
        while rest.len() > LINE_MAX {
            line(self.command, &rest[..LINE_MAX]);
            rest = &rest[LINE_MAX..];
        }
        let left = rest.len();
        self.partial.drain(..self.partial.len() - left);
        was_some
    }

    /// The command has ended: passes on the rest of the output in the pipe.
    pub fn flush(&mut self, line: &mut dyn FnMut(Command, &[u8])) {
        let _ = (0..READS_AT_END).all(|_| self.pass_on(line));
        if !self.partial.is_empty() {
            line(self.command, &self.partial);
            self.partial.clear();
        }
    }
}

impl AsFd for OutputPipe {
    /// Returns the reading end, which is readable when there is output to pass on.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
