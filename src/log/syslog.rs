//! The socket of a syslog daemon.

use std::io;
use std::os::unix::net::UnixDatagram;

use rustix::event::{PollFd, PollFlags};

use crate::sys;

/// Where a syslog daemon listens.
const SYSLOG: &str = "/dev/log";

/// The socket of a syslog daemon. The daemon may start late, and start again.
#[derive(Debug, Default)]
pub(super) struct SyslogSocket(Option<UnixDatagram>);

impl SyslogSocket {
    /// Sends a line without waiting; returns whether the daemon took it.
    pub(super) fn send(&mut self, line: &[u8]) -> bool {
        if let Some(socket) = &self.0 {
            match socket.send(line) {
                Ok(_) => return true,
                // The daemon is there, but does not keep up.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(_) => {}
            }
        }
        self.0 = connect().ok();
        self.0.as_ref().is_some_and(|socket| socket.send(line).is_ok())
    }

    /// Waits until there is room for a line, if a daemon is there at all.
    pub(super) fn wait_for_room(&self) {
        if let Some(socket) = &self.0 {
            // A wait that fails is a short wait.
            let _ = sys::poll(&mut [PollFd::new(socket, PollFlags::OUT)]);
        }
    }
}

/// Returns a line for stderr that was written for syslog: without the priority.
pub(super) fn without_priority(datagram: &[u8]) -> Vec<u8> {
    let end = datagram.iter().position(|byte| *byte == b'>');
    let mut line = datagram[end.map_or(0, |end| end + 1)..].to_vec();
    line.push(b'\n');
    line
}

fn connect() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect(SYSLOG)?;
    Ok(socket)
}
