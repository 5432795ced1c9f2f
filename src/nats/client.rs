//! A connection to one of several servers, and what is asked over it.
//!
//! The client connects when it is told to and never by itself: whoever learns
//! from [`Event::Gone`] that a connection is over decides when to call
//! [`Client::connect`] again, and subscribes anew.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::auth::{Credentials, Login};
use super::decode::Message;
use super::dial::Dialer;
use super::info::ServerInfo;
use super::link::{Hello, Link, OpenFault};
use super::pace::{BACKOFF_MAX, Backoff, Dice};
use super::session::{Ended, Inbox, Session};
use super::tls::Tls;
use super::url::Server;
use crate::core::time::Instant;
use crate::sys;

pub use super::session::{Event, RequestError, Sid};

/// Longest that one server is tried for: a round trip around the world takes
/// 0.3 s and a connection needs three of them.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);

/// Shortest that one server is tried for while the caller's deadline allows it,
/// however many others wait for their turn.
const ATTEMPT_MIN: Duration = Duration::from_millis(250);

/// Most servers that are learnt from INFO. Larger clusters exist, but nobody
/// needs more places to go.
const LEARNT_MAX: usize = 64;

/// Most servers whose failure is told in one error.
const TOLD_MAX: usize = 4;

/// Where replies are asked for unless another place is wanted.
const INBOX: &str = "_INBOX";

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// When no server was reached, or none that answered properly, by the deadline.
    Unreachable(String),
    /// When every server that was reached refused who we are.
    Credentials(String),
    /// When every server that was reached could not prove who it is, or we lack what
    /// it takes to talk to it safely.
    Unsafe(String),
}

/// Who we are to the servers, and how they are talked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// For servers whose URL has neither user nor token.
    pub login: Login,
    /// Which TLS is wanted, whatever the URLs say.
    pub tls: Tls,
    /// The subject below which replies are asked for.
    pub inbox: String,
}

impl From<Login> for Access {
    fn from(login: Login) -> Access {
        Access {
            login,
            tls: Tls::default(),
            inbox: INBOX.to_owned(),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ConnectError::Unreachable(text)
        | ConnectError::Credentials(text)
        | ConnectError::Unsafe(text)) = self;
        f.write_str(text)
    }
}

/// A NATS client. One thread owns it, and every call returns at its deadline.
#[derive(Debug)]
pub struct Client {
    /// What we were told of, in any order.
    named: Vec<Server>,
    /// What the last server to advertise others advertised, in any order.
    learnt: Vec<Server>,
    /// Which of both is tried next.
    next: usize,
    access: Access,
    name: String,
    ping_after: Duration,
    dialer: Dialer,
    dice: Dice,
    backoff: Backoff,
    session: Option<Session>,
    /// The server of the session, or of the last one. What its URL says is also for
    /// those that it advertises.
    current: Option<Server>,
    /// Why there is no session.
    reason: String,
    last_sid: u64,
}

/// How one try of every server went.
struct Round {
    failures: Vec<String>,
    /// How many spoke and refused who we are.
    refusals: usize,
    /// How many did not prove who they are.
    unproven: usize,
    /// How many spoke and were of no use.
    others: usize,
    /// Whether every server was tried.
    complete: bool,
}

impl Client {
    /// Makes a client that is not connected yet.
    ///
    /// `name` is shown in the server's list of connections. `ping_after` is the silence
    /// after which a waiting client asks the server for a sign of life; after twice
    /// that the connection is over.
    #[must_use]
    pub fn new(
        servers: Vec<Server>,
        access: impl Into<Access>,
        name: String,
        ping_after: Duration,
    ) -> Client {
        let (mut dice, mut named) = (Dice::new(), servers);
        dice.shuffle(&mut named);
        Client {
            named,
            learnt: Vec::new(),
            next: 0,
            access: access.into(),
            name,
            ping_after,
            dialer: Dialer::default(),
            dice,
            backoff: Backoff::new(),
            session: None,
            current: None,
            reason: "no connection was made yet".to_owned(),
            last_sid: 0,
        }
    }

    /// Connects unless connected: tries one server after the other, and after
    /// each round of all of them waits a little longer than before.
    ///
    /// A new connection has no subscriptions.
    ///
    /// # Errors
    ///
    /// See [`ConnectError`]. What trying again does not change is told after the first
    /// round, before the deadline.
    pub fn connect(&mut self, deadline: Instant) -> Result<(), ConnectError> {
        if self.session.is_some() {
            return Ok(());
        }
        loop {
            match self.backoff.pass(deadline) {
                Ok(true) => {}
                Ok(false) => return Err(ConnectError::Unreachable(self.reason.clone())),
                Err(error) => {
                    let text = format!("no timer: {}", super::why(&error));
                    return Err(ConnectError::Unreachable(text));
                }
            }
            let Err(round) = self.try_all(deadline) else {
                return Ok(());
            };
            self.reason = round.text();
            if !round.complete {
                return Err(ConnectError::Unreachable(self.reason.clone()));
            }
            self.backoff.failed(sys::now(), &mut self.dice);
            if let Some(error) = round.verdict() {
                return Err(error);
            }
        }
    }

