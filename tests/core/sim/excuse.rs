//! Why a service may outlive its lock: what the promise does not cover. Each excuse names its
//! reason and ends as early as can be.
//!
//! * `lied`, until the service is down: stop said that it succeeded and did not, and there is
//!   no control group.
//! * `escaped`, until the service is down: a process that start left behind brought the service
//!   up after a stop or a last resort, and there is no control group.
//! * `stop_failed`, until the service is down: stop failed, hung or could not be spawned, and
//!   neither control group, last resort nor device ends the service.
//! * `stuck`, until the service is down: a start that was late to die brought the service up
//!   after all that had been done, so that only stop is left.
//! * `unaided`, until the service is down: the last resort failed too.
//! * `unknown`, until the service is down and no start is left: guard and agent died: nobody
//!   knows that the service had a lock, so no last resort is run.
//! * `until`, until a stop has had its time: no guard was there when the lock ran out, a killed
//!   start was late to die, an agent told of a loss late, or so early that a stop that runs is
//!   killed before the deadline that it was told.
//! * away, until a guard is there: no guard is there although the lock has run out, or although
//!   a killed start is late to die; the agent cannot kill the control group.

use putex::core::timing::SLACK;

use super::clock::{MS, True};
use super::counters::Sometimes;
use super::device::Device;
use super::world::World;

/// Why a service may outlive its lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Excuse {
    pub lied: bool,
    pub escaped: bool,
    pub stop_failed: bool,
    pub unaided: bool,
    pub unknown: bool,
    pub stuck: bool,
    pub until: True,
}

impl World<'_> {
    pub fn excused(&self, site: usize) -> bool {
        self.excuse(site).is_some()
    }

    /// Returns why a service may outlive its lock, if it may.
    pub fn excuse(&self, site: usize) -> Option<Sometimes> {
        if self.lies_are_excused(site) {
            Some(Sometimes::OutlivedLied)
        } else if self.stop_is_excused(site) {
            Some(Sometimes::OutlivedStopFailed)
        } else if self.now < self.sites[site].excuse.until {
            Some(Sometimes::OutlivedBack)
        } else {
            self.away_is_excused(site).then_some(Sometimes::OutlivedAway)
        }
    }

    /// Whether no process can know that the service is up, or comes up, after stop.
    pub fn lies_are_excused(&self, site: usize) -> bool {
        let excuse = &self.sites[site].excuse;
        let has_cgroup = self.sc.sites[site].has_cgroup;
        (excuse.lied || excuse.escaped) && !has_cgroup
    }

    /// Whether the failure of stop to help is excused.
    fn stop_is_excused(&self, site: usize) -> bool {
        let excuse = &self.sites[site].excuse;
        let setup = &self.sc.sites[site];
        let resort = setup.resort && !excuse.unaided && !excuse.unknown;
        let aided = setup.has_cgroup || resort || self.device_helps(site);
        excuse.stop_failed && (!aided || excuse.stuck)
    }

    /// Whether a device resets the host, and was not kicked by the kernel. In a sleep of the
    /// host it does not.
    fn device_helps(&self, site: usize) -> bool {
        let helps = |device: &Device| {
            device.bites_at() == device.meant_to_bite_at() && self.now <= device.bites_at()
        };
        self.host(site).device.as_ref().is_some_and(helps)
    }

    /// Whether no guard is there since before the service had to be down, or since it was
    /// excused, and nothing else could help.
    fn away_is_excused(&self, site: usize) -> bool {
        let Some(by) = self.dead_by(site) else {
            return false;
        };
        let place = &self.sites[site];
        let since = place.away_since;
        since.is_some_and(|since| since <= by.max(place.excused_until)) && !self.agent_kills(site)
    }

    /// Whether an agent knew in time that no guard does what it has to, and can do it itself.
    fn agent_kills(&self, site: usize) -> bool {
        let agent = self.sites[site].agent.map(|id| &self.agents[id]);
        let Some((agent, by)) = agent.and_then(|agent| Some((agent, agent.view.dead_by?))) else {
            return false;
        };
        let clock = self.host(site).clock;
        // The agent waits for a guard that is there and late.
        let had_time = self.now > clock.when(by.after(SLACK / 2)) + 4 * self.sc.late;
        let by = clock.when(by);
        let unguarded = agent.view.unguarded_since.is_some_and(|at| at < by);
        let well = agent.alive && !agent.stopped && agent.well_since < by;
        let stops = agent.state == "stopping" && agent.state_since < by;
        self.sc.sites[site].has_cgroup && unguarded && well && stops && had_time
    }

    /// Notes whether a guard is there that can act.
    pub fn look_after(&mut self, site: usize) {
        if self.sc.sites[site].plain {
            return;
        }
        let well = self.guard_is_well(site);
        match self.sites[site].away_since {
            None if !well => {
                if self.excused(site) {
                    self.sites[site].excused_until = self.now;
                }
                self.sites[site].away_since = Some(self.now);
                self.judge_device(site);
            }
            Some(since) if well => {
                self.sites[site].away_since = None;
                self.sites[site].well_since = self.now;
                self.guard_is_back(site, since);
            }
            None | Some(_) => {}
        }
    }

    /// A guard is there again: it needs the time of a stop, if the lock has run out meanwhile.
    fn guard_is_back(&mut self, site: usize, since: True) {
        let by = self.dead_by(site).unwrap_or(0);
        let over = self.lock_over(site).unwrap_or(0);
        let over = self.sites[site].lost_at.map_or(over, |at| over.min(at));
        let by = by.max(self.sites[site].excused_until);
        if !self.may_run(site) || since > by || self.now < over {
            return;
        }
        // The control group or the last resort ends the service, whatever becomes of stop, at the
        // time when it had to be down.
        let setup = &self.sc.sites[site];
        let aided = (setup.has_cgroup || setup.resort) && !self.sites[site].excuse.unknown;
        let until = if aided {
            let by = self.dead_by_own(site).unwrap_or(0);
            self.now.max(by) + 40 * MS + 8 * self.sc.late
        } else {
            self.now + self.stop_turn(site) + 20 * MS
        };
        let excuse = &mut self.sites[site].excuse;
        excuse.until = excuse.until.max(until);
        self.count(Sometimes::GuardBackLate);
    }

    /// A device that runs when neither agent nor guard acts must end the service in time.
    fn judge_device(&mut self, site: usize) {
        let by = self.dead_by_renewal(site).unwrap_or(0);
        let device = self.host(site).device;
        let late = device.is_some_and(|device| device.meant_to_bite_at() > by);
        if late && self.may_run(site) && self.now <= by && !self.excused_but_away(site) {
            self.fail("device", format!("that of {site} is to bite after V + C·R"));
        }
    }

    fn excused_but_away(&self, site: usize) -> bool {
        let until = self.now < self.sites[site].excuse.until;
        until || self.lies_are_excused(site) || self.sites[site].excuse.stop_failed
    }

    /// Ends all excuses, but for the time that a stop has.
    pub fn forgive(&mut self, site: usize) {
        let Excuse { until, unknown, .. } = self.sites[site].excuse;
        let unknown = unknown && self.may_run(site);
        self.sites[site].excuse = Excuse { until, unknown, ..Excuse::default() };
    }
}
