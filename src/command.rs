//! The operator's commands as processes: what each is told, and how it is run,
//! released, killed and reaped. The agent runs the health check, its guard the others.
//!
//! Each command has one pipe for the whole life of who runs it, so a service that
//! kept the start command's output open goes on writing into it, and nothing has
//! to be opened for a stroke.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::core::command::{Command, Outcome, Run};
use crate::core::time::Instant;
use crate::sys::{self, raw};

/// A longer line of output is passed on in pieces of this many bytes: each has room in a line
/// of the log.
const LINE_MAX: usize = 3072;

/// How much output is read at once, so that a command that floods its pipe cannot
/// keep the thread from the others.
const READ_MAX: u64 = 16 * 1024;

/// What must not be handed to a command: it holds secrets, or may.
const SECRETS: [&str; 9] = [
    "NATS_URL",
    "NATS_USER",
    "NATS_PASSWORD",
    "NATS_TOKEN",
    "NATS_CREDS",
    "NATS_NKEY",
    "NATS_JWT",
    "NATS_SEED",
    "NATS_KEY",
];

/// What the service manager said to the agent alone: whoever else used it would
/// speak, or be taken, for the agent.
const AGENTS_OWN: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
];

/// What says that stderr is the journal: it is the guard's too, but no command's.
const JOURNAL: &str = "JOURNAL_STREAM";

/// Precedes a script that waits for its release: the script ends unbegun when the process
/// that spawned it has died before that.
const WAIT_FOR_RELEASE: &str = "read -r _ || exit 125; exec </dev/null; ";

/// A command that can be spawned.
#[derive(Debug)]
pub struct Prepared {
    command: std::process::Command,
    /// The script waits for its release.
    waits: bool,
    /// It gets a session of its own: the service is not scheduled like the guard. That costs
    /// a copy of the process that spawns it.
    pub own_session: bool,
}

#[cfg(any(test, fuzzing))]
impl Prepared {
    /// Returns the variables that the command is given, or, without a value, denied.
    pub fn variables(&self) -> std::process::CommandEnvs<'_> {
        self.command.get_envs()
    }
}

/// The operator's commands and what all of them are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commands {
    /// Health check, if there is one.
    #[serde(skip)]
    pub check: Option<String>,
    /// Start command.
    pub start: String,
    /// Stop command.
    pub stop: String,
    /// Last resort, if there is one.
    pub last_resort: Option<String>,
    /// The key.
    pub key: String,
    /// The agent's token.
    pub token: String,
}

impl Commands {
    fn script(&self, command: Command) -> &str {
        match command {
            Command::Check => self.check.as_deref().unwrap_or("true"),
            Command::Start => &self.start,
            Command::Stop => &self.stop,
            Command::LastResort => self.last_resort.as_deref().unwrap_or("true"),
        }
    }

    /// Returns `sh -c COMMAND NAME ROLE` with what the command is told in its environment.
    /// `cgroup_entry` is a script that enters a control group first.
    #[must_use]
    pub fn prepare(&self, run: &Run, cgroup_entry: Option<&str>, now: Instant) -> Prepared {
        let waits = run.command != Command::Check;
        let wait = if waits { WAIT_FOR_RELEASE } else { "" };
        let script = self.script(run.command);
        let mut command = std::process::Command::new("/bin/sh");
        command.arg("-c");
        if let Some(entry) = cgroup_entry {
            command.arg(entry).arg("putex");
        }
        command.arg(format!("{wait}{script}")).arg(run.command.name()).arg(run.role.to_string());
        remove_secrets(&mut command);
        remove_agents_own(&mut command);
        command.env_remove(JOURNAL);
        command.env("PUTEX_KEY", &self.key);
        command.env("PUTEX_TOKEN", &self.token);
        command.env("PUTEX_ROLE", run.role.to_string());
        let left_ms = run.deadline.since(now).as_millis();
        let told = [
            // A start may take as long as the lock is renewed: it has no deadline.
            ("PUTEX_DEADLINE_MS", (run.command != Command::Start).then(|| left_ms.to_string())),
            ("PUTEX_STARTING", run.starting.then(|| "1".to_owned())),
            ("PUTEX_TERM", run.context.term.map(|term| term.to_string())),
            ("PUTEX_EPOCH", run.context.epoch.clone()),
            ("PUTEX_PREVIOUS", run.context.previous.clone()),
        ];
        for (name, value) in told {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Prepared { command, waits, own_session: false }
    }
}

/// Takes what holds secrets, or may, out of a command's environment.
pub fn remove_secrets(command: &mut std::process::Command) {
    for secret in SECRETS {
        command.env_remove(secret);
    }
}

/// Takes what is meant for the agent alone out of the environment of a command or of
/// the guard.
pub fn remove_agents_own(command: &mut std::process::Command) {
    for name in AGENTS_OWN {
        command.env_remove(name);
    }
}

/// The pipe that a command writes its output to.
#[derive(Debug)]
pub struct OutputPipe {
    command: Command,
    reader: PipeReader,
    /// Kept open, so that the pipe never ends.
    writer: PipeWriter,
    partial: Vec<u8>,
}

impl OutputPipe {
    /// Makes the pipe of a command, or goes on with the reading end of one.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub fn new(command: Command, reader: Option<OwnedFd>) -> io::Result<OutputPipe> {
        let (reader, writer) = match reader {
            None => io::pipe()?,
            Some(reader) => {
                let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
                let writer = File::options().write(true).open(path)?;
                (reader.into(), OwnedFd::from(writer).into())
            }
        };
        rustix::io::ioctl_fionbio(&reader, true)?;
        Ok(OutputPipe { command, reader, writer, partial: Vec::new() })
    }

