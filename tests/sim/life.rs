//! How a life of an agent begins and ends: the file by which one life knows the one
//! before, the guard that is taken over, what `src/agent/{mod,life,handover}.rs` do.

use std::time::Duration;

use putex::core::guard::{Inherited, Watch};
use putex::core::pump::{AgentId, Config, Pump};
use putex::core::record::Incarnation;
use putex::core::time::Instant;

use super::agent::{Life, LifeEvent};
use super::clock::MS;
use super::counters::Sometimes;
use super::guard::{Says, Word};
use super::nursery::{Sentinel, Wishes};
use super::process::never;
use super::scenario::Step;
use super::wire::Link;
use super::witness::Writing;
use super::world::{Happening, World, begin_time};

/// How long a guard takes to answer, and to see that the life before has ended.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
const SEEN_WITHIN: u64 = 200 * MS;

impl World<'_> {
    /// A supervisor starts the agent of a site, if none lives there.
    pub fn spawn(&mut self, site: usize) {
        let lives = self.sites[site].life.is_some_and(|id| self.lives[id].alive);
        if lives || self.sc.sites[site].plain || self.host(site).asleep {
            return;
        }
        self.incarnations += 1;
        let id = self.lives.len();
        let now = self.clock(site);
        self.lives.push(Life {
            site,
            me: Incarnation(self.incarnations),
            alive: true,
            stopped: false,
            held: Vec::new(),
            pump: None,
            state: "starting",
            before: Vec::new(),
            calling: None,
            calls: 0,
            call_until: 0,
            owns_file: false,
            wake_at: never(),
            inbox_at: 0,
            orders_at: 0,
            slots: Default::default(),
            sentinel: Sentinel::new(now),
            wishes: Wishes::default(),
            link: Link::new(),
            writing: Writing::default(),
            known: 0,
            bucket: None,
            known_key: 0,
            marks: Vec::new(),
            armed: false,
            spawning: None,
            stop_began: false,
        });
        self.sites[site].life = Some(id);
        self.show(site, "starting");
        let wait = begin_time(&mut self.chance);
        self.after(wait, Happening::Life(id, LifeEvent::Begin));
    }

    /// Locks the file of lives, and asks the guard of the last one.
    pub fn begin_life(&mut self, id: usize) {
        self.step(Step::Booted);
        let site = self.lives[id].site;
        let me = self.lives[id].me;
        let token = &self.sc.sites[site].token;
        let files = &mut self.hosts[self.sc.sites[site].host].files;
        let at = match files.iter().position(|(name, _)| name == token) {
            Some(at) => at,
            None => {
                files.push((token.clone(), Default::default()));
                files.len() - 1
            }
        };
        let file = &mut files[at].1;
        let mut guard = None;
        if file.locked_by.is_none() {
            file.locked_by = Some(id);
            let life = &mut self.lives[id];
            life.owns_file = true;
            life.before = file.lives.clone();
            file.lives.insert(0, me);
            file.lives.truncate(8);
            guard = file.guard;
        }
        self.lives[id].calling = guard;
        self.lives[id].call_until = self.now + SEEN_WITHIN;
        self.call_guard(id);
    }

    pub fn call_guard(&mut self, id: usize) {
        let guard = self.lives[id].calling;
        let Some(guard) = guard.filter(|guard| self.guards[*guard].listens()) else {
            self.lives[id].calling = None;
            return self.start_pump(id, None);
        };
        self.mail(guard, Word::Call(id));
        let site = self.lives[id].site;
        let answer = self.sc.sites[site].timing.renewal().min(ANSWER_WITHIN);
        let over = self.clock(site).after(answer);
        self.give_up_calling(id, over);
    }

    fn give_up_calling(&mut self, id: usize, at: Instant) {
        let over = self.wake(self.lives[id].site, at);
        self.lives[id].calls += 1;
        let calls = self.lives[id].calls;
        self.at(over, Happening::Life(id, LifeEvent::InheritOver(calls)));
    }

    /// A guard that is ending the service already is waited for.
    pub fn inherit(&mut self, id: usize, guard: usize, says: Says) {
        if self.lives[id].calling != Some(guard) {
            return;
        }
        match says {
            Says::Ready(watch, under, start) => {
                let inherited = match watch {
                    Watch::Down => None,
                    Watch::MayRun(fence) => Some(Inherited {
                        fence,
                        under: (*under).clone(),
                        start_dies: start.is_some(),
                    }),
                };
                self.lives[id].calling = None;
                self.lives[id]
                    .sentinel
                    .take_over(guard, watch, *under, start);
                self.start_pump(id, inherited);
                if let Some(start) = start.filter(|start| !self.processes[*start].alive) {
                    self.after(1, Happening::Life(id, LifeEvent::Exited(start)));
                }
            }
            Says::Acting(watch) => {
                self.count(Sometimes::ActingGuardMet);
                let site = self.lives[id].site;
                let (now, timing) = (self.clock(site), self.sc.sites[site].timing);
                let stopped = match watch {
                    Watch::Down => now,
                    Watch::MayRun(fence) => fence.dead_by.max(now),
                };
                let after = timing.stop_budget().max(timing.renewal());
                self.give_up_calling(id, stopped.after(after).after(ANSWER_WITHIN));
            }
            Says::Ended if self.now < self.lives[id].call_until => {
                self.after(5 * MS, Happening::Life(id, LifeEvent::CallAgain));
            }
            Says::Ended => {
                self.lives[id].calling = None;
                self.start_pump(id, None);
            }
            Says::Armed | Says::Unfit => {}
        }
    }

    /// It was waited for long enough: it hangs.
    pub fn inherit_over(&mut self, id: usize, call: u32) {
        let life = &mut self.lives[id];
        if life.calls != call {
            return;
        }
        if let Some(guard) = life.calling.take() {
            self.count(Sometimes::HangingGuardKilled);
            self.kill_guard(guard);
            self.start_pump(id, None);
        }
    }

    fn start_pump(&mut self, id: usize, inherited: Option<Inherited>) {
        let site = self.lives[id].site;
        let setup = &self.sc.sites[site];
        let config = Config {
            timing: setup.timing,
            check: setup.check,
            last_resort: setup.resort,
        };
        let host = &self.hosts[setup.host];
        let me = AgentId {
            token: setup.token.clone(),
            incarnation: self.lives[id].me,
            host: format!("h{}", setup.host),
            boot: format!("h{}-b{}", setup.host, host.boot),
            dead: self.lives[id].before.clone(),
        };
        let now = self.clock(site);
        let has_guard = self.lives[id].sentinel.has_line();
        let pump = Pump::new(config, me, inherited, now);
        self.lives[id].pump = Some(pump);
        self.lives[id].sentinel.started_at(now);
        self.show(site, "looking");
        if has_guard {
            self.greet_guard(id);
        } else {
            self.ensure_guard(id);
        }
        self.open(id);
        self.wake_pump(id);
    }

    /// The process is gone, whatever ended it. What it ran goes on.
    pub fn end_life(&mut self, id: usize) {
        let life = &mut self.lives[id];
        if !life.alive {
            return;
        }
        life.alive = false;
        life.pump = None;
        life.held.clear();
        let (site, calling) = (life.site, life.calling);
        self.sites[site].lost_at = None;
        if life.owns_file {
            let token = &self.sc.sites[site].token;
            let files = &mut self.hosts[self.sc.sites[site].host].files;
            if let Some((_, file)) = files.iter_mut().find(|(name, _)| name == token) {
                file.locked_by = None;
            }
        }
        let line = self.lives[id].sentinel.line().or(calling);
        if let Some(guard) = line {
            self.mail(guard, Word::Gone(id));
        }
        self.show(site, "dead");
        self.look_after(site);
        let wait = if self.quiet {
            20 * MS
        } else {
            let most = self.sc.restart;
            most / 2 + self.chance.below(most)
        };
        self.after(wait, Happening::Spawn(site));
    }
}
