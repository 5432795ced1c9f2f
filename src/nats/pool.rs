//! The servers of a client: connects to one of them, and gives all failures one meaning.

mod candidates;

use std::net::IpAddr;

pub(super) use self::candidates::Candidate;
use self::candidates::{Candidates, Failure};
use super::auth::Login;
use super::connect_options::ConnectOptions;
use super::dial::Dialer;
use super::link::Link;
use super::no_timer;
use super::url::Server;
use crate::core::{Instant, StoreError, StoreErrorKind as Kind};
use crate::sys::{self, Alarm};

/// The servers, and the state of the attempts to connect.
#[derive(Debug)]
pub(super) struct Pool {
    candidates: Candidates,
    pub(super) options: ConnectOptions,
    dialer: Dialer,
    /// The reason why there is no connection.
    pub(super) reason: String,
    last_sid: u64,
}

impl Pool {
    pub(super) fn new(mut servers: Vec<Server>, options: ConnectOptions) -> Pool {
        shuffle(&mut servers);
        Pool {
            candidates: Candidates::new(servers, options.interval),
            options,
            dialer: Dialer::default(),
            reason: "no connection was made yet".to_owned(),
            last_sid: 0,
        }
    }

    /// Returns the number of a new subscription, unique among all connections of a client.
    pub(super) fn next_sid(&mut self) -> u64 {
        self.last_sid += 1;
        self.last_sid
    }

    /// Tries one server or address after the other, each when it is due, until all were tried
    /// or one of them would be waited for again.
    pub(super) fn connect(&mut self, deadline: Instant) -> Result<Link, StoreError> {
        let (mut kind, mut tried) = (Kind::Unreachable, Vec::new());
        while let Some(next) = self.candidates.next(sys::now()) {
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
            match self.attempt(&next, deadline) {
                Ok(Some(link)) => return Ok(link),
                Ok(None) => {}
                Err(error) => kind = kind.max(error),
            }
        }
        if !tried.is_empty() {
            self.reason = self.candidates.faults();
        }
        if kind == Kind::Unfit {
            kind = Kind::Unreachable;
        }
        Err(kind.error(&*self.reason))
    }

    /// Tries a candidate. Returns the connection, `None` if its name was looked up instead.
    fn attempt(&mut self, next: &Candidate, deadline: Instant) -> Result<Option<Link>, Kind> {
        let opened = match next.address {
            Some(address) => self.open(next, address, deadline).map(Some),
            None => self.look_up(next, deadline).map(|()| None),
        };
        opened.map_err(|(failure, error)| {
            let random = random() as u64;
            self.candidates.failed(next.id, failure, error.text, sys::now(), random);
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
    ) -> Result<Link, (Failure, StoreError)> {
        let began = sys::now();
        let info_by = began.after(next.info_within()).min(deadline);
        let by = began.after(next.within()).min(deadline);
        let server = &next.server;
        let login = if server.login == Login::None { &self.options.login } else { &server.login };
        let unsafe_login = |text: String| (Failure::Unreached, Kind::Unsafe.error(text));
        let credentials = login.read().map_err(unsafe_login)?;
        let sid = self.next_sid();
        let link = Link::open(next, address, &self.options, &credentials, sid, info_by);
        let late = |by, late, failure| if sys::now() >= by { late } else { failure };
        let unreached = |error| (late(info_by, Failure::Silent, Failure::Unreached), error);
        let mut link = link.map_err(unreached)?;
        let refused = |error| (late(by, Failure::Slow, Failure::Refused), error);
        link.log_in(&self.options, &credentials, by).map_err(refused)?;
        let now = sys::now();
        self.candidates.connected(next.id, now.since(began), now);
        Ok(link)
    }

    /// Stores the advertised servers of a connection that has ended, and the reason of its end.
    pub(super) fn ended(&mut self, link: &Link, reason: &str) {
        self.learn(link);
        self.reason = format!("{}: {reason}", link.info.address);
        let (now, random) = (sys::now(), random() as u64);
        self.candidates.ended(link.candidate, now.since(link.opened_at), reason, now, random);
    }

    /// Stores the advertised servers of a connection that its owner ends. All others are tried
    /// first.
    pub(super) fn left(&mut self, link: &Link, reason: &str) {
        self.learn(link);
        self.reason = format!("{}: {reason}", link.info.address);
        self.candidates.left(link.candidate, sys::now());
    }

    /// Notes that the leader answered a request.
    pub(super) fn answered(&mut self, link: &Link) {
        self.candidates.answered(link.candidate);
    }

    /// Notes that a request begun at `began` had no answer of the leader. Returns whether to
    /// leave the server.
    pub(super) fn unanswered(&mut self, began: Instant) -> bool {
        self.candidates.unanswered(began, sys::now())
    }

    /// Returns whether there is another server than that of `link`.
    pub(super) fn has_another(&mut self, link: &Link) -> bool {
        self.learn(link);
        self.candidates.has_another(link.candidate)
    }

    fn learn(&mut self, link: &Link) {
        let mut urls = link.info.connect_urls.clone();
        shuffle(&mut urls);
        self.candidates.learn(&link.server, &urls);
    }
}

/// Puts the items in a random order.
fn shuffle<T>(items: &mut [T]) {
    items.sort_by_cached_key(|_| random());
}

/// Returns a random number, 0 when the kernel has none: then no connection is made either.
fn random() -> u128 {
    sys::random().unwrap_or(0)
}

#[cfg(test)]
mod tests;
