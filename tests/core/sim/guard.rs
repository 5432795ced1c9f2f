//! The guard process: the shipped guard, and its shell. One thread looks at all that has
//! happened, then lets the time that has passed count.

use std::collections::VecDeque;

use putex::core::command::Command;
use putex::core::guard::{Guard, GuardAction, GuardInput};
use putex::core::protocol::{Grant, GuardReport, ServiceState, Stake, StopOrder, ToGuard};
use putex::core::service_report::ServiceReport;
use putex::core::timing::Timing;

use super::clock::{MS, True};
use super::commands::Task;
use super::counters::Sometimes;
use super::faults::Kind;
use super::process::never;
use super::scenario::Step;
use super::world::{Happening, World, begin_time};

#[derive(Clone, Copy, Debug)]
pub enum GuardEvent {
    Begin,
    /// The lock is free.
    Locked,
    /// There is something to handle.
    Look,
    Due,
    /// A command was spawned and waits, or could not be; which run of it.
    Spawned(Command, u64, bool),
    /// The process of a command has ended.
    Ended(usize),
    /// `putex finish` gives up.
    GiveUp,
    /// The decision about the service must have been made by now.
    Decide,
}

impl GuardEvent {
    pub fn number(self) -> u64 {
        match self {
            GuardEvent::Begin => 0,
            GuardEvent::Locked => 1,
            GuardEvent::Look => 2,
            GuardEvent::Due => 3,
            GuardEvent::Spawned(..) => 4,
            GuardEvent::Ended(_) => 5,
            GuardEvent::GiveUp => 6,
            GuardEvent::Decide => 7,
        }
    }
}

/// The file that a guard leaves to the next guard. Without a file the service may be up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Note {
    /// The service is down.
    pub down: bool,
    /// The times under which it may run.
    pub times: Option<Timing>,
    pub processes: [Option<usize>; 4],
}

pub struct GuardProcess {
    pub site: usize,
    pub alive: bool,
    pub stopped: bool,
    pub held: Vec<GuardEvent>,
    pub core: Option<Guard>,
    /// The process is `putex finish`.
    pub finishing: bool,
    /// Connections that are not accepted yet.
    pub backlog: VecDeque<usize>,
    pub line: Option<usize>,
    /// Events of commands and the control group.
    pub inputs: VecDeque<GuardInput>,
    pub tasks: [Option<Task>; 4],
    pub runs: u64,
    /// A start of the previous guard, which was killed and has not ended.
    pub inherited: Option<usize>,
    pub emptying: bool,
    /// The guard knows what is to become of the service.
    pub informed: bool,
    /// When it was told last how it is set up, and with which times.
    pub greeted_at: True,
    pub timing: Option<Timing>,
    /// When it went on after a pause.
    pub resumed_at: True,
    /// When it had the lock.
    pub begun_at: True,
    /// The last grant that was valid when it was heard.
    pub granted: Option<Grant>,
    /// The guard was told to stop the service since.
    pub ordered: bool,
    /// The guard is stopping the service, for a reason.
    pub ending: bool,
    /// The last message that it received.
    last: Option<ToGuard>,
    wake_at: True,
}

impl GuardProcess {
    /// Whether an agent can connect to it.
    pub fn listens(&self) -> bool {
        self.alive && self.core.is_some() && !self.finishing
    }
}

