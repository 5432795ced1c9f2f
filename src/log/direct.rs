//! The log of a process without a log thread: the guard, `putex finish`, a fatal exit. A line
//! is written at once or dropped and counted; a reader is never waited for.

use std::io;

use ::log::Level;

use super::format::Destination;
use super::limit::{self, OutputLimit};
use super::lost::LostLines;
use super::stderr::Stderr;
use super::syslog::{SyslogSocket, without_priority};
use crate::core::command::Command;
use crate::core::level;
use crate::core::time::Instant;
use crate::sys;

/// How much of the room for lines that are not read yet a line may use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// Output of commands, and the count of lost lines.
    Half,
    /// Lines of the program.
    All,
}

/// A log that never waits. When it is dropped, it counts the output that it left out.
#[derive(Debug)]
pub struct DirectLog {
    destination: Destination,
    syslog: SyslogSocket,
    stderr: Stderr,
    subject: String,
    lowest: u64,
    limit: OutputLimit,
    lost: LostLines,
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
            limit: OutputLimit::new(),
            lost: LostLines::default(),
        }
    }

    /// Has a file written by another process, so that a disk that stalls does not hold up
    /// the caller either; also a pipe that cannot be opened again, which has little room.
    #[must_use]
    pub fn with_writer_process(mut self) -> DirectLog {
        self.stderr = std::mem::take(&mut self.stderr).with_writer_process();
        self
    }

    /// Changes all that [`DirectLog::new`] was given.
    pub fn configure(&mut self, destination: Destination, subject: &str, lowest: u64) {
        self.destination = destination;
        subject.clone_into(&mut self.subject);
        self.lowest = lowest;
    }

    /// Writes a line of the program's own, or drops and counts it.
    pub fn say(&mut self, level: level::Level, text: &str) {
        let level = Level::from(level);
        if self.logs(level) {
            self.line(level, None, text, sys::now());
        }
    }

    /// Writes a line of a command's output, unless the command writes too much. `now` decides
    /// that.
    pub fn command_output(&mut self, command: Command, line: &[u8], now: Instant) {
        if !self.logs(Level::Info) {
            return;
        }
        self.count_left_out(now);
        if self.limit.admits(command, line.len(), now) {
            let text = String::from_utf8_lossy(line);
            self.line(Level::Info, Some(command), &text, now);
        }
    }

    /// Counts the output that was left out more than a second ago. To be called when a
    /// command has ended.
    pub fn count_left_out(&mut self, now: Instant) {
        self.count(now, false);
    }

    fn count(&mut self, now: Instant, at_once: bool) {
        while let Some((command, count)) = self.limit.left_out(now, at_once) {
            self.line(Level::Warn, Some(command), &limit::text(count), now);
        }
    }

    fn logs(&self, level: Level) -> bool {
        level as u64 <= self.lowest
    }

    fn line(&mut self, level: Level, from: Option<Command>, text: &str, now: Instant) {
        if let Some(text) = self.lost.text(now, false)
            && self.write_into(Room::Half, Level::Warn, None, &text).is_ok()
        {
            self.lost.counted(now);
        }
        let room = from.map_or(Room::All, |_| Room::Half);
        if let Err(error) = self.write_into(room, level, from, text) {
            self.lost.add(&error);
        }
    }

    fn write_into(
        &mut self,
        room: Room,
        level: Level,
        from: Option<Command>,
        text: &str,
    ) -> io::Result<()> {
        let line = self.destination.line(&self.subject, level, from, text);
        let syslog = self.destination == Destination::Syslog;
        if syslog && self.syslog.send(&line) {
            return Ok(());
        }
        if room == Room::Half && self.stderr.is_half_full() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if syslog {
            return self.stderr.write(&without_priority(&line));
        }
        self.stderr.write(&line)
    }
}

