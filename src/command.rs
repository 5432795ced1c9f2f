//! The operator's commands as processes: what each is told, and how it is run, released, killed
//! and reaped. The agent runs the health check and on-change, its guard the others.
//!
//! Each command has one pipe for the whole life of who runs it, so a service that
//! kept the start command's output open goes on writing into it, and nothing has
//! to be opened for a stroke.

mod output;

use std::env;
use std::ffi::{CString, NulError, OsStr};
use std::fs::File;
use std::io::{self, PipeWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, WaitOptions};

pub use self::output::OutputPipe;
use crate::core::{Command, Instant, LockContext, Outcome, Run};
use crate::sys::{self, kill_session, kill_with_group, raw};

/// Variables that are the agent's alone, and neither its guard's nor a command's: they hold
/// secrets, or may, or are what the service manager said to the agent, for which whoever else
/// used it would be taken.
const AGENTS_OWN: [&str; 15] = [
    "NATS_URL", "NATS_USER", "NATS_PASSWORD", "NATS_TOKEN", "NATS_CREDS", "NATS_NKEY", "NATS_JWT",
    "NATS_SEED", "NATS_KEY", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID",
    "LISTEN_FDS", "LISTEN_FDNAMES",
];

/// What says that stderr is the journal: it is the guard's too, but no command's.
const JOURNAL: &str = "JOURNAL_STREAM";

/// What a command is told, in this order.
const TOLD: [&str; 12] = [
    "PUTEX_KEY", "PUTEX_TOKEN", "PUTEX_DEADLINE_MS", "PUTEX_TERM", "PUTEX_EPOCH", "PUTEX_PREVIOUS",
    "PUTEX_SEAT", "PUTEX_ROLE", "PUTEX_STARTING", "PUTEX_OLD", "PUTEX_NEW", "PUTEX_WHY",
];

/// Precedes a script that waits for its release: the script ends unbegun when the process
/// that spawned it has died before that.
const WAIT_FOR_RELEASE: &str = "read -r _ || exit 125; exec </dev/null; ";

/// A command that can be spawned.
pub struct Prepared {
    /// Its words if it is a plain program, and none if a shell has to read it.
    program: Vec<String>,
    /// The words of the shell that runs it, the name of the shell first.
    shell: Vec<String>,
    /// Its own variables and their values; it inherits others.
    pub variables: Vec<(&'static str, String)>,
    /// Those that it inherits, unless they are those of this process.
    environment: Option<Environment>,
    /// Which it is. Start gets a session of its own: the service is not scheduled like the guard.
    pub command: Command,
    /// The script waits for its release.
    waits: bool,
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
    /// What is told each change of the agent's state, if anything is.
    #[serde(skip)]
    pub on_change: Option<String>,
    /// The key.
    pub key: String,
    /// The agent's token.
    pub token: String,
    /// What the commands of the guard inherit, where that is known: the agent that has started the
    /// guard may have had other variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Environment>,
}

/// The variables that commands inherit, `NAME=value` each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Environment(Arc<[CString]>);

impl Environment {
    /// Returns that of this process; `None` if it is not text.
    pub fn own() -> Option<Environment> {
        let is_text = |variable: &CString| variable.to_str().is_ok();
        Some(inherited()).filter(|Environment(variables)| variables.iter().all(is_text))
    }
}

impl TryFrom<Vec<String>> for Environment {
    type Error = NulError;

    fn try_from(variables: Vec<String>) -> Result<Environment, NulError> {
        Ok(Environment(texts(variables)?.into()))
    }
}

impl From<Environment> for Vec<String> {
    fn from(Environment(variables): Environment) -> Vec<String> {
        variables.iter().map(|variable| variable.to_string_lossy().into_owned()).collect()
    }
}

impl Commands {
    fn script(&self, command: Command) -> &str {
        match command {
            Command::Check => self.check.as_deref().unwrap_or("true"),
            Command::Start => &self.start,
            Command::Stop => &self.stop,
            Command::LastResort => self.last_resort.as_deref().unwrap_or("true"),
            Command::OnChange => self.on_change.as_deref().unwrap_or("true"),
        }
    }

