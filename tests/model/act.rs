//! What can happen in a world, and when it must.

use std::fmt;

use putex::core::command::Command;

use super::Model;
use super::cue::{End, NAMES};
use super::world::{Job, World};

/// Something that happens now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Time passes until something can happen again.
    Pass(i32),
    /// An agent begins a life; whether it knows of the one before.
    Begin { host: usize, knows: bool },
    /// A deadline of an agent has come.
    Tick { host: usize },
    /// A deadline of a guard has come.
    GuardTick { host: usize, post: usize },
    /// The store performs a request; whether the answer arrives at once.
    Perform { host: usize, answered: bool },
    /// The answer arrives.
    Answer { host: usize },
    /// The time of a request is over without an answer.
    GiveUp { host: usize },
    /// A write that was given up on is stored.
    Land { at: usize },
    /// A command ends.
    End { host: usize, job: Place, how: End },
    /// The store is in reach.
    Open { host: usize },
    /// The agent goes on.
    Thaw { host: usize },
    /// A fault: a request takes its time.
    Delay { host: usize },
    /// A fault: a command takes its time.
    Hang { host: usize, job: Place },
    /// A fault: the store is out of reach.
    Close { host: usize, performed: bool },
    /// A fault: the agent is killed.
    Kill { host: usize },
    /// A fault: the agent is stopped.
    Freeze { host: usize },
    /// A fault: the guard is killed.
    KillGuard { host: usize },
    /// The agent is told to end.
    Terminate { host: usize },
}

/// Where a command runs: in an agent, or in a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Agent(u8),
    Guard(usize, u8),
}

impl Place {
    pub(crate) fn command(self) -> Command {
        match self {
            Place::Agent(at) => Command::ALL[usize::from(at)],
            Place::Guard(_, 0) => Command::Stop,
            Place::Guard(..) => Command::LastResort,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.command().name();
        match self {
            Place::Agent(_) => f.write_str(name),
            Place::Guard(0, _) => write!(f, "the guard's {name}"),
            Place::Guard(..) => write!(f, "the older guard's {name}"),
        }
    }
}

impl Act {
    /// Returns the host that it happens on.
    fn host(self) -> Option<usize> {
        match self {
            Act::Pass(_) | Act::Land { .. } => None,
            Act::Begin { host, .. }
            | Act::Tick { host }
            | Act::GuardTick { host, .. }
            | Act::Perform { host, .. }
            | Act::Answer { host }
            | Act::GiveUp { host }
            | Act::End { host, .. }
            | Act::Open { host }
            | Act::Thaw { host }
            | Act::Delay { host }
            | Act::Hang { host, .. }
            | Act::Close { host, .. }
            | Act::Kill { host }
            | Act::Freeze { host }
            | Act::KillGuard { host }
            | Act::Terminate { host } => Some(host),
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(host) = self.host() {
            write!(f, "{}: ", NAMES[host])?;
        }
        let text = match *self {
            Act::Pass(_) => "time passes",
            Act::Begin { knows: true, .. } => "begins, and knows of the life before",
            Act::Begin { knows: false, .. } => "begins, and knows of no life before",
            Act::Tick { .. } => "a deadline has come",
            Act::GuardTick { post: 0, .. } => "a deadline of the guard has come",
            Act::GuardTick { .. } => "a deadline of the older guard has come",
            Act::Perform { answered: true, .. } => "the store performs the request and answers",
            Act::Perform { .. } => "the store performs the request, the answer is on its way",
            Act::Answer { .. } => "the answer arrives",
            Act::GiveUp { .. } => "no answer in time",
            Act::Land { .. } => "a write that was given up on reaches the store",
            Act::End { job, how, .. } => {
                return write!(f, "{job} ends: {how:?}");
            }
            Act::Open { .. } => "the store is in reach",
            Act::Thaw { .. } => "SIGCONT",
            Act::Delay { .. } => "FAULT: the request takes its time",
            Act::Hang { job, .. } => return write!(f, "FAULT: {job} takes its time"),
            Act::Close {
                performed: true, ..
            } => "FAULT: the store is cut off, having performed the request",
            Act::Close { .. } => "FAULT: the store is cut off",
            Act::Kill { .. } => "FAULT: the agent is killed",
            Act::Freeze { .. } => "FAULT: SIGSTOP",
            Act::KillGuard { .. } => "FAULT: the guard is killed",
            Act::Terminate { .. } => "FAULT: SIGTERM",
        };
        f.write_str(text)
    }
}

/// What can happen in a world. It is looked through in a fixed order, so that the
/// place of an act tells the act.
#[derive(Default)]
pub(crate) struct Acts {
    /// Time does not pass before one of these has happened.
    pub(crate) due: Vec<Act>,
    /// These may happen.
    pub(crate) free: Vec<Act>,
}

impl Acts {
    pub(crate) fn of(model: &Model, world: &World) -> Acts {
        let mut acts = Acts::default();
        for host in 0..model.agents {
            let own = Acts::of_host(model, world, host);
            // What happens to it now and what happens to the others come to the
            // same in any order: one is enough.
            if !own.due.is_empty() && keeps_to_itself(model, world, host) {
                return own;
            }
            acts.due.extend(own.due);
            acts.free.extend(own.free);
        }
        for (at, late) in world.common.late.iter().enumerate() {
            if late.is_some() {
                acts.free.push(Act::Land { at });
            }
        }
        if acts.due.is_empty() {
            acts.due.push(Act::Pass(wait(model, world)));
        }
        acts
    }

