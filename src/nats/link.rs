//! A single connection: handshake, frames in and out, liveness, and the messages that arrived
//! during a request.
//!
//! A link is opened once and dropped at its first failure, together with its buffers.
//! It never reconnects.

mod handshake;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::decode::{self, Decoder, Message, READ_BYTES_MAX, ServerOp};
use super::encode;
use super::info::ServerInfo;
use super::server_error::ServerError;
use super::stream::{Stream, stream_error, would_block};
use super::url::Server;
use super::{io_error_text, no_timer};
use crate::core::{Instant, Ms, StoreError, StoreErrorKind as Kind};
use crate::sys::{self, Alarm, PollFlags};

/// Longest time to send one frame, whatever its caller's deadline. A frame is far
/// smaller than a socket's buffer, so a frame has to wait only when the peer does not
/// read.
pub(super) const WRITE_WAIT_MAX: Duration = Duration::from_secs(1);

/// The largest error of the kernel in the time of an acknowledgement, which it notes to a tick: the
/// acknowledgement of a PING seems no older than the PING by more.
const KERNEL_TICK_MAX: Duration = Duration::from_millis(10);

/// Most bytes that are read from a lost connection to find the reason of the loss.
const FINAL_READ_BYTES_MAX: usize = 4 * READ_BYTES_MAX;

/// Most messages that are queued during a request. Most are hints: the newest replaces
/// all others.
const QUEUE_MESSAGES_MAX: usize = 256;

/// The beginning of the subjects of hints. The bucket and the key follow.
pub(crate) const HINT_PREFIX: &str = "putex.hint.";

/// Most memory of the queued messages, in bytes: two of the largest.
const QUEUE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The number of the subscription of the inbox, the first of a connection.
pub(super) const INBOX_SID: u64 = 1;

pub(super) enum Received {
    Op(ServerOp),
    /// The wake descriptor is readable.
    Woken,
    /// The deadline, or that of the liveness check, passed.
    Elapsed,
}

/// An open connection.
pub(super) struct Link {
    stream: Stream,
    alarm: Alarm,
    decoder: Decoder,
    chunk: Box<[u8]>,
    /// The server, as it was configured or advertised.
    pub(super) server: Server,
    /// The number of its candidate in the pool.
    pub(super) candidate: u64,
    pub(super) info: ServerInfo,
    ping_after: Duration,
    pub(super) opened_at: Instant,
    pub(super) received_at: Instant,
    /// When the unanswered PING was sent.
    pinged_at: Option<Instant>,
    /// `_INBOX.<random>.`, or with another beginning: the start of the subjects for replies,
    /// private to this connection.
    pub(super) inbox: String,
    /// The subject of the last message to anybody who answers; blank without one.
    pub(super) shared_subject: String,
    /// Where replies to it come to; blank without one.
    pub(super) shared_reply: String,
    /// The number of the last subscription.
    pub(super) last_sid: u64,
    /// Messages of other subscriptions that arrived during a request, oldest first.
    pub(super) queue: VecDeque<Message>,
}

impl Link {
    /// Sends a whole frame. The reason of a failure is the last `-ERR` of the server, if there
    /// is one. The link must be dropped then.
    pub(super) fn send(&mut self, frame: &[u8], deadline: Instant) -> Result<(), String> {
        self.write(frame, deadline).map_err(|reason| match self.final_error() {
            Some(text) => server_says(&text),
            None => reason,
        })
    }

    fn write(&mut self, frame: &[u8], deadline: Instant) -> Result<(), String> {
        let mut sent = 0;
        loop {
            let outcome = match &frame[sent..] {
                [] => self.stream.flush().map(|()| None),
                rest => self.stream.write(rest).map(Some),
            };
            match outcome {
                Ok(None) => return Ok(()),
                Ok(Some(0)) => return Err("the connection is closed".to_owned()),
                Ok(Some(count)) => sent += count,
                Err(error) if !would_block(&error) => return Err(stream_error(error).text),
                Err(_) if self.wait_for_room(deadline) => {}
                Err(_) => return Err("the server does not read".to_owned()),
            }
        }
    }