    /// Connects unless connected, but tries every server once only.
    ///
    /// # Errors
    ///
    /// See [`ConnectError`].
    pub fn connect_once(&mut self, deadline: Instant) -> Result<(), ConnectError> {
        if self.session.is_some() {
            return Ok(());
        }
        let Err(round) = self.try_all(deadline) else {
            return Ok(());
        };
        self.reason = round.text();
        let unreachable = ConnectError::Unreachable(self.reason.clone());
        Err(round.verdict().unwrap_or(unreachable))
    }

    /// Returns whether a connection is believed to stand.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.session.is_some()
    }

    /// Returns what the connected server said of itself last.
    #[must_use]
    pub fn server(&self) -> Option<&ServerInfo> {
        self.session.as_ref().map(|session| session.link().info())
    }

    /// Returns what the server refused beside what was asked for, as far as it was heard.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let session = self.session.as_ref();
        session.map_or_else(Vec::new, |session| session.warned().to_vec())
    }

    /// Subscribes, for as long as this connection stands. Whether the server
    /// permits it is not known here; if it does not, a warning is logged.
    ///
    /// # Errors
    ///
    /// [`RequestError::NotSent`] or [`RequestError::Lost`].
    pub fn subscribe(&mut self, subject: &str) -> Result<Sid, RequestError> {
        let sid = self.next_sid();
        self.ask(|session| session.subscribe(subject, sid))?;
        Ok(sid)
    }

    /// Sends a message and waits for its reply. A status other than 503 is a reply.
    ///
    /// # Errors
    ///
    /// See [`RequestError`], which tells what may have happened all the same.
    pub fn request(
        &mut self,
        subject: &str,
        headers: &[(&str, &str)],
        payload: &[u8],
        deadline: Instant,
    ) -> Result<Message, RequestError> {
        self.ask(|session| session.request(subject, headers, payload, deadline))
    }

    /// Sends a message and does not care what becomes of it.
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
        self.ask(|session| session.publish(subject, headers, payload))
    }

    /// Waits for a message, for `wake` to become readable, for `deadline`, or for
    /// the end of the connection. `None` waits for ever. Messages that came during
    /// a request are returned first.
    ///
    /// A server that is about to shut down is left here, if there is another.
    pub fn wait(&mut self, wake: BorrowedFd<'_>, deadline: Option<Instant>) -> Event {
        loop {
            if let Some(reason) = self.leave_lame_duck() {
                return Event::Gone(reason);
            }
            let Some(session) = &mut self.session else {
                return Event::Gone(self.reason.clone());
            };
            let event = session.wait(wake, deadline);
            self.settle();
            match event {
                Some(Event::Gone(_)) => return Event::Gone(self.reason.clone()),
                Some(event) => return event,
                None if deadline.is_some_and(|deadline| sys::now() >= deadline) => {
                    return Event::Elapsed;
                }
                None => {}
            }
        }
    }

    fn ask<T>(
        &mut self,
        ask: impl FnOnce(&mut Session) -> Result<T, RequestError>,
    ) -> Result<T, RequestError> {
        let Some(session) = &mut self.session else {
            return Err(RequestError::NotSent(format!(
                "not connected: {}",
                self.reason
            )));
        };
        let outcome = ask(session);
        self.settle();
        outcome
    }

    /// Draws the conclusions from what happened to the session.
    fn settle(&mut self) {
        let Some(session) = &mut self.session else {
            return;
        };
        if session.take_news() {
            let info = session.link().info();
            let urls = info.connect_urls.clone();
            self.learn(&urls);
        }
        let ended = self.session.as_mut().and_then(Session::take_ended);
        if let Some(Ended(reason)) = ended {
            self.end(&reason);
        }
    }

    /// Ends the connection, so that another server is tried next; says whether there
    /// is another. Without one nothing is ended.
    pub fn leave(&mut self, reason: &str) -> bool {
        let Some(here) = self.server().map(|info| info.address.clone()) else {
            return false;
        };
        let elsewhere = |server: &Server| server.to_string() != here;
        let another = self.named.iter().chain(&self.learnt).any(elsewhere);
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
        // A server that takes connections and drops them must not be hammered.
        match now.since(session.opened_at()) < BACKOFF_MAX {
            true => self.backoff.failed(now, &mut self.dice),
            false => self.backoff.reset(),
        }
    }

    fn leave_lame_duck(&mut self) -> Option<String> {
        self.server().filter(|info| info.lame_duck)?;
        self.leave("the server is about to shut down")
            .then(|| self.reason.clone())
    }

    /// Replaces what was learnt before. A server that advertises nobody says
    /// nothing about the others.
    fn learn(&mut self, urls: &[String]) {
        let Some(current) = self.current.as_ref().filter(|_| !urls.is_empty()) else {
            return;
        };
        let parsed = urls.iter().filter_map(|url| current.advertised(url));
        let same =
            |one: &Server, other: &Server| (&one.host, one.port) == (&other.host, other.port);
        let unknown = |server: &Server| !self.named.iter().any(|named| same(named, server));
        self.learnt = parsed.filter(unknown).collect();
        self.dice.shuffle(&mut self.learnt);
        self.learnt.truncate(LEARNT_MAX);
    }

    fn try_all(&mut self, deadline: Instant) -> Result<(), Round> {
        let mut round = Round {
            failures: Vec::new(),
            refusals: 0,
            unproven: 0,
            others: 0,
            complete: false,
        };
        let count = self.named.len() + self.learnt.len();
        for left in (1..=count).rev() {
            let now = sys::now();
            if now >= deadline {
                return Err(round);
            }
            let index = self.next % count;
            self.next = (index + 1) % count;
            let mut both = self.named.iter().chain(&self.learnt);
            let Some(server) = both.nth(index).cloned() else {
                continue;
            };
            let share = deadline.since(now) / u32::try_from(left).unwrap_or(u32::MAX);
            let limit = now.after(share.clamp(ATTEMPT_MIN, ATTEMPT_MAX));
            match self.try_one(&server, deadline.min(limit)) {
                Ok(session) => {
                    self.session = Some(session);
                    self.current = Some(server);
                    self.settle();
                    return Ok(());
                }
                Err(fault) => round.note(&server, fault),
            }
        }
        round.complete = true;
        Err(round)
    }

    fn try_one(&mut self, server: &Server, deadline: Instant) -> Result<Session, OpenFault> {
        let unreachable = |text: String| OpenFault::Unreachable(text);
        let login = match server.login == Login::None {
            true => &self.access.login,
            false => &server.login,
        };
        let credentials = login.read();
        let credentials: Credentials = credentials.map_err(OpenFault::Unsafe)?;
        let sid = self.next_sid();
        let inbox = Inbox::new(&self.access.inbox, sid);
        let inbox = inbox.map_err(|error| unreachable(super::why(&error)))?;
        let mut first = Vec::new();
        inbox
            .subscribe(&mut first)
            .map_err(|error| unreachable(error.to_string()))?;
        let hello = Hello {
            credentials: &credentials,
            tls: &self.access.tls,
            name: &self.name,
            first: &first,
            ping_after: self.ping_after,
        };
        let link = Link::open(&mut self.dialer, server, &hello, deadline)?;
        Ok(Session::new(link, inbox))
    }

    fn next_sid(&mut self) -> Sid {
        self.last_sid += 1;
        Sid(self.last_sid)
    }
}

