//! What must hold in every run, and what a run may be excused for.
//!
//! | oracle | what it says |
//! |---|---|
//! | `overlap` | at most one service is up at any instant of true time |
//! | `outlived` | a service is down by V + C·R after its lock's last acknowledged renewal |
//! | `two-locks` | nobody takes a lock on which another may still act |
//! | `no-lock` | a service comes up only under a lock that may still be acted on |
//! | `term` | fencing terms strictly grow over holders; adoption keeps the term |
//! | `release` | a release is written only after a stop that succeeded since the last start |
//! | `left-up` | neither an agent that ends cleanly nor a guard leaves a service that is up |
//! | `loss` | what a store shows only when it lost writes is noticed |
//! | `needless` | a guard does not kill an agent that has told it in time |
//! | `unguarded` | start is run, and begins, only when a guard is prepared for it |
//! | `device` | a watchdog device is not kicked so late that it bites after V + C·R |
//! | `twice` | no command runs twice at the same time |
//! | `deadline` | after a turn the next deadline lies in the future |
//! | `liveness` | when nothing goes wrong any more, exactly one service is up in time |
//! | `panic` | the core does not panic, which it does when states go round |
//!
//! # V + C·R in true time
//!
//! A challenger on the fastest clock takes the lock T after the renewal was sent at
//! the earliest, and starts C·R / (1 + e) after that: by then the service is down.

use std::time::Duration;

use putex::core::event::Ending;
use putex::core::guard::Watch;

use super::clock::{MS, True, nanos};
use super::counters::Sometimes;
use super::process::Process;
use super::world::World;

/// What was violated.
#[derive(Clone, Debug)]
pub struct Failure {
    pub oracle: &'static str,
    pub text: String,
    pub at: True,
}

/// Why a service may outlive its lock: what the promise does not cover.
#[derive(Clone, Copy, Debug, Default)]
pub struct Excuse {
    /// Neither an agent nor a guard was there, nor a watchdog device.
    pub unwatched: bool,
    /// A stop said that it succeeded and did not.
    pub lied: bool,
    /// A stop failed or hung.
    pub stop_failed: bool,
    /// And what should have helped then could not.
    pub unaided: bool,
    /// The agent knows that it is late.
    pub late: bool,
    /// A start that nobody was left to know of brought it up.
    pub stray: bool,
    /// Its host slept past V, or a start was late to die: it has until then.
    pub until: True,
}

