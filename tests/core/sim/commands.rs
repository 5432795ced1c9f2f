//! The commands of a guard: spawned by a thread of its own, begun when the guard lets them,
//! killed with their process group. And the control group of start.

use putex::core::command::{Command, LockContext, Outcome};
use putex::core::guard::GuardInput;
use putex::core::protocol::DeviceUse;
use putex::core::time::Instant;

use super::clock::{MS, nanos};
use super::counters::Sometimes;
use super::faults::Kind;
use super::guard::GuardEvent;
use super::process::{Owner, ProcessEvent};
use super::scenario::Step;
use super::world::{Happening, World};

/// A command that a guard runs.
#[derive(Clone, Debug)]
pub struct Task {
    run: u64,
    pub process: Option<usize>,
    killed: bool,
    until: Instant,
    context: LockContext,
}

impl World<'_> {
    /// Asks the thread of a command to spawn it.
    pub fn run_command(&mut self, id: usize, command: Command, until: Instant) {
        let site = self.guards[id].site;
        if self.guards[id].tasks[command as usize].is_some() {
            let name = command.name();
            self.fail("twice", format!("the guard of {site} runs {name} twice"));
        }
        let guard = &mut self.guards[id];
        guard.runs += 1;
        let run = guard.runs;
        let context = guard.core.as_ref().map(|core| core.context());
        guard.tasks[command as usize] = Some(Task {
            run,
            process: None,
            killed: false,
            until,
            context: context.unwrap_or_default(),
        });
        if command == Command::Start {
            self.judge_start(id);
        }
        let (wait, well) = self.spawn_time(site, command, until);
        let spawned = GuardEvent::Spawned(command, run, well);
        self.after(wait, Happening::Guard(id, spawned));
    }

    /// Start is run only where the watchdog device that is required runs.
    fn judge_start(&mut self, id: usize) {
        let site = self.guards[id].site;
        let required = self.sc.sites[site].device_use == DeviceUse::Required;
        if required && self.device_of(id).is_none() {
            self.fail("device", format!("{site} starts without its device"));
        }
    }

    /// Returns how long it takes to spawn a command, and whether it succeeds.
    fn spawn_time(&mut self, site: usize, command: Command, until: Instant) -> (u64, bool) {
        let wait = self.chance.between(MS / 5, 2 * MS);
        if self.strikes(Kind::SpawnFail) {
            self.stop_fails(site, command);
            return (wait, false);
        }
        if !self.strikes(Kind::SpawnHang) {
            return (wait, true);
        }
        let t = nanos(self.sites[site].timing.lock_time());
        let hangs = self.rng(Kind::SpawnHang).below(4 * t);
        // Until nothing goes wrong any more, at the latest.
        let hangs = hangs.min(self.sc.quiet_at.saturating_sub(self.now) + MS);
        let over = self.host(site).clock.when(until);
        let late = self.now + hangs + 10 * MS > over;
        if late || command == Command::LastResort && hangs > 2 * MS {
            self.stop_fails(site, command);
        }
        (wait + hangs, true)
    }

    /// A stop or a last resort comes to nothing.
    pub fn stop_fails(&mut self, site: usize, command: Command) {
        let ends = matches!(command, Command::Stop | Command::LastResort);
        if ends && self.may_run(site) {
            let excuse = &mut self.sites[site].excuse;
            excuse.stop_failed = true;
            excuse.unaided |= command == Command::LastResort;
        }
    }

    /// The process of a command waits, or could not be had.
    pub fn spawned(&mut self, id: usize, command: Command, run: u64, well: bool) {
        let guard = &mut self.guards[id];
        let slot = &mut guard.tasks[command as usize];
        let Some(task) = slot.as_mut().filter(|task| task.run == run) else {
            return;
        };
        if !well {
            *slot = None;
            let failed = Outcome::Failed("no process".to_owned());
            guard.inputs.push_back(GuardInput::Ended(command, failed));
            return;
        }
        let site = guard.site;
        let killed = task.killed;
        let process = self.new_process(site, command, Owner::Guard(id));
        // The file comes first: should the guard die now, the next one knows of it.
        let note = &mut self.sites[site].note;
        note.processes[command as usize] = Some(process);
        note.down &= command != Command::Start;
        let guard = &mut self.guards[id];
        if let Some(task) = &mut guard.tasks[command as usize] {
            task.process = Some(process);
            debug_assert!(!killed);
        }
        guard.inputs.push_back(GuardInput::Spawned(command));
        self.step(Step::Spawned, site);
    }

    /// Lets a command begin.
    pub fn release(&mut self, id: usize, command: Command) {
        let site = self.guards[id].site;
        let task = self.guards[id].tasks[command as usize].clone();
        let Some((task, process)) = task.and_then(|task| task.process.map(|at| (task, at))) else {
            let text = format!("{site} begins {} before it is there", command.name());
            return self.fail("twice", text);
        };
        if command == Command::Start {
            self.on_start(id, &task.context);
            self.judge_acknowledged_pause(site);
        }
        self.alone(process);
        self.note(Some(site), || format!("{} begins", command.name()));
        self.begin_process(process, task.until);
    }

    /// Whether a stop runs that was told a later deadline.
    pub fn cuts_short(&self, id: usize, dead_by: Instant) -> bool {
        let stop = self.guards[id].tasks[Command::Stop as usize].as_ref();
        stop.is_some_and(|task| task.until > dead_by)
    }

    /// Whether the start of a guard runs.
    pub fn has_begun(&self, id: usize) -> bool {
        let start = self.guards[id].tasks[Command::Start as usize].as_ref();
        let process = start.and_then(|task| task.process);
        process.is_some_and(|process| self.processes[process].begun)
    }

    /// No other process does the same at the same time, but one that was killed.
    fn alone(&mut self, process: usize) {
        let new = &self.processes[process];
        let (site, command) = (new.site, new.command);
        let mut others = self.processes.iter().enumerate();
        let twice = others.any(|(id, other)| {
            let same = other.site == site && other.command == command && !other.escaped;
            let killed = command != Command::Start && other.dying.is_some();
            id != process && same && other.alive && other.begun && !killed
        });
        if twice {
            self.fail("twice", format!("{site} runs {} twice", command.name()));
        }
    }

    pub fn kill_command(&mut self, id: usize, command: Command) {
        if command == Command::LastResort {
            // The last resort hung, or its host slept.
            self.stop_fails(self.guards[id].site, command);
        }
        let inherited = self.guards[id].inherited;
        match &mut self.guards[id].tasks[command as usize] {
            Some(task) => {
                if let Some(process) = task.process {
                    task.killed = true;
                    self.kill_process(process);
                }
            }
            None if command == Command::Start => {
                if let Some(process) = inherited {
                    self.kill_process(process);
                }
            }
            None => {}
        }
    }

    /// The process of a command has ended.
    pub fn reap(&mut self, id: usize, process: usize) {
        let command = self.processes[process].command;
        let guard = &mut self.guards[id];
        let task = &mut guard.tasks[command as usize];
        let outcome = if let Some(ended) = task.take_if(|task| task.process == Some(process)) {
            self.outcome(process, ended.killed)
        } else if guard.inherited == Some(process) {
            guard.inherited = None;
            Outcome::Failed("killed".to_owned())
        } else {
            return;
        };
        let guard = &mut self.guards[id];
        guard.inputs.push_back(GuardInput::Ended(command, outcome));
        let noted = &mut self.sites[guard.site].note.processes[command as usize];
        noted.take_if(|noted| *noted == process);
    }

    /// Kills what is in the control group of start, and tells when it is empty.
    pub fn empty_cgroup(&mut self, id: usize) {
        let site = self.guards[id].site;
        if !self.sc.sites[site].has_cgroup {
            self.guards[id].inputs.push_back(GuardInput::CgroupEmptied);
            return self.after(1, Happening::Guard(id, GuardEvent::Look));
        }
        self.guards[id].emptying = true;
        if self.may_run(site) {
            self.count(Sometimes::CgroupEmptied);
        }
        self.kill_cgroup(site);
    }

    pub fn kill_cgroup(&mut self, site: usize) {
        let wait = self.late();
        if self.sc.sites[site].has_cgroup {
            self.after(wait, Happening::CgroupKilled(site));
        }
    }

    /// All that start left behind is killed, with the service in it.
    pub fn kill_service(&mut self, site: usize) {
        let inside = self.sites[site].starts.clone().into_iter();
        for id in inside.chain(self.sites[site].escaped.clone()) {
            self.kill_process(id);
            // All that is in a control group is killed at once, and what that forks.
            self.processes[id].escape = None;
            if !self.processes[id].is_stuck() {
                self.processes[id].effect = None;
                if self.processes[id].escaped {
                    self.proceed(id, ProcessEvent::Die);
                }
            }
        }
        self.service_down(site);
        self.tell_empty(site);
    }

    /// Tells a guard that waits for it that the control group is empty.
    pub fn tell_empty(&mut self, site: usize) {
        if self.may_run(site) {
            return;
        }
        for id in self.sites[site].guards.clone() {
            if std::mem::take(&mut self.guards[id].emptying) {
                self.guards[id].inputs.push_back(GuardInput::CgroupEmptied);
                self.wake_guard_soon(id);
            }
        }
    }
}
