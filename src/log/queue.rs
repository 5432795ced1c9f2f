//! The agent's log: a queue of lines, and the thread that writes them. Nobody waits for the
//! queue: a reader that stops reading costs lines, which are counted, and nothing else.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use env_logger::{Builder, Target};
use log::{Level, LevelFilter};

use super::fatal::panic_if_asked;
use super::format::Destination;
use super::syslog::{SyslogSocket, without_priority};
use crate::core::command::Command;
use crate::core::event;
use crate::sys::{self, Alarm, Waker, Want};

/// Lines that may wait for stderr. At a few lines a failover, many failovers.
const LINES_MAX: usize = 1024;

/// How long an ending agent waits for its last lines to be written.
const FLUSH_WITHIN: Duration = Duration::from_millis(500);

/// The log of a process, which ends with it.
pub struct LogQueue {
    lines: Sender<Vec<u8>>,
    ending: Arc<Ending>,
    alarm: Alarm,
}

/// How the log thread and an ending process tell each other.
struct Ending {
    /// Nothing more will be logged.
    begun: AtomicBool,
    /// All that was logged is written.
    written: Waker,
}

/// What env_logger writes into: one call a line.
struct QueueWriter {
    lines: Sender<Vec<u8>>,
    dropped: Arc<AtomicU64>,
}

impl Write for QueueWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.lines.try_send(line.to_vec()).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LogQueue {
    /// Takes the process's log over. `subject` stands in every line: the key.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or no thread to give.
    pub fn start(
        subject: &str,
        level: LevelFilter,
        destination: Destination,
    ) -> io::Result<LogQueue> {
        let (lines, queued) = bounded(LINES_MAX);
        let ending = Arc::new(Ending {
            begun: AtomicBool::new(false),
            written: Waker::new()?,
        });
        let alarm = Alarm::new()?;
        let dropped = Arc::new(AtomicU64::new(0));
        let (counted, told) = (Arc::clone(&dropped), Arc::clone(&ending));
        thread::Builder::new()
            .name("putex-log".to_owned())
            .spawn(move || {
                write_lines(&queued, destination, &counted, &told.begun);
                told.written.wake();
            })?;
        let subject = subject.to_owned();
        let writer = QueueWriter {
            lines: lines.clone(),
            dropped,
        };
        Builder::new()
            .filter_level(level)
            .target(Target::Pipe(Box::new(writer)))
            .format(move |line, record| {
                let level = match record.level() {
                    Level::Error => event::Level::Error,
                    Level::Warn => event::Level::Warn,
                    Level::Info => event::Level::Info,
                    Level::Debug | Level::Trace => event::Level::Debug,
                };
                let target = record.target();
                let mut commands = Command::ALL.into_iter();
                let from = commands.find(|command| command.name() == target);
                let text = record.args().to_string();
                line.write_all(&destination.line(&subject, level, from, &text))
            })
            .init();
        Ok(LogQueue {
            lines,
            ending,
            alarm,
        })
    }

    /// Waits until what was logged is written, or for as long as a reader may be
    /// waited for.
    pub fn end(self) {
        let deadline = sys::now().after(FLUSH_WITHIN);
        self.ending.begun.store(true, Relaxed);
        // An empty line is the end; the logger keeps its own sender for ever. Where
        // there is no room for it, the thread need not be woken and looks by itself.
        let _ = self.lines.try_send(Vec::new());
        let fds = [(self.ending.written.as_fd(), Want::Read)];
        // The process ends, whatever came of it.
        let _ = self.alarm.wait(fds, Some(deadline));
    }
}

fn write_lines(
    queued: &Receiver<Vec<u8>>,
    destination: Destination,
    dropped: &AtomicU64,
    ending: &AtomicBool,
) {
    let mut syslog = (destination == Destination::Syslog).then(SyslogSocket::default);
    while let Ok(line) = queued.recv() {
        panic_if_asked("putex-log");
        if line.is_empty() {
            return;
        }
        write(&line, syslog.as_mut());
        let lost = dropped.swap(0, Relaxed);
        if lost > 0 {
            let text = format!("{lost} log lines were dropped: the log was not read");
            write(&destination.line_about_log(&text), syslog.as_mut());
        }
        if ending.load(Relaxed) && queued.is_empty() {
            return;
        }
    }
}

/// Writes a line and waits for whoever reads it. What syslog does not take goes to
/// stderr.
fn write(line: &[u8], syslog: Option<&mut SyslogSocket>) {
    let Some(syslog) = syslog else {
        // A closed stderr takes nothing; there is nobody to tell.
        return drop(io::stderr().write_all(line));
    };
    let taken = syslog.send(line) || {
        syslog.wait_for_room();
        syslog.send(line)
    };
    if !taken {
        drop(io::stderr().write_all(&without_priority(line)));
    }
}
