//! What a server's bytes travel in: a socket, plain or with TLS in between. Nothing
//! waits here: what cannot be done now is `WouldBlock`, as it is for a socket.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use super::tls::{Session, TlsFault};
use crate::sys::Want;

/// Most bytes that are made one record of TLS.
const RECORD_BYTES_MAX: usize = 16 * 1024;

/// A connection's bytes.
#[derive(Debug)]
pub(super) struct Stream {
    tcp: TcpStream,
    tls: Option<Box<Layer>>,
}

#[derive(Debug)]
struct Layer {
    session: Session,
    /// Decrypted bytes that nobody has read yet.
    held: usize,
}

impl Stream {
    pub(super) fn new(tcp: TcpStream) -> Stream {
        Stream { tcp, tls: None }
    }

    /// Puts TLS around all that follows. The handshake is still to come.
    pub(super) fn begin_tls(&mut self, session: Session) {
        self.tls = Some(Box::new(Layer { session, held: 0 }));
    }

    /// Takes one step of the handshake. Returns what must be waited for before the
    /// next, `None` when it is done.
    pub(super) fn shake_hands(&mut self) -> io::Result<Option<Want>> {
        let Some(layer) = &mut self.tls else {
            return Ok(None);
        };
        match layer.give_out(&mut self.tcp) {
            Err(error) if not_now(&error) => return Ok(Some(Want::Write)),
            outcome => outcome?,
        }
        if !layer.session.tls.is_handshaking() {
            return Ok(None);
        }
        match layer.take_in(&mut self.tcp) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(Some(Want::Write)),
            Err(error) if not_now(&error) => Ok(Some(Want::Read)),
            Err(error) => Err(error),
        }
    }

    /// Returns whether TLS was begun.
    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns whether the server asked for a client certificate that there is not.
    pub(super) fn lacks_badge(&self) -> bool {
        let layer = self.tls.as_ref();
        layer.is_some_and(|layer| layer.session.lacks_badge())
    }

    /// Returns whether there is something to read that the socket does not know of.
    pub(super) fn holds(&self) -> bool {
        self.tls.as_ref().is_some_and(|layer| layer.held > 0)
    }

    pub(super) fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(layer) = &mut self.tls else {
            return self.tcp.read(bytes);
        };
        if layer.held == 0 {
            layer.take_in(&mut self.tcp)?;
        }
        match layer.session.tls.reader().read(bytes) {
            Ok(count) => {
                layer.held = layer.held.saturating_sub(count);
                Ok(count)
            }
            // Frames tell where they end: a missing goodbye of TLS hides nothing.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Takes some of `bytes`, and says how many. With TLS, what was taken may not have
    /// left before [`Stream::flush`] says so; nothing was taken when this fails.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(layer) = &mut self.tls else {
            return self.tcp.write(bytes);
        };
        layer.give_out(&mut self.tcp)?;
        let record = &bytes[..bytes.len().min(RECORD_BYTES_MAX)];
        let count = layer.session.tls.writer().write(record)?;
        match layer.give_out(&mut self.tcp) {
            Err(error) if !not_now(&error) => Err(error),
            Ok(()) | Err(_) => Ok(count),
        }
    }

    /// Hands what was taken to the kernel, all of it or `WouldBlock`.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => Ok(()),
            Some(layer) => layer.give_out(&mut self.tcp),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

impl Layer {
    /// Decrypts what the socket has, once. Returns how much the socket had; 0 is its
    /// end.
    fn take_in(&mut self, tcp: &mut TcpStream) -> io::Result<usize> {
        let count = self.session.tls.read_tls(tcp)?;
        let outcome = self.session.tls.process_new_packets();
        // What TLS has to say for itself, such as why it ends, goes out as far as it
        // can; the rest goes with the next frame.
        let said = self.give_out(tcp);
        match outcome {
            Ok(state) => self.held = state.plaintext_bytes_to_read(),
            Err(error) => return Err(TlsFault::of_rustls(&error)),
        }
        match said {
            Err(error) if !not_now(&error) && self.held == 0 => Err(error),
            Ok(()) | Err(_) => Ok(count),
        }
    }

    fn give_out(&mut self, tcp: &mut TcpStream) -> io::Result<()> {
        while self.session.tls.wants_write() {
            if self.session.tls.write_tls(tcp)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}

/// Tells an operation that would have to wait, or was interrupted, from a failure.
pub(super) fn not_now(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests;