impl Round {
    fn note(&mut self, server: &Server, fault: OpenFault) {
        let reason = match fault {
            OpenFault::Credentials(text) => {
                self.refusals += 1;
                text
            }
            OpenFault::Unsafe(text) => {
                self.unproven += 1;
                text
            }
            OpenFault::Unfit(text) => {
                self.others += 1;
                text
            }
            OpenFault::Unreachable(text) => text,
        };
        self.failures.push(format!("{server}: {reason}"));
    }

    /// Returns why trying again would change nothing, if it would not.
    fn verdict(&self) -> Option<ConnectError> {
        match self {
            Round {
                complete: false, ..
            }
            | Round { others: 1.., .. } => None,
            Round { refusals: 1.., .. } => Some(ConnectError::Credentials(self.text())),
            Round { unproven: 1.., .. } => Some(ConnectError::Unsafe(self.text())),
            Round { .. } => None,
        }
    }

    fn text(&self) -> String {
        let told = self.failures.len().min(TOLD_MAX);
        let mut text = self.failures[..told].join("; ");
        match self.failures.len() - told {
            0 if told == 0 => text.push_str("no server was tried"),
            0 => {}
            more => text.push_str(&format!("; and {more} more")),
        }
        text
    }
}

#[cfg(test)]
mod tests;
