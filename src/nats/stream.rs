//! The byte stream to a server: a socket, plain or inside TLS. Nothing blocks here: an
//! operation that would have to wait returns `WouldBlock`, as a socket does.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::io_error_text;
use super::tls::{self, Session};
use crate::core::{StoreError, StoreErrorKind as Kind};
use crate::sys::PollFlags;

/// A connection's bytes.
pub(super) struct Stream {
    pub(super) tcp: TcpStream,
    /// Encrypts all bytes. The handshake comes first.
    pub(super) tls: Option<Box<Session>>,
}

impl Stream {
    /// Performs the handshake as far as that is possible now. Returns the readiness that the
    /// next step needs, `None` when the handshake is complete.
    pub(super) fn continue_handshake(&mut self) -> io::Result<Option<PollFlags>> {
        let Some(session) = &mut self.tls else { return Ok(None) };
        match session.tls.complete_io(&mut self.tcp) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(io::Error::new(error.kind(), "the server closed the connection"));
            }
            Err(error) if !would_block(&error) => return Err(error),
            Ok(_) | Err(_) => {}
        }
        Ok(match session.tls.wants_write() {
            true => Some(PollFlags::OUT),
            false => session.tls.is_handshaking().then_some(PollFlags::IN),
        })
    }

    /// Returns whether decrypted bytes or the end of the stream wait, which poll(2) on the
    /// socket does not report.
    pub(super) fn holds(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| !session.tls.wants_read())
    }

    pub(super) fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.tls else { return self.tcp.read(bytes) };
        if session.tls.wants_read() {
            session.tls.read_tls(&mut self.tcp)?;
            let outcome = session.tls.process_new_packets();
            // Messages of TLS itself, such as an alert, are sent now as far as possible, the rest
            // with the next frame. A failure must not hide what the server sent before.
            let _ = session.tls.write_tls(&mut self.tcp);
            outcome.map_err(io::Error::other)?;
        }
        match session.tls.reader().read(bytes) {
            // Frames carry their length, so a missing close_notify hides nothing.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            outcome => outcome,
        }
    }

    /// Accepts some of `bytes` and returns how many. With TLS, accepted bytes are buffered
    /// until [`Stream::flush`] succeeds. After an error none was accepted.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        match &mut self.tls {
            None => self.tcp.write(bytes),
            Some(session) => session.tls.writer().write(bytes),
        }
    }

    /// Passes all accepted bytes to the kernel, or returns `WouldBlock`.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => Ok(()),
            Some(session) => rustls::Stream::new(&mut session.tls, &mut self.tcp).flush(),
        }
    }
}

/// Returns the meaning of a failure of TLS; any other failure is one of an unfit server.
pub(super) fn stream_error(error: io::Error) -> StoreError {
    match error.downcast() {
        Ok(error) => tls::judge(&error),
        Err(error) => Kind::Unfit.error(io_error_text(&error)),
    }
}

/// Returns whether an operation would have to wait or was interrupted.
pub(super) fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests;
