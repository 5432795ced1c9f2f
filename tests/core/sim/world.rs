//! The world: true time, its future events, and the processes and hosts that they happen to.
//!
//! Everything that takes time is an entry of one queue. What happens to a process
//! that is stopped, or on a host that sleeps, is held back and happens when it goes
//! on, thread by thread in its order; what happens to a dead one does not happen.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use putex::core::seat::Seat;
use putex::core::time::Instant;
use putex::core::timing::Timing;

use super::agent::{Agent, AgentEvent, Thread};
use super::answer_time::Hung;
use super::client::Connection;
use super::clock::{Clock, MS, True};
use super::counters::{Counters, Sometimes};
use super::device::Device;
use super::excuse::Excuse;
use super::faults::Kind;
use super::guard::{GuardEvent, GuardProcess, Note};
use super::lanes::Trace;
use super::oracle::Failure;
use super::plain::Plain;
use super::process::{Process, ProcessEvent};
use super::random::Random;
use super::scenario::{STEPS, Scenario, Step, When, first_record};
use super::store::Store;
use super::wire::Request;
use super::witness::Terms;

/// An event of the world.
#[derive(Debug)]
pub enum Happening {
    Agent(usize, AgentEvent),
    Guard(usize, GuardEvent),
    Process(usize, ProcessEvent),
    /// A request reaches the store.
    Arrive(Box<Request>),
    /// A supervisor starts an agent.
    Spawn(usize),
    /// A fault begins, after a step of a site if so, and ends.
    Fault(usize, Option<usize>),
    Over(usize, usize),
    /// Processes that start left behind on a site are killed.
    CgroupKilled(usize),
    /// A guard that hangs must have been killed by now.
    Hung(Hung),
    /// An agent that was told to end must have ended by now.
    Lingers(usize),
    /// A watchdog device may bite.
    Bite(usize),
    /// An agent of putex 0.2.0 has its turn.
    Plain(usize),
    /// Nothing goes wrong any more.
    Quiet,
    /// Judges whether one service runs for good already.
    Settle,
    /// Exactly one service must run from here on.
    Judge,
    End,
}

/// When, in which order, and which of those that wait.
type Entry = Reverse<(True, u64, u32)>;

/// A host: its clock, its sleep, its boot.
pub struct Host {
    pub clock: Clock,
    pub boot: u32,
    pub asleep: bool,
    pub held: Vec<Happening>,
    pub device: Option<Device>,
}

/// A renewal that its writer knows to be acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    pub sent: True,
    /// The times of the agent that wrote it.
    pub timing: Timing,
}

/// An agent's place: its service, its way to the store, its health.
pub struct Site {
    /// The times with which its agent was started last.
    pub timing: Timing,
    /// The agent that has `agent.lock`.
    pub agent: Option<usize>,
    /// The guard that has the lock, and what the previous one left to it.
    pub guard_lock: Option<usize>,
    pub note: Note,
    /// How many seats its agent knows, and that of its lock, or of its last one.
    pub seats: u32,
    pub seat: Seat,
    pub up: bool,
    pub excuse: Excuse,
    /// Since when no guard is there that can act, or one is.
    pub away_since: Option<True>,
    /// When the last guard went whose service was excused then.
    pub excused_until: True,
    pub well_since: True,
    /// The last renewal that the agent knows to be acknowledged.
    pub acked: Option<Acked>,
    /// Its lock was written over a record that it was never shown.
    pub blind: bool,
    /// The last revision that it wrote.
    pub written: u64,
    /// When the agent learnt that the lock is another's; when the guard was told.
    pub losing: Option<True>,
    pub lost_at: Option<True>,
    /// When it was said that the service may outlive its lock.
    pub late_said_at: Option<True>,
    /// When its term began, and with which revision.
    pub term_at: True,
    pub term: u64,
    pub terms: Vec<u64>,
    /// Faults that are under way; each counted, for they may overlap.
    pub cut_out: u32,
    pub cut_in: u32,
    pub rejected: u32,
    pub unfit: u32,
    pub no_guard: u32,
    /// A stop has succeeded since the last start.
    pub stopped: bool,
    /// When the last stop or last resort began.
    pub stop_began_at: True,
    /// When a start that was killed ended last.
    pub start_died_at: True,
    /// The starts that run, what starts left behind, and the guards that live.
    pub starts: Vec<usize>,
    pub escaped: Vec<usize>,
    pub guards: Vec<usize>,
    pub plain: Plain,
}

