//! The child thread: runs the operator's commands, each in a process group of its
//! own, passes their output on line by line, and reaps them.
//!
//! Each command has one pipe for the whole life of the agent, so a service that
//! kept the start command's output open goes on writing into it, and nothing has
//! to be opened for a stroke.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags};

use super::inbox::Post;
use super::watchdog::Watchdog;
use crate::core::event::{Command, Event, Outcome, Run};
use crate::core::timing::Instant;
use crate::sys::{self, Waker};

/// The pump has one instance of each command under way; twice that is room enough.
const RUNS_MAX: usize = 6;

/// A longer line of output is passed on in pieces of this many bytes.
const LINE_MAX: usize = 4096;

/// How much output is taken at once, so that a command that floods its pipe cannot
/// keep the thread from the others.
const GULP: usize = 16 * 1024;

/// What must not be handed to a command: it holds secrets, or may.
const SECRETS: [&str; 5] = [
    "NATS_URL",
    "NATS_USER",
    "NATS_PASSWORD",
    "NATS_TOKEN",
    "NATS_CREDS",
];

/// The operator's commands and what each is told.
pub(super) struct Commands {
    pub(super) check: Option<String>,
    pub(super) start: String,
    pub(super) stop: String,
    pub(super) key: String,
    pub(super) token: String,
}

/// The pump's end of the child thread.
pub(super) struct Children {
    runs: Sender<Run>,
    waker: Arc<Waker>,
}

impl Children {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When the system has no pipe, descriptor or thread to give.
    pub(super) fn start(
        commands: Commands,
        watchdog: Arc<Watchdog>,
        post: Post,
    ) -> io::Result<Children> {
        let (runs, asked) = bounded(RUNS_MAX);
        let waker = Arc::new(Waker::new()?);
        let seats = [
            Seat::new(Command::Check)?,
            Seat::new(Command::Start)?,
            Seat::new(Command::Stop)?,
        ];
        let nursery = Nursery {
            commands,
            seats,
            watchdog,
            asked,
            waker: Arc::clone(&waker),
            post,
            nothing: File::open("/dev/null")?,
        };
        thread::Builder::new()
            .name("putex-child".to_owned())
            .spawn(move || nursery.work())?;
        Ok(Children { runs, waker })
    }

    /// Asks for a command without waiting; says whether there was room.
    pub(super) fn run(&self, run: Run) -> bool {
        let room = self.runs.try_send(run).is_ok();
        self.waker.wake();
        room
    }
}

struct Nursery {
    commands: Commands,
    seats: [Seat; 3],
    watchdog: Arc<Watchdog>,
    asked: Receiver<Run>,
    waker: Arc<Waker>,
    post: Post,
    /// What every command reads.
    nothing: File,
}

/// One command: its pipe, and its process while one runs.
struct Seat {
    command: Command,
    output: PipeReader,
    /// Kept open, so that the pipe never ends.
    input: PipeWriter,
    partial: Vec<u8>,
    process: Option<Process>,
}

struct Process {
    child: Child,
    exit: OwnedFd,
}

impl Seat {
    fn new(command: Command) -> io::Result<Seat> {
        let (output, input) = io::pipe()?;
        rustix::io::ioctl_fionbio(&output, true)?;
        Ok(Seat {
            command,
            output,
            input,
            partial: Vec::new(),
            process: None,
        })
    }

    /// Passes on what the command has said, whole lines of it. At most a gulp.
    fn pass_on(&mut self) {
        let mut gulp = [0; GULP];
        let Ok(count) = self.output.read(&mut gulp) else {
            return;
        };
        self.partial.extend_from_slice(&gulp[..count]);
        let mut rest = self.partial.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            say_line(self.command, &rest[..end]);
            rest = &rest[end + 1..];
        }
        while rest.len() > LINE_MAX {
            say_line(self.command, &rest[..LINE_MAX]);
            rest = &rest[LINE_MAX..];
        }
        let left = rest.len();
        self.partial.drain(..self.partial.len() - left);
    }

    /// The command has ended: what is left in the pipe is its last word.
    fn flush(&mut self) {
        self.pass_on();
        if !self.partial.is_empty() {
            say_line(self.command, &self.partial);
            self.partial.clear();
        }
    }
}

fn say_line(command: Command, line: &[u8]) {
    let line = String::from_utf8_lossy(line);
    log::info!(target: command.name(), "{}", line.trim_end_matches('\r'));
}

