//! The log of a process: env_logger decides which lines are logged, [`Destination`] gives them
//! their form, a queue keeps them, and a thread writes them. Nobody waits for the queue: a reader
//! that stops reading costs lines, which are counted, and nothing else.

use std::env;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ::log::{Level, LevelFilter};
use crossbeam_channel::{Receiver, Sender, bounded};
use env_logger::{Logger, Target};

use super::fatal::panic_if_asked;
use super::format::Destination;
use super::syslog::{SyslogSocket, without_priority};
use crate::core::Command;
use crate::sys::{self, Waker, raw};

/// Lines that may wait for stderr. At a few lines a failover, many failovers.
const LINES_MAX: usize = 1024;

/// Lines of these that are not of commands: they have room however much commands write.
const OWN_LINES: usize = 256;

/// How long an ending process waits for its last lines to be written.
const FLUSH_WITHIN: Duration = Duration::from_millis(500);

/// Logs a line of a command's output. Its target is the name of the command.
pub(crate) fn command_output(command: Command, line: &[u8]) {
    ::log::info!(target: command.name(), "{}", String::from_utf8_lossy(line));
}

/// The log of a process. When it is dropped, it waits for its last lines as
/// [`LogQueue::flush`] does.
pub struct LogQueue {
    /// Where the log goes.
    pub destination: Destination,
    shared: Arc<Shared>,
}

/// State shared by the threads that log and the thread that writes.
struct Shared {
    queue: Sender<Vec<u8>>,
    /// Lines that were dropped, and that no line has counted yet: the queue had no room, or they
    /// could not be written.
    dropped: AtomicU64,
    /// Somebody waits until the queue is empty.
    flushing: AtomicBool,
    /// stderr is left as soon as the queue is empty.
    leaving: AtomicBool,
    /// All lines are written.
    written: Waker,
}

impl Shared {
    /// Returns whether there is room for a line of a command, or of the program's own.
    fn has_room(&self, from: Option<Command>) -> bool {
        let kept = if from.is_some() { OWN_LINES } else { 0 };
        self.queue.len() + kept < LINES_MAX
    }

    /// Has the thread flush, or leave stderr, when the queue is empty.
    fn wake(&self) {
        // An empty line wakes the thread; where there is no room for it, the thread is awake.
        let _ = self.queue.try_send(Vec::new());
    }
}

impl LogQueue {
    /// Takes the process's log over. `subject` stands in every line: the key. No line below the
    /// lowest level is written, 1 errors, 2 warnings, and so on, but for those that `RUST_LOG`
    /// decides on.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or no thread to give, or the process has a log.
    pub fn start(subject: &str, lowest: u64, destination: Destination) -> io::Result<LogQueue> {
        let stderr = io::stderr().as_fd().try_clone_to_owned()?;
        let directives = env::var("RUST_LOG").unwrap_or_default();
        let level = filter(lowest);
        let (log, logger) =
            LogQueue::begin(subject, destination, level, &directives, stderr.into())?;
        let max = logger.filter();
        ::log::set_boxed_logger(Box::new(logger)).map_err(io::Error::other)?;
        ::log::set_max_level(max);
        Ok(log)
    }

    /// Starts the thread of a log that the process does not use yet, and returns the logger that
    /// chooses the lines and puts them into the queue.
    fn begin(
        subject: &str,
        destination: Destination,
        level: LevelFilter,
        directives: &str,
        stderr: File,
    ) -> io::Result<(LogQueue, Logger)> {
        let (queue, queued) = bounded(LINES_MAX);
        let shared = Arc::new(Shared {
            queue,
            dropped: AtomicU64::new(0),
            flushing: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            written: Waker::new()?,
        });
        let thread = LogThread {
            shared: Arc::clone(&shared),
            queued,
            destination,
            subject: subject.to_owned(),
            syslog: SyslogSocket::default(),
            stderr: Some(stderr),
        };
        sys::start_small_thread("putex-log", move || thread.work())?;
        let mut builder = env_logger::Builder::new();
        builder.filter_level(level).parse_filters(directives);
        // The form of a line puts it into the queue itself.
        builder.target(Target::Pipe(Box::new(io::sink())));
        let (subject, form_shared) = (subject.to_owned(), Arc::clone(&shared));
        builder.format(move |_, record| {
            let mut commands = Command::ALL.into_iter();
            let from = commands.find(|command| command.name() == record.target());
            let line = || {
                let text = record.args().to_string();
                destination.line(&subject, record.level(), from, &text)
            };
            if !form_shared.has_room(from) || form_shared.queue.try_send(line()).is_err() {
                form_shared.dropped.fetch_add(1, Relaxed);
            }
            Ok(())
        });
        Ok((LogQueue { destination, shared }, builder.build()))
    }

