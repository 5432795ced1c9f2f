//! The guard process: the shipped mind, and what `src/guard` does for it.

use std::collections::VecDeque;

use putex::core::command::{Command, LockContext, MAY_STILL_RUN, Outcome};
use putex::core::guard::{Act, Guard, News, Watch};
use putex::core::time::Instant;

use super::agent::LifeEvent;
use super::clock::True;
use super::counters::Sometimes;
use super::process::{Owner, never};
use super::world::{Happening, World, begin_time};

/// What is said to a guard, and what it notices. It waits in a socket.
#[derive(Clone, Debug)]
pub enum Word {
    SetUp,
    Watch(Watch, LockContext),
    Group(Command, usize),
    StopBegins,
    KillService,
    GivenUp,
    /// That life's end of the socket is closed.
    Gone(usize),
    /// That life asks to be let in.
    Call(usize),
}

/// What a guard says to its agent.
#[derive(Clone, Debug)]
pub enum Says {
    /// With the start of a life before that was killed and has not ended.
    Ready(Watch, Box<LockContext>, Option<usize>),
    Acting(Watch),
    Armed,
    Unfit,
    /// Its end of the socket is closed.
    Ended,
}

#[derive(Clone, Copy, Debug)]
pub enum GuardEvent {
    Begin,
    /// There is something to look at.
    Look,
    Due,
    Exited,
}

impl GuardEvent {
    pub fn number(self) -> u64 {
        match self {
            GuardEvent::Begin => 0,
            GuardEvent::Look => 1,
            GuardEvent::Due => 2,
            GuardEvent::Exited => 3,
        }
    }
}

/// What became of the start that was killed: there was none, it dies, that was said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Dying {
    Nobody,
    Start(usize),
    Said,
}

pub struct GuardProcess {
    pub site: usize,
    pub alive: bool,
    pub stopped: bool,
    pub held: Vec<GuardEvent>,
    pub mind: Option<Guard>,
    mail: VecDeque<Word>,
    agent: Option<usize>,
    /// The lives of the agent that it has served.
    served: Vec<usize>,
    /// It was told whether the service may run.
    pub told: bool,
    /// Its agent has ended although the service may run.
    pub given_up: bool,
    /// It has run a command when no start was left.
    pub tried: bool,
    under: LockContext,
    stages: [Option<usize>; 2],
    killed: [bool; 2],
    left: [Option<usize>; 4],
    pub dying: Dying,
    wake_at: True,
}

impl GuardProcess {
    /// Whether another life of the agent can call it.
    pub fn listens(&self) -> bool {
        self.alive && self.mind.is_some()
    }
}

