//! `putex finish`: what a service manager runs when an agent has ended, however it
//! did. When its guard is gone too, nobody else would stop the service.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::instance_dir::{AGENT_LOCK, GUARD_LOCK, Identity, InstanceDir};
use super::process::GuardProcess;
use super::protocol::Settings;
use crate::core::level::Level;
use crate::exit::Exit;
use crate::log::{Destination, LogQueue, say};
use crate::sys;

/// How long the kernel may take to let go of the lock of a process that has ended: a child
/// that has not executed its program yet has it too.
const LOCK_WITHIN: Duration = Duration::from_millis(100);

/// Runs the stop procedure, unless an agent or a guard lives that will. No guard begins
/// meanwhile, and no agent does anything without one.
///
/// # Errors
///
/// When it cannot be known whether they live, or the system has no descriptor, thread or
/// process to give.
pub fn finish(
    settings: &Settings,
    base: &Path,
    identity: &Identity,
    log: LogQueue,
) -> io::Result<Exit> {
    let dir = InstanceDir::open(base, identity)?;
    if dir.lock(AGENT_LOCK, LOCK_WITHIN)?.is_none() {
        say(Level::Info, "finish: the agent lives: nothing to do");
        return Ok(Exit::Success);
    }
    let Some(lock) = dir.lock(GUARD_LOCK, LOCK_WITHIN)? else {
        say(Level::Info, "finish: the guard sees to the service");
        return Ok(Exit::Success);
    };
    let stderr = Destination::of_stderr(None);
    let mut process = GuardProcess::new(&dir, lock, settings, stderr, log, false)?;
    let timing = settings.timing;
    let give_up_at = sys::now().after(timing.stop_budget() + timing.renewal());
    process.give_up_at = Some(give_up_at);
    while !process.over {
        process.turn();
        if !process.guard.is_down() && sys::now() >= give_up_at {
            say(Level::Error, "finish: the service could not be stopped");
            return Ok(Exit::NotStopped);
        }
    }
    say(Level::Info, "finish: stop succeeded");
    Ok(Exit::Success)
}
