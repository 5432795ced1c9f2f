//! What the guard says, without ever waiting for whoever reads it.
//!
//! stderr is the agent's, and may be a pipe that nobody empties any more. Opened
//! anew it can be written without blocking, while the service that writes into the
//! same pipe still blocks as it expects to. A pipe of another user cannot be opened
//! anew, but is filled by splice(2) without blocking; so is a socket by send(2). A file
//! keeps nobody waiting, and is written as it is.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use rustix::fs::OFlags;
use rustix::net::SendFlags;
use rustix::pipe::SpliceFlags;

use super::word::SetUp;
use crate::core::event::{Command, Level};
use crate::sink::{Sink, Syslog, as_plain};
use crate::sys;

/// A longer line is cut: so much goes into a pipe that has room at all.
const LINE_MAX: usize = 4096;

/// Where the lines go.
#[derive(Debug)]
pub struct Voice {
    sink: Sink,
    syslog: Syslog,
    way: Way,
    subject: String,
    lowest: u64,
    dropped: u64,
}

impl Voice {
    /// Finds the way; `subject` stands in every line, and nothing is said below the
    /// lowest level: 1 errors, 2 warnings, and so on.
    #[must_use]
    pub fn new(sink: Sink, subject: &str, lowest: u64) -> Voice {
        let stderr = io::stderr().as_fd().try_clone_to_owned();
        Voice {
            sink,
            syslog: Syslog::default(),
            way: stderr.map_or(Way::None, Way::to),
            subject: subject.to_owned(),
            lowest,
            dropped: 0,
        }
    }

    /// Finds the way of a guard that is set up so; `stderr` is where it goes otherwise.
    pub(super) fn of(stderr: Sink, set_up: &SetUp) -> Voice {
        let sink = if set_up.syslog { Sink::Syslog } else { stderr };
        Voice::new(sink, &set_up.key, set_up.level)
    }

    /// Says a line of the program's own, or drops and counts it.
    pub fn say(&mut self, level: Level, text: &str) {
        let number = match level {
            Level::Error => 1,
            Level::Warn => 2,
            Level::Info => 3,
            Level::Debug => 4,
        };
        if number <= self.lowest {
            self.line(level, None, text);
        }
    }

    /// Passes a line of a command on.
    pub fn pass_on(&mut self, command: Command, line: &[u8]) {
        if self.lowest >= 3 {
            let line = String::from_utf8_lossy(line);
            self.line(Level::Info, Some(command), line.trim_end_matches('\r'));
        }
    }

    fn line(&mut self, level: Level, from: Option<Command>, text: &str) {
        if self.dropped > 0 {
            let note = format!(
                "{} log lines were dropped: the log was not read",
                self.dropped
            );
            if !self.write(Level::Warn, None, &note) {
                self.dropped += 1;
                return;
            }
            self.dropped = 0;
        }
        if !self.write(level, from, text) {
            self.dropped += 1;
        }
    }

    fn write(&mut self, level: Level, from: Option<Command>, text: &str) -> bool {
        let mut line = self.sink.line(&self.subject, level, from, text);
        if line.len() > LINE_MAX {
            line.truncate(LINE_MAX - 1);
            line.push(b'\n');
        }
        if self.sink != Sink::Syslog {
            return self.way.write(&line);
        }
        self.syslog.send(&line) || self.way.write(&as_plain(&line))
    }
}

/// How to write without blocking.
#[derive(Debug)]
enum Way {
    /// It was opened anew, for this.
    Anew(File),
    /// A socket.
    Socket(OwnedFd),
    /// A pipe, filled from one of our own.
    Pipe(File, PipeReader, PipeWriter),
    /// A file or terminal.
    Plain(File),
    /// Nobody listens.
    None,
}

impl Way {
    fn to(stderr: OwnedFd) -> Way {
        let stderr = File::from(stderr);
        // Where to write next is shared by all that were given this file. Opened anew it
        // would not move for them, and they would write over what was said here.
        if stderr.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Way::Plain(stderr);
        }
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let anew = OpenOptions::new()
            .append(true)
            .custom_flags(flags)
            .open("/proc/self/fd/2");
        match anew {
            Ok(file) => Way::Anew(file),
            Err(_) => Way::as_it_is(stderr),
        }
    }

    /// The way to what cannot be opened anew.
    fn as_it_is(stderr: File) -> Way {
        let Ok(kind) = stderr.metadata().map(|metadata| metadata.file_type()) else {
            return Way::None;
        };
        if kind.is_socket() {
            return Way::Socket(OwnedFd::from(stderr));
        }
        if !kind.is_fifo() {
            return Way::Plain(stderr);
        }
        match io::pipe() {
            Ok((reader, writer)) => Way::Pipe(stderr, reader, writer),
            Err(_) => Way::None,
        }
    }

    /// Says whether all of the line was written.
    fn write(&mut self, line: &[u8]) -> bool {
        match self {
            Way::Anew(file) => file.write(line).is_ok_and(|count| count == line.len()),
            Way::Socket(socket) => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                rustix::net::send(socket, line, flags).is_ok()
            }
            Way::Pipe(stderr, reader, writer) => fill(stderr, reader, writer, line),
            Way::Plain(file) => sys::has_room(&*file) && file.write_all(line).is_ok(),
            Way::None => false,
        }
    }
}

/// Moves the line through our own pipe, which is empty, into another.
fn fill(stderr: &File, reader: &mut PipeReader, writer: &mut PipeWriter, line: &[u8]) -> bool {
    if writer.write_all(line).is_err() {
        return false;
    }
    let moved = rustix::pipe::splice(
        &*reader,
        None,
        stderr,
        None,
        line.len(),
        SpliceFlags::NONBLOCK,
    );
    let moved = moved.unwrap_or(0);
    // What did not go through is taken back.
    let mut rest = vec![0; line.len() - moved];
    reader.read_exact(&mut rest).is_ok() && rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pipe_that_cannot_be_opened_anew_drops_lines_and_holds_nobody_up() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut voice = Voice {
            sink: Sink::Pipe,
            syslog: Syslog::default(),
            way: Way::as_it_is(File::from(OwnedFd::from(writer))),
            subject: "web".to_owned(),
            lowest: 3,
            dropped: 0,
        };
        assert!(matches!(voice.way, Way::Pipe(..)), "{:?}", voice.way);
        let long = "x".repeat(1000);
        let mut said = 0;
        while voice.dropped == 0 {
            voice.say(Level::Info, &long);
            said += 1;
        }
        assert!(said > 16, "the pipe took {said} lines only");
        voice.say(Level::Info, "dropped too");
        let mut heard = vec![0; 64 * 1024];
        let count = reader.read(&mut heard).expect("the lines are there");
        assert!(heard[..count].ends_with(b"xxx\n"));
        voice.say(Level::Warn, "heard again");
        let count = reader.read(&mut heard).expect("the lines are there");
        let text = String::from_utf8_lossy(&heard[..count]);
        let wanted = "putex: web: warning: 2 log lines were dropped: the log was not read\n\
                      putex: web: warning: heard again\n";
        assert_eq!(text, wanted);
    }
}