    /// Returns `sh -c COMMAND NAME ROLE`, and the words of a health check that needs no shell, with
    /// what the command is told in its environment.
    /// `cgroup_entry` is a script that enters a control group first.
    pub fn prepare(&self, run: &Run, cgroup_entry: Option<&str>, now: Instant) -> Prepared {
        let command = run.command;
        let waits = command != Command::Check;
        let wait = if waits { WAIT_FOR_RELEASE } else { "" };
        let mut entry = Vec::new();
        if let Some(script) = cgroup_entry {
            entry.extend([script.to_owned(), "putex".to_owned()]);
        }
        let script = format!("{wait}{}", self.script(command));
        // A start may take as long as the lock is renewed: it has no deadline.
        let left = (command != Command::Start).then(|| run.deadline.since(now));
        let role = run.role.to_string();
        let starting = run.starting.then(|| "1".to_owned());
        let told = [Some(role.clone()), starting, None, None, None];
        let variables = self.variables(&run.context, left, told);
        let is_direct = !waits && entry.is_empty();
        let program = if is_direct { plain_words(&script) } else { Vec::new() };
        let shell = shell_words(entry, script, command, role);
        let environment = self.environment.clone();
        Prepared { program, shell, variables, environment, command, waits }
    }

    /// Returns `sh -c COMMAND on-change NEW` with what on-change is told of a change in its
    /// environment. It is killed after the time `left`.
    pub fn prepare_on_change(&self, change: Change, left: Duration) -> Prepared {
        let Change { old, new, why, context } = change;
        let command = Command::OnChange;
        let told = [None, None, Some(old.to_owned()), Some(new.to_owned()), Some(why)];
        let variables = self.variables(&context, Some(left), told);
        let script = self.script(command).to_owned();
        let program = plain_words(&script);
        let shell = shell_words(Vec::new(), script, command, new.to_owned());
        let environment = self.environment.clone();
        Prepared { program, shell, variables, environment, command, waits: false }
    }

    /// Returns the variables of [`TOLD`]; `more` are the last ones.
    fn variables(
        &self,
        context: &LockContext,
        left: Option<Duration>,
        more: [Option<String>; 5],
    ) -> Vec<(&'static str, String)> {
        let common = [
            Some(self.key.clone()),
            Some(self.token.clone()),
            left.map(|left| left.as_millis().to_string()),
            context.term.map(|term| term.to_string()),
            context.epoch.clone(),
            context.previous.clone(),
            context.seat.map(|seat| seat.to_string()),
        ];
        let values = TOLD.into_iter().zip(common.into_iter().chain(more));
        values.filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// Returns the words of a shell that runs a script, whose `$1` is `first`. `entry` is another
/// script, which runs that shell.
fn shell_words(entry: Vec<String>, script: String, command: Command, first: String) -> Vec<String> {
    let mut words = vec!["/bin/sh".to_owned(), "-c".to_owned()];
    words.extend(entry);
    words.extend([script, command.name().to_owned(), first]);
    words
}

/// Returns the words of a script that is one program, named by its whole path, and arguments: a
/// shell would do nothing but execute it. None of another script. A name without a path may be
/// built into the shell.
fn plain_words(script: &str) -> Vec<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " \t/._-+:=,@%".contains(c);
    if !script.trim_start().starts_with('/') || !script.chars().all(is_plain) {
        return Vec::new();
    }
    script.split_ascii_whitespace().map(str::to_owned).collect()
}

/// A change of the agent's state, as on-change is told it.
#[derive(Clone, Debug)]
pub struct Change {
    /// The state before.
    pub old: &'static str,
    /// The new state.
    pub new: &'static str,
    /// Why.
    pub why: String,
    /// The lock that the agent holds, or has held until this change.
    pub context: LockContext,
}

/// Returns the variables of this process that a command inherits. They are read once.
fn inherited() -> Environment {
    static INHERITED: LazyLock<Environment> = LazyLock::new(|| {
        let is_inherited = |name: &OsStr| {
            let own = AGENTS_OWN.iter().chain(&TOLD).chain([&JOURNAL]);
            own.into_iter().all(|own| name != *own)
        };
        let kept = env::vars_os().filter(|(name, _)| is_inherited(name));
        let variables = kept.filter_map(|(name, value)| {
            // The system gives none with a zero in it.
            variable(name.as_bytes(), value.as_bytes()).ok()
        });
        Environment(variables.collect())
    });
    INHERITED.clone()
}

fn texts(words: Vec<String>) -> Result<Vec<CString>, NulError> {
    words.into_iter().map(CString::new).collect()
}

fn variable(name: &[u8], value: &[u8]) -> Result<CString, NulError> {
    CString::new([name, b"=", value].concat())
}

/// Takes what is the agent's alone out of the environment of the guard.
pub fn remove_agents_own(command: &mut std::process::Command) {
    for name in AGENTS_OWN {
        command.env_remove(name);
    }
}

/// A command that was spawned, with its process group.
pub struct Process {
    /// The process group; its number is also the process's own.
    pub group: Pid,
    spawned: raw::SpawnedCommand,
    release: Option<PipeWriter>,
    /// It leads a session.
    own_session: bool,
    /// It was killed here.
    pub killed: bool,
}

impl Process {
    /// Runs a prepared command in a process group of its own, with its output into `output`.
    /// A command that waits for its release has not begun yet, and the kernel has read its shell;
    /// another one reads nothing, and this does not wait for the kernel.
    ///
    /// # Errors
    ///
    /// When the system has no process or descriptor to give, or a text has a zero in it.
    pub fn spawn(prepared: Prepared, output: &PipeWriter) -> io::Result<Process> {
        let pipe = prepared.waits.then(io::pipe).transpose()?;
        let stdin = match &pipe {
            Some((reader, _)) => reader.as_fd(),
            None => nothing()?,
        };
        let own = prepared.variables.iter();
        let own = own.map(|(name, value)| variable(name.as_bytes(), value.as_bytes()));
        let own_session = prepared.command == Command::Start;
        let spawned = raw::spawn_command(raw::SpawnCommand {
            program: texts(prepared.program)?,
            shell: texts(prepared.shell)?,
            variables: own.collect::<Result<Vec<_>, _>>()?,
            inherited: prepared.environment.unwrap_or_else(inherited).0,
            files: [stdin, output.as_fd(), output.as_fd()],
            own_session,
            // The main thread spawns it. Nobody has a deadline for it without the agent.
            ends_with_thread: prepared.command == Command::Check,
            waits: prepared.waits,
        })?;
        let release = pipe.map(|(_, writer)| writer);
        let group = spawned.process;
        Ok(Process { group, spawned, release, own_session, killed: false })
    }

