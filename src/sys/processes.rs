//! What /proc says of processes.

use std::fs;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::raw;

/// Kills a group and a process of it, which may have left it. The leader of the group runs, or was
/// not reaped: then the number of the group is still its own.
pub fn kill_with_group(group: Pid, process: impl AsFd) {
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    let _ = rustix::process::pidfd_send_signal(process, Signal::KILL);
}

/// Kills the processes of a session, whatever groups they have made, and waits for their ends:
/// timeout(1) makes a group, and so does a shell for each job. The leader of the session runs, or
/// was not reaped. Best effort: without /proc no process is killed, and one of another user may not
/// be. It takes as long as the host has processes, and as the kernel needs.
pub fn end_session(session: Pid) {
    let is_in = |process| raw::session_of(process) == Ok(Some(session));
    loop {
        let mut killed = None;
        let listed = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        for process in numbers.filter_map(Pid::from_raw) {
            // A number that was given to another process meanwhile is in another session.
            if is_in(process)
                && let Ok(handle) = rustix::process::pidfd_open(process, PidfdFlags::empty())
                && is_in(process)
                && !super::is_ready(&handle)
                && rustix::process::pidfd_send_signal(&handle, Signal::KILL).is_ok()
            {
                killed = Some(handle);
            }
        }
        // Each may have made another before it was killed.
        let Some(last) = killed else { return };
        let _ = super::poll(&mut [PollFd::new(&last, PollFlags::IN)]);
    }
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
