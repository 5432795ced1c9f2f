//! A connection to one of several servers, with requests and subscriptions.
//!
//! The client never connects by itself. After [`ClientEvent::Gone`] its owner decides
//! when to call [`Client::connect`] again, and subscribes again.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use displaydoc::Display;

use super::auth::Login;
use super::connect_options::ConnectOptions;
use super::decode::{Message, ServerOp};
use super::dial::Dialer;
use super::encode;
use super::headers::NO_RESPONDERS;
use super::info::ServerInfo;
use super::link::{INBOX_SID, Link, Received, SendError, WRITE_WAIT_MAX, server_says};
use super::no_timer;
use super::pool::{Candidate, Candidates, Failure};
use super::server_error::ServerError;
use super::url::Server;
use crate::core::{Instant, StoreError, StoreErrorKind as Kind};
use crate::sys::{self, Alarm};

/// The reason why there is no reply. `displaydoc` makes the first line of a variant its text.
#[derive(Clone, Debug, Display, PartialEq, Eq)]
#[ignore_extra_doc_attributes]
pub enum RequestError {
    /// not sent: {0}
    ///
    /// No byte left this host: not connected, no time left, or an invalid subject. The
    /// request had no effect.
    NotSent(String),
    /// nobody listens (status 503)
    ///
    /// No subscriber exists for the subject. The request had no effect.
    NoResponders,
    /// {0}
    ///
    /// The server does not permit the request. The request had no effect.
    ///
    /// The server names the subject and not the request. A `-ERR` that arrives during the
    /// next request to the same subject counts for that request, even if the permission was
    /// granted between the two.
    Forbidden(String),
    /// no reply before the deadline
    ///
    /// The request may have had an effect, or have it later.
    TimedOut,
    /// connection lost: {0}
    ///
    /// The connection ended after a part of the request or all of it was sent. The request
    /// may have had an effect, or have it later.
    Lost(String),
}

/// The result of [`Client::wait`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// A message of a subscription arrived.
    Message(Message),
    /// The wake descriptor is readable. Its owner clears it.
    Woken,
    /// The deadline passed.
    Elapsed,
    /// The connection and its subscriptions ended, with the reason.
    Gone(String),
}

/// A message to send. Sent as a request, it has an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing<'a> {
    /// The subject that it is published to.
    pub subject: &'a str,
    /// Its headers.
    pub headers: &'a [(&'a str, &'a str)],
    /// The bytes after the headers.
    pub payload: &'a [u8],
    /// Whether it may be sent more than once. Then a request is sent again and again until a
    /// reply arrives: one that is sent while the servers elect a leader is never answered.
    pub repeats: bool,
}

/// A NATS client. One thread owns it, and every call returns at its deadline.
#[derive(Debug)]
pub struct Client {
    candidates: Candidates,
    options: ConnectOptions,
    dialer: Dialer,
    link: Option<Link>,
    /// The reason why there is no connection.
    reason: String,
}

impl Client {
    /// Makes a client that is not connected yet.
    pub fn new(mut servers: Vec<Server>, options: ConnectOptions) -> Client {
        shuffle(&mut servers);
        Client {
            candidates: Candidates::new(servers, options.interval),
            options,
            dialer: Dialer::default(),
            link: None,
            reason: "no connection was made yet".to_owned(),
        }
    }