    fn of_host(model: &Model, world: &World, host: usize) -> Acts {
        let mut acts = Acts::default();
        acts.of_agent(model, world, host);
        acts.of_store(world, host);
        acts.of_commands(world, host);
        acts.of_guards(model, world, host);
        acts.lives(model, world, host);
        if world.common.faults > 0 {
            acts.faults(world, host);
        }
        acts
    }

    fn of_agent(&mut self, model: &Model, world: &World, at: usize) {
        let host = &world.hosts[at];
        if let Some(left) = host.frozen {
            let thaw = Act::Thaw { host: at };
            if left == 0 {
                self.due.push(thaw);
            } else {
                self.free.push(thaw);
            }
            return;
        }
        let Some(mind) = host.mind else { return };
        if let Some(left) = host.closed {
            let open = Act::Open { host: at };
            if left == 0 {
                self.due.push(open);
            } else {
                self.free.push(open);
            }
        }
        let deadline = model.pumps.get(mind).deadline;
        if deadline.is_some_and(|deadline| deadline <= 0) {
            self.due.push(Act::Tick { host: at });
        }
    }

    fn of_store(&mut self, world: &World, at: usize) {
        let host = &world.hosts[at];
        let (Some(ask), None) = (host.ask, host.frozen) else {
            return;
        };
        if !ask.slow {
            let answered = true;
            self.due.push(Act::Perform { host: at, answered });
            return;
        }
        if ask.answer.is_some() {
            self.free.push(Act::Answer { host: at });
        } else {
            let answered = false;
            self.free.push(Act::Perform { host: at, answered });
        }
        if ask.deadline == 0 {
            self.due.push(Act::GiveUp { host: at });
        }
    }

    fn of_commands(&mut self, world: &World, at: usize) {
        let host = &world.hosts[at];
        if host.frozen.is_some() {
            return;
        }
        for (number, job) in (0..).zip(host.jobs) {
            let Some(job) = job else { continue };
            self.of_command(at, Place::Agent(number), job);
        }
    }

    fn of_command(&mut self, host: usize, place: Place, job: Job) {
        let end = |how| Act::End {
            host,
            job: place,
            how,
        };
        if job.killed {
            self.due.push(end(End::Overran));
            return;
        }
        if !job.slow {
            self.due.push(end(End::Well));
        } else {
            self.free.push(end(End::Well));
            if place.command() == Command::Stop {
                self.free.push(end(End::Failed));
            }
        }
        if job.deadline == 0 {
            self.due.push(end(End::Overran));
        }
    }

