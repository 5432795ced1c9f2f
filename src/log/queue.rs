//! The log of a process: a queue of lines, and the thread that writes them. Nobody waits for
//! the queue: a reader that stops reading costs lines, which are counted, and nothing else.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ::log::{Level, LevelFilter, Log, Metadata, Record};
use crossbeam_channel::{Receiver, Sender, bounded};

use super::fatal::panic_if_asked;
use super::format::Destination;
use super::limit::{self, OutputLimit};
use super::lost::LostLines;
use super::stderr::{self, Stderr};
use super::syslog::{SyslogSocket, without_priority};
use crate::core::{self, Command, Instant};
use crate::sys::{self, Alarm, PollFlags, Waker};

/// Lines that may wait for stderr. At a few lines a failover, many failovers.
const LINES_MAX: usize = 1024;

/// Lines of these that are not of commands: they have room however much commands write.
const OWN_LINES: usize = 256;

/// How long an ending process waits for its last lines to be written.
const FLUSH_WITHIN: Duration = Duration::from_millis(500);

/// Memory for the stack of the thread, which the guard keeps locked.
const STACK_BYTES: usize = 64 * 1024;

/// Logs a line of the program's own.
pub(crate) fn say(level: core::Level, text: &str) {
    let level = match level {
        core::Level::Error => Level::Error,
        core::Level::Warn => Level::Warn,
        core::Level::Info => Level::Info,
        core::Level::Debug => Level::Debug,
    };
    ::log::log!(level, "{text}");
}

/// Logs a line of a command's output, unless the command writes too much.
pub(crate) fn command_output(command: Command, line: &[u8]) {
    ::log::info!(target: command.name(), "{}", String::from_utf8_lossy(line));
}

/// Counts the output that was left out more than a second ago. To be called when a command
/// has ended.
pub(crate) fn count_left_out() {
    ::log::logger().flush();
}

/// The log of a process. When it is dropped, it waits for its last lines as
/// [`LogQueue::flush`] does.
pub struct LogQueue {
    logger: Arc<Logger>,
    alarm: Alarm,
}

/// Puts lines into the queue.
struct Logger {
    queue: Sender<Queued>,
    /// Lines for which the queue had no room.
    unread: AtomicU64,
    /// Somebody waits until the queue is empty.
    flushing: AtomicBool,
    /// All lines are written.
    written: Waker,
    form: Mutex<Form>,
    /// The thread, before it is spawned.
    idle: Mutex<Option<LogThread>>,
    /// What is written to next in the place of stderr.
    next_file: Mutex<Option<File>>,
}

/// A line, and where it goes.
type Queued = (Destination, Vec<u8>);

/// How lines are written, and which.
struct Form {
    destination: Destination,
    /// The key, which stands in every line.
    subject: String,
    limit: OutputLimit,
}

impl Form {
    fn line(&self, level: Level, from: Option<Command>, text: &str) -> Queued {
        (self.destination, self.destination.line(&self.subject, level, from, text))
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= ::log::max_level()
    }

    /// Logs a line; it is one of a command's output if its target is the command's name.
    fn log(&self, record: &Record<'_>) {
        let text = record.args().to_string();
        let mut commands = Command::ALL.into_iter();
        match commands.find(|command| command.name() == record.target()) {
            Some(command) => self.command_output(command, &text, sys::now()),
            None => self.line(&self.form(), record.level(), None, &text),
        }
    }

    /// Counts the lines of commands that were left out more than a second ago.
    fn flush(&self) {
        self.count_left_out(&mut self.form(), sys::now(), false);
    }
}

impl Logger {
    fn new(subject: &str, destination: Destination) -> io::Result<(Arc<Logger>, Receiver<Queued>)> {
        let (queue, queued) = bounded(LINES_MAX);
        let subject = subject.to_owned();
        let logger = Logger {
            queue,
            unread: AtomicU64::new(0),
            flushing: AtomicBool::new(false),
            written: Waker::new()?,
            form: Mutex::new(Form { destination, subject, limit: OutputLimit::new() }),
            idle: Mutex::new(None),
            next_file: Mutex::new(None),
        };
        Ok((Arc::new(logger), queued))
    }

    /// Spawns the thread that writes the lines, unless it runs.
    fn begin(&self) -> io::Result<()> {
        let idle = self.idle().take();
        let Some(thread) = idle else { return Ok(()) };
        let builder = thread::Builder::new().name("putex-log".to_owned()).stack_size(STACK_BYTES);
        builder.spawn(move || thread.work()).map(drop)
    }

    /// Has the thread do what is due when the queue is empty.
    fn wake(&self) {
        self.flushing.store(true, Relaxed);
        // An empty line wakes the thread; where there is no room for it, the thread is awake.
        let _ = self.queue.try_send((Destination::Pipe, Vec::new()));
    }

