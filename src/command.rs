//! The operator's commands as processes: what each is told, and how it is run,
//! heard, killed and reaped. The agent runs all of them, its guard the last two.
//!
//! Each command has one pipe for the whole life of who runs it, so a service that
//! kept the start command's output open goes on writing into it, and nothing has
//! to be opened for a stroke.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus};

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::core::command::{Command, Outcome, Run};
use crate::core::time::Instant;
use crate::sys;

/// A longer line of output is passed on in pieces of this many bytes: each has room in a line
/// of the log.
const LINE_MAX: usize = 3072;

/// How much output is taken at once, so that a command that floods its pipe cannot
/// keep the thread from the others.
const GULP: usize = 16 * 1024;

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

/// What stands before a script that waits for leave: whoever started it has told
/// the guard by then, or has died, and then the script ends unbegun.
const WAIT_FOR_LEAVE: &str = "read -r _ || exit 125; exec </dev/null; ";

/// The operator's commands and what all of them are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commands {
    /// Health check, if there is one.
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

    /// Returns `sh -c COMMAND NAME ROLE` with what the command is told in its
    /// environment. All but the check wait for leave. `door` is a script that enters a control
    /// group first.
    #[must_use]
    pub fn prepare(&self, run: &Run, door: Option<&str>, now: Instant) -> std::process::Command {
        let leave = if waits_for_leave(run.command) {
            WAIT_FOR_LEAVE
        } else {
            ""
        };
        let script = self.script(run.command);
        let mut command = std::process::Command::new("/bin/sh");
        command.arg("-c");
        if let Some(door) = door {
            command.arg(door).arg("putex");
        }
        command
            .arg(format!("{leave}{script}"))
            .arg(run.command.name())
            .arg(run.role.to_string());
        remove_secrets(&mut command);
        remove_agents_own(&mut command);
        command.env_remove(JOURNAL);
        command.env("PUTEX_KEY", &self.key);
        command.env("PUTEX_TOKEN", &self.token);
        command.env("PUTEX_ROLE", run.role.to_string());
        let left_ms = run.deadline.since(now).as_millis();
        let told = [
            // A start may take as long as the lock is renewed: it has no deadline.
            (
                "PUTEX_DEADLINE_MS",
                (run.command != Command::Start).then(|| left_ms.to_string()),
            ),
            ("PUTEX_STARTING", run.starting.then(|| "1".to_owned())),
            ("PUTEX_TERM", run.under.term.map(|term| term.to_string())),
            ("PUTEX_EPOCH", run.under.epoch.clone()),
            ("PUTEX_PREVIOUS", run.under.previous.clone()),
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

/// A start that nobody knows of could start the service after the guard stopped it, and
/// a stop would be left to hang, so they begin only when the guard has been told.
fn waits_for_leave(command: Command) -> bool {
    command != Command::Check
}

/// One command: its pipe, and its process while one runs.
#[derive(Debug)]
pub struct Stage {
    command: Command,
    output: PipeReader,
    /// Kept open, so that the pipe never ends.
    input: PipeWriter,
    partial: Vec<u8>,
    process: Option<Process>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    exit: OwnedFd,
    leave: Option<PipeWriter>,
}

impl Stage {
    /// Prepares the pipe of a command.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub fn new(command: Command) -> io::Result<Stage> {
        let (output, input) = io::pipe()?;
        rustix::io::ioctl_fionbio(&output, true)?;
        Ok(Stage {
            command,
            output,
            input,
            partial: Vec::new(),
            process: None,
        })
    }

    /// Returns which command this is.
    #[must_use]
    pub fn command(&self) -> Command {
        self.command
    }

    /// Returns what becomes readable when the command says something.
    #[must_use]
    pub fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    /// Returns what becomes readable when the running process ends.
    #[must_use]
    pub fn exit(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(|process| process.exit.as_fd())
    }

    /// Returns whether a process was run that has ended and is not reaped yet.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.process
            .as_ref()
            .is_some_and(|process| sys::is_ready(&process.exit))
    }

    /// Runs a prepared command in a process group of its own and returns the group.
    /// One that waits for leave has not begun yet.
    ///
    /// # Errors
    ///
    /// When the system has no process or descriptor to give.
    pub fn spawn(
        &mut self,
        command: &mut std::process::Command,
        nothing: &File,
    ) -> io::Result<Pid> {
        let leave = if waits_for_leave(self.command) {
            let (reader, writer) = io::pipe()?;
            command.stdin(reader);
            Some(writer)
        } else {
            command.stdin(nothing.try_clone()?);
            None
        };
        command.stdout(self.input.try_clone()?);
        command.stderr(self.input.try_clone()?);
        let mut child = command.process_group(0).spawn()?;
        let group = Pid::from_child(&child);
        match rustix::process::pidfd_open(group, PidfdFlags::empty()) {
            Ok(exit) => {
                self.process = Some(Process { child, exit, leave });
                Ok(group)
            }
            Err(error) => {
                // Without it the end would go unnoticed: better not run at all.
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
                let _ = child.wait();
                Err(error.into())
            }
        }
    }

    /// Lets a command begin that waits for leave.
    pub fn give_leave(&mut self) {
        if let Some(process) = &mut self.process
            && let Some(mut leave) = process.leave.take()
        {
            // One that was killed meanwhile reads nothing.
            let _ = leave.write_all(b"\n");
        }
    }

    /// Kills the running process with its group.
    pub fn kill(&self) {
        if let Some(process) = &self.process {
            // Not reaped yet, so the number is still its own.
            let group = Pid::from_child(&process.child);
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }

    /// Returns the group of the running process.
    #[must_use]
    pub fn group(&self) -> Option<Pid> {
        let process = self.process.as_ref()?;
        Some(Pid::from_child(&process.child))
    }

    /// Reaps a process that has ended, with what it leaves in its group if it was
    /// killed; says how it ended.
    pub fn reap(&mut self, killed: bool, heard: &mut dyn FnMut(Command, &[u8])) -> Outcome {
        if killed {
            // What joined the group after the first kill goes with it.
            self.kill();
        }
        let status = self.process.take().map(|mut process| process.child.wait());
        self.flush(heard);
        match status {
            _ if killed => Outcome::Overran,
            Some(Ok(status)) if status.success() => Outcome::Succeeded,
            Some(Ok(status)) => Outcome::Failed(describe(status)),
            Some(Err(error)) => Outcome::Failed(format!("its end could not be read: {error}")),
            None => Outcome::Failed("it did not run".to_owned()),
        }
    }

    /// Passes on what the command has said, whole lines of it. At most a gulp.
    pub fn pass_on(&mut self, heard: &mut dyn FnMut(Command, &[u8])) {
        let mut gulp = [0; GULP];
        let Ok(count) = self.output.read(&mut gulp) else {
            return;
        };
        self.partial.extend_from_slice(&gulp[..count]);
        let mut rest = self.partial.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            heard(self.command, &rest[..end]);
            rest = &rest[end + 1..];
        }
        while rest.len() > LINE_MAX {
            heard(self.command, &rest[..LINE_MAX]);
            rest = &rest[LINE_MAX..];
        }
        let left = rest.len();
        self.partial.drain(..self.partial.len() - left);
    }

    /// The command has ended: what is left in the pipe is its last word.
    fn flush(&mut self, heard: &mut dyn FnMut(Command, &[u8])) {
        self.pass_on(heard);
        if !self.partial.is_empty() {
            heard(self.command, &self.partial);
            self.partial.clear();
        }
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