    fn of_guards(&mut self, model: &Model, world: &World, at: usize) {
        for (number, post) in world.hosts[at].posts.iter().enumerate() {
            let Some(post) = post else { continue };
            let deadline = model.guards.get(post.mind).deadline;
            if deadline.is_some_and(|deadline| deadline <= 0) {
                let post = number;
                self.due.push(Act::GuardTick { host: at, post });
            }
            for (which, job) in (0..).zip(post.jobs) {
                let Some(job) = job else { continue };
                self.of_command(at, Place::Guard(number, which), job);
            }
        }
    }

    fn lives(&mut self, model: &Model, world: &World, at: usize) {
        let host = &world.hosts[at];
        if host.mind.is_some() || host.lives >= model.lives {
            return;
        }
        // Hosts are alike: they begin in their order.
        if host.lives == 0 && world.hosts[..at].iter().any(|host| host.lives == 0) {
            return;
        }
        let post = host.posts[0].map(|post| model.guards.get(post.mind));
        let acting = post.is_some_and(|guard| guard.mind.acting());
        if host.lives > 0 && !acting {
            let knows = true;
            self.free.push(Act::Begin { host: at, knows });
        }
        if host.posts[0].is_none() || host.posts[1].is_none() {
            let knows = false;
            self.free.push(Act::Begin { host: at, knows });
        }
    }

    fn faults(&mut self, world: &World, at: usize) {
        let host = &world.hosts[at];
        for (number, post) in host.posts.iter().enumerate() {
            let stop = post.and_then(|post| post.jobs[0]);
            if stop.is_some_and(|job| !job.slow) {
                let job = Place::Guard(number, 0);
                self.free.push(Act::Hang { host: at, job });
            }
        }
        if host.mind.is_none() {
            return;
        }
        self.free.push(Act::Kill { host: at });
        if host.frozen.is_some() {
            return;
        }
        self.free.push(Act::Freeze { host: at });
        self.free.push(Act::Terminate { host: at });
        if host.posts[0].is_some() {
            self.free.push(Act::KillGuard { host: at });
        }
        if host.ask.is_some_and(|ask| !ask.slow) {
            self.free.push(Act::Delay { host: at });
        }
        if host.closed.is_none_or(|left| left == 0) {
            let performed = false;
            self.free.push(Act::Close {
                host: at,
                performed,
            });
            if host.ask.is_some_and(|ask| ask.answer.is_none()) {
                let performed = true;
                self.free.push(Act::Close {
                    host: at,
                    performed,
                });
            }
        }
        for number in [Command::Start as u8, Command::Stop as u8] {
            let job = host.jobs[usize::from(number)];
            if job.is_some_and(|job| !job.slow && job.deadline > 0) {
                let job = Place::Agent(number);
                self.free.push(Act::Hang { host: at, job });
            }
        }
    }
}

/// Whether nothing that can happen to a host now touches the key or a service: its
/// agent waits, asks for nothing, and its service is down.
fn keeps_to_itself(model: &Model, world: &World, at: usize) -> bool {
    let host = &world.hosts[at];
    let state = host.mind.map(|mind| model.pumps.get(mind).mind.state());
    let waits = state == Some("standby") && host.closed.is_none();
    waits && host.ask.is_none() && !host.up
}

/// Returns how long nothing has to happen.
fn wait(model: &Model, world: &World) -> i32 {
    let mut wait = world.common.to_grid;
    for host in &world.hosts {
        let mut earliest = |at: Option<i32>| wait = at.map_or(wait, |at| wait.min(at));
        earliest(host.frozen);
        for post in host.posts.iter().flatten() {
            earliest(model.guards.get(post.mind).deadline);
            for job in post.jobs.iter().flatten() {
                earliest(Some(job.deadline));
            }
        }
        if host.frozen.is_some() {
            continue;
        }
        earliest(host.mind.and_then(|mind| model.pumps.get(mind).deadline));
        earliest(host.closed);
        earliest(host.ask.map(|ask| ask.deadline));
        for job in host.jobs.iter().flatten() {
            earliest(Some(job.deadline));
        }
    }
    wait
}
