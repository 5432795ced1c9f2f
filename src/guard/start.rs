//! How a guard begins: an agent starts it. The agent is at the other end of stdin, and stdout is
//! the file that the guard locks.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::RecvFlags;

use super::instance_dir::{InstanceDir, LOCK_EVERY};
use super::process::{GuardProcess, OOM_SCORE};
use super::protocol::{AgentPacket, decode};
use super::socket::receive;
use crate::exit::{Exit, Refusal};
use crate::log::{Destination, LogQueue};
use crate::sys;

/// How long a guard waits for the end of the previous guard.
const LOCK_WITHIN: Duration = Duration::from_millis(150);

/// Runs the guard of the agent at the other end of stdin, until the service is
/// known to be down and the agent has gone.
///
/// # Errors
///
/// When stdin does not lead to an agent, or the system lacks something.
pub fn run(stderr: Destination) -> Result<Exit, Refusal> {
    let stdin = io::stdin();
    let lacks = Refusal::system;
    let no_descriptor = lacks("guard: no descriptor: ");
    let socket = rustix::io::fcntl_dupfd_cloexec(&stdin, 3);
    let socket = socket.map_err(|error| no_descriptor(error.into()))?;
    // The agent sees the guard's end when the last copy of the socket is closed.
    // A pipe that nobody writes to: /dev/null may be missing.
    let (nothing, _) = io::pipe().map_err(&no_descriptor)?;
    rustix::stdio::dup2_stdin(&nothing).map_err(|error| no_descriptor(error.into()))?;
    let first = receive(socket.as_fd(), RecvFlags::empty());
    let first = first.map(|(packet, output)| (decode(&packet), output));
    // Opened again to be written to. To close stdout later would end the lock, which is taken
    // below.
    let lock = File::options().read(true).write(true).open("/proc/self/fd/1");
    rustix::stdio::dup2_stdout(&nothing).map_err(|error| no_descriptor(error.into()))?;
    let Ok((Some(AgentPacket::Hello(settings)), output)) = first else {
        let text = "guard: it is started by an agent, not by hand";
        return Err(Refusal::new(Exit::Usage, text));
    };
    #[cfg(target_env = "gnu")]
    sys::raw::share_heap();
    // The call does not fail: a process that an agent has started leads no group.
    let _ = rustix::process::setsid();
    // The scheduler shares the processors among sessions first.
    let _ = fs::write("/proc/self/autogroup", sys::NICE_MIN.to_string());
    let destination = stderr.or_syslog(settings.syslog);
    let log = LogQueue::start(&settings.commands.key, settings.level, destination)
        .map_err(lacks("guard: no log thread: "))?;
    // The commands begin with no signal blocked. The agent has blocked the signals until now, and
    // they are blocked again here: glibc unblocks two of its own when the first thread is started.
    sys::raw::block_signals();
    let lock = lock.map_err(lacks("guard: the lock: "))?;
    let locked = sys::lock_record_within(&lock, LOCK_WITHIN, LOCK_EVERY);
    if !locked.map_err(lacks("guard: the lock: "))? {
        let text = "guard: another guard of this agent, or putex finish, runs";
        return Err(Refusal::new(Exit::System, text));
    }
    let dir = PathBuf::from(&settings.dir);
    let listener = InstanceDir::at(dir.clone()).and_then(|dir| dir.listen(&lock));
    let listener = listener.inspect_err(|why| {
        log::warn!("{why}: the next instance of the agent will not find this guard");
    });
    let process = GuardProcess::new(&dir, lock, &settings, log, output, true);
    let mut process = process.map_err(lacks("guard: it cannot begin: "))?;
    process.listener = listener.ok();
    process.agent = Some(socket);
    protect();
    process.configure(*settings);
    while !process.done {
        process.turn();
    }
    Ok(Exit::Success)
}

/// Protects the guard from the OOM killer, and its memory from being swapped out. Best effort,
/// each: not every user may.
fn protect() {
    let _ = fs::write(OOM_SCORE, "-1000");
    let _ = rustix::mm::mlockall(sys::memory_lock());
}
