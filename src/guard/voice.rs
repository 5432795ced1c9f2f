//! What the guard says, without ever waiting for whoever reads it.
//!
//! stderr is the agent's, and may be a pipe that nobody empties any more. Opened
//! anew it can be written without blocking, while the service that writes into the
//! same pipe still blocks as it expects to. A pipe of another user cannot be opened
//! anew, but is filled by splice(2) without blocking; so is a socket by send(2). A file
//! keeps its writer waiting for as long as its disk or its server stalls, so that of a guard
//! is written by a process of its own, which is given the lines through a pipe.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::process::{self, Stdio};

use rustix::fs::OFlags;
use rustix::net::SendFlags;
use rustix::pipe::SpliceFlags;

use super::word::SetUp;
use crate::core::command::Command;
use crate::core::event::Level;
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
        let mut voice = Voice::new(stderr, "", 0);
        voice.way = voice.way.past_files();
        voice.set_up(stderr, set_up);
        voice
    }

    /// Goes on as the guard is set up from now on.
    pub(super) fn set_up(&mut self, stderr: Sink, set_up: &SetUp) {
        self.sink = if set_up.syslog { Sink::Syslog } else { stderr };
        self.subject.clone_from(&set_up.key);
        self.lowest = set_up.level;
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
    /// A process that writes into a file.
    Writer(PipeWriter),
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

    /// Has what would be written into a file written by another process.
    fn past_files(self) -> Way {
        if let Way::Plain(file) = &self
            && file.metadata().is_ok_and(|metadata| metadata.is_file())
            && let Ok(pipe) = start_writer(file)
        {
            return Way::Writer(pipe);
        }
        // Better a file that may stall than none.
        self
    }

    /// Says whether all of the line was written.
    fn write(&mut self, line: &[u8]) -> bool {
        match self {
            Way::Anew(file) => file.write(line).is_ok_and(|count| count == line.len()),
            // A pipe takes a line of this length as a whole or not at all.
            Way::Writer(pipe) => pipe.write(line).is_ok(),
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

/// What writes into a file for a guard. It is left alone by what ends other processes, as
/// the guard is, goes on when the disk was full, and ends when the pipe does.
const WRITER: &str = "trap '' HUP INT QUIT TERM USR1 USR2 XFSZ
    while IFS= read -r line; do printf '%s\\n' \"$line\"; done >&2";

/// Starts a process that writes into this file what goes into the pipe.
fn start_writer(file: &File) -> io::Result<PipeWriter> {
    let (reader, writer) = io::pipe()?;
    rustix::io::ioctl_fionbio(&writer, true)?;
    let mut shell = process::Command::new("/bin/sh");
    let shell = shell.args(["-c", WRITER, "putex-log"]).stdin(reader);
    // Nobody waits for it: it outlives the guard, but for no time.
    shell
        .stdout(Stdio::null())
        .stderr(file.try_clone()?)
        .spawn()?;
    Ok(writer)
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

    /// A guard's voice that goes this way.
    fn voice(way: Way) -> Voice {
        Voice {
            sink: Sink::Pipe,
            syslog: Syslog::default(),
            way,
            subject: "web".to_owned(),
            lowest: 3,
            dropped: 0,
        }
    }

    /// Says more than fits; returns how much it was.
    fn fill_up(voice: &mut Voice) -> u32 {
        let (long, mut said) = ("x".repeat(1000), 0);
        while voice.dropped == 0 {
            voice.say(Level::Info, &long);
            said += 1;
        }
        said
    }

    #[test]
    fn a_full_pipe_that_cannot_be_opened_anew_drops_lines_and_holds_nobody_up() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut voice = voice(Way::as_it_is(File::from(OwnedFd::from(writer))));
        assert!(matches!(voice.way, Way::Pipe(..)), "{:?}", voice.way);
        let said = fill_up(&mut voice);
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

    /// A file as it is while its disk stalls: what is to be written there stays in the pipe.
    #[test]
    fn a_file_that_stalls_drops_lines_and_holds_nobody_up() {
        let path = std::env::temp_dir().join(format!("putex-voice-{}", process::id()));
        let file = File::create(&path).expect("a file");
        let mut voice = voice(Way::Plain(file.try_clone().expect("a descriptor")).past_files());
        let Way::Writer(pipe) = &mut voice.way else {
            panic!("not past the file: {:?}", voice.way);
        };
        let (reader, stalled) = io::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&stalled, true).expect("it can be set");
        let writer = std::mem::replace(pipe, stalled);
        fill_up(&mut voice);
        let Way::Writer(pipe) = &mut voice.way else {
            panic!("it does not go on: {:?}", voice.way);
        };
        *pipe = writer;
        voice.say(Level::Info, "  heard \\again");
        drop((voice, reader));
        let deadline = sys::now().after(std::time::Duration::from_secs(20));
        let wanted = "putex: web: warning: 1 log lines were dropped: the log was not read\n\
                      putex: web:   heard \\again\n";
        while std::fs::read_to_string(&path).expect("it is text") != wanted {
            assert!(sys::now() < deadline, "the lines are not there");
        }
        std::fs::remove_file(&path).expect("it is there");
    }
}
