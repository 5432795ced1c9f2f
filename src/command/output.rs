//! The output of a command: a pipe that is read line by line.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::core::{Command, Instant};
use crate::sys::{self, Alarm};

/// A longer line of output is passed on in pieces of this many bytes: each has room in a line
/// of the log.
const LINE_MAX: usize = 3072;

/// How much output is read at once, so that a command that floods its pipe cannot
/// keep the thread from the others.
const READ_MAX: u64 = 16 * 1024;

/// How often so much is read when a command has ended: a pipe has 64 KiB.
const READS_AT_END: u32 = 4;

/// For how long the output of a command is read at once. After that it is read for a tenth of the
/// time. A command that writes without end waits for room then, and does not use up the processor
/// of its reader.
const CREDIT_MAX: Duration = Duration::from_millis(250);
const TENTH: u32 = 10;

/// How long a pipe rests whose credit is used up.
const REST: Duration = Duration::from_millis(10);

/// The pipe that a command writes its output to.
pub struct OutputPipe {
    /// The command.
    pub command: Command,
    reader: PipeReader,
    /// Kept open, so that the pipe never ends.
    writer: PipeWriter,
    partial: Vec<u8>,
    read_at: Instant,
    /// For how long it is still read at once.
    credit: Duration,
    /// Goes off when the pipe has rested; `None` for one that has never rested.
    rested: Option<Alarm>,
    rests: bool,
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
        Ok(OutputPipe {
            command,
            reader,
            writer,
            partial: Vec::new(),
            read_at: sys::now(),
            credit: CREDIT_MAX,
            rested: None,
            rests: false,
        })
    }

    /// Returns the reading end.
    pub fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Returns the writing end.
    pub fn writer(&self) -> &PipeWriter {
        &self.writer
    }

    /// Passes on the output that is there, whole lines of it. At most `READ_MAX` bytes, and nothing
    /// while the pipe rests.
    pub fn pass_on(&mut self, line: &mut dyn FnMut(Command, &[u8])) {
        if self.rests && !self.rested.as_ref().is_none_or(sys::is_ready) {
            return;
        }
        let began = sys::now();
        self.read(line);
        let ended = sys::now();
        let earned = began.since(self.read_at) / TENTH;
        let left = (self.credit + earned).min(CREDIT_MAX).checked_sub(ended.since(began));
        (self.read_at, self.credit) = (ended, left.unwrap_or_default());
        // A stop is late if it has to wait.
        let may_rest = !matches!(self.command, Command::Stop | Command::LastResort);
        self.rests = may_rest && left.is_none() && self.rest_until(ended.after(REST)).is_ok();
    }

    fn rest_until(&mut self, until: Instant) -> io::Result<()> {
        match &self.rested {
            Some(rested) => rested.set(until),
            None => self.rested.insert(Alarm::new()?).set(until),
        }
    }

    /// Reads at most `READ_MAX` bytes; returns whether there may be more.
    fn read(&mut self, line: &mut dyn FnMut(Command, &[u8])) -> bool {
        let before = self.partial.len();
        // What was read before the pipe was empty is kept.
        let _ = self.reader.by_ref().take(READ_MAX).read_to_end(&mut self.partial);
        let may_have_more = (self.partial.len() - before) as u64 == READ_MAX;
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
        may_have_more
    }

    /// The command has ended: passes on what is left in the pipe.
    pub fn flush(&mut self, line: &mut dyn FnMut(Command, &[u8])) {
        let _ = (0..READS_AT_END).all(|_| self.read(line));
        if !self.partial.is_empty() {
            line(self.command, &self.partial);
            self.partial.clear();
        }
    }
}

impl AsFd for OutputPipe {
    /// Becomes readable when there is output to pass on.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.rested {
            Some(rested) if self.rests => rested.as_fd(),
            _ => self.reader.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::sys::{PATIENCE, PollFlags};

    /// The reader of a command that writes without end had no time for anything else.
    #[test]
    fn a_pipe_that_takes_much_time_rests_but_for_that_of_a_stop() {
        for (command, rests) in [(Command::Check, true), (Command::Stop, false)] {
            let mut output = OutputPipe::new(command, None).expect("a pipe");
            let mut read = 0;
            for _ in 0..2 {
                output.writer().write_all(b"one\n").expect("there is room");
                // A line takes longer than all that is read at once may take.
                let mut last = sys::now();
                output.pass_on(&mut |_, _| {
                    read += 1;
                    last = sys::now().after(CREDIT_MAX);
                    Alarm::new().and_then(|it| it.wait([], Some(last))).expect("it waits");
                });
                output.writer().write_all(b"one\n").expect("there is room");
                let awaited = output.as_fd().as_raw_fd();
                assert_eq!(awaited != output.reader().as_raw_fd(), rests, "{command:?}");
                let alarm = Alarm::new().expect("a descriptor");
                let ready =
                    alarm.wait([(output.as_fd(), PollFlags::IN)], Some(sys::now().after(PATIENCE)));
                assert_eq!(ready.expect("it waits"), [true]);
                assert!(!rests || sys::now() >= last.after(REST), "it rests too short");
            }
            assert_eq!(read, 3, "{command:?}");
        }
    }
}