pub struct World<'a> {
    pub sc: &'a Scenario,
    pub now: True,
    pub hosts: Vec<Host>,
    pub sites: Vec<Site>,
    pub agents: Vec<Agent>,
    pub guards: Vec<GuardProcess>,
    pub connections: Vec<Connection>,
    pub processes: Vec<Process>,
    pub store: Store,
    pub server_down: u32,
    /// The serial number of the last pause, or of its end.
    pub pause_serial: u64,
    /// Draws what is no fault: how long things take.
    pub chance: Random,
    /// Draws whether a kind of fault happens now: one stream a kind.
    rng: Vec<Random>,
    pub counters: Counters,
    pub failure: Option<Failure>,
    pub trace: Option<Trace>,
    pub hash: u64,
    pub quiet: bool,
    pub steps: [u64; STEPS.len()],
    pub terms: Terms,
    pub incarnations: u128,
    /// Agents and guards that were begun, services that went up or down, and both when
    /// nothing went wrong any more.
    pub births: u64,
    /// Whether the agents have, or had, different lock times; different R, F or C.
    pub lock_times_differ: bool,
    pub times_differ: bool,
    pub changes: u64,
    pub calm_since: Option<(u64, u64)>,
    /// When a person wrote to the key by hand.
    pub hands: Vec<True>,
    queue: BinaryHeap<Entry>,
    waiting: Vec<Option<Happening>>,
    free: Vec<u32>,
    number: u64,
    ended: bool,
}

