//! The operator's commands, the values that each is told, and their outcomes.

use displaydoc::Display;
use serde::{Deserialize, Serialize};

use crate::core::record::Revision;
use crate::core::seat::Seat;
use crate::core::time::Instant;

/// A command of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Tells whether the service is, or could be, healthy here.
    Check,
    /// Asserts that the service runs here.
    Start,
    /// Asserts that the service does not run here.
    Stop,
    /// Ends a service that stop could not stop in time.
    LastResort,
    /// Is told each change of the agent's state. The agent runs it, and waits for no result.
    OnChange,
}

impl Command {
    /// All commands; their order is their index.
    pub const ALL: [Command; 5] =
        [Command::Check, Command::Start, Command::Stop, Command::LastResort, Command::OnChange];

    /// Returns the name that the command is given as `$0`.
    pub fn name(self) -> &'static str {
        match self {
            Command::Check => "healthcheck",
            Command::Start => "start",
            Command::Stop => "stop",
            Command::LastResort => "last-resort",
            Command::OnChange => "on-change",
        }
    }
}

/// The role of this agent, which a command gets as its `$1`.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq)]
#[ignore_extra_doc_attributes]
pub enum Role {
    /// active
    ///
    /// It holds the lock, or is about to.
    Active,
    /// standby
    Standby,
}

/// How a command ended.
#[derive(Clone, Debug, Display, PartialEq, Eq)]
#[ignore_extra_doc_attributes]
pub enum Outcome {
    /// it succeeded
    ///
    /// Its exit status is 0.
    Succeeded,
    /// {0}
    ///
    /// In any other way.
    Failed(String),
    /// it did not end in time and was killed
    ///
    /// With its process group, because its deadline had come.
    Overran,
}

/// A command to run, with the values that it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The command.
    pub command: Command,
    /// The role: the command's `$1`.
    pub role: Role,
    /// When the command is killed with its process group.
    pub deadline: Instant,
    /// Whether the first start of the term still runs beside this check. A start that is asserted
    /// again does not count: the service must be healthy by then.
    pub starting: bool,
    /// The lock that the command runs under.
    pub context: LockContext,
}

/// The lock that a command runs under, as the command is told it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockContext {
    /// Fencing token: revision of the acquiring write, while the lock is held.
    pub term: Option<Revision>,
    /// The bucket's epoch, without which a term means nothing.
    pub epoch: Option<String>,
    /// Token of the previous holder, if known.
    pub previous: Option<String>,
    /// The seat of the lock, where there are several, while the lock is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<Seat>,
}

/// Longest text that a command is told: names have 200 bytes, ids less.
const TOLD_BYTES_MAX: usize = 255;

impl LockContext {
    /// Returns the context without texts that no environment can hold: otherwise anybody who may
    /// write to the bucket could keep stop from being run.
    pub fn tellable(self) -> LockContext {
        let tellable = |text: &String| text.len() <= TOLD_BYTES_MAX && !text.contains('\0');
        LockContext {
            epoch: self.epoch.filter(tellable),
            previous: self.previous.filter(tellable),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_whose_name_no_environment_can_hold_keeps_nobody_from_running_stop() {
        let told = |previous: &str| {
            let under =
                LockContext { previous: Some(previous.to_owned()), ..LockContext::default() };
            under.tellable().previous
        };
        assert_eq!(told("beta").as_deref(), Some("beta"));
        assert_eq!(told(&"x".repeat(200_000)), None);
        assert_eq!(told("be\0ta"), None);
    }
}
