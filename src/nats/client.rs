//! A connection to one of several servers, with requests and subscriptions.
//!
//! The client never connects by itself. After [`ClientEvent::Gone`] its owner decides
//! when to call [`Client::connect`] again, and subscribes again.

mod request;

use std::os::fd::BorrowedFd;
use std::time::Duration;

pub use self::request::{Outgoing, RequestError};
use self::request::{lost, not_sent};
use super::auth::Login;
use super::connect_options::ConnectOptions;
use super::decode::{Message, ServerOp};
use super::dial::Dialer;
use super::encode;
use super::info::ServerInfo;
use super::link::{INBOX_SID, Link, Received, WRITE_WAIT_MAX, server_says};
use super::url::Server;
use super::{random, server_error};
use crate::core::{Instant, StoreError};
use crate::sys;

/// Most refusals of servers that are logged.
const WARNED_MAX: usize = 32;

/// The result of [`Client::wait`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// A message of a subscription arrived.
    Message(Message),
    /// A reply arrived to the last message of [`Client::publish_to_all`].
    Reply(Message),
    /// The server has refused such a message: what it says.
    NotAsked(String),
    /// The wake descriptor is readable. Its owner clears it.
    Woken,
    /// The deadline passed.
    Elapsed,
    /// The connection and its subscriptions ended, with the reason.
    Gone(String),
}

/// A NATS client. One thread owns it, and every call returns at its deadline.
pub struct Client {
    dialer: Dialer,
    link: Option<Link>,
    /// The reason why there is no connection.
    reason: String,
    /// The logged refusals that belonged to no request.
    pub(crate) warned: Vec<String>,
}

impl Client {
    /// Makes a client that is not connected yet.
    pub fn new(mut servers: Vec<Server>, options: ConnectOptions) -> Client {
        for server in servers.iter_mut().filter(|server| server.login == Login::None) {
            server.login = options.login.clone();
        }
        shuffle(&mut servers);
        Client {
            dialer: Dialer::new(servers, options),
            link: None,
            reason: "no connection was made yet".to_owned(),
            warned: Vec::new(),
        }
    }

    /// Connects unless connected: tries the servers and their addresses, as `pool` says, until one
    /// is connected to or all were tried. The next call goes on where this one ended.
    ///
    /// A new connection has no subscriptions.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub fn connect(&mut self, deadline: Instant) -> Result<(), StoreError> {
        if self.link.is_some() {
            return Ok(());
        }
        let link = self.dialer.connect(deadline);
        self.link = Some(link.inspect_err(|error| self.reason.clone_from(&error.text))?);
        self.learn_servers();
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

    /// Subscribes until this connection ends, then ends the subscriptions that have the numbers in
    /// `ended`. Returns the numbers of the new subscriptions.
    /// The refusal of a server arrives later and is logged as a warning.
    ///
    /// # Errors
    ///
    /// [`RequestError::Unanswered`].
    pub fn subscribe(
        &mut self,
        subjects: &[String],
        ended: &[u64],
    ) -> Result<Vec<u64>, RequestError> {
        let link = self.link()?;
        let (mut frame, mut numbers) = (String::new(), Vec::new());
        for subject in subjects {
            link.last_sid += 1;
            frame.push_str(&encode::sub(subject, link.last_sid).map_err(not_sent)?);
            numbers.push(link.last_sid);
        }
        frame.extend(ended.iter().map(|number| encode::unsub(*number)));
        if !frame.is_empty() {
            self.send(frame.as_bytes(), sys::now().after(WRITE_WAIT_MAX))?;
        }
        Ok(numbers)
    }

    /// Sends a message without waiting for a reply.
    ///
    /// # Errors
    ///
    /// [`RequestError::Unanswered`].
    pub fn publish(&mut self, sent: &Outgoing<'_>) -> Result<(), RequestError> {
        let frame = self.frame(sent, None)?;
        self.send(&frame, sys::now().after(WRITE_WAIT_MAX))
    }

    /// Sends a message that any number of others may reply to. [`Client::wait`] returns their
    /// replies until another one is sent. Of the same `number`, a random one, it is sent again.
    ///
    /// # Errors
    ///
    /// [`RequestError::Unanswered`].
    pub fn publish_to_all(
        &mut self,
        sent: &Outgoing<'_>,
        number: &str,
    ) -> Result<(), RequestError> {
        let link = self.link()?;
        sent.subject.clone_into(&mut link.shared_subject);
        link.shared_reply = format!("{}{number}", link.inbox);
        let reply = link.shared_reply.clone();
        let frame = self.frame(sent, Some(&reply))?;
        self.send(&frame, sys::now().after(WRITE_WAIT_MAX))
    }

