//! One connection: handshake, frames in and out, liveness.
//!
//! A link is opened once and dropped at its first failure, together with its buffers.
//! It never reconnects.

mod handshake;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::decode::{self, Decoder, Message, ProtocolError, READ_BYTES_MAX, ServerOp};
use super::dial::Dialer;
use super::encode;
use super::info::ServerInfo;
use super::server_error::ServerError;
use super::stream::{Stream, would_block};
use super::tls::{TlsError, Verdict};
use super::url::Server;
use super::why;
use crate::core::time::{Instant, Ms};
use crate::sys::{self, Alarm, Want};

pub(super) use handshake::{Handshake, HandshakeError};

/// Longest time to send one frame, whatever its caller's deadline. A frame is far
/// smaller than a socket's buffer, so a frame has to wait only when the peer does not
/// read.
pub(super) const WRITE_WAIT_MAX: Duration = Duration::from_secs(1);

/// Most bytes that are read from a lost connection to find the reason of the loss.
const FINAL_READ_BYTES_MAX: usize = 4 * READ_BYTES_MAX;

/// Why a link was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) reason: String,
    /// The verdict of TLS, when TLS failed.
    verdict: Option<Verdict>,
}

impl Lost {
    fn because(reason: String) -> Lost {
        Lost { reason, verdict: None }
    }

    fn to(error: &io::Error) -> Lost {
        Lost { reason: why(error), verdict: TlsError::of(error).map(|fault| fault.verdict) }
    }
}

/// Why a frame was not sent. The link must be dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SendError {
    pub(super) reason: String,
    /// Whether a part of it was sent.
    pub(super) begun: bool,
}

/// The result of [`Link::receive`].
#[derive(Debug)]
pub(super) enum Received {
    /// A message for this subscription.
    Message(u64, Message),
    /// The server's INFO changed.
    Info,
    /// The server refused an operation and keeps the connection open.
    Refusal(ServerError, String),
    /// The wake descriptor is readable.
    Woken,
    /// The deadline passed.
    Elapsed,
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Link {
    stream: Stream,
    alarm: Alarm,
    decoder: Decoder,
    chunk: Box<[u8]>,
    info: ServerInfo,
    ping_after: Duration,
    received_at: Instant,
    /// When the PING was sent that the server has not answered yet.
    pinged_at: Option<Instant>,
}

enum Step {
    Op(ServerOp),
    Woken,
    Elapsed,
}

impl Link {
    /// Returns the last INFO of the server.
    pub(super) fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// Sends a whole frame. After an error the link must be dropped, since a part of the
    /// frame may have been sent.
    pub(super) fn send(&mut self, frame: &[u8], deadline: Instant) -> Result<(), SendError> {
        let mut sent = 0;
        loop {
            let outcome = match &frame[sent..] {
                [] => self.stream.flush().map(|()| None),
                rest => self.stream.write(rest).map(Some),
            };
            let reason = match outcome {
                Ok(None) => return Ok(()),
                Ok(Some(0)) => "the connection is closed".to_owned(),
                Ok(Some(count)) => {
                    sent += count;
                    continue;
                }
                Err(error) if !would_block(&error) => why(&error),
                Err(_) if self.wait_for_room(deadline) => continue,
                Err(_) => "the server does not read".to_owned(),
            };
            return Err(SendError { reason, begun: sent > 0 });
        }
    }

    /// Returns the `-ERR` that the server sent before it closed the connection, if it can
    /// still be read. The link must be dropped.
    pub(super) fn final_error(&mut self) -> Option<String> {
        let mut left = FINAL_READ_BYTES_MAX;
        loop {
            match self.decoder.next() {
                Ok(Some(ServerOp::Err(text))) if ServerError::of(&text).closes() => {
                    return Some(text);
                }
                Ok(Some(_)) => continue,
                Ok(None) => {}
                Err(_) => return None,
            }
            let count = self.stream.read(&mut self.chunk).unwrap_or(0);
            left = left.saturating_sub(count);
            if count == 0 || left == 0 || self.decoder.feed(&self.chunk[..count]).is_err() {
                return None;
            }
        }
    }

