//! The order of the servers and their addresses, which of them are tried beside each other, and
//! the pauses between attempts. Pure: every event carries its instant, and every pause its random
//! number.
//!
//! 1. Each address of a name is a candidate, and so is the lookup of the name. Lookups go on beside
//!    each other and beside connections: a dead name server delays only what needs it, and an
//!    address that is of no use does not hide the others.
//! 2. The next address is begun [`NEXT_AFTER`] after the last one, or as soon as that has failed
//!    (RFC 8305). The first whose handshake ends is taken, and the others are given up: a server
//!    that is off, or accepts connections and hangs, delays nobody for longer.
//! 3. Of the candidates that are due, the one that was tried longest ago is next. At first that
//!    is the last one that answered as the leader, then come the configured ones, then the
//!    advertised ones, at last those of them that were tried in vain before. A candidate that
//!    refuses connections, or that was left, has another turn after each wait for a silent one.
//! 4. No other candidate is begun beside a server that has sent INFO and may hash the password: of
//!    a herd of clients each would make two servers work. Such a server has a long time to answer
//!    CONNECT, and a long pause if it does not.
//! 5. Only an answer of the stream's leader counts as an answer. So a server that is cut off
//!    from its cluster is left.

use std::net::IpAddr;
use std::time::Duration;

use super::url::Server;
use crate::core::Instant;

/// After how long the next address is begun beside one that has not answered: the Connection
/// Attempt Delay of RFC 8305.
const NEXT_AFTER: Duration = Duration::from_millis(250);

/// Longest time until INFO. A round trip around the world takes 0.3 s, and a lost packet is sent
/// again after 1 s; INFO needs two round trips, and two more inside TLS.
pub(super) const INFO_LIMIT: Duration = Duration::from_secs(4);

/// Longest time for the whole handshake. A server that hashes the passwords of a herd of clients
/// needs long, and goes on with the password of a client that has given up.
pub(super) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(32);

/// A server that hashes passwords takes longer for each. The tools of NATS choose 0.1 s.
const HASHING_MIN: Duration = Duration::from_millis(20);

/// Most lookups at a time: each that a dead name service keeps occupies a thread.
const LOOKUPS_MAX: usize = 16;

/// Most connections that are begun at a time.
const HANDSHAKES_MAX: usize = 8;

/// Bounds of the time without an answer after which one of several servers is left. A caller with
/// short intervals has to try the next server sooner.
const ANSWER_LIMIT_MIN: Duration = Duration::from_millis(250);
const ANSWER_LIMIT_MAX: Duration = Duration::from_secs(2);

/// Longest pause after the first failure at a candidate.
const BACKOFF_MIN: Duration = Duration::from_millis(50);

/// Longest pause before a configured candidate that was not reached, so the longest time until
/// a returned server is noticed. Such an attempt costs a server nothing.
const BACKOFF_UNREACHED_MAX: Duration = Duration::from_secs(1);

/// Longest pause before any other candidate.
const BACKOFF_MAX: Duration = Duration::from_secs(16);

/// A connection that ends sooner counts as a failed attempt: a server that accepts
/// connections and drops them must not be flooded.
const LASTING: Duration = Duration::from_secs(2);

/// Most failures that are remembered of a candidate after an answer of the leader: with this
/// many the pause is at most 0.8 s. A link that fails again and again may be the only one.
const ANSWERED_FAILURES_MAX: u32 = 4;

/// Time until the addresses of a name are looked up again.
const LOOKUP_AGE: Duration = Duration::from_secs(5);

/// Longest time without an answer of the leader, after all servers were left for that.
const UNANSWERED_MAX: Duration = Duration::from_secs(16);

/// How many answer limits the only server has to answer.
const ONLY_LIMITS: u32 = 8;

/// Most servers that are taken from INFO. Larger clusters exist, but a client needs no
/// more alternatives.
const DISCOVERED_MAX: usize = 64;

