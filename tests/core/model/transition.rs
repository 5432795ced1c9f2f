//! Possible transitions of a world, and the times at which they must happen.

use std::fmt;

use putex::core::AgentState;

use super::Model;
use super::messages::{End, Job, NAMES};
use super::world::{CommandRunner, Host, Process, World};

/// Something that happens now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// Time passes until something can happen again.
    Pass(i32),
    /// An instance of an agent begins.
    Begin { host: usize },
    /// A deadline of an agent has come.
    Tick { host: usize },
    /// A deadline of a guard has come.
    GuardTick { host: usize },
    /// The guard receives all messages that are on their way; or the first of them.
    Messages { host: usize, all: bool },
    /// The agent receives all reports, or learns that the guard is gone.
    Reports { host: usize },
    /// The store performs a request; whether the answer arrives at once.
    Perform { host: usize, answered: bool },
    /// The answer arrives.
    Reply { host: usize },
    /// The time of a request is over without an answer.
    GiveUp { host: usize },
    /// A write that was given up on is stored.
    Land { at: usize },
    /// A command is spawned.
    Spawned { host: usize, job: Job },
    /// A command ends.
    End { host: usize, job: Job, how: End },
    /// The store is in reach.
    Open { host: usize },
    /// The agent goes on.
    Thaw { host: usize },
    /// The guard goes on.
    ThawGuard { host: usize },
    /// A fault: a request takes its time.
    Delay { host: usize },
    /// A fault: messages take their time.
    Lag { host: usize },
    /// A fault: the store is out of reach.
    Close { host: usize, performed: bool },
    /// A fault: the agent is killed.
    Kill { host: usize },
    /// A fault: the agent is stopped.
    Freeze { host: usize },
    /// A fault: the guard is killed.
    KillGuard { host: usize },
    /// A fault: the guard is stopped.
    FreezeGuard { host: usize },
    /// A command takes its time to be spawned, or to end.
    Hang { host: usize, job: Job },
    /// The agent is told to end.
    Terminate { host: usize },
}

impl Transition {
    /// Returns the host that it happens on.
    fn host(self) -> Option<usize> {
        match self {
            Transition::Pass(_) | Transition::Land { .. } => None,
            Transition::Begin { host }
            | Transition::Tick { host }
            | Transition::GuardTick { host }
            | Transition::Messages { host, .. }
            | Transition::Reports { host }
            | Transition::Perform { host, .. }
            | Transition::Reply { host }
            | Transition::GiveUp { host }
            | Transition::Spawned { host, .. }
            | Transition::End { host, .. }
            | Transition::Open { host }
            | Transition::Thaw { host }
            | Transition::ThawGuard { host }
            | Transition::Delay { host }
            | Transition::Hang { host, .. }
            | Transition::Lag { host }
            | Transition::Close { host, .. }
            | Transition::Kill { host }
            | Transition::Freeze { host }
            | Transition::KillGuard { host }
            | Transition::FreezeGuard { host }
            | Transition::Terminate { host } => Some(host),
        }
    }
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(host) = self.host() {
            write!(f, "{}: ", NAMES[host])?;
        }
        let text = match *self {
            Transition::Pass(_) => "time passes",
            Transition::Begin { .. } => "an instance begins",
            Transition::Tick { .. } => "a deadline has come",
            Transition::GuardTick { .. } => "a deadline of the guard has come",
            Transition::Messages { all: true, .. } => "the guard receives all messages",
            Transition::Messages { .. } => "the guard receives a message",
            Transition::Reports { .. } => "the agent hears of the guard",
            Transition::Perform { answered: true, .. } => "the store performs and answers",
            Transition::Perform { .. } => "the store performs, the answer is on its way",
            Transition::Reply { .. } => "the answer arrives",
            Transition::GiveUp { .. } => "no answer in time",
            Transition::Land { .. } => "a write that was given up on is stored",
            Transition::Spawned { job, .. } => {
                return write!(f, "{} is spawned", job.command().name());
            }
            Transition::End { job, how, .. } => {
                return write!(f, "{} ends: {how:?}", job.command().name());
            }
            Transition::Open { .. } => "the store is in reach",
            Transition::Thaw { .. } => "SIGCONT",
            Transition::ThawGuard { .. } => "SIGCONT to the guard",
            Transition::Delay { .. } => "FAULT: the request takes its time",
            Transition::Hang { job, .. } => {
                return write!(f, "FAULT: {} takes its time", job.command().name());
            }
            Transition::Lag { .. } => "FAULT: the messages take their time",
            Transition::Close { performed: true, .. } => {
                "FAULT: the store is cut off, having performed"
            }
            Transition::Close { .. } => "FAULT: the store is cut off",
            Transition::Kill { .. } => "FAULT: the agent is killed",
            Transition::Freeze { .. } => "FAULT: SIGSTOP",
            Transition::KillGuard { .. } => "FAULT: the guard is killed",
            Transition::FreezeGuard { .. } => "FAULT: SIGSTOP to the guard",
            Transition::Terminate { .. } => "SIGTERM",
        };
        f.write_str(text)
    }
}