    /// Waits for a message, for `wake` to become readable, for `deadline`, or for
    /// the end of the connection. `None` waits for ever. Messages that arrived during
    /// a request are returned first.
    ///
    /// The call leaves a server that is about to shut down, if there is another.
    pub fn wait(&mut self, wake: BorrowedFd<'_>, deadline: Option<Instant>) -> ClientEvent {
        loop {
            let lame = self.link.as_ref().filter(|link| link.info.lame_duck);
            if lame.is_some_and(|link| self.dialer.pool.has_another(link.candidate)) {
                self.leave("the server is about to shut down");
            }
            let silence_max = self.silence_max();
            let Some(link) = &mut self.link else { return ClientEvent::Gone(self.reason.clone()) };
            if let Some(message) = link.queue.pop_front() {
                return ClientEvent::Message(message);
            }
            match link.receive(Some(wake), deadline, silence_max) {
                Ok(Received::Op(ServerOp::Msg { sid, message })) if sid != INBOX_SID => {
                    return ClientEvent::Message(message);
                }
                Ok(Received::Op(ServerOp::Msg { message, .. }))
                    if link.shared_reply == message.subject =>
                {
                    return ClientEvent::Reply(message);
                }
                Ok(Received::Op(ServerOp::Err(text)))
                    if server_error::refuses_publish(&text, &link.shared_subject) =>
                {
                    let said = server_says(&text);
                    return ClientEvent::NotAsked(format!("{}: {said}", link.info.address));
                }
                Ok(Received::Op(ServerOp::Err(text))) => self.warn(&text),
                Ok(Received::Op(ServerOp::Info(_))) => self.learn_servers(),
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

    /// Logs a refusal of the server, once for each text: a login that expires is repeated. A
    /// refusal that concerns a micro service names one of many subjects, or a new one each time, so
    /// only its meaning is logged.
    fn warn(&mut self, text: &str) {
        let address = self.server().map_or("", |server| &server.address);
        let meaning = server_error::meaning_for_service(text);
        let said = meaning.map_or_else(|| server_says(text), str::to_owned);
        if self.warned.len() == WARNED_MAX || self.warned.contains(&said) {
            return;
        }
        log::warn!("{address}: {said}");
        if self.warned.len() + 1 == WARNED_MAX {
            log::warn!("{address}: more errors of servers are not logged");
        }
        self.warned.push(said);
    }

    /// Returns whether replies to this client come to this subject.
    pub fn replies_come_to(&self, subject: &str) -> bool {
        self.link.as_ref().is_some_and(|link| subject.starts_with(&link.inbox))
    }

    /// Notes whether the leader of the stream answered a request that began at `began`. Leaves
    /// a server through which it has not answered for too long: a server that is cut off from
    /// its cluster keeps the connection.
    pub fn note_answer(&mut self, answered: bool, began: Instant) {
        let Some(link) = &self.link else { return };
        if answered {
            self.dialer.pool.answered(link.candidate);
        } else if self.dialer.pool.unanswered(link.candidate, began.max(link.opened_at), sys::now())
        {
            self.leave("nothing was answered for too long");
        }
    }

    /// Adds the servers that the last INFO advertises to the candidates, at once: whether there is
    /// another server decides how soon this one is left.
    fn learn_servers(&mut self) {
        let Some(link) = &self.link else { return };
        if link.info.cluster.is_some() {
            self.dialer.note_cluster();
        }
        let mut urls = link.info.connect_urls.clone();
        shuffle(&mut urls);
        self.dialer.pool.learn(&link.server, &urls);
    }

    /// Returns whether there is another server or address than the one connected to.
    pub fn has_another_server(&self) -> bool {
        self.link.as_ref().is_none_or(|link| self.dialer.pool.has_another(link.candidate))
    }

    /// Returns how long a connected server may be silent that is asked with PING.
    fn silence_max(&self) -> Duration {
        if self.has_another_server() { Duration::ZERO } else { self.dialer.pool.only_limit() }
    }

    /// Ends the connection, so that all other servers and addresses are tried first.
    pub fn leave(&mut self, reason: &str) {
        if let Some(link) = self.close(reason) {
            self.dialer.pool.left(link.candidate, sys::now());
        }
    }

    fn link(&mut self) -> Result<&mut Link, RequestError> {
        let reason = &self.reason;
        self.link.as_mut().ok_or_else(|| not_sent(format!("not connected: {reason}")))
    }

    fn frame(&mut self, sent: &Outgoing<'_>, reply: Option<&str>) -> Result<Vec<u8>, RequestError> {
        let limit = self.link()?.info.max_payload;
        let encoded = encode::publish(sent.subject, reply, sent.headers, sent.payload);
        let (frame, size) = encoded.map_err(not_sent)?;
        if size > limit {
            let why = format!("{size} bytes are more than the server's limit of {limit}");
            return Err(not_sent(why));
        }
        Ok(frame)
    }

    /// Sends a frame. A failure ends the connection, whether a part of it was sent or nothing.
    fn send(&mut self, frame: &[u8], deadline: Instant) -> Result<(), RequestError> {
        let sent = self.link()?.send(frame, deadline);
        sent.inspect_err(|reason| self.end(reason)).map_err(lost)
    }

    /// Ends a connection that has failed.
    fn end(&mut self, reason: &str) {
        if let Some(link) = self.close(reason) {
            let (now, id) = (sys::now(), link.candidate);
            self.dialer.pool.ended(id, now.since(link.opened_at), reason, now, random());
        }
    }

    /// Ends the connection. Keeps the reason of the end.
    fn close(&mut self, reason: &str) -> Option<Link> {
        let link = self.link.take()?;
        self.reason = format!("{}: {reason}", link.info.address);
        Some(link)
    }
}

/// Puts the items in a random order.
fn shuffle<T>(items: &mut [T]) {
    items.sort_by_cached_key(|_| random());
}

#[cfg(test)]
mod tests;