impl<'a> World<'a> {
    pub fn new(sc: &'a Scenario, trace: bool) -> World<'a> {
        let host = |host: &super::scenario::Host| Host {
            clock: Clock::new(host.off_ppm, host.first_reading),
            boot: 1,
            asleep: false,
            held: Vec::new(),
            device: None,
        };
        let site = |site: &super::scenario::Site| Site {
            timing: site.timing,
            agent: None,
            guard_lock: None,
            note: Note::default(),
            seats: sc.seats,
            seat: Seat::FIRST,
            up: false,
            excuse: Excuse::default(),
            away_since: Some(0),
            excused_until: 0,
            well_since: 0,
            acked: None,
            blind: false,
            written: 0,
            losing: None,
            lost_at: None,
            late_said_at: None,
            term_at: 0,
            term: 0,
            terms: Vec::new(),
            cut_out: 0,
            cut_in: 0,
            rejected: 0,
            unfit: 0,
            no_guard: 0,
            stopped: true,
            stop_began_at: 0,
            start_died_at: 0,
            starts: Vec::new(),
            escaped: Vec::new(),
            guards: Vec::new(),
            plain: Plain::new(),
        };
        let rng = |kind: Kind| Random::stream(sc.seed, 1000 + kind as u64);
        World {
            sc,
            now: 0,
            hosts: sc.hosts.iter().map(host).collect(),
            sites: sc.sites.iter().map(site).collect(),
            agents: Vec::with_capacity(8),
            guards: Vec::with_capacity(8),
            connections: Vec::with_capacity(16),
            processes: Vec::with_capacity(256),
            store: Store::new(sc.store, first_record(sc), sc.older),
            server_down: 0,
            pause_serial: 0,
            chance: Random::stream(sc.seed, 3),
            rng: Kind::ALL.into_iter().map(rng).collect(),
            counters: Counters::default(),
            failure: None,
            trace: trace.then(|| Trace::new(sc)),
            hash: 0xcbf2_9ce4_8422_2325,
            quiet: false,
            steps: [0; STEPS.len()],
            terms: Terms::default(),
            incarnations: 0,
            births: 0,
            lock_times_differ: sc.kinds.has(Kind::Mixed),
            times_differ: sc.kinds.has(Kind::Mixed),
            changes: 0,
            calm_since: None,
            hands: Vec::new(),
            queue: BinaryHeap::with_capacity(256),
            waiting: Vec::with_capacity(256),
            free: Vec::new(),
            number: 0,
            ended: false,
        }
    }

    /// Lets everything happen, until something is wrong or all is over.
    pub fn run(&mut self) {
        for site in 0..self.sites.len() {
            let setup = &self.sc.sites[site];
            if setup.plain {
                self.at(setup.begins, Happening::Plain(site));
            } else {
                self.at(setup.begins, Happening::Spawn(site));
            }
        }
        for (index, fault) in self.sc.faults.iter().enumerate() {
            if let When::At(at) = fault.when {
                self.at(at, Happening::Fault(index, None));
            }
        }
        self.at(self.sc.quiet_at, Happening::Quiet);
        while !self.ended && self.failure.is_none() {
            let Some(Reverse((at, _, slot))) = self.queue.pop() else {
                break;
            };
            self.now = at;
            self.free.push(slot);
            if let Some(what) = self.waiting[slot as usize].take() {
                self.dispatch(what);
            }
        }
    }

    fn dispatch(&mut self, what: Happening) {
        match what {
            Happening::Agent(id, event) => self.agent_event(id, event),
            Happening::Guard(id, event) => self.guard_event(id, event),
            Happening::Process(id, event) => self.process_event(id, event),
            Happening::Arrive(request) => self.arrive(*request),
            Happening::Spawn(site) => self.spawn(site),
            Happening::Fault(index, site) => self.fault(index, site),
            Happening::Over(index, site) => self.fault_over(index, site),
            Happening::CgroupKilled(site) => self.kill_service(site),
            Happening::Hung(hung) => self.judge_replacement(hung),
            Happening::Lingers(agent) => self.judge_lingering(agent),
            Happening::Bite(host) => self.reset_host(host),
            Happening::Plain(site) => self.plain_turn(site),
            Happening::Quiet => self.fall_quiet(),
            Happening::Settle => self.ended = self.check_settled(),
            Happening::Judge => {
                self.judge();
                self.expect_calm();
            }
            Happening::End => {
                self.judge();
                self.expect_calm();
                self.ended = true;
            }
        }
    }

    /// Passes an event to an agent, unless the agent is dead or held back.
    fn agent_event(&mut self, id: usize, event: AgentEvent) {
        let agent = &mut self.agents[id];
        if !agent.alive {
            return;
        }
        let host = &mut self.hosts[self.sc.sites[agent.site].host];
        if host.asleep {
            return host.held.push(Happening::Agent(id, event));
        }
        if agent.stopped {
            return agent.held.push(event);
        }
        self.mark(id as u64, event.number());
        self.turn_agent(id, event);
    }

    fn guard_event(&mut self, id: usize, event: GuardEvent) {
        let guard = &mut self.guards[id];
        if !guard.alive {
            return;
        }
        let host = &mut self.hosts[self.sc.sites[guard.site].host];
        if host.asleep {
            return host.held.push(Happening::Guard(id, event));
        }
        if guard.stopped {
            return guard.held.push(event);
        }
        self.mark(id as u64, 32 + event.number());
        self.turn_guard(id, event);
    }

    fn process_event(&mut self, id: usize, event: ProcessEvent) {
        let process = &self.processes[id];
        if !process.alive {
            return;
        }
        let host = &mut self.hosts[self.sc.sites[process.site].host];
        if host.asleep {
            return host.held.push(Happening::Process(id, event));
        }
        self.mark(id as u64, 64 + event as u64);
        self.proceed(id, event);
    }

    pub fn at(&mut self, at: True, what: Happening) {
        self.number += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.waiting.push(None);
            (self.waiting.len() - 1) as u32
        });
        self.waiting[slot as usize] = Some(what);
        let at = at.max(self.now);
        self.queue.push(Reverse((at, self.number, slot)));
    }

    pub fn after(&mut self, wait: u64, what: Happening) {
        self.at(self.now.saturating_add(wait), what);
    }

    pub fn host(&self, site: usize) -> &Host {
        &self.hosts[self.sc.sites[site].host]
    }

    /// Returns what the clock of a site's host shows.
    pub fn clock(&self, site: usize) -> Instant {
        self.host(site).clock.at(self.now)
    }

    /// Returns by how much a thread wakes late this time.
    pub fn late(&mut self) -> u64 {
        let most = self.sc.late;
        if self.chance.chance(700) {
            return most / 64;
        }
        self.chance.below(most + 1)
    }

    /// Returns the true time of an instant of a site's clock, when a thread that
    /// waits for it wakes.
    pub fn wake(&mut self, site: usize, at: Instant) -> True {
        self.host(site).clock.when(at).max(self.now) + self.late()
    }

    /// Draws whether a kind of fault happens now.
    pub fn strikes(&mut self, kind: Kind) -> bool {
        if self.quiet || self.now >= self.sc.until || !self.sc.kinds.has(kind) {
            return false;
        }
        self.rng[kind as usize].chance(self.sc.rates[kind as usize])
    }

    pub fn rng(&mut self, kind: Kind) -> &mut Random {
        &mut self.rng[kind as usize]
    }

    /// Notes a step that a fault may follow.
    pub fn step(&mut self, step: Step, site: usize) {
        let count = &mut self.steps[step as usize];
        *count += 1;
        let count = *count;
        for index in 0..self.sc.faults.len() {
            if let When::After(kind, nth, wait) = self.sc.faults[index].when
                && kind == step
                && nth == count
            {
                self.after(wait, Happening::Fault(index, Some(site)));
            }
        }
    }

    /// Lets what was held back on a host happen.
    pub fn release_host(&mut self, host: usize) {
        let held = std::mem::take(&mut self.hosts[host].held);
        let waits = self.thread_waits();
        let (due, rest): (Vec<_>, Vec<_>) = held.into_iter().partition(Happening::is_due);
        for what in rest.into_iter().chain(due) {
            let wait = match &what {
                Happening::Agent(_, event) => waits[event.thread() as usize],
                _ => waits[4],
            };
            self.after(wait, what);
        }
    }

    /// Lets what was held back in an agent happen.
    pub fn release_agent(&mut self, id: usize) {
        let held = std::mem::take(&mut self.agents[id].held);
        let waits = self.thread_waits();
        let (due, rest): (Vec<_>, Vec<_>) = held.into_iter().partition(AgentEvent::is_due);
        for event in rest.into_iter().chain(due) {
            let wait = waits[event.thread() as usize];
            self.after(wait, Happening::Agent(id, event));
        }
    }

    /// When each thread of a process that goes on gets its turn.
    fn thread_waits(&mut self) -> [u64; Thread::COUNT] {
        let mut waits = [0; Thread::COUNT];
        for wait in &mut waits {
            *wait = self.late();
        }
        waits
    }

    /// Mixes what happens into the hash of the run.
    fn mark(&mut self, who: u64, what: u64) {
        for part in [self.now, who << 8 | what] {
            self.hash = (self.hash ^ part).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub fn count(&mut self, what: Sometimes) {
        self.counters.add(what);
    }

    /// Notes something for the time line, if one is drawn.
    pub fn note(&mut self, site: Option<usize>, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.say(self.now, site, text());
        }
    }

    pub fn fail(&mut self, oracle: &'static str, text: String) {
        if self.failure.is_none() {
            self.note(None, || format!("VIOLATION {oracle}: {text}"));
            self.failure = Some(Failure { oracle, text, at: self.now });
        }
    }
}

impl Happening {
    fn is_due(&self) -> bool {
        match self {
            Happening::Agent(_, event) => event.is_due(),
            _ => false,
        }
    }
}

/// How long a process takes to begin.
pub fn begin_time(chance: &mut Random) -> u64 {
    MS + chance.below(6 * MS)
}
