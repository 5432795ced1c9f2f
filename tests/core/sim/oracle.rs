//! Rules that hold in every run, and excuses of a run.
//!
//! * `overlap`: at most one service of a seat is up at any instant of true time.
//! * `outlived`: a service is down by V + C·R after its lock's last acknowledged renewal.
//! * `unsaid`: a guard says so when a service outlives its lock.
//! * `late`: no guard says so of a service that it could have stopped in time.
//! * `two-locks`: nobody takes a lock on which another may still act.
//! * `take`: an agent takes a lock only when its guard is fit and says that the service is down.
//! * `no-lock`: start begins, and a service comes up, only under a valid lock.
//! * `failback`: an agent requests a lock only when it has been fit for long enough.
//! * `pause`: no agent that knows of a pause takes a lock, or asserts start; each agent observes
//!   the pause of the highest serial number that it was told, and no other; start is asserted for
//!   the first time after the pause was read since the take.
//! * `term`: fencing terms strictly grow over holders; adoption keeps the term.
//! * `down`: a guard reports down only when stop has succeeded since, and nothing can come up.
//! * `release`: a release is written only after that.
//! * `left-up`: neither an agent that ends cleanly nor a guard leaves a service that is up.
//! * `undecided`: a guard soon ends what the previous guard may have left, unless it is granted.
//! * `note`: the file that a guard leaves behind does not deny a service that is up.
//! * `hung`: a guard that is stopped is killed by its agent in time, unless the service is down.
//! * `impatient`: no guard is killed that has answered in time.
//! * `ending`: an agent gives up a service only R after it had to be down.
//! * `lingers`: an agent that is told to end has ended in the time that it tells its manager.
//! * `loss`: what a store shows only when it lost writes is noticed.
//! * `needless`: no service is stopped whose lock was renewed, and whose agent has no reason.
//! * `device`: a watchdog device bites by V + C·R when it is not kicked any more, is not
//!   stopped while the service may be up, and runs where it is required.
//! * `twice`: no command runs twice at the same time.
//! * `deadline`: after a turn the next deadline lies in the future.
//! * `liveness`: when nothing goes wrong any more, exactly one service is up in time, and all
//!   agents do their duty.
//! * `loop`: nothing is started or stopped any more then, and guards not without a pause.
//! * `panic`: the core does not panic, which it does when states go round.
//!
//! # V + C·R in true time
//!
//! A challenger on the fastest clock takes the lock T after the renewal was sent at
//! the earliest, and starts C·R / (1 + e) after that: by then the service is down.

use std::time::Duration;

use putex::core::event::Ending;
use putex::core::timing::Timing;

use super::clock::{MS, True, nanos};
use super::counters::Sometimes;
use super::world::{Acked, World};

/// A violation of a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    pub oracle: &'static str,
    pub text: String,
    pub at: True,
}

