//! What the guard says, without ever waiting for whoever reads it.
//!
//! stderr is the agent's, and may be a pipe that nobody empties any more. Opened
//! anew it can be written without blocking, while the service that writes into the
//! same pipe still blocks as it expects to. A socket cannot be opened anew, but
//! written without blocking.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use rustix::net::SendFlags;

use crate::core::event::{Command, Level};

/// Where the lines go.
#[derive(Debug)]
pub struct Voice {
    way: Option<OwnedFd>,
    subject: String,
    lowest: u64,
    dropped: u64,
}

impl Voice {
    /// Finds the way; `subject` stands in every line, and nothing is said below the
    /// lowest level: 1 errors, 2 warnings, and so on.
    #[must_use]
    pub fn new(subject: &str, lowest: u64) -> Voice {
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let way = OpenOptions::new()
            .append(true)
            .custom_flags(flags)
            .open("/proc/self/fd/2");
        Voice {
            way: way.ok().map(OwnedFd::from),
            subject: subject.to_owned(),
            lowest,
            dropped: 0,
        }
    }

    /// Says a line of the program's own, or drops and counts it.
    pub fn say(&mut self, level: Level, text: &str) {
        let (number, mark) = match level {
            Level::Error => (1, "error: "),
            Level::Warn => (2, "warning: "),
            Level::Info => (3, ""),
            Level::Debug => (4, "debug: "),
        };
        if number <= self.lowest {
            self.line(&format!("{mark}{text}"));
        }
    }

    /// Passes a line of a command on.
    pub(super) fn pass_on(&mut self, command: Command, line: &[u8]) {
        if self.lowest >= 3 {
            let line = String::from_utf8_lossy(line);
            let text = format!("{}: {}", command.name(), line.trim_end_matches('\r'));
            self.line(&text);
        }
    }

    fn line(&mut self, text: &str) {
        if self.dropped > 0 {
            let note = format!(
                "{} log lines were dropped: stderr was not read",
                self.dropped
            );
            if !self.write(&note) {
                self.dropped += 1;
                return;
            }
            self.dropped = 0;
        }
        if !self.write(text) {
            self.dropped += 1;
        }
    }

    fn write(&mut self, text: &str) -> bool {
        let line = format!("putex: {}: {text}\n", self.subject);
        match &self.way {
            Some(way) => rustix::io::write(way, line.as_bytes()).is_ok(),
            None => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                match rustix::net::send(io::stderr(), line.as_bytes(), flags) {
                    Ok(_) => true,
                    Err(rustix::io::Errno::NOTSOCK) => {
                        // Neither can be opened anew nor is a socket: without /proc.
                        io::stderr().write_all(line.as_bytes()).is_ok()
                    }
                    Err(_) => false,
                }
            }
        }
    }
}
