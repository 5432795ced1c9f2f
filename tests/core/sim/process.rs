//! The operator's commands as processes, and the service that they start and stop.
//!
//! What a command comes to is drawn when it begins. A start brings the service up at
//! some instant of its run, a stop takes it down; one that is killed before has no
//! effect, one that is killed after has had it. Start and stop are idempotent.

use std::time::Duration;

use putex::core::command::{Command, Outcome};
use putex::core::time::Instant;

use super::agent::AgentEvent;
use super::clock::{MS, True, nanos};
use super::counters::Sometimes;
use super::faults::Kind;
use super::guard::GuardEvent;
use super::scenario::Step;
use super::world::{Happening, World};

/// The process that runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Agent(usize),
    Guard(usize),
}

/// A command that runs, or has run.
#[derive(Clone, Debug)]
pub struct Process {
    pub site: usize,
    pub command: Command,
    owner: Owner,
    pub alive: bool,
    /// When it began; until then it waits.
    began_at: True,
    pub begun: bool,
    /// A process that start left behind, out of its process group.
    pub escaped: bool,
    /// When it was killed, if it was.
    pub dying: Option<True>,
    /// The kernel cannot end it at once, but then.
    stuck: Option<True>,
    /// The effect on the service that is still to come: true for up.
    pub effect: Option<bool>,
    /// So long after its end a process that it left behind brings the service up.
    pub escape: Option<u64>,
    /// A start was alive when it began.
    beside_start: bool,
    succeeds: bool,
    hangs: bool,
}

impl Process {
    pub fn is_stuck(&self) -> bool {
        self.stuck.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// The effect on the service happens.
    Effect,
    /// The command ends by itself.
    End,
    /// A kill has taken effect.
    Die,
}

/// How long it takes the kernel, at the longest, to end a start that was killed, as a rule
/// and seldom.
const STUCK_MAX: u64 = 300 * MS;
const STUCK_LONG: u64 = 10_000 * MS;

/// The fate of a command.
struct Fate {
    effect: Option<(u64, bool)>,
    end: Option<u64>,
    succeeds: bool,
}

impl World<'_> {
    /// A process that waits until it may begin.
    pub fn new_process(&mut self, site: usize, command: Command, owner: Owner) -> usize {
        let id = self.processes.len();
        self.processes.push(Process {
            site,
            command,
            owner,
            alive: true,
            began_at: self.now,
            begun: false,
            escaped: false,
            dying: None,
            stuck: None,
            effect: None,
            escape: None,
            beside_start: false,
            succeeds: false,
            hangs: false,
        });
        id
    }

    /// Lets a command begin that is to be killed at `deadline`.
    pub fn begin_process(&mut self, id: usize, deadline: Instant) {
        let Process { site, command, dying, .. } = self.processes[id];
        if dying.is_some() {
            return;
        }
        let left = self.host(site).clock.when(deadline);
        let left = left.saturating_sub(self.now);
        let beside = !self.sites[site].starts.is_empty();
        let fate = match command {
            Command::Check | Command::OnChange => self.check_fate(site),
            Command::Start => self.start_fate(site),
            Command::Stop => self.stop_fate(site, left),
            Command::LastResort => self.resort_fate(site),
        };
        let mut escape = None;
        if command == Command::Start && self.strikes(Kind::StartEscape) {
            let t = nanos(self.sites[site].timing.lock_time());
            escape = Some(self.rng(Kind::StartEscape).below(t));
        }
        let process = &mut self.processes[id];
        process.begun = true;
        process.began_at = self.now;
        process.effect = fate.effect.map(|(_, up)| up);
        process.escape = escape;
        process.beside_start = beside;
        process.succeeds = fate.succeeds;
        process.hangs = fate.end.is_none();
        if let Some((wait, _)) = fate.effect {
            self.after(wait, Happening::Process(id, ProcessEvent::Effect));
        }
        if let Some(wait) = fate.end {
            self.after(wait, Happening::Process(id, ProcessEvent::End));
        }
        match command {
            Command::Start => {
                self.sites[site].starts.push(id);
                self.step(Step::Start, site);
            }
            Command::Stop => {
                self.sites[site].stop_began_at = self.now;
                self.step(Step::Stop, site);
            }
            Command::LastResort => self.sites[site].stop_began_at = self.now,
            Command::Check | Command::OnChange => {}
        }
    }

