//! What front and renewer tell each other: one packet of JSON a message. Both ends are one
//! program, which has forked.

use serde::{Deserialize, Serialize};

pub(super) use crate::core::tickets::{End, ToFront};

/// What the front tells the renewer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToRenewer {
    /// The command runs: its process group, which is the number of its leader. Comes with the
    /// leader's pidfd. The renewer kills it when the front is dead or paused.
    Started(i32),
    /// The command and its group have ended. The renewer releases the lock when it was held for
    /// so long as is wanted, and the success is recorded.
    Ended {
        /// The command has succeeded.
        succeeded: bool,
    },
    /// No command runs, nor will one: the lock is to be released at once.
    Done,
    /// The lock is not wanted any more; no command runs.
    Cancel,
}
