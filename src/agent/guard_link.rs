//! The link to a guard: how it comes about, and how packets are sent through it.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus};

use crate::command::remove_agents_own;
use crate::core::{Instant, ToGuard};
use crate::guard::protocol::{Settings, encode};
use crate::guard::{InstanceDir, RunningGuard, send};
use crate::sys;

/// The pause after the kernel had no memory for a packet.
const SEND_PAUSE: Duration = Duration::from_millis(10);

/// The parts that are needed to connect to a guard or to start one.
pub(super) struct Connector {
    pub(super) dir: InstanceDir,
    /// The file of the guard's lock. Each guard of this agent is given it, also where somebody has
    /// removed its name: so the next guard can read the notes of the previous one.
    pub(super) guard_lock: File,
    pub(super) settings: Settings,
}

pub(super) struct Link {
    pub(super) guard: RunningGuard,
    /// The order to a guard of another version; `None` for a guard of this one.
    pub(super) outdated: Option<OutdatedOrder>,
    /// The messages to a guard that was found running and has not answered; `None` for any other.
    pub(super) unanswered: Option<Vec<ToGuard>>,
    /// Packets for which the kernel had no memory.
    unsent: VecDeque<Vec<u8>>,
    /// When the unsent packets are sent again.
    pub(super) send_at: Option<Instant>,
}

/// The order to stop the service that a guard of another version is sent, and again in the place of
/// each question, which that guard may not know.
pub(super) struct OutdatedOrder {
    pub(super) order: ToGuard,
    /// How often the order was sent.
    pub(super) sent_count: u64,
}

impl Connector {
    /// Connects to the guard that lives, or starts one; returns the messages that are still to be
    /// sent. The call waits for file systems.
    ///
    /// `output` is the reading end of start's output that the previous guard had.
    ///
    /// # Errors
    ///
    /// When no guard lives and none can be started, or a guard that did not listen was killed.
    pub(super) fn open(
        &self,
        messages: Vec<ToGuard>,
        output: Option<&OwnedFd>,
    ) -> io::Result<(Link, Vec<ToGuard>)> {
        if let Some(guard) = self.dir.connect(&self.guard_lock, self.settings.timing.renewal())? {
            return Ok((Link::new(guard, Some(Vec::new())), messages));
        }
        Ok((self.start(&messages, output)?, Vec::new()))
    }

    /// Starts a guard. The messages are in its socket before it runs, so it gets them whatever
    /// becomes of this agent.
    fn start(&self, messages: &[ToGuard], output: Option<&OwnedFd>) -> io::Result<Link> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (own, theirs) = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        let mut output = output.map(AsFd::as_fd);
        for message in messages {
            send(own.as_fd(), &self.encode(message), output.take())?;
        }
        // The program that runs, even if its file was replaced.
        let mut command = std::process::Command::new("/proc/self/exe");
        command.arg0("putex").arg("guard").arg(&self.settings.commands.key);
        remove_agents_own(&mut command);
        command.stdin(theirs).stdout(self.guard_lock.try_clone()?);
        let pid = Pid::from_child(&command.spawn()?);
        let process = sys::open_spawned(pid)?;
        Ok(Link::new(RunningGuard { socket: own, process, pid }, None))
    }

    /// Returns the packet of a message.
    pub(super) fn encode(&self, message: &ToGuard) -> Vec<u8> {
        encode(message, &self.settings, sys::now())
    }
}

impl Link {
    fn new(guard: RunningGuard, unanswered: Option<Vec<ToGuard>>) -> Link {
        Link { guard, outdated: None, unanswered, unsent: VecDeque::new(), send_at: None }
    }

    /// Keeps a message for another guard, should this one end without an answer.
    pub(super) fn keep_unanswered(&mut self, message: &ToGuard) {
        self.unanswered.iter_mut().for_each(|messages| messages.push(message.clone()));
    }

    /// Sends a packet without waiting. A packet for which the kernel has no memory is sent later,
    /// with those after it: both ends count messages, so none may be left out.
    ///
    /// # Errors
    ///
    /// When the guard takes no packet.
    pub(super) fn send(&mut self, packet: Vec<u8>) -> Result<(), Errno> {
        self.unsent.push_back(packet);
        // The packets are sent in the order of the calls.
        if self.send_at.is_some() { Ok(()) } else { self.send_unsent() }
    }

    /// Sends the packets that were not sent yet.
    ///
    /// # Errors
    ///
    /// As [`Link::send`].
    pub(super) fn send_unsent(&mut self) -> Result<(), Errno> {
        self.send_at = None;
        while let Some(packet) = self.unsent.front() {
            match send(self.guard.socket.as_fd(), packet, None) {
                Err(Errno::NOBUFS | Errno::NOMEM) => {
                    self.send_at = Some(sys::now().after(SEND_PAUSE));
                    return Ok(());
                }
                // The end of the guard is noticed where the socket is read from.
                Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => drop(self.unsent.pop_front()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Kills the guard; returns its process, which is to be reaped.
    pub(super) fn kill(self) -> OwnedFd {
        // The call fails when the guard has ended already.
        let _ = rustix::process::pidfd_send_signal(&self.guard.process, Signal::KILL);
        self.guard.process
    }
}

/// Reaps a guard that has ended and returns how it ended; `None` while it runs. An error says that
/// the guard is no child of this process: the previous instance may have started it, in this
/// process if the program was executed anew.
pub(super) fn reap(process: &OwnedFd) -> Result<Option<WaitIdStatus>, Errno> {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    rustix::process::waitid(WaitId::PidFd(process.as_fd()), how)
}
