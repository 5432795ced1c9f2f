//! Where the log goes, and how a line is written for whoever reads it there.
//!
//! A collector adds the time, and knows the program, if it is told how much a line
//! matters. A terminal and a file add nothing.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;

use crate::core::command::Command;
use crate::core::event::Level;
use crate::exit::Exit;
use crate::sys;

/// Where a syslog daemon listens.
const SYSLOG: &str = "/dev/log";

/// The facility `daemon`, as syslog(3) counts.
const DAEMON: u8 = 3 << 3;

/// Where the log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// stderr is the journal of systemd.
    Journal,
    /// A syslog daemon, and stderr for what that does not take.
    Syslog,
    /// stderr is a terminal or a file.
    Screen,
    /// stderr is a pipe to a collector, or nothing.
    Pipe,
}

impl Sink {
    /// Finds out what stderr is. `journal` is `JOURNAL_STREAM`: the device and inode
    /// of the journal's socket, which stderr may have left since.
    #[must_use]
    pub fn of_stderr(journal: Option<&str>) -> Sink {
        let stderr = io::stderr();
        let Ok(stat) = rustix::fs::fstat(&stderr) else {
            return Sink::Pipe;
        };
        let own = format!("{}:{}", stat.st_dev, stat.st_ino);
        let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
        if journal == Some(own.as_str()) {
            Sink::Journal
        } else if stderr.is_terminal() || kind.is_file() {
            Sink::Screen
        } else {
            Sink::Pipe
        }
    }

    /// Returns a line. `subject` is the key, which some things are said without.
    #[must_use]
    pub fn line(self, subject: &str, level: Level, from: Option<Command>, text: &str) -> Vec<u8> {
        let mark = match level {
            Level::Error => "error: ",
            Level::Warn => "warning: ",
            Level::Info => "",
            Level::Debug => "debug: ",
        };
        let from = from.map_or(String::new(), |command| format!("{}: ", command.name()));
        self.frame(level, &format!("{subject}: {mark}{from}{text}"))
    }

    /// Returns a line about the log itself.
    #[must_use]
    pub fn note(self, text: &str) -> Vec<u8> {
        self.frame(Level::Warn, text)
    }

    fn frame(self, level: Level, text: &str) -> Vec<u8> {
        let priority = match level {
            Level::Error => 3,
            Level::Warn => 4,
            Level::Info => 6,
            Level::Debug => 7,
        };
        match self {
            Sink::Journal => format!("<{priority}>{text}\n"),
            // Without a time the daemon takes its own, which is the local one.
            Sink::Syslog => {
                let (priority, pid) = (DAEMON | priority, std::process::id());
                format!("<{priority}>putex[{pid}]: {text}")
            }
            Sink::Screen => format!("{} putex: {text}\n", sys::utc()),
            Sink::Pipe => format!("putex: {text}\n"),
        }
        .into_bytes()
    }

    /// Says what is unusual, on stderr.
    pub fn warn(self, text: &str) {
        let stderr = self.on_stderr();
        stderr.to_stderr(Level::Warn, &format!("warning: {text}"));
    }

    /// Writes a line to stderr, unless that has no room: where nobody reads it, the exit
    /// status says it still, and an agent that ends does not wait.
    fn to_stderr(self, level: Level, text: &str) {
        let mut stderr = io::stderr();
        if sys::has_room(&stderr) {
            let _ = stderr.write_all(&self.frame(level, text));
        }
    }

    /// Returns how a line to whoever started the process is written.
    fn on_stderr(self) -> Sink {
        match self {
            Sink::Journal => self,
            Sink::Syslog | Sink::Screen | Sink::Pipe => Sink::Pipe,
        }
    }

    /// Says why the process ends at once; on stderr whatever the log is, for whoever
    /// started it there.
    pub fn refuse(self, text: &str, exit: Exit) -> Exit {
        let stderr = self.on_stderr();
        stderr.to_stderr(Level::Error, text);
        if self == Sink::Syslog {
            Syslog::default().send(&self.frame(Level::Error, text));
        }
        exit
    }
}

/// What syslog did not take, as it is written to stderr.
#[must_use]
pub fn as_plain(datagram: &[u8]) -> Vec<u8> {
    let end = datagram.iter().position(|byte| *byte == b'>');
    let mut line = datagram[end.map_or(0, |end| end + 1)..].to_vec();
    line.push(b'\n');
    line
}

/// The way to a syslog daemon. It may come late, and come again.
#[derive(Debug, Default)]
pub struct Syslog(Option<UnixDatagram>);

impl Syslog {
    /// Sends a line without waiting; says whether it was taken.
    pub fn send(&mut self, line: &[u8]) -> bool {
        if let Some(socket) = &self.0 {
            match socket.send(line) {
                Ok(_) => return true,
                // It is there, but does not keep up.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(_) => {}
            }
        }
        self.0 = connect().ok();
        self.0
            .as_ref()
            .is_some_and(|socket| socket.send(line).is_ok())
    }

    /// Waits until there is room for a line, if anybody is there at all.
    pub fn wait_for_room(&self) {
        if let Some(socket) = &self.0 {
            let fd = socket.as_fd();
            let flags = rustix::event::PollFlags::OUT;
            // A wait that fails is one that is short.
            let _ = sys::poll(&mut [rustix::event::PollFd::from_borrowed_fd(fd, flags)]);
        }
    }
}

fn connect() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect(SYSLOG)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reader_is_given_what_it_does_not_add_itself() {
        let said = |sink: Sink| {
            let line = sink.line("db", Level::Warn, Some(Command::Stop), "hello");
            String::from_utf8(line).expect("it is text")
        };
        assert_eq!(said(Sink::Pipe), "putex: db: warning: stop: hello\n");
        assert_eq!(said(Sink::Journal), "<4>db: warning: stop: hello\n");
        let pid = std::process::id();
        let datagram = format!("<28>putex[{pid}]: db: warning: stop: hello");
        assert_eq!(said(Sink::Syslog), datagram);
        let plain = as_plain(datagram.as_bytes());
        assert_eq!(
            plain,
            format!("putex[{pid}]: db: warning: stop: hello\n").into_bytes()
        );
        let timed = said(Sink::Screen);
        let (time, rest) = timed.split_once(' ').expect("a time");
        assert_eq!(rest, "putex: db: warning: stop: hello\n");
        assert_eq!(time.len(), "2026-11-21T15:35:30.123Z".len(), "{time}");
    }

    #[test]
    fn a_journal_that_stderr_has_left_is_none() {
        assert_ne!(Sink::of_stderr(Some("1:1")), Sink::Journal);
        let stat = rustix::fs::fstat(io::stderr()).expect("there is a stderr");
        let own = format!("{}:{}", stat.st_dev, stat.st_ino);
        assert_eq!(Sink::of_stderr(Some(&own)), Sink::Journal);
    }
}
