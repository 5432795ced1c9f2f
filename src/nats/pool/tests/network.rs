//! Servers, a name service and clients in virtual time: round trips, TLS, hashed passwords,
//! addresses that nobody serves, servers that are cut off, name servers that are dead. The same
//! seed gives the same run.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::super::{Candidate, Candidates, Failure, HANDSHAKE_LIMIT, INFO_LIMIT, Next};
use crate::core::Instant;
use crate::nats::auth::{Login, Secret};

/// How long a request waits for its answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// How long a client pauses after all servers were tried in vain.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Up,
    /// Its connections are refused.
    Down,
    /// No packet comes back.
    Dark,
    /// The kernel accepts connections, and nothing else happens.
    Mute,
}

/// A server.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) state: State,
    pub(super) rtt: Duration,
    pub(super) tls: bool,
    /// Time of one processor to check a password.
    pub(super) hashing: Duration,
    pub(super) refuses_login: bool,
    /// Whether a request through it reaches the leader.
    pub(super) has_leader: bool,
    /// The passwords that it checks at the same time: client, attempt, work left.
    pub(super) checks: Vec<(usize, u64, Duration)>,
    pub(super) checked_at: Instant,
}

impl Host {
    pub(super) fn new(rtt_ms: u64) -> Host {
        Host {
            state: State::Up,
            rtt: Duration::from_millis(rtt_ms),
            tls: false,
            hashing: Duration::ZERO,
            refuses_login: false,
            has_leader: true,
            checks: Vec::new(),
            checked_at: at(0),
        }
    }

    /// Shares one processor between all checks; returns those that are done.
    fn check(&mut self, now: Instant) -> Vec<(usize, u64)> {
        let share = now.since(self.checked_at) / u32::try_from(self.checks.len()).unwrap().max(1);
        self.checked_at = now;
        for (.., left) in &mut self.checks {
            *left = left.saturating_sub(share);
        }
        let is_done = |(.., left): &mut (_, _, Duration)| left.is_zero();
        self.checks.extract_if(.., is_done).map(|(client, attempt, _)| (client, attempt)).collect()
    }

    fn next_done(&self) -> Option<Instant> {
        let least = self.checks.iter().map(|(.., left)| *left).min()?;
        let least = least * u32::try_from(self.checks.len()).unwrap();
        Some(self.checked_at.after(least + Duration::from_micros(1)))
    }
}

pub(super) fn at(ms: u64) -> Instant {
    Instant::from_boot(Duration::from_secs(1000) + Duration::from_millis(ms))
}

#[derive(Debug)]
enum Event {
    /// Something may be due.
    Due,
    /// INFO has come.
    Greeted(u64),
    /// The password arrives at the server.
    Check(u64),
    Resolved(u64),
    Connected(u64),
    Failed(u64, Failure),
    Answered(u64),
    /// A request that began then was not answered.
    Unanswered(u64, Instant),
}

/// An attempt, or the connection that has come of it.
struct Attempt {
    number: u64,
    candidate: Candidate,
    began: Instant,
}

impl Attempt {
    /// Returns the address to connect to; `None` for a name to look up.
    fn to(&self) -> Option<SocketAddr> {
        let Candidate { address, server, .. } = &self.candidate;
        address.map(|address| SocketAddr::new(address, server.port))
    }
}

pub(super) struct Client {
    candidates: Candidates,
    /// When the call began that is to connect.
    since: Instant,
    under_way: Vec<Attempt>,
    /// The connection, and since when.
    connection: Option<(Attempt, Instant)>,
    /// Since when it has answers of the leader.
    pub(super) served_at: Option<Instant>,
    /// The handshakes that were begun.
    pub(super) attempts: u64,
}

/// All servers by their addresses, and all clients.
pub(super) struct Network {
    pub(super) now: Instant,
    pub(super) hosts: BTreeMap<SocketAddr, Host>,
    /// The addresses of every name but those of `lookups`.
    pub(super) names: Vec<IpAddr>,
    /// The addresses of some names, and how long their lookup takes.
    pub(super) lookups: BTreeMap<&'static str, (Duration, IpAddr)>,
    pub(super) clients: Vec<Client>,
    /// The events by their instants, with their clients.
    events: BTreeMap<(Instant, u64), (usize, Event)>,
    count: u64,
    random: u64,
}

