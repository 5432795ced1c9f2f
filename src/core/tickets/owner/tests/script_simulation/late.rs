//! Faults and the time until which they happen: late renewals.

use super::*;

impl Simulation {
    pub(super) fn is_calm(&self) -> bool {
        self.now >= CALM
    }

    /// Draws whether this renewal of a script is to come late.
    pub(super) fn is_late(&mut self, id: usize, step: &Step) -> bool {
        let is_renewal = matches!(step, Step::Write(_, Some(_), ..));
        let is_alone = !self.clients[id].shares_name || self.rough.is_rough;
        let is_of_script = !self.clients[id].is_lock && is_alone;
        is_renewal && is_of_script && !self.is_calm() && self.random.one_in(12)
    }

    /// The process of a script is killed while its renewal is on the way. The renewal arrives when
    /// the server has just restored the ticket that it replaces, and the script asks again soon
    /// after.
    pub(super) fn come_late(&mut self, id: usize, step: Step) {
        let arrives = self.now + 2 * LIFE + self.random.below(4 * LIFE);
        self.at(arrives, Event::Kill);
        let element = self.clients[id].element();
        self.clients[id].process = None;
        let again = arrives + self.random.below(QUARTER / 2);
        self.at(arrives, Event::Arrive(id, 0, step, element));
        self.act_at(id, again);
    }
}
