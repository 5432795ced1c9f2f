//! The operator's commands as processes: the variables that each gets, and how it is run, released,
//! killed and reaped. The agent runs the health check and on-change, its guard the others.
//!
//! Each command has one pipe for the whole life of the process that runs it, so a service that kept
//! the start command's output open goes on writing into it, and nothing has to be opened for a
//! stroke.

mod output;
mod runner;
mod spawned;

use std::env;
use std::ffi::OsString;
use std::io;
use std::process;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::output::OutputPipe;
pub use self::runner::Runner;
pub use self::spawned::Process;
use crate::core::{Command, Instant, LockContext, Outcome, Run};
use crate::sys::raw::Child;

/// Variables of the agent alone, which neither its guard nor a command gets: they hold secrets, or
/// may, or are messages of the service manager to the agent, and another process that used them
/// would be taken for the agent.
const AGENTS_OWN: [&str; 15] = [
    "NATS_URL", "NATS_USER", "NATS_PASSWORD", "NATS_TOKEN", "NATS_CREDS", "NATS_NKEY", "NATS_JWT",
    "NATS_SEED", "NATS_KEY", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID",
    "LISTEN_FDS", "LISTEN_FDNAMES",
];

/// The variable that says that stderr is the journal: the guard gets it too, but no command.
const JOURNAL: &str = "JOURNAL_STREAM";

/// The variables by which a command is told its values, in this order.
const TOLD: [&str; 12] = [
    "PUTEX_KEY", "PUTEX_TOKEN", "PUTEX_DEADLINE_MS", "PUTEX_TERM", "PUTEX_EPOCH", "PUTEX_PREVIOUS",
    "PUTEX_SEAT", "PUTEX_ROLE", "PUTEX_STARTING", "PUTEX_OLD", "PUTEX_NEW", "PUTEX_WHY",
];

/// Precedes a script that waits for its release: the script ends unbegun when the process
/// that spawned it has died before that. Where /dev/null cannot be opened, the script has an empty
/// stdin all the same. By exec alone, without `command`, the shell would end then.
const WAIT_FOR_RELEASE: &str = "read -r _ || exit 125; command exec </dev/null; ";

/// A command that can be spawned: `sh -c COMMAND NAME ARGUMENT`, with its variables in the
/// environment.
pub struct Prepared {
    pub(crate) command: process::Command,
    child: Child,
    /// The script waits for its release.
    waits: bool,
}

/// The operator's commands and the values that all of them are told.
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
    /// The command that is told each change of the agent's state, if there is one.
    #[serde(skip)]
    pub on_change: Option<String>,
    /// The key.
    pub key: String,
    /// The agent's token.
    pub token: String,
    /// The variables that the commands of the guard inherit, names and values, where they are
    /// known: the agent that has started the guard may have had others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Vec<(String, String)>>,
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

    /// Returns `sh -c COMMAND NAME ROLE` with the command's variables in its environment.
    /// `cgroup_entry` is a script that enters a control group first.
    pub fn prepare(&self, run: &Run, cgroup_entry: Option<&str>, now: Instant) -> Prepared {
        let command = run.command;
        let waits = command != Command::Check;
        let wait = if waits { WAIT_FOR_RELEASE } else { "" };
        let script = format!("{wait}{}", self.script(command));
        let entry = cgroup_entry.into_iter().flat_map(|script| [script, "putex"]);
        let role = run.role.to_string();
        let words: Vec<_> = entry.chain([&*script, command.name(), &*role]).collect();
        // A start may take as long as the lock is renewed: it has no deadline.
        let left = (command != Command::Start).then(|| run.deadline.since(now));
        let more = [Some(role.clone()), run.starting.then(|| "1".to_owned()), None, None, None];
        let told = self.variables(&run.context, left, more);
        let child = Child {
            // The service is not scheduled like the guard.
            own_session: command == Command::Start,
            // Nobody has a deadline for the check without the agent.
            ends_with_thread: command == Command::Check,
        };
        Prepared { command: self.shell(&words, told), child, waits }
    }

    /// Returns `sh -c COMMAND on-change NEW` with the variables of a change in its environment. The
    /// command is killed after the time `left`.
    pub fn prepare_on_change(&self, change: Change, left: Duration) -> Prepared {
        let Change { old, new, why, context } = change;
        let command = Command::OnChange;
        let more = [None, None, Some(old), Some(new.clone()), Some(why)];
        let told = self.variables(&context, Some(left), more);
        let words = [self.script(command), command.name(), &new];
        Prepared { command: self.shell(&words, told), child: Child::default(), waits: false }
    }

    /// Returns a shell that runs the first of these words as a script.
    fn shell(&self, words: &[&str], own: Vec<(&str, String)>) -> process::Command {
        let mut command = process::Command::new("/bin/sh");
        command.arg("-c").args(words).env_clear();
        match &self.environment {
            Some(known) => command.envs(known.iter().map(|(name, value)| (name, value))),
            None => command.envs(inherited()),
        };
        command.envs(own);
        command
    }

    /// Returns the variables of [`TOLD`] that have a value; `more` are the last ones.
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

/// A change of the agent's state, as on-change is told it.
pub struct Change {
    /// The state before.
    pub old: String,
    /// The new state.
    pub new: String,
    /// Why the state has changed.
    pub why: String,
    /// The lock that the agent holds, or has held until this change.
    pub context: LockContext,
}

/// Returns the variables of this process that a command inherits.
fn inherited() -> impl Iterator<Item = (OsString, OsString)> {
    env::vars_os().filter(|(name, _)| {
        let own = AGENTS_OWN.iter().chain(&TOLD).chain([&JOURNAL]);
        own.into_iter().all(|own| name != *own)
    })
}

/// Returns the inherited variables as texts; `None` if they are not UTF-8.
pub fn inherited_texts() -> Option<Vec<(String, String)>> {
    inherited()
        .map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Takes the variables of the agent alone out of the environment of the guard.
pub fn remove_agents_own(command: &mut process::Command) {
    for name in AGENTS_OWN {
        command.env_remove(name);
    }
}

/// Returns the outcome of a command that could not be spawned or executed.
pub fn not_run(error: &io::Error) -> Outcome {
    Outcome::Failed(format!("it could not be run: {error}"))
}

/// Returns how a process has ended, as a text: with which exit status, or by which signal.
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