    /// Lets a command begin that waits for its release.
    pub fn release(&mut self) {
        if let Some(mut release) = self.release.take() {
            // A process that was killed meanwhile reads nothing.
            let _ = release.write_all(b"\n");
        }
    }

    /// Kills the process with its group, and start with its session. A process may have left its
    /// group.
    pub fn kill(&mut self) {
        self.killed = true;
        // Not reaped yet, so the number is still its own.
        kill_with_group(self.group, &self.spawned);
        if self.own_session {
            kill_session(self.group);
        }
    }

    /// Kills the process and waits for its end, but for no debugger that reaps it first.
    pub fn end(mut self) {
        self.kill();
        let _ = sys::poll(&mut [PollFd::new(&self.spawned, PollFlags::IN)]);
        let _ = self.reap();
    }

    /// Reaps a process that has ended, with what it leaves in its group if it was
    /// killed; returns how it ended.
    #[must_use]
    pub fn reap(mut self) -> Outcome {
        if self.killed {
            // What joined the group after the first kill goes with it.
            self.kill();
        }
        // One that a debugger has attached to is the debugger's to reap first, at any time.
        let ended = rustix::process::waitpid(Some(self.group), WaitOptions::NOHANG);
        if let Some(error) = self.spawned.failure() {
            return not_run(&error);
        }
        match ended {
            _ if self.killed => Outcome::Overran,
            Ok(Some((_, status))) => match (status.exit_status(), status.terminating_signal()) {
                (Some(0), _) => Outcome::Succeeded,
                (code, signal) => Outcome::Failed(describe(code, signal)),
            },
            Ok(None) => Outcome::Failed("its end is not known".to_owned()),
            Err(error) => Outcome::Failed(format!("its end could not be read: {error}")),
        }
    }
}

/// Returns a descriptor from which nothing can be read. It stays open: each open(2) takes longer
/// than any other call for a command but those that make its process.
///
/// # Errors
///
/// When the process has no descriptor left, or no `/dev/null`.
fn nothing() -> io::Result<BorrowedFd<'static>> {
    static NOTHING: OnceLock<File> = OnceLock::new();
    if let Some(nothing) = NOTHING.get() {
        return Ok(nothing.as_fd());
    }
    let opened = File::open("/dev/null")?;
    Ok(NOTHING.get_or_init(|| opened).as_fd())
}

impl AsFd for Process {
    /// Returns what becomes readable when the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.spawned.as_fd()
    }
}

/// Returns the outcome of a command that could not be spawned or executed.
pub fn not_run(error: &io::Error) -> Outcome {
    Outcome::Failed(format!("it could not be run: {error}"))
}

/// Says how a process has ended: with which exit status, or by which signal.
pub fn describe(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (Some(127), _) => "exit status 127 (command not found)".to_owned(),
        (Some(126), _) => "exit status 126 (command not executable)".to_owned(),
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

#[cfg(test)]
mod tests;