/// Most failures in the text of one error.
const FAULTS_SHOWN_MAX: usize = 4;

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No server was reached: the connection was refused, or a lookup found nothing.
    Unreached,
    /// No INFO came by the limit.
    Silent,
    /// The server sent INFO and then refused or dropped the connection.
    Refused,
    /// The server sent INFO and did not finish the handshake by the limit.
    Slow,
}

/// The next step towards a connection.
#[derive(Debug)]
pub(super) enum Next {
    /// To connect to this address, or to look this name up.
    Begin(Box<Candidate>),
    /// To wait for what is under way, until this instant at the latest if there is one.
    Wait(Option<Instant>),
    /// Nothing: all were tried since the call began, or one of them would be waited for again.
    Over,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    since: Instant,
    /// INFO has come.
    is_greeted: bool,
}

/// A server to connect to at one address, or a name to look up.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) id: u64,
    pub(super) server: Server,
    /// Where to connect; `None` to look the name of the server up.
    pub(super) address: Option<IpAddr>,
    is_configured: bool,
    /// Whether it is the last one that answered as the leader.
    is_last_good: bool,
    /// When it was tried last, if it was since the last answer.
    tried_at: Option<Instant>,
    /// Whether its last attempt failed without a wait, or it was left: another one costs no time.
    is_quick: bool,
    not_before: Instant,
    under_way: Option<UnderWay>,
    /// The failures since it last connected for longer than [`LASTING`].
    failures: u32,
    /// The reason of its last failure.
    fault: Option<String>,
}

impl Candidate {
    /// Returns whether it is an advertised one that was tried in vain: it may never be reachable.
    fn was_in_vain(&self) -> bool {
        !self.is_configured && self.failures > 0
    }

    /// Returns why there is no connection to it, if it was tried.
    fn fault(&self) -> Option<&str> {
        let Some(under_way) = self.under_way else { return self.fault.as_deref() };
        Some(match self.address {
            None => "its name was not looked up in time",
            Some(_) if under_way.is_greeted => "it did not answer CONNECT in time",
            Some(_) => "it does not answer: it sent no INFO in time",
        })
    }
}

/// All candidates: the configured ones, then the advertised ones, each name before its
/// addresses.
#[derive(Default)]
pub(super) struct Candidates {
    list: Vec<Candidate>,
    last_id: u64,
    /// How long one of several servers has to answer.
    answer_limit: Duration,
    /// How long the last successful handshake took.
    took: Option<Duration>,
    /// The end of the last wait for a silent server.
    waited_at: Option<Instant>,
    /// The start of the first request without an answer since the last answer.
    unanswered_since: Option<Instant>,
    /// How many servers were left since the last answer.
    leaves: usize,
}

impl Candidates {
    /// Returns the configured servers as candidates, in this order. The caller makes a request
    /// every `interval`.
    pub(super) fn new(servers: Vec<Server>, interval: Duration) -> Candidates {
        let mut candidates = Candidates {
            answer_limit: interval.clamp(ANSWER_LIMIT_MIN, ANSWER_LIMIT_MAX),
            ..Candidates::default()
        };
        for server in servers {
            // A name stands before its addresses, so it may stand there once only.
            if candidates.list.iter().any(|known| known.server == server) {
                continue;
            }
            let address = server.host.parse().ok();
            let candidate = candidates.fresh(server, address, true);
            candidates.list.push(candidate);
        }
        candidates
    }

    fn fresh(&mut self, server: Server, address: Option<IpAddr>, is_configured: bool) -> Candidate {
        self.last_id += 1;
        Candidate {
            id: self.last_id,
            server,
            address,
            is_configured,
            is_last_good: false,
            tried_at: None,
            is_quick: false,
            not_before: Instant::from_boot(Duration::ZERO),
            under_way: None,
            failures: 0,
            fault: None,
        }
    }

