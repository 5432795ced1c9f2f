//! The state of one connection: its inbox, its subscriptions, and the messages that
//! arrived during a request. It ends with its link.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use super::decode::Message;
use super::encode;
use super::headers::NO_RESPONDERS;
use super::link::{Link, Lost, Received, SendError, WRITE_WAIT_MAX, server_says};
use super::server_error::ServerError;
use crate::core::time::Instant;
use crate::sys;

/// Most messages that are queued during a request. They are hints: the newest replaces
/// all others.
const QUEUE_MESSAGES_MAX: usize = 256;

/// Most memory of the queued messages, in bytes: two of the largest.
const QUEUE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Most texts of `-ERR` that are remembered so that each is logged once. One more text
/// clears the memory.
const WARNED_MAX: usize = 32;

/// A subscription. Its number is unique among all connections of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sid(pub(super) u64);

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// When no byte left this host: not connected, no time left, or an invalid
    /// subject. The request had no effect.
    NotSent(String),
    /// When no subscriber exists for the subject. The request had no effect.
    NoResponders,
    /// When the server does not permit it. The request had no effect.
    ///
    /// The server names the subject and not the request. A `-ERR` that arrives during
    /// the next request to the same subject is taken for that one's, even if the
    /// permission was granted between the two.
    Forbidden(String),
    /// When the deadline passed. The request may have had an effect, or have it later.
    TimedOut,
    /// When the connection ended after a part of the request or all of it was sent. The
    /// request may have had an effect, or have it later.
    Lost(String),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::NotSent(reason) => write!(f, "not sent: {reason}"),
            RequestError::NoResponders => f.write_str("nobody listens (status 503)"),
            RequestError::Forbidden(text) => f.write_str(text),
            RequestError::TimedOut => f.write_str("no reply before the deadline"),
            RequestError::Lost(reason) => write!(f, "connection lost: {reason}"),
        }
    }
}

/// What ended a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// A message of a subscription arrived.
    Message {
        /// The subscription.
        sid: Sid,
        /// The message.
        message: Message,
    },
    /// The wake descriptor is readable. Its owner clears it.
    Woken,
    /// The deadline passed.
    Elapsed,
    /// The connection ended with its subscriptions; why.
    Gone(String),
}

/// Why a session ended.
pub(super) struct Ended(pub(super) String);

#[derive(Debug)]
pub(super) struct Session {
    link: Link,
    inbox: Inbox,
    opened_at: Instant,
    /// Messages of subscriptions that arrived during a request, oldest first.
    queue: VecDeque<(Sid, Message)>,
    queue_bytes: usize,
    /// Buffer in which frames are built; cleared at each use.
    frame: Vec<u8>,
    /// Why the link must not be used any more.
    ended: Option<String>,
    /// Whether the server's INFO changed since the last call of `take_info_changed`.
    info_changed: bool,
    warned: Vec<String>,
}

/// The subscription for replies, with one subject for each request.
#[derive(Debug)]
pub(super) struct Inbox {
    /// `_INBOX.<random>.`, or with another beginning; private to one connection.
    prefix: String,
    sid: u64,
    requests: u64,
}

impl Inbox {
    /// Makes an inbox below `subject` with a random name.
    pub(super) fn new(subject: &str, sid: Sid) -> io::Result<Inbox> {
        let prefix = format!("{subject}.{:032x}.", sys::random()?);
        let sid = sid.0;
        Ok(Inbox { prefix, sid, requests: 0 })
    }

    /// Writes the SUB of the inbox.
    pub(super) fn subscribe(&self, frame: &mut Vec<u8>) -> Result<(), String> {
        encode::sub(frame, &format!("{}*", self.prefix), self.sid)
    }

    fn next_reply(&mut self) -> String {
        self.requests += 1;
        format!("{}{}", self.prefix, self.requests)
    }
}

