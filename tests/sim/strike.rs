//! Faults that happen at an instant, and their end.

use putex::core::event::Event;
use putex::core::record::{KeyValue, Record};

use super::clock::{MS, nanos};
use super::counters::Sometimes;
use super::faults::Kind;
use super::scenario::Fault;
use super::world::{Happening, World};

impl World<'_> {
    pub fn fault(&mut self, index: usize) {
        if self.quiet || self.now >= self.sc.until {
            return;
        }
        let Fault {
            kind,
            site,
            aimed,
            lasts,
            ..
        } = self.sc.faults[index].clone();
        let active = (0..self.sites.len()).find(|site| self.sites[*site].up);
        let site = active.filter(|_| aimed).unwrap_or(site);
        if let Some(trace) = &mut self.trace {
            trace.fault(self.now, lasts, kind, site);
        }
        if self.strike(kind, site) {
            self.after(lasts, Happening::Over(index, site));
        }
    }

    /// Lets a fault begin; says whether it has an end.
    fn strike(&mut self, kind: Kind, site: usize) -> bool {
        if self.sc.sites[site].plain && matches!(kind, Kind::Suspend | Kind::PowerLoss) {
            return false;
        }
        match kind {
            Kind::CrashAgent => self.crash_agent(site),
            Kind::CrashGuard => self.crash_guard(site),
            Kind::CrashBoth => {
                self.crash_guard(site);
                self.crash_agent(site);
            }
            Kind::PauseAgent | Kind::PauseGuard | Kind::PauseBoth => {
                self.pause(kind, site);
                return true;
            }
            Kind::Suspend => {
                let host = self.sc.sites[site].host;
                self.hosts[host].asleep = true;
                for place in &mut self.sites {
                    place.lost_at = None;
                }
                self.show_sleep(host, true);
                return true;
            }
            Kind::PowerLoss => self.power_loss(self.sc.sites[site].host),
            Kind::Sigterm => {
                if let Some(id) = self.sites[site].life.filter(|id| self.lives[*id].alive) {
                    self.tell(id, Event::Shutdown("SIGTERM"));
                }
            }
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
            _ => self.tamper(kind),
        }
        false
    }

    /// What is done to the bucket.
    fn tamper(&mut self, kind: Kind) {
        let blank = |token: &str| {
            KeyValue::Record(Record {
                token: token.to_owned(),
                lease: None,
            })
        };
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
            Kind::Blank => self.put(blank("")),
            Kind::Typed => self.put(blank("operator")),
            _ => {}
        }
        if matches!(kind, Kind::Rollback | Kind::Wipe) && self.chance.chance(600) {
            self.break_links(None, 20 * MS);
        }
    }

    fn put(&mut self, found: KeyValue) {
        self.hands.push(self.now);
        let revision = self.store.put(found, self.now);
        self.hint_all(revision);
    }

    fn crash_agent(&mut self, site: usize) {
        if let Some(id) = self.sites[site].life {
            self.end_life(id);
        }
    }

    fn crash_guard(&mut self, site: usize) {
        for id in self.sites[site].guards.clone() {
            self.kill_guard(id);
        }
    }

    fn pause(&mut self, kind: Kind, site: usize) {
        if kind != Kind::PauseGuard
            && let Some(id) = self.sites[site].life
            && self.lives[id].alive
        {
            self.lives[id].stopped = true;
            let place = &mut self.sites[site];
            place.lost_at = None;
            // What is left to be done then is its own last resort.
            place.excuse.unaided |= place.excuse.late;
            self.show(site, "paused");
        }
        if kind != Kind::PauseAgent {
            for id in self.sites[site].guards.clone() {
                self.guards[id].stopped = true;
            }
        }
        self.look_after(site);
    }

    fn resume(&mut self, kind: Kind, site: usize) {
        if kind != Kind::PauseGuard
            && let Some(id) = self.sites[site].life
            && self.lives[id].stopped
        {
            self.lives[id].stopped = false;
            let state = self.lives[id].state;
            self.show(site, state);
            self.release_life(id);
        }
        if kind != Kind::PauseAgent {
            for id in self.sites[site].guards.clone() {
                if self.guards[id].stopped {
                    self.guards[id].stopped = false;
                    for event in std::mem::take(&mut self.guards[id].held) {
                        let wait = self.late();
                        self.after(wait, Happening::Guard(id, event));
                    }
                }
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
            _ => {}
        }
    }

    /// A host goes on after its sleep: agent and guard look at the clock first, and
    /// have what two stops in a row may take.
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
            let timing = self.sc.sites[site].timing;
            let acked = self.sites[site].acked.unwrap_or(0);
            let life = self.sites[site].life.map(|id| &self.lives[id]);
            let stopping = life.is_some_and(|life| life.state == "stopping");
            let late = self.now > acked + nanos(timing.validity()) / 2;
            if self.may_run(site) && (late || stopping) {
                let longest = 2 * self.stop_budget(site) + 100 * MS;
                let until = self.now + longest * 5 / 4;
                self.sites[site].excuse.until = until;
                self.count(Sometimes::SleptOverV);
            }
            self.after(MS, Happening::Spawn(site));
        }
        self.release_host(host);
    }

    fn show_sleep(&mut self, host: usize, asleep: bool) {
        for site in 0..self.sites.len() {
            if self.sc.sites[site].host == host {
                let state = self.sites[site]
                    .life
                    .map_or("none", |id| self.lives[id].state);
                self.show(site, if asleep { "asleep" } else { state });
            }
        }
    }

    /// Whatever ran on a host is gone, and its boot is another.
    pub fn power_loss(&mut self, host: usize) {
        for site in 0..self.sites.len() {
            if self.sc.sites[site].host != host || self.sc.sites[site].plain {
                continue;
            }
            self.service_down(site);
            self.sites[site].starts.clear();
            self.crash_guard(site);
            self.crash_agent(site);
            for process in &mut self.processes {
                process.alive &= process.site != site;
            }
        }
        self.hosts[host].asleep = false;
        let now = self.now;
        let place = &mut self.hosts[host];
        place.boot += 1;
        place.clock.boot(now);
        place.files.clear();
        place.device = None;
        place.held.clear();
    }

    /// Nothing goes wrong any more; what went wrong is over.
    pub fn fall_quiet(&mut self) {
        for site in 0..self.sites.len() {
            self.resume(Kind::PauseBoth, site);
            let place = &mut self.sites[site];
            (place.cut_out, place.cut_in) = (0, 0);
            (place.rejected, place.unfit) = (0, 0);
        }
        for host in 0..self.hosts.len() {
            self.wake_up(host);
        }
        self.server_down = 0;
        self.end_hanging();
        self.quiet = true;
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