    /// Has stderr left after the lines until now; later ones are not written. Does not wait.
    pub fn leave_stderr(&self) {
        self.shared.leaving.store(true, Relaxed);
        self.shared.wake();
    }

    /// Waits until all lines are written, for half a second at the longest.
    pub fn flush(&self) {
        let Shared { flushing, written, .. } = &*self.shared;
        written.clear();
        flushing.store(true, Relaxed);
        self.shared.wake();
        sys::is_ready_soon(written, FLUSH_WITHIN);
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
    shared: Arc<Shared>,
    queued: Receiver<Vec<u8>>,
    destination: Destination,
    /// The key, which stands in every line.
    subject: String,
    syslog: SyslogSocket,
    /// `None` when it was left.
    stderr: Option<File>,
}

impl LogThread {
    fn work(mut self) {
        let is_file = |file: &&File| file.metadata().is_ok_and(|metadata| metadata.is_file());
        // The disk of a file may hang.
        if let Some(file) = self.stderr.as_ref().filter(is_file) {
            // A panic of this thread is written to stderr itself.
            let stderr = io::stderr();
            raw::keep_only(&[stderr.as_fd(), file.as_fd(), self.shared.written.as_fd()]);
        }
        while let Ok(line) = self.queued.recv() {
            panic_if_asked("putex-log");
            if self.write(&line).is_err() {
                self.shared.dropped.fetch_add(1, Relaxed);
            }
            let is_empty = self.queued.is_empty();
            let flushed = is_empty && self.shared.flushing.swap(false, Relaxed);
            let dropped = self.shared.dropped.load(Relaxed);
            if dropped > 0 && is_empty {
                let text = format!("{dropped} log lines were dropped");
                let line = self.destination.line(&self.subject, Level::Warn, None, &text);
                if self.write(&line).is_ok() {
                    self.shared.dropped.fetch_sub(dropped, Relaxed);
                }
            }
            if is_empty && self.shared.leaving.load(Relaxed) {
                self.stderr = None;
            }
            if flushed {
                self.shared.written.wake();
            }
        }
    }

    /// A line that syslog does not take goes to stderr.
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.destination != Destination::Syslog {
            return self.write_stderr(line);
        }
        let taken = self.syslog.send(line) || {
            self.syslog.wait_for_room();
            self.syslog.send(line)
        };
        if taken { Ok(()) } else { self.write_stderr(&without_priority(line)) }
    }

    fn write_stderr(&mut self, line: &[u8]) -> io::Result<()> {
        self.stderr.as_mut().map_or(Ok(()), |stderr| stderr.write_all(line))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, PipeReader};
    use std::os::fd::OwnedFd;
    use std::thread;

    use ::log::{Log, Record};

    use super::*;

    /// A log that writes into a pipe, with the directives of `RUST_LOG`.
    struct Piped {
        log: LogQueue,
        logger: Logger,
        reader: PipeReader,
    }

    impl Piped {
        fn new(directives: &str) -> Piped {
            let (reader, writer) = io::pipe().expect("a pipe");
            let stderr = OwnedFd::from(writer).into();
            let (destination, level) = (Destination::Pipe, LevelFilter::Info);
            let (log, logger) = LogQueue::begin("web", destination, level, directives, stderr)
                .expect("a descriptor and a thread");
            Piped { log, logger, reader }
        }