    /// Returns what is to be done now for a call that began at `since`. A candidate that is to be
    /// begun counts as under way.
    pub(super) fn next(&mut self, since: Instant, now: Instant) -> Next {
        let waited = self.list.iter().filter_map(|it| Some(it.under_way?.since.after(NEXT_AFTER)));
        self.waited_at = self.waited_at.max(waited.filter(|at| *at <= now).max());
        if let Some(name) = self.unknown_name() {
            return self.begin(name, now);
        }
        let Some(next) = self.next_idle(now) else { return Next::Wait(None) };
        let was_tried = |it: &Candidate| it.tried_at >= Some(since);
        let is_over = was_tried(next) && (next.not_before > now || self.list.iter().all(was_tried));
        match self.next_at(next) {
            _ if is_over && self.list.iter().all(|it| it.under_way.is_none()) => Next::Over,
            Some(at) if at <= now => self.begin(next.id, now),
            at => Next::Wait(at),
        }
    }

    /// Returns the candidates that may be begun: neither one that is under way, nor a name while
    /// too many are looked up.
    fn idle(&self) -> impl Iterator<Item = &Candidate> {
        let lookups = self.list.iter().filter(|it| it.address.is_none() && it.under_way.is_some());
        let has_room = lookups.count() < LOOKUPS_MAX;
        let is_idle =
            move |it: &&Candidate| it.under_way.is_none() && (it.address.is_some() || has_room);
        self.list.iter().filter(is_idle)
    }

    /// Returns a name without an address that was not looked up yet.
    fn unknown_name(&self) -> Option<u64> {
        let has_address = |name: &Candidate| {
            self.list.iter().any(|it| it.address.is_some() && it.server == name.server)
        };
        let is_new = |it: &Candidate| it.address.is_none() && it.tried_at.is_none();
        self.idle().find(|it| is_new(it) && !has_address(it)).map(|name| name.id)
    }

    fn next_idle(&self, now: Instant) -> Option<&Candidate> {
        // A server that refuses connections may be back after each wait for another server.
        let is_next_quick = |it: &Candidate| it.is_quick && it.tried_at < self.waited_at;
        let order = |it: &&Candidate| {
            let is_last = (it.was_in_vain(), !it.is_last_good);
            (it.not_before.max(now), !is_next_quick(it), it.tried_at, is_last)
        };
        self.idle().min_by_key(order)
    }

    /// Returns when this candidate may be begun beside those under way; `None` if one of these has
    /// to end before.
    fn next_at(&self, next: &Candidate) -> Option<Instant> {
        let handshakes = self.list.iter().filter(|it| it.address.is_some());
        let handshakes: Vec<UnderWay> = handshakes.filter_map(|it| it.under_way).collect();
        let may_hash = self.took.is_none_or(|took| took >= HASHING_MIN);
        let is_greeted = |it: &Candidate| it.under_way.is_some_and(|it| it.is_greeted);
        let hashes = |it: &Candidate| is_greeted(it) && it.server.login.has_password();
        if may_hash && self.list.iter().any(hashes) || handshakes.len() >= HANDSHAKES_MAX {
            return None;
        }
        let free_at = handshakes.iter().map(|it| it.since.after(NEXT_AFTER));
        free_at.chain([next.not_before]).max()
    }

    fn begin(&mut self, id: u64, now: Instant) -> Next {
        let Some(candidate) = self.find(id) else { return Next::Wait(Some(now)) };
        candidate.under_way = Some(UnderWay { since: now, is_greeted: false });
        Next::Begin(Box::new(candidate.clone()))
    }

    fn find(&mut self, id: u64) -> Option<&mut Candidate> {
        self.list.iter_mut().find(|candidate| candidate.id == id)
    }

    /// Notes that INFO has come.
    pub(super) fn greeted(&mut self, id: u64) {
        if let Some(under_way) = self.find(id).and_then(|it| it.under_way.as_mut()) {
            under_way.is_greeted = true;
        }
    }

