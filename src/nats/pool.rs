//! The order of the servers and their addresses, the time for each attempt, and the pauses
//! between them. Pure: every event carries its instant, and every pause its random number.
//!
//! 1. Each address of a name is a candidate, and so is the lookup of the name: an address that
//!    is of no use does not hide the others.
//! 2. Of the candidates that are due, the one that was tried longest ago is next. At first that
//!    is the last one that answered as the leader, then come the configured ones, then the
//!    advertised ones, at last those of them that were tried in vain before. One that refuses
//!    connections, or that was left, has another turn after each wait for a silent one.
//! 3. The limit of an attempt belongs to its candidate, and doubles when it was too short. So
//!    the number of servers takes no time from an attempt, and a slow link connects.
//! 4. A server that has sent INFO has longer to answer CONNECT, and a long pause if it does not.
//!    So one that hashes the passwords of a herd of clients can finish.
//! 5. A handshake that takes much longer than the last one goes on, and another candidate is
//!    tried beside it. So a server that hangs after INFO costs no lock.
//! 6. Only an answer of the stream's leader counts as an answer. So a server that is cut off
//!    from its cluster is left.

use std::net::IpAddr;
use std::time::Duration;

use super::url::Server;
use crate::core::Instant;

/// Longest time for the first attempt to reach a server. A caller with short intervals gives
/// less: it has to try the next server sooner.
const FIRST_LIMIT_MAX: Duration = Duration::from_secs(2);

/// Shortest time for the first attempt, however short the intervals of the caller are.
const FIRST_LIMIT_MIN: Duration = Duration::from_millis(250);

/// Longest time until INFO: a round trip around the world takes 0.3 s, INFO needs two of
/// them, and a lost packet is sent again after 1 s.
const INFO_LIMIT_MAX: Duration = Duration::from_secs(2);

/// The whole handshake has as many times the limit: a server that hashes passwords makes a
/// herd of clients wait, and goes on with the password of a client that has given up.
const HANDSHAKE_LIMITS: u32 = 8;

/// A server that hashes passwords takes longer for each. The tools of NATS choose 0.1 s.
const HASHING_MIN: Duration = Duration::from_millis(20);

/// Largest limit.
const LIMIT_MAX: Duration = Duration::from_secs(4);

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

/// How many first limits the only server has to answer.
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
    pub(super) not_before: Instant,
    limit: Duration,
    /// The failures since it last connected for longer than [`LASTING`].
    failures: u32,
    /// The reason of its last failure.
    fault: Option<String>,
}

impl Candidate {
    /// Returns the limit of the lookup, or until INFO.
    pub(super) fn info_within(&self) -> Duration {
        self.limit.min(INFO_LIMIT_MAX)
    }

    /// Returns whether it is an advertised one that was tried in vain: it may never be reachable.
    fn was_in_vain(&self) -> bool {
        !self.is_configured && self.failures > 0
    }

    /// Returns the limit of the whole handshake.
    pub(super) fn within(&self) -> Duration {
        self.limit * HANDSHAKE_LIMITS
    }
}