    /// Returns the `-ERR` that the server sent before it closed the connection, if it can
    /// still be read. The link must be dropped.
    fn final_error(&mut self) -> Option<String> {
        let mut left = FINAL_READ_BYTES_MAX;
        loop {
            while let Some(op) = self.decoder.next().ok()? {
                if let ServerOp::Err(text) = op
                    && ServerError::of(&text).closes()
                {
                    return Some(text);
                }
            }
            let count = self.stream.read(&mut self.chunk).ok()?;
            left = left.checked_sub(count).filter(|_| count > 0)?;
            self.decoder.feed(&self.chunk[..count]).ok()?;
        }
    }

    /// Returns the next operation of the server. Stores an INFO and answers a PING before; a
    /// `-ERR` with which the server closes the connection is an error. After `ping_after`
    /// without a byte the link sends PING; after as much again it may be lost, see
    /// [`Link::is_lost`].
    pub(super) fn receive(
        &mut self,
        wake: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
        silence_max: Duration,
    ) -> Result<Received, StoreError> {
        let alarm_at = self.alarm_at();
        let until = deadline.map_or(alarm_at, |deadline| deadline.min(alarm_at));
        let received = self.step(wake, until)?;
        match &received {
            Received::Elapsed => self.check_alive(deadline, silence_max)?,
            Received::Op(ServerOp::Info(json)) => self.accept_info(json)?,
            Received::Op(ServerOp::Ping) => self.send_now(encode::PONG, deadline)?,
            Received::Op(ServerOp::Err(text)) if ServerError::of(text).closes() => {
                return Err(Kind::Unfit.error(server_says(text)));
            }
            Received::Op(ServerOp::Msg { .. } | ServerOp::Err(_))
            | Received::Op(ServerOp::Pong | ServerOp::Ok)
            | Received::Woken => {}
        }
        Ok(received)
    }

    /// Queues a message that arrived during a request, and drops the oldest ones beyond the
    /// limits.
    pub(super) fn enqueue(&mut self, message: Message) {
        self.queue.push_back(message);
        let bytes = |queue: &VecDeque<Message>| queue.iter().map(Message::weight).sum::<usize>();
        while self.queue.len() > QUEUE_MESSAGES_MAX || bytes(&self.queue) > QUEUE_BYTES_MAX {
            // No other message displaces a hint, without which a release is noticed R later.
            let other = self.queue.iter().position(|it| !it.subject.starts_with(HINT_PREFIX));
            self.queue.remove(other.unwrap_or(0));
        }
    }

    /// Waits for one operation. Polls the socket once even when the deadline has passed, so
    /// that bytes that have arrived are used.
    fn step(
        &mut self,
        wake: Option<BorrowedFd<'_>>,
        deadline: Instant,
    ) -> Result<Received, StoreError> {
        let mut polled = false;
        loop {
            if let Some(op) = self.decoder.next().map_err(|error| Kind::Unfit.error(error))? {
                return Ok(Received::Op(op));
            }
            // A message that arrives byte by byte must not extend the deadline.
            if polled && sys::now() >= deadline {
                return Ok(Received::Elapsed);
            }
            polled = true;
            if self.stream.holds() {
                self.read()?;
                continue;
            }
            let socket = (self.stream.tcp.as_fd(), PollFlags::IN);
            let ready = match wake {
                Some(wake) => self.alarm.wait([socket, (wake, PollFlags::IN)], Some(deadline)),
                None => self.alarm.wait([socket], Some(deadline)).map(|[ready]| [ready, false]),
            };
            match ready.map_err(stream_error)? {
                [_, true] => return Ok(Received::Woken),
                [false, false] => return Ok(Received::Elapsed),
                [true, false] => self.read()?,
            }
        }
    }

