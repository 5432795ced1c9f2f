//! The health check of an agent, and the thread that kills it at its deadline.

use putex::core::command::{Command, Outcome, Run};
use putex::core::event::Event;
use putex::core::time::Instant;

use super::agent::AgentEvent;
use super::clock::True;
use super::process::{BEFORE, Owner, never};
use super::world::{Happening, World};

/// The watchdog's slot of the health check.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    deadline: Instant,
    /// The check was requested, and its end was not told.
    running: bool,
    process: Option<usize>,
    killed: bool,
    /// When the watchdog looks at it next.
    due: True,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot { deadline: BEFORE, running: false, process: None, killed: false, due: never() }
    }
}

impl Slot {
    /// The agent knows that it has ended.
    pub fn ended(&mut self) {
        self.running = false;
    }

    /// Whether it runs and has had its time.
    pub fn is_over(&self, now: Instant) -> bool {
        self.running && self.deadline <= now
    }
}

impl World<'_> {
    pub fn run_check(&mut self, id: usize, run: &Run) {
        let site = self.agents[id].site;
        if std::mem::replace(&mut self.agents[id].check.running, true) {
            self.fail("twice", format!("{site} runs its health check twice"));
        }
        self.agents[id].check.deadline = run.deadline;
        let wait = self.late();
        self.after(wait, Happening::Agent(id, AgentEvent::CheckBegins));
    }

    /// A check that comes too late is not begun.
    pub fn begin_check(&mut self, id: usize) {
        if self.is_over(id) {
            return self.check_ended(id, Outcome::Overran);
        }
        let site = self.agents[id].site;
        let deadline = self.agents[id].check.deadline;
        let process = self.new_process(site, Command::Check, Owner::Agent(id));
        let slot = &mut self.agents[id].check;
        slot.process = Some(process);
        slot.killed = false;
        self.begin_process(process, deadline);
        self.watch_check(id);
    }

    fn check_ended(&mut self, id: usize, outcome: Outcome) {
        self.tell(id, Event::CheckEnded(outcome));
    }

    /// Sets the deadline of the check, whether it runs already or is about to.
    pub fn arm_check(&mut self, id: usize, deadline: Instant) {
        self.agents[id].check.deadline = deadline;
        self.watch_check(id);
    }

    fn watch_check(&mut self, id: usize) {
        let agent = &self.agents[id];
        if agent.check.process.is_none() {
            return;
        }
        let clock = self.host(agent.site).clock;
        let when = clock.when(agent.check.deadline).max(self.now);
        if when < agent.check.due {
            let due = when + self.late();
            self.agents[id].check.due = due;
            self.at(due, Happening::Agent(id, AgentEvent::KillDue));
        }
    }

    pub fn kill_due(&mut self, id: usize) {
        self.agents[id].check.due = never();
        if self.agents[id].check.process.is_none() {
            return;
        }
        if self.is_over(id) {
            self.kill_check(id);
        } else {
            self.watch_check(id);
        }
    }

    /// Kills the check now, or as soon as it runs.
    pub fn kill_check(&mut self, id: usize) {
        let slot = &mut self.agents[id].check;
        slot.deadline = BEFORE;
        if let Some(process) = slot.process {
            slot.killed = true;
            self.kill_process(process);
        }
    }

    pub fn reap_check(&mut self, id: usize, process: usize) {
        let slot = &mut self.agents[id].check;
        if slot.process != Some(process) {
            return;
        }
        slot.process = None;
        let killed = slot.killed;
        let outcome = self.outcome(process, killed);
        self.check_ended(id, outcome);
    }

    fn is_over(&self, id: usize) -> bool {
        let site = self.agents[id].site;
        self.agents[id].check.deadline.max(BEFORE) <= self.clock(site)
    }
}
