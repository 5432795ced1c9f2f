//! `putex lock`: runs a command while a lock is held.
//!
//! A lock in NATS takes two processes. The *front* is the process that the user has started: it has
//! the terminal and the signals. The *renewer*, its child in a process group of its own, has the
//! ticket in the store: it waits, renews and releases. It is the parent of the command: all
//! processes that the command has started are below the renewer, and below the front when the
//! renewer is dead. Each of the two kills all of them in time when the other one is dead or paused.
//!
//! A lock of one host, in a directory, is a lock of an open file that the command inherits:
//! nothing is renewed, and there is no second process.
//!
//! | file | part |
//! |---|---|
//! | `protocol` | the messages between front and renewer |
//! | `held` | the variables of the command; the locks of enclosing processes |
//! | `command` | the command, for the process that has started it |
//! | `terminal` | which process group has the terminal |
//! | `signals` | the signals of the front |
//! | `job` | the command as a job on a terminal |
//! | `front` | the front: how it waits for the lock |
//! | `hold` | the front while the lock is held, in NATS or in a directory |
//! | `stay` | the front after its command: `--hold` |
//! | `account` | the course of the lock: said on stderr, and kept for the report |
//! | `report` | `--report` |
//! | `renewer` | the ticket in the store, and how long it is kept |
//! | `local` | the lock of one host |
//! | `waiter` | how a process waits in a directory, also one of `putex grab` |

mod account;
mod command;
mod front;
mod held;
mod hold;
mod job;
mod local;
mod protocol;
mod renewer;
mod report;
mod signals;
mod stay;
mod terminal;
pub(crate) mod waiter;

pub(crate) use self::held::check as check_held;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use rustix::process::DumpableBehavior;

use self::account::{Account, Ending};
use crate::core::tickets::{LockTiming, Mode, Name, Soft};
use crate::exit::Refusal;
use crate::log::Destination;
use crate::store::Bucket;
use crate::sys::{self, raw};

/// A request of a command line of `putex lock`.
#[derive(Clone, Debug)]
pub struct Request {
    /// The name that is locked.
    pub name: Name,
    /// Whether others may hold the name at the same time.
    pub mode: Mode,
    /// Whether the ticket keeps out of the way of others.
    pub soft: Option<Soft>,
    /// How long the lock is waited for: zero for not at all, `None` for ever.
    pub wait: Option<Duration>,
    /// R, F, drift, and the time between SIGTERM and SIGKILL.
    pub timing: LockTiming,
    /// The exit status when the lock was not had in time.
    pub busy_status: u8,
    /// The token of the requester, for people.
    pub token: String,
    /// Whether the command does not inherit the lock of a directory.
    pub closes: bool,
    /// How long the lock is held at least, also after its command.
    pub hold: Duration,
    /// The file for a line on the end.
    pub report: Option<String>,
    /// Words of the command, at least one.
    pub command: Vec<OsString>,
    /// The lowest level that is logged: 1 errors, 2 warnings, and so on.
    pub level: u64,
}

/// Where the lock is.
pub enum LockLocation<'a> {
    /// A bucket in NATS, or why there is none.
    Nats(Result<Box<dyn Bucket>, Refusal>),
    /// A bucket in a directory of this host.
    Dir {
        /// The directory.
        base: &'a Path,
        /// The name of the bucket.
        bucket: &'a str,
    },
}

/// Gets the lock, runs the command, releases the lock; returns the exit status. Reports the end,
/// also that of a lock without a store.
///
/// # Errors
///
/// Why the command was not run, or the lock not had.
pub fn run(
    request: &Request,
    location: LockLocation<'_>,
    destination: Destination,
) -> Result<u8, Refusal> {
    let mut account = Account::new(request.clone(), destination, sys::now());
    account.report = request.report.as_deref().map(report::open).transpose()?;
    let ended = held::check(&request.name).and_then(|()| match location {
        LockLocation::Nats(store) => front::run(store?, &mut account),
        LockLocation::Dir { base, bucket } => local::run(request, (base, bucket), &mut account),
    });
    let status = match &ended {
        Ok(ending) => ending.status(),
        Err(refusal) => {
            account.why = Some(refusal.text.clone());
            refusal.exit as u8
        }
    };
    if let Some(file) = &account.report {
        report::write(file, &account, status);
    }
    ended.map(conclude)
}

/// Returns the exit status. Where the process ends by a signal, that happens here.
fn conclude(ending: Ending) -> u8 {
    // SIGQUIT writes no password to the disk.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    match ending {
        Ending::Status(_) => {}
        Ending::Signal(signal) => raw::act_by_default(signal),
        Ending::Typed(signal) => raw::act_by_default_with_group(signal),
    }
    ending.status()
}