    /// Reads the socket once and feeds the decoder.
    fn read(&mut self) -> Result<(), StoreError> {
        match self.stream.read(&mut self.chunk) {
            Ok(0) => Err(Kind::Unfit.error("the server closed the connection")),
            Ok(count) => {
                (self.received_at, self.pinged_at) = (sys::now(), None);
                self.decoder.feed(&self.chunk[..count]).map_err(|error| Kind::Unfit.error(error))
            }
            Err(error) if would_block(&error) => Ok(()),
            Err(error) => Err(stream_error(error)),
        }
    }

    /// Waits until the socket accepts bytes; returns false when it does not by `deadline`.
    fn wait_for_room(&self, deadline: Instant) -> bool {
        let now = sys::now();
        let until = deadline.min(now.after(WRITE_WAIT_MAX));
        let socket = (self.stream.tcp.as_fd(), PollFlags::OUT);
        now < until && matches!(self.alarm.wait([socket], Some(until)), Ok([true]))
    }

    /// Returns when the next step of the liveness check is due: PING, or the end of the link.
    fn alarm_at(&self) -> Instant {
        self.pinged_at.unwrap_or(self.received_at).after(self.ping_after)
    }

    fn check_alive(
        &mut self,
        deadline: Option<Instant>,
        silence_max: Duration,
    ) -> Result<(), StoreError> {
        let now = sys::now();
        if now < self.alarm_at() {
            return Ok(());
        }
        if self.pinged_at.is_some_and(|at| self.is_lost(now, at, silence_max)) {
            let silence = Ms(now.since(self.received_at));
            return Err(Kind::Unfit.error(format!("nothing was heard for {silence}")));
        }
        self.pinged_at = Some(now);
        self.send_now(encode::PING, deadline)
    }

    /// Returns whether a connection is lost that has received nothing since it sent PING: after a
    /// silence of `silence_max`, or before if the other host did not even acknowledge the PING. If
    /// it did, the network is in order, and the server slow: another connection would add to its
    /// load.
    pub(super) fn is_lost(&self, now: Instant, pinged_at: Instant, silence_max: Duration) -> bool {
        let since_ping = now.since(pinged_at) + KERNEL_TICK_MAX;
        let acknowledged = sys::raw::acknowledged_ago(&self.stream.tcp);
        let is_acknowledged = acknowledged.is_ok_and(|ago| ago <= since_ping);
        now.since(self.received_at) >= silence_max || !is_acknowledged
    }

    fn send_now(&mut self, frame: &[u8], deadline: Option<Instant>) -> Result<(), StoreError> {
        let limit = sys::now().after(WRITE_WAIT_MAX);
        let sent = self.send(frame, deadline.map_or(limit, |deadline| deadline.min(limit)));
        sent.map_err(|reason| Kind::Unfit.error(reason))
    }

    /// Stores an INFO. An INFO that advertises no servers does not withdraw earlier ones.
    fn accept_info(&mut self, json: &str) -> Result<(), StoreError> {
        let info = ServerInfo::parse(json, &self.info.address);
        let mut info = info.map_err(|why| Kind::Unfit.error(decode::malformed(why)))?;
        if info.connect_urls.is_empty() {
            info.connect_urls.append(&mut self.info.connect_urls);
        }
        self.info = info;
        Ok(())
    }
}

/// Formats the text of a `-ERR` for a message.
pub(super) fn server_says(text: &str) -> String {
    format!("the server says: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Link {
        /// Returns the memory of all buffers and of the queue, in bytes.
        pub(crate) fn held_bytes(&self) -> usize {
            let slots = self.queue.capacity() * size_of::<Message>();
            let queued: usize = self.queue.iter().map(Message::weight).sum();
            self.decoder.held_bytes() + self.chunk.len() + slots + queued
        }
    }
}
