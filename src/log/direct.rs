//! The log of a process without a log thread: the guard, `putex finish`, a fatal exit. A line
//! is written at once or dropped and counted; a reader is never waited for.

use super::format::Destination;
use super::stderr::Stderr;
use super::syslog::{SyslogSocket, without_priority};
use crate::core::command::Command;
use crate::core::event::Level;

/// A longer line is cut: so many bytes fit into a pipe that has room at all.
const LINE_MAX: usize = 4096;

/// A log that never waits.
#[derive(Debug)]
pub struct DirectLog {
    destination: Destination,
    syslog: SyslogSocket,
    stderr: Stderr,
    subject: String,
    lowest: u64,
    dropped: u64,
}

impl DirectLog {
    /// Opens the log. `subject` stands in every line, and no line below the lowest level is
    /// written: 1 errors, 2 warnings, and so on. Where stderr is a file, its disk may hold up
    /// the caller.
    #[must_use]
    pub fn new(destination: Destination, subject: &str, lowest: u64) -> DirectLog {
        DirectLog {
            destination,
            syslog: SyslogSocket::default(),
            stderr: Stderr::open(),
            subject: subject.to_owned(),
            lowest,
            dropped: 0,
        }
    }

    /// Has a file written by another process, so that a disk that stalls does not hold up
    /// the caller either.
    #[must_use]
    pub fn with_writer_process(mut self) -> DirectLog {
        self.stderr = self.stderr.with_writer_process();
        self
    }

    /// Changes all that [`DirectLog::new`] was given.
    pub fn configure(&mut self, destination: Destination, subject: &str, lowest: u64) {
        self.destination = destination;
        subject.clone_into(&mut self.subject);
        self.lowest = lowest;
    }

    /// Writes a line of the program's own, or drops and counts it.
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

    /// Writes a line of a command's output.
    pub fn command_output(&mut self, command: Command, line: &[u8]) {
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
        let mut line = self.destination.line(&self.subject, level, from, text);
        if line.len() > LINE_MAX {
            line.truncate(LINE_MAX - 1);
            line.push(b'\n');
        }
        if self.destination != Destination::Syslog {
            return self.stderr.write(&line);
        }
        self.syslog.send(&line) || self.stderr.write(&without_priority(&line))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{self, Read};
    use std::os::fd::OwnedFd;
    use std::process;

    use super::*;
    use crate::sys;

    /// A guard's log that writes to this stderr.
    fn log(stderr: Stderr) -> DirectLog {
        DirectLog {
            destination: Destination::Pipe,
            syslog: SyslogSocket::default(),
            stderr,
            subject: "web".to_owned(),
            lowest: 3,
            dropped: 0,
        }
    }

    /// Writes more than fits; returns the number of lines.
    fn fill_up(log: &mut DirectLog) -> u32 {
        let (long, mut said) = ("x".repeat(1000), 0);
        while log.dropped == 0 {
            log.say(Level::Info, &long);
            said += 1;
        }
        said
    }

    #[test]
    fn a_full_pipe_that_cannot_be_reopened_drops_lines_and_holds_nobody_up() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let stderr = Stderr::not_reopened(File::from(OwnedFd::from(writer)));
        let mut log = log(stderr);
        assert!(matches!(log.stderr, Stderr::Pipe { .. }), "{log:?}");
        let said = fill_up(&mut log);
        assert!(said > 16, "the pipe took {said} lines only");
        log.say(Level::Info, "dropped too");
        let mut heard = vec![0; 64 * 1024];
        let count = reader.read(&mut heard).expect("the lines are there");
        assert!(heard[..count].ends_with(b"xxx\n"));
        log.say(Level::Warn, "written again");
        let count = reader.read(&mut heard).expect("the lines are there");
        let text = String::from_utf8_lossy(&heard[..count]);
        let wanted = "putex: web: warning: 2 log lines were dropped: the log was not read\n\
                      putex: web: warning: written again\n";
        assert_eq!(text, wanted);
    }

    /// The lines for a file whose disk stalls stay in the pipe of the writer process.
    #[test]
    fn a_file_that_stalls_drops_lines_and_holds_nobody_up() {
        let path = std::env::temp_dir().join(format!("putex-log-{}", process::id()));
        let file = File::create(&path).expect("a file");
        let mut log = log(Stderr::MayBlock(file)).with_writer_process();
        let Stderr::WriterProcess(pipe) = &mut log.stderr else {
            panic!("no writer process: {log:?}");
        };
        let (reader, stalled) = io::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&stalled, true).expect("it can be set");
        let writer = std::mem::replace(pipe, stalled);
        fill_up(&mut log);
        let Stderr::WriterProcess(pipe) = &mut log.stderr else {
            panic!("the writer process was left: {log:?}");
        };
        *pipe = writer;
        log.say(Level::Info, "  written \\again");
        drop((log, reader));
        let deadline = sys::now().after(std::time::Duration::from_secs(20));
        let wanted = "putex: web: warning: 1 log lines were dropped: the log was not read\n\
                      putex: web:   written \\again\n";
        while std::fs::read_to_string(&path).expect("it is text") != wanted {
            assert!(sys::now() < deadline, "the lines are not there");
        }
        std::fs::remove_file(&path).expect("it is there");
    }
}
