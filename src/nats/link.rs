//! One connection: handshake, frames in and out, liveness.
//!
//! A link is opened once and dropped at its first failure, with all that was
//! read and not yet decoded. Nothing here reconnects.

mod opening;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::complaint::Complaint;
use super::decode::{Decoder, Message, ProtocolError, READ_BYTES_MAX, ServerOp};
use super::dial::Dialer;
use super::encode;
use super::info::ServerInfo;
use super::stream::{Stream, not_now};
use super::tls::{TlsFault, Verdict};
use super::url::Server;
use super::why;
use crate::core::time::{Instant, Ms};
use crate::sys::{self, Alarm, Want};

pub(super) use opening::{Hello, OpenFault};

/// Longest that one frame may take to leave, whatever its caller's deadline. A
/// frame is far smaller than a socket's buffer, so one that waits at all waits
/// for a peer that has stopped reading.
pub(super) const WRITE_WAIT_MAX: Duration = Duration::from_secs(1);

/// Most bytes that are read from a lost connection to learn why it was lost.
const LAST_WORDS_BYTES_MAX: usize = 4 * READ_BYTES_MAX;

/// Why a link is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) reason: String,
    /// What TLS has to say about it.
    verdict: Option<Verdict>,
}

impl Lost {
    fn because(reason: String) -> Lost {
        Lost {
            reason,
            verdict: None,
        }
    }

    fn to(error: &io::Error) -> Lost {
        Lost {
            reason: why(error),
            verdict: TlsFault::of(error).map(|fault| fault.verdict),
        }
    }
}

/// Why a frame did not leave. The link must be dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SendFault {
    pub(super) reason: String,
    /// Whether a part of it left.
    pub(super) begun: bool,
}

/// What [`Link::hear`] returns.
#[derive(Debug)]
pub(super) enum Heard {
    /// A message for this subscription.
    Message(u64, Message),
    /// The server's INFO changed.
    Info,
    /// The server refused something and goes on.
    Complaint(Complaint, String),
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
    heard_at: Instant,
    /// When the PING left that nothing was heard since.
    pinged_at: Option<Instant>,
}

enum Step {
    Op(ServerOp),
    Woken,
    Elapsed,
}

impl Link {
    /// Returns what the server last said of itself.
    pub(super) fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// Writes a whole frame. A part of a frame is worse than none, so after an
    /// error the link must be dropped.
    pub(super) fn send(&mut self, frame: &[u8], deadline: Instant) -> Result<(), SendFault> {
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
                Err(error) if !not_now(&error) => why(&error),
                Err(_) if self.wait_for_room(deadline) => continue,
                Err(_) => "the server does not read".to_owned(),
            };
            return Err(SendFault {
                reason,
                begun: sent > 0,
            });
        }
    }

    /// Returns what the server complained of before it closed the connection, as
    /// far as it can still be read. The link must be dropped.
    pub(super) fn last_words(&mut self) -> Option<String> {
        let mut left = LAST_WORDS_BYTES_MAX;
        loop {
            match self.decoder.next() {
                Ok(Some(ServerOp::Err(text))) if Complaint::of(&text).closes() => {
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

    /// Returns the next thing that concerns anybody. PING is answered and PONG
    /// noted on the way; silence is answered with a PING, and silence after that
    /// with the end of the link.
    pub(super) fn hear(
        &mut self,
        wake: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Result<Heard, Lost> {
        loop {
            let alarm_at = self.alarm_at();
            let until = deadline.map_or(alarm_at, |deadline| deadline.min(alarm_at));
            match self.step(wake, Some(until))? {
                Step::Woken => return Ok(Heard::Woken),
                Step::Elapsed => self.check_alive(deadline)?,
                Step::Op(ServerOp::Msg { sid, message } | ServerOp::Hmsg { sid, message }) => {
                    return Ok(Heard::Message(sid, message));
                }
                Step::Op(ServerOp::Info(json)) => {
                    self.take_info(&json)?;
                    return Ok(Heard::Info);
                }
                Step::Op(ServerOp::Ping) => self.pong(deadline)?,
                Step::Op(ServerOp::Pong | ServerOp::Ok) => {}
                Step::Op(ServerOp::Err(text)) => {
                    let complaint = Complaint::of(&text);
                    if complaint.closes() {
                        return Err(Lost::because(said(&text)));
                    }
                    return Ok(Heard::Complaint(complaint, text));
                }
            }
            if deadline.is_some_and(|deadline| sys::now() >= deadline) {
                return Ok(Heard::Elapsed);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.decoder.held_bytes() + self.chunk.len()
    }

    /// Returns one operation. Looks at the socket once even when the deadline has
    /// passed: what has arrived has arrived.
    fn step(
        &mut self,
        wake: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Result<Step, Lost> {
        let mut looked = false;
        loop {
            if let Some(op) = self.decoder.next().map_err(garbled)? {
                return Ok(Step::Op(op));
            }
            // A message that trickles in must not hold its reader up for ever.
            if looked && deadline.is_some_and(|deadline| sys::now() >= deadline) {
                return Ok(Step::Elapsed);
            }
            looked = true;
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

    /// Reads once what has arrived and hands it to the decoder.
    fn read(&mut self) -> Result<(), Lost> {
        match self.stream.read(&mut self.chunk) {
            Ok(0) => Err(Lost::because("the server closed the connection".to_owned())),
            Ok(count) => {
                (self.heard_at, self.pinged_at) = (sys::now(), None);
                self.decoder.feed(&self.chunk[..count]).map_err(garbled)
            }
            Err(error) if not_now(&error) => Ok(()),
            Err(error) => Err(Lost::to(&error)),
        }
    }

    /// Returns false when the socket takes nothing until `deadline`.
    fn wait_for_room(&self, deadline: Instant) -> bool {
        let now = sys::now();
        let until = deadline.min(now.after(WRITE_WAIT_MAX));
        let socket = (self.stream.fd(), Want::Write);
        now < until && matches!(self.alarm.wait([socket], Some(until)), Ok([true]))
    }

    /// Returns when silence means something: a PING is due, or the link is dead.
    fn alarm_at(&self) -> Instant {
        self.pinged_at
            .unwrap_or(self.heard_at)
            .after(self.ping_after)
    }

    fn check_alive(&mut self, deadline: Option<Instant>) -> Result<(), Lost> {
        let now = sys::now();
        if now < self.alarm_at() {
            return Ok(());
        }
        if self.pinged_at.is_some() {
            let silence = Ms(now.since(self.heard_at));
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
        let sent = self.send(
            &frame,
            deadline.map_or(limit, |deadline| deadline.min(limit)),
        );
        sent.map_err(|fault| {
            Lost::because(self.last_words().map_or(fault.reason, |text| said(&text)))
        })
    }

    fn take_info(&mut self, json: &str) -> Result<(), Lost> {
        let info = ServerInfo::parse(json, &self.info.address);
        self.info = info.map_err(|what| garbled(ProtocolError::Malformed(what)))?;
        Ok(())
    }
}

/// How a text of `-ERR` is reported.
pub(super) fn said(text: &str) -> String {
    format!("the server says: {text}")
}

fn garbled(error: ProtocolError) -> Lost {
    Lost::because(error.to_string())
}
