//! What belongs to one connection: its inbox, its subscriptions, and the
//! messages that came while a reply was waited for. It ends with its link.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use super::complaint::Complaint;
use super::decode::Message;
use super::encode::{self, EncodeError};
use super::headers::NO_RESPONDERS;
use super::link::{Heard, Link, Lost, SendFault, WRITE_WAIT_MAX, said};
use crate::core::time::Instant;
use crate::sys;

/// Most messages that are kept while a reply is waited for. They are hints: the
/// newest is worth as much as all of them.
const QUEUE_MESSAGES_MAX: usize = 256;

/// Most memory that these messages may take, in bytes: two of the largest.
const QUEUE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Most complaints that are remembered so as not to be logged again. One more
/// begins a new memory.
const WARNED_MAX: usize = 32;

/// A subscription. Never given twice, not even to another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sid(pub(super) u64);

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// When nothing left this host: not connected, no time left, or not a
    /// subject. The request reached nobody.
    NotSent(String),
    /// When the server knows of nobody who listens. The request reached nobody.
    NoResponders,
    /// When the server does not permit it. The request reached nobody.
    ///
    /// The server names the subject and not the request: should it complain so
    /// late that another request to the same subject waits by then, and should the
    /// permission have been granted between the two, it is taken for the other's.
    Forbidden(String),
    /// When the deadline passed. It may have been done, or be done later.
    TimedOut,
    /// When the connection ended after a part of it or all of it was sent. It may
    /// have been done, or be done later.
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
pub enum Event {
    /// A message of a subscription arrived.
    Message {
        /// Which subscription.
        sid: Sid,
        /// The message.
        message: Message,
    },
    /// The wake descriptor is readable. Its owner makes it unreadable again.
    Woken,
    /// The deadline passed.
    Elapsed,
    /// There is no connection, and why. Its subscriptions are gone with it.
    Gone(String),
}

/// Why a session is over.
pub(super) struct Ended(pub(super) String);

#[derive(Debug)]
pub(super) struct Session {
    link: Link,
    inbox: Inbox,
    opened_at: Instant,
    /// What came for subscriptions while a reply was waited for, oldest first.
    queue: VecDeque<(Sid, Message)>,
    queue_bytes: usize,
    /// Frames are built here. Empty between calls but for its capacity.
    frame: Vec<u8>,
    /// Why the link is not to be used any more.
    ended: Option<String>,
    /// Whether the server's INFO changed since it was last asked for.
    news: bool,
    warned: Vec<String>,
}

/// Where replies come: one subscription, and a token for each request.
#[derive(Debug)]
pub(super) struct Inbox {
    /// `_INBOX.<random>.` or another beginning, private to one connection.
    prefix: String,
    sid: u64,
    requests: u64,
}

impl Inbox {
    /// Makes one below `subject` that nobody can guess.
    pub(super) fn new(subject: &str, sid: Sid) -> io::Result<Inbox> {
        let prefix = format!("{subject}.{:032x}.", sys::random()?);
        let sid = sid.0;
        Ok(Inbox {
            prefix,
            sid,
            requests: 0,
        })
    }

    /// Writes its subscription.
    pub(super) fn subscribe(&self, frame: &mut Vec<u8>) -> Result<(), EncodeError> {
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
            news: true,
            warned: Vec::new(),
        }
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn opened_at(&self) -> Instant {
        self.opened_at
    }

    /// Returns why the session is over, once it is.
    pub(super) fn take_ended(&mut self) -> Option<Ended> {
        self.ended.take().map(Ended)
    }

