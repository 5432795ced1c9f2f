//! A connection to one of several servers, with requests and subscriptions.
//!
//! The client never connects by itself. After [`ClientEvent::Gone`] its owner decides
//! when to call [`Client::connect`] again, and subscribes again.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::auth::{Credentials, Login};
use super::backoff::{BACKOFF_MAX, Backoff, Rng};
use super::decode::Message;
use super::dial::Dialer;
use super::info::ServerInfo;
use super::link::{Handshake, HandshakeError, Link};
use super::session::{Ended, Inbox, Session};
use super::tls::Tls;
use super::url::Server;
use crate::core::event::StoreError;
use crate::core::time::Instant;
use crate::sys;

pub use super::session::{ClientEvent, RequestError, Sid};

/// Longest attempt at one server: a round trip around the world takes 0.3 s and a
/// connection needs three of them.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);

/// Shortest attempt at one server that the caller's deadline permits, however many
/// servers are still to be tried.
const ATTEMPT_MIN: Duration = Duration::from_millis(250);

/// Most servers that are taken from INFO. Larger clusters exist, but a client needs no
/// more alternatives.
const DISCOVERED_MAX: usize = 64;

/// Most failures in the text of one error.
const FAILURES_SHOWN_MAX: usize = 4;

/// The default prefix of reply subjects.
const INBOX: &str = "_INBOX";

/// Login, TLS and inbox of all connections of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The login for servers whose URL has neither user nor token.
    pub login: Login,
    /// The TLS options, which apply whatever the URLs say.
    pub tls: Tls,
    /// The prefix of reply subjects.
    pub inbox: String,
}

impl From<Login> for ConnectOptions {
    fn from(login: Login) -> ConnectOptions {
        ConnectOptions { login, tls: Tls::default(), inbox: INBOX.to_owned() }
    }
}

/// A NATS client. One thread owns it, and every call returns at its deadline.
#[derive(Debug)]
pub struct Client {
    /// The servers that the client was made with, in random order.
    configured: Vec<Server>,
    /// The servers of the last advertisement, in random order.
    discovered: Vec<Server>,
    /// Index of the next server to try, in both lists.
    next: usize,
    options: ConnectOptions,
    name: String,
    ping_after: Duration,
    dialer: Dialer,
    rng: Rng,
    backoff: Backoff,
    session: Option<Session>,
    /// The server of the present or last session. The login and TLS of its URL apply to
    /// the servers that it advertises.
    current: Option<Server>,
    /// Why there is no session.
    reason: String,
    last_sid: u64,
}

/// The result of one attempt at each server.
struct Round {
    failures: Vec<String>,
    /// Servers that refused the credentials.
    refusals: usize,
    /// Servers that did not prove their identity.
    unproven: usize,
    /// Servers that answered and cannot be used for another reason.
    unfit: usize,
    /// Whether every server was tried.
    complete: bool,
}

impl Client {
    /// Makes a client that is not connected yet.
    ///
    /// `name` appears in the server's list of connections. A waiting client sends PING
    /// after `ping_after` without a byte from the server, and ends the connection after
    /// twice that time.
    #[must_use]
    pub fn new(
        servers: Vec<Server>,
        options: impl Into<ConnectOptions>,
        name: String,
        ping_after: Duration,
    ) -> Client {
        let (mut rng, mut configured) = (Rng::new(), servers);
        rng.shuffle(&mut configured);
        Client {
            configured,
            discovered: Vec::new(),
            next: 0,
            options: options.into(),
            name,
            ping_after,
            dialer: Dialer::default(),
            rng,
            backoff: Backoff::new(),
            session: None,
            current: None,
            reason: "no connection was made yet".to_owned(),
            last_sid: 0,
        }
    }

    /// Connects unless connected: tries one server after the other, and pauses after each
    /// round of all servers, each time longer.
    ///
    /// A new connection has no subscriptions.
    ///
    /// # Errors
    ///
    /// See [`StoreError`]. An error that another attempt cannot change is returned after
    /// the first round, before the deadline.
    pub fn connect(&mut self, deadline: Instant) -> Result<(), StoreError> {
        if self.session.is_some() {
            return Ok(());
        }
        loop {
            match self.backoff.pass(deadline) {
                Ok(true) => {}
                Ok(false) => return Err(StoreError::Unreachable(self.reason.clone())),
                Err(error) => {
                    let text = format!("no timer: {}", super::why(&error));
                    return Err(StoreError::Unreachable(text));
                }
            }
            let Err(round) = self.try_all(deadline) else {
                return Ok(());
            };
            self.reason = round.text();
            if !round.complete {
                return Err(StoreError::Unreachable(self.reason.clone()));
            }
            self.backoff.failed(sys::now(), &mut self.rng);
            if let Some(error) = round.verdict() {
                return Err(error);
            }
        }
    }

