//! The course of a lock, from the request to the release: it is said on stderr, and kept for
//! `--report`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Duration;

use log::Level;
use serde::{Deserialize, Serialize};

use super::Request;
use super::held::Grant;
use crate::core::tickets::End;
use crate::core::{Instant, Ms};
use crate::exit::{Exit, Refusal};
use crate::log::Destination;
use crate::sys;

/// How it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    /// The command has run, and the lock was held for as long as it did.
    Ran,
    /// The lock was not had in time.
    NotHad,
    /// A signal has ended the wait.
    Interrupted,
    /// The lock could not be asked for, or waited for.
    Refused,
    /// The lock was had, and the command could not be started.
    NotStarted,
    /// The lock was lost. The command was ended, or had ended when that was found out.
    Lost,
    /// The command could not be killed.
    MayRun,
}

/// The status of the process, or the signal that it ends by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Ending {
    Status(u8),
    Signal(i32),
    /// The signal was typed at a command that had the terminal. So this process's group has not got
    /// it yet.
    Typed(i32),
}

impl Ending {
    /// Returns the status that a shell sees.
    pub(super) fn status(self) -> u8 {
        match self {
            Ending::Status(status) => status,
            Ending::Signal(signal) | Ending::Typed(signal) => {
                u8::try_from(signal).unwrap_or_default().saturating_add(128)
            }
        }
    }
}

/// The course of the lock until now.
pub(super) struct Account {
    /// The file of the reports, if one is wanted.
    pub(super) report: Option<File>,
    pub(super) request: Request,
    pub(super) destination: Destination,
    pub(super) began: Instant,
    /// The last line on the wait.
    pub(super) last_shown: String,
    /// Why the store keeps everybody waiting is still to be said, also without a terminal.
    says_why: bool,
    pub(super) granted_at: Option<Instant>,
    pub(super) grant: Option<Grant>,
    /// Why the lock was not had at once.
    pub(super) waited_for: Option<String>,
    /// When the lock was released, or the command had ended after a loss.
    pub(super) ended_at: Option<Instant>,
    pub(super) command_status: Option<u8>,
    pub(super) outcome: Outcome,
    pub(super) why: Option<String>,
}

impl Account {
    pub(super) fn new(request: Request, destination: Destination, began: Instant) -> Account {
        Account {
            report: None,
            says_why: request.level >= Level::Warn as u64 && request.soft.is_none(),
            request,
            destination,
            began,
            last_shown: String::new(),
            granted_at: None,
            grant: None,
            waited_for: None,
            ended_at: None,
            command_status: None,
            outcome: Outcome::Refused,
            why: None,
        }
    }

    /// Returns how long the lock was waited for.
    pub(super) fn waited(&self, now: Instant) -> Duration {
        self.granted_at.unwrap_or(now).since(self.began)
    }

    /// Returns how long the lock was held; `None` if it was not had.
    pub(super) fn held(&self, now: Instant) -> Option<Duration> {
        self.granted_at.map(|at| self.ended_at.unwrap_or(now).since(at))
    }

    /// Returns whether successes are said too.
    pub(super) fn is_verbose(&self) -> bool {
        self.request.level >= Level::Info as u64
    }

    /// Says a success.
    fn tell(&self, text: &str) {
        if self.is_verbose() {
            self.destination.tell(&format!("{}: {text}", self.request.name));
        }
    }

    pub(super) fn warn(&self, text: &str) {
        self.destination.warn(&format!("{}: {text}", self.request.name));
    }

    pub(super) fn lost(&mut self, why: &str) {
        self.why = Some(why.to_owned());
        self.say(&format!("the lock is lost: {why}"));
    }

    /// Says this at every log level.
    pub(super) fn say(&self, text: &str) {
        let text = format!("{}: {text}", self.request.name);
        self.destination.refuse(&Refusal::new(Exit::System, text));
    }

    /// The lock is waited for, behind so many tickets.
    pub(super) fn waits(&mut self, ahead: usize, why: &str) {
        let place = if ahead > 0 { format!(", {ahead} ahead") } else { String::new() };
        let text = format!("{}: waiting{place}: {why}", self.request.name);
        self.waited_for = Some(why.to_owned());
        let is_shown = self.is_verbose() || io::stderr().is_terminal();
        // Nobody comes first: the bucket is new, or the store does not answer.
        let is_unusual = ahead == 0 && self.says_why;
        self.says_why &= !is_unusual;
        if self.last_shown != text && (is_shown || is_unusual) {
            self.destination.tell(&text);
        }
        self.last_shown = text;
    }