impl World<'_> {
    pub fn spawn_guard(&mut self, site: usize, finishing: bool) -> usize {
        let id = self.guards.len();
        self.guards.push(GuardProcess {
            site,
            alive: true,
            stopped: false,
            held: Vec::new(),
            core: None,
            finishing,
            backlog: VecDeque::new(),
            line: None,
            inputs: VecDeque::new(),
            tasks: [const { None }; 4],
            runs: 0,
            inherited: None,
            emptying: false,
            informed: false,
            greeted_at: 0,
            timing: None,
            resumed_at: 0,
            begun_at: never(),
            granted: None,
            ordered: false,
            ending: false,
            last: None,
            wake_at: never(),
        });
        self.births += 1;
        self.sites[site].guards.push(id);
        let mut wait = begin_time(&mut self.chance);
        if self.strikes(Kind::GuardSlow) {
            wait += self.rng(Kind::GuardSlow).below(2000 * MS);
        }
        self.after(wait, Happening::Guard(id, GuardEvent::Begin));
        id
    }

    pub fn wake_guard_soon(&mut self, id: usize) {
        let wait = self.late();
        self.after(wait, Happening::Guard(id, GuardEvent::Look));
    }

    pub fn turn_guard(&mut self, id: usize, event: GuardEvent) {
        match event {
            GuardEvent::Begin => {
                self.step(Step::Guarded, self.guards[id].site);
                return self.try_guard_lock(id);
            }
            GuardEvent::Locked if self.guards[id].core.is_none() => {
                return self.try_guard_lock(id);
            }
            GuardEvent::Due if self.now < self.guards[id].wake_at => {
                // An earlier one took its place.
                return;
            }
            GuardEvent::Due => self.guards[id].wake_at = never(),
            GuardEvent::Spawned(command, run, well) => self.spawned(id, command, run, well),
            GuardEvent::Ended(process) => self.reap(id, process),
            GuardEvent::GiveUp => return self.kill_guard(id),
            GuardEvent::Decide => return self.judge_decision(id),
            GuardEvent::Locked | GuardEvent::Look => {}
        }
        self.take_turn(id);
    }

    /// A guard begins when the previous one is dead, and looks at what that left behind.
    fn try_guard_lock(&mut self, id: usize) {
        let site = self.guards[id].site;
        if self.sites[site].guard_lock.is_some() {
            return;
        }
        self.sites[site].guard_lock = Some(id);
        let note = self.sites[site].note;
        let start = note.processes[Command::Start as usize];
        for process in note.processes.into_iter().flatten() {
            self.kill_process(process);
        }
        let start = start.filter(|start| self.processes[*start].alive);
        self.guards[id].inherited = start;
        let config = self.config(site).guard();
        let now = self.clock(site);
        let finishing = self.guards[id].finishing;
        if note.down && self.may_come_up(site) && !self.lies_are_excused(site) {
            self.fail("note", format!("{site} may be up, but the note says no"));
        }
        let down = note.down && !finishing;
        let core = Guard::new(config, down, start.is_some(), note.times, now);
        self.guards[id].core = Some(core);
        self.guards[id].begun_at = self.now;
        if finishing {
            self.count(Sometimes::Finished);
            self.told_by_nobody(id);
            let dead_by = now.after(config.timing.stop_budget());
            let at = self.wake(site, dead_by.after(config.timing.renewal()));
            self.at(at, Happening::Guard(id, GuardEvent::GiveUp));
        }
        self.take_turn(id);
    }

    /// A turn of the guard's only thread.
    fn take_turn(&mut self, id: usize) {
        if self.guards[id].core.is_none() {
            return;
        }
        while let Some(input) = self.guards[id].inputs.pop_front() {
            self.guard_handles(id, input);
        }
        self.receive_messages(id);
        self.guard_handles(id, GuardInput::Tick);
        self.look_after(self.guards[id].site);
        self.wake_guard(id);
    }

    /// Takes in all messages, then all new connections.
    fn receive_messages(&mut self, id: usize) {
        loop {
            if let Some(line) = self.guards[id].line {
                while let Some(message) = self.connections[line].messages.pop_front() {
                    self.receive_message(id, message);
                }
                if self.connections[line].closed && self.guards[id].alive {
                    self.guards[id].line = None;
                    self.guard_handles(id, GuardInput::Disconnected);
                }
            }
            if !self.guards[id].alive {
                return;
            }
            let Some(line) = self.guards[id].backlog.pop_front() else {
                return;
            };
            if self.guards[id].line.is_none() {
                self.guards[id].line = Some(line);
            } else {
                self.write_to_agent(line, None);
            }
        }
    }

    fn receive_message(&mut self, id: usize, message: ToGuard) {
        let site = self.guards[id].site;
        let now = self.clock(site);
        let guard = &mut self.guards[id];
        match &message {
            // The guard is stopping the service already.
            ToGuard::Grant(_) if guard.ending => {}
            ToGuard::Grant(grant) if now < grant.valid_until => {
                guard.granted = Some(grant.clone());
                guard.ordered = false;
                guard.informed = true;
            }
            // Such a grant tells how long a service that the previous guard has left may run.
            ToGuard::Grant(_) => {
                guard.informed = true;
                self.count(Sometimes::GrantTooLate);
            }
            ToGuard::Stop(order) => {
                let order = order.clone();
                self.on_order(id, &order);
            }
            ToGuard::Hello(config) => {
                let before = guard.timing.replace(config.timing);
                guard.ordered |= before.is_some_and(|before| before != config.timing);
                guard.greeted_at = self.now;
                self.expect_decision(id);
            }
            ToGuard::AssertStart | ToGuard::AskReport => {}
        }
        let guard = &mut self.guards[id];
        if message != ToGuard::AskReport {
            guard.last = Some(message.clone()).filter(|_| !guard.ending);
        }
        self.guard_handles(id, GuardInput::Received(message));
    }

    fn on_order(&mut self, id: usize, order: &StopOrder) {
        let site = self.guards[id].site;
        let knew = std::mem::replace(&mut self.guards[id].informed, true);
        self.guards[id].ordered = true;
        if !knew && order.stake == Stake::Assurance {
            self.told_by_nobody(id);
        }
        if let Some(since) = self.sites[site].losing.take() {
            self.sites[site].lost_at = Some(self.now);
            let missed = self.clock(site) >= order.dead_by;
            let late = missed || self.now > since + 4 * self.sc.late + MS;
            if (late || self.cuts_short(id, order.dead_by)) && self.may_run(site) {
                // The order was late, or a stop is killed before the deadline that it was told:
                // the next one has its time all the same.
                let until = self.now + self.stop_turn(site);
                let excuse = &mut self.sites[site].excuse;
                excuse.until = excuse.until.max(until);
            }
        }
    }

    /// Hands an input to the guard and does what it wants.
    pub fn guard_handles(&mut self, id: usize, input: GuardInput) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let now = self.clock(self.guards[id].site);
            let Some(core) = &mut self.guards[id].core else {
                return;
            };
            for action in core.handle(input, now) {
                if !self.guards[id].alive {
                    return;
                }
                inputs.extend(self.act(id, action));
            }
            self.write_note(id);
        }
    }

    /// Writes the note for the next guard: whether the service is down, and the times of its lock.
    fn write_note(&mut self, id: usize) {
        let guard = &self.guards[id];
        let Some(core) = guard.core.as_ref().filter(|_| guard.alive) else {
            return;
        };
        let note = &mut self.sites[guard.site].note;
        note.times = core.times().or(note.times).filter(|_| !core.is_down());
        if core.is_down() {
            note.down = true;
            self.guards[id].ending = false;
        }
    }

    /// Performs one action; returns what is answered to it at once.
    fn act(&mut self, id: usize, action: GuardAction) -> Option<GuardInput> {
        let site = self.guards[id].site;
        match action {
            GuardAction::Run(command, until) => {
                if command != Command::Start {
                    self.judge_end(id);
                }
                self.run_command(id, command, until);
            }
            GuardAction::Release(command) => self.release(id, command),
            GuardAction::Kill(command) => {
                // A start that has not begun is no part of the service yet.
                if command == Command::Start && self.has_begun(id) {
                    self.judge_end(id);
                }
                self.kill_command(id, command);
            }
            GuardAction::KillCgroup => {
                self.judge_end(id);
                self.kill_cgroup(site);
            }
            GuardAction::EmptyCgroup => {
                self.judge_end(id);
                self.empty_cgroup(id);
            }
            GuardAction::Log(report) => {
                if report == ServiceReport::MayStillRun {
                    self.on_late(site);
                    // A last resort that has not ended for so long keeps the next one back.
                    let hangs = self.guards[id].tasks[Command::LastResort as usize].is_some();
                    self.sites[site].excuse.unaided |= hangs && self.may_run(site);
                }
                self.note(Some(site), || format!("guard {id}: {report}"));
            }
            GuardAction::Report(report) => self.report(id, report),
            GuardAction::TryDevice => return Some(self.try_device(id)),
            GuardAction::OpenDevice => return Some(self.open_device(id)),
            GuardAction::KickDevice => self.kick_device(id),
            GuardAction::CloseDevice => return self.close_device(id),
            GuardAction::Exit => {
                self.on_leave(id);
                self.kill_guard(id);
            }
        }
        None
    }

    fn report(&mut self, id: usize, report: GuardReport) {
        let site = self.guards[id].site;
        let now = self.clock(site);
        let down = match report.service {
            ServiceState::Unknown => true,
            ServiceState::Down => {
                self.on_down(site);
                true
            }
            ServiceState::Up(..) => false,
            ServiceState::Stopping { .. } => {
                self.judge_end(id);
                false
            }
        };
        let guard = &self.guards[id];
        if let Some(ToGuard::Grant(grant)) = &guard.last
            && now < grant.valid_until
            && down
        {
            self.fail("needless", format!("the guard of {site} ignores a grant"));
        }
        self.note(Some(site), || {
            let up = match &report.service {
                ServiceState::Up(grant, start) => {
                    let until = grant.valid_until.since_boot();
                    return format!("guard {id} reports up until {until:?}, {start:?}");
                }
                other => other,
            };
            format!("guard {id} reports {up:?}")
        });
        self.step(Step::Reported, site);
        if let Some(line) = self.guards[id].line {
            self.write_to_agent(line, Some(report));
        }
    }

    fn wake_guard(&mut self, id: usize) {
        let guard = &self.guards[id];
        let deadline = guard.core.as_ref().and_then(Guard::deadline);
        let Some(deadline) = deadline.filter(|_| guard.alive) else {
            return;
        };
        let (site, now) = (guard.site, self.clock(guard.site));
        if deadline <= now {
            let by = now.since(deadline);
            self.fail("deadline", format!("of the guard of {site}, {by:?} ago"));
        }
        let earliest = self.host(site).clock.when(deadline).max(self.now);
        if earliest < self.guards[id].wake_at {
            let at = earliest + self.late();
            self.guards[id].wake_at = at;
            self.at(at, Happening::Guard(id, GuardEvent::Due));
        }
    }

    /// The process is gone, whatever ended it. Its commands run on, and so does a device that
    /// it had open.
    pub fn kill_guard(&mut self, id: usize) {
        let guard = &mut self.guards[id];
        if !guard.alive {
            return;
        }
        guard.alive = false;
        guard.held.clear();
        let site = guard.site;
        let lines: Vec<usize> = guard.backlog.drain(..).chain(guard.line.take()).collect();
        let tasks = std::mem::replace(&mut guard.tasks, [const { None }; 4]);
        self.sites[site].guards.retain(|alive| *alive != id);
        self.forsake_device(id);
        for line in lines {
            self.write_to_agent(line, None);
        }
        // A command that waits for its guard ends with it.
        for process in tasks.into_iter().flatten().filter_map(|task| task.process) {
            if !self.processes[process].begun {
                self.end_process(process);
            }
        }
        if self.sites[site].guard_lock == Some(id) {
            self.sites[site].guard_lock = None;
            for heir in self.sites[site].guards.clone() {
                let wait = self.late();
                self.after(wait, Happening::Guard(heir, GuardEvent::Locked));
            }
        }
        self.look_after(site);
    }

    /// Whether some guard of this site is there, can act, and knows what is to become of the
    /// service.
    pub fn guard_is_well(&self, site: usize) -> bool {
        let well = |id: &usize| {
            let guard = &self.guards[*id];
            !guard.stopped && guard.informed && guard.core.is_some()
        };
        !self.host(site).asleep && self.sites[site].guards.iter().any(well)
    }
}