    /// Connects unless connected, with one attempt at each server.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub fn connect_once(&mut self, deadline: Instant) -> Result<(), StoreError> {
        if self.session.is_some() {
            return Ok(());
        }
        let Err(round) = self.try_all(deadline) else {
            return Ok(());
        };
        self.reason = round.text();
        let unreachable = StoreError::Unreachable(self.reason.clone());
        Err(round.verdict().unwrap_or(unreachable))
    }

    /// Returns whether there is a connection that has not failed yet.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.session.is_some()
    }

    /// Returns the last INFO of the connected server.
    #[must_use]
    pub fn server(&self) -> Option<&ServerInfo> {
        self.session.as_ref().map(|session| session.link().info())
    }

    /// Returns the refusals of the server that belonged to no request, as received so far.
    #[must_use]
    pub fn server_errors(&self) -> Vec<String> {
        let session = self.session.as_ref();
        session.map_or_else(Vec::new, |session| session.warned().to_vec())
    }

    /// Subscribes, for the life of this connection. A server that does not permit it
    /// says so later; then a warning is logged.
    ///
    /// # Errors
    ///
    /// [`RequestError::NotSent`] or [`RequestError::Lost`].
    pub fn subscribe(&mut self, subject: &str) -> Result<Sid, RequestError> {
        let sid = self.next_sid();
        self.with_session(|session| session.subscribe(subject, sid))?;
        Ok(sid)
    }

    /// Sends a message and waits for its reply. A status other than 503 is a reply.
    ///
    /// # Errors
    ///
    /// See [`RequestError`], which says whether the request may have had an effect.
    pub fn request(
        &mut self,
        subject: &str,
        headers: &[(&str, &str)],
        payload: &[u8],
        deadline: Instant,
    ) -> Result<Message, RequestError> {
        self.with_session(|session| session.request(subject, headers, payload, deadline))
    }

    /// Sends a message without waiting for a reply.
    ///
    /// # Errors
    ///
    /// [`RequestError::NotSent`] or [`RequestError::Lost`].
    pub fn publish(
        &mut self,
        subject: &str,
        headers: &[(&str, &str)],
        payload: &[u8],
    ) -> Result<(), RequestError> {
        self.with_session(|session| session.publish(subject, headers, payload))
    }

    /// Waits for a message, for `wake` to become readable, for `deadline`, or for
    /// the end of the connection. `None` waits for ever. Messages that arrived during
    /// a request are returned first.
    ///
    /// The call leaves a server that is about to shut down, if there is another.
    pub fn wait(&mut self, wake: BorrowedFd<'_>, deadline: Option<Instant>) -> ClientEvent {
        loop {
            if let Some(reason) = self.leave_lame_duck() {
                return ClientEvent::Gone(reason);
            }
            let Some(session) = &mut self.session else {
                return ClientEvent::Gone(self.reason.clone());
            };
            let event = session.wait(wake, deadline);
            self.follow_session();
            match event {
                Some(ClientEvent::Gone(_)) => return ClientEvent::Gone(self.reason.clone()),
                Some(event) => return event,
                None if deadline.is_some_and(|deadline| sys::now() >= deadline) => {
                    return ClientEvent::Elapsed;
                }
                None => {}
            }
        }
    }

    fn with_session<T>(
        &mut self,
        call: impl FnOnce(&mut Session) -> Result<T, RequestError>,
    ) -> Result<T, RequestError> {
        let Some(session) = &mut self.session else {
            return Err(RequestError::NotSent(format!("not connected: {}", self.reason)));
        };
        let outcome = call(session);
        self.follow_session();
        outcome
    }

    /// Takes over a changed INFO and the end of the session.
    fn follow_session(&mut self) {
        let Some(session) = &mut self.session else {
            return;
        };
        if session.take_info_changed() {
            let info = session.link().info();
            let urls = info.connect_urls.clone();
            self.learn(&urls);
        }
        let ended = self.session.as_mut().and_then(Session::take_ended);
        if let Some(Ended(reason)) = ended {
            self.end(&reason);
        }
    }

    /// Ends the connection, so that another server is tried next, and returns true.
    /// Without another server it keeps the connection and returns false.
    pub fn leave(&mut self, reason: &str) -> bool {
        let Some(here) = self.server().map(|info| info.address.clone()) else {
            return false;
        };
        let elsewhere = |server: &Server| server.to_string() != here;
        let another = self.configured.iter().chain(&self.discovered).any(elsewhere);
        if another {
            self.end(reason);
        }
        another
    }

    fn end(&mut self, reason: &str) {
        let Some(session) = self.session.take() else {
            return;
        };
        self.reason = format!("{}: {reason}", session.link().info().address);
        let now = sys::now();
        // A server that accepts connections and drops them must not be flooded.
        match now.since(session.opened_at()) < BACKOFF_MAX {
            true => self.backoff.failed(now, &mut self.rng),
            false => self.backoff.reset(),
        }
    }

    fn leave_lame_duck(&mut self) -> Option<String> {
        self.server().filter(|info| info.lame_duck)?;
        self.leave("the server is about to shut down").then(|| self.reason.clone())
    }

    /// Replaces the list of discovered servers. An empty advertisement changes nothing.
    fn learn(&mut self, urls: &[String]) {
        let Some(current) = self.current.as_ref().filter(|_| !urls.is_empty()) else {
            return;
        };
        let parsed = urls.iter().filter_map(|url| current.advertised(url));
        let same =
            |one: &Server, other: &Server| (&one.host, one.port) == (&other.host, other.port);
        let unknown = |server: &Server| !self.configured.iter().any(|named| same(named, server));
        self.discovered = parsed.filter(unknown).collect();
        self.rng.shuffle(&mut self.discovered);
        self.discovered.truncate(DISCOVERED_MAX);
    }

    fn try_all(&mut self, deadline: Instant) -> Result<(), Round> {
        let mut round =
            Round { failures: Vec::new(), refusals: 0, unproven: 0, unfit: 0, complete: false };
        let count = self.configured.len() + self.discovered.len();
        for left in (1..=count).rev() {
            let now = sys::now();
            if now >= deadline {
                return Err(round);
            }
            let index = self.next % count;
            self.next = (index + 1) % count;
            let mut both = self.configured.iter().chain(&self.discovered);
            let Some(server) = both.nth(index).cloned() else {
                continue;
            };
            let share = deadline.since(now) / u32::try_from(left).unwrap_or(u32::MAX);
            let limit = now.after(share.clamp(ATTEMPT_MIN, ATTEMPT_MAX));
            match self.try_one(&server, deadline.min(limit)) {
                Ok(session) => {
                    self.session = Some(session);
                    self.current = Some(server);
                    self.follow_session();
                    return Ok(());
                }
                Err(fault) => round.note(&server, fault),
            }
        }
        round.complete = true;
        Err(round)
    }

    fn try_one(&mut self, server: &Server, deadline: Instant) -> Result<Session, HandshakeError> {
        let unreachable = |text: String| HandshakeError::Unreachable(text);
        let login = match server.login == Login::None {
            true => &self.options.login,
            false => &server.login,
        };
        let credentials = login.read();
        let credentials: Credentials = credentials.map_err(HandshakeError::Unsafe)?;
        let sid = self.next_sid();
        let inbox = Inbox::new(&self.options.inbox, sid);
        let inbox = inbox.map_err(|error| unreachable(super::why(&error)))?;
        let mut first = Vec::new();
        inbox.subscribe(&mut first).map_err(unreachable)?;
        let options = Handshake {
            credentials: &credentials,
            tls: &self.options.tls,
            name: &self.name,
            first: &first,
            ping_after: self.ping_after,
        };
        let link = Link::open(&mut self.dialer, server, &options, deadline)?;
        Ok(Session::new(link, inbox))
    }

    fn next_sid(&mut self) -> Sid {
        self.last_sid += 1;
        Sid(self.last_sid)
    }
}