        fn say(&self, target: &str, level: Level, text: &str) {
            let mut record = Record::builder();
            self.logger
                .log(&record.target(target).level(level).args(format_args!("{text}")).build());
        }

        /// Logs long lines until one of them has no room.
        fn fill(&self, target: &str) {
            let long = "x".repeat(1000);
            let dropped = || self.log.shared.dropped.load(Relaxed);
            while dropped() == 0 {
                self.say(target, Level::Info, &long);
            }
        }

        /// Ends the log and returns all that it has written.
        fn end(self) -> String {
            let mut reader = BufReader::new(self.reader.try_clone().expect("a descriptor"));
            let reading = thread::spawn(move || {
                let mut text = String::new();
                while !text.ends_with(": end\n") {
                    reader.read_line(&mut text).expect("it is text");
                }
                text
            });
            self.log.flush();
            // The queue is full until its lines are read.
            while self.log.shared.queue.is_full() {
                self.log.flush();
            }
            self.say("putex", Level::Error, "end");
            drop(self.log);
            reading.join().expect("it reads").replace("putex: web: error: end\n", "")
        }
    }

    #[test]
    fn commands_leave_room_for_lines_of_putex() {
        let piped = Piped::new("");
        piped.fill("start");
        let dropped = &piped.log.shared.dropped;
        let before = dropped.load(Relaxed);
        for _ in 0..OWN_LINES {
            piped.say("putex", Level::Info, "standby -> taking");
        }
        assert_eq!(dropped.load(Relaxed), before);
        assert!(!piped.log.shared.has_room(Some(Command::Stop)));
        let text = piped.end();
        assert_eq!(text.matches("putex: web: standby -> taking\n").count(), OWN_LINES);
        assert!(text.contains("putex: web: start: xxx"), "{text}");
    }

    #[test]
    fn a_reader_that_does_not_read_drops_lines_and_holds_nobody_up() {
        let piped = Piped::new("");
        piped.fill("putex");
        let since = sys::now();
        piped.log.flush();
        assert!(sys::now().since(since) >= FLUSH_WITHIN);
        let text = piped.end();
        let counts = text.matches("putex: web: warning: 1 log lines were dropped\n");
        assert_eq!(counts.count(), 1, "{text}");
    }

    #[test]
    fn rust_log_decides_on_what_it_names() {
        let all = |piped: Piped| {
            for (target, level) in [
                ("putex::agent", Level::Debug),
                ("putex::agent", Level::Info),
                ("healthcheck", Level::Info),
                ("start", Level::Info),
            ] {
                piped.say(target, level, "said");
            }
            piped.end()
        };
        let of_start = "putex: web: start: said\n";
        let of_agent = "putex: web: said\n";
        let of_check = "putex: web: healthcheck: said\n";
        let debug = "putex: web: debug: said\n";
        assert_eq!(all(Piped::new("")), [of_agent, of_check, of_start].concat());
        assert_eq!(all(Piped::new("healthcheck=off")), [of_agent, of_start].concat());
        assert_eq!(all(Piped::new("warn,start=info")), of_start);
        let every = [debug, of_agent, of_check, of_start].concat();
        assert_eq!(all(Piped::new("putex=debug")), every);
    }

    /// The renewer of a lock outlives its command, whose caller may wait for the end of stderr.
    #[test]
    fn a_log_that_leaves_stderr_writes_what_was_said_before() {
        let piped = Piped::new("");
        piped.say("putex", Level::Info, "one");
        piped.log.leave_stderr();
        let text = io::read_to_string(&piped.reader).expect("it ends");
        assert_eq!(text, "putex: web: one\n");
        piped.say("putex", Level::Info, "two");
    }

    #[test]
    fn levels_have_their_numbers() {
        assert_eq!(filter(1), LevelFilter::Error);
        assert_eq!(filter(4), LevelFilter::Debug);
        assert_eq!(filter(u64::MAX), LevelFilter::Trace);
    }
}