    /// Connects unless connected: tries one server or address after the other, each when it is
    /// due, until all were tried or one of them would be waited for again. The next call goes
    /// on where this one ended.
    ///
    /// A new connection has no subscriptions.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub fn connect(&mut self, deadline: Instant) -> Result<(), StoreError> {
        let (mut kind, mut tried) = (Kind::Unreachable, Vec::new());
        while self.link.is_none()
            && let Some(next) = self.candidates.next(sys::now())
        {
            let is_due = next.not_before <= sys::now();
            let is_again = tried.contains(&next.id);
            if is_again && (!is_due || self.candidates.are_all(&tried)) {
                break;
            }
            if !is_due {
                let until = next.not_before.min(deadline);
                Alarm::new().and_then(|alarm| alarm.wait([], Some(until))).map_err(no_timer)?;
            }
            if sys::now() >= deadline {
                break;
            }
            tried.push(next.id);
            if let Err(error) = self.attempt(&next, deadline) {
                kind = kind.max(error);
            }
        }
        if self.link.is_some() {
            return Ok(());
        }
        if !tried.is_empty() {
            self.reason = self.candidates.faults();
        }
        if kind == Kind::Unfit {
            kind = Kind::Unreachable;
        }
        Err(kind.error(&*self.reason))
    }

    /// Tries a candidate: connects to its address, or looks its name up.
    fn attempt(&mut self, next: &Candidate, deadline: Instant) -> Result<(), Kind> {
        let tried = match next.address {
            Some(address) => self.open(next, address, deadline),
            None => self.look_up(next, deadline),
        };
        tried.map_err(|(failure, error)| {
            self.candidates.failed(next.id, failure, error.text, sys::now(), random());
            error.kind
        })
    }

    fn look_up(&mut self, next: &Candidate, by: Instant) -> Result<(), (Failure, StoreError)> {
        let by = sys::now().after(next.info_within()).min(by);
        let addresses = self.dialer.resolve(&next.server.host, by);
        let failed = |text: String| (Failure::Unreached, Kind::Unreachable.error(text));
        self.candidates.resolved(next.id, &addresses.map_err(failed)?, sys::now());
        Ok(())
    }

    /// Opens a connection with a limit until INFO and one for the whole handshake.
    fn open(
        &mut self,
        next: &Candidate,
        address: IpAddr,
        deadline: Instant,
    ) -> Result<(), (Failure, StoreError)> {
        let began = sys::now();
        let info_by = began.after(next.info_within()).min(deadline);
        let by = began.after(next.within()).min(deadline);
        let server = &next.server;
        let login = if server.login == Login::None { &self.options.login } else { &server.login };
        let credentials = login.read().map_err(|error| (Failure::Unreached, error))?;
        let link = Link::open(next, address, &self.options, &credentials, info_by);
        let late = |by, late, failure| if sys::now() >= by { late } else { failure };
        let unreached = |error| (late(info_by, Failure::Silent, Failure::Unreached), error);
        let mut link = link.map_err(unreached)?;
        let refused = |error: StoreError| {
            // A missing file: the server has refused nothing.
            let is_local = error.kind == Kind::Unreachable;
            let failure = if is_local { Failure::Unreached } else { Failure::Refused };
            (late(by, Failure::Slow, failure), error)
        };
        link.log_in(&self.options, &credentials, by).map_err(refused)?;
        let now = sys::now();
        self.candidates.connected(next.id, now.since(began), now);
        self.link = Some(link);
        Ok(())
    }

    /// Returns whether there is a connection that has not failed yet.
    pub fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// Returns the last INFO of the connected server.
    pub fn server(&self) -> Option<&ServerInfo> {
        self.link.as_ref().map(|link| &link.info)
    }

    /// Returns the refusals of the server that belonged to no request, as received so far.
    pub fn server_errors(&self) -> Vec<String> {
        let warned = self.link.iter().flat_map(|link| &link.warned);
        warned.map(|text| server_says(text)).collect()
    }

    /// Subscribes until this connection ends. The refusal of a server arrives later and is
    /// logged as a warning.
    ///
    /// # Errors
    ///
    /// [`RequestError::NotSent`] or [`RequestError::Lost`].
    pub fn subscribe(&mut self, subject: &str) -> Result<(), RequestError> {
        let link = self.link()?;
        link.last_sid += 1;
        let frame = encode::sub(subject, link.last_sid).map_err(RequestError::NotSent)?;
        self.send(frame.as_bytes(), sys::now().after(WRITE_WAIT_MAX))
    }

    /// Sends a message and waits for its reply. A status other than 503 is a reply. A connection
    /// without a byte since then, not even a PONG, is lost: a later request would not be answered
    /// either.
    ///
    /// # Errors
    ///
    /// See [`RequestError`], which says whether the request may have had an effect.
    pub fn request(&mut self, sent: &Outgoing<'_>, by: Instant) -> Result<Message, RequestError> {
        let (reply, began) = (self.link()?.next_reply(), sys::now());
        if began >= by {
            return Err(RequestError::NotSent("no time is left".to_owned()));
        }
        let frame = self.frame(sent, Some(&reply))?;
        self.send(&frame, by)?;
        let repeat_after = self.options.repeat_after();
        let (mut repeat_at, mut pinged_at) = (began.after(repeat_after), None);
        loop {
            let link = self.link()?;
            match link.receive(None, Some(by.min(repeat_at))) {
                Ok(Received::Op(ServerOp::Msg { sid, message })) if sid != INBOX_SID => {
                    link.enqueue(message);
                }
                Ok(Received::Op(ServerOp::Msg { message, .. })) if message.subject == reply => {
                    let status = message.headers.status();
                    let nobody = status == Some(NO_RESPONDERS) && message.payload.is_empty();
                    return if nobody { Err(RequestError::NoResponders) } else { Ok(message) };
                }
                Ok(Received::Op(ServerOp::Err(text))) => {
                    let names = |subject: &str| text.contains(&format!("\"{subject}\""));
                    let is_denied = ServerError::of(&text) == ServerError::PublishDenied;
                    if is_denied && (names(sent.subject) || names(&reply)) {
                        return Err(RequestError::Forbidden(server_says(&text)));
                    }
                    link.warn(text);
                }
                // A message is the late reply to an earlier request.
                Ok(Received::Op(_) | Received::Elapsed | Received::Woken) => {}
                Err(StoreError { text, .. }) => {
                    self.end(&text);
                    return Err(RequestError::Lost(text));
                }
            }
            let (now, is_silent) = (sys::now(), self.link()?.received_at < began);
            if now >= by {
                if is_silent && pinged_at.is_some_and(|at| now.since(at) > repeat_after) {
                    let text = "nothing was heard during a request".to_owned();
                    self.end(&text);
                    return Err(RequestError::Lost(text));
                }
                return Err(RequestError::TimedOut);
            }
            if now >= repeat_at {
                repeat_at = now.after(repeat_after);
                pinged_at.get_or_insert(now);
                let again: &[u8] = if sent.repeats { &frame } else { &[] };
                let asked = self.try_send(&[again, encode::PING].concat(), by);
                asked.map_err(|error| RequestError::Lost(error.reason))?;
            }
        }
    }

    /// Sends a message without waiting for a reply.
    ///
    /// # Errors
    ///
    /// [`RequestError::NotSent`] or [`RequestError::Lost`].
    pub fn publish(&mut self, sent: &Outgoing<'_>) -> Result<(), RequestError> {
        let frame = self.frame(sent, None)?;
        self.send(&frame, sys::now().after(WRITE_WAIT_MAX))
    }

    /// Waits for a message, for `wake` to become readable, for `deadline`, or for
    /// the end of the connection. `None` waits for ever. Messages that arrived during
    /// a request are returned first.
    ///
    /// The call leaves a server that is about to shut down, if there is another.
    pub fn wait(&mut self, wake: BorrowedFd<'_>, deadline: Option<Instant>) -> ClientEvent {
        loop {
            if let Some(link) = self.link.as_ref().filter(|link| link.info.lame_duck) {
                learn(&mut self.candidates, link);
                if self.candidates.has_another(link.candidate) {
                    self.leave("the server is about to shut down");
                }
            }
            let Some(link) = &mut self.link else {
                return ClientEvent::Gone(self.reason.clone());
            };
            if let Some(message) = link.dequeue() {
                return ClientEvent::Message(message);
            }
            match link.receive(Some(wake), deadline) {
                Ok(Received::Op(ServerOp::Msg { sid, message })) if sid != INBOX_SID => {
                    return ClientEvent::Message(message);
                }
                Ok(Received::Op(ServerOp::Err(text))) => link.warn(text),
                Ok(Received::Op(_) | Received::Elapsed) => {}
                Ok(Received::Woken) => return ClientEvent::Woken,
                Err(StoreError { text, .. }) => {
                    self.end(&text);
                    continue;
                }
            }
            if deadline.is_some_and(|deadline| sys::now() >= deadline) {
                return ClientEvent::Elapsed;
            }
        }
    }

    /// Notes whether the leader of the stream answered a request that began at `began`. Leaves
    /// a server through which it has not answered for too long: a server that is cut off from
    /// its cluster keeps the connection.
    pub fn note_answer(&mut self, answered: bool, began: Instant) {
        let Some(link) = &self.link else { return };
        if answered {
            self.candidates.answered(link.candidate);
        } else if self.candidates.unanswered(began.max(link.opened_at), sys::now()) {
            self.leave("nothing was answered for too long");
        }
    }

    /// Ends the connection, so that all other servers and addresses are tried first.
    pub fn leave(&mut self, reason: &str) {
        if let Some(link) = self.close(reason) {
            self.candidates.left(link.candidate, sys::now());
        }
    }

    fn link(&mut self) -> Result<&mut Link, RequestError> {
        let reason = &self.reason;
        let error = || RequestError::NotSent(format!("not connected: {reason}"));
        self.link.as_mut().ok_or_else(error)
    }

    fn frame(&mut self, sent: &Outgoing<'_>, reply: Option<&str>) -> Result<Vec<u8>, RequestError> {
        let limit = self.link()?.info.max_payload;
        let encoded = encode::publish(sent.subject, reply, sent.headers, sent.payload);
        let (frame, size) = encoded.map_err(RequestError::NotSent)?;
        if size > limit {
            let text = format!("{size} bytes are more than the server's limit of {limit}");
            return Err(RequestError::NotSent(text));
        }
        Ok(frame)
    }

    fn send(&mut self, frame: &[u8], deadline: Instant) -> Result<(), RequestError> {
        self.link()?;
        self.try_send(frame, deadline).map_err(|SendError { reason, begun }| match begun {
            true => RequestError::Lost(reason),
            false => RequestError::NotSent(reason),
        })
    }

    /// Sends a frame, if there is a connection. A failure ends the connection, whether a part
    /// of the frame was sent or nothing.
    fn try_send(&mut self, frame: &[u8], deadline: Instant) -> Result<(), SendError> {
        let sent = self.link.as_mut().map_or(Ok(()), |link| link.send(frame, deadline));
        sent.inspect_err(|error| self.end(&error.reason))
    }

    /// Ends a connection that has failed.
    fn end(&mut self, reason: &str) {
        if let Some(link) = self.close(reason) {
            let (now, id) = (sys::now(), link.candidate);
            self.candidates.ended(id, now.since(link.opened_at), reason, now, random());
        }
    }

    /// Ends the connection. Keeps the advertised servers, and the reason of the end.
    fn close(&mut self, reason: &str) -> Option<Link> {
        let link = self.link.take()?;
        learn(&mut self.candidates, &link);
        self.reason = format!("{}: {reason}", link.info.address);
        Some(link)
    }
}

/// Adds the advertised servers of a connection to the candidates.
fn learn(candidates: &mut Candidates, link: &Link) {
    let mut urls = link.info.connect_urls.clone();
    shuffle(&mut urls);
    candidates.learn(&link.server, &urls);
}

/// Puts the items in a random order.
fn shuffle<T>(items: &mut [T]) {
    items.sort_by_cached_key(|_| random());
}

/// Returns a random number, 0 when the kernel has none: then no connection is made either.
fn random() -> u64 {
    sys::random().unwrap_or(0) as u64
}

#[cfg(test)]
mod tests;
