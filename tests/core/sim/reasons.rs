//! Whether a guard has a reason to end its service, or to leave it alone.

use putex::core::guard::Guard;
use putex::core::protocol::ToGuard;
use putex::core::timing::SLACK;

use super::clock::{MS, True, nanos};
use super::guard::GuardEvent;
use super::world::{Happening, World};

impl World<'_> {
    /// Nobody has a reason to end a service whose lock was renewed in time.
    pub fn judge_end(&mut self, id: usize) {
        let site = self.guards[id].site;
        let now = self.clock(site);
        let guard = &self.guards[id];
        if guard.ending {
            return;
        }
        let unread = guard.line.map(|line| self.connections[line].messages.iter());
        let unread = unread.into_iter().flatten().filter_map(|message| match message {
            ToGuard::Grant(grant) => Some(grant),
            ToGuard::Hello(_) | ToGuard::AssertStart | ToGuard::Stop(_) | ToGuard::AskReport => {
                None
            }
        });
        let mut grants = guard.granted.iter().chain(unread);
        if !guard.ordered && grants.any(|grant| now < grant.valid_until) {
            let text = format!("the guard of {site} stops the service under a valid lock");
            self.fail("needless", text);
        }
        if !self.guards[id].informed {
            self.judge_adoption(site);
            self.told_by_nobody(id);
        }
        self.guards[id].ending = true;
    }

    /// A guard is told of the lock of a service that is being adopted.
    fn judge_adoption(&mut self, site: usize) {
        let agent = self.sites[site].agent.map(|id| &self.agents[id]);
        let adopts = agent
            .is_some_and(|agent| agent.alive && agent.state == "taking" && agent.writing.adopts);
        if adopts {
            let text = format!("the guard of {site} stops a service that is being adopted");
            self.fail("needless", text);
        }
    }

    /// Expects the guard's decision about a service that the previous guard has left: such a
    /// service is not left alone, whatever the agent says.
    pub fn expect_decision(&mut self, id: usize) {
        let at = self.decision_over(id);
        self.at(at, Happening::Guard(id, GuardEvent::Decide));
    }

    /// Returns by when a guard has decided on its own what becomes of the service.
    fn decision_over(&self, id: usize) -> True {
        let guard = &self.guards[id];
        // An earlier agent may have had a larger R.
        let r = self.sc.sites[guard.site].timing.renewal();
        let wait = nanos(r / 4).max(20 * MS) * 3 / 2;
        // Where nobody is told of the decision it shows with the first command, which waits for
        // the end of a start that was killed.
        let dying = nanos(SLACK) * 3 / 2;
        guard.greeted_at.max(guard.resumed_at) + wait + dying + 4 * self.sc.late + MS
    }

    pub fn judge_decision(&mut self, id: usize) {
        let guard = &self.guards[id];
        let (site, told) = (guard.site, guard.informed);
        if told || guard.core.as_ref().is_some_and(Guard::is_down) {
            return;
        }
        if self.now < self.decision_over(id) {
            return self.expect_decision(id);
        }
        self.fail("undecided", format!("the guard of {site} leaves the service alone"));
    }

    /// Nobody knows until when the service had a lock: there is no last resort then.
    pub fn told_by_nobody(&mut self, id: usize) {
        let site = self.guards[id].site;
        self.guards[id].informed = true;
        self.guards[id].ordered = true;
        if self.may_run(site) {
            self.sites[site].excuse.unknown = true;
        }
    }
}