    fn check_fate(&mut self, site: usize) -> Fate {
        let t = nanos(self.sites[site].timing.lock_time());
        let mut end = Some(self.chance.between(MS / 10, 4 * MS));
        if self.strikes(Kind::CheckHang) {
            end = None;
        } else if self.strikes(Kind::CheckSlow) {
            end = Some(self.chance.below(2 * t));
        }
        Fate { effect: None, end, succeeds: self.sites[site].unfit == 0 }
    }

    fn start_fate(&mut self, site: usize) -> Fate {
        let t = nanos(self.sites[site].timing.lock_time());
        let mut end = self.chance.between(MS / 10, 8 * MS);
        if self.strikes(Kind::StartSlow) {
            end = self.chance.below(3 * t);
        }
        let effect = Some((self.chance.below(end + 1), true));
        if self.strikes(Kind::StartHang) {
            let works = self.chance.chance(500);
            return Fate { effect: effect.filter(|_| works), end: None, succeeds: false };
        }
        if self.strikes(Kind::StartFail) {
            let works = self.chance.chance(300);
            return Fate { effect: effect.filter(|_| works), end: Some(end), succeeds: false };
        }
        Fate { effect, end: Some(end), succeeds: true }
    }

    /// A stop that keeps to the rules ends before its deadline, of which it is told.
    fn stop_fate(&mut self, site: usize, left: u64) -> Fate {
        if self.strikes(Kind::StopLie) {
            self.sites[site].excuse.lied |= self.sites[site].up;
            return Fate { effect: None, end: Some(MS), succeeds: true };
        }
        let hangs = self.strikes(Kind::StopHang);
        if hangs || self.strikes(Kind::StopFail) {
            self.stop_fails(site, Command::Stop);
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
        let t = nanos(self.sites[site].timing.lock_time());
        let end = if self.strikes(Kind::StopEdge) && edge < 8 * t {
            edge.max(MS / 10)
        } else {
            quick.min(left / 2).max(MS / 20)
        };
        let early = self.chance.below(4) == 0;
        let effect = if early { end / 2 } else { end };
        Fate { effect: Some((effect, false)), end: Some(end), succeeds: true }
    }

    /// A last resort that works is quick: a power switch.
    fn resort_fate(&mut self, site: usize) -> Fate {
        self.count(Sometimes::LastResort);
        if self.strikes(Kind::ResortFail) {
            self.stop_fails(site, Command::LastResort);
            let hangs = self.chance.chance(500);
            return Fate { effect: None, end: (!hangs).then_some(MS), succeeds: false };
        }
        Fate { effect: Some((MS / 5, false)), end: Some(MS / 2), succeeds: true }
    }

    pub fn proceed(&mut self, id: usize, event: ProcessEvent) {
        let process = self.processes[id].clone();
        match event {
            ProcessEvent::Effect => match self.processes[id].effect.take() {
                Some(true) => {
                    self.on_start_works(&process);
                    self.service_up(process.site);
                    if process.escaped {
                        self.proceed(id, ProcessEvent::Die);
                    }
                }
                Some(false) => self.service_down(process.site),
                None => {}
            },
            ProcessEvent::End | ProcessEvent::Die => {
                if event == ProcessEvent::End {
                    // An effect that was due in a sleep of its host happens soon after that.
                    self.proceed(id, ProcessEvent::Effect);
                    self.on_end(&process);
                }
                let (command, site) = (process.command, process.site);
                self.note(Some(site), || {
                    let how = match event {
                        ProcessEvent::Die => "is killed",
                        _ if process.succeeds => "succeeds",
                        _ => "fails",
                    };
                    format!("{} {how}", command.name())
                });
                self.end_process(id);
                self.tell_ended(id);
            }
        }
    }

    fn on_end(&mut self, process: &Process) {
        if process.command == Command::Stop && process.succeeds && process.dying.is_none() {
            self.sites[process.site].stopped |= !process.beside_start;
            self.step(Step::Stopped, process.site);
        }
    }

    /// The process is gone. Processes that it left behind go on.
    pub fn end_process(&mut self, id: usize) {
        let Process { site, command, .. } = self.processes[id];
        self.processes[id].alive = false;
        self.sites[site].starts.retain(|start| *start != id);
        self.sites[site].escaped.retain(|escaped| *escaped != id);
        if command == Command::Start && self.processes[id].dying.is_some() {
            self.sites[site].start_died_at = self.now;
        }
        if let Some(wait) = self.processes[id].escape.take() {
            self.count(Sometimes::Escaped);
            let left = self.processes.len();
            self.processes.push(Process {
                alive: true,
                escaped: true,
                dying: None,
                stuck: None,
                effect: Some(true),
                ..self.processes[id].clone()
            });
            self.sites[site].escaped.push(left);
            self.after(wait, Happening::Process(left, ProcessEvent::Effect));
        }
        self.tell_empty(site);
    }

    /// Reports the end of a process to its owner.
    fn tell_ended(&mut self, id: usize) {
        let Process { site, owner, escaped, .. } = self.processes[id];
        if escaped {
            return;
        }
        let wait = self.late();
        match owner {
            Owner::Agent(agent) => {
                self.after(wait, Happening::Agent(agent, AgentEvent::CheckEnded(id)));
            }
            Owner::Guard(guard) => {
                let heirs = self.sites[site].guards.clone().into_iter();
                let waits = |heir: &usize| self.guards[*heir].inherited == Some(id);
                let all: Vec<usize> = heirs.filter(waits).chain([guard]).collect();
                for guard in all {
                    self.after(wait, Happening::Guard(guard, GuardEvent::Ended(id)));
                }
            }
        }
    }

    /// Kills a command with its process group; that takes a moment.
    pub fn kill_process(&mut self, id: usize) {
        let Process { alive, dying, command, escaped, .. } = self.processes[id];
        if !alive || dying.is_some() {
            return;
        }
        self.processes[id].dying = Some(self.now);
        let mut wait = self.late();
        if command == Command::Start && !escaped {
            self.count(Sometimes::StartKilled);
            if self.processes[id].begun && self.strikes(Kind::StartStuck) {
                let long = self.chance.below(8) == 0;
                let most = if long { STUCK_LONG } else { STUCK_MAX };
                wait += self.chance.below(most);
                self.processes[id].stuck = Some(self.now + wait);
            }
        }
        self.step(Step::Killed, self.processes[id].site);
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

    /// Commands work again. A start that hangs has no deadline while the lock is renewed: it
    /// ends. All others are killed in time.
    pub fn end_hanging(&mut self) {
        for id in 0..self.processes.len() {
            let process = &self.processes[id];
            if process.alive && process.hangs && process.command == Command::Start {
                self.after(MS, Happening::Process(id, ProcessEvent::End));
            }
        }
    }

    /// A start brings the service up.
    fn on_start_works(&mut self, process: &Process) {
        let site = process.site;
        // After a start that dies so late that stop has no time, stop is run again, or the last
        // resort is.
        let by = self.dead_by_own(site).min(self.dead_by(site)).unwrap_or(0);
        let said = self.sites[site].late_said_at.is_some();
        let late = process.stuck.filter(|died| said || died + 20 * MS > by);
        let turn = self.stop_turn(site);
        // A stop that is still being spawned comes to nothing beside this start. The control group
        // was killed before, and the excuse for its spawn ended with the service.
        let stop_is_spawned = |guard: &usize| {
            let stop = self.guards[*guard].tasks[Command::Stop as usize].as_ref();
            stop.is_some_and(|stop| stop.process.is_none())
        };
        let stop_hangs = self.sites[site].guards.iter().any(stop_is_spawned);
        let place = &mut self.sites[site];
        place.excuse.stop_failed |= late.is_some() && stop_hangs;
        let stopped = place.stop_began_at > process.began_at;
        place.excuse.escaped |= process.escaped && stopped;
        place.excuse.stuck |= late.is_some();
        let until = &mut place.excuse.until;
        // In a sleep of its host it does not die: then it works, and dies, after that.
        *until = (*until).max(late.map_or(0, |died| died.max(self.now) + turn));
        // Without a guard nobody stops it in that time: guard and agent are dead.
        if late.is_some() && place.away_since.is_some() {
            place.excused_until = place.excused_until.max(*until);
        }
    }

    /// Whether a start is under way.
    pub fn starting(&self, site: usize) -> bool {
        !self.sites[site].starts.is_empty()
    }

    /// Whether the service is up, or may yet come up.
    pub fn may_run(&self, site: usize) -> bool {
        let place = &self.sites[site];
        place.up || !place.starts.is_empty() || !place.escaped.is_empty()
    }

    /// Returns how long it takes at most to bring a service down that is overdue, when stop
    /// works: a stop that began beside a start is run again.
    pub fn stop_turn(&self, site: usize) -> u64 {
        let timing = self.sites[site].timing;
        let longest = timing.stop_budget().max(timing.renewal());
        let turn = 2 * nanos(longest + Duration::from_millis(50));
        turn * 5 / 4
    }
}

/// Returns when a process of a dead host would have to be looked at: never.
pub const fn never() -> True {
    True::MAX / 4
}

/// The instant before every other: a deadline that has passed.
pub const BEFORE: Instant = Instant::from_boot(Duration::ZERO);
