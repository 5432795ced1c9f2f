//! A connection to one of several servers, with requests and subscriptions.
//!
//! The client never connects by itself. After [`ClientEvent::Gone`] its owner decides
//! when to call [`Client::connect`] again, and subscribes again.

mod request;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFd;

pub use self::request::{Outgoing, RequestError};
use super::connect_options::{self, ConnectOptions};
use super::decode::{Message, ServerOp};
use super::dial::Dialer;
use super::encode;
use super::info::ServerInfo;
use super::link::{INBOX_SID, Link, Received, SendError, WRITE_WAIT_MAX, server_says};
use super::pool::{Candidate, Candidates, Failure};
use super::server_error;
use super::task::Task;
use super::url::Server;
use super::{io_error_text, no_timer};
use crate::core::{Instant, StoreError, StoreErrorKind as Kind};
use crate::sys::{self, Alarm, PollFlags};

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

/// What is sent with the login, in one segment: a client that waited for PONG would need another
/// round trip. Only a server that can be sent them then gets them, see
/// [`ServerInfo::reads_any_stream`]. What was sent so is not sent again by
/// [`Client::subscribe`], nor by the first [`Client::requests`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Early {
    /// The subjects to subscribe to, before the requests.
    pub subscriptions: Vec<String>,
    /// The subjects and payloads of requests that may be repeated.
    pub requests: Vec<(String, String)>,
}

/// Most attempts at a time.
const ATTEMPTS_MAX: usize = 8;

/// How much later than the attempt the thread of an attempt may end.
const THREAD_END_MAX: Duration = Duration::from_millis(100);

/// An attempt to connect, in a thread of its own. Its limit ends it.
struct Attempt {
    id: u64,
    began: Instant,
    /// When another one may begin beside it.
    beside_at: Instant,
    task: Task<Result<Link, (Failure, StoreError)>>,
}

/// A NATS client. One thread owns it, and every call returns at its deadline.
pub struct Client {
    candidates: Candidates,
    options: Arc<ConnectOptions>,
    dialer: Dialer,
    /// The attempts under way, in their order.
    attempts: Vec<Attempt>,
    link: Option<Link>,
    /// The reason why there is no connection.
    reason: String,
    /// What was said of refusals that concern a micro service.
    said_of_micro: Vec<&'static str>,
}

