//! How an agent's process begins and ends.

use std::collections::VecDeque;
use std::time::Duration;

use putex::core::event::{Event, PauseEntry};
use putex::core::pump::{AgentId, Config, Pump};
use putex::core::record::Incarnation;
use putex::core::time::Instant;
use putex::core::timing::Timing;
use putex::core::watchdog_timeout::wanted_timeout;

use super::agent::{Agent, AgentEvent};
use super::checks::Slot;
use super::client::GuardView;
use super::clock::MS;
use super::counters::Sometimes;
use super::faults::Kind;
use super::process::never;
use super::scenario::Step;
use super::wire::Link;
use super::witness::Writing;
use super::world::{Happening, World, begin_time};

/// How often `agent.lock` is tried while another instance has it.
const TRY_LOCK: u64 = 10 * MS;

impl World<'_> {
    /// A supervisor starts the agent of a site, if none lives there.
    pub fn spawn(&mut self, site: usize) {
        let mut agents = self.agents.iter();
        if !agents.any(|agent| agent.alive && agent.site == site) {
            self.spawn_agent(site);
        }
    }

    /// An agent is started, whether another of that identity lives or not.
    pub fn spawn_agent(&mut self, site: usize) {
        if self.sc.sites[site].plain || self.host(site).asleep {
            return;
        }
        self.incarnations += 1;
        let id = self.agents.len();
        self.agents.push(Agent {
            site,
            me: Incarnation(self.incarnations),
            alive: true,
            stopped: false,
            well_since: self.now,
            attends_since: self.now,
            upgrade_due: false,
            held: Vec::new(),
            pump: None,
            state: "starting",
            logged_state: "looking",
            state_since: self.now,
            unfit_at: self.now,
            lock_until: 0,
            wake_at: never(),
            inbox: VecDeque::new(),
            orders: VecDeque::new(),
            check: Slot::default(),
            line: None,
            view: GuardView::default(),
            link: Link::default(),
            writing: Writing::default(),
            known: 0,
            bucket: None,
            known_key: 0,
            marks: Vec::new(),
            pause: PauseEntry::default(),
            pause_is_read: false,
            takes: false,
            told_to_end: None,
        });
        let wait = begin_time(&mut self.chance);
        self.after(wait, Happening::Agent(id, AgentEvent::Begin));
    }

    /// Begins an instance. One instance of an identity runs on a host; another waits for T.
    pub fn begin_agent(&mut self, id: usize) {
        let site = self.agents[id].site;
        self.step(Step::Booted, site);
        let t = self.sites[site].timing.lock_time();
        let until = self.clock(site).after(t);
        self.agents[id].lock_until = self.host(site).clock.when(until);
        self.births += 1;
        self.try_agent_lock(id);
    }

    pub fn try_agent_lock(&mut self, id: usize) {
        let site = self.agents[id].site;
        let holder = self.sites[site].agent;
        if !holder.is_some_and(|holder| self.agents[holder].alive) {
            self.sites[site].agent = Some(id);
            return self.start_pump(id);
        }
        if self.now >= self.agents[id].lock_until {
            self.count(Sometimes::SecondRefused);
            return self.end_agent(id);
        }
        // An instance that waits attends to no guard.
        self.agents[id].attends_since = self.now;
        self.after(TRY_LOCK, Happening::Agent(id, AgentEvent::TryLock));
    }

    fn start_pump(&mut self, id: usize) {
        let site = self.agents[id].site;
        self.retime(site);
        let config = self.config(site);
        let setup = &self.sc.sites[site];
        let boot = self.hosts[setup.host].boot;
        let me = AgentId {
            token: setup.token.clone(),
            incarnation: self.agents[id].me,
            host: format!("h{}", setup.host),
            boot: format!("h{}-b{boot}", setup.host),
        };
        let pump = Pump::new(config, me, self.sites[site].note.times, self.clock(site));
        self.agents[id].pump = Some(pump);
        self.agents[id].state = "looking";
        self.show(site, "looking");
        self.open(id);
        self.observe(id, &Event::Tick);
    }

    /// The settings of the agent have another R, F and C now, not larger than at first. Beside an
    /// agent of putex 0.2.0, which publishes none, all have the same.
    fn retime(&mut self, site: usize) {
        let kinds = self.sc.kinds;
        let has_kind = kinds.has(Kind::Retimed) && !kinds.has(Kind::Plain);
        if has_kind && !self.quiet && self.rng(Kind::Retimed).chance(300) {
            let most = self.sc.sites[site].timing;
            let seats = self.sc.seats;
            let rng = self.rng(Kind::Retimed);
            let seats = if rng.chance(700) { seats } else { 1 };
            let c = rng.between(1, u64::from(most.confirmations())) as u32;
            let (mut r, mut f) = (most.renewal(), most.failures());
            if rng.chance(500) {
                r = (r / rng.pick(&[1, 1, 2])).max(Duration::from_millis(50));
                f = rng.between(2, u64::from(f)) as u32;
            }
            // A device of the host has room for it.
            let has_device = self.sc.sites[site].device.is_some();
            let is_used = |timing: &Timing| !has_device || wanted_timeout(*timing).is_ok();
            let drawn = Timing::new(r, f, c, most.drift_ppm()).ok().filter(is_used);
            let timing = drawn.unwrap_or(most);
            self.lock_times_differ |= timing.lock_time() != most.lock_time();
            self.times_differ |= timing != most;
            self.sites[site].timing = timing;
            self.sites[site].seats = seats;
            self.note(Some(site), || format!("the times are {timing:?} now"));
        }
    }

    pub fn config(&self, site: usize) -> Config {
        let setup = &self.sc.sites[site];
        Config {
            timing: self.sites[site].timing,
            check: setup.check,
            start_grace: setup.start_grace,
            check_failures: setup.check_failures,
            priority: setup.priority,
            failback: setup.failback,
            seats: self.sites[site].seats,
            observes: false,
            agents: None,
            last_resort: setup.resort,
            device: setup.device_use,
        }
    }

    /// The program is executed anew if that is due and the pump lets another instance follow,
    /// unless the agent is told to end.
    pub fn upgrade_if_due(&mut self, id: usize, event: &Event, now: Instant) {
        let agent = &self.agents[id];
        let Agent { site, attends_since, .. } = *agent;
        if !agent.upgrade_due || !agent.alive || agent.told_to_end.is_some() {
            return;
        }
        let follows = |pump: &Pump| pump.lets_next_instance(event, now);
        if !agent.pump.as_ref().is_some_and(follows) {
            return;
        }
        self.count(Sometimes::Upgraded);
        self.finish_orders(id);
        self.end_agent(id);
        let next = self.agents.len();
        self.spawn(site);
        // Where a second agent of this identity waits, none is spawned.
        if let Some(next) = self.agents.get_mut(next) {
            next.attends_since = attends_since;
        }
    }

    /// An agent is told to end, perhaps once more.
    pub fn told_to_end(&mut self, id: usize) {
        if self.agents[id].told_to_end.is_some() {
            return;
        }
        self.agents[id].told_to_end = Some(self.now);
        let Agent { site, .. } = self.agents[id];
        let clock = self.host(site).clock;
        let by = clock.at(self.now).after(self.sites[site].timing.ends_within());
        self.at(clock.when(by) + 16 * self.sc.late, Happening::Lingers(id));
    }

    pub fn judge_lingering(&mut self, id: usize) {
        let Agent { site, alive, stopped, well_since, told_to_end, .. } = self.agents[id];
        let was_well = !stopped && told_to_end.is_some_and(|at| well_since <= at);
        // A guard may be under the times of the previous instance.
        if alive && was_well && !self.host(site).asleep && !self.lock_times_differ {
            self.fail("lingers", format!("{site} has not ended in the time that it tells"));
        }
    }

    /// The process is gone, whatever ended it. Its guard goes on.
    pub fn end_agent(&mut self, id: usize) {
        let agent = &mut self.agents[id];
        if !agent.alive {
            return;
        }
        agent.alive = false;
        agent.pump = None;
        agent.held.clear();
        let site = agent.site;
        self.hang_up(id);
        if self.sites[site].agent == Some(id) {
            self.sites[site].losing = None;
            self.show(site, "dead");
        }
        let wait = if self.quiet {
            20 * MS
        } else {
            let most = self.sc.restart;
            most / 2 + self.chance.below(most)
        };
        self.after(wait, Happening::Spawn(site));
    }
}
