//! How a guard begins: it is started by an agent, which is at the other end of stdin.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::RecvFlags;

use super::instance_dir::{GUARD_LOCK, InstanceDir};
use super::process::GuardProcess;
use super::protocol::{AgentPacket, decode};
use super::socket::receive;
use crate::exit::{Exit, Refusal};
use crate::log::{Destination, LogQueue};
use crate::sys::{raw, signals};

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
    let nothing = File::open("/dev/null").map_err(&no_descriptor)?;
    rustix::stdio::dup2_stdin(&nothing).map_err(|error| no_descriptor(error.into()))?;
    let first = receive(socket.as_fd(), RecvFlags::empty());
    let first = first.map(|(packet, output)| (decode(&packet), output));
    let Ok((Some(AgentPacket::Hello(settings)), output)) = first else {
        let text = "guard: it is started by an agent, not by hand";
        return Err(Refusal::new(Exit::Usage, text));
    };
    #[cfg(target_env = "gnu")]
    raw::share_heap();
    signals::handle_deadly().map_err(lacks("guard: signals: "))?;
    // It fails where the agent made the guard the leader of a group already.
    let _ = rustix::process::setsid();
    let dir = InstanceDir::at(PathBuf::from(&settings.dir))
        .map_err(lacks("guard: the directory of the agent: "))?;
    let destination = stderr.or_syslog(settings.syslog);
    let log = LogQueue::start_killable(&settings.commands.key, settings.level, destination)
        .map_err(lacks("guard: no log thread: "))?;
    let lock = dir.lock(GUARD_LOCK, LOCK_WITHIN).map_err(lacks("guard: the lock: "))?;
    let lock = lock.ok_or_else(|| {
        let text = "guard: another guard of this agent, or putex finish, runs";
        Refusal::new(Exit::System, text)
    })?;
    let process = GuardProcess::new(&dir, lock, &settings, stderr, log, output, true);
    let mut process = process.map_err(lacks("guard: it cannot begin: "))?;
    process.listener = Some(dir.listen().map_err(lacks("guard: the socket: "))?);
    process.agent = Some(socket);
    process.protect(settings.realtime);
    process.configure(*settings);
    while !process.done {
        process.turn();
    }
    Ok(Exit::Success)
}
