//! The servers of a client: the next one to try, the time for it, and the meaning of all
//! failures together.

use std::time::Duration;

use super::backoff::{BACKOFF_MAX, Backoff, shuffle};
use super::connect_options::ConnectOptions;
use super::dial::Dialer;
use super::io_error_text;
use super::link::Link;
use super::url::Server;
use crate::core::{Instant, StoreError, StoreErrorKind as Kind};
use crate::sys;

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

/// The servers, and the state of the attempts to connect.
#[derive(Debug)]
pub(super) struct Pool {
    /// The configured servers, then those of the last advertisement, each in random order.
    servers: Vec<Server>,
    /// Number of configured servers.
    configured: usize,
    /// Index of the next server to try.
    next: usize,
    options: ConnectOptions,
    dialer: Dialer,
    backoff: Backoff,
    /// The reason why there is no connection.
    pub(super) reason: String,
    last_sid: u64,
}

impl Pool {
    pub(super) fn new(mut servers: Vec<Server>, options: ConnectOptions) -> Pool {
        shuffle(&mut servers);
        Pool {
            configured: servers.len(),
            servers,
            next: 0,
            options,
            dialer: Dialer::default(),
            backoff: Backoff::new(),
            reason: "no connection was made yet".to_owned(),
            last_sid: 0,
        }
    }

    /// Returns the number of a new subscription, unique among all connections of a client.
    pub(super) fn next_sid(&mut self) -> u64 {
        self.last_sid += 1;
        self.last_sid
    }

    /// Tries one server after the other, and pauses after each round of all servers, each
    /// time longer.
    ///
    /// # Errors
    ///
    /// At the deadline, or after the first round whose failure another attempt does not
    /// change.
    pub(super) fn connect(&mut self, deadline: Instant) -> Result<Link, StoreError> {
        loop {
            let passed = self.backoff.pass(deadline);
            let no_timer =
                |error| Kind::Unreachable.error(format!("no timer: {}", io_error_text(&error)));
            if !passed.map_err(no_timer)? {
                return Err(Kind::Unreachable.error(self.reason.clone()));
            }
            match self.connect_once(deadline) {
                Err(StoreError { kind: Kind::Unreachable, .. }) if sys::now() < deadline => {}
                outcome => return outcome,
            }
        }
    }

    /// Tries each server once.
    pub(super) fn connect_once(&mut self, deadline: Instant) -> Result<Link, StoreError> {
        let (mut kind, mut failures) = (Kind::Unreachable, Vec::new());
        let count = self.servers.len();
        for left in (1..=count).rev() {
            let now = sys::now();
            if now >= deadline {
                kind = Kind::Unreachable;
                break;
            }
            let server = self.servers[self.next % count].clone();
            self.next = (self.next + 1) % count;
            let share = deadline.since(now) / u32::try_from(left).unwrap_or(u32::MAX);
            let limit = deadline.min(now.after(share.clamp(ATTEMPT_MIN, ATTEMPT_MAX)));
            let sid = self.next_sid();
            match Link::open(&mut self.dialer, &server, &self.options, sid, limit) {
                Ok(link) => return Ok(link),
                Err(error) => {
                    kind = kind.max(error.kind);
                    failures.push(format!("{server}: {error}"));
                }
            }
        }
        if failures.len() == count {
            self.backoff.failed(sys::now());
        }
        self.reason = describe(&failures);
        if kind == Kind::Unfit {
            kind = Kind::Unreachable;
        }
        Err(kind.error(&*self.reason))
    }

    /// Stores the advertised servers of a connection that has ended, and the reason of its end.
    pub(super) fn ended(&mut self, link: &Link, reason: &str) {
        self.learn(link);
        self.reason = format!("{}: {reason}", link.info.address);
        // A server that accepts connections and drops them must not be flooded.
        match link.age() < BACKOFF_MAX {
            true => self.backoff.failed(sys::now()),
            false => self.backoff = Backoff::new(),
        }
    }

    /// Returns whether there is another server than that of `link`.
    pub(super) fn has_another(&mut self, link: &Link) -> bool {
        self.learn(link);
        self.servers.iter().any(|server| server.to_string() != link.info.address)
    }

    /// Replaces the discovered servers by those that a server advertised. An empty
    /// advertisement changes nothing.
    fn learn(&mut self, link: &Link) {
        let urls = &link.info.connect_urls;
        if urls.is_empty() {
            return;
        }
        self.servers.truncate(self.configured);
        let is_new = |found: &Server| {
            let same = |server: &Server| (&server.host, server.port) == (&found.host, found.port);
            !self.servers.iter().any(same)
        };
        let found = urls.iter().filter_map(|url| link.server.advertised(url));
        let mut found: Vec<Server> = found.filter(is_new).collect();
        shuffle(&mut found);
        found.truncate(DISCOVERED_MAX);
        self.servers.append(&mut found);
    }
}

/// Returns the text of the failures of one round.
fn describe(failures: &[String]) -> String {
    let (shown, more) = failures.split_at(failures.len().min(FAILURES_SHOWN_MAX));
    match (shown, more.len()) {
        ([], _) => "no server was tried".to_owned(),
        (_, 0) => shown.join("; "),
        (_, more) => format!("{}; and {more} more", shown.join("; ")),
    }
}
