//! The operator's commands as processes, and the service that they start and stop.
//!
//! What a command comes to is drawn when it begins. A start brings the service up at
//! some instant of its run, a stop takes it down; one that is killed before has no
//! effect, one that is killed after has had it. Start and stop are idempotent.

use std::time::Duration;

use putex::core::command::{Command, Outcome};
use putex::core::time::Instant;

use super::agent::{Life, LifeEvent};
use super::clock::{MS, True, nanos};
use super::counters::Sometimes;
use super::faults::Kind;
use super::guard::{Dying, GuardEvent};
use super::nursery::Spawning;
use super::scenario::Step;
use super::world::{Happening, World};

/// Who runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Life(usize),
    Guard(usize),
}

/// A command that runs, or has run.
#[derive(Clone, Debug)]
pub struct Process {
    pub site: usize,
    pub command: Command,
    pub owner: Owner,
    pub alive: bool,
    /// A start that nobody was left to know of: what it does is nobody's fault.
    pub stray: bool,
    /// When it was killed, if it was.
    pub dying: Option<True>,
    /// The kernel cannot end it at once, but then.
    stuck: Option<True>,
    /// What it is still to do to the service: true for up.
    effect: Option<bool>,
    succeeds: bool,
    hangs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// It does to the service what it does.
    Effect,
    /// It ends by itself.
    End,
    /// A kill has taken effect.
    Die,
}

/// How long it takes the kernel, at the longest, to end a start that was killed, as a rule
/// and seldom: then a life that waits for its guard would think that this hangs.
const STUCK_MAX: u64 = 300 * MS;
const STUCK_LONG: u64 = 10_000 * MS;

/// What becomes of a command.
struct Fate {
    effect: Option<(u64, bool)>,
    end: Option<u64>,
    succeeds: bool,
}

