//! Servers and clients in virtual time: round trips, TLS, hashed passwords, addresses that
//! nobody serves, servers that are cut off. The same seed gives the same run.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::super::{Candidate, Candidates, Failure};
use crate::core::Instant;

/// How long a request waits for its answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);

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

/// Returns the address to connect to; `None` for a name to look up.
fn socket_of(plan: &Candidate) -> Option<SocketAddr> {
    plan.address.map(|address| SocketAddr::new(address, plan.server.port))
}

pub(super) fn at(ms: u64) -> Instant {
    Instant::from_boot(Duration::from_secs(1000) + Duration::from_millis(ms))
}

#[derive(Debug)]
enum Event {
    /// An attempt begins.
    Begin,
    /// The password arrives at the server.
    Check(Instant),
    Connected,
    Failed(Failure),
    Answered,
    /// A request that began then was not answered.
    Unanswered(Instant),
}

pub(super) struct Client {
    candidates: Candidates,
    /// The candidate of the attempt under way, or of the last one.
    plan: Option<Candidate>,
    /// When that attempt began.
    began: Instant,
    /// Number of the attempt: events of earlier ones are dropped.
    attempt: u64,
    connected_at: Option<Instant>,
    /// Since when it has answers of the leader.
    pub(super) served_at: Option<Instant>,
    pub(super) attempts: u64,
}

/// All servers by their addresses, and all clients.
pub(super) struct Network {
    pub(super) now: Instant,
    pub(super) hosts: BTreeMap<SocketAddr, Host>,
    pub(super) names: Vec<IpAddr>,
    pub(super) clients: Vec<Client>,
    /// The events by their instants: client, attempt, event.
    events: BTreeMap<(Instant, u64), (usize, u64, Event)>,
    count: u64,
    random: u64,
}

impl Network {
    /// Returns a network whose clients begin to connect now.
    pub(super) fn new(
        hosts: impl IntoIterator<Item = (&'static str, Host)>,
        clients: impl IntoIterator<Item = Candidates>,
    ) -> Network {
        let client = |candidates| Client {
            candidates,
            plan: None,
            began: at(0),
            attempt: 0,
            connected_at: None,
            served_at: None,
            attempts: 0,
        };
        let hosts = hosts.into_iter().map(|(address, host)| (address.parse().unwrap(), host));
        let mut network = Network {
            now: at(0),
            hosts: hosts.collect(),
            names: Vec::new(),
            clients: clients.into_iter().map(client).collect(),
            events: BTreeMap::new(),
            count: 0,
            random: 1,
        };
        network.names = network.hosts.keys().map(SocketAddr::ip).collect();
        for client in 0..network.clients.len() {
            network.plan(client);
        }
        network
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random >> 24
    }

    fn schedule(&mut self, at: Instant, client: usize, event: Event) {
        self.count += 1;
        let attempt = self.clients[client].attempt;
        self.events.insert((at.max(self.now), self.count), (client, attempt, event));
    }

    fn plan(&mut self, client: usize) {
        let it = &mut self.clients[client];
        (it.connected_at, it.served_at, it.attempt) = (None, None, it.attempt + 1);
        let plan = it.candidates.next(self.now).expect("servers");
        let begin = plan.not_before;
        it.plan = Some(plan);
        self.schedule(begin, client, Event::Begin);
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
            } else if let Some((_, (client, attempt, event))) = self.events.pop_first()
                && self.clients[client].attempt == attempt
            {
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
            self.run_until(self.now.after(Duration::from_millis(50)));
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
            let random = self.random();
            let it = &mut self.clients[client];
            let plan = it.plan.as_ref().unwrap();
            if let Some(since) = it.connected_at.take_if(|_| socket_of(plan) == Some(address)) {
                it.candidates.ended(plan.id, self.now.since(since), "ended", self.now, random);
                self.plan(client);
            }
        }
    }

    fn finish_checks(&mut self, address: SocketAddr) {
        let host = self.hosts.get_mut(&address).unwrap();
        let (rtt, done) = (host.rtt, host.check(self.now));
        for (client, attempt) in done {
            if self.clients[client].attempt == attempt {
                self.schedule(self.now.after(rtt / 2), client, Event::Connected);
            }
        }
    }

    fn handle(&mut self, client: usize, event: Event) {
        let (now, random) = (self.now, self.random());
        let it = &mut self.clients[client];
        let plan = it.plan.as_ref().unwrap();
        match event {
            Event::Begin => {
                it.attempts += 1;
                self.begin(client);
            }
            Event::Check(began) => {
                let host = self.hosts.get_mut(&socket_of(plan).unwrap()).unwrap();
                let done = host.check(now);
                assert!(done.is_empty(), "finished before");
                host.checks.push((client, it.attempt, host.hashing));
                let by = began.after(plan.within());
                self.schedule(by, client, Event::Failed(Failure::Slow));
            }
            Event::Connected => {
                it.candidates.connected(plan.id, now.since(it.began), now);
                (it.connected_at, it.attempt) = (Some(now), it.attempt + 1);
                self.request(client);
            }
            Event::Failed(failure) => {
                it.candidates.failed(plan.id, failure, "failed".to_owned(), now, random);
                self.plan(client);
            }
            Event::Answered => {
                it.candidates.answered(plan.id);
                it.served_at = Some(now);
            }
            Event::Unanswered(began) => match it.candidates.unanswered(plan.id, began, now) {
                true => {
                    it.candidates.left(plan.id, now);
                    self.plan(client);
                }
                false => self.request(client),
            },
        }
    }

    fn request(&mut self, client: usize) {
        let address = self.clients[client].plan.as_ref().and_then(socket_of).unwrap();
        let host = &self.hosts[&address];
        match host.has_leader {
            true => self.schedule(self.now.after(host.rtt), client, Event::Answered),
            false => {
                let unanswered = Event::Unanswered(self.now);
                self.schedule(self.now.after(ANSWER_MAX), client, unanswered);
            }
        }
    }

    /// Schedules the end of an attempt.
    fn begin(&mut self, client: usize) {
        let began = self.now;
        let it = &mut self.clients[client];
        it.began = began;
        let plan = it.plan.as_ref().unwrap();
        let (info_by, by) = (began.after(plan.info_within()), began.after(plan.within()));
        let Some(address) = socket_of(plan) else {
            it.candidates.resolved(plan.id, &self.names, began);
            return self.plan(client);
        };
        let host = self.hosts.get(&address).filter(|host| host.state != State::Dark);
        let Some(host) = host else {
            return self.schedule(info_by, client, Event::Failed(Failure::Silent));
        };
        let rtt = host.rtt;
        let info_at = began.after(2 * rtt);
        let connect_at = info_at.after(if host.tls { rtt } else { Duration::ZERO });
        let pong_at = connect_at.after(rtt);
        let (end, event) = match host.state {
            State::Down if began.after(rtt) < info_by => {
                (began.after(rtt), Event::Failed(Failure::Unreached))
            }
            State::Up if info_at < info_by && host.refuses_login && pong_at < by => {
                (pong_at, Event::Failed(Failure::Refused))
            }
            State::Up if info_at < info_by && !host.hashing.is_zero() => {
                (connect_at.after(rtt / 2), Event::Check(began))
            }
            State::Up if info_at < info_by && pong_at < by => (pong_at, Event::Connected),
            State::Up if info_at < info_by => (by, Event::Failed(Failure::Slow)),
            State::Up | State::Down | State::Dark | State::Mute => {
                (info_by, Event::Failed(Failure::Silent))
            }
        };
        self.schedule(end, client, event);
    }
}