    /// Returns the command.
    #[must_use]
    pub fn command(&self) -> Command {
        self.command
    }

    /// Returns another writing end.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub fn writer(&self) -> io::Result<PipeWriter> {
        self.writer.try_clone()
    }

    /// Passes on the output that is there, whole lines of it. At most `READ_MAX` bytes.
    pub fn pass_on(&mut self, line: &mut dyn FnMut(Command, &[u8])) {
        // What was read before the pipe was empty is kept.
        let _ = self.reader.by_ref().take(READ_MAX).read_to_end(&mut self.partial);
        let mut rest = self.partial.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            line(self.command, &rest[..end]);
            rest = &rest[end + 1..];
        }
        while rest.len() > LINE_MAX {
            line(self.command, &rest[..LINE_MAX]);
            rest = &rest[LINE_MAX..];
        }
        let left = rest.len();
        self.partial.drain(..self.partial.len() - left);
    }

    /// The command has ended: passes on what is left in the pipe.
    pub fn flush(&mut self, line: &mut dyn FnMut(Command, &[u8])) {
        self.pass_on(line);
        if !self.partial.is_empty() {
            line(self.command, &self.partial);
            self.partial.clear();
        }
    }
}

impl AsFd for OutputPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

/// A command that was spawned, with its process group.
#[derive(Debug)]
pub struct Process {
    child: Child,
    exit: Arc<OwnedFd>,
    release: Option<PipeWriter>,
}

impl Process {
    /// Runs a prepared command in a process group of its own, with its output into `output`.
    /// A command that waits for its release has not begun yet; another one reads nothing.
    ///
    /// # Errors
    ///
    /// When the system has no process or descriptor to give.
    pub fn spawn(mut prepared: Prepared, output: &PipeWriter) -> io::Result<Process> {
        let command = &mut prepared.command;
        let release = if prepared.waits {
            let (reader, writer) = io::pipe()?;
            command.stdin(reader);
            Some(writer)
        } else {
            command.stdin(Stdio::null());
            raw::with_signals(command);
            None
        };
        command.stdout(output.try_clone()?);
        command.stderr(output.try_clone()?);
        if prepared.own_session {
            raw::in_new_session(command);
        } else {
            command.process_group(0);
        }
        let mut child = command.spawn()?;
        let group = Pid::from_child(&child);
        match rustix::process::pidfd_open(group, PidfdFlags::empty()) {
            Ok(exit) => Ok(Process { child, exit: Arc::new(exit), release }),
            Err(error) => {
                // Without it the end would go unnoticed: better not run at all.
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
                let _ = child.wait();
                Err(error.into())
            }
        }
    }

    /// Returns the process group; its number is also the process's own.
    #[must_use]
    pub fn group(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Returns what becomes readable when the process has ended.
    #[must_use]
    pub fn exit(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.exit)
    }

    /// Returns whether the process has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        sys::is_ready(&self.exit)
    }

    /// Lets a command begin that waits for its release.
    pub fn release(&mut self) {
        if let Some(mut release) = self.release.take() {
            // A process that was killed meanwhile reads nothing.
            let _ = release.write_all(b"\n");
        }
    }

    /// Kills the process with its group. A process may have left its group.
    pub fn kill(&self) {
        // Not reaped yet, so the number is still its own.
        let _ = rustix::process::kill_process_group(self.group(), Signal::KILL);
        let _ = rustix::process::pidfd_send_signal(&self.exit, Signal::KILL);
    }

    /// Reaps a process that has ended, with what it leaves in its group if it was
    /// killed; returns how it ended.
    #[must_use]
    pub fn reap(mut self, killed: bool) -> Outcome {
        if killed {
            // What joined the group after the first kill goes with it.
            self.kill();
        }
        match self.child.wait() {
            _ if killed => Outcome::Overran,
            Ok(status) if status.success() => Outcome::Succeeded,
            Ok(status) => Outcome::Failed(describe(status)),
            Err(error) => Outcome::Failed(format!("its end could not be read: {error}")),
        }
    }
}

impl AsFd for Process {
    /// Becomes readable when the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.exit.as_fd()
    }
}

/// Says how a process has ended.
#[must_use]
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(127), _) => "exit status 127 (command not found)".to_owned(),
        (Some(126), _) => "exit status 126 (command not executable)".to_owned(),
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}
