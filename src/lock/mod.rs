//! `putex lock`: runs a command while a lock is held.
//!
//! A lock in NATS takes two processes. The *front* is the process that the user has started: it
//! owns the command, its terminal and its signals. The *renewer*, in a session of its own, has
//! the ticket in the store: it waits, renews and releases. Each of them kills the command in time
//! when the other one is dead or paused.
//!
//! A lock of one host, in a directory, is a lock of an open file that the command inherits:
//! nothing is renewed, and there is no second process.
//!
//! | file | part |
//! |---|---|
//! | `protocol` | what front and renewer tell each other |
//! | `held` | what a command is told; the locks of enclosing processes |
//! | `process` | the command as a process group |
//! | `terminal` | which process group has the terminal |
//! | `signals` | the signals of the front |
//! | `job` | the command as a job on a terminal |
//! | `front` | the front: how it waits for the lock |
//! | `hold` | the front while the lock is held |
//! | `renewer` | the ticket in the store |
//! | `local` | the lock of one host |

mod front;
mod held;
mod hold;
mod job;
mod local;
mod process;
mod protocol;
mod renewer;
mod signals;
mod terminal;

use std::ffi::OsString;
use std::path::Path;
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
    /// Whether the command does not inherit the lock of a directory.
    pub closes: bool,
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

/// Does so with a lock of this host, in a bucket of a directory.
///
/// # Errors
///
/// Why the command was not run, or the lock not had.
pub fn run_local(
    request: &Request,
    base: &Path,
    bucket: &str,
    destination: Destination,
) -> Result<u8, Refusal> {
    local::run(request, (base, bucket), destination)
}