    fn idle(&self) -> MutexGuard<'_, Option<LogThread>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_file(&self) -> MutexGuard<'_, Option<File>> {
        self.next_file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn form(&self) -> MutexGuard<'_, Form> {
        self.form.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn command_output(&self, command: Command, text: &str, now: Instant) {
        let mut form = self.form();
        self.count_left_out(&mut form, now, false);
        if form.limit.admits(command, text.len(), now) {
            self.line(&form, Level::Info, Some(command), text);
        }
    }

    fn count_left_out(&self, form: &mut Form, now: Instant, at_once: bool) {
        while let Some((command, count)) = form.limit.left_out(now, at_once) {
            self.line(form, Level::Warn, Some(command), &limit::text(count));
        }
    }

    fn line(&self, form: &Form, level: Level, from: Option<Command>, text: &str) {
        let kept = if from.is_some() { OWN_LINES } else { 0 };
        let line = form.line(level, from, text);
        // Without a thread the lines fill the queue.
        let _ = self.begin();
        if self.queue.len() + kept >= LINES_MAX || self.queue.try_send(line).is_err() {
            self.unread.fetch_add(1, Relaxed);
        }
    }
}

impl LogQueue {
    /// Takes the process's log over. `subject` stands in every line: the key. No line below the
    /// lowest level is written: 1 errors, 2 warnings, and so on. A `killable` process can end
    /// although the disk of its log stalls.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or no thread to give, or the process has a log.
    pub fn start(
        subject: &str,
        lowest: u64,
        destination: Destination,
        killable: bool,
    ) -> io::Result<LogQueue> {
        let log = LogQueue::start_without_thread(subject, lowest, destination, killable)?;
        log.logger.begin()?;
        Ok(log)
    }

    /// Takes the process's log over as [`LogQueue::start`]; the first line spawns the thread. For
    /// a process that has to begin fast and as a rule logs nothing.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor to give, or the process has a log.
    pub fn start_without_thread(
        subject: &str,
        lowest: u64,
        destination: Destination,
        killable: bool,
    ) -> io::Result<LogQueue> {
        let stderr = stderr::open(killable)?;
        let (logger, queued) = Logger::new(subject, destination)?;
        let alarm = Alarm::new()?;
        let syslog = SyslogSocket::default();
        let thread = LogThread { logger: Arc::clone(&logger), queued, syslog, stderr };
        *logger.idle() = Some(thread);
        ::log::set_boxed_logger(Box::new(Arc::clone(&logger))).map_err(io::Error::other)?;
        ::log::set_max_level(filter(lowest));
        Ok(LogQueue { logger, alarm })
    }

    /// Changes all that [`LogQueue::start`] was given.
    pub fn configure(&self, subject: &str, lowest: u64, destination: Destination) {
        let mut form = self.logger.form();
        form.destination = destination;
        subject.clone_into(&mut form.subject);
        ::log::set_max_level(filter(lowest));
    }

    /// Has the lines until now written, and later ones into this file in the place of stderr.
    /// Does not wait for that.
    pub fn leave_stderr(&self, file: File) {
        match &mut *self.logger.idle() {
            Some(thread) => thread.stderr.replace_file(file),
            None => {
                *self.logger.next_file() = Some(file);
                self.logger.wake();
            }
        }
    }

    /// Waits until all lines are written, for half a second at the longest.
    pub fn flush(&self) {
        let (logger, now) = (&self.logger, sys::now());
        logger.count_left_out(&mut logger.form(), now, true);
        if logger.idle().is_some() {
            // There was no line.
            return;
        }
        logger.written.clear();
        logger.wake();
        let fds = [(logger.written.as_fd(), PollFlags::IN)];
        // A wait that fails is a short wait.
        let _ = self.alarm.wait(fds, Some(now.after(FLUSH_WITHIN)));
    }
}

impl Drop for LogQueue {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Returns the levels down to the lowest.
fn filter(lowest: u64) -> LevelFilter {
    let mut filters = LevelFilter::iter();
    filters.find(|filter| *filter as u64 == lowest).unwrap_or(LevelFilter::Trace)
}

/// Writes the lines, and waits for their reader.
struct LogThread {
    logger: Arc<Logger>,
    queued: Receiver<Queued>,
    syslog: SyslogSocket,
    stderr: Stderr,
}

impl LogThread {
    fn work(mut self) {
        let mut lost = LostLines::default();
        while let Ok((destination, line)) = self.queued.recv() {
            panic_if_asked("putex-log");
            if let Err(error) = self.write(destination, &line) {
                lost.add(1, &error);
            }
            let unread = self.logger.unread.swap(0, Relaxed);
            if unread > 0 {
                lost.add(unread, &ErrorKind::WouldBlock.into());
            }
            let flushed = self.queued.is_empty() && self.logger.flushing.swap(false, Relaxed);
            let now = sys::now();
            if let Some(text) = lost.text(now, flushed) {
                let (destination, line) = self.logger.form().line(Level::Warn, None, &text);
                if self.write(destination, &line).is_ok() {
                    lost.counted(now);
                }
            }
            if flushed {
                if let Some(next) = self.logger.next_file().take() {
                    self.stderr.replace_file(next);
                }
                self.logger.written.wake();
            }
        }
    }

