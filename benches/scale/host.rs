//! Threads, descriptors and priorities of this process, so that it is not the bottleneck.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Resource, Rlimit};
use rustix::thread::UnshareFlags;

/// Descriptors of a server besides those of its clients.
const DESCRIPTORS: u64 = 200;

/// Says that this process was executed anew.
const PREPARED: &str = "PUTEX_SCALE_PREPARED";

/// A shell script that executes this program with room for tens of thousands of threads that come
/// and go. Small stacks are kept for the next thread. Without its handlers of these signals Rust
/// maps no further stack for each.
const PREPARE: &str = "trap '' SEGV BUS
    export RUST_MIN_STACK=131072 GLIBC_TUNABLES=glibc.pthread.stack_cache_size=4000000000
    exec \"$0\" \"$@\"";

/// Executes this program anew, unless that was done.
///
/// # Errors
///
/// If it fails.
pub(crate) fn prepare() -> Result<(), String> {
    if std::env::var_os(PREPARED).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut shell = Command::new("/bin/sh");
    shell.args([OsStr::new("-c"), OsStr::new(PREPARE), program.as_os_str()]);
    Err(shell.args(std::env::args_os().skip(1)).env(PREPARED, "1").exec().to_string())
}

/// Whose processes and threads these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Servers,
    Agents,
}

/// Gives the calling thread, and what it starts from now on, the priority of this side. Thousands
/// of threads that can run would leave the servers next to no time otherwise: real agents have
/// processors of their own.
pub(crate) fn run_as(side: Side) {
    let nice = match side {
        Side::Servers => -20,
        Side::Agents => 19,
    };
    // Where that is not permitted, servers have the usual priority.
    let _ = rustix::process::setpriority_process(None, nice);
}

/// Gives the calling thread a table of descriptors of its own: the limit of them, which is that of
/// one table, is too low for all agents together.
///
/// # Errors
///
/// When the kernel has no memory for it.
#[expect(unsafe_code, reason = "the thread owns no descriptor yet")]
pub(crate) fn separate_descriptors() -> io::Result<()> {
    // SAFETY: what this thread and those that it starts open is used and closed by them alone.
    // The descriptor that all use was opened before, and has the same number in each table.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) }?)
}

/// Raises the limit of descriptors, which a server inherits, as far as that is permitted.
///
/// # Errors
///
/// When a server would not have one for each of so many clients.
pub(crate) fn permit_descriptors(clients: usize) -> Result<(), String> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // After a failure the limit of now has to do, if it does.
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
    let wanted = clients as u64 + DESCRIPTORS;
    match limit.maximum {
        Some(most) if most < wanted => Err(format!(
            "a server needs {wanted} descriptors, and the limit is {most}: raise it (ulimit -Hn)"
        )),
        Some(_) | None => Ok(()),
    }
}
