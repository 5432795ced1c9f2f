//! `putex lock`: runs a command while a lock is held.
//!
//! Two processes. The *front* is the process that the user has started: it owns the command,
//! its terminal and its signals. The *renewer*, in a session of its own, has the ticket in the
//! store: it waits, renews and releases. Each of them kills the command in time when the other
//! one is dead or paused.
//!
//! | file | part |
//! |---|---|
//! | `protocol` | what front and renewer tell each other |
//! | `held` | the locks of enclosing processes |
//! | `process` | the command as a process group |
//! | `terminal` | which process group has the terminal |
//! | `signals` | the signals of the front |
//! | `front` | the front: how it waits for the lock |
//! | `hold` | the front while the lock is held |
//! | `renewer` | the ticket in the store |

mod front;
mod held;
mod hold;
mod process;
mod protocol;
mod renewer;
mod signals;
mod terminal;

use std::ffi::OsString;
use std::time::Duration;

use crate::core::tickets::{LockTiming, Mode, Name, Soft};
use crate::exit::Refusal;
use crate::log::Destination;
use crate::store::Bucket;

/// How long a lock is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until it is had.
    Forever,
    /// So long; zero means not at all.
    For(Duration),
}

/// What is asked for.
#[derive(Debug)]
pub struct Request {
    /// The names, at least one.
    pub names: Vec<Name>,
    /// Whether others may hold them at the same time.
    pub mode: Mode,
    /// Whether the ticket keeps out of the way of others.
    pub soft: Option<Soft>,
    /// How long they are waited for.
    pub wait: Wait,
    /// R, F, drift, and the time between SIGTERM and SIGKILL.
    pub timing: LockTiming,
    /// The exit status when the lock was not had in time.
    pub busy_status: u8,
    /// Who asks, for people.
    pub token: String,
    /// Words of the command, at least one.
    pub command: Vec<OsString>,
    /// The lowest level that is logged: 1 errors, 2 warnings, and so on.
    pub level: u64,
}

/// Gets the lock, runs the command, releases the lock; returns the exit status.
///
/// # Errors
///
/// Why the command was not run, or the lock not had.
pub fn run(
    request: Request,
    store: Box<dyn Bucket>,
    destination: Destination,
) -> Result<u8, Refusal> {
    front::run(&request, store, destination)
}