impl Drop for DirectLog {
    fn drop(&mut self) {
        self.count(sys::now(), true);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{self, Read};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::process;
    use std::time::Duration;

    use super::*;
    use crate::sys;

    /// A log that writes to this stderr.
    fn log(stderr: Stderr) -> DirectLog {
        let mut log = DirectLog::new(Destination::Pipe, "web", 3);
        log.stderr = stderr;
        log
    }

    /// A pipe as another user's, which cannot be opened again.
    fn foreign_pipe() -> (io::PipeReader, Stderr) {
        let (reader, writer) = io::pipe().expect("a pipe");
        (reader, Stderr::not_reopened(File::from(OwnedFd::from(writer))))
    }

    fn read(reader: &mut io::PipeReader) -> String {
        let mut bytes = vec![0; 64 * 1024];
        let count = reader.read(&mut bytes).expect("the lines are there");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    fn has_lost(log: &DirectLog) -> bool {
        log.lost.text(Instant::from_boot(Duration::MAX), true).is_some()
    }

    /// Writes more than fits; returns the number of lines.
    fn fill_up(log: &mut DirectLog) -> u32 {
        let (long, mut said) = ("x".repeat(1000), 0);
        while !has_lost(log) {
            log.say(level::Level::Info, &long);
            said += 1;
        }
        said
    }

    #[test]
    fn a_full_pipe_that_cannot_be_reopened_drops_lines_and_holds_nobody_up() {
        let (mut reader, stderr) = foreign_pipe();
        let mut log = log(stderr);
        assert!(matches!(log.stderr, Stderr::Pipe { .. }), "{log:?}");
        let said = fill_up(&mut log);
        assert!(said > 16, "the pipe took {said} lines only");
        log.say(level::Level::Info, "dropped too");
        assert!(read(&mut reader).ends_with("xxx\n"));
        log.say(level::Level::Warn, "written again");
        let wanted = "putex: web: warning: 2 log lines were dropped: the log was not read\n\
                      putex: web: warning: written again\n";
        assert_eq!(read(&mut reader), wanted);
    }

    #[test]
    fn output_of_commands_leaves_room_for_lines_of_putex() {
        let (mut foreign, foreign_end) = foreign_pipe();
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let (mut reader_2, writer_2) = io::pipe().expect("a pipe");
        let (_socket, sender) = UnixStream::pair().expect("sockets");
        for writer in [&writer, &writer_2] {
            rustix::io::ioctl_fionbio(writer, true).expect("it can be set");
        }
        let cases = [
            (foreign_end, Some(&mut foreign)),
            (Stderr::WriterProcess(writer), Some(&mut reader)),
            (Stderr::Reopened(File::from(OwnedFd::from(writer_2))), Some(&mut reader_2)),
            (Stderr::Socket(OwnedFd::from(sender)), None),
        ];
        for (stderr, reader) in cases {
            let mut log = log(stderr);
            // As much as is admitted in so many seconds.
            for seconds in 0..100 {
                let now = Instant::from_boot(Duration::from_secs(seconds));
                for _ in 0..100 {
                    log.command_output(Command::Stop, &[b'x'; 1000], now);
                }
            }
            assert!(has_lost(&log), "{log:?}");
            for _ in 0..6 {
                log.lost = LostLines::default();
                log.say(level::Level::Info, "stop failed");
                assert!(!has_lost(&log), "{log:?}");
            }
            if let Some(reader) = reader {
                assert!(read(reader).ends_with("putex: web: stop failed\n"), "{log:?}");
            }
        }
    }

    #[test]
    fn output_that_was_left_out_is_counted_by_the_second_and_at_the_end() {
        let (mut out, writer) = io::pipe().expect("a pipe");
        let mut log = log(Stderr::Reopened(File::from(OwnedFd::from(writer))));
        let at = |ms| Instant::from_boot(Duration::from_millis(ms));
        for number in 0..150 {
            log.command_output(Command::Start, b"line\r", at(number));
        }
        log.count_left_out(at(999));
        let text = read(&mut out);
        assert_eq!(text, "putex: web: start: line\n".repeat(100));
        log.count_left_out(at(1000));
        let count = |lines| {
            format!(
                "putex: web: warning: start: {lines} lines of output were left out: more than \
                 20 lines or 8 KiB a second\n"
            )
        };
        assert_eq!(read(&mut out), count(50));
        for _ in 0..21 {
            log.command_output(Command::Start, b"x\x1b[2J", at(1001));
        }
        drop(log);
        let rest = "putex: web: start: x?[2J\n".repeat(20) + &count(1);
        assert_eq!(read(&mut out), rest);
    }

    #[test]
    fn levels_that_are_not_logged_are_not_counted() {
        let (mut out, writer) = io::pipe().expect("a pipe");
        let mut log = log(Stderr::Reopened(File::from(OwnedFd::from(writer))));
        log.configure(Destination::Pipe, "db", 2);
        for _ in 0..1000 {
            log.command_output(Command::Start, b"line", sys::now());
        }
        log.say(level::Level::Info, "not this");
        log.say(level::Level::Warn, "this");
        drop(log);
        assert_eq!(read(&mut out), "putex: db: warning: this\n");
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
        log.say(level::Level::Info, "  written \\again");
        drop((log, reader));
        let deadline = sys::now().after(Duration::from_secs(20));
        let wanted = "putex: web: warning: 1 log lines were dropped: the log was not read\n\
                      putex: web:   written \\again\n";
        while std::fs::read_to_string(&path).expect("it is text") != wanted {
            assert!(sys::now() < deadline, "the lines are not there");
        }
        std::fs::remove_file(&path).expect("it is there");
    }
}