    /// Returns true once after each INFO.
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
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
            match self.link.hear(None, Some(deadline)) {
                Ok(Heard::Message(sid, message)) => {
                    if sid != self.inbox.sid {
                        self.enqueue(Sid(sid), message);
                    } else if message.subject == reply {
                        return answer(message);
                    }
                    // Else it is the late reply to an earlier request.
                }
                Ok(Heard::Complaint(complaint, text)) => {
                    let names = |subject: &str| text.contains(&format!("\"{subject}\""));
                    let ours = names(subject) || names(&reply);
                    if complaint == Complaint::PublishDenied && ours {
                        return Err(RequestError::Forbidden(said(&text)));
                    }
                    self.warn(text);
                }
                Ok(Heard::Info) => self.news = true,
                Ok(Heard::Elapsed | Heard::Woken) => return Err(RequestError::TimedOut),
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
        written.map_err(|error| RequestError::NotSent(error.to_string()))?;
        self.send(sys::now().after(WRITE_WAIT_MAX))
    }

    /// Waits as `Client::wait` does, or until an INFO came: then there is no event.
    pub(super) fn wait(
        &mut self,
        wake: BorrowedFd<'_>,
        deadline: Option<Instant>,
    ) -> Option<Event> {
        if let Some((sid, message)) = self.queue.pop_front() {
            self.queue_bytes -= message.weight();
            return Some(Event::Message { sid, message });
        }
        loop {
            match self.link.hear(Some(wake), deadline) {
                Ok(Heard::Message(sid, message)) => {
                    if sid != self.inbox.sid {
                        return Some(Event::Message {
                            sid: Sid(sid),
                            message,
                        });
                    }
                }
                Ok(Heard::Complaint(_, text)) => self.warn(text),
                Ok(Heard::Info) => {
                    self.news = true;
                    return None;
                }
                Ok(Heard::Woken) => return Some(Event::Woken),
                Ok(Heard::Elapsed) => return Some(Event::Elapsed),
                Err(Lost { reason, .. }) => {
                    self.ended = Some(reason.clone());
                    return Some(Event::Gone(reason));
                }
            }
            if deadline.is_some_and(|deadline| sys::now() >= deadline) {
                return Some(Event::Elapsed);
            }
        }
    }

    /// Returns how much memory can have grown: buffers and queue, in bytes.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        let slots = self.queue.capacity() * size_of::<(Sid, Message)>();
        self.link.held_bytes() + self.frame.capacity() + slots + self.queue_bytes
    }

    /// Builds a frame. Nothing has left when this fails.
    fn put(
        &mut self,
        subject: &str,
        reply: Option<&str>,
        headers: &[(&str, &str)],
        payload: &[u8],
    ) -> Result<(), RequestError> {
        self.frame.clear();
        let size = encode::publish(&mut self.frame, subject, reply, headers, payload);
        let size = size.map_err(|error| RequestError::NotSent(error.to_string()))?;
        let limit = self.link.info().max_payload;
        if size > limit {
            let text = format!("{size} bytes are more than the server's limit of {limit}");
            return Err(RequestError::NotSent(text));
        }
        Ok(())
    }

    /// Sends the frame. One of which a part has left ends the session, and so does
    /// one that cannot leave.
    fn send(&mut self, deadline: Instant) -> Result<(), RequestError> {
        let Err(SendFault { reason, begun }) = self.link.send(&self.frame, deadline) else {
            return Ok(());
        };
        let reason = self.link.last_words().map_or(reason, |text| said(&text));
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

    /// Returns what the server refused beside what was asked for.
    pub(super) fn warned(&self) -> &[String] {
        &self.warned
    }

    /// Logs what the server refused, once for each text.
    fn warn(&mut self, text: String) {
        if self.warned.contains(&text) {
            return;
        }
        log::warn!("{}: {}", self.link.info().address, said(&text));
        if self.warned.len() == WARNED_MAX {
            self.warned.clear();
        }
        self.warned.push(text);
    }
}

/// Tells a reply from the server's word that nobody listens.
fn answer(message: Message) -> Result<Message, RequestError> {
    match message.headers.status() {
        Some(NO_RESPONDERS) if message.payload.is_empty() => Err(RequestError::NoResponders),
        Some(_) | None => Ok(message),
    }
}