impl Session {
    pub(super) fn new(link: Link, inbox: Inbox) -> Session {
        Session {
            link,
            inbox,
            opened_at: sys::now(),
            queue: VecDeque::new(),
            queue_bytes: 0,
            frame: Vec::new(),
            ended: None,
            info_changed: true,
            warned: Vec::new(),
        }
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn opened_at(&self) -> Instant {
        self.opened_at
    }

    /// Returns why the session ended, once.
    pub(super) fn take_ended(&mut self) -> Option<Ended> {
        self.ended.take().map(Ended)
    }

    /// Returns true once after each INFO.
    pub(super) fn take_info_changed(&mut self) -> bool {
        std::mem::take(&mut self.info_changed)
    }

    /// See `Client::request`.
    pub(super) fn request(
        &mut self,
        subject: &str,
        headers: &[(&str, &str)],
        payload: &[u8],
        deadline: Instant,
    ) -> Result<Message, RequestError> {
        if sys::now() >= deadline {
            return Err(RequestError::NotSent("no time is left".to_owned()));
        }
        let reply = self.inbox.next_reply();
        self.put(subject, Some(&reply), headers, payload)?;
        self.send(deadline)?;
        loop {
            match self.link.receive(None, Some(deadline)) {
                Ok(Received::Message(sid, message)) => {
                    if sid != self.inbox.sid {
                        self.enqueue(Sid(sid), message);
                    } else if message.subject == reply {
                        return answer(message);
                    }
                    // Else the message is the late reply to an earlier request.
                }
                Ok(Received::Refusal(server_error, text)) => {
                    let names = |subject: &str| text.contains(&format!("\"{subject}\""));
                    let ours = names(subject) || names(&reply);
                    if server_error == ServerError::PublishDenied && ours {
                        return Err(RequestError::Forbidden(server_says(&text)));
                    }
                    self.warn(text);
                }
                Ok(Received::Info) => self.info_changed = true,
                Ok(Received::Elapsed | Received::Woken) => return Err(RequestError::TimedOut),
                Err(Lost { reason, .. }) => {
                    self.ended = Some(reason.clone());
                    return Err(RequestError::Lost(reason));
                }
            }
            if sys::now() >= deadline {
                return Err(RequestError::TimedOut);
            }
        }
    }

    /// See `Client::publish`.
    pub(super) fn publish(
        &mut self,
        subject: &str,
        headers: &[(&str, &str)],
        payload: &[u8],
    ) -> Result<(), RequestError> {
        self.put(subject, None, headers, payload)?;
        self.send(sys::now().after(WRITE_WAIT_MAX))
    }

    /// See `Client::subscribe`.
    pub(super) fn subscribe(&mut self, subject: &str, sid: Sid) -> Result<(), RequestError> {
        self.frame.clear();
        let written = encode::sub(&mut self.frame, subject, sid.0);
        written.map_err(RequestError::NotSent)?;
        self.send(sys::now().after(WRITE_WAIT_MAX))
    }

    /// Waits as `Client::wait` does; returns `None` when an INFO arrived.
    pub(super) fn wait(
        &mut self,
        wake: BorrowedFd<'_>,
        deadline: Option<Instant>,
    ) -> Option<ClientEvent> {
        if let Some((sid, message)) = self.queue.pop_front() {
            self.queue_bytes -= message.weight();
            return Some(ClientEvent::Message { sid, message });
        }
        loop {
            match self.link.receive(Some(wake), deadline) {
                Ok(Received::Message(sid, message)) => {
                    if sid != self.inbox.sid {
                        return Some(ClientEvent::Message { sid: Sid(sid), message });
                    }
                }
                Ok(Received::Refusal(_, text)) => self.warn(text),
                Ok(Received::Info) => {
                    self.info_changed = true;
                    return None;
                }
                Ok(Received::Woken) => return Some(ClientEvent::Woken),
                Ok(Received::Elapsed) => return Some(ClientEvent::Elapsed),
                Err(Lost { reason, .. }) => {
                    self.ended = Some(reason.clone());
                    return Some(ClientEvent::Gone(reason));
                }
            }
            if deadline.is_some_and(|deadline| sys::now() >= deadline) {
                return Some(ClientEvent::Elapsed);
            }
        }
    }

    /// Returns the memory of all buffers and of the queue, in bytes.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        let slots = self.queue.capacity() * size_of::<(Sid, Message)>();
        self.link.held_bytes() + self.frame.capacity() + slots + self.queue_bytes
    }

    /// Builds a frame, without sending it.
    fn put(
        &mut self,
        subject: &str,
        reply: Option<&str>,
        headers: &[(&str, &str)],
        payload: &[u8],
    ) -> Result<(), RequestError> {
        self.frame.clear();
        let size = encode::publish(&mut self.frame, subject, reply, headers, payload);
        let size = size.map_err(RequestError::NotSent)?;
        let limit = self.link.info().max_payload;
        if size > limit {
            let text = format!("{size} bytes are more than the server's limit of {limit}");
            return Err(RequestError::NotSent(text));
        }
        Ok(())
    }

    /// Sends the frame. A failure ends the session, whether a part of the frame was sent or
    /// nothing.
    fn send(&mut self, deadline: Instant) -> Result<(), RequestError> {
        let Err(SendError { reason, begun }) = self.link.send(&self.frame, deadline) else {
            return Ok(());
        };
        let reason = self.link.final_error().map_or(reason, |text| server_says(&text));
        self.ended = Some(reason.clone());
        Err(match begun {
            true => RequestError::Lost(reason),
            false => RequestError::NotSent(reason),
        })
    }

    fn enqueue(&mut self, sid: Sid, message: Message) {
        self.queue_bytes += message.weight();
        self.queue.push_back((sid, message));
        while self.queue.len() > QUEUE_MESSAGES_MAX || self.queue_bytes > QUEUE_BYTES_MAX {
            let Some((_, oldest)) = self.queue.pop_front() else {
                return;
            };
            self.queue_bytes -= oldest.weight();
        }
    }

    /// Returns the refusals of the server that belonged to no request.
    pub(super) fn warned(&self) -> &[String] {
        &self.warned
    }

    /// Logs a refusal of the server, once for each text.
    fn warn(&mut self, text: String) {
        if self.warned.contains(&text) {
            return;
        }
        log::warn!("{}: {}", self.link.info().address, server_says(&text));
        if self.warned.len() == WARNED_MAX {
            self.warned.clear();
        }
        self.warned.push(text);
    }
}

/// Returns the reply, or that no subscriber exists.
fn answer(message: Message) -> Result<Message, RequestError> {
    match message.headers.status() {
        Some(NO_RESPONDERS) if message.payload.is_empty() => Err(RequestError::NoResponders),
        Some(_) | None => Ok(message),
    }
}