    /// Replaces the addresses of a name by those that were found. Known addresses keep their
    /// pauses.
    pub(super) fn resolved(&mut self, id: u64, addresses: &[IpAddr], now: Instant) {
        let Some(at) = self.list.iter().position(|candidate| candidate.id == id) else { return };
        let name = &mut self.list[at];
        (name.tried_at, name.not_before) = (Some(now), now.after(LOOKUP_AGE));
        (name.failures, name.fault, name.under_way) = (0, None, None);
        let (server, is_configured) = (name.server.clone(), name.is_configured);
        let is_of_name = |it: &Candidate| it.address.is_some() && it.server == server;
        let mut known: Vec<_> = self.list.extract_if(.., |it| is_of_name(it)).collect();
        for address in addresses.iter().rev() {
            let old = known.iter().position(|candidate| candidate.address == Some(*address));
            let candidate = match old {
                Some(old) => known.swap_remove(old),
                None => self.fresh(server.clone(), Some(*address), is_configured),
            };
            self.list.insert(at + 1, candidate);
        }
        // The attempts at addresses that the name has lost go on.
        self.list.extend(known.into_iter().filter(|candidate| candidate.under_way.is_some()));
    }

    /// Notes the failure of an attempt. `random` decides the pause.
    pub(super) fn failed(
        &mut self,
        id: u64,
        failure: Failure,
        fault: String,
        now: Instant,
        random: u64,
    ) {
        let Some(candidate) = self.find(id) else { return };
        let doubled = BACKOFF_MIN * 2u32.saturating_pow(candidate.failures.min(16));
        let pause_max = match failure {
            Failure::Unreached | Failure::Silent if candidate.is_configured => {
                doubled.min(BACKOFF_UNREACHED_MAX)
            }
            Failure::Unreached | Failure::Silent | Failure::Refused => doubled.min(BACKOFF_MAX),
            // The server may go on with its work for as long as the client waited.
            Failure::Slow => BACKOFF_MAX,
        };
        candidate.failures += 1;
        candidate.fault = Some(fault);
        candidate.under_way = None;
        candidate.tried_at = Some(now);
        candidate.is_quick = matches!(failure, Failure::Unreached);
        let pause = u64::try_from(pause_max.as_micros()).unwrap_or(u64::MAX);
        candidate.not_before = now.after(Duration::from_micros(random % (pause + 1)));
    }

    /// Notes that an attempt was given up. Its server may go on with its work for as long as the
    /// client waited.
    pub(super) fn gave_up(&mut self, id: u64, now: Instant) {
        let Some(candidate) = self.find(id) else { return };
        if let Some(UnderWay { since, .. }) = candidate.under_way.take() {
            (candidate.tried_at, candidate.is_quick) = (Some(now), false);
            candidate.not_before = now.after(now.since(since).min(BACKOFF_MAX));
        }
    }

    /// Notes that an attempt succeeded after `took`.
    pub(super) fn connected(&mut self, id: u64, took: Duration, now: Instant) {
        (self.unanswered_since, self.took) = (None, Some(took));
        let Some(candidate) = self.find(id) else { return };
        (candidate.tried_at, candidate.fault, candidate.not_before) = (Some(now), None, now);
        candidate.under_way = None;
    }

    /// Notes the end of a connection that was open for `age`.
    pub(super) fn ended(&mut self, id: u64, age: Duration, fault: &str, now: Instant, random: u64) {
        if age < LASTING {
            return self.failed(id, Failure::Refused, fault.to_owned(), now, random);
        }
        if let Some(candidate) = self.find(id) {
            candidate.failures = 0;
        }
    }

    /// Notes that the leader answered through this candidate.
    pub(super) fn answered(&mut self, id: u64) {
        (self.unanswered_since, self.leaves, self.waited_at) = (None, 0, None);
        for candidate in &mut self.list {
            candidate.is_last_good = candidate.id == id;
            (candidate.tried_at, candidate.fault) = (None, None);
            if candidate.id == id {
                candidate.failures = candidate.failures.min(ANSWERED_FAILURES_MAX);
            }
        }
    }

