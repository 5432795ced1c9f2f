//! The byte stream to a server: a socket, plain or inside TLS. Nothing blocks here: an
//! operation that would have to wait returns `WouldBlock`, as a socket does.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use super::tls::{Session, judge};
use crate::sys::Want;

/// Most bytes that are put into one record of TLS.
const RECORD_BYTES_MAX: usize = 16 * 1024;

/// A connection's bytes.
#[derive(Debug)]
pub(super) struct Stream {
    tcp: TcpStream,
    tls: Option<Box<Session>>,
}

impl Stream {
    pub(super) fn new(tcp: TcpStream) -> Stream {
        Stream { tcp, tls: None }
    }

    /// Encrypts all further bytes. The handshake follows.
    pub(super) fn begin_tls(&mut self, session: Session) {
        self.tls = Some(Box::new(session));
    }

    /// Performs one step of the handshake. Returns the readiness that the next step
    /// needs, `None` when the handshake is complete.
    pub(super) fn continue_handshake(&mut self) -> io::Result<Option<Want>> {
        let Some(session) = &mut self.tls else {
            return Ok(None);
        };
        match session.write_tls(&mut self.tcp) {
            Err(error) if would_block(&error) => return Ok(Some(Want::Write)),
            outcome => outcome?,
        }
        if !session.tls.is_handshaking() {
            return Ok(None);
        }
        match session.read_tls(&mut self.tcp) {
            Ok(0) => {
                let reason = "the server closed the connection";
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason))
            }
            Ok(_) => Ok(Some(Want::Write)),
            Err(error) if would_block(&error) => Ok(Some(Want::Read)),
            Err(error) => Err(error),
        }
    }

    /// Returns whether TLS was started.
    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns whether the server requested a client certificate and none is configured.
    pub(super) fn lacks_client_certificate(&self) -> bool {
        let session = self.tls.as_ref();
        session.is_some_and(|session| session.lacks_client_certificate())
    }

    /// Returns whether decrypted bytes wait, which poll(2) on the socket does not report.
    pub(super) fn holds(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.plaintext > 0)
    }

    pub(super) fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.tls else {
            return self.tcp.read(bytes);
        };
        if session.plaintext == 0 {
            session.read_tls(&mut self.tcp)?;
        }
        match session.tls.reader().read(bytes) {
            Ok(count) => {
                session.plaintext = session.plaintext.saturating_sub(count);
                Ok(count)
            }
            // Frames carry their length, so a missing close_notify hides nothing.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Accepts some of `bytes` and returns how many. With TLS, accepted bytes may still
    /// be buffered until [`Stream::flush`] succeeds. After an error none was accepted.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = &mut self.tls else {
            return self.tcp.write(bytes);
        };
        session.write_tls(&mut self.tcp)?;
        let record = &bytes[..bytes.len().min(RECORD_BYTES_MAX)];
        let count = session.tls.writer().write(record)?;
        match session.write_tls(&mut self.tcp) {
            Err(error) if !would_block(&error) => Err(error),
            Ok(()) | Err(_) => Ok(count),
        }
    }

    /// Passes all accepted bytes to the kernel, or returns `WouldBlock`.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => Ok(()),
            Some(session) => session.write_tls(&mut self.tcp),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

impl Session {
    /// Reads the socket once and decrypts the bytes. Returns how many bytes were read; 0
    /// means the end of the stream.
    fn read_tls(&mut self, tcp: &mut TcpStream) -> io::Result<usize> {
        let count = self.tls.read_tls(tcp)?;
        let outcome = self.tls.process_new_packets();
        // Messages of TLS itself, such as an alert, are sent now as far as possible, the rest
        // with the next frame.
        let written = self.write_tls(tcp);
        match outcome {
            Ok(state) => self.plaintext = state.plaintext_bytes_to_read(),
            Err(error) => return Err(io::Error::other(judge(&error))),
        }
        match written {
            Err(error) if !would_block(&error) && self.plaintext == 0 => Err(error),
            Ok(()) | Err(_) => Ok(count),
        }
    }

    fn write_tls(&mut self, tcp: &mut TcpStream) -> io::Result<()> {
        while self.tls.wants_write() {
            if self.tls.write_tls(tcp)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}

/// Returns whether an operation would have to wait or was interrupted.
pub(super) fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests;