/// Possible transitions of a world. They are listed in a fixed order, so that the place of a
/// transition identifies it.
#[derive(Default)]
pub(crate) struct Choices {
    /// Time does not pass before one of these has happened.
    pub(crate) due: Vec<Transition>,
    /// Transitions that may happen.
    pub(crate) free: Vec<Transition>,
}

impl Choices {
    pub(crate) fn of(model: &Model, world: &World) -> Choices {
        let mut choices = Choices::default();
        for at in 0..model.agents {
            let own = Choices::of_host(model, world, at);
            // Transitions of this host now and transitions of the others lead to the same world in
            // any order: one order is enough.
            if !own.due.is_empty() && keeps_to_itself(model, &world.hosts[at]) {
                return own;
            }
            choices.due.extend(own.due);
            choices.free.extend(own.free);
        }
        for (at, late) in world.shared.late.iter().enumerate() {
            if late.is_some() {
                choices.free.push(Transition::Land { at });
            }
        }
        if choices.due.is_empty() {
            choices.due.push(Transition::Pass(wait(model, world)));
        }
        choices
    }

    fn of_host(model: &Model, world: &World, at: usize) -> Choices {
        let mut choices = Choices::default();
        let host = &world.hosts[at];
        choices.agent(model, host, at);
        choices.store(model, host, at);
        choices.guard(model, host, at);
        choices.link(host, at);
        for job in Job::ALL {
            if let Some(process) = host.process(job) {
                choices.process(host, at, job, process);
            }
        }
        choices.instances(model, world, at);
        let left = world.shared.left;
        if left.hangs > 0 {
            choices.hangs(host, at);
        }
        if left.signals > 0 {
            choices.signals(host, at);
        }
        if left.faults > 0 {
            choices.faults_of_guard(model, host, at);
            choices.faults_of_agent(model, host, at);
        }
        choices
    }

    /// Adds what may happen, and what must when its time is over.
    fn within(&mut self, left: i32, transition: Transition) {
        if left == 0 {
            self.due.push(transition);
        } else {
            self.free.push(transition);
        }
    }

    fn agent(&mut self, model: &Model, host: &Host, at: usize) {
        if let Some(left) = host.frozen {
            return self.within(left, Transition::Thaw { host: at });
        }
        let Some(pump) = host.pump else { return };
        if let Some(left) = host.closed {
            self.within(left, Transition::Open { host: at });
        }
        let deadline = model.pumps.get(pump).deadline;
        if deadline.is_some_and(|deadline| deadline <= 0) {
            self.due.push(Transition::Tick { host: at });
        }
    }

    fn store(&mut self, model: &Model, host: &Host, at: usize) {
        let Some(request) = host.request else { return };
        let (slow, done) = (request.slow, request.answer.is_some());
        let answered = !slow && host.frozen.is_none();
        let next = if done {
            Transition::Reply { host: at }
        } else {
            Transition::Perform { host: at, answered }
        };
        if let Some(left) = host.frozen {
            // The request that was sent is performed, and the answer waits.
            if !done && (slow || left == model.longest) {
                self.free.push(next);
            }
            return;
        }
        if slow {
            self.free.push(next);
        } else {
            self.due.push(next);
        }
        if request.deadline == 0 {
            self.due.push(Transition::GiveUp { host: at });
        }
    }

    fn guard(&mut self, model: &Model, host: &Host, at: usize) {
        let Some(guard) = host.guard else { return };
        if let Some(left) = guard.frozen {
            return self.within(left, Transition::ThawGuard { host: at });
        }
        let deadline = model.guards.get(guard.state).deadline;
        if deadline.is_some_and(|deadline| deadline <= 0) {
            self.due.push(Transition::GuardTick { host: at });
        }
    }

    fn link(&mut self, host: &Host, at: usize) {
        let link = &host.link;
        if host.frozen.is_some() {
            return;
        }
        let left = link.slow.unwrap_or(0);
        if !link.messages.is_empty() && host.is_guarded() {
            let all = left == 0;
            self.within(left, Transition::Messages { host: at, all });
            if left > 0 {
                self.free.push(Transition::Messages { host: at, all: true });
            }
        }
        if !link.reports.is_empty() || link.lost {
            self.due.push(Transition::Reports { host: at });
        }
    }

    fn process(&mut self, host: &Host, at: usize, job: Job, process: Process) {
        let end = |how| Transition::End { host: at, job, how };
        let left = if process.slow { process.left } else { 0 };
        match process.stage {
            // A guard that is stopped spawns nothing.
            CommandRunner::Spawning if host.is_guarded() => {
                self.within(left, Transition::Spawned { host: at, job });
            }
            CommandRunner::Spawning | CommandRunner::Ended(_) => {}
            CommandRunner::Waiting | CommandRunner::Running if process.killed => {
                self.within(left, end(End::Overran));
            }
            CommandRunner::Waiting => {}
            CommandRunner::Running if process.slow => {
                self.free.push(end(End::Well));
                if job == Job::Stop {
                    self.free.push(end(End::Failed));
                }
            }
            CommandRunner::Running => self.due.push(end(End::Well)),
        }
    }

