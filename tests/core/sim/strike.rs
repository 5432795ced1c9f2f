//! Faults that happen at an instant, and their end.

use putex::core::event::{Event, Pause, PauseEntry, SwitchoverRequest};
use putex::core::record::{KeyValue, Record, Revision};
use putex::core::seat::Seat;

use super::clock::MS;
use super::counters::Sometimes;
use super::faults::Kind;
use super::scenario::{Aim, Fault};
use super::world::{Happening, World};

impl World<'_> {
    pub fn fault(&mut self, index: usize, stepper: Option<usize>) {
        if self.quiet || self.now >= self.sc.until {
            return;
        }
        let Fault { kind, site, aim, lasts, .. } = self.sc.faults[index].clone();
        let active = (0..self.sites.len()).find(|site| self.sites[*site].up);
        let aimed = match aim {
            Aim::Anybody => None,
            Aim::Active => active,
            Aim::Stepper => stepper,
        };
        let site = aimed.unwrap_or(site);
        if let Some(trace) = &mut self.trace {
            trace.fault(self.now, lasts, kind, site);
        }
        if self.strike(kind, site) {
            self.after(lasts, Happening::Over(index, site));
        }
    }

    /// Lets a fault begin; says whether it has an end.
    fn strike(&mut self, kind: Kind, site: usize) -> bool {
        if self.sc.sites[site].plain
            && matches!(kind, Kind::Suspend | Kind::PowerLoss | Kind::Finish)
        {
            return false;
        }
        match kind {
            Kind::CrashAgent => self.crash_agent(site),
            Kind::CrashGuard => self.crash_guard(site),
            Kind::CrashBoth => {
                self.crash_guard(site);
                self.crash_agent(site);
            }
            Kind::Finish => {
                self.crash_guard(site);
                self.crash_agent(site);
                self.spawn_guard(site, true);
            }
            Kind::PauseAgent | Kind::PauseGuard | Kind::PauseBoth => {
                self.pause(kind, site);
                return true;
            }
            Kind::Suspend => {
                let host = self.sc.sites[site].host;
                self.hosts[host].asleep = true;
                self.show_sleep(host, true);
                self.look_after_host(host);
                return true;
            }
            Kind::PowerLoss => self.power_loss(self.sc.sites[site].host),
            Kind::Sigterm => {
                if let Some(id) = self.living(site) {
                    self.tell(id, Event::Shutdown("SIGTERM"));
                }
            }
            Kind::Switchover => self.request_switchover(site),
            Kind::Pause => self.announce_pause(site),
            Kind::Upgrade => {
                if let Some(id) = self.living(site) {
                    self.agents[id].upgrade_due = true;
                }
            }
            Kind::SecondAgent => self.spawn_agent(site),
            Kind::Cut | Kind::CutOut | Kind::CutIn => {
                self.sites[site].cut_out += u32::from(kind != Kind::CutIn);
                self.sites[site].cut_in += u32::from(kind != Kind::CutOut);
                if self.chance.chance(500) {
                    self.break_links(Some(site), 3000 * MS);
                }
                return true;
            }
            Kind::ServerDown => {
                self.server_down += 1;
                if self.chance.chance(700) {
                    self.break_links(None, 20 * MS);
                }
                return true;
            }
            Kind::Rejected => {
                self.sites[site].rejected += 1;
                self.break_links(Some(site), MS);
                return true;
            }
            Kind::Unfit => {
                self.sites[site].unfit += 1;
                return true;
            }
            Kind::NoGuard => {
                self.sites[site].no_guard += 1;
                return true;
            }
            _ => self.tamper(kind),
        }
        false
    }

    /// Has the agent of a site be asked to give its lock to another.
    fn request_switchover(&mut self, site: usize) {
        let Some(id) = self.living(site) else { return };
        let own = self.sites[site].seat;
        let current = self.store.current(own);
        let lease = current.value.lease();
        let term = lease.and_then(|lease| lease.term).unwrap_or(current.revision);
        let old = self.chance.chance(100);
        let term = Revision(term.0.saturating_sub(u64::from(old)));
        let other = self.chance.below(self.sc.sites.len() as u64 + 1) as usize;
        let to = self.sc.sites.get(other).map_or("nobody", |site| &site.token).to_owned();
        let lasts = self.sites[site].timing.lock_time();
        let until = self.clock(site).after(lasts * self.chance.below(3) as u32);
        let seat = Seat(own.0 + u32::from(self.chance.chance(50)));
        self.count(Sometimes::Switchover);
        self.tell(id, Event::SwitchoverRequested(SwitchoverRequest { seat, term, to, until }));
    }

    /// Has agents read a new pause, or its end, or an old one: that of a site, or any.
    fn announce_pause(&mut self, site: usize) {
        let all = self.chance.chance(700);
        self.pause_serial += u64::from(self.chance.chance(700));
        for other in 0..self.sites.len() {
            let told = other == site || all && self.chance.chance(800);
            let Some(id) = self.living(other).filter(|_| told) else { continue };
            let entry = self.pause_entry(other);
            self.count(Sometimes::Pause);
            self.tell(id, Event::PauseRead(entry));
        }
    }

    /// Returns what a site reads under the key of the pause. The entry may be one of before: a
    /// server that was the leader shows that, or a store that has lost the later ones.
    pub fn pause_entry(&mut self, site: usize) -> PauseEntry {
        let (is_old, stands) = (self.chance.chance(300), self.chance.chance(700));
        let back = if is_old { self.chance.below(3) } else { 0 };
        let lasts = self.sc.sites[0].timing.lock_time() * self.chance.below(31) as u32 / 10;
        let (until, by, reason) = (self.clock(site).after(lasts), String::new(), String::new());
        let pause = stands.then_some(Pause { until, by, reason });
        PauseEntry { serial: self.pause_serial.saturating_sub(back), pause }
    }

    /// Changes the bucket by hand.
    fn tamper(&mut self, kind: Kind) {
        let blank = |token: &str| KeyValue::Record(Record { token: token.to_owned(), lease: None });
        match kind {
            Kind::Rollback => {
                let writes = 1 + self.chance.below(6);
                let lost_to = self.store.last;
                let kept = self.store.roll_back(writes);
                self.on_loss(kept, lost_to);
            }
            Kind::Wipe => {
                self.store.wipe();
                self.on_loss(0, self.store.last);
            }
            _ if self.store.gone => return,
            Kind::Delete => self.put(KeyValue::Marker),
            Kind::Purge => {
                self.hands.push(self.now);
                self.store.purge(Seat::FIRST, self.now);
            }
            Kind::Blank => self.put(blank("")),
            Kind::Typed => self.put(blank("operator")),
            _ => {}
        }
        if matches!(kind, Kind::Rollback | Kind::Wipe) && self.chance.chance(600) {
            self.break_links(None, 20 * MS);
        }
    }

    fn put(&mut self, value: KeyValue) {
        self.hands.push(self.now);
        let revision = self.store.put(Seat::FIRST, value, self.now);
        self.hint_all(Seat::FIRST, revision);
    }

    /// Returns the agent of a site, if it lives.
    fn living(&self, site: usize) -> Option<usize> {
        let agent = self.sites[site].agent;
        agent.filter(|id| self.agents[*id].alive && self.agents[*id].pump.is_some())
    }

    fn crash_agent(&mut self, site: usize) {
        if let Some(id) = self.sites[site].agent {
            self.end_agent(id);
        }
    }

    fn crash_guard(&mut self, site: usize) {
        for id in self.sites[site].guards.clone() {
            self.kill_guard(id);
        }
    }

    fn pause(&mut self, kind: Kind, site: usize) {
        if kind != Kind::PauseGuard
            && let Some(id) = self.living(site)
        {
            self.agents[id].stopped = true;
            self.show(site, "paused");
        }
        if kind != Kind::PauseAgent {
            for id in self.sites[site].guards.clone() {
                self.guards[id].stopped = true;
                self.expect_replacement(id);
            }
        }
        self.look_after(site);
    }

    fn resume(&mut self, kind: Kind, site: usize) {
        if kind != Kind::PauseGuard
            && let Some(id) = self.sites[site].agent
            && self.agents[id].stopped
        {
            self.agents[id].stopped = false;
            self.agents[id].resumes(self.now);
            let state = self.agents[id].state;
            self.show(site, state);
            self.release_agent(id);
        }
        if kind != Kind::PauseAgent {
            for id in self.sites[site].guards.clone() {
                if self.guards[id].stopped {
                    self.guards[id].stopped = false;
                    self.guards[id].resumed_at = self.now;
                    for event in std::mem::take(&mut self.guards[id].held) {
                        let wait = self.late();
                        self.after(wait, Happening::Guard(id, event));
                    }
                }
            }
            self.look_after(site);
        }
    }

    fn look_after_host(&mut self, host: usize) {
        for site in 0..self.sites.len() {
            if self.sc.sites[site].host == host {
                self.look_after(site);
            }
        }
    }

    pub fn fault_over(&mut self, index: usize, site: usize) {
        if self.quiet {
            return;
        }
        let kind = self.sc.faults[index].kind;
        let place = &mut self.sites[site];
        match kind {
            Kind::PauseAgent | Kind::PauseGuard | Kind::PauseBoth => self.resume(kind, site),
            Kind::Suspend => self.wake_up(self.sc.sites[site].host),
            Kind::Cut | Kind::CutOut | Kind::CutIn => {
                place.cut_out -= u32::from(kind != Kind::CutIn);
                place.cut_in -= u32::from(kind != Kind::CutOut);
            }
            Kind::ServerDown => self.server_down -= 1,
            Kind::Rejected => place.rejected -= 1,
            Kind::Unfit => place.unfit -= 1,
            Kind::NoGuard => place.no_guard -= 1,
            _ => {}
        }
    }

    /// A host goes on after its sleep: agent and guard look at the clock first.
    fn wake_up(&mut self, host: usize) {
        if !self.hosts[host].asleep {
            return;
        }
        self.hosts[host].asleep = false;
        self.show_sleep(host, false);
        for site in 0..self.sites.len() {
            if self.sc.sites[site].host != host {
                continue;
            }
            if let Some(id) = self.sites[site].agent {
                self.agents[id].resumes(self.now);
            }
            if self.may_run(site) && self.lock_over(site).is_some_and(|over| self.now > over) {
                self.count(Sometimes::SleptOverV);
            }
            for id in self.sites[site].guards.clone() {
                self.guards[id].resumed_at = self.now;
            }
            self.after(MS, Happening::Spawn(site));
        }
        self.look_after_host(host);
        self.release_host(host);
    }

    fn show_sleep(&mut self, host: usize, asleep: bool) {
        for site in 0..self.sites.len() {
            if self.sc.sites[site].host == host {
                let state = self.sites[site].agent.map_or("none", |id| self.agents[id].state);
                self.show(site, if asleep { "asleep" } else { state });
            }
        }
    }

    /// Ends every process on a host; its next boot has another name.
    pub fn power_loss(&mut self, host: usize) {
        for site in 0..self.sites.len() {
            if self.sc.sites[site].host != host || self.sc.sites[site].plain {
                continue;
            }
            self.service_down(site);
            let place = &mut self.sites[site];
            place.starts.clear();
            place.escaped.clear();
            place.note = Default::default();
            place.stopped = true;
            for process in &mut self.processes {
                process.alive &= process.site != site;
            }
            self.crash_guard(site);
            for id in 0..self.agents.len() {
                if self.agents[id].site == site {
                    self.end_agent(id);
                }
            }
        }
        self.hosts[host].asleep = false;
        let now = self.now;
        let place = &mut self.hosts[host];
        place.boot += 1;
        place.clock.boot(now);
        place.device = None;
        place.held.clear();
    }

    /// Nothing goes wrong any more; what went wrong is over.
    pub fn fall_quiet(&mut self) {
        for site in 0..self.sites.len() {
            // A guard that never goes on is killed by its agent.
            let forever = self.chance.chance(300);
            self.resume(if forever { Kind::PauseAgent } else { Kind::PauseBoth }, site);
            let place = &mut self.sites[site];
            (place.cut_out, place.cut_in) = (0, 0);
            (place.rejected, place.unfit, place.no_guard) = (0, 0, 0);
        }
        for host in 0..self.hosts.len() {
            self.wake_up(host);
        }
        self.server_down = 0;
        self.end_hanging();
        self.quiet = true;
        self.pause_serial += 1;
        for id in 0..self.agents.len() {
            self.agents[id].upgrade_due = false;
            if self.agents[id].alive {
                let entry = PauseEntry { serial: self.pause_serial, pause: None };
                self.tell(id, Event::PauseRead(entry));
            }
        }
        for site in 0..self.sites.len() {
            if !self.sc.sites[site].plain {
                self.after(20 * MS, Happening::Spawn(site));
            }
        }
        if let Some(trace) = &mut self.trace {
            trace.quiet(self.now);
        }
        self.expect_one();
    }
}