    /// A line that syslog does not take goes to stderr.
    fn write(&mut self, destination: Destination, line: &[u8]) -> io::Result<()> {
        if destination != Destination::Syslog {
            return self.write_stderr(line);
        }
        let taken = self.syslog.send(line) || {
            self.syslog.wait_for_room();
            self.syslog.send(line)
        };
        if taken { Ok(()) } else { self.write_stderr(&without_priority(line)) }
    }

    /// The process that writes the file for a guard may have been killed: then another does.
    fn write_stderr(&mut self, line: &[u8]) -> io::Result<()> {
        match self.stderr.write_line(line) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.stderr.open_again()?;
                self.stderr.write_line(line)
            }
            written => written,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, PipeReader};
    use std::os::fd::OwnedFd;

    use super::*;

    /// A log that writes into a pipe.
    fn log_into_pipe() -> (LogQueue, PipeReader) {
        let (reader, writer) = io::pipe().expect("a pipe");
        let (logger, queued) = Logger::new("web", Destination::Pipe).expect("a descriptor");
        let stderr = Stderr::new(OwnedFd::from(writer).into(), None);
        let syslog = SyslogSocket::default();
        let thread = LogThread { logger: Arc::clone(&logger), queued, syslog, stderr };
        thread::spawn(move || thread.work());
        (LogQueue { logger, alarm: Alarm::new().expect("a timer") }, reader)
    }

    fn say(log: &LogQueue, text: &str) {
        log.logger.line(&log.logger.form(), Level::Info, None, text);
    }

    /// Ends the log and returns all that it has written.
    fn end(log: LogQueue, reader: PipeReader) -> String {
        let reading = thread::spawn(move || {
            let mut text = String::new();
            let mut reader = BufReader::new(reader);
            while !text.ends_with(": end\n") {
                reader.read_line(&mut text).expect("it is text");
            }
            text
        });
        log.flush();
        // It is full until it is read.
        while log.logger.queue.is_full() {
            log.flush();
        }
        say(&log, "end");
        drop(log);
        reading.join().expect("it reads").replace("putex: web: end\n", "")
    }

    #[test]
    fn commands_leave_room_for_lines_of_putex() {
        let (logger, queued) = Logger::new("web", Destination::Pipe).expect("a descriptor");
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
            logger.line(&logger.form(), Level::Info, None, "standby -> taking");
        }
        assert_eq!(logger.unread.load(Relaxed), 0);
        assert_eq!(queued.len(), LINES_MAX);
        // 100 at once, then 20 a second, with a count before the next.
        let said: Vec<_> = queued.try_iter().take(122).map(text).collect();
        assert_eq!(said[99], "putex: web: start: start writes much\n");
        let count = "putex: web: warning: start: 924 lines of output were left out: more than \
                     20 lines or 8 KiB a second\n";
        assert_eq!(said[100], count);
        assert_eq!(said[101], "putex: web: start: start writes much\n");
        assert!(said[121].contains("1004 lines"), "{}", said[121]);
    }

    fn text((_, line): Queued) -> String {
        String::from_utf8(line).expect("it is text")
    }

    #[test]
    fn a_reader_that_does_not_read_drops_lines_and_holds_nobody_up() {
        let (log, reader) = log_into_pipe();
        let long = "x".repeat(1000);
        while log.logger.unread.load(Relaxed) == 0 {
            say(&log, &long);
        }
        let since = sys::now();
        log.flush();
        assert!(sys::now().since(since) >= FLUSH_WITHIN);
        let text = end(log, reader);
        let counts = text.matches("putex: web: warning: 1 log lines were dropped: the log was");
        assert_eq!(counts.count(), 1, "{text}");
    }

    #[test]
    fn output_that_was_left_out_is_counted_by_the_second_and_at_the_end() {
        let (log, reader) = log_into_pipe();
        let at = |ms| Instant::from_boot(Duration::from_millis(ms));
        for number in 0..150 {
            log.logger.command_output(Command::Start, "line\r", at(number));
        }
        log.logger.count_left_out(&mut log.logger.form(), at(999), false);
        say(&log, "not counted yet");
        log.logger.count_left_out(&mut log.logger.form(), at(1000), false);
        for _ in 0..21 {
            log.logger.command_output(Command::Start, "x\x1b[2J", at(1001));
        }
        let count = |lines| {
            format!(
                "putex: web: warning: start: {lines} lines of output were left out: more than \
                 20 lines or 8 KiB a second\n"
            )
        };
        let first = "putex: web: start: line\n".repeat(100) + "putex: web: not counted yet\n";
        let rest = "putex: web: start: x?[2J\n".repeat(20) + &count(1);
        assert_eq!(end(log, reader), first + &count(50) + &rest);
    }

    #[test]
    fn levels_have_their_numbers() {
        assert_eq!(filter(1), LevelFilter::Error);
        assert_eq!(filter(4), LevelFilter::Debug);
        assert_eq!(filter(u64::MAX), LevelFilter::Trace);
    }
}