    fn instances(&mut self, model: &Model, world: &World, at: usize) {
        let host = &world.hosts[at];
        if host.pump.is_some() || host.instances >= model.instances {
            return;
        }
        // Hosts are alike: they begin in their order.
        let first = host.instances == 0;
        if first && world.hosts[..at].iter().any(|host| host.instances == 0) {
            return;
        }
        if first && !model.late {
            self.due.push(Transition::Begin { host: at });
            return;
        }
        self.free.push(Transition::Begin { host: at });
    }

    fn signals(&mut self, host: &Host, at: usize) {
        if host.is_attended() {
            self.free.push(Transition::Terminate { host: at });
        }
    }

    fn hangs(&mut self, host: &Host, at: usize) {
        for job in [Job::Start, Job::Stop] {
            let Some(process) = host.process(job) else {
                continue;
            };
            let can = match process.stage {
                CommandRunner::Spawning | CommandRunner::Running => !process.killed,
                CommandRunner::Waiting | CommandRunner::Ended(_) => false,
            };
            if can && !process.slow {
                self.free.push(Transition::Hang { host: at, job });
            }
        }
    }

    /// Faults of the guard. The rule: the service is down, or one of agent and guard runs and knows
    /// when the service must be down.
    fn faults_of_guard(&mut self, model: &Model, host: &Host, at: usize) {
        if !host.is_guarded() {
            return;
        }
        let state = host.pump.map(|pump| model.pumps.state(pump));
        if !host.up || host.frozen.is_none() && knows(model, host) {
            self.free.push(Transition::KillGuard { host: at });
        }
        // Without a control group an agent that stops the service has no time to notice.
        let noticed = host.frozen.is_none() && state == Some(AgentState::Active);
        if !host.up || noticed || model.cgroup && knows(model, host) && host.frozen.is_none() {
            self.free.push(Transition::FreezeGuard { host: at });
        }
    }

    fn faults_of_agent(&mut self, model: &Model, host: &Host, at: usize) {
        if host.pump.is_none() {
            return;
        }
        let guard = host.guard.filter(|guard| guard.frozen.is_none());
        let may_go = !host.up || guard.is_some_and(|guard| model.guards.is_in_charge(guard.state));
        if may_go {
            self.free.push(Transition::Kill { host: at });
        }
        if host.frozen.is_some() {
            return;
        }
        if may_go {
            self.free.push(Transition::Freeze { host: at });
        }
        if !host.link.messages.is_empty() && host.link.slow.is_none() && host.is_guarded() {
            self.free.push(Transition::Lag { host: at });
        }
        if host.request.is_some_and(|request| !request.slow) {
            self.free.push(Transition::Delay { host: at });
        }
        if host.closed.is_none_or(|left| left == 0) {
            let unanswered = host.request.is_some_and(|request| request.answer.is_none());
            for performed in [false, true] {
                if !performed || unanswered {
                    self.free.push(Transition::Close { host: at, performed });
                }
            }
        }
    }
}

impl Model {
    /// Returns how long messages and reports are on their way at most: T. An agent that does not
    /// know when its service must be down kills a guard that is silent for R, and nobody is left
    /// who knows: no longer than half of R then.
    pub(crate) fn lag(&self, host: &Host) -> i32 {
        if host.up && !knows(self, host) { self.half_r } else { self.lock_time }
    }
}

/// Whether an agent knows when its service must be down.
fn knows(model: &Model, host: &Host) -> bool {
    let state = host.pump.map(|pump| model.pumps.state(pump));
    !matches!(state, None | Some(AgentState::Looking | AgentState::Standby))
}

/// Whether nothing that can happen to a host now touches the key or a service: its
/// agent waits, asks for nothing, and its service is down.
fn keeps_to_itself(model: &Model, host: &Host) -> bool {
    let waits = host.pump.map(|pump| model.pumps.state(pump)) == Some(AgentState::Standby);
    let asks = host.request.is_some() || host.closed.is_some();
    waits && !asks && !host.up && host.process(Job::Start).is_none()
}

/// Returns how long nothing has to happen.
fn wait(model: &Model, world: &World) -> i32 {
    let mut wait = world.shared.to_grid;
    for host in &world.hosts {
        let mut earliest = |at: Option<i32>| wait = at.map_or(wait, |at| wait.min(at));
        earliest(host.frozen);
        if let Some(guard) = host.guard {
            let deadline = model.guards.get(guard.state).deadline;
            earliest(if guard.frozen.is_some() { guard.frozen } else { deadline });
        }
        for process in host.processes.iter().flatten() {
            earliest(Some(process.left).filter(|left| *left > 0));
        }
        if host.frozen.is_some() {
            continue;
        }
        let link = &host.link;
        let waits = !link.messages.is_empty() || !link.reports.is_empty() || link.lost;
        earliest(link.slow.filter(|left| waits && *left > 0));
        earliest(host.pump.and_then(|pump| model.pumps.get(pump).deadline));
        earliest(host.closed);
        earliest(host.request.map(|request| request.deadline));
    }
    wait
}