impl Network {
    /// Returns a network whose clients begin to connect now.
    pub(super) fn new(
        hosts: impl IntoIterator<Item = (&'static str, Host)>,
        clients: impl IntoIterator<Item = Candidates>,
    ) -> Network {
        let hosts: BTreeMap<SocketAddr, Host> =
            hosts.into_iter().map(|(address, host)| (address.parse().unwrap(), host)).collect();
        let has_password = hosts.values().any(|host| !host.hashing.is_zero());
        let client = |mut candidates: Candidates| {
            for candidate in candidates.list.iter_mut().filter(|_| has_password) {
                candidate.server.login = Login::Token(Secret::Given("s3cr3t".to_owned()));
            }
            Client {
                candidates,
                since: at(0),
                under_way: Vec::new(),
                connection: None,
                served_at: None,
                attempts: 0,
            }
        };
        let mut network = Network {
            now: at(0),
            names: hosts.keys().map(SocketAddr::ip).collect(),
            hosts,
            lookups: BTreeMap::new(),
            clients: clients.into_iter().map(client).collect(),
            events: BTreeMap::new(),
            count: 0,
            random: 1,
        };
        (0..network.clients.len()).for_each(|client| network.schedule(at(0), client, Event::Due));
        network
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random >> 24
    }

    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn schedule(&mut self, at: Instant, client: usize, event: Event) {
        let number = self.number();
        self.events.insert((at.max(self.now), number), (client, event));
    }

    /// Lets time pass.
    pub(super) fn run_until(&mut self, end: Instant) {
        loop {
            let check = self.hosts.iter().filter_map(|(to, host)| Some((host.next_done()?, *to)));
            let check = check.min();
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = check.map(|(at, _)| at).into_iter().chain(event).min() else { break };
            if next > end {
                break;
            }
            self.now = next;
            if let Some((_, to)) = check.filter(|(at, _)| *at == next) {
                self.finish_checks(to);
            } else if let Some((_, (client, event))) = self.events.pop_first() {
                self.handle(client, event);
            }
        }
        self.now = end;
    }

    /// Lets time pass until all clients are served, or `end`. Returns when that was.
    pub(super) fn all_served_by(&mut self, end: Instant) -> Option<Duration> {
        let began = self.now;
        while self.served() < self.clients.len() {
            if self.now >= end {
                return None;
            }
            self.run_until(self.now.after(Duration::from_millis(10)));
        }
        Some(self.now.since(began))
    }

    pub(super) fn served(&self) -> usize {
        self.clients.iter().filter(|client| client.served_at.is_some()).count()
    }

    /// Ends all connections to a server, which changes its state.
    pub(super) fn strike(&mut self, address: &str, state: State) {
        let address: SocketAddr = address.parse().unwrap();
        let host = self.hosts.get_mut(&address).unwrap();
        host.state = state;
        host.checks.clear();
        for client in 0..self.clients.len() {
            let (now, random) = (self.now, self.random());
            let it = &mut self.clients[client];
            let is_struck = |(link, _): &mut (Attempt, Instant)| link.to() == Some(address);
            if let Some((link, since)) = it.connection.take_if(is_struck) {
                it.candidates.ended(link.candidate.id, now.since(since), "ended", now, random);
                self.lost(client);
            }
        }
    }

    /// A client has no connection any more, and connects.
    fn lost(&mut self, client: usize) {
        let it = &mut self.clients[client];
        (it.connection, it.served_at, it.since) = (None, None, self.now);
        self.schedule(self.now, client, Event::Due);
    }

    fn finish_checks(&mut self, address: SocketAddr) {
        let host = self.hosts.get_mut(&address).unwrap();
        let (rtt, done) = (host.rtt, host.check(self.now));
        for (client, attempt) in done {
            self.schedule(self.now.after(rtt / 2), client, Event::Connected(attempt));
        }
    }

    /// Removes an attempt that has ended, and returns it.
    fn end(&mut self, client: usize, number: u64) -> Option<Attempt> {
        let under_way = &mut self.clients[client].under_way;
        let at = under_way.iter().position(|attempt| attempt.number == number)?;
        Some(under_way.swap_remove(at))
    }

    fn handle(&mut self, client: usize, event: Event) {
        let (now, random) = (self.now, self.random());
        match event {
            Event::Due => return self.act(client),
            Event::Greeted(number) => {
                let it = &mut self.clients[client];
                if let Some(attempt) = it.under_way.iter().find(|it| it.number == number) {
                    it.candidates.greeted(attempt.candidate.id);
                }
            }
            Event::Check(number) => {
                let it = &self.clients[client];
                let Some(attempt) = it.under_way.iter().find(|it| it.number == number) else {
                    return;
                };
                let host = self.hosts.get_mut(&attempt.to().unwrap()).unwrap();
                assert!(host.check(now).is_empty(), "finished before");
                host.checks.push((client, number, host.hashing));
            }
            Event::Resolved(number) => {
                let Some(attempt) = self.end(client, number) else { return };
                let name = &*attempt.candidate.server.host;
                let addresses = match self.lookups.get(name) {
                    Some((_, address)) => vec![*address],
                    None => self.names.clone(),
                };
                self.clients[client].candidates.resolved(attempt.candidate.id, &addresses, now);
            }
            Event::Connected(number) => {
                let Some(attempt) = self.end(client, number) else { return };
                let it = &mut self.clients[client];
                let took = now.since(attempt.began);
                it.candidates.connected(attempt.candidate.id, took, now);
                let handshake = |it: &mut Attempt| it.candidate.address.is_some();
                for other in it.under_way.extract_if(.., handshake) {
                    it.candidates.gave_up(other.candidate.id, now);
                }
                it.connection = Some((attempt, now));
                return self.request(client);
            }
            Event::Failed(number, failure) => {
                let Some(attempt) = self.end(client, number) else { return };
                let candidates = &mut self.clients[client].candidates;
                candidates.failed(attempt.candidate.id, failure, "failed".to_owned(), now, random);
            }
            Event::Answered(number) => {
                let it = &mut self.clients[client];
                if let Some((link, _)) = it.connection.as_ref().filter(|it| it.0.number == number) {
                    it.candidates.answered(link.candidate.id);
                    it.served_at = Some(now);
                }
                return;
            }
            Event::Unanswered(number, began) => {
                let it = &mut self.clients[client];
                let Some((link, _)) = it.connection.as_ref().filter(|it| it.0.number == number)
                else {
                    return;
                };
                let id = link.candidate.id;
                if !it.candidates.unanswered(id, began, now) {
                    return self.request(client);
                }
                it.candidates.left(id, now);
                return self.lost(client);
            }
        }
        self.act(client);
    }

    /// Does what the pool says.
    fn act(&mut self, client: usize) {
        loop {
            let it = &mut self.clients[client];
            if it.connection.is_some() {
                return;
            }
            let at = match it.candidates.next(it.since, self.now) {
                Next::Begin(candidate) => {
                    self.begin(client, *candidate);
                    continue;
                }
                Next::Wait(None) => return,
                Next::Wait(Some(at)) => at,
                Next::Over => {
                    it.since = self.now.after(PAUSE);
                    it.since
                }
            };
            return self.schedule(at, client, Event::Due);
        }
    }

    fn request(&mut self, client: usize) {
        let (link, _) = self.clients[client].connection.as_ref().unwrap();
        let (number, host) = (link.number, &self.hosts[&link.to().unwrap()]);
        match host.has_leader {
            true => self.schedule(self.now.after(host.rtt), client, Event::Answered(number)),
            false => {
                let unanswered = Event::Unanswered(number, self.now);
                self.schedule(self.now.after(ANSWER_MAX), client, unanswered);
            }
        }
    }

    /// Begins an attempt, and schedules its end.
    fn begin(&mut self, client: usize, candidate: Candidate) {
        let (began, number) = (self.now, self.number());
        let attempt = Attempt { number, candidate, began };
        let to = attempt.to();
        let name = attempt.candidate.server.host.clone();
        self.clients[client].under_way.push(attempt);
        let Some(address) = to else {
            let takes = self.lookups.get(&*name).map_or(Duration::ZERO, |(takes, _)| *takes);
            return self.schedule(began.after(takes), client, Event::Resolved(number));
        };
        self.clients[client].attempts += 1;
        let (info_by, by) = (began.after(INFO_LIMIT), began.after(HANDSHAKE_LIMIT));
        let host = self.hosts.get(&address).filter(|host| host.state != State::Dark).cloned();
        let Some(host) = host else {
            return self.schedule(info_by, client, Event::Failed(number, Failure::Silent));
        };
        let info_at = began.after(2 * host.rtt);
        let connect_at = info_at.after(if host.tls { host.rtt } else { Duration::ZERO });
        let pong_at = connect_at.after(host.rtt);
        if host.state == State::Up && info_at < info_by {
            self.schedule(info_at, client, Event::Greeted(number));
        }
        let (end, event) = match host.state {
            State::Down if began.after(host.rtt) < info_by => {
                (began.after(host.rtt), Event::Failed(number, Failure::Unreached))
            }
            State::Up if info_at < info_by && host.refuses_login && pong_at < by => {
                (pong_at, Event::Failed(number, Failure::Refused))
            }
            State::Up if info_at < info_by && !host.hashing.is_zero() => {
                self.schedule(by, client, Event::Failed(number, Failure::Slow));
                (connect_at.after(host.rtt / 2), Event::Check(number))
            }
            State::Up if info_at < info_by && pong_at < by => (pong_at, Event::Connected(number)),
            State::Up if info_at < info_by => (by, Event::Failed(number, Failure::Slow)),
            State::Up | State::Down | State::Dark | State::Mute => {
                (info_by, Event::Failed(number, Failure::Silent))
            }
        };
        self.schedule(end, client, event);
    }
}