impl Nursery {
    fn work(mut self) {
        loop {
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(error) => {
                    log::error!("cannot wait for commands: {error}");
                    [true, true, true, true, false, false, false]
                }
            };
            if ready[0] {
                self.waker.clear();
                while let Ok(run) = self.asked.try_recv() {
                    self.spawn(&run);
                }
            }
            for (at, seat) in self.seats.iter_mut().enumerate() {
                if ready[1 + at] {
                    seat.pass_on();
                }
                if ready[4 + at]
                    && let Some(outcome) = reap(seat, &self.watchdog)
                    && self
                        .post
                        .tell(Event::Ended(seat.command, outcome))
                        .is_none()
                {
                    return;
                }
            }
        }
    }

    /// Waits for a request, output or the end of a command. In this order: waker,
    /// three pipes, three processes.
    fn wait(&self) -> io::Result<[bool; 7]> {
        let mut fds = Vec::with_capacity(7);
        fds.push(PollFd::from_borrowed_fd(self.waker.as_fd(), PollFlags::IN));
        for seat in &self.seats {
            fds.push(PollFd::from_borrowed_fd(seat.output.as_fd(), PollFlags::IN));
        }
        let mut places = Vec::with_capacity(3);
        for (at, seat) in self.seats.iter().enumerate() {
            if let Some(process) = &seat.process {
                places.push(4 + at);
                fds.push(PollFd::from_borrowed_fd(
                    process.exit.as_fd(),
                    PollFlags::IN,
                ));
            }
        }
        sys::poll(&mut fds)?;
        let mut ready = [false; 7];
        for (at, fd) in fds.iter().enumerate() {
            let place = if at < 4 { at } else { places[at - 4] };
            ready[place] = !fd.revents().is_empty();
        }
        Ok(ready)
    }

    fn spawn(&mut self, run: &Run) {
        // This thread may have been held up since the pump asked. What comes too
        // late to be allowed is not begun; a stop is never too late.
        if run.command != Command::Stop && self.watchdog.is_over(run.command) {
            let overran = Event::Ended(run.command, Outcome::Overran);
            // The pump has ended when it does not listen.
            let _ = self.post.tell(overran);
            return;
        }
        let spawned = self.try_spawn(run);
        let seat = &mut self.seats[run.command as usize];
        match spawned {
            Ok(process) => {
                // A process number is positive and fits.
                let group = i32::try_from(process.child.id()).unwrap_or(0);
                seat.process = Some(process);
                self.watchdog.started(run.command, group);
            }
            Err(error) => {
                let outcome = Outcome::Failed(format!("it could not be run: {error}"));
                // The pump has ended when it does not listen.
                let _ = self.post.tell(Event::Ended(run.command, outcome));
            }
        }
    }

    fn try_spawn(&self, run: &Run) -> io::Result<Process> {
        let seat = &self.seats[run.command as usize];
        let mut command = self.prepare(run, sys::now());
        command.stdin(self.nothing.try_clone()?);
        command.stdout(seat.input.try_clone()?);
        command.stderr(seat.input.try_clone()?);
        let mut child = command.process_group(0).spawn()?;
        let pid = Pid::from_child(&child);
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(exit) => Ok(Process { child, exit }),
            Err(error) => {
                // Without it the end would go unnoticed: better not run at all.
                let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
                let _ = child.wait();
                Err(error.into())
            }
        }
    }

    /// `sh -c COMMAND NAME ROLE` with what the command is told in its environment.
    fn prepare(&self, run: &Run, now: Instant) -> std::process::Command {
        let script = match run.command {
            Command::Check => self.commands.check.as_deref().unwrap_or("true"),
            Command::Start => &self.commands.start,
            Command::Stop => &self.commands.stop,
        };
        let mut command = std::process::Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(script)
            .arg(run.command.name())
            .arg(run.role.to_string());
        for secret in SECRETS {
            command.env_remove(secret);
        }
        command.env("PUTEX_KEY", &self.commands.key);
        command.env("PUTEX_TOKEN", &self.commands.token);
        command.env("PUTEX_ROLE", run.role.to_string());
        let left_ms = run.deadline.since(now).as_millis();
        let term = run.term.map(|term| term.to_string());
        let told = [
            // A start may take as long as the lock is renewed: it has no deadline.
            (
                "PUTEX_DEADLINE_MS",
                (run.command != Command::Start).then(|| left_ms.to_string()),
            ),
            ("PUTEX_STARTING", run.starting.then(|| "1".to_owned())),
            ("PUTEX_TERM", term),
            ("PUTEX_EPOCH", run.epoch.clone()),
            ("PUTEX_PREVIOUS", run.previous.clone()),
        ];
        for (name, value) in told {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }
}

/// Reaps a process that has ended, with what it leaves in its group if it was
/// killed; says how it ended.
fn reap(seat: &mut Seat, watchdog: &Watchdog) -> Option<Outcome> {
    let mut process = seat.process.take()?;
    let group = i32::try_from(process.child.id()).unwrap_or(0);
    // The leader is not reaped yet, so the group's number is still its own.
    let killed = watchdog.ended(seat.command, group);
    if killed {
        // What joined the group after the watchdog's kill goes with it.
        let pid = Pid::from_child(&process.child);
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
    let status = process.child.wait();
    seat.flush();
    Some(match status {
        _ if killed => Outcome::Overran,
        Ok(status) if status.success() => Outcome::Succeeded,
        Ok(status) => Outcome::Failed(describe(status)),
        Err(error) => Outcome::Failed(format!("its end could not be read: {error}")),
    })
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(127), _) => "exit status 127 (command not found)".to_owned(),
        (Some(126), _) => "exit status 126 (command not executable)".to_owned(),
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}
