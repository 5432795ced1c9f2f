//! The store thread of an agent and its connection, and what becomes of a request on its way.
//!
//! Whether a request is lost, late, or answered with less than the truth is drawn
//! when it is sent or when it arrives. A late one is applied when it arrives, also
//! after its sender gave up on it, and now and then after the connection has ended:
//! what a server has read it may still perform.

use std::collections::VecDeque;
use std::time::Duration;

use putex::core::event::{BucketInfo, Event, Opened, PauseEntry, StoreErrorKind, Written};
use putex::core::record::{KeyState, Record, Revision};
use putex::core::seat::Seat;
use putex::core::time::Instant;

use super::agent::{AgentEvent, LockRequest};
use super::clock::{True, nanos};
use super::counters::Sometimes;
use super::faults::Kind;
use super::scenario::{SEATS, Step};
use super::store;
use super::world::{Happening, World};

/// A request of the pump to the store thread, and its generation.
#[derive(Debug)]
pub struct StoreRequest {
    pub operation: Operation,
    pub generation: u64,
}

#[derive(Debug)]
pub enum Operation {
    Read { seat: Seat, deadline: Instant },
    Write { seat: Seat, expected: u64, record: Record, deadline: Instant },
    ReadPause,
    RequestLock(LockRequest),
}

/// A request on its way to the store.
#[derive(Debug)]
pub struct Request {
    agent: usize,
    link: u64,
    number: u64,
    what: What,
    sent: True,
    /// The request is performed even when the connection has ended.
    outlives: bool,
}

#[derive(Debug)]
// Writes are half of all.
#[allow(clippy::large_enum_variant)]
pub enum What {
    Open,
    Read(Seat),
    Write(Seat, u64, Record),
    Pause,
}

/// An answer of the store.
#[derive(Debug)]
pub enum Reply {
    Opened(Opened),
    Rejected,
    Read(KeyState),
    Written(Written),
    Pause(PauseEntry),
    /// The bucket does not exist.
    NoBucket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    Open,
    Read(Seat),
    Write(Seat),
    Pause,
}

/// The store thread's end.
#[derive(Default)]
pub struct Link {
    pub open: bool,
    /// Which connection this is.
    pub link: u64,
    generation: u64,
    pump_generation: u64,
    pub waiting: Option<(u64, Waiting)>,
    queue: VecDeque<StoreRequest>,
    requests: u64,
    reported: Option<&'static str>,
    unanswered: Option<True>,
    /// Of each seat.
    pub seen: [u64; SEATS],
    pub hinted: [u64; SEATS],
}

impl Link {
    /// The pump is about to learn that the store is open.
    pub fn pump_knows(&mut self) {
        self.pump_generation += 1;
    }

    pub fn pump_generation(&self) -> u64 {
        self.pump_generation
    }

    pub fn is_open(&self) -> bool {
        self.open
    }

    pub fn number(&self) -> u64 {
        self.link
    }
}