    /// Returns the next message, INFO or refusal. Answers PING on the way. After
    /// `ping_after` without a byte it sends PING; after as much again the link is lost.
    pub(super) fn receive(
        &mut self,
        wake: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Result<Received, Lost> {
        loop {
            let alarm_at = self.alarm_at();
            let until = deadline.map_or(alarm_at, |deadline| deadline.min(alarm_at));
            match self.step(wake, Some(until))? {
                Step::Woken => return Ok(Received::Woken),
                Step::Elapsed => self.check_alive(deadline)?,
                Step::Op(ServerOp::Msg { sid, message }) => {
                    return Ok(Received::Message(sid, message));
                }
                Step::Op(ServerOp::Info(json)) => {
                    self.take_info(&json)?;
                    return Ok(Received::Info);
                }
                Step::Op(ServerOp::Ping) => self.pong(deadline)?,
                Step::Op(ServerOp::Pong | ServerOp::Ok) => {}
                Step::Op(ServerOp::Err(text)) => {
                    let server_error = ServerError::of(&text);
                    if server_error.closes() {
                        return Err(Lost::because(server_says(&text)));
                    }
                    return Ok(Received::Refusal(server_error, text));
                }
            }
            if deadline.is_some_and(|deadline| sys::now() >= deadline) {
                return Ok(Received::Elapsed);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.decoder.held_bytes() + self.chunk.len()
    }

    /// Returns one operation. Polls the socket once even when the deadline has passed, so
    /// that bytes that have arrived are used.
    fn step(
        &mut self,
        wake: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Result<Step, Lost> {
        let mut polled = false;
        loop {
            if let Some(op) = self.decoder.next().map_err(not_nats)? {
                return Ok(Step::Op(op));
            }
            // A message that arrives byte by byte must not extend the deadline.
            if polled && deadline.is_some_and(|deadline| sys::now() >= deadline) {
                return Ok(Step::Elapsed);
            }
            polled = true;
            if self.stream.holds() {
                self.read()?;
                continue;
            }
            let socket = (self.stream.fd(), Want::Read);
            let ready = match wake {
                Some(wake) => self.alarm.wait([socket, (wake, Want::Read)], deadline),
                None => {
                    let ready = self.alarm.wait([socket], deadline);
                    ready.map(|[ready]| [ready, false])
                }
            };
            match ready.map_err(|error| Lost::to(&error))? {
                [_, true] => return Ok(Step::Woken),
                [false, false] => return Ok(Step::Elapsed),
                [true, false] => self.read()?,
            }
        }
    }

    /// Reads the socket once and feeds the decoder.
    fn read(&mut self) -> Result<(), Lost> {
        match self.stream.read(&mut self.chunk) {
            Ok(0) => Err(Lost::because("the server closed the connection".to_owned())),
            Ok(count) => {
                (self.received_at, self.pinged_at) = (sys::now(), None);
                self.decoder.feed(&self.chunk[..count]).map_err(not_nats)
            }
            Err(error) if would_block(&error) => Ok(()),
            Err(error) => Err(Lost::to(&error)),
        }
    }

    /// Waits until the socket accepts bytes; returns false when it does not by `deadline`.
    fn wait_for_room(&self, deadline: Instant) -> bool {
        let now = sys::now();
        let until = deadline.min(now.after(WRITE_WAIT_MAX));
        let socket = (self.stream.fd(), Want::Write);
        now < until && matches!(self.alarm.wait([socket], Some(until)), Ok([true]))
    }

    /// Returns when the next step of the liveness check is due: PING, or the end of the link.
    fn alarm_at(&self) -> Instant {
        self.pinged_at.unwrap_or(self.received_at).after(self.ping_after)
    }

    fn check_alive(&mut self, deadline: Option<Instant>) -> Result<(), Lost> {
        let now = sys::now();
        if now < self.alarm_at() {
            return Ok(());
        }
        if self.pinged_at.is_some() {
            let silence = Ms(now.since(self.received_at));
            return Err(Lost::because(format!("nothing was heard for {silence}")));
        }
        self.pinged_at = Some(now);
        self.send_now(encode::ping, deadline)
    }

    fn pong(&mut self, deadline: Option<Instant>) -> Result<(), Lost> {
        self.send_now(encode::pong, deadline)
    }

    fn send_now(&mut self, write: fn(&mut Vec<u8>), deadline: Option<Instant>) -> Result<(), Lost> {
        let mut frame = Vec::new();
        write(&mut frame);
        let limit = sys::now().after(WRITE_WAIT_MAX);
        let sent = self.send(&frame, deadline.map_or(limit, |deadline| deadline.min(limit)));
        sent.map_err(|fault| {
            Lost::because(self.final_error().map_or(fault.reason, |text| server_says(&text)))
        })
    }

    fn take_info(&mut self, json: &str) -> Result<(), Lost> {
        let info = ServerInfo::parse(json, &self.info.address);
        self.info = info.map_err(|what| not_nats(decode::malformed(what)))?;
        Ok(())
    }
}

/// Formats the text of a `-ERR` for a message.
pub(super) fn server_says(text: &str) -> String {
    format!("the server says: {text}")
}

fn not_nats(error: ProtocolError) -> Lost {
    Lost::because(error)
}