impl World<'_> {
    /// Returns by when the service of a site must be down.
    pub fn dead_by(&self, site: usize) -> Option<True> {
        let sent = self.dead_by_renewal(site)?;
        // A lock that is seen to be lost is lost from then on, but to a device that was
        // kicked before.
        let place = &self.sites[site];
        let lost_at = place.lost_at.filter(|_| !place.excuse.stop_failed);
        let timing = place.acked?.timing;
        Some(lost_at.map_or(sent, |at| sent.min(at + shortest_grace(timing))))
    }

    /// Returns the same when only the last renewal counts.
    pub fn dead_by_renewal(&self, site: usize) -> Option<True> {
        let Acked { sent, timing } = self.sites[site].acked?;
        Some(sent + nanos(timing.lock_time()) + shortest_grace(timing))
    }

    /// Returns by when it must be down for all that its guard knows.
    pub fn dead_by_own(&self, site: usize) -> Option<True> {
        let clock = self.host(site).clock;
        let budget = self.sites[site].acked?.timing.stop_budget();
        let over = self.lock_over(site)?;
        Some(clock.when(clock.at(over).after(budget)))
    }

    /// Returns V in true time.
    pub fn lock_over(&self, site: usize) -> Option<True> {
        let clock = self.host(site).clock;
        let Acked { sent, timing } = self.sites[site].acked?;
        Some(clock.when(clock.at(sent).after(timing.validity())))
    }

    pub fn service_up(&mut self, site: usize) {
        if self.sites[site].up {
            return;
        }
        self.sites[site].up = true;
        self.changes += 1;
        self.note(Some(site), || "THE SERVICE IS UP".to_owned());
        self.show_service(site);
        if !self.sc.sites[site].plain && !self.excused(site) {
            match self.dead_by(site) {
                None => self.fail("no-lock", format!("{site} never had the lock")),
                Some(by) if self.now > by => {
                    let late = Duration::from_nanos(self.now - by);
                    self.fail("no-lock", format!("{site} starts {late:?} after its end"));
                }
                Some(_) => {}
            }
        }
        for other in 0..self.sites.len() {
            if other != site && self.sites[other].up && !self.host(other).asleep {
                self.overlap(other, site);
            }
        }
    }

    pub fn service_down(&mut self, site: usize) {
        if !self.sites[site].up {
            return;
        }
        self.check_outlived(site);
        self.sites[site].up = false;
        self.changes += 1;
        self.forgive(site);
        self.note(Some(site), || "the service is down".to_owned());
        self.show_service(site);
    }

    fn show_service(&mut self, site: usize) {
        let up = self.sites[site].up;
        if let Some(trace) = &mut self.trace {
            trace.service(self.now, site, up);
        }
    }

    pub fn check_outlived(&mut self, site: usize) {
        if !self.sites[site].up || self.sc.sites[site].plain || self.host(site).asleep {
            return;
        }
        if let Some(by) = self.dead_by(site)
            && self.now > by
        {
            if let Some(why) = self.excuse(site) {
                self.count(why);
                return self.judge_silence(site, by);
            }
            let late = Duration::from_nanos(self.now - by);
            self.fail("outlived", format!("{site} is up {late:?} after V + C·R"));
        }
    }

    /// A guard that is there says that a service outlives its lock.
    fn judge_silence(&mut self, site: usize, by: True) {
        let place = &self.sites[site];
        let there = place.away_since.is_none();
        let since = place.well_since.max(by) + 4 * self.sc.late + MS;
        let knows = !place.excuse.unknown && !self.lies_are_excused(site);
        let dying = self.processes.iter().any(|process| {
            process.site == site && process.is_stuck() && process.dying.is_some_and(|at| at > by)
        });
        if there && knows && !dying && self.now > since && place.late_said_at.is_none() {
            let text = format!("{site} is up after V + C·R, and its guard says nothing");
            self.fail("unsaid", text);
        }
    }

    /// A report says that a service may outlive its lock.
    pub fn on_late(&mut self, site: usize) {
        self.count(Sometimes::TooLate);
        self.check_late(site);
        self.sites[site].late_said_at = Some(self.now);
    }

    /// Nobody may have to say that a service outlives its lock when nothing hindered the
    /// one who had to stop it.
    fn check_late(&mut self, site: usize) {
        let place = &self.sites[site];
        let Some(by) = self.dead_by_own(site) else {
            return;
        };
        let over = self.now + MS >= by;
        // A start that does not die is waited for before stop, and its stop does not count:
        // there is another when it has died.
        let mut starts = place.starts.iter().map(|id| &self.processes[*id]);
        let dying = starts.any(|start| start.dying.is_some());
        let dying = dying || self.now < place.start_died_at + 40 * MS;
        let excuse = &place.excuse;
        let lied = excuse.lied || excuse.escaped || place.away_since.is_some();
        let hindered = excuse.stop_failed || excuse.unknown || lied || dying || !over;
        if place.up && !hindered && !self.excused(site) {
            self.fail("late", format!("{site} could have been stopped in time"));
        }
    }

    fn overlap(&mut self, one: usize, other: usize) {
        if self.sites[one].seat != self.sites[other].seat {
            return;
        }
        // A slow start can be the later one of the earlier lock.
        let [older, newer] = if self.sites[one].term_at <= self.sites[other].term_at {
            [one, other]
        } else {
            [other, one]
        };
        if self.spreads_unknown(older, newer) || self.excused(older) || self.excused(newer) {
            return self.count(Sometimes::ExcusedOverlap);
        }
        self.fail("overlap", format!("{older} and {newer} are up at once"));
    }

    /// As [`World::unknowable`]; and then no agent that follows the newer holder can know of the
    /// older one either.
    pub fn spreads_unknown(&mut self, older: usize, newer: usize) -> bool {
        let unknowable = self.unknowable(older, newer);
        self.sites[older].blind |= unknowable;
        unknowable
    }

    /// Whether the newer holder could not know of the older one: the store had lost
    /// all that it was shown of it, or a person had written over it.
    pub fn unknowable(&self, older: usize, newer: usize) -> bool {
        let since = self.sites[older].term_at;
        let agent = self.sites[newer].agent;
        // The newer holder waits for T and C R of its own: those of the older one may be longer.
        let mixed = self.times_differ;
        // putex 0.2.0 takes a blank lock at once, whoever blanked it.
        let plain = self.sc.sites.iter().any(|site| site.plain);
        // Whose times are its own was known, if its record was shown before.
        let own = self.sites[older].term..=self.sites[older].written;
        let shown = |at: True| {
            let marks = agent.map_or(&[][..], |agent| &self.agents[agent].marks);
            let mut marks = marks.iter();
            let when = since..=at;
            marks.any(|(seen_at, number, _)| when.contains(seen_at) && own.contains(number))
        };
        let lost = self.store.losses.iter().any(|loss| {
            let informed = agent.is_some_and(|agent| loss.may_be_known_to(agent, 0));
            let informed = informed && (!mixed || shown(loss.at));
            // A write that was sent before a loss may be stored after it, under its old number.
            let late = self.sc.kinds.has(super::faults::Kind::LateRequest);
            // And putex 0.2.0 knows nothing of losses.
            plain || loss.at >= since && (!informed || loss.taken || late)
        });
        // The first of several writes hides it; what a stale read shows then is not believed.
        let mut hands = self.hands.iter().filter(|at| **at >= since);
        let by_hand = hands.any(|at| plain || mixed && !shown(*at));
        // The agent never opened the bucket that stands there now, where the numbers mean other
        // records.
        let bucket = agent.and_then(|agent| self.agents[agent].bucket.as_ref());
        let old = bucket.is_some_and(|bucket| *bucket != self.store.id());
        // A person wrote under a number that was lost: a compare-and-set on it succeeds.
        let mut losses = self.store.losses.iter();
        let last = self.hands.last();
        let reused = losses.any(|loss| loss.at >= since && last >= Some(&loss.at));
        // A number that was given twice hid that the record was another.
        let blind = self.sites[older].blind || self.sites[newer].blind;
        lost || old || blind || reused || by_hand
    }

    /// A guard reports that the service is down.
    pub fn on_down(&mut self, site: usize) {
        let place = &self.sites[site];
        let (up, stopped) = (place.up, place.stopped);
        let (starts, escaped) = (place.starts.len(), place.escaped.len());
        let escaped = if self.sc.sites[site].has_cgroup { escaped } else { 0 };
        let lies = self.lies_are_excused(site);
        if up && !lies || !stopped || starts > 0 || escaped > 0 {
            let text = format!(
                "the guard of {site} reports down: up {up}, stopped {stopped}, starts {starts}, \
                 others {escaped}"
            );
            self.fail("down", text);
        }
    }

    pub fn on_exit(&mut self, id: usize, ending: &Ending) {
        let site = self.agents[id].site;
        match ending {
            Ending::Clean | Ending::Rejected(_) => {
                if self.may_come_up(site) && !self.lies_are_excused(site) {
                    let text = format!("{site} ends with its service up: {ending:?}");
                    self.fail("left-up", text);
                }
            }
            Ending::NotStopped => {
                self.count(Sometimes::EndedNotStopped);
                let r = self.sites[site].timing.renewal();
                let agent = &self.agents[id];
                let told = agent.told_to_end.map(|at| self.host(site).clock.at(at));
                let since = told.max(agent.view.dead_by);
                if since.is_some_and(|since| self.clock(site) < since.after(r)) {
                    self.fail("ending", format!("{site} gives its service up too early"));
                }
            }
        }
    }

    /// Whether the service is up, or may come up, as far as a guard can know.
    pub fn may_come_up(&self, site: usize) -> bool {
        let escaped = self.sc.sites[site].has_cgroup && !self.sites[site].escaped.is_empty();
        self.sites[site].up || self.starting(site) || escaped
    }

    pub fn on_leave(&mut self, guard: usize) {
        let site = self.guards[guard].site;
        if self.may_come_up(site) && !self.lies_are_excused(site) {
            let text = format!("the guard of {site} leaves its service up");
            self.fail("left-up", text);
        }
    }
}

/// Returns the shortest time after V in which another host can start the service.
fn shortest_grace(timing: Timing) -> u64 {
    let grace = u128::from(nanos(timing.confirmation())) * 1_000_000;
    let grace = grace / u128::from(1_000_000 + timing.drift_ppm());
    // Rounded to whole nanoseconds on the way, a few times.
    grace as u64 + 100
}
