//! The agent's log: a queue of lines, and the thread that writes them. Nobody waits for the
//! queue: a reader that stops reading costs lines, which are counted, and nothing else.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ::log::{Level, LevelFilter, Log, Metadata, Record};
use crossbeam_channel::{Receiver, Sender, bounded};

use super::fatal::panic_if_asked;
use super::format::Destination;
use super::limit::{self, OutputLimit};
use super::lost::LostLines;
use super::syslog::{SyslogSocket, without_priority};
use crate::core::command::Command;
use crate::core::time::Instant;
use crate::sys::{self, Alarm, Waker, Want};

/// Lines that may wait for stderr. At a few lines a failover, many failovers.
const LINES_MAX: usize = 1024;

/// Lines of these that are not of commands: they have room however much commands write.
const OWN_LINES: usize = 256;

/// How long an ending agent waits for its last lines to be written.
const FLUSH_WITHIN: Duration = Duration::from_millis(500);

/// How often it is looked whether the queue is empty.
const FLUSH_LOOK: Duration = Duration::from_millis(2);

/// The log of a process, which ends with it.
pub struct LogQueue {
    logger: Arc<Logger>,
    ending: Arc<Ending>,
    alarm: Alarm,
}

/// The state of the log thread and an ending process.
struct Ending {
    /// Nothing more will be logged.
    begun: AtomicBool,
    /// All lines are written.
    written: Waker,
}

/// Puts lines into the queue.
struct Logger {
    destination: Destination,
    /// The key, which stands in every line.
    subject: String,
    level: LevelFilter,
    lines: Sender<Vec<u8>>,
    /// Lines for which the queue had no room.
    unread: AtomicU64,
    limit: Mutex<OutputLimit>,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= self.level
    }

    /// Logs a line; it is one of a command's output if its target is the command's name.
    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = record.args().to_string();
        let mut commands = Command::ALL.into_iter();
        match commands.find(|command| command.name() == record.target()) {
            Some(command) => self.command_output(command, &text, sys::now()),
            None => self.queue(record.level(), None, &text),
        }
    }

    /// Counts the lines of commands that were left out more than a second ago.
    fn flush(&self) {
        self.count_left_out(sys::now(), false);
    }
}

impl Logger {
    fn command_output(&self, command: Command, text: &str, now: Instant) {
        self.count_left_out(now, false);
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        if limit.admits(command, text.len(), now) {
            drop(limit);
            self.queue(Level::Info, Some(command), text);
        }
    }

    fn count_left_out(&self, now: Instant, at_once: bool) {
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((command, count)) = limit.left_out(now, at_once) {
            self.queue(Level::Warn, Some(command), &limit::text(count));
        }
    }

    fn queue(&self, level: Level, from: Option<Command>, text: &str) {
        let kept = if from.is_some() { OWN_LINES } else { 0 };
        let line = self.destination.line(&self.subject, level, from, text);
        if self.lines.len() + kept >= LINES_MAX || self.lines.try_send(line).is_err() {
            self.unread.fetch_add(1, Relaxed);
        }
    }
}

impl LogQueue {
    /// Takes the process's log over. `subject` stands in every line: the key.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or no thread to give, or the process has a log.
    pub fn start(
        subject: &str,
        level: LevelFilter,
        destination: Destination,
    ) -> io::Result<LogQueue> {
        let (lines, queued) = bounded(LINES_MAX);
        let ending = Arc::new(Ending { begun: AtomicBool::new(false), written: Waker::new()? });
        let alarm = Alarm::new()?;
        let logger = Arc::new(Logger {
            destination,
            subject: subject.to_owned(),
            level,
            lines,
            unread: AtomicU64::new(0),
            limit: Mutex::new(OutputLimit::new()),
        });
        let (writer, its_ending) = (Arc::clone(&logger), Arc::clone(&ending));
        thread::Builder::new().name("putex-log".to_owned()).spawn(move || {
            writer.write_lines(&queued, &its_ending.begun);
            its_ending.written.wake();
        })?;
        ::log::set_boxed_logger(Box::new(Arc::clone(&logger))).map_err(io::Error::other)?;
        ::log::set_max_level(level);
        Ok(LogQueue { logger, ending, alarm })
    }

