//! When nothing goes wrong any more, exactly one service of each seat must be up, in time.
//!
//! In the order in which they can follow each other, by the slowest clock:
//!
//! 1. what hangs is killed when its deadline comes: T + stop budget, and R until stop
//!    is run again; a supervisor or a guard needs a second to be there again;
//! 2. a guard that does not answer is told something every T, and killed when it has not
//!    answered for R or half a second, twice if the previous guard is in the way;
//! 3. a store that was out of reach is opened again: an attempt that is under way, a
//!    pause, and as much again for the answer;
//! 4. a late request may still be applied: 3 T after it was sent;
//! 5. a stop stroke is over and the key was read: T + stop budget + 2 R;
//! 6. the takeover wait T (1 + e), the check and the take: 2 R;
//! 7. the confirmation C·R, and the first stroke with its check and renewal: 2 R.
//!
//! T, C·R and R are the longest of all agents: they bind each other.

use std::time::Duration;

use putex::core::timing::Timing;

use super::clock::{MS, nanos};
use super::faults::Kind;
use super::scenario::{self, Scenario};
use super::world::{Happening, Site, World};

impl World<'_> {
    /// As many services as there are seats for must be up, and awake.
    pub fn judge(&mut self) {
        let up: Vec<usize> = (0..self.sites.len()).filter(|site| self.sites[*site].up).collect();
        for site in &up {
            self.check_outlived(*site);
        }
        if !self.is_expected(up.len()) {
            let states: Vec<&str> = self.sites.iter().map(|site| self.state_of(site)).collect();
            self.fail("liveness", format!("up: {up:?}, states {states:?}"));
        }
        for site in 0..self.sites.len() {
            let state = self.state_of(&self.sites[site]);
            let idle = !matches!(state, "active" | "standby" | "none");
            if idle && !self.sc.sites[site].plain {
                self.fail("liveness", format!("{site} does not stand by: {state}"));
            }
        }
    }

    /// Whether as many services are up as when nothing goes wrong. Agents that know of one seat
    /// leave the others to those that know them.
    fn is_expected(&self, up: usize) -> bool {
        let all = self.sc.expected();
        let differ = self.sites.iter().any(|site| site.seats != self.sc.seats);
        if differ { (1..=all).contains(&up) } else { up == all }
    }

    /// Nothing is started or stopped any more, unless the delays of one renewal can add up to
    /// more than V leaves for it.
    pub fn expect_calm(&mut self) {
        let is_tight = |site: &scenario::Site| {
            let left = site.timing.validity().saturating_sub(site.timing.renewal());
            nanos(left) < 10 * self.sc.late
        };
        if self.sc.sites.iter().any(is_tight) {
            return;
        }
        let changes = (self.births, self.changes);
        if self.calm_since.replace(changes).is_some_and(|before| before != changes) {
            let text = format!("agents and guards begun, services moved: {changes:?}");
            self.fail("loop", text);
        }
    }

    pub fn state_of(&self, site: &Site) -> &'static str {
        match site.agent {
            Some(agent) if self.agents[agent].alive => self.agents[agent].state,
            Some(_) => "dead",
            None => "none",
        }
    }

    /// Nothing goes wrong any more, and exactly one must be active in time.
    pub fn expect_one(&mut self) {
        let bound = liveness_bound(self.sc);
        let again = longest(self.sc, |timing| timing.lock_time()) * 2;
        // Most runs are cut short when they have settled: what comes then is known.
        if !self.chance.chance(100) {
            self.after(again, Happening::Settle);
        }
        self.after(bound, Happening::Judge);
        self.after(bound + again, Happening::End);
    }

    /// Says whether the run has come to where it will stay: the last late request has
    /// arrived, one service is up, the agents of all others stand by.
    pub fn check_settled(&mut self) -> bool {
        let t = longest(self.sc, |timing| timing.lock_time());
        let r = longest(self.sc, |timing| timing.renewal());
        let late = self.sc.kinds.has(Kind::LateRequest);
        let arrived = self.now >= self.sc.quiet_at + if late { 3 * t + r } else { 0 };
        let up = self.sites.iter().filter(|site| site.up).count();
        let calm = self.sites.iter().all(|site| {
            let state = self.state_of(site);
            state == if site.up { "active" } else { "standby" } || state == "none"
        });
        if arrived && calm && self.is_expected(up) {
            self.judge();
            return true;
        }
        self.after(r, Happening::Settle);
        false
    }
}

fn longest(sc: &Scenario, of: impl Fn(Timing) -> Duration) -> u64 {
    let all = sc.sites.iter().map(|site| nanos(of(site.timing)));
    all.max().unwrap_or_default()
}

/// Returns how long after the last fault exactly one service must be up.
fn liveness_bound(sc: &Scenario) -> u64 {
    let t = longest(sc, |timing| timing.lock_time());
    let r = longest(sc, |timing| timing.renewal());
    let budget = longest(sc, |timing| timing.stop_budget());
    let grace = longest(sc, |timing| timing.confirmation());
    let wait = longest(sc, |timing| timing.takeover_wait(timing.lock_time()));
    // The best of those that take a lock.
    let delay = |site: &scenario::Site| nanos(site.priority.delay(site.timing.renewal()));
    let candidates = sc.sites.iter().filter(|site| site.priority.is_candidate());
    let delay = candidates.map(delay).max().unwrap_or_default();
    let hung = t + budget + r + 1000 * MS;
    let silent = t + 2 * (r.max(500 * MS) + 1000 * MS);
    let reopened = 2 * (sc.open_within + sc.reopen);
    let late = 3 * t;
    let stroke = t + budget + 2 * r;
    let take = wait + 2 * r + delay;
    let start = grace + 2 * r;
    // A lock that is as long as the longest pause, of a holder that is dead.
    let paused = if sc.kinds.has(Kind::Pause) { 8 * t } else { 0 };
    let shown = paused + hung + silent + reopened + late + stroke + take + start;
    // By the slowest clock.
    let slowest = 1_000_000 - u128::from(sc.drift_ppm);
    (u128::from(shown) * 1_000_000 / slowest) as u64
}
