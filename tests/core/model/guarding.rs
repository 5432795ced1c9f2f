//! Immediate consequences of a transition: guards, their commands and the service.

use super::Model;
use super::messages::{
    End, Grant, GuardInput, GuardOutput, Job, Message, NAMES, Report, Service, TERM_BACK_MAX,
};
use super::turn::{Kept, Turn};
use super::world::{CommandRunner, GuardProcess, Host, Link, Process};

impl Model {
    pub(crate) fn wait_guard(&mut self, state: u32, by: i32) -> u32 {
        self.guards.step(state, GuardInput::Wait(by)).id
    }
}

impl Turn<'_> {
    /// Connects the agent to the guard that lives, or starts one.
    pub(crate) fn start_guard(&mut self, at: usize, messages: u8) -> Kept {
        let host = &mut self.world.hosts[at];
        host.link = Link { open: true, messages: host.link.messages, ..Link::default() };
        if host.guard.is_some() {
            return Ok(());
        }
        // The note of the previous guard tells which commands it was running.
        let start_alive = host.start_runs();
        host.kill(Job::Start, self.model.confirmation);
        host.processes[Job::Stop as usize] = None;
        host.processes[Job::LastResort as usize] = None;
        host.guard = Some(GuardProcess {
            state: self.model.guards.begin(host.noted_down, start_alive),
            term: -TERM_BACK_MAX,
            frozen: None,
        });
        self.first_messages = messages;
        Ok(())
    }

    /// The guard takes in all messages of an instance, or the last of one that is gone.
    pub(crate) fn receive_messages(&mut self, at: usize) -> Kept {
        let messages = self.world.hosts[at].link.messages;
        let gone = messages.iter().position(|message| *message == Message::Gone);
        self.wake_guard(at, gone.map_or(messages.len(), |gone| gone + 1))
    }

    /// The guard takes in what has become of its commands, some messages, and then what is due.
    pub(crate) fn wake_guard(&mut self, at: usize, messages: usize) -> Kept {
        for job in Job::ALL {
            let process = &mut self.world.hosts[at].processes[job as usize];
            if let Some(Process { stage: CommandRunner::Ended(how), .. }) = *process {
                *process = None;
                self.tell_guard(at, GuardInput::Ended(job, how))?;
            }
        }
        for _ in 0..messages {
            self.receive_word(at)?;
        }
        self.tell_guard(at, GuardInput::Tick)?;
        let guard = self.world.hosts[at].guard;
        let deadline = guard.and_then(|guard| self.model.guards.get(guard.state).deadline);
        if deadline.is_some_and(|deadline| deadline <= 0) {
            return Err(format!("the next deadline of {}'s guard has passed", NAMES[at]));
        }
        Ok(())
    }

    fn receive_word(&mut self, at: usize) -> Kept {
        let host = &mut self.world.hosts[at];
        let (Some(guard), Some(message)) = (host.guard, host.link.messages.pop()) else {
            return Ok(());
        };
        let message = match message {
            Message::Grant(grant) => {
                Message::Grant(Grant { term: grant.term - guard.term, ..grant })
            }
            Message::Hello
            | Message::AssertStart
            | Message::Stop { .. }
            | Message::AskReport
            | Message::Gone => message,
        };
        self.tell_guard(at, GuardInput::Message(message))
    }

    /// Tells a guard something and does what it wants.
    fn tell_guard(&mut self, at: usize, input: GuardInput) -> Kept {
        let host = &mut self.world.hosts[at];
        let Some(guard) = &mut host.guard else {
            return Ok(());
        };
        let step = self.model.guards.step(guard.state, input);
        guard.state = step.id;
        guard.term = if self.model.guards.keeps_term(step.id) {
            (guard.term + step.grown).max(-TERM_BACK_MAX)
        } else {
            -TERM_BACK_MAX
        };
        // Messages of the previous instance are not counted.
        if !host.others_messages_wait() {
            host.link.unheard -= step.counted;
        }
        for output in &step.wanted {
            self.perform_guard_output(at, *output)?;
        }
        if step.wanted.contains(&GuardOutput::EmptyCgroup) {
            return self.tell_guard(at, GuardInput::CgroupEmptied);
        }
        Ok(())
    }

    fn perform_guard_output(&mut self, at: usize, output: GuardOutput) -> Kept {
        let host = &mut self.world.hosts[at];
        let base = host.guard.map_or(0, |guard| guard.term);
        match output {
            GuardOutput::Run { job, term } => {
                let term = term.map_or(-TERM_BACK_MAX, |term| (term + base).max(-TERM_BACK_MAX));
                let process = &mut host.processes[job as usize];
                if process.replace(Process::new(term)).is_some() {
                    let name = job.command().name();
                    return Err(format!("{}: two instances of {name}", NAMES[at]));
                }
                host.noted_down &= job != Job::Start;
                Ok(())
            }
            GuardOutput::Release(job) => self.release(at, job),
            GuardOutput::Kill(job) => {
                host.kill(job, self.model.confirmation);
                Ok(())
            }
            GuardOutput::KillCgroup | GuardOutput::EmptyCgroup => {
                self.kill_cgroup(at);
                Ok(())
            }
            GuardOutput::Report { uncounted, service } => {
                host.noted_down |= service == Service::Down;
                if host.link.open && !host.others_messages_wait() {
                    let service = match service {
                        Service::Up(grant, start) => {
                            let term = (grant.term + base).max(-TERM_BACK_MAX);
                            Service::Up(Grant { term, ..grant }, start)
                        }
                        Service::Unknown | Service::Down | Service::Stopping { .. } => service,
                    };
                    let complete = host.link.unheard == 0 && uncounted == 0;
                    let report = Report { complete, service };
                    // The pump learns nothing from a report that is like the one before.
                    if host.link.reports.iter().last() != Some(&report) {
                        host.link.reports.push(report)?;
                    }
                }
                Ok(())
            }
            GuardOutput::Exit => {
                self.guard_dies(at);
                Ok(())
            }
        }
    }

    fn release(&mut self, at: usize, job: Job) -> Kept {
        let host = &mut self.world.hosts[at];
        let Some(process) = &mut host.processes[job as usize] else {
            return Ok(());
        };
        process.stage = CommandRunner::Running;
        let term = process.term;
        match job {
            Job::Start => self.service_starts(at, term),
            // The last resort works, and at once: a power switch.
            Job::LastResort => {
                host.power_off();
                Ok(())
            }
            Job::Stop => Ok(()),
        }
    }

    fn service_starts(&mut self, at: usize, term: i16) -> Kept {
        let number = u8::try_from(at).expect("a few hosts");
        let (last, by) = self.world.shared.last;
        let old = term == -TERM_BACK_MAX;
        if term < last || by != number && term == last && !old {
            return Err(format!("the term of {} is not above the previous one", NAMES[at]));
        }
        self.world.shared.last = (term, number);
        let mut others = self.world.hosts.iter().enumerate();
        let beside = others.find(|(other, host)| *other != at && host.up);
        if let Some((other, _)) = beside {
            let other = NAMES[other];
            return Err(format!("{} starts while the service on {other} is up", NAMES[at]));
        }
        if self.world.shared.stray > 0 {
            return Err(format!("{} starts while the service on z is up", NAMES[at]));
        }
        let host = &mut self.world.hosts[at];
        host.up = true;
        if host.down_in <= self.model.confirmation {
            return Err(format!("{} starts after its V", NAMES[at]));
        }
        Ok(())
    }

    pub(crate) fn spawned(&mut self, at: usize, job: Job) -> Kept {
        self.spawn(at, job)?;
        self.wake_guard(at, 0)
    }

    fn spawn(&mut self, at: usize, job: Job) -> Kept {
        if let Some(process) = &mut self.world.hosts[at].processes[job as usize] {
            process.stage = CommandRunner::Waiting;
            process.slow = false;
            process.left = 0;
        }
        self.tell_guard(at, GuardInput::Spawned(job))
    }

    pub(crate) fn process_ends(&mut self, at: usize, job: Job, how: End) -> Kept {
        let host = &mut self.world.hosts[at];
        if job == Job::Stop && how == End::Well && !self.model.cgroup {
            // The effect of a start beside this stop comes after the stop's.
            host.up &= host.start_works();
        }
        let Some(guard) = host.guard else {
            host.processes[job as usize] = None;
            return Ok(());
        };
        if let Some(process) = &mut host.processes[job as usize] {
            process.stage = CommandRunner::Ended(how);
        }
        if guard.frozen.is_some() {
            return Ok(());
        }
        self.wake_guard(at, 0)
    }

    pub(crate) fn thaw_guard(&mut self, at: usize) -> Kept {
        if let Some(guard) = &mut self.world.hosts[at].guard {
            guard.frozen = None;
        }
        for job in Job::ALL {
            let process = self.world.hosts[at].process(job);
            if process
                .is_some_and(|process| process.stage == CommandRunner::Spawning && !process.slow)
            {
                self.spawn(at, job)?;
            }
        }
        self.receive_messages(at)
    }

    /// The guard is gone: a command that it has released goes on, until the next guard kills
    /// it.
    pub(crate) fn guard_dies(&mut self, at: usize) {
        let host = &mut self.world.hosts[at];
        host.guard = None;
        for process in &mut host.processes {
            if process.is_some_and(|process| process.stage != CommandRunner::Running) {
                *process = None;
            }
        }
        host.link.messages = Default::default();
        host.link.lost = host.link.open;
    }

    /// Kills what is in the control group of start, if there is one.
    pub(crate) fn kill_cgroup(&mut self, at: usize) {
        if self.model.cgroup {
            self.world.hosts[at].power_off();
        }
    }
}

impl Host {
    /// Whether messages wait that the previous instance has said.
    fn others_messages_wait(&self) -> bool {
        self.link.messages.iter().any(|message| *message == Message::Gone)
    }

    fn kill(&mut self, job: Job, start_dies_within: i32) {
        if let Some(process) = &mut self.processes[job as usize] {
            process.kill(if job == Job::Start { start_dies_within } else { 0 });
        }
    }

    /// Ends the service, and a start that was released.
    fn power_off(&mut self) {
        self.up = false;
        if let Some(start) = &mut self.processes[Job::Start as usize] {
            start.slow = false;
            start.left = 0;
            start.kill(0);
        }
    }
}
