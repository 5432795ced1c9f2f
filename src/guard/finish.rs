//! `putex finish`: a command for service managers, which run it when an agent has ended, however it
//! did. When its guard is gone too, nobody else would stop the service.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::net::Shutdown;
use rustix::process::Signal;

use super::instance_dir::{GUARD_LOCK, Identity, InstanceDir, LOCK_EVERY};
use super::process::GuardProcess;
use super::protocol::Settings;
use crate::core::{Ms, Timing};
use crate::exit::Exit;
use crate::log::LogQueue;
use crate::sys;

/// How long the kernel may take to let go of the lock of a process that has ended.
const LOCK_WITHIN: Duration = Duration::from_millis(100);

/// How long a guard that was killed may take to end.
const KILLED_WITHIN: Duration = Duration::from_millis(500);

/// Runs the stop procedure, unless an agent or a guard lives that will stop the service. It has the
/// lock of the guard meanwhile: a guard that is started then ends, unless somebody has removed the
/// lock.
///
/// # Errors
///
/// When it cannot be known whether an agent or a guard lives, or the system has no descriptor,
/// thread or process to give.
pub fn finish(
    settings: &Settings,
    base: &Path,
    identity: &Identity,
    log: LogQueue,
) -> io::Result<Exit> {
    let dir = InstanceDir::open(base, identity)?;
    if dir.agent_lives(LOCK_WITHIN)? {
        log::info!("finish: the agent lives: nothing to do");
        return Ok(Exit::Success);
    }
    let timing = settings.timing;
    let give_up_within = timing.stop_budget() + timing.renewal();
    let Some(lock) = lock_of_guard(&dir, timing, give_up_within)? else {
        log::info!("finish: the guard sees to the service");
        return Ok(Exit::Success);
    };
    let mut process = GuardProcess::new(&dir.path, lock, settings, log, None, false)?;
    let give_up_at = sys::now().after(give_up_within);
    process.give_up_at = Some(give_up_at);
    while !process.done {
        process.turn();
        if !process.guard.is_down() && sys::now() >= give_up_at {
            log::error!("finish: the service could not be stopped");
            return Ok(Exit::NotStopped);
        }
    }
    log::info!("finish: stop succeeded");
    Ok(Exit::Success)
}

/// Returns the lock of the guard, or nothing where a guard answers, or an agent lives by now. A
/// guard that does not answer is killed, as by an agent. Another process that has the lock, such as
/// another `finish`, has as long as this one to let go of it.
fn lock_of_guard(dir: &InstanceDir, timing: Timing, within: Duration) -> io::Result<Option<File>> {
    let until = sys::now().after(within);
    let guard = loop {
        if let Some(lock) = dir.lock(GUARD_LOCK, LOCK_EVERY)? {
            return Ok(Some(lock));
        }
        // The guard takes a connection for that of the next agent, and would drop one that lives.
        if dir.agent_lives(LOCK_WITHIN)? {
            return Ok(None);
        }
        // A guard that did not listen is killed, and lets go of the lock.
        if let Ok(Some(guard)) = dir.connect(&dir.file(GUARD_LOCK)?, timing.renewal()) {
            break guard;
        }
        if sys::now() >= until {
            return Err(io::Error::other("the lock of the guard is held, and no guard listens"));
        }
    };
    // The call fails where the guard has closed the socket already.
    let _ = rustix::net::shutdown(&guard.socket, Shutdown::Write);
    let answer_within = dir.answer_time(timing.renewal());
    if sys::is_ready_soon(&guard.socket, answer_within) {
        // The end of a guard looks like its answer; the lock tells whether it lives.
        return dir.lock(GUARD_LOCK, LOCK_WITHIN);
    }
    log::error!("finish: the guard did not answer within {}: it is killed", Ms(answer_within));
    rustix::process::pidfd_send_signal(&guard.process, Signal::KILL)?;
    let lock = dir.lock(GUARD_LOCK, KILLED_WITHIN)?;
    lock.map(Some).ok_or_else(|| io::Error::other("the guard was killed and has not ended"))
}
