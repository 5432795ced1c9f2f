//! The child thread and the watchdog thread of an agent, and its line to the guard:
//! what `src/agent/children.rs`, `watchdog.rs` and `sentinel.rs` do.

use std::time::Duration;

use putex::core::command::{Command, LockContext, Outcome};
use putex::core::event::{Event, Sentry};
use putex::core::guard::Watch;
use putex::core::time::Instant;

use super::agent::LifeEvent;
use super::clock::True;
use super::counters::Sometimes;
use super::guard::{Says, Word};
use super::process::{BEFORE, Owner, never};
use super::scenario::Step;
use super::world::{Happening, World};

/// What the pump wants of the child thread.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    Run(Command, Instant),
    /// There is something that the guard has to know.
    Wishes,
    /// The agent ends; although the service may run, if so.
    End(bool),
}

/// What the pump wants of the guard: of several words the last counts.
#[derive(Debug, Default)]
pub struct Wishes {
    pub tell: Option<(Watch, LockContext)>,
    pub replace: bool,
    pub kill_service: bool,
}

/// The watchdog's slot of one command.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub deadline: Instant,
    process: Option<usize>,
    killed: bool,
    /// When the watchdog looks at it next.
    due: True,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot {
            deadline: BEFORE,
            process: None,
            killed: false,
            due: never(),
        }
    }
}

/// Shortest and longest pause before a guard is started again.
const AGAIN_MIN: Duration = Duration::from_millis(20);
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// A command that the child thread is about to begin.
pub struct Spawning {
    command: Command,
    deadline: Instant,
    /// It is a start that nobody was left to know of.
    pub stray: bool,
}

impl Spawning {
    pub fn is_start(&self) -> bool {
        self.command == Command::Start
    }
}

/// The agent's end of its guard.
pub struct Sentinel {
    line: Option<(usize, Instant)>,
    pause: Duration,
    start_at: Instant,
    /// What the guard was told last; another is told at once.
    pub watch: Option<Watch>,
    under: LockContext,
    groups: [Option<usize>; 4],
}

impl Sentinel {
    pub fn new(now: Instant) -> Sentinel {
        Sentinel {
            line: None,
            pause: AGAIN_MIN,
            start_at: now,
            watch: None,
            under: LockContext::default(),
            groups: [None; 4],
        }
    }

    pub fn line(&self) -> Option<usize> {
        self.line.map(|(guard, _)| guard)
    }

    pub fn has_line(&self) -> bool {
        self.line.is_some()
    }

    /// The guard of a life before is this one's now.
    pub fn take_over(
        &mut self,
        guard: usize,
        watch: Watch,
        under: LockContext,
        start: Option<usize>,
    ) {
        self.line = Some((guard, self.start_at));
        self.groups[Command::Start as usize] = start;
        self.watch = Some(watch);
        self.under = under;
    }

    /// Whether it told the guard of this start.
    pub fn knows(&self, start: usize) -> bool {
        self.groups[Command::Start as usize] == Some(start)
    }

    pub fn started_at(&mut self, now: Instant) {
        self.start_at = now;
        if let Some((_, since)) = &mut self.line {
            *since = now;
        }
    }
}

