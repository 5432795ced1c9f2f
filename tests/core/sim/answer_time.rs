//! The time in which a guard has to answer its agent: one that hangs is replaced, and one that
//! answers is not killed.

use putex::core::guard::Guard;
use putex::core::protocol::ServiceState;
use putex::core::timing::{SLACK, guard_answer_time};

use super::clock::{MS, True};
use super::counters::Sometimes;
use super::faults::Kind;
use super::world::{Happening, World};

/// A guard that was stopped. An agent has to kill it unless the guard goes on.
#[derive(Clone, Copy, Debug)]
pub struct Hung {
    guard: usize,
    since: True,
}

impl World<'_> {
    /// A guard was stopped: its agent has to notice that, unless the service is down by its last
    /// report.
    pub fn expect_replacement(&mut self, guard: usize) {
        let site = self.guards[guard].site;
        let Some(agent) = self.sites[site].agent else { return };
        let Some(line) = self.agents[agent].line.filter(|_| !self.agents[agent].stopped) else {
            return;
        };
        let report = self.agents[agent].view.report.as_ref();
        let may_run = report.is_some_and(|report| report.service != ServiceState::Down);
        // The report that the service is down may be under way.
        let is_down = self.guards[guard].core.as_ref().is_none_or(Guard::is_down);
        if self.connections[line].guard != guard || !may_run || is_down {
            return;
        }
        let timing = self.sites[site].timing;
        let renewal = timing.renewal();
        // A report may be under way, and is a sign of life. Then the guard is asked: late by the
        // time of an answer, after a grant.
        let under_way = if self.sc.kinds.has(Kind::MessageLate) { 2 * renewal } else { SLACK };
        let after_grant = guard_answer_time(renewal, None);
        let most = under_way + after_grant + timing.guard_replaced_within() + SLACK;
        let clock = self.host(site).clock;
        let by = clock.when(clock.at(self.now).after(most)) + 16 * self.sc.late;
        self.at(by, Happening::Hung(Hung { guard, since: self.now }));
    }

    /// A guard that was stopped has had its time.
    pub fn judge_replacement(&mut self, Hung { guard, since }: Hung) {
        let hung = &self.guards[guard];
        let Some(agent) = self.sites[hung.site].agent.map(|id| &self.agents[id]) else { return };
        let has_gone_on = !hung.stopped || hung.resumed_at >= since;
        let attends = agent.alive && !agent.stopped && agent.attends_since <= since;
        if has_gone_on || !attends || self.host(hung.site).asleep {
            return;
        }
        match hung.alive {
            true => self.fail("hung", format!("{} leaves a guard that hangs", hung.site)),
            false => self.count(Sometimes::HungReplaced),
        }
    }

    /// An agent kills its guard for want of an answer.
    pub fn judge_patience(&mut self, id: usize) {
        let Some(line) = self.agents[id].line else { return };
        let guard = &self.guards[self.connections[line].guard];
        let site = &self.sites[guard.site];
        // The times of the previous instance may be shorter.
        let renewal = if self.lock_times_differ { SLACK } else { site.timing.renewal() };
        let clock = self.host(guard.site).clock;
        let asked_at = clock.at(self.now).before(guard_answer_time(renewal, None));
        let since = clock.when(asked_at) + MS;
        let listens = guard.alive && guard.line == Some(line) && guard.begun_at < since;
        let guard_is_well = listens && !guard.stopped && guard.resumed_at < since;
        let is_well = self.agents[id].well_since < since && !self.host(guard.site).asleep;
        if guard_is_well && is_well && !self.sc.kinds.has(Kind::MessageLate) {
            let text = format!("{} kills a guard that answers", guard.site);
            self.fail("impatient", text);
        }
    }
}
