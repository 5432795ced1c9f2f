//! What a guard has before it decides anything: the lock, the commands, the control group.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FlockOperation;

use super::cgroup::{PREFIX, ServiceCgroup};
use super::instance_dir::InstanceDir;
use super::note::{Note, PredecessorStart};
use super::runner::Runner;
use crate::core::command::Command;
use crate::core::level::Level;
use crate::log::{LogQueue, say};
use crate::sys::{self, Waker};

/// How often the lock is tried.
const LOCK_EVERY: Duration = Duration::from_millis(2);

/// Takes the guard's lock, which the kernel lets go of when the guard before is dead; `None`
/// when it lives on.
///
/// # Errors
///
/// When the file cannot be opened or locked.
pub(super) fn lock(dir: &InstanceDir, within: Duration) -> io::Result<Option<File>> {
    let file = dir.guard_lock()?;
    let locked = lock_file(&file, within)?;
    Ok(locked.then_some(file))
}

/// Locks a file; says whether that came about in time.
///
/// # Errors
///
/// When the file cannot be locked.
pub(super) fn lock_file(file: &File, within: Duration) -> io::Result<bool> {
    let how = FlockOperation::NonBlockingLockExclusive;
    sys::lock_within(file, how, within, LOCK_EVERY)
}

/// What a guard has before it decides anything.
pub(super) struct Parts {
    pub(super) runners: [Runner; 3],
    pub(super) waker: Arc<Waker>,
    /// The control group of this guard first, then one that a guard before has used.
    pub(super) cgroups: Vec<ServiceCgroup>,
    /// A start of the guard before was killed and has not ended.
    pub(super) predecessor_start: Option<PredecessorStart>,
    /// No guard before has left a service that may be up.
    pub(super) down: bool,
    pub(super) note: Note,
    /// Keeps the lock.
    _lock: File,
    /// Dropped last: it may wait for its reader.
    pub(super) log: LogQueue,
}

impl Parts {
    /// Kills what the guard before was running, and makes a control group for start, where that
    /// is permitted: one for all guards of this agent, so that whoever has to end the service
    /// finds what each of them has left. The lock proves that the guard before is dead.
    ///
    /// # Errors
    ///
    /// When the system lacks something.
    pub(super) fn prepare(dir: &InstanceDir, lock: File, log: LogQueue) -> io::Result<Parts> {
        let named = |error: io::Error| {
            let path = dir.path().join("lock");
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let (note, before) = Note::begin(lock.try_clone()?).map_err(named)?;
        let down = !before.up;
        let name = dir.path().file_name().unwrap_or_default();
        let name = name.to_string_lossy();
        let mut cgroups = Vec::new();
        match ServiceCgroup::make(&format!("{PREFIX}{name}")) {
            Ok(own) => {
                // Without the note the next guard finds it all the same, below the same parent.
                let noted = note.cgroup(own.dir()).map_err(named);
                cgroups.push(own);
                if let Err(why) = noted {
                    say(Level::Warn, &format!("the control group is not noted: {why}"));
                }
            }
            Err(why) => say(Level::Debug, &format!("no control group: {why}")),
        }
        let elsewhere = before
            .cgroup
            .as_deref()
            .filter(|dir| cgroups.iter().all(|own| own.dir() != *dir))
            .and_then(|dir| ServiceCgroup::open(dir).ok());
        cgroups.extend(elsewhere.filter(|old| old.is_populated().unwrap_or(true)));
        let predecessor_start = before.kill_commands();
        let waker = Arc::new(Waker::new()?);
        let runner = |command| Runner::start(command, note.try_clone()?, Arc::clone(&waker));
        let runners =
            [runner(Command::Start)?, runner(Command::Stop)?, runner(Command::LastResort)?];
        Ok(Parts { runners, waker, cgroups, predecessor_start, down, note, _lock: lock, log })
    }
}