    /// Waits until the queue is empty, for half a second at the longest. The last line may
    /// still be on its way.
    pub fn flush(&self) {
        let deadline = sys::now().after(FLUSH_WITHIN);
        loop {
            let now = sys::now();
            let last_look = self.logger.lines.is_empty() || now >= deadline;
            // A wait that fails is a short wait.
            let _ = self.alarm.wait([], Some(now.after(FLUSH_LOOK)));
            if last_look {
                return;
            }
        }
    }

    /// Waits until all lines are written, for half a second at the longest.
    pub fn end(self) {
        let now = sys::now();
        self.logger.count_left_out(now, true);
        self.ending.begun.store(true, Relaxed);
        // An empty line is the end; the logger keeps its own sender for ever. Where
        // there is no room for it, the thread need not be woken and looks by itself.
        let _ = self.logger.lines.try_send(Vec::new());
        let fds = [(self.ending.written.as_fd(), Want::Read)];
        // The process ends even if the wait fails.
        let _ = self.alarm.wait(fds, Some(now.after(FLUSH_WITHIN)));
    }
}

impl Logger {
    /// The log thread.
    fn write_lines(&self, queued: &Receiver<Vec<u8>>, ending: &AtomicBool) {
        let mut syslog = (self.destination == Destination::Syslog).then(SyslogSocket::default);
        let mut lost = LostLines::default();
        while let Ok(line) = queued.recv() {
            panic_if_asked("putex-log");
            if let Err(error) = write(&line, syslog.as_mut()) {
                lost.add(&error);
            }
            lost.add_unread(self.unread.swap(0, Relaxed));
            let end = line.is_empty() || ending.load(Relaxed) && queued.is_empty();
            let now = sys::now();
            if let Some(text) = lost.text(now, end) {
                let line = self.destination.line(&self.subject, Level::Warn, None, &text);
                if write(&line, syslog.as_mut()).is_ok() {
                    lost.counted(now);
                }
            }
            if end {
                return;
            }
        }
    }
}

/// Writes a line and waits for its reader. A line that syslog does not take goes to stderr.
fn write(line: &[u8], syslog: Option<&mut SyslogSocket>) -> io::Result<()> {
    let Some(syslog) = syslog else {
        return io::stderr().write_all(line);
    };
    let taken = line.is_empty() || syslog.send(line) || {
        syslog.wait_for_room();
        syslog.send(line)
    };
    if taken {
        return Ok(());
    }
    io::stderr().write_all(&without_priority(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_leave_room_for_lines_of_putex() {
        let (lines, queued) = bounded(LINES_MAX);
        let logger = Logger {
            destination: Destination::Pipe,
            subject: "web".to_owned(),
            level: LevelFilter::Info,
            lines,
            unread: AtomicU64::new(0),
            limit: Mutex::new(OutputLimit::new()),
        };
        let flood = |seconds: u64| {
            let now = Instant::from_boot(Duration::from_secs(seconds));
            for _ in 0..LINES_MAX {
                logger.command_output(Command::Start, "start writes much", now);
            }
        };
        (0..60).for_each(flood);
        assert_eq!(queued.len(), LINES_MAX - OWN_LINES);
        assert_ne!(logger.unread.swap(0, Relaxed), 0);
        for _ in 0..OWN_LINES {
            logger.queue(Level::Info, None, "standby -> taking");
        }
        assert_eq!(logger.unread.load(Relaxed), 0);
        assert_eq!(queued.len(), LINES_MAX);
        // 100 at once, then 20 a second, with a count before the next.
        let said: Vec<_> = queued.try_iter().take(122).collect();
        let part = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
        assert_eq!(part(&said[99]), "putex: web: start: start writes much\n");
        let count = "putex: web: warning: start: 924 lines of output were left out: more than \
                     20 lines or 8 KiB a second\n";
        assert_eq!(part(&said[100]), count);
        assert_eq!(part(&said[101]), "putex: web: start: start writes much\n");
        assert!(part(&said[121]).contains("1004 lines"), "{}", part(&said[121]));
    }
}