impl World<'_> {
    pub fn carry_out(&mut self, id: usize, order: Order) {
        self.spawn_held(id);
        self.say_stop_begins(id);
        self.fulfil_wishes(id);
        match order {
            Order::Wishes => {}
            Order::Run(command, deadline) => self.start_command(id, command, deadline),
            Order::End(given_up) => {
                if given_up {
                    self.send(id, Word::GivenUp);
                }
                return self.end_life(id);
            }
        }
        self.ensure_guard(id);
    }

    /// Tells the guard what it has to know by now, before the next order.
    fn fulfil_wishes(&mut self, id: usize) {
        let wishes = std::mem::take(&mut self.lives[id].wishes);
        if let Some((watch, under)) = wishes.tell {
            self.lives[id].sentinel.watch = Some(watch);
            self.lives[id].sentinel.under = under.clone();
            self.send(id, Word::Watch(watch, under));
        }
        if wishes.kill_service {
            self.send(id, Word::KillService);
            if self.lives[id].sentinel.line.is_none() {
                self.cage_kill(self.lives[id].site);
            }
        }
        if wishes.replace && self.lives[id].sentinel.line.is_some() {
            self.lost_guard(id);
        }
    }

    /// What comes too late to be allowed is not begun; a stop is never too late.
    fn start_command(&mut self, id: usize, command: Command, deadline: Instant) {
        let endless = matches!(command, Command::Stop | Command::LastResort);
        if !endless && self.is_over(id, command) {
            return self.tell(id, Event::Ended(command, Outcome::Overran));
        }
        let step = match command {
            Command::Start => Step::Spawn,
            Command::Stop => Step::SpawnStop,
            Command::Check | Command::LastResort => {
                return self.begin_command(id, command, deadline);
            }
        };
        if command == Command::Start {
            self.knows_of_start(id);
        }
        // What it looked at can have changed when it goes on.
        self.step(step);
        self.lives[id].spawning = Some(Spawning {
            command,
            deadline,
            stray: false,
        });
        self.after(1, Happening::Life(id, LifeEvent::Spawn));
    }

    /// The child thread does one thing after the other.
    pub fn spawn_held(&mut self, id: usize) {
        if let Some(spawning) = self.lives[id].spawning.take() {
            let begun = self.processes.len();
            self.begin_command(id, spawning.command, spawning.deadline);
            for process in &mut self.processes[begun..] {
                process.stray = spawning.stray;
            }
        }
    }

    pub fn begin_command(&mut self, id: usize, command: Command, deadline: Instant) {
        let site = self.lives[id].site;
        let line = self.lives[id].sentinel.line();
        if command == Command::Start && !line.is_some_and(|guard| self.guards[guard].alive) {
            // Nobody would know of it, should this agent die now.
            self.send(id, Word::Group(command, 0));
            self.count(Sometimes::StartUnknown);
            let failed = Outcome::Failed("killed by signal 9".to_owned());
            return self.tell(id, Event::Ended(command, failed));
        }
        let process = self.run_command(site, command, Owner::Life(id), deadline);
        self.note(Some(site), || format!("{} begins", command.name()));
        let slot = &mut self.lives[id].slots[command as usize];
        slot.process = Some(process);
        slot.killed = false;
        self.watch_slot(id, command);
        if command != Command::Check {
            self.lives[id].sentinel.groups[command as usize] = Some(process);
            self.send(id, Word::Group(command, process));
        }
        if command == Command::Stop {
            // It runs already when its agent gets to say so.
            self.lives[id].stop_began = true;
            let wait = self.late();
            self.after(wait, Happening::Life(id, LifeEvent::StopBegan));
        }
    }

    pub fn say_stop_begins(&mut self, id: usize) {
        if std::mem::take(&mut self.lives[id].stop_began) {
            self.send(id, Word::StopBegins);
        }
    }

    /// Sets a command's deadline, whether it runs already or is about to.
    pub fn arm(&mut self, id: usize, command: Command, deadline: Instant) {
        self.lives[id].slots[command as usize].deadline = deadline;
        self.watch_slot(id, command);
    }

    fn watch_slot(&mut self, id: usize, command: Command) {
        let life = &self.lives[id];
        let slot = life.slots[command as usize];
        if slot.process.is_none() {
            return;
        }
        let when = self.host(life.site).clock.when(slot.deadline).max(self.now);
        if when < slot.due {
            let due = when + self.late();
            self.lives[id].slots[command as usize].due = due;
            self.at(due, Happening::Life(id, LifeEvent::KillDue(command)));
        }
    }

    pub fn kill_due(&mut self, id: usize, command: Command) {
        self.lives[id].slots[command as usize].due = never();
        if self.lives[id].slots[command as usize].process.is_none() {
            return;
        }
        if self.is_over(id, command) {
            self.kill_slot(id, command);
        } else {
            self.watch_slot(id, command);
        }
    }

    /// Kills a command now, or as soon as it runs.
    pub fn kill_command(&mut self, id: usize, command: Command) {
        self.lives[id].slots[command as usize].deadline = BEFORE;
        self.kill_slot(id, command);
    }

    fn kill_slot(&mut self, id: usize, command: Command) {
        let slot = &mut self.lives[id].slots[command as usize];
        if let Some(process) = slot.process {
            slot.killed = true;
            self.kill_process(process);
        }
    }

    /// A command has ended.
    pub fn reap(&mut self, id: usize, process: usize) {
        let command = self.processes[process].command;
        let life = &mut self.lives[id];
        let slot = &mut life.slots[command as usize];
        let group = &mut life.sentinel.groups[command as usize];
        let outcome = if slot.process == Some(process) {
            slot.process = None;
            let killed = slot.killed;
            self.outcome(process, killed)
        } else if slot.process.is_none() && *group == Some(process) {
            // The start of the life before.
            Outcome::Failed("killed".to_owned())
        } else {
            return;
        };
        self.lives[id].sentinel.groups[command as usize] = None;
        self.tell(id, Event::Ended(command, outcome));
    }

    /// Starts a guard when there is none and it is time, and tells it all at once.
    pub fn ensure_guard(&mut self, id: usize) {
        let site = self.lives[id].site;
        let now = self.clock(site);
        let sentinel = &self.lives[id].sentinel;
        if sentinel.line.is_some() || self.lives[id].pump.is_none() {
            return;
        }
        if now < sentinel.start_at {
            return;
        }
        let (watch, under) = (sentinel.watch, sentinel.under.clone());
        let groups = sentinel.groups;
        let guard = self.spawn_guard(site, id);
        self.lives[id].sentinel.line = Some((guard, now));
        self.mail(guard, Word::SetUp);
        if let Some(watch) = watch {
            self.mail(guard, Word::Watch(watch, under));
        }
        for (command, group) in Command::ALL.into_iter().zip(groups) {
            if let Some(process) = group {
                self.mail(guard, Word::Group(command, process));
            }
        }
    }

    pub fn greet_guard(&mut self, id: usize) {
        self.send(id, Word::SetUp);
    }

    /// Sends without waiting. A guard that has ended takes nothing in.
    fn send(&mut self, id: usize, word: Word) {
        if let Some(guard) = self.lives[id].sentinel.line() {
            if self.guards[guard].alive {
                self.mail(guard, word);
            } else {
                self.lost_guard(id);
            }
        }
    }

    pub fn heed_guard(&mut self, id: usize, guard: usize, says: Says) {
        if self.lives[id].sentinel.line() != Some(guard) {
            return;
        }
        match says {
            Says::Ready(..) => {
                self.write_down(id, guard);
                self.tell(id, Event::Guard(Sentry::Ready));
            }
            Says::Armed => self.tell(id, Event::Guard(Sentry::Armed)),
            Says::Unfit => self.tell(id, Event::Guard(Sentry::Unfit("1".to_owned()))),
            Says::Acting(_) => {}
            Says::Ended => self.lost_guard(id),
        }
        self.ensure_guard(id);
    }

    /// The next life of this agent finds the guard by its name.
    fn write_down(&mut self, id: usize, guard: usize) {
        let site = self.lives[id].site;
        let token = &self.sc.sites[site].token;
        let files = &mut self.hosts[self.sc.sites[site].host].files;
        if let Some((_, file)) = files.iter_mut().find(|(name, _)| name == token)
            && file.locked_by == Some(id)
        {
            file.guard = Some(guard);
        }
    }

    /// Makes an end of a guard that is gone or as good as gone.
    fn lost_guard(&mut self, id: usize) {
        let site = self.lives[id].site;
        let now = self.clock(site);
        let sentinel = &mut self.lives[id].sentinel;
        let Some((guard, since)) = sentinel.line.take() else {
            return;
        };
        if now.since(since) > AGAIN_MAX {
            sentinel.pause = AGAIN_MIN;
            sentinel.start_at = now;
        } else {
            sentinel.start_at = now.after(sentinel.pause);
            sentinel.pause = (sentinel.pause * 2).min(AGAIN_MAX);
        }
        let start_at = sentinel.start_at;
        self.count(Sometimes::GuardReplaced);
        self.kill_guard(guard);
        self.tell(id, Event::Guard(Sentry::Lost("1".to_owned())));
        let at = self.wake(site, start_at);
        self.at(at, Happening::Life(id, LifeEvent::GuardDue));
    }
}