impl World<'_> {
    pub fn spawn_guard(&mut self, site: usize, agent: usize) -> usize {
        let id = self.guards.len();
        self.guards.push(GuardProcess {
            site,
            alive: true,
            stopped: false,
            held: Vec::new(),
            mind: None,
            mail: VecDeque::new(),
            agent: Some(agent),
            served: vec![agent],
            told: false,
            given_up: false,
            tried: false,
            under: LockContext::default(),
            stages: [None; 2],
            killed: [false; 2],
            left: [None; 4],
            dying: Dying::Said,
            wake_at: never(),
        });
        self.sites[site].guards.push(id);
        let wait = begin_time(&mut self.chance);
        self.after(wait, Happening::Guard(id, GuardEvent::Begin));
        id
    }

    /// Puts a word into the socket of a guard and wakes it.
    pub fn mail(&mut self, id: usize, word: Word) {
        if !self.guards[id].alive {
            if let Word::Call(life) = word {
                self.say(id, life, Says::Ended);
            }
            return;
        }
        self.guards[id].mail.push_back(word);
        let wait = self.late();
        self.after(wait, Happening::Guard(id, GuardEvent::Look));
    }

    /// Says something to a life, wherever it waits for it.
    fn say(&mut self, id: usize, life: usize, says: Says) {
        let wait = self.late();
        let event = if self.lives[life].pump.is_none() {
            LifeEvent::Inherit(id, says)
        } else {
            LifeEvent::GuardSays(id, says)
        };
        self.after(wait, Happening::Life(life, event));
    }

    pub fn keep_guard(&mut self, id: usize, event: GuardEvent) {
        match event {
            GuardEvent::Begin => {
                let setup = &self.sc.sites[self.guards[id].site];
                let mind = Guard::new(setup.timing, setup.resort, setup.device.is_some());
                self.guards[id].mind = Some(mind);
            }
            GuardEvent::Look | GuardEvent::Due | GuardEvent::Exited => {}
        }
        if let GuardEvent::Due = event {
            if self.now < self.guards[id].wake_at {
                // An earlier one took its place.
                return;
            }
            self.guards[id].wake_at = never();
        }
        if self.guards[id].mind.is_none() {
            return;
        }
        // One thread does it all, and looks at all that is there.
        for at in 0..2 {
            if let Some(process) = self.guards[id].stages[at]
                && !self.processes[process].alive
            {
                self.guard_reaps(id, process);
            }
        }
        if self.agents_stop_ended(id) {
            self.guards[id].left[Command::Stop as usize] = None;
            self.guard_hears(id, News::AgentsStopEnded);
        }
        self.read_mail(id);
        self.look_for_start(id);
        if self.agents_stop_ended(id) {
            // Heard of only now: it looks again at once.
            self.after(1, Happening::Guard(id, GuardEvent::Look));
        }
        self.guard_hears(id, News::Tick);
        if self.look_for_start(id) {
            self.guard_hears(id, News::Tick);
        }
        self.wake_guard(id);
    }

    /// Says, once after it was killed, what became of the start that was there.
    fn look_for_start(&mut self, id: usize) -> bool {
        let news = match self.guards[id].dying {
            Dying::Start(start) if !self.processes[start].alive => News::StartGone,
            Dying::Nobody => News::NoStart,
            Dying::Start(_) | Dying::Said => return false,
        };
        self.guards[id].dying = Dying::Said;
        self.guard_hears(id, news);
        true
    }

    fn agents_stop_ended(&self, id: usize) -> bool {
        let stop = self.guards[id].left[Command::Stop as usize];
        stop.is_some_and(|stop| !self.processes[stop].alive)
    }

    fn wake_guard(&mut self, id: usize) {
        let guard = &self.guards[id];
        let deadline = guard.mind.as_ref().and_then(Guard::deadline);
        let Some(deadline) = deadline.filter(|_| guard.alive) else {
            return;
        };
        let earliest = self.host(guard.site).clock.when(deadline).max(self.now);
        if earliest < guard.wake_at {
            let at = earliest + self.late();
            self.guards[id].wake_at = at;
            self.at(at, Happening::Guard(id, GuardEvent::Due));
        }
    }

    /// Takes in all that the agent has said, then whoever wants to be let in.
    fn read_mail(&mut self, id: usize) {
        let mut callers = Vec::new();
        while self.guards[id].alive {
            let Some(word) = self.guards[id].mail.pop_front() else {
                break;
            };
            match word {
                Word::Call(life) => callers.push((life, false)),
                Word::Gone(life) if self.guards[id].agent == Some(life) => {
                    self.guards[id].agent = None;
                    self.guard_hears(id, News::AgentGone);
                }
                Word::Gone(life) => {
                    let caller = callers.iter_mut().find(|(caller, _)| *caller == life);
                    if let Some((_, gone)) = caller {
                        *gone = true;
                    }
                }
                Word::SetUp => self.set_up(id),
                Word::Watch(watch, under) => {
                    self.guards[id].under = under;
                    self.guards[id].told = true;
                    self.guard_hears(id, News::Told(watch));
                }
                Word::Group(command, process) => {
                    self.guards[id].left[command as usize] = Some(process);
                }
                // One that was seen to end was quick.
                Word::StopBegins if self.guards[id].left[Command::Stop as usize].is_none() => {}
                Word::StopBegins => self.guard_hears(id, News::AgentsStopBegan),
                Word::KillService => self.cage_kill(self.guards[id].site),
                Word::GivenUp => {
                    self.guards[id].given_up = true;
                    self.guard_hears(id, News::GivenUp);
                }
            }
        }
        for (life, gone) in callers {
            self.let_in(id, life);
            if gone && self.guards[id].agent == Some(life) {
                self.guards[id].agent = None;
                self.guard_hears(id, News::AgentGone);
            }
        }
    }

    /// It is set up by its agent, at first or by another life of it.
    fn set_up(&mut self, id: usize) {
        let site = self.guards[id].site;
        let setup = &self.sc.sites[site];
        let Some(mind) = &mut self.guards[id].mind else {
            return;
        };
        mind.set_up(setup.timing, setup.resort, setup.device.is_some());
        self.greet(id);
    }

    fn let_in(&mut self, id: usize, life: usize) {
        if self.guards[id].agent.is_some() || !self.guards[id].alive {
            return self.say(id, life, Says::Ended);
        }
        self.guards[id].agent = Some(life);
        self.guards[id].served.push(life);
        self.guard_hears(id, News::AgentBack);
        self.greet(id);
    }

    /// Says what is watched here, with the start that dies.
    fn greet(&mut self, id: usize) {
        let Some(mind) = &self.guards[id].mind else {
            return;
        };
        let watch = mind.watch();
        let start = match self.guards[id].dying {
            Dying::Start(start) => Some(start),
            Dying::Nobody | Dying::Said => None,
        };
        let says = if mind.acting() {
            Says::Acting(watch)
        } else {
            Says::Ready(watch, Box::new(self.guards[id].under.clone()), start)
        };
        self.answer(id, says);
    }

    fn answer(&mut self, id: usize, says: Says) {
        if let Some(life) = self.guards[id].agent {
            self.say(id, life, says);
        }
    }

    fn guard_reaps(&mut self, id: usize, process: usize) {
        let command = self.processes[process].command;
        let at = usize::from(command == Command::LastResort);
        if self.guards[id].stages[at] != Some(process) {
            return;
        }
        self.guards[id].stages[at] = None;
        let killed = std::mem::take(&mut self.guards[id].killed[at]);
        let outcome = self.outcome(process, killed);
        if command == Command::Stop && outcome == Outcome::Succeeded {
            self.sites[self.guards[id].site].stopped = true;
        }
        self.guard_hears(id, News::Ended(command, outcome));
    }

    /// Turns the mind and does what it wants.
    pub fn guard_hears(&mut self, id: usize, news: News) {
        let now = self.clock(self.guards[id].site);
        let Some(mind) = &mut self.guards[id].mind else {
            return;
        };
        let mut acts = mind.turn(news, now);
        for act in acts.drain(..) {
            if !self.guards[id].alive {
                break;
            }
            self.act(id, act, now);
        }
        if let Some(mind) = &mut self.guards[id].mind {
            mind.done(acts);
        }
    }

    fn act(&mut self, id: usize, act: Act, now: Instant) {
        let site = self.guards[id].site;
        match act {
            // One that a guard before left running does not run any more then.
            Act::Try => self.hosts[self.sc.sites[site].host].device = None,
            Act::Arm => self.arm_device(id),
            Act::Kick => {
                let at = self.now;
                if let Some(device) = self.device_of(id) {
                    device.kicked_at = at;
                }
            }
            Act::Disarm => {
                if self.device_of(id).is_some() {
                    self.hosts[self.sc.sites[site].host].device = None;
                    if let Some(mind) = &mut self.guards[id].mind {
                        mind.disarmed();
                    }
                }
            }
            Act::SayArmed => self.answer(id, Says::Armed),
            Act::SayUnfit(_) => self.answer(id, Says::Unfit),
            Act::KillAgent => {
                if let Some(life) = self.guards[id].agent {
                    self.on_kill(id, now);
                    self.count(Sometimes::SilentAgentKilled);
                    self.end_life(life);
                }
            }
            Act::KillLeft => {
                if self.guards[id].dying == Dying::Said {
                    self.guards[id].dying = Dying::Nobody;
                }
                for command in Command::ALL {
                    let Some(process) = self.guards[id].left[command as usize].take() else {
                        continue;
                    };
                    self.kill_process(process);
                    if command == Command::Start && self.processes[process].alive {
                        self.guards[id].dying = Dying::Start(process);
                    }
                }
            }
            Act::KillService => self.cage_kill(site),
            Act::Run(command, deadline) => self.guard_runs(id, command, deadline),
            Act::Kill(command) => {
                let at = usize::from(command == Command::LastResort);
                self.guards[id].killed[at] = self.guards[id].stages[at].is_some();
                if let Some(process) = self.guards[id].stages[at] {
                    self.kill_process(process);
                }
            }
            Act::Say(_, text) => {
                if text == MAY_STILL_RUN {
                    self.check_late(site);
                }
                self.note(Some(site), || text);
            }
            Act::Leave => {
                self.on_leave(id);
                self.kill_guard(id);
            }
        }
    }

    /// A word that is there to be read speaks for the agent.
    fn on_kill(&mut self, id: usize, now: Instant) {
        let site = self.guards[id].site;
        let words = self.guards[id].mail.iter().rev();
        let last = words.filter_map(|word| match word {
            Word::Watch(watch, _) => Some(*watch),
            _ => None,
        });
        if let Some(Watch::MayRun(fence)) = last.take(1).next()
            && fence.act_at > now
        {
            self.fail(
                "needless",
                format!("the guard of {site} kills an agent that renewed"),
            );
        }
    }

    fn guard_runs(&mut self, id: usize, command: Command, deadline: Instant) {
        let site = self.guards[id].site;
        let at = usize::from(command == Command::LastResort);
        if self.guards[id].stages[at].is_some() {
            self.fail("twice", format!("the guard runs {} twice", command.name()));
        }
        self.count(Sometimes::GuardActed);
        self.guards[id].killed[at] = false;
        self.guards[id].tried |= self.sites[site].starts.is_empty();
        let process = self.run_command(site, command, Owner::Guard(id), deadline);
        self.note(Some(site), || format!("the guard runs {}", command.name()));
        self.guards[id].stages[at] = Some(process);
        // Another life of the agent may wait.
        if let Some(watch) = self.guards[id].mind.as_ref().map(Guard::watch) {
            self.answer(id, Says::Acting(watch));
        }
    }

    /// The process is gone, whatever ended it. A device that it had open runs on.
    pub fn kill_guard(&mut self, id: usize) {
        let guard = &mut self.guards[id];
        if !guard.alive {
            return;
        }
        guard.alive = false;
        guard.held.clear();
        let (site, agent) = (guard.site, guard.agent);
        let mail = std::mem::take(&mut guard.mail);
        self.sites[site].guards.retain(|alive| *alive != id);
        let at = self.now;
        if let Some(device) = self.device_of(id) {
            // The kernel kicks it once more.
            device.again_at = at;
        }
        if let Some(life) = agent {
            self.say(id, life, Says::Ended);
        }
        for word in mail {
            if let Word::Call(life) = word {
                self.say(id, life, Says::Ended);
            }
        }
        self.look_after(site);
    }

    /// Whether some guard was told of what a life of its agent runs.
    pub fn guard_knows(&self, life: usize) -> bool {
        let mut guards = self.guards.iter();
        guards.any(|guard| guard.alive && guard.served.contains(&life))
    }

    /// Whether some guard of this site is there and can act.
    pub fn guard_is_well(&self, site: usize) -> bool {
        let mut guards = self.sites[site].guards.iter();
        guards.any(|id| !self.guards[*id].stopped)
    }

    pub fn cage_kill(&mut self, site: usize) {
        let wait = self.late();
        if self.sc.sites[site].cages {
            self.sites[site].killed_at = self.now + wait;
            self.after(wait, Happening::Caged(site));
        }
    }
}
