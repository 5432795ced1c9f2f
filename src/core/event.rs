//! What the world tells the pump, and what the pump wants of the world.
//!
//! At most one request to the store and one instance of each command are under
//! way at a time, so an answer needs no number to find its question.

use std::fmt;
use std::time::Duration;

use crate::core::guard::Watch;
use crate::core::record::{BucketId, Record, Revision, Sight};
use crate::core::timing::Instant;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A deadline may have passed.
    Tick,
    /// The bucket is open, at first or again.
    Opened(Opened),
    /// The store is out of reach. An outstanding request was answered before.
    Closed(String),
    /// The store will not serve this agent as it is set up.
    Rejected(Rejection),
    /// Answer to [`Effect::Read`].
    Read(Result<Sight, String>),
    /// Answer to [`Effect::Write`].
    Written(Written),
    /// The key seems to have changed, to this revision if the hint names one.
    Hint(Option<Revision>),
    /// Another live agent says that it has this agent's token.
    Twin(Notice),
    /// A command ended.
    Ended(Command, Outcome),
    /// What became of the guard.
    Guard(Sentry),
    /// The agent was told to end, by the signal of this name.
    Shutdown(&'static str),
}

/// What the guard says, or what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sentry {
    /// A guard watches; it has not been told anything yet.
    Ready,
    /// It has taken in that the service may run, and is prepared to end it.
    Armed,
    /// It lives, but what was required of it cannot be had; why.
    Unfit(String),
    /// It is gone; why.
    Lost(String),
}

/// An opened bucket, as it stood at one moment after the call began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Which bucket it is.
    pub bucket: BucketId,
    /// Highest revision in the whole bucket.
    pub last: Revision,
    /// How long the bucket is known to have existed, by a clock of this host.
    /// `None` when the store cannot tell.
    pub age: Option<Duration>,
    /// What stands under the key.
    pub sight: Sight,
    /// How many servers keep a copy of the bucket.
    pub replicas: u32,
    /// What the operator should know about the bucket or the way to it: what it
    /// lacks, that it was created just now, which server answered.
    pub remarks: Vec<String>,
}

/// Why a store will not serve this agent, however often it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The server refused the credentials.
    Credentials(String),
    /// The bucket cannot be trusted with a lock.
    Unsafe(String),
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Rejection::Credentials(text) | Rejection::Unsafe(text)) = self;
        f.write_str(text)
    }
}

/// What a compare-and-set came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Stored, as this revision.
    Stored(Revision),
    /// Not stored: the key stands at another revision. The store may name it.
    Moved(Option<Revision>),
    /// Not stored, for a reason other than the revision: a full disk, a limit.
    Denied(String),
    /// Perhaps stored, perhaps not, perhaps later.
    Unknown(String),
}

/// What one agent tells another that has the same token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Token of the sender.
    pub token: String,
    /// Incarnation of the sender, as text.
    pub incarnation: String,
    /// Host name of the sender.
    pub host: String,
}

/// One of the operator's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Tells whether the service is, or could be, healthy here.
    Check,
    /// Asserts that the service runs here.
    Start,
    /// Asserts that the service does not run here.
    Stop,
    /// Makes an end of a service that could not be stopped in time.
    LastResort,
}

impl Command {
    /// All of them; their order is their index.
    pub const ALL: [Command; 4] = [
        Command::Check,
        Command::Start,
        Command::Stop,
        Command::LastResort,
    ];

    /// Returns the name that the command is given as `$0`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Command::Check => "healthcheck",
            Command::Start => "start",
            Command::Stop => "stop",
            Command::LastResort => "last-resort",
        }
    }
}

/// What a command is told that this agent is: its `$1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It holds the lock, or is about to.
    Active,
    /// It does not.
    Standby,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Active => "active",
            Role::Standby => "standby",
        })
    }
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With exit status 0.
    Succeeded,
    /// In any other way, said in words.
    Failed(String),
    /// Killed with its process group because its deadline had come.
    Overran,
}