    /// Notes that a request to this candidate, begun at `began`, had no answer of the leader.
    /// Returns whether to leave the server: another may reach the leader, and so may a new
    /// connection.
    pub(super) fn unanswered(&mut self, id: u64, began: Instant, now: Instant) -> bool {
        // During an election no server answers: when all were left, each stays longer.
        let rounds = self.leaves / self.list.len().max(1);
        let limit = match self.has_another(id) {
            true => self.answer_limit * 2u32.saturating_pow(rounds.min(8) as u32),
            false => self.only_limit(),
        };
        now.since(*self.unanswered_since.get_or_insert(began)) >= limit.min(UNANSWERED_MAX)
    }

    /// Returns how long the only server may not answer until it is left and connected to again. A
    /// new connection helps only if something between has lost the old one. If thousands of clients
    /// leave a slow server, the work of all their connections makes it slower.
    pub(super) fn only_limit(&self) -> Duration {
        self.answer_limit * ONLY_LIMITS
    }

    /// Notes that the client leaves this candidate: all others are tried first.
    pub(super) fn left(&mut self, id: u64, now: Instant) {
        self.unanswered_since = None;
        self.leaves += 1;
        if let Some(candidate) = self.find(id) {
            (candidate.is_last_good, candidate.tried_at) = (false, Some(now));
            // The others may be advertised addresses that nobody answers at: it may be back
            // after each wait for one of them.
            candidate.is_quick = true;
        }
    }

    /// Returns whether there is another server or address than this candidate.
    pub(super) fn has_another(&self, id: u64) -> bool {
        let server = self.list.iter().find(|it| it.id == id).map(|it| &it.server);
        let is_other = |it: &Candidate| it.address.is_some() || Some(&it.server) != server;
        self.list.iter().any(|it| it.id != id && is_other(it) && !it.was_in_vain())
    }

    /// Replaces the advertised servers by those in the INFO of `from`. An empty advertisement
    /// changes nothing.
    pub(super) fn learn(&mut self, from: &Server, urls: &[String]) {
        if urls.is_empty() {
            return;
        }
        let found: Vec<_> = urls.iter().filter_map(|url| from.advertised(url)).collect();
        let same = |a: &Server, b: &Server| (&a.host, a.port) == (&b.host, b.port);
        self.list.retain(|it| it.is_configured || found.iter().any(|new| same(new, &it.server)));
        for server in found {
            if self.list.iter().filter(|it| !it.is_configured).count() >= DISCOVERED_MAX {
                break;
            }
            let address: Option<IpAddr> = server.host.parse().ok();
            let is_known = self.list.iter().any(|it| {
                let same_address = address.is_some() && it.address == address;
                same(&it.server, &server) || same_address && it.server.port == server.port
            });
            if !is_known {
                let candidate = self.fresh(server, address, false);
                self.list.push(candidate);
            }
        }
    }

    /// Returns the reasons of the last failures, sorted: name servers change the order of
    /// addresses, and a text that changed with each attempt would be logged each time.
    pub(super) fn faults(&self) -> String {
        let fault = |it: &Candidate| {
            let Candidate { server, address, .. } = it;
            let address = address.filter(|address| address.to_string() != server.host);
            let address = address.map(|address| format!(" ({address})")).unwrap_or_default();
            it.fault().map(|fault| format!("{server}{address}: {fault}"))
        };
        let mut faults: Vec<String> = self.list.iter().filter_map(fault).collect();
        faults.sort();
        let (shown, more) = faults.split_at(faults.len().min(FAULTS_SHOWN_MAX));
        match (shown, more.len()) {
            ([], _) => "no server has answered yet".to_owned(),
            (_, 0) => shown.join("; "),
            (_, more) => format!("{}; and {more} more", shown.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests;
