//! The destination of the log, and the form of a line for its reader.
//!
//! A collector adds the time, and knows the program, if it is given the priority of a line.
//! A terminal and a file add nothing.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, SystemTime};

use ::log::Level;
use libc::{LOG_DAEMON, LOG_DEBUG, LOG_ERR, LOG_INFO, LOG_WARNING};

use super::syslog::{SyslogSocket, without_priority};
use crate::core::text::cut_off;
use crate::core::{Command, sanitize};
use crate::exit::{Exit, Refusal};
use crate::sys;

/// The longest line, in bytes, with its end: a pipe takes so many as a whole or not at all.
const LINE_MAX: usize = 4096;

/// The longest text in a line, in bytes: the rest of a line is shorter than the difference.
const TEXT_MAX: usize = LINE_MAX - 64;

/// Where the log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// stderr is the journal of systemd.
    Journal,
    /// A syslog daemon, and stderr for lines that the daemon does not take.
    Syslog,
    /// stderr is a terminal or a file.
    TerminalOrFile,
    /// stderr is a pipe to a collector, or closed.
    Pipe,
}

impl Destination {
    /// Returns the kind of stderr. `journal` is `JOURNAL_STREAM`: the device and inode
    /// of the journal's socket, which stderr may have left since.
    pub fn of_stderr(journal: Option<&str>) -> Destination {
        let stderr = io::stderr();
        let Ok(stat) = rustix::fs::fstat(&stderr) else { return Destination::Pipe };
        let own = format!("{}:{}", stat.st_dev, stat.st_ino);
        let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
        if journal == Some(own.as_str()) {
            Destination::Journal
        } else if stderr.is_terminal() || kind.is_file() {
            Destination::TerminalOrFile
        } else {
            Destination::Pipe
        }
    }

    /// Returns where the log goes when `--syslog` was given or not.
    pub fn or_syslog(self, syslog: bool) -> Destination {
        if syslog { Destination::Syslog } else { self }
    }

    /// Returns a line of at most 4096 bytes, for any text. `subject` is the key.
    pub fn line(self, subject: &str, level: Level, from: Option<Command>, text: &str) -> Vec<u8> {
        let (priority, mark) = match level {
            Level::Error => (LOG_ERR, "error: "),
            Level::Warn => (LOG_WARNING, "warning: "),
            Level::Info => (LOG_INFO, ""),
            Level::Debug | Level::Trace => (LOG_DEBUG, "debug: "),
        };
        let from = from.map_or(String::new(), |command| format!("{}: ", command.name()));
        self.frame(priority, &format!("{subject}: {mark}{from}{text}"))
    }

    fn frame(self, priority: i32, text: &str) -> Vec<u8> {
        let text = one_line(text);
        match self {
            Destination::Journal => format!("<{priority}>{text}\n"),
            // Without a time the daemon takes its own, which is the local one.
            Destination::Syslog => {
                format!("<{}>putex[{}]: {text}", LOG_DAEMON | priority, std::process::id())
            }
            Destination::TerminalOrFile => {
                format!("{} putex: {text}\n", humantime::format_rfc3339_millis(SystemTime::now()))
            }
            Destination::Pipe => format!("putex: {text}\n"),
        }
        .into_bytes()
    }

    /// Writes a warning to stderr.
    pub fn warn(self, text: &str) {
        write_to_stderr(&self.on_stderr().frame(LOG_WARNING, &format!("warning: {text}")));
    }

    /// Writes a line for the user to stderr.
    pub fn tell(self, text: &str) {
        write_to_stderr(&self.on_stderr().frame(LOG_INFO, text));
    }

    /// Writes a line of a command for which a person may wait, if its level is not below `lowest`.
    /// On a terminal, a line of information counts as a warning.
    pub fn tell_waiting(self, level: Level, lowest: u64, text: &str) {
        let is_shown = level == Level::Info && io::stderr().is_terminal();
        let level = if is_shown { Level::Warn } else { level };
        if lowest >= level as u64 {
            self.tell(text);
        }
    }

    /// Writes a whole line at once. A line that syslog does not take goes to stderr.
    pub(super) fn write_now(self, line: &[u8]) {
        if self != Destination::Syslog {
            write_to_stderr(line);
        } else if !SyslogSocket::default().send(line) {
            write_to_stderr(&without_priority(line));
        }
    }