impl World<'_> {
    /// Runs a command that is to be killed at `deadline`.
    pub fn run_command(
        &mut self,
        site: usize,
        command: Command,
        owner: Owner,
        deadline: Instant,
    ) -> usize {
        let left = self.host(site).clock.when(deadline);
        let left = left.saturating_sub(self.now);
        let fate = match command {
            Command::Check => self.check_fate(site),
            Command::Start => self.start_fate(site),
            Command::Stop => self.stop_fate(site, left),
            Command::LastResort => self.resort_fate(site),
        };
        let id = self.processes.len();
        self.processes.push(Process {
            site,
            command,
            owner,
            alive: true,
            stray: false,
            dying: None,
            stuck: None,
            effect: fate.effect.map(|(_, up)| up),
            succeeds: fate.succeeds,
            hangs: fate.end.is_none(),
        });
        if let Some((wait, _)) = fate.effect {
            self.after(wait, Happening::Process(id, ProcessEvent::Effect));
        }
        if let Some(wait) = fate.end {
            self.after(wait, Happening::Process(id, ProcessEvent::End));
        }
        if command == Command::Start {
            self.sites[site].starts.push(id);
            self.step(Step::Start);
        } else if command == Command::Stop {
            self.step(Step::Stop);
        }
        id
    }

    fn check_fate(&mut self, site: usize) -> Fate {
        let t = nanos(self.sc.sites[site].timing.lock_time());
        let mut end = Some(self.chance.between(MS / 10, 4 * MS));
        if self.strikes(Kind::CheckHang) {
            end = None;
        } else if self.strikes(Kind::CheckSlow) {
            end = Some(self.chance.below(2 * t));
        }
        Fate {
            effect: None,
            end,
            succeeds: self.sites[site].unfit == 0,
        }
    }

    fn start_fate(&mut self, site: usize) -> Fate {
        let t = nanos(self.sc.sites[site].timing.lock_time());
        let mut end = self.chance.between(MS / 10, 8 * MS);
        if self.strikes(Kind::StartSlow) {
            end = self.chance.below(3 * t);
        }
        let effect = Some((self.chance.below(end + 1), true));
        if self.strikes(Kind::StartHang) {
            let works = self.chance.chance(500);
            return Fate {
                effect: effect.filter(|_| works),
                end: None,
                succeeds: false,
            };
        }
        if self.strikes(Kind::StartFail) {
            let works = self.chance.chance(300);
            return Fate {
                effect: effect.filter(|_| works),
                end: Some(end),
                succeeds: false,
            };
        }
        Fate {
            effect,
            end: Some(end),
            succeeds: true,
        }
    }

    /// A stop that keeps to the rules ends before its deadline, of which it is told.
    fn stop_fate(&mut self, site: usize, left: u64) -> Fate {
        if self.strikes(Kind::StopLie) {
            if self.sites[site].up {
                self.sites[site].excuse.lied = true;
            }
            return Fate {
                effect: None,
                end: Some(MS),
                succeeds: true,
            };
        }
        let hangs = self.strikes(Kind::StopHang);
        if hangs || self.strikes(Kind::StopFail) {
            if self.sites[site].up {
                self.sites[site].excuse.stop_failed = true;
                self.sites[site].excuse.unaided |= !self.guard_is_well(site);
            }
            let works = self.chance.chance(200);
            let end = self.chance.between(MS / 2, 5 * MS);
            return Fate {
                effect: works.then_some((end, false)),
                end: (!hangs).then_some(end),
                succeeds: false,
            };
        }
        let quick = self.chance.between(MS / 10, 8 * MS);
        let margin = self.chance.between(MS, 2 * MS);
        let edge = left.saturating_sub(margin);
        let t = nanos(self.sc.sites[site].timing.lock_time());
        let end = if self.strikes(Kind::StopEdge) && edge < 8 * t {
            edge.max(MS / 10)
        } else {
            quick.min(left / 2).max(MS / 20)
        };
        let early = self.chance.below(4) == 0;
        let effect = if early { end / 2 } else { end };
        Fate {
            effect: Some((effect, false)),
            end: Some(end),
            succeeds: true,
        }
    }

    /// A last resort that works is quick: a power switch.
    fn resort_fate(&mut self, site: usize) -> Fate {
        self.count(Sometimes::LastResort);
        if self.strikes(Kind::ResortFail) {
            self.sites[site].excuse.unaided = true;
            self.sites[site].excuse.stop_failed = true;
            let hangs = self.chance.chance(500);
            return Fate {
                effect: None,
                end: (!hangs).then_some(MS),
                succeeds: false,
            };
        }
        Fate {
            effect: Some((MS / 5, false)),
            end: Some(MS / 2),
            succeeds: true,
        }
    }

    pub fn proceed(&mut self, id: usize, event: ProcessEvent) {
        let process = self.processes[id].clone();
        match event {
            ProcessEvent::Effect => match self.processes[id].effect.take() {
                Some(true) => {
                    // After one that dies so late that stop has no time, it is run again, or
                    // the last resort is.
                    let by = self.dead_by(process.site).unwrap_or(0);
                    let timing = self.sc.sites[process.site].timing;
                    let turn = nanos(timing.renewal() + timing.confirmation());
                    let late = process.stuck.filter(|died| died + 20 * MS > by);
                    let excuse = &mut self.sites[process.site].excuse;
                    excuse.unwatched |= process.stray;
                    excuse.stray |= process.stray;
                    excuse.until = excuse.until.max(late.map_or(0, |died| died + 4 * turn));
                    self.service_up(process.site);
                }
                Some(false) => self.service_down(process.site),
                None => {}
            },
            ProcessEvent::End | ProcessEvent::Die => {
                if event == ProcessEvent::End {
                    // What was to happen in a sleep of its host happens soon after that.
                    self.proceed(id, ProcessEvent::Effect);
                }
                self.processes[id].alive = false;
                self.sites[process.site].starts.retain(|start| *start != id);
                if process.command == Command::Start && process.dying.is_some() {
                    self.sites[process.site].start_died_at = self.now;
                }
                let wait = self.late();
                let (command, site) = (process.command, process.site);
                self.note(Some(site), || {
                    let how = match event {
                        ProcessEvent::Die => "is killed",
                        _ if process.succeeds => "succeeds",
                        _ => "fails",
                    };
                    format!("{} {how}", command.name())
                });
                let what = match process.owner {
                    Owner::Life(life) => {
                        for guard in self.sites[site].guards.clone() {
                            if command == Command::Stop
                                || self.guards[guard].dying == Dying::Start(id)
                            {
                                self.after(wait, Happening::Guard(guard, GuardEvent::Look));
                            }
                        }
                        // Another life waits for a start of the one before.
                        let mut lives = self.sites.iter().filter_map(|site| site.life);
                        let knows = |life: &Life| life.alive && life.sentinel.knows(id);
                        let heir = lives.find(|life| knows(&self.lives[*life]));
                        Happening::Life(heir.unwrap_or(life), LifeEvent::Exited(id))
                    }
                    Owner::Guard(guard) => Happening::Guard(guard, GuardEvent::Exited),
                };
                self.after(wait, what);
            }
        }
    }

    /// Kills a command with all that belongs to it; that takes a moment.
    pub fn kill_process(&mut self, id: usize) {
        let Process {
            alive,
            dying,
            command,
            ..
        } = self.processes[id];
        if !alive || dying.is_some() {
            return;
        }
        self.processes[id].dying = Some(self.now);
        let mut wait = self.late();
        if command == Command::Start {
            self.count(Sometimes::StartKilled);
            if self.strikes(Kind::StartStuck) {
                let long = self.chance.below(8) == 0;
                let most = if long { STUCK_LONG } else { STUCK_MAX };
                wait += self.chance.below(most);
                self.processes[id].stuck = Some(self.now + wait);
            }
        }
        self.step(Step::Killed);
        self.after(wait, Happening::Process(id, ProcessEvent::Die));
    }

    /// Returns how a command ended, for who waited for it.
    pub fn outcome(&self, id: usize, killed: bool) -> Outcome {
        match self.processes[id].succeeds {
            _ if killed => Outcome::Overran,
            true => Outcome::Succeeded,
            false => Outcome::Failed("1".to_owned()),
        }
    }

    /// Commands work again: what hangs, ends.
    pub fn end_hanging(&mut self) {
        for id in 0..self.processes.len() {
            let process = &self.processes[id];
            if process.alive && process.hangs {
                self.after(MS, Happening::Process(id, ProcessEvent::End));
            }
        }
    }

    /// Of a start know the life that ran it and the guards that served that life, and
    /// nobody else once they are dead.
    pub fn stray_starts(&mut self, site: usize) {
        for id in self.sites[site].starts.clone() {
            if let Owner::Life(life) = self.processes[id].owner {
                let known = self.lives[life].alive || self.guard_knows(life);
                self.processes[id].stray |= !known;
            }
        }
    }

    /// Nobody is left who could see to the starts that are under way on a site.
    pub fn abandon_starts(&mut self, site: usize) {
        for id in &self.sites[site].starts {
            self.processes[*id].stray = true;
        }
        if let Some(id) = self.sites[site].life
            && let Some(spawning) = &mut self.lives[id].spawning
        {
            spawning.stray = spawning.is_start();
        }
    }

    /// Whether a start is under way that may yet bring the service up, for all that an agent
    /// knows.
    pub fn starting(&self, site: usize) -> bool {
        let mut starts = self.sites[site].starts.iter();
        starts.any(|id| !self.processes[*id].stray)
    }

    /// Whether the service is up, or may yet come up.
    pub fn may_run(&self, site: usize) -> bool {
        let life = self.sites[site].life.map(|id| &self.lives[id]);
        let spawning = life.and_then(|life| life.spawning.as_ref());
        let spawning = spawning.is_some_and(Spawning::is_start);
        self.sites[site].up || self.starting(site) || spawning
    }

    /// All that start left behind is killed, with the service in it.
    pub fn kill_service(&mut self, site: usize) {
        if !self.sc.sites[site].cages {
            return;
        }
        for id in self.sites[site].starts.clone() {
            self.kill_process(id);
            // All that is in a control group is killed at once, and what that forks.
            if self.processes[id].stuck.is_none() {
                self.processes[id].effect = None;
            }
        }
        self.service_down(site);
    }
}

/// Returns when a process of a dead host would have to be looked at: never.
pub const fn never() -> True {
    True::MAX / 4
}

/// The instant before every other: a deadline that has passed.
pub const BEFORE: Instant = Instant::from_boot(Duration::ZERO);
