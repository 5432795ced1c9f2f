//! Processes, as /proc shows them.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use std::{fs, io, mem, process};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::{named, raw, start_small_thread};

/// How soon all processes are listed again when one could not be looked at, or has not ended yet;
/// after the latter the time is longer at each listing.
const LIST_AGAIN: Duration = Duration::from_millis(10);

/// The greatest factor of that time: a process that cannot be killed may live on for days.
const LONGER_MAX: u32 = 50;

/// Kills a process group, and a process that was in it and may be in another one now. The leader
/// of the group runs, or was not reaped: then the number of the group is still its own.
pub fn kill_with_group(group: Pid, process: impl AsFd) {
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    let _ = rustix::process::pidfd_send_signal(process, Signal::KILL);
}

/// Kills the processes of a session, whatever groups they have made, and waits for their ends:
/// timeout(1) makes a group, and so does a shell for each job. The leader of the session may be
/// gone: its number is given to no other process while a process of the session lives. The call
/// waits for a process of another user, which may not be killed, and for a /proc of this namespace.
/// It finds no process that /proc hides, as those of other users. It takes as long as the host has
/// processes, and as they need to end.
pub fn end_session(session: Pid) {
    let (mut longer, mut is_told) = (0, false);
    loop {
        match kill_session(session) {
            Ok(None) => break,
            // Each process may have made another before it was killed, which must not wait for the
            // end of one that cannot be killed.
            Ok(Some(last)) => {
                longer = LONGER_MAX.min(longer + 1);
                super::is_ready_soon(&last, LIST_AGAIN * longer);
            }
            // A process that could not be looked at may be of the session.
            Err(error) => {
                if !mem::replace(&mut is_told, true) {
                    log::warn!("cannot list the processes of a session: {error}");
                }
                super::pause(LIST_AGAIN);
            }
        }
    }
}

/// Kills the processes of a session that are found; returns one that has not ended yet.
///
/// A process that is listed may make another and end before it is looked at, so a listing without
/// any proves nothing. But a process that has no number yet when the first listing begins has a
/// later one than a thread that was made before, and all of those are looked at in their order: the
/// maker of a process that is not there yet was found before it. A process that has a number then
/// and is not there yet is in the second listing, or its maker in the first.
///
/// # Errors
///
/// When there may be others in the session.
fn kill_session(session: Pid) -> io::Result<Option<OwnedFd>> {
    check_proc()?;
    // A session that has all the processes that the system has to give is killed all the same.
    let before = number_of_new_thread();
    for _ in 0..2 {
        let remaining = kill_listed(session)?;
        if remaining.is_some() {
            return Ok(remaining);
        }
    }
    let mut before = before?;
    loop {
        let newest = number_of_new_thread()?;
        if newest == before + 1 {
            return Ok(None);
        }
        if newest <= before {
            return Err(io::Error::other("the numbers have begun anew"));
        }
        for number in before + 1..newest {
            if let Some(member) = kill_member(session, number)? {
                return Ok(Some(member));
            }
        }
        before = newest;
    }
}

/// Kills the processes of a session that are listed; returns one that has not ended yet.
fn kill_listed(session: Pid) -> io::Result<Option<OwnedFd>> {
    let mut remaining = None;
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if let Some(number) = name.to_str().and_then(|name| name.parse().ok()) {
            remaining = kill_member(session, number)?.or(remaining);
        }
    }
    Ok(remaining)
}

/// Kills the process of this number if it is of a session and has not ended; returns it.
fn kill_member(session: Pid, number: i32) -> io::Result<Option<OwnedFd>> {
    let is_in = |process| match raw::session_of(process) {
        Err(Errno::SRCH) => Ok(false),
        found => found.map(|of| of == Some(session)),
    };
    let Some(process) = Pid::from_raw(number) else { return Ok(None) };
    if !is_in(process)? {
        return Ok(None);
    }
    let handle = match rustix::process::pidfd_open(process, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(None),
        opened => opened?,
    };
    // A number that was given to another process meanwhile is in another session.
    if !is_in(process)? || super::is_ready(&handle) {
        return Ok(None);
    }
    let _ = rustix::process::pidfd_send_signal(&handle, Signal::KILL);
    Ok(Some(handle))
}

/// Checks that /proc is there, and is that of this process's PID namespace: by the numbers in it
/// processes are found.
///
/// # Errors
///
/// When there is no such /proc.
pub fn check_proc() -> io::Result<()> {
    let own = fs::read_link("/proc/self").map_err(named("/proc/self"))?;
    if own.to_str() == Some(&process::id().to_string()) {
        return Ok(());
    }
    Err(io::Error::other("/proc is that of another PID namespace; mount /proc in this one"))
}

/// Returns the number of a thread that was made just now. Threads and processes have their numbers
/// from one count.
fn number_of_new_thread() -> io::Result<i32> {
    let thread = start_small_thread("putex-number", rustix::thread::gettid)?;
    let number = thread.join().map_err(|_| io::Error::other("a thread has panicked"))?;
    Ok(number.as_raw_pid())
}

/// Returns when a process was started, in ticks since boot. Executing another program does not
/// change that.
pub fn start_ticks(process: Pid) -> Option<u64> {
    field_of(process, 19)?.parse().ok()
}

/// Returns whether a process is ending, or has ended and was not reaped. A process lets go of its
/// files before it is a zombie; one that is killed while it executes another program, before it
/// takes the signal.
pub fn is_ending(process: Pid) -> bool {
    let flags = field_of(process, 6).and_then(|flags| flags.parse::<u32>().ok());
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let is_killed = |line: &str| {
        let pending = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
        let set = pending.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        set.is_some_and(|set| set & KILLED != 0)
    };
    flags.is_none_or(|flags| flags & EXITING != 0) || status.lines().any(is_killed)
}

/// The flag of the kernel for a process that is ending: `PF_EXITING`.
const EXITING: u32 = 4;

/// SIGKILL in a set of signals.
const KILLED: u64 = 1 << (libc::SIGKILL - 1);

/// Returns a field of `/proc/PID/stat`, counted from the state, which is 0.
fn field_of(process: Pid, number: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, which may have blanks and brackets, ends at the last bracket.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(number).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// `finish` took an agent that was dying for one that executes its program anew.
    #[test]
    fn a_process_that_has_ended_counts_as_ending_before_it_is_reaped() {
        let mut command = Command::new("cat");
        let child = command.stdin(Stdio::piped()).spawn().expect("a process");
        let pid = Pid::from_child(&child);
        assert!(!is_ending(pid) && start_ticks(pid).is_some());
        rustix::process::kill_process(pid, Signal::KILL).expect("it runs");
        crate::sys::until("its end", || is_ending(pid).then_some(()));
        let mut child = child;
        child.wait().expect("it is reaped");
        assert!(is_ending(pid), "there is no such process");
    }
}
