//! The socket between agent and guard: one packet a message.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use serde::Serialize;

use super::protocol::PACKET_MAX;

/// Connections that may wait to be accepted, also those of agents that have ended. A guard
/// that hangs accepts none, and only an agent that is connected kills it.
const BACKLOG: i32 = 4096;

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

/// Sends a message as a packet of JSON; see [`send`].
///
/// # Errors
///
/// As those of [`send`].
pub fn send_json(
    socket: BorrowedFd<'_>,
    message: &impl Serialize,
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    // Everything in a message has a form in JSON.
    send(socket, &serde_json::to_vec(message).unwrap_or_default(), descriptor)
}

/// Returns the next packet, an empty one at the end, and the descriptor that came with it.
///
/// # Errors
///
/// When there is no packet and the caller does not wait, or the other end is gone.
pub fn receive(
    socket: BorrowedFd<'_>,
    flags: RecvFlags,
) -> Result<(Vec<u8>, Option<OwnedFd>), Errno> {
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    // Few packets are long, and the memory of a guard is locked.
    let length = flags | RecvFlags::PEEK | RecvFlags::TRUNC;
    let (_, length) = rustix::io::retry_on_intr(|| rustix::net::recv(socket, &mut [0; 0], length))?;
    let mut buffer = vec![0; length.min(PACKET_MAX)];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut packet = [IoSliceMut::new(&mut buffer)];
        rustix::net::recvmsg(socket, &mut packet, &mut control, flags)
    })?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        RecvAncillaryMessage::ScmCredentials(_) | _ => None,
    });
    let descriptor = descriptors.flatten().next();
    buffer.truncate(received.bytes);
    Ok((buffer, descriptor))
}

/// Returns the next packet that is there, and the descriptor that came with it; `None` while there
/// is none. An empty packet says that the other end is gone.
pub fn next_packet(socket: BorrowedFd<'_>) -> Option<(Vec<u8>, Option<OwnedFd>)> {
    loop {
        match receive(socket, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => return None,
            // The kernel tells this once, before the packets, when the other end has ended with a
            // packet unread.
            Err(Errno::CONNRESET) => {}
            received => return Some(received.unwrap_or_default()),
        }
    }
}

/// Listens on a path.
///
/// # Errors
///
/// When the path cannot be used, or the process has no descriptor left.
pub(super) fn listen(path: &Path) -> io::Result<OwnedFd> {
    let listener = new()?;
    rustix::net::bind(&listener, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Connects to a path; `None` when nobody listens there. A guard that hangs may have no room
/// for another connection.
pub(super) fn connect(path: &Path) -> Option<OwnedFd> {
    let socket = new().ok()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).ok()?).ok()?;
    Some(socket)
}

fn new() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The connections of agents that have ended stay until the guard accepts them.
    #[test]
    fn a_guard_that_hangs_can_be_connected_to_again_and_again() {
        let name = format!("putex-socket-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener = listen(&path).expect("a listener");
        let connected = (0..100).filter(|_| connect(&path).is_some()).count();
        drop(listener);
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(connected, 100);
    }
}