impl Outcome {
    /// Returns why it failed, in words.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Outcome::Succeeded => "it succeeded",
            Outcome::Failed(why) => why,
            Outcome::Overran => "it did not end in time and was killed",
        }
    }

    /// As [`Outcome::why`], for a stop after which the service is not known to be down. One
    /// that succeeded began beside a start; and when that has ended it is killed: `cut_short`.
    #[must_use]
    pub fn why_not_down(&self, cut_short: bool) -> &str {
        match self {
            Outcome::Succeeded => BESIDE_START,
            Outcome::Overran if cut_short => BESIDE_START,
            Outcome::Failed(_) | Outcome::Overran => self.why(),
        }
    }
}

/// Why a stop or a last resort does not count: start could still do its work after it.
pub const BESIDE_START: &str = "start had not ended when it began";

/// What agent and guard say when a service is not known to be down in time.
pub const MAY_STILL_RUN: &str = "THE SERVICE MAY STILL RUN although its lock has run out: another \
                                 host may start it now; stop it by hand";

/// What the pump wants done. Effects are performed in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read the key and answer with [`Event::Read`] by the deadline.
    Read {
        /// When to answer that nothing was had.
        deadline: Instant,
    },
    /// Store the record if the key stands at `expected`; answer with
    /// [`Event::Written`] by the deadline.
    Write {
        /// The revision that the key must stand at; 0 for none.
        expected: Revision,
        /// What to store.
        record: Record,
        /// When to answer that the outcome is unknown.
        deadline: Instant,
    },
    /// Tell whoever else has this token that this agent lives.
    Announce,
    /// Tell the guard how long it may let the service run, and under which lock.
    /// It answers with [`Sentry::Armed`] when the service may run from now on.
    Guard(Watch, Under),
    /// Run a command; answer with [`Event::Ended`].
    Run(Run),
    /// Move the deadline of a running command.
    Extend(Command, Instant),
    /// Kill a running command with its process group now. It still ends with
    /// [`Event::Ended`].
    Kill(Command),
    /// Make an end of a guard that does not answer, and start another.
    ReplaceGuard,
    /// Kill all that start ever left behind, where the kernel keeps track of it.
    KillService,
    /// Tell the operator.
    Say(Level, String),
    /// End the agent. The last effect there is.
    Exit(Ending),
}

/// A command to run, and what it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Which one.
    pub command: Command,
    /// Its `$1`.
    pub role: Role,
    /// When it is killed with its process group.
    pub deadline: Instant,
    /// Whether a start command is still running beside this check.
    pub starting: bool,
    /// The lock that it runs under.
    pub under: Under,
}

/// What a command is told of the lock that it runs under.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Under {
    /// Fencing token: revision of the acquiring write, while the lock is held.
    pub term: Option<Revision>,
    /// The bucket's epoch, without which a term means nothing.
    pub epoch: Option<String>,
    /// Token of the holder before, where one is known.
    pub previous: Option<String>,
}

/// Longest text that a command is told: names have 200 bytes, ids less.
const TOLD_BYTES_MAX: usize = 255;

impl Under {
    /// Returns it without what no environment can hold: whoever may write to the
    /// bucket could keep stop from being run otherwise.
    #[must_use]
    pub fn tellable(self) -> Under {
        let tellable = |text: &String| text.len() <= TOLD_BYTES_MAX && !text.contains('\0');
        Under {
            term: self.term,
            epoch: self.epoch.filter(tellable),
            previous: self.previous.filter(tellable),
        }
    }
}

/// How much a message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The promise is in danger, or something must be mended by a person.
    Error,
    /// Unusual; nothing is lost yet.
    Warn,
    /// A change of state, and why.
    Info,
    /// Every step.
    Debug,
}

/// How the agent ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As it was told to, with the service down.
    Clean,
    /// Told to end, but the service could not be stopped.
    NotStopped,
    /// The store will not serve it.
    Rejected(Rejection),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_whose_name_no_environment_can_hold_keeps_nobody_from_running_stop() {
        let told = |previous: &str| {
            let under = Under {
                previous: Some(previous.to_owned()),
                ..Under::default()
            };
            under.tellable().previous
        };
        assert_eq!(told("beta").as_deref(), Some("beta"));
        assert_eq!(told(&"x".repeat(200_000)), None);
        assert_eq!(told("be\0ta"), None);
    }
}
