//! How much a message matters.

use serde::{Deserialize, Serialize};

/// How much a message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