/// All candidates: the configured ones, then the advertised ones, each name before its
/// addresses.
pub(super) struct Candidates {
    list: Vec<Candidate>,
    last_id: u64,
    first_limit: Duration,
    /// How long the last successful attempt took.
    took: Duration,
    /// The end of the last attempt that took its whole limit.
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
        let first_limit = interval.clamp(FIRST_LIMIT_MIN, FIRST_LIMIT_MAX);
        let mut candidates = Candidates {
            list: Vec::new(),
            last_id: 0,
            first_limit,
            took: first_limit / HANDSHAKE_LIMITS,
            waited_at: None,
            unanswered_since: None,
            leaves: 0,
        };
        for server in servers {
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
            limit: self.first_limit,
            failures: 0,
            fault: None,
        }
    }

    /// Returns the candidate to try next, `None` if there are no servers.
    pub(super) fn next(&self, now: Instant) -> Option<Candidate> {
        // One that refuses connections may be back after each wait for another one.
        let is_next_quick = |it: &Candidate| it.is_quick && it.tried_at < self.waited_at;
        let order = |it: &&Candidate| {
            let is_last = (it.was_in_vain(), !it.is_last_good);
            (it.not_before.max(now), !is_next_quick(it), it.tried_at, is_last)
        };
        self.list.iter().min_by_key(order).cloned()
    }

    fn find(&mut self, id: u64) -> Option<&mut Candidate> {
        self.list.iter_mut().find(|candidate| candidate.id == id)
    }

    /// Replaces the addresses of a name by those that were found. Known addresses keep their
    /// limits and pauses.
    pub(super) fn resolved(&mut self, id: u64, addresses: &[IpAddr], now: Instant) {
        let Some(at) = self.list.iter().position(|candidate| candidate.id == id) else { return };
        let name = &mut self.list[at];
        (name.tried_at, name.not_before) = (Some(now), now.after(LOOKUP_AGE));
        (name.failures, name.fault) = (0, None);
        let (server, is_configured) = (name.server.clone(), name.is_configured);
        let of_name = |it: &mut Candidate| it.address.is_some() && it.server == server;
        let mut known: Vec<_> = self.list.extract_if(.., of_name).collect();
        for address in addresses.iter().rev() {
            let old = known.iter().position(|candidate| candidate.address == Some(*address));
            let candidate = match old {
                Some(old) => known.swap_remove(old),
                None => self.fresh(server.clone(), Some(*address), is_configured),
            };
            self.list.insert(at + 1, candidate);
        }
    }

    /// Returns after how long another candidate is tried beside the handshake with this one. A
    /// second handshake would double the work of servers that hash passwords.
    pub(super) fn beside_after(&self, candidate: &Candidate, has_password: bool) -> Duration {
        let may_hash = has_password && self.took >= HASHING_MIN;
        match self.has_another(candidate.id) && !may_hash {
            true => (self.took * HANDSHAKE_LIMITS).max(self.first_limit / 2),
            false => candidate.within(),
        }
    }

    /// Notes that the handshake with this candidate goes on until `by` at the latest.
    pub(super) fn goes_on(&mut self, id: u64, by: Instant) {
        if let Some(candidate) = self.find(id) {
            candidate.not_before = by;
        }
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
        let has_waited = matches!(failure, Failure::Silent | Failure::Slow);
        if has_waited {
            self.waited_at = Some(now);
        }
        let Some(candidate) = self.find(id) else { return };
        let doubled = BACKOFF_MIN * 2u32.saturating_pow(candidate.failures.min(16));
        let pause_max = match failure {
            Failure::Unreached | Failure::Silent if candidate.is_configured => {
                doubled.min(BACKOFF_UNREACHED_MAX)
            }
            Failure::Unreached | Failure::Silent | Failure::Refused => doubled.min(BACKOFF_MAX),
            // The server may go on with its work for as long as the client waited.
            Failure::Slow => candidate.within().min(BACKOFF_MAX),
        };
        candidate.failures += 1;
        candidate.fault = Some(fault);
        candidate.tried_at = Some(now);
        candidate.is_quick = matches!(failure, Failure::Unreached);
        let pause = u64::try_from(pause_max.as_micros()).unwrap_or(u64::MAX);
        candidate.not_before = now.after(Duration::from_micros(random % (pause + 1)));
        if has_waited {
            candidate.limit = (candidate.limit * 2).min(LIMIT_MAX);
        }
    }

    /// Notes that an attempt succeeded after `took`.
    pub(super) fn connected(&mut self, id: u64, took: Duration, now: Instant) {
        let first = self.first_limit;
        (self.unanswered_since, self.took) = (None, took);
        let Some(candidate) = self.find(id) else { return };
        candidate.limit = took.clamp(first, candidate.limit);
        (candidate.tried_at, candidate.fault, candidate.not_before) = (Some(now), None, now);
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
            // One that could not be reached must not take longer at the next loss.
            if candidate.failures > 0 && candidate.id != id {
                candidate.limit = self.first_limit;
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
            true => self.first_limit * 2u32.saturating_pow(rounds.min(8) as u32),
            false => self.only_limit(),
        };
        now.since(*self.unanswered_since.get_or_insert(began)) >= limit.min(UNANSWERED_MAX)
    }

    /// Returns how long the only server may not answer until it is left and connected to again. A
    /// new connection helps only if something between has lost the old one. If thousands of clients
    /// leave a slow server, the work of all their connections makes it slower.
    pub(super) fn only_limit(&self) -> Duration {
        self.first_limit * ONLY_LIMITS
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

    /// Returns whether all candidates are among these.
    pub(super) fn are_all(&self, ids: &[u64]) -> bool {
        self.list.iter().all(|candidate| ids.contains(&candidate.id))
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
            it.fault.as_ref().map(|fault| format!("{server}{address}: {fault}"))
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
