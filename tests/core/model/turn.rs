//! A transition, and all its immediate consequences for agents and the store. Broken rules are
//! found here and in [`super::guarding`].

use putex::core::AgentState;

use super::Model;
use super::messages::{
    BACK_MAX, Grant, Instance, Job, Message, NAMES, OLD_TERM, PumpInput, PumpOutput, RecordKind,
    Report, Service, StoredRecord, TERM_BACK_MAX,
};
use super::transition::Transition;
use super::world::{CommandRunner, HOSTS, Link, Reply, Request, World, Write};

/// A world in which something has just happened.
pub(crate) struct Turn<'a> {
    pub(crate) model: &'a mut Model,
    pub(crate) world: World,
    /// Messages that a guard which was just started knows when it begins.
    pub(crate) first_messages: u8,
}

/// `Err` is the broken rule, in words.
pub(crate) type Kept = Result<(), String>;

impl<'a> Turn<'a> {
    pub(crate) fn of(model: &'a mut Model, world: World) -> Turn<'a> {
        Turn { model, world, first_messages: 0 }
    }

    /// Lets something happen.
    pub(crate) fn perform(&mut self, transition: Transition) -> Kept {
        let waiting = self.world.hosts.map(|host| !all_arrived(&host.link));
        self.happen(transition)?;
        self.deliver_new_reports(waiting)?;
        for host in &mut self.world.hosts {
            // Nothing is left of a lock that has no service and no holder.
            let state = host.pump.map(|pump| self.model.pumps.state(pump));
            let idle = matches!(state, None | Some(AgentState::Looking | AgentState::Standby));
            let guard = host.guard.map(|guard| guard.state);
            let down = guard.is_none_or(|guard| self.model.guards.is_down(guard));
            if idle && down && !host.up && host.link.messages.is_empty() {
                host.down_in = 0;
            }
            if host.link.messages.is_empty() {
                host.link.slow = None;
            }
        }
        Ok(())
    }

    fn happen(&mut self, transition: Transition) -> Kept {
        match transition {
            Transition::Pass(by) => self.pass(by),
            Transition::Begin { host } => self.begin(host),
            Transition::Tick { host } => self.tell_pump(host, PumpInput::Tick),
            Transition::GuardTick { host } => self.wake_guard(host, 0),
            Transition::Messages { host, all: true } => self.receive_messages(host),
            Transition::Messages { host, .. } => self.wake_guard(host, 1),
            Transition::Reports { host } => self.deliver_reports(host),
            Transition::Perform { host, answered } => {
                self.perform_request(host);
                if answered {
                    return self.answer(host);
                }
                Ok(())
            }
            Transition::Reply { host } => self.answer(host),
            Transition::GiveUp { host } => self.give_up(host),
            Transition::Land { at } => {
                if let Some(write) = self.world.shared.late[at].take() {
                    self.world.commit(write, self.model.held);
                }
                Ok(())
            }
            Transition::Spawned { host, job } => self.spawned(host, job),
            Transition::End { host, job, how } => self.process_ends(host, job, how),
            Transition::Open { host } => {
                self.world.hosts[host].closed = None;
                let (at, record) = (self.world.hosts[host].lag, self.world.shared.record);
                self.tell_pump(host, PumpInput::Opened { at, record })
            }
            Transition::Thaw { host } => {
                self.world.hosts[host].frozen = None;
                Ok(())
            }
            Transition::ThawGuard { host } => self.thaw_guard(host),
            Transition::Hang { host, job } => {
                self.world.shared.left.hangs -= 1;
                self.hang(host, job);
                Ok(())
            }
            Transition::Terminate { host } => {
                self.world.shared.left.signals -= 1;
                self.tell_pump(host, PumpInput::Shutdown)
            }
            Transition::Delay { .. }
            | Transition::Lag { .. }
            | Transition::Close { .. }
            | Transition::Kill { .. }
            | Transition::Freeze { .. }
            | Transition::KillGuard { .. }
            | Transition::FreezeGuard { .. } => {
                self.world.shared.left.faults -= 1;
                self.fault(transition)
            }
        }
    }

    fn fault(&mut self, fault: Transition) -> Kept {
        let longest = self.model.longest;
        match fault {
            Transition::Delay { host } => {
                if let Some(request) = &mut self.world.hosts[host].request {
                    request.slow = true;
                }
            }
            Transition::Lag { host } => {
                let lag = self.model.lag(&self.world.hosts[host]);
                self.world.hosts[host].link.slow = Some(lag);
            }
            Transition::Close { host, performed } => return self.close(host, performed),
            Transition::Kill { host } => return self.agent_dies(host),
            Transition::Freeze { host } => self.world.hosts[host].frozen = Some(longest),
            Transition::KillGuard { host } => self.guard_dies(host),
            Transition::FreezeGuard { host } => {
                if let Some(guard) = &mut self.world.hosts[host].guard {
                    guard.frozen = Some(longest);
                }
            }
            Transition::Pass(_)
            | Transition::Hang { .. }
            | Transition::Terminate { .. }
            | Transition::Begin { .. }
            | Transition::Tick { .. }
            | Transition::GuardTick { .. }
            | Transition::Messages { .. }
            | Transition::Reports { .. }
            | Transition::Perform { .. }
            | Transition::Reply { .. }
            | Transition::GiveUp { .. }
            | Transition::Land { .. }
            | Transition::Spawned { .. }
            | Transition::End { .. }
            | Transition::Open { .. }
            | Transition::Thaw { .. }
            | Transition::ThawGuard { .. } => return Err("no fault".to_owned()),
        }
        Ok(())
    }

    fn hang(&mut self, at: usize, job: Job) {
        if let Some(process) = &mut self.world.hosts[at].processes[job as usize] {
            process.slow = true;
            process.left =
                if process.stage == CommandRunner::Spawning { self.model.longest } else { 0 };
        }
    }

    fn pass(&mut self, by: i32) -> Kept {
        let (held, grid) = (self.model.held, self.model.grid);
        self.world.pass(by, held, grid);
        for (at, host) in self.world.hosts.iter_mut().enumerate() {
            if let Some(pump) = &mut host.pump {
                *pump = self.model.pumps.step(*pump, PumpInput::Wait(by)).id;
            }
            if let Some(guard) = &mut host.guard {
                guard.state = self.model.wait_guard(guard.state, by);
            }
            if host.up && host.down_in == 0 {
                return Err(format!("the service on {} outlives its V + C*R", NAMES[at]));
            }
        }
        Ok(())
    }

    fn begin(&mut self, at: usize) -> Kept {
        let host = &mut self.world.hosts[at];
        host.instances += 1;
        let instance = Instance::of(at, host.instances);
        host.pump = Some(self.model.pumps.begin(instance));
        // The store is opened at once, unless a fault comes between.
        host.closed = Some(0);
        host.lag = 0;
        self.tell_pump(at, PumpInput::Tick)
    }

    /// Tells a pump something and does what it wants.
    pub(crate) fn tell_pump(&mut self, at: usize, input: PumpInput) -> Kept {
        let host = &mut self.world.hosts[at];
        let Some(pump) = host.pump else { return Ok(()) };
        let step = self.model.pumps.step(pump, input);
        host.pump = Some(step.id);
        // From the pump's highest, before the step, to the key's.
        let behind = host.lag;
        host.lag -= step.grown;
        let instance = Instance::of(at, host.instances);
        self.world.attempted(instance, step.counted);
        let deadline = self.model.pumps.get(step.id).deadline;
        if deadline.is_some_and(|deadline| deadline <= 0) {
            return Err(format!("the next deadline of {} has passed", NAMES[at]));
        }
        for output in &step.wanted {
            self.perform_output(at, *output, behind)?;
            if matches!(output, PumpOutput::Exit) {
                break;
            }
        }
        Ok(())
    }

    fn perform_output(&mut self, at: usize, output: PumpOutput, behind: i16) -> Kept {
        match output {
            PumpOutput::Read { deadline } => self.request(at, None, deadline),
            PumpOutput::Write { expected, kind, term_ago, deadline } => {
                let host = &self.world.hosts[at];
                if kind == RecordKind::Released && (host.up || host.start_runs()) {
                    return Err(format!("{} releases before its service is down", NAMES[at]));
                }
                let record = StoredRecord {
                    by: Instance::of(at, host.instances),
                    kind,
                    term_ago,
                    nonce_ago: 0,
                };
                let write = Write {
                    host: u8::try_from(at).expect("a few hosts"),
                    expected: (expected - behind).max(-BACK_MAX),
                    record,
                    sent: 0,
                };
                self.request(at, Some(write), deadline)
            }
            PumpOutput::ConnectGuard(messages) => self.start_guard(at, messages),
            PumpOutput::Tell(message) => self.say(at, message, behind),
            PumpOutput::KillGuard => {
                self.guard_dies(at);
                self.world.hosts[at].link = Link::default();
                Ok(())
            }
            PumpOutput::KillCgroup => {
                self.kill_cgroup(at);
                Ok(())
            }
            PumpOutput::SayRollback => {
                Err(format!("{} says that the store rolled back", NAMES[at]))
            }
            PumpOutput::Exit => self.agent_dies(at),
        }
    }

    /// The agent says a message.
    fn say(&mut self, at: usize, message: Message, behind: i16) -> Kept {
        let host = &mut self.world.hosts[at];
        let counts = message != Message::AskReport;
        for report in host.link.reports.iter_mut() {
            report.complete &= !counts;
        }
        if host.guard.is_none() {
            return Ok(());
        }
        let message = match message {
            Message::Grant(grant) => Message::Grant(Grant {
                term: grant.term.saturating_sub(behind).max(-TERM_BACK_MAX),
                ..grant
            }),
            Message::Hello
            | Message::AssertStart
            | Message::Stop { .. }
            | Message::AskReport
            | Message::Gone => message,
        };
        host.link.unheard += u8::from(counts);
        host.link.messages.push(message)?;
        if self.first_messages > 0 {
            self.first_messages -= 1;
            if self.first_messages == 0 {
                return self.receive_messages(at);
            }
        }
        Ok(())
    }

    /// Reports arrive at once, unless the agent is stopped or older ones were `waiting`.
    fn deliver_new_reports(&mut self, waiting: [bool; HOSTS]) -> Kept {
        for (at, waiting) in waiting.into_iter().enumerate() {
            if !waiting && self.world.hosts[at].frozen.is_none() {
                self.deliver_reports(at)?;
            }
        }
        Ok(())
    }

    /// The agent receives all reports, and then learns that the guard is gone if it is.
    fn deliver_reports(&mut self, at: usize) -> Kept {
        while let Some(report) = self.world.hosts[at].link.reports.pop() {
            let service = match report.service {
                Service::Up(grant, start) => {
                    let term = if grant.term <= -TERM_BACK_MAX {
                        OLD_TERM
                    } else {
                        grant.term + self.world.hosts[at].lag
                    };
                    Service::Up(Grant { term, ..grant }, start)
                }
                Service::Unknown | Service::Down | Service::Stopping { .. } => report.service,
            };
            self.tell_pump(at, PumpInput::Report(Report { service, ..report }))?;
        }
        let host = &mut self.world.hosts[at];
        if host.link.lost {
            host.link = Link::default();
            return self.tell_pump(at, PumpInput::GuardLost);
        }
        Ok(())
    }

    fn request(&mut self, at: usize, write: Option<Write>, deadline: i32) -> Kept {
        let request = Request { write, deadline, slow: false, answer: None };
        if self.world.hosts[at].request.replace(request).is_some() {
            return Err(format!("{} has two requests under way", NAMES[at]));
        }
        Ok(())
    }

    fn perform_request(&mut self, at: usize) {
        let Some(request) = self.world.hosts[at].request else {
            return;
        };
        let answer = match request.write {
            Some(write) => self.world.commit(write, self.model.held),
            None => Reply::Shown(0, self.world.shared.record),
        };
        if let Some(request) = &mut self.world.hosts[at].request {
            request.answer = Some(answer);
        }
    }

    fn answer(&mut self, at: usize) -> Kept {
        let host = &mut self.world.hosts[at];
        let Some(answer) = host.request.take().and_then(|request| request.answer) else {
            return Ok(());
        };
        let lag = host.lag;
        let input = match answer {
            Reply::Shown(at, record) => PumpInput::Read { at: at + lag, record },
            Reply::Stored(at) => PumpInput::Stored(at + lag),
            Reply::Moved(at) => PumpInput::Moved(at + lag),
        };
        self.tell_pump(at, input)
    }

    /// No answer has come. A write that the store has not performed may be performed yet.
    fn give_up(&mut self, at: usize) -> Kept {
        let Some(request) = self.world.hosts[at].request.take() else {
            return Ok(());
        };
        let Some(write) = request.write else {
            return self.tell_pump(at, PumpInput::ReadFailed);
        };
        if request.answer.is_none() {
            self.world.leave_behind(write);
        }
        self.tell_pump(at, PumpInput::Unknown)
    }

    fn close(&mut self, at: usize, performed: bool) -> Kept {
        if performed {
            self.perform_request(at);
        }
        self.give_up(at)?;
        let host = &mut self.world.hosts[at];
        // A request that the pump made before it learns of the close is not performed.
        host.request = None;
        if host.pump.is_some() {
            host.closed = Some(self.model.longest);
        }
        self.tell_pump(at, PumpInput::Closed)
    }

    /// The agent is gone: what it asked of the store may be performed yet, what it has said
    /// to a guard that runs and has not arrived is lost.
    fn agent_dies(&mut self, at: usize) -> Kept {
        let host = &mut self.world.hosts[at];
        let instance = Instance::of(at, host.instances);
        host.pump = None;
        host.lag = 0;
        host.frozen = None;
        host.closed = None;
        let messages = host.link.messages;
        let was_open = host.link.open;
        host.link = Link::default();
        match host.guard {
            Some(guard) if was_open => {
                if guard.frozen.is_some() {
                    host.link.messages = messages;
                }
                host.link.messages.push(Message::Gone)?;
            }
            Some(_) => host.link.messages = messages,
            None => {}
        }
        let request = host.request.take();
        if let Some(Request { write: Some(write), answer: None, .. }) = request {
            self.world.leave_behind(write);
        }
        self.world.forget_instance(instance, self.model.held);
        Ok(())
    }
}

/// Whether all reports have arrived.
fn all_arrived(link: &Link) -> bool {
    link.reports.is_empty() && !link.lost
}