impl Round {
    fn note(&mut self, server: &Server, fault: HandshakeError) {
        let reason = match fault {
            HandshakeError::Credentials(text) => {
                self.refusals += 1;
                text
            }
            HandshakeError::Unsafe(text) => {
                self.unproven += 1;
                text
            }
            HandshakeError::Unfit(text) => {
                self.unfit += 1;
                text
            }
            HandshakeError::Unreachable(text) => text,
        };
        self.failures.push(format!("{server}: {reason}"));
    }

    /// Returns the error that another attempt would not change, if there is one.
    fn verdict(&self) -> Option<StoreError> {
        match self {
            Round { complete: false, .. } | Round { unfit: 1.., .. } => None,
            Round { refusals: 1.., .. } => Some(StoreError::Credentials(self.text())),
            Round { unproven: 1.., .. } => Some(StoreError::Unsafe(self.text())),
            Round { .. } => None,
        }
    }

    fn text(&self) -> String {
        let shown = self.failures.len().min(FAILURES_SHOWN_MAX);
        let mut text = self.failures[..shown].join("; ");
        match self.failures.len() - shown {
            0 if shown == 0 => text.push_str("no server was tried"),
            0 => {}
            more => text.push_str(&format!("; and {more} more")),
        }
        text
    }
}

#[cfg(test)]
mod tests;