    /// Returns the form of a line for the parent process.
    fn on_stderr(self) -> Destination {
        if self == Destination::Journal { self } else { Destination::Pipe }
    }

    /// Writes why the process ends at once, and returns the exit status. The line is written
    /// to stderr wherever the log goes, for the user who started the process there.
    pub fn refuse(self, Refusal { text, exit }: &Refusal) -> Exit {
        write_to_stderr(&self.on_stderr().frame(LOG_ERR, text));
        if self == Destination::Syslog {
            SyslogSocket::default().send(&self.frame(LOG_ERR, text));
        }
        *exit
    }
}

/// Writes a line to stderr, unless stderr has no room: where nobody reads it, the exit status
/// still tells, and a process that ends does not wait.
fn write_to_stderr(line: &[u8]) {
    let mut stderr = io::stderr();
    if sys::is_ready_for(&stderr, sys::PollFlags::OUT, Duration::ZERO) {
        let _ = stderr.write_all(line);
    }
}

/// Returns a text of any origin as it may stand in a line: sanitized, and not too long.
pub(crate) fn one_line(text: &str) -> String {
    let text = text.trim_end_matches(['\r', '\n']);
    cut_off(sanitize(&text.replace(['\t', '\n'], " ")), TEXT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Destination; 4] =
        [Destination::Journal, Destination::Syslog, Destination::TerminalOrFile, Destination::Pipe];

    #[test]
    fn each_reader_gets_the_parts_that_it_does_not_add_itself() {
        let said = |destination: Destination| {
            let line = destination.line("db", Level::Warn, Some(Command::Stop), "hello");
            String::from_utf8(line).expect("it is text")
        };
        assert_eq!(said(Destination::Pipe), "putex: db: warning: stop: hello\n");
        assert_eq!(said(Destination::Journal), "<4>db: warning: stop: hello\n");
        let pid = std::process::id();
        let datagram = format!("<28>putex[{pid}]: db: warning: stop: hello");
        assert_eq!(said(Destination::Syslog), datagram);
        let plain = without_priority(datagram.as_bytes());
        assert_eq!(plain, format!("putex[{pid}]: db: warning: stop: hello\n").into_bytes());
        let timed = said(Destination::TerminalOrFile);
        let (time, rest) = timed.split_once(' ').expect("a time");
        assert_eq!(rest, "putex: db: warning: stop: hello\n");
        assert_eq!(time.len(), "2026-11-21T15:35:30.123Z".len(), "{time}");
    }

    #[test]
    fn whatever_is_in_a_text_it_stays_one_line_that_a_pipe_takes() {
        let line = |text: &str| {
            let line = Destination::Pipe.line("db", Level::Info, None, text);
            String::from_utf8(line).expect("it is text")
        };
        assert_eq!(line("one\ntwo\tthree\r\n"), "putex: db: one two three\n");
        assert_eq!(line("a\rb\u{1b}[2J\0"), "putex: db: a?b?[2J?\n");
        for (text, subject) in [("x", "key"), ("\u{e9}", "key"), ("\u{65e5}", "k\ny")] {
            let (long, mark) = (text.repeat(LINE_MAX), Some(Command::LastResort));
            for destination in ALL {
                let line = destination.line(subject, Level::Error, mark, &long);
                assert!(line.len() <= LINE_MAX, "{} bytes", line.len());
                assert!(line.len() > LINE_MAX - 100, "{} bytes", line.len());
                let line = String::from_utf8(line).expect("no letter is cut");
                let (text, end) = (line.trim_end_matches('\n'), destination != Destination::Syslog);
                assert!(text.ends_with("...") && !text.contains('\n'), "{line}");
                assert_eq!(line.ends_with('\n'), end, "{line}");
            }
        }
    }

    #[test]
    fn a_journal_that_stderr_has_left_does_not_count() {
        assert_ne!(Destination::of_stderr(Some("1:1")), Destination::Journal);
        let stat = rustix::fs::fstat(io::stderr()).expect("there is a stderr");
        let own = format!("{}:{}", stat.st_dev, stat.st_ino);
        assert_eq!(Destination::of_stderr(Some(&own)), Destination::Journal);
    }
}
