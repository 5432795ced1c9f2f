//! What /proc says of processes.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use std::{fs, io, thread};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::raw;

/// How soon all processes are listed again when one could not be looked at.
const LIST_AGAIN: Duration = Duration::from_millis(10);

/// Kills a group and a process of it, which may have left it. The leader of the group runs, or was
/// not reaped: then the number of the group is still its own.
pub fn kill_with_group(group: Pid, process: impl AsFd) {
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    let _ = rustix::process::pidfd_send_signal(process, Signal::KILL);
}

/// Kills the processes of a session, whatever groups they have made, and waits for their ends:
/// timeout(1) makes a group, and so does a shell for each job. The leader of the session runs, or
/// was not reaped. One that may not be killed, of another user, is waited for. Without /proc no
/// process is found. It takes as long as the host has processes, and as they need to end.
pub fn end_session(session: Pid) {
    loop {
        match kill_session(session) {
            Ok(None) => return,
            // Each may have made another before it was killed.
            Ok(Some(last)) => {
                let _ = super::poll(&mut [PollFd::new(&last, PollFlags::IN)]);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            // A process that could not be looked at may be of the session.
            Err(_) => thread::sleep(LIST_AGAIN),
        }
    }
}

/// Kills the processes of a session that are listed; returns one that has not ended yet.
fn kill_session(session: Pid) -> io::Result<Option<OwnedFd>> {
    let is_in = |process| raw::session_of(process) == Ok(Some(session));
    let mut remaining = None;
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        let Some(process) = number.and_then(Pid::from_raw).filter(|process| is_in(*process)) else {
            continue;
        };
        let handle = match rustix::process::pidfd_open(process, PidfdFlags::empty()) {
            Err(Errno::SRCH) => continue,
            opened => opened?,
        };
        // A number that was given to another process meanwhile is in another session.
        if is_in(process) && !super::is_ready(&handle) {
            let _ = rustix::process::pidfd_send_signal(&handle, Signal::KILL);
            remaining = Some(handle);
        }
    }
    Ok(remaining)
}

/// Returns when a process was started, in ticks since boot. Executing another program does not
/// change that.
pub fn start_ticks(process: Pid) -> Option<u64> {
    field_of(process, 19)?.parse().ok()
}

/// Returns whether a process has ended, and was not reaped.
pub fn is_zombie(process: Pid) -> bool {
    field_of(process, 0).is_some_and(|state| matches!(&*state, "Z" | "X"))
}

/// Returns a field of `/proc/PID/stat`, counted from the state, which is 0.
fn field_of(process: Pid, number: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, which may have blanks and brackets, ends at the last bracket.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(number).map(str::to_owned)
}