    /// The lock was not had in time.
    pub(super) fn not_had(&mut self, why: &str) -> Ending {
        let status = self.request.busy_status;
        // With a status of success, a job of cron that is elsewhere has nothing to say.
        let least = if status == 0 { Level::Info } else { Level::Warn };
        if self.request.level >= least as u64 {
            self.say(&format!("not acquired: {why}"));
        }
        (self.outcome, self.why) = (Outcome::NotHad, Some(why.to_owned()));
        Ending::Status(status)
    }

    /// The wait was ended by a signal.
    pub(super) fn interrupted(&mut self, signal: i32) -> Ending {
        self.outcome = Outcome::Interrupted;
        Ending::Signal(signal)
    }

    pub(super) fn granted(&mut self, grant: Grant) {
        let now = sys::now();
        (self.granted_at, self.grant) = (Some(now), Some(grant));
        let waited = Ms(self.waited(now));
        let why = self.waited_for.as_ref().map(|why| format!("; before that: {why}"));
        self.tell(&format!("had after {waited}{}", why.unwrap_or_default()));
    }

    /// The command could not be executed.
    pub(super) fn not_executed(&mut self, error: &io::Error) {
        let program = &self.request.command[0];
        let text = format!("{}: {error}{}", program.display(), hint(program, error));
        let refusal = Refusal::new(Exit::System, text);
        self.destination.refuse(&refusal);
        self.why = Some(refusal.text);
    }

    /// The command and its group have ended, under the lock. Returns until when that is held, and
    /// `None` if it is released at once.
    pub(super) fn stays(&self) -> Option<Instant> {
        let now = sys::now();
        let held_until = self.granted_at.unwrap_or(now).after(self.request.hold);
        (held_until > now).then_some(held_until)
    }

    /// Says until when the lock is held on. The renewer knows the end already: a reader of this
    /// line may stop this process.
    pub(super) fn tell_stay(&self, held_until: Instant) {
        let left = held_until.since(sys::now());
        if !left.is_zero() {
            let (name, left) = (&self.request.name, Ms(left));
            let text = format!("{name}: the command has ended, the lock is held for {left} more");
            self.destination.tell_waiting(Level::Info, self.request.level, &text);
        }
    }

    /// The lock is not held any more. Says whether its ticket has ended, or why it may stand; after
    /// a loss that was said before.
    pub(super) fn released(&mut self, end: Option<End>) {
        let now = sys::now();
        self.ended_at = Some(now);
        let held = Ms(self.held(now).unwrap_or_default());
        match end {
            _ if self.outcome == Outcome::Lost => {}
            None => self.tell(&format!("the release is under way, held for {held}")),
            Some(End::Refused(why)) => {
                self.warn(&format!("not released: {why}"));
                self.why.get_or_insert(why.text);
            }
            Some(End::Lost(why)) => {
                self.warn(&format!("the lock was lost before its release: {why}"));
                (self.outcome, self.why) = (Outcome::Lost, Some(why));
            }
            Some(_) => self.tell(&format!("released, held for {held}")),
        }
    }
}

/// Returns the hint on a program that was not found, if the cause is known.
fn hint(program: &OsStr, error: &io::Error) -> String {
    let word = program.display().to_string();
    if error.kind() == io::ErrorKind::PermissionDenied {
        let path = Path::new(program);
        return match (path.is_dir(), path.is_file()) {
            (true, _) => "; it is a directory; name a program in it".to_owned(),
            (_, true) => format!("; chmod +x {word}, or name what runs it, as in sh {word}"),
            _ => String::new(),
        };
    }
    if error.kind() != io::ErrorKind::NotFound {
        return String::new();
    }
    if word.is_empty() {
        return "; COMMAND is blank".to_owned();
    }
    if word.contains(' ') {
        return format!("; a line for the shell is written behind -c: -c '{word}'");
    }
    match (word.contains('/'), Path::new(program).exists()) {
        (true, true) => {
            let why =
                "the program in its first line, behind #!, is not, or that line ends in CR LF";
            format!("; the file is there: {why}")
        }
        (false, true) => format!("; a file of this directory is written ./{word}"),
        (false, false) => {
            "; it is not in PATH; a line for the shell is written behind -c".to_owned()
        }
        (true, false) => String::new(),
    }
}