impl World<'_> {
    pub fn open(&mut self, id: usize) {
        let link = &mut self.agents[id].link;
        if link.open || link.waiting.is_some() {
            return;
        }
        link.link += 1;
        let within = Duration::from_nanos(self.sc.open_within);
        let deadline = self.clock(self.agents[id].site).after(within);
        self.request(id, Waiting::Open, What::Open, deadline);
    }

    pub fn submit(&mut self, id: usize, request: StoreRequest) {
        let link = &mut self.agents[id].link;
        if !link.open || link.waiting.is_some() {
            return link.queue.push_back(request);
        }
        // The pump forgot what it asked when the store was closed.
        if request.generation != link.generation {
            return;
        }
        match request.operation {
            Operation::Read { seat, deadline } => {
                self.request(id, Waiting::Read(seat), What::Read(seat), deadline);
            }
            Operation::Write { seat, expected, record, deadline } => {
                let what = What::Write(seat, expected, record);
                self.request(id, Waiting::Write(seat), what, deadline);
            }
            Operation::ReadPause => {
                let site = self.agents[id].site;
                let deadline = self.clock(site).after(self.sites[site].timing.attempt());
                self.request(id, Waiting::Pause, What::Pause, deadline);
            }
            // In the end no lock goes back any more.
            Operation::RequestLock(_) if self.quiet => {}
            Operation::RequestLock(request) => {
                self.tell_others(id, || AgentEvent::LockRequested(request));
            }
        }
    }

    /// Returns how long a message is under way.
    pub fn travel(&mut self) -> u64 {
        let hop = self.sc.hop;
        hop / 2 + self.chance.below(hop)
    }

    pub fn request(&mut self, id: usize, waiting: Waiting, what: What, deadline: Instant) {
        let site = self.agents[id].site;
        let link = &mut self.agents[id].link;
        link.requests += 1;
        let number = link.requests;
        link.waiting = Some((number, waiting));
        let link = link.link;
        let over = self.wake(site, deadline);
        self.at(over, Happening::Agent(id, AgentEvent::AskOver(number)));
        let mut wait = self.travel();
        let t = nanos(self.sites[site].timing.lock_time());
        if self.strikes(Kind::SlowNet) {
            wait += self.rng(Kind::SlowNet).below(t / 2);
        }
        let mut outlives = false;
        if matches!(waiting, Waiting::Write(_)) && self.strikes(Kind::LateRequest) {
            let rng = self.rng(Kind::LateRequest);
            outlives = rng.chance(300);
            wait += rng.below(3 * t);
            self.count(Sometimes::LateRequest);
        }
        let lost = self.sites[site].cut_out > 0 || self.strikes(Kind::LostRequest);
        if !lost {
            let request = Request { agent: id, link, number, what, sent: self.now, outlives };
            self.after(wait, Happening::Arrive(Box::new(request)));
        }
    }

    /// A request reaches the store.
    pub fn arrive(&mut self, request: Request) {
        let Request { agent, link, number, what, sent, outlives } = request;
        let site = self.agents[agent].site;
        let current = self.agents[agent].link.link == link && self.agents[agent].alive;
        if self.server_down > 0 || !(current || outlives) {
            return;
        }
        let reply = match what {
            What::Open if self.sites[site].rejected > 0 => Reply::Rejected,
            What::Open => Reply::Opened(self.opened(site)),
            What::Read(_) | What::Write(..) | What::Pause if self.store.gone => Reply::NoBucket,
            What::Pause => Reply::Pause(self.pause_if_any(site)),
            What::Read(seat) => Reply::Read(self.read(seat, Kind::StaleRead)),
            What::Write(seat, expected, record) => {
                Reply::Written(self.write(agent, (seat, expected), record, sent))
            }
        };
        if self.sites[site].cut_in > 0 || self.strikes(Kind::LostReply) {
            return;
        }
        let mut wait = self.travel();
        if self.strikes(Kind::SlowNet) {
            let r = nanos(self.sites[site].timing.renewal());
            wait += self.rng(Kind::SlowNet).below(r);
        }
        let event = AgentEvent::Reply(number, Box::new(reply));
        self.after(wait, Happening::Agent(agent, event));
    }

    fn opened(&mut self, site: usize) -> Opened {
        if self.store.gone {
            self.store.make(self.now);
            self.note(None, || "the bucket is made anew".to_owned());
        }
        let mut key_states = Vec::new();
        let mut stale = false;
        for seat in Seat::all(self.sites[site].seats) {
            let key_state = self.read(seat, Kind::StaleOpen);
            stale |= key_state.revision != self.store.current(seat).revision;
            key_states.push(key_state);
        }
        let seen = key_states.iter().map(|it| it.revision).max().unwrap_or(Revision(0));
        let last = if stale { seen } else { Revision(self.store.last) };
        let age = match self.store.kind {
            store::Kind::Nats => None,
            // A key that was removed looks like one that never existed.
            store::Kind::Dir if self.store.last > 1 => None,
            store::Kind::Dir => {
                let clock = self.host(site).clock;
                let age = clock.at(self.now).since(clock.at(self.store.born));
                Some(age + Duration::from_nanos(self.store.older))
            }
        };
        let (id, last) = (self.store.id(), last.max(seen));
        let bucket = BucketInfo {
            id,
            last,
            age,
            may_be_lost: self.store.kind == store::Kind::Nats,
            replicas: 1,
            remarks: Vec::new(),
            retires: Ok(()),
        };
        Opened { bucket, key_states, pause: self.pause_if_any(site) }
    }

    fn pause_if_any(&mut self, site: usize) -> PauseEntry {
        match self.sc.kinds.has(Kind::Pause) && !self.quiet {
            true => self.pause_entry(site),
            false => PauseEntry::default(),
        }
    }

    fn read(&mut self, seat: Seat, stale: Kind) -> KeyState {
        if self.store.kind == store::Kind::Nats && self.strikes(stale) {
            let t = nanos(self.sc.sites[0].timing.lock_time());
            let lag = self.rng(stale).below(2 * t);
            let at = self.now.saturating_sub(lag);
            return self.store.as_of(seat, at);
        }
        self.store.current(seat)
    }

    fn write(
        &mut self,
        agent: usize,
        (seat, expected): (Seat, u64),
        record: Record,
        sent: True,
    ) -> Written {
        let denied = self.strikes(Kind::Denied);
        if denied && self.rng(Kind::Denied).chance(700) {
            return Written::Denied(StoreErrorKind::Unreachable.error("full"));
        }
        let busy = self.strikes(Kind::Busy);
        if busy && self.rng(Kind::Busy).chance(500) {
            return Written::Unknown("busy".to_owned());
        }
        let (replaced, stood_since) = (self.store.current(seat), self.store.written_at(seat));
        let written = self.store.write(seat, expected, record, self.now);
        if let Ok(revision) = written {
            self.on_replaced(agent, &replaced, stood_since, sent);
            self.on_stored(agent, seat, revision, sent);
            self.step(Step::Applied, self.agents[agent].site);
            self.hint_all(seat, revision);
        }
        match written {
            // The refusal is of another write, or a server that is replaced has sent it.
            _ if denied => Written::Denied(StoreErrorKind::Unreachable.error("not by this leader")),
            _ if busy => Written::Unknown("busy".to_owned()),
            Ok(revision) => Written::Stored(Revision(revision)),
            Err(stands) => {
                let named = self.chance.chance(700);
                Written::Moved(named.then_some(Revision(stands)))
            }
        }
    }

    /// A message that nothing stores.
    fn tell_others(&mut self, id: usize, message: impl Fn() -> AgentEvent) {
        for agent in 0..self.agents.len() {
            let other = &self.agents[agent];
            if agent == id || !other.alive || !other.link.open {
                continue;
            }
            let wait = self.travel();
            self.after(wait, Happening::Agent(agent, message()));
        }
    }

    pub fn reply(&mut self, id: usize, number: u64, reply: Reply) {
        let link = &mut self.agents[id].link;
        let Some((_, waiting)) = link.waiting.filter(|(asked, _)| *asked == number) else {
            return;
        };
        link.waiting = None;
        link.unanswered = None;
        match reply {
            Reply::Opened(opened) => {
                link.open = true;
                link.generation += 1;
                link.reported = None;
                for (seen, key_state) in link.seen.iter_mut().zip(&opened.key_states) {
                    *seen = key_state.revision.0;
                }
                link.hinted = Default::default();
                self.tell(id, Event::Opened(opened));
            }
            Reply::Rejected => {
                let error = StoreErrorKind::Credentials.error("1");
                return self.not_opened(id, "rejected", Event::Rejected(error));
            }
            Reply::Read(key_state) => {
                if let Waiting::Read(seat) = waiting {
                    link.seen[seat.index()] = key_state.revision.0;
                }
                self.tell(id, Event::Read(Ok(key_state)));
            }
            Reply::Written(written) => {
                if let (Written::Stored(revision), Waiting::Write(seat)) = (&written, waiting) {
                    link.seen[seat.index()] = revision.0;
                }
                self.tell(id, Event::Written(written));
            }
            Reply::Pause(entry) => self.tell(id, Event::PauseRead(entry)),
            Reply::NoBucket => {
                self.unanswered(id, waiting, "no bucket");
                return self.close(id, "no bucket");
            }
        }
        self.next_ask(id);
    }

    fn unanswered(&mut self, id: usize, waiting: Waiting, why: &str) {
        let why = why.to_owned();
        match waiting {
            Waiting::Open => {}
            Waiting::Read(_) => self.tell(id, Event::Read(Err(why))),
            Waiting::Write(_) => self.tell(id, Event::Written(Written::Unknown(why))),
            // The pump requests it again.
            Waiting::Pause => {}
        }
    }

    pub fn ask_over(&mut self, id: usize, number: u64) {
        let now = self.now;
        let link = &mut self.agents[id].link;
        let Some((_, waiting)) = link.waiting.filter(|(asked, _)| *asked == number) else {
            return;
        };
        link.waiting = None;
        if waiting == Waiting::Open {
            return self.not_opened(id, "timed out", Event::Closed("timed out".to_owned()));
        }
        let since = *link.unanswered.get_or_insert(now);
        self.unanswered(id, waiting, "timed out");
        if now - since >= self.sc.open_within {
            return self.close(id, "nothing was answered");
        }
        self.next_ask(id);
    }

    /// An attempt to open failed; each new reason is told once.
    fn not_opened(&mut self, id: usize, why: &'static str, event: Event) {
        let link = &mut self.agents[id].link;
        if link.reported != Some(why) {
            link.reported = Some(why);
            self.tell(id, event);
        }
        self.rest(id);
    }

    fn rest(&mut self, id: usize) {
        let pause = self.sc.reopen + self.late();
        self.after(pause, Happening::Agent(id, AgentEvent::OpenAgain));
    }

    /// The connection, if it is still that one, has ended.
    pub fn link_lost(&mut self, id: usize, number: u64) {
        let link = &mut self.agents[id].link;
        if !link.open || link.link != number {
            return;
        }
        if let Some((_, waiting)) = link.waiting.take() {
            self.unanswered(id, waiting, "lost");
        }
        self.close(id, "lost");
    }

    fn close(&mut self, id: usize, why: &str) {
        let link = &mut self.agents[id].link;
        link.open = false;
        link.waiting = None;
        link.unanswered = None;
        // Nothing of this connection is answered on the next.
        link.link += 1;
        self.tell(id, Event::Closed(why.to_owned()));
        self.rest(id);
    }

    /// Submits the requests that waited while another was under way.
    fn next_ask(&mut self, id: usize) {
        self.follow_hints(id);
        while self.agents[id].link.waiting.is_none() && self.agents[id].link.open {
            let Some(request) = self.agents[id].link.queue.pop_front() else {
                break;
            };
            self.submit(id, request);
        }
    }

    /// Breaks the connections of a site, or of all, at once or a little later.
    pub fn break_links(&mut self, site: Option<usize>, within: u64) {
        for id in 0..self.agents.len() {
            let agent = &self.agents[id];
            let meant = site.is_none_or(|site| agent.site == site);
            if !meant || !agent.alive || !agent.link.is_open() {
                continue;
            }
            let number = agent.link.number();
            let wait = self.chance.below(within + 1);
            self.after(wait, Happening::Agent(id, AgentEvent::LinkLost(number)));
        }
    }
}