impl World<'_> {
    fn excused(&self, site: usize) -> bool {
        let excuse = &self.sites[site].excuse;
        excuse.unwatched || self.stop_is_excused(site) || self.now < excuse.until
    }

    /// Whether it is nobody's fault that stop did not help.
    fn stop_is_excused(&self, site: usize) -> bool {
        let excuse = &self.sites[site].excuse;
        let setup = &self.sc.sites[site];
        // One that the kernel has kicked may bite too late.
        let device = self.host(site).device;
        let device = device.is_some_and(|device| device.bites_at() == device.meant_to_bite_at());
        let aided = (setup.cages || setup.resort || device) && !excuse.unaided;
        excuse.lied || excuse.stray || self.is_double(site) || excuse.stop_failed && !aided
    }

    /// Two agents of one host and one token take each other for lives of one agent, so
    /// that one stops a service and the other goes on with it: outside of the promise.
    pub fn is_double(&self, site: usize) -> bool {
        let one = &self.sc.sites[site];
        let same =
            |other: &super::scenario::Site| other.host == one.host && other.token == one.token;
        self.sc.sites.iter().filter(|other| same(other)).count() > 1
    }

    /// Returns by when the service of a site must be down.
    pub fn dead_by(&self, site: usize) -> Option<True> {
        let timing = self.sc.sites[site].timing;
        let grace = u128::from(nanos(timing.confirmation())) * 1_000_000;
        let grace = grace / u128::from(1_000_000 + timing.drift_ppm());
        let acked = self.sites[site].acked?;
        let valid = acked + nanos(timing.lock_time());
        // A lock that is seen to be lost is lost from then on, but to a device that was
        // kicked before.
        let place = &self.sites[site];
        let lost_at = place.lost_at.filter(|_| !place.excuse.stop_failed);
        let valid = valid.min(lost_at.unwrap_or(valid));
        // Rounded to whole nanoseconds on the way, a few times.
        Some(valid + grace as u64 + 100)
    }

    pub fn service_up(&mut self, site: usize) {
        if self.sites[site].up {
            return;
        }
        self.sites[site].up = true;
        self.note(Some(site), || "THE SERVICE IS UP".to_owned());
        self.show_service(site);
        self.look_after(site);
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
        self.forgive(site);
        self.note(Some(site), || "the service is down".to_owned());
        self.show_service(site);
    }

    /// What was excused is over, but for the time that a host has after its sleep.
    pub fn forgive(&mut self, site: usize) {
        let until = self.sites[site].excuse.until;
        self.sites[site].excuse = Excuse {
            until,
            ..Excuse::default()
        };
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
            if self.excused(site) {
                return self.count(Sometimes::ExcusedOutliving);
            }
            let late = Duration::from_nanos(self.now - by);
            self.fail("outlived", format!("{site} is up {late:?} after V + C·R"));
        }
    }

    /// Nobody may have to say that a service outlives its lock when nothing hindered the
    /// one who had to stop it.
    pub fn check_late(&mut self, site: usize) {
        let place = &self.sites[site];
        let Some(acked) = place.acked else {
            return;
        };
        let (timing, clock) = (self.sc.sites[site].timing, self.host(site).clock);
        let budget = timing.validity() + timing.stop_budget();
        let over = self.now + MS >= clock.when(clock.at(acked).after(budget));
        // With a device it was left to that, when agent and guard were gone together.
        let device = self.host(site).device.is_some();
        // A start that does not die is waited for before stop, and its stop does not count:
        // there is another when it has died.
        let mut starts = place.starts.iter().map(|id| &self.processes[*id]);
        let dying = starts.any(|start| start.dying.is_some());
        let dying = dying || self.now < place.start_died_at + 40 * MS;
        let excuse = &place.excuse;
        let hindered = excuse.stop_failed || excuse.late || device || dying || !over;
        if place.up && !hindered && !self.excused(site) {
            self.fail("late", format!("{site} could have been stopped in time"));
        }
    }

    fn overlap(&mut self, one: usize, other: usize) {
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

    /// As [`World::unknowable`]; and then nobody who follows the newer one can know of the
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
        let life = self.sites[newer].life;
        let mixed = self.sc.kinds.has(super::faults::Kind::Mixed);
        // putex 0.2.0 takes at once what is blank, whoever blanked it.
        let plain = self.sc.sites.iter().any(|site| site.plain);
        // Whose times are its own was known, if its record was shown before.
        let own = self.sites[older].term..=self.sites[older].written;
        let shown = |at: True| {
            let marks = life.map_or(&[][..], |life| &self.lives[life].marks);
            let mut marks = marks.iter();
            let when = since..=at;
            marks.any(|(seen_at, number, _)| when.contains(seen_at) && own.contains(number))
        };
        let lost = self.store.losses.iter().any(|loss| {
            let informed = life.is_some_and(|life| loss.may_be_known_to(life, 0));
            let informed = informed && (!mixed || shown(loss.at));
            // What was sent before a loss may be stored after it, under its old number.
            let late = self.sc.kinds.has(super::faults::Kind::LateRequest);
            // And putex 0.2.0 knows nothing of losses.
            plain || loss.at >= since && (!informed || loss.taken || late)
        });
        // The first of several writes hides it; what a stale read shows then is not believed.
        let mut hands = self.hands.iter().filter(|at| **at >= since);
        let by_hand = hands.any(|at| plain || mixed && !shown(*at));
        // It never opened the bucket that stands there now: numbers mean another thing.
        let bucket = life.and_then(|life| self.lives[life].bucket.as_ref());
        let old = bucket.is_some_and(|bucket| *bucket != self.store.id());
        // A person wrote under a number that was lost: a compare-and-set on it succeeds.
        let mut losses = self.store.losses.iter();
        let last = self.hands.last();
        let reused = losses.any(|loss| loss.at >= since && last >= Some(&loss.at));
        // A number that was given twice hid that the record was another.
        let blind = self.sites[older].blind || self.sites[newer].blind;
        lost || old || blind || reused || by_hand
    }

    /// Nobody may be left who can stop the service of a site.
    pub fn look_after(&mut self, site: usize) {
        if !self.may_run(site) || self.sc.sites[site].plain {
            return;
        }
        let guarded = self.guard_is_well(site);
        self.sites[site].excuse.unaided |= self.sites[site].excuse.stop_failed && !guarded;
        self.stray_starts(site);
        if guarded || self.agent_is_well(site) {
            return;
        }
        self.abandon_starts(site);
        let by = self.dead_by(site).unwrap_or(0);
        let device = self.host(site).device;
        if !self.excused(site) && device.is_some_and(|device| device.meant_to_bite_at() > by) {
            self.fail("device", format!("that of {site} is to bite after V + C·R"));
        }
        // The kernel kicks it once more when the guard that has it open dies: then it
        // may bite too late.
        if device.is_none_or(|device| device.bites_at() > by) {
            self.sites[site].excuse.unwatched = true;
        }
    }

    /// A start begins: its guard knows of it by then.
    pub fn knows_of_start(&mut self, id: usize) {
        let site = self.lives[id].site;
        if !matches!(self.lives[id].sentinel.watch, Some(Watch::MayRun(_))) {
            self.fail(
                "unguarded",
                format!("start of {site} begins before its guard knows"),
            );
        }
    }

    pub fn on_exit(&mut self, id: usize, ending: &Ending) {
        let site = self.lives[id].site;
        match ending {
            Ending::Clean | Ending::Rejected(_) => {
                // What a life before left behind, with a device that bites.
                let bites = self.host(site).device.is_some();
                if self.sites[site].up && !bites && !self.stop_is_excused(site) {
                    self.fail(
                        "left-up",
                        format!("{site} ends with its service up: {ending:?}"),
                    );
                }
            }
            Ending::NotStopped => self.count(Sometimes::EndedNotStopped),
        }
    }

    pub fn on_leave(&mut self, guard: usize) {
        let site = self.guards[guard].site;
        let dying = self.now <= self.sites[site].killed_at;
        // Its agent has waited for R, or half of it by a slow clock, for a start that does not
        // die: what that makes, or has made, nobody can undo.
        let waited = nanos(self.sc.sites[site].timing.renewal()) / 2;
        let hopeless = |start: &Process| start.dying.is_some_and(|at| self.now >= at + waited);
        let starts = self.sites[site].starts.iter();
        let starts = starts.map(|id| &self.processes[*id]);
        let given_up = self.guards[guard].given_up && starts.clone().any(hopeless);
        let starting = starts.clone().any(|start| !start.stray);
        // A life that waits for its end stops first.
        let waiting = self.sites[site].life.map(|id| &self.lives[id]);
        let waiting = waiting.is_some_and(|life| life.alive && !life.stopped);
        let heir = self.agent_is_well(site) || waiting && self.guards[guard].tried;
        let left = (self.sites[site].up || starting) && !dying && !heir;
        // One whose name was not written down yet watches on beside it.
        let alone = self.sites[site].guards.iter().all(|other| *other == guard);
        // What a guard before left running, which no other has touched.
        let bites = self.host(site).device.is_some();
        let excuse = &self.sites[site].excuse;
        if !left || given_up || !alone || bites || excuse.unwatched || self.stop_is_excused(site) {
            return;
        }
        if self.guards[guard].told {
            let text = format!("the guard of {site} leaves its service up");
            return self.fail("left-up", text);
        }
        // Its agent knew nothing of a life before, whose guards were killed too.
        self.sites[site].excuse.unwatched = true;
    }
}
