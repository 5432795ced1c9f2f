//! The socket between agent and guard, and the name under which another life of the
//! agent finds it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use rustix::process::PidfdFlags;

use super::word::Word;

/// Lives of the agent that may wait to be let in.
const BACKLOG: i32 = 4;

/// The other end.
pub(super) struct Agent {
    pub(super) socket: OwnedFd,
    pub(super) process: Option<OwnedFd>,
}

impl Agent {
    /// Without the process, a silent agent cannot be killed, only its service ended.
    pub(super) fn of(socket: OwnedFd) -> Agent {
        let peer = sockopt::socket_peercred(&socket);
        let process =
            peer.and_then(|peer| rustix::process::pidfd_open(peer.pid, PidfdFlags::empty()));
        Agent {
            socket,
            process: process.ok(),
        }
    }

    /// Takes in the next thing that the agent has said, without waiting.
    pub(super) fn hear(&self, buffer: &mut [u8]) -> Heard {
        loop {
            return match receive(self.socket.as_fd(), buffer, RecvFlags::DONTWAIT) {
                Ok((count, leader)) => {
                    let word = Word::decode(&buffer[..count]);
                    word.map_or(Heard::End, |word| Heard::Said(word, leader))
                }
                Err(Errno::AGAIN) => Heard::Nothing,
                // Told once, when an agent ends that had not read all: before what it said.
                Err(Errno::CONNRESET) => continue,
                Err(_) => Heard::End,
            };
        }
    }
}

/// What there is to be heard of an agent.
#[derive(Debug)]
pub(super) enum Heard {
    /// A word, and the descriptor that came with it.
    Said(Word, Option<OwnedFd>),
    /// Nothing more for now.
    Nothing,
    /// It is gone, or not to be understood, which comes to the same.
    End,
}

/// Sends a packet, and a descriptor with it, without waiting for the other end.
///
/// # Errors
///
/// When the other end is gone, or has no room.
pub fn send(
    socket: BorrowedFd<'_>,
    packet: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptor = descriptor.as_slice();
    if !descriptor.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptor));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(packet)], &mut control, flags).map(drop)
}

/// Returns the length of the next packet, 0 at the end, and the descriptor that came with
/// it.
///
/// # Errors
///
/// When there is nothing, for who does not wait, or the other end is gone.
pub fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Option<OwnedFd>), Errno> {
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut packet = [IoSliceMut::new(buffer)];
        rustix::net::recvmsg(socket, &mut packet, &mut control, flags)
    })?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        RecvAncillaryMessage::ScmCredentials(_) | _ => None,
    });
    let descriptor = descriptors.flatten().next();
    Ok((received.bytes, descriptor))
}

/// Listens on a name that is no file: nothing is left behind by a guard that dies.
pub(super) fn listen(name: &str) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(
        &listener,
        &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    )?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Returns whether a guard of that name lives, without disturbing it: no two sockets
/// have one name.
#[must_use]
pub fn is_there(name: &str) -> bool {
    listen(name).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// Attaches to the guard of that name; `None` when there is none any more.
pub fn call(name: &str) -> Option<OwnedFd> {
    let kind = SocketType::SEQPACKET;
    // One that hangs may have no room for another caller.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).ok()?;
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?;
    rustix::net::connect(&socket, &address).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::guard::Watch;

    /// The kernel tells that something was left unread before it hands over what was sent.
    #[test]
    fn an_agent_that_ended_with_an_answer_unread_is_heard_to_the_end() {
        let kind = SocketType::SEQPACKET;
        let ends = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (own, theirs) = ends.expect("two sockets");
        send(own.as_fd(), b"an answer", None).expect("there is room");
        let words = [Word::Watch(Watch::Down), Word::StopBegins];
        for word in &words {
            send(theirs.as_fd(), &word.encode(), None).expect("there is room");
        }
        drop(theirs);
        let agent = Agent::of(own);
        let mut buffer = [0; 1024];
        for word in words {
            let heard = agent.hear(&mut buffer);
            assert!(
                matches!(&heard, Heard::Said(said, None) if *said == word),
                "{heard:?}"
            );
        }
        let end = agent.hear(&mut buffer);
        assert!(matches!(end, Heard::End), "{end:?}");
    }
}