impl Client {
    /// Makes a client that is not connected yet.
    pub fn new(mut servers: Vec<Server>, options: ConnectOptions) -> Client {
        shuffle(&mut servers);
        Client {
            candidates: Candidates::new(servers, options.interval),
            options: Arc::new(options),
            dialer: Dialer::default(),
            attempts: Vec::new(),
            link: None,
            reason: "no connection was made yet".to_owned(),
            said_of_micro: Vec::new(),
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
        self.connect_with(&Early::default(), deadline)
    }

    /// As [`Client::connect`]. A new connection sends `early` with its login.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub fn connect_with(&mut self, early: &Early, deadline: Instant) -> Result<(), StoreError> {
        let (mut kind, mut tried, began) = (Kind::Unreachable, Vec::new(), sys::now());
        let over = deadline.after(THREAD_END_MAX);
        while self.link.is_none()
            && let Some(next) = self.candidates.next(sys::now())
        {
            let now = sys::now();
            let (is_due, is_again) = (next.not_before <= now, tried.contains(&next.id));
            let all_tried = is_again && (!is_due || self.candidates.are_all(&tried));
            if self.attempts.is_empty() && (all_tried || now >= deadline) || now >= over {
                break;
            }
            // One after the other, but beside those that take long.
            let is_begun = self.attempts.iter().any(|attempt| attempt.id == next.id);
            let free_at = match self.attempts.last() {
                Some(_) if is_begun || self.attempts.len() == ATTEMPTS_MAX => over,
                Some(last) => last.beside_at,
                None => now,
            };
            let outcome = if is_due && free_at <= now && now < deadline {
                tried.push(next.id);
                self.attempt(&next, early, deadline)
            } else {
                let begin_at = next.not_before.max(free_at);
                let is_in_time = now < deadline && begin_at < deadline;
                self.wait_for_attempts(if is_in_time { begin_at } else { over })?
            };
            kind = kind.max(outcome.err().unwrap_or(kind));
        }
        if let Some(link) = &mut self.link {
            if link.opened_at < began {
                // It was sent in an earlier call, and its answers may be old.
                link.sent_early.requests.clear();
            }
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

    /// Tries a candidate: begins to connect to its address, or looks its name up.
    fn attempt(&mut self, next: &Candidate, early: &Early, deadline: Instant) -> Result<(), Kind> {
        let began = match next.address {
            Some(address) => self.begin(next, address, early, deadline),
            None => self.look_up(next, deadline),
        };
        began.map_err(|text| {
            self.candidates.failed(next.id, Failure::Unreached, text, sys::now(), random());
            Kind::Unreachable
        })
    }

    fn look_up(&mut self, next: &Candidate, by: Instant) -> Result<(), String> {
        let by = sys::now().after(next.info_within()).min(by);
        let addresses = self.dialer.resolve(&next.server.host, by)?;
        self.candidates.resolved(next.id, &addresses, sys::now());
        Ok(())
    }

    fn begin(
        &mut self,
        next: &Candidate,
        to: IpAddr,
        early: &Early,
        deadline: Instant,
    ) -> Result<(), String> {
        let (id, began, options) = (next.id, sys::now(), Arc::clone(&self.options));
        let by = began.after(next.within()).min(deadline);
        let has_password = options.login_of(&next.server).has_password();
        let beside_at = began.after(self.candidates.beside_after(next, has_password));
        let (next, early) = (next.clone(), early.clone());
        let make = move || Link::make(&next, to, &options, &early, by);
        // A file with credentials may hang. Where the service has used up all threads, nothing is
        // tried beside.
        let task = Task::start("connect", make.clone()).or_else(|_| Task::ended(make()));
        let task = task.map_err(|error| io_error_text(&error))?;
        self.candidates.goes_on(id, by);
        self.attempts.push(Attempt { id, began, beside_at, task });
        Ok(())
    }

    /// Waits until an attempt has ended, and takes its connection or notes its failure.
    fn wait_for_attempts(&mut self, until: Instant) -> Result<Result<(), Kind>, StoreError> {
        let alarm = Alarm::new().map_err(no_timer)?;
        let done = self.attempts.iter().map(|attempt| attempt.task.done());
        let mut fds: Vec<_> = done.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        alarm.poll(&mut fds, Some(until)).map_err(no_timer)?;
        let ended = self.attempts.iter().position(|attempt| attempt.task.is_done());
        let Some(index) = ended else { return Ok(Ok(())) };
        let Attempt { id, began, task, .. } = self.attempts.remove(index);
        let now = sys::now();
        let died = || Err((Failure::Unreached, Kind::Unreachable.error("its thread ended")));
        match task.into_result().unwrap_or_else(died) {
            Ok(link) => {
                for beside in self.attempts.drain(..) {
                    let text = "another server answered before".to_owned();
                    self.candidates.failed(beside.id, Failure::Slow, text, now, random());
                }
                self.candidates.connected(id, now.since(began), now);
                self.link = Some(link);
                self.learn_servers();
                Ok(Ok(()))
            }
            Err((failure, StoreError { kind, text })) => {
                self.candidates.failed(id, failure, text, now, random());
                Ok(Err(kind))
            }
        }
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

    /// Subscribes until this connection ends, and ends the subscriptions of these numbers after
    /// that. Returns the numbers of those that are new: one that was made with the login has none.
    /// The refusal of a server arrives later and is logged as a warning.
    ///
    /// # Errors
    ///
    /// [`RequestError::NotSent`] or [`RequestError::Lost`].
    pub fn subscribe(
        &mut self,
        subjects: &[String],
        ended: &[u64],
    ) -> Result<Vec<u64>, RequestError> {
        let link = self.link()?;
        let (mut frame, mut numbers) = (String::new(), Vec::new());
        for subject in subjects {
            if !link.sent_early.subscriptions.contains(subject) {
                let (number, sub) = link.subscription(subject).map_err(RequestError::NotSent)?;
                frame.push_str(&sub);
                numbers.push(number);
            }
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
            let lame = self.link.as_ref().filter(|link| link.info.lame_duck);
            if lame.is_some_and(|link| self.candidates.has_another(link.candidate)) {
                self.leave("the server is about to shut down");
            }
            let silence_max = self.silence_max();
            let Some(link) = &mut self.link else { return ClientEvent::Gone(self.reason.clone()) };
            if let Some(message) = link.dequeue() {
                return ClientEvent::Message(message);
            }
            match link.receive(Some(wake), deadline, silence_max) {
                Ok(Received::Op(ServerOp::Msg { sid, message })) if sid != INBOX_SID => {
                    return ClientEvent::Message(message);
                }
                Ok(Received::Op(ServerOp::Err(text))) => self.warn(text),
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

    /// Logs a refusal of the server. One that concerns a micro service names one of many subjects,
    /// or a new one each time, so it is logged with its meaning, once.
    fn warn(&mut self, text: String) {
        let Some(link) = &mut self.link else { return };
        let Some(meaning) = server_error::meaning_for_service(&text) else {
            return link.warn(text);
        };
        if !self.said_of_micro.contains(&meaning) {
            self.said_of_micro.push(meaning);
            link.warn(format!("{text}: {meaning}"));
        }
    }

    /// Returns whether replies to this client come to this subject, or to other clients that were
    /// given a prefix of their own for replies together with this one.
    pub fn replies_come_to(&self, subject: &str) -> bool {
        let is_below = |prefix: &str| {
            let rest = subject.strip_prefix(prefix);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let prefix = &self.options.inbox;
        let is_shared = prefix != connect_options::INBOX && is_below(prefix);
        is_shared || self.link.as_ref().is_some_and(|link| subject.starts_with(&link.inbox))
    }

    /// Notes whether the leader of the stream answered a request that began at `began`. Leaves
    /// a server through which it has not answered for too long: a server that is cut off from
    /// its cluster keeps the connection.
    pub fn note_answer(&mut self, answered: bool, began: Instant) {
        let Some(link) = &self.link else { return };
        if answered {
            self.candidates.answered(link.candidate);
        } else if self.candidates.unanswered(link.candidate, began.max(link.opened_at), sys::now())
        {
            self.leave("nothing was answered for too long");
        }
    }

    /// Adds the servers that the last INFO advertises to the candidates, at once: whether there is
    /// another server decides how soon this one is left.
    fn learn_servers(&mut self) {
        let Some(link) = &self.link else { return };
        let mut urls = link.info.connect_urls.clone();
        shuffle(&mut urls);
        self.candidates.learn(&link.server, &urls);
    }

    /// Returns whether there is another server or address than the one connected to.
    pub fn has_another_server(&self) -> bool {
        self.link.as_ref().is_none_or(|link| self.candidates.has_another(link.candidate))
    }

    /// Returns how long a connected server may be silent that is asked with PING.
    fn silence_max(&self) -> Duration {
        match self.has_another_server() {
            true => Duration::ZERO,
            false => self.candidates.only_limit(),
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

/// Returns a random number, 0 when the kernel has none: then no connection is made either.
fn random() -> u64 {
    sys::random().unwrap_or(0) as u64
}

#[cfg(test)]
mod tests;
