//! The course of a campaign: rounds of faults, and after each the time in which the
//! cluster and the agents have to be well again. B and P are the bounds of the pages beside which
//! times with nobody active are printed; a service that nobody runs for 3 B is a violation.
//!
//! ```text
//!   faults          calm            recovered          active              probe
//!   |--- round ------|--- cluster ---|--- rejoin ----- -|--- nothing ------|-- failover --|
//!                                        B                 P                  P
//! ```

use std::path::Path;
use std::thread;
use std::time::Duration;

use super::faults::{Extras, Fault, plan};
use super::health::{self, Health};
use super::host::Agent;
use super::rng::Rng;
use super::testbed::Testbed;
use crate::rig::timing::Timing;
use crate::support::clock::{At, ms, now};

/// How often the campaign looks what there is to do.
const TICK: Duration = Duration::from_millis(3);

/// How long a new cluster may take to make a bucket.
const ELECTION_MAX: Duration = Duration::from_secs(60);

/// After so long a cluster that is not well again has its servers restarted.
const HELP_AFTER: Duration = Duration::from_secs(45);

/// After so long it is given up, and the campaign with it.
const GIVE_UP_AFTER: Duration = Duration::from_secs(180);

/// How often a time without faults ends with a host that crashes.
const PROBES: f64 = 0.6;

/// The options of a campaign.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) seed: u64,
    pub(crate) length: Duration,
    pub(crate) timing: Timing,
    pub(crate) agent: Agent,
    pub(crate) extras: Extras,
    /// Clients on each host that run commands under locks.
    pub(crate) locks: usize,
}

/// A time in which nothing was done to anybody.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: At,
    pub(crate) to: At,
    /// The window is the first, in a bucket that is too young to be believed.
    pub(crate) first: bool,
}

/// The events of a campaign, for the judge.
#[derive(Debug, Default)]
pub(crate) struct Course {
    pub(crate) rounds: u64,
    pub(crate) windows: Vec<Window>,
    /// When a host crashed although all was well, and when the next service ran.
    pub(crate) probes: Vec<(At, At)>,
    /// Faults that were planned and could not be done when they were due.
    pub(crate) left_out: usize,
    /// Times at which the servers had to be restarted for the cluster to be well.
    pub(crate) helped: usize,
    /// Longest time from the last fault to a cluster that was well.
    pub(crate) longest_recovery: Duration,
    pub(crate) violations: Vec<String>,
}

/// Runs a campaign in the testbed; `Err` when the rig failed.
pub(crate) fn run(order: &Order, testbed: &mut Testbed, folder: &Path) -> Result<Course, String> {
    let mut course = Course::default();
    testbed.step_max = order.extras.step_max;
    for server in &mut testbed.servers {
        server.start()?;
    }
    health::make_bucket(ELECTION_MAX)
        .map_err(|why| format!("{why}; the servers' logs are in {}", folder.display()))?;
    let began = now();
    let health = Health::monitor();
    for host in &mut testbed.hosts {
        host.start_after(Duration::ZERO);
    }
    course.let_recover(order, testbed, &health, began)?;
    while now() - began < order.length {
        course.rounds += 1;
        let mut rng = Rng::new(order.seed, course.rounds);
        let faults = plan(&mut rng, order.timing, order.extras);
        let calm_at = course.play(testbed, faults)?;
        course.let_recover(order, testbed, &health, calm_at)?;
        if rng.chance(PROBES) {
            course.probe(order, testbed)?;
        }
    }
    testbed.end_lockers()?;
    Ok(course)
}

impl Course {
    /// Plays a round; returns when its last fault was over.
    fn play(&mut self, testbed: &mut Testbed, mut faults: Vec<Fault>) -> Result<At, String> {
        let began = now();
        faults.sort_by_key(|fault| fault.from);
        let (mut rest, before) = (faults.into_iter().peekable(), testbed.happened.len());
        while rest.peek().is_some() || !testbed.is_calm() {
            while let Some(fault) = rest.next_if(|fault| now() - began >= fault.from) {
                if !testbed.begin(&fault)? {
                    self.left_out += 1;
                }
            }
            testbed.tend()?;
            thread::sleep(TICK);
        }
        let kinds: Vec<String> = testbed.happened[before..]
            .iter()
            .map(|fault| {
                format!("{} ({})", fault.kind, fault.target.split(':').next().unwrap_or(""))
            })
            .collect();
        let overlap = ms(testbed.observer.overlap());
        println!(
            "round {}, {:.1} s: {}; overlap so far {overlap:.1} ms",
            self.rounds,
            began.as_secs_f64(),
            kinds.join(", ")
        );
        Ok(now())
    }

    /// Waits until cluster and agents are well and one service runs, and a while longer.
    fn let_recover(
        &mut self,
        order: &Order,
        testbed: &mut Testbed,
        health: &Health,
        calm_at: At,
    ) -> Result<(), String> {
        let mut helped = false;
        // An inspection that began a moment after the last fault saw nothing of it.
        while !(testbed.agents_are_up() && health.is_well_since(calm_at)) {
            testbed.tend()?;
            thread::sleep(TICK);
            let waited = now() - calm_at;
            if waited > HELP_AFTER && !helped {
                helped = true;
                self.helped += 1;
                testbed.servers.iter_mut().for_each(super::server::Server::kill);
                testbed.servers.iter_mut().try_for_each(super::server::Server::start)?;
            }
            if waited > GIVE_UP_AFTER {
                return Err(format!("the cluster is not well again: {}", health.wrong()));
            }
        }
        let from = now();
        self.longest_recovery = self.longest_recovery.max(from - calm_at);
        let longest_wait = rejoin_max(order.timing) * 3;
        self.wait_for_one(testbed, from, longest_wait)?;
        let rest = order.timing.r * 2 + Duration::from_secs(1);
        tend_until(testbed, now() + rest)?;
        self.wait_for_one(testbed, now(), longest_wait)?;
        self.windows.push(Window { from, to: now(), first: self.windows.is_empty() });
        Ok(())
    }

    /// Waits until exactly one service runs.
    fn wait_for_one(
        &mut self,
        testbed: &mut Testbed,
        from: At,
        longest_wait: Duration,
    ) -> Result<(), String> {
        while testbed.observer.only_active().is_none() {
            testbed.tend()?;
            thread::sleep(TICK);
            if now() - from > longest_wait {
                let active = testbed.observer.active();
                let at = now().as_secs_f64();
                self.violations.push(format!(
                    "{at:.1} s: services ran on hosts {active:?} for {longest_wait:?}, not on \
                     exactly one, although all was well"
                ));
                return Ok(());
            }
        }
        Ok(())
    }

    /// Crashes the host of the service although all is well, and waits for the next.
    fn probe(&mut self, order: &Order, testbed: &mut Testbed) -> Result<(), String> {
        let Some(active) = testbed.observer.only_active() else {
            return Ok(());
        };
        let at = now();
        testbed.hosts[active].crash()?;
        let longest_wait = at + rejoin_max(order.timing) * 3;
        let next = |testbed: &Testbed| {
            let ups = testbed.observer.ups_since(at);
            ups.iter().find(|(_, host)| *host != active).map(|(at, _)| *at)
        };
        while next(testbed).is_none() && now() < longest_wait {
            testbed.tend()?;
            thread::sleep(TICK);
        }
        match next(testbed) {
            Some(up_at) => self.probes.push((at, up_at)),
            None => self.violations.push(format!(
                "{:.1} s: nobody took over from host {active}, which crashed when all was well",
                at.as_secs_f64()
            )),
        }
        let pause = testbed.hosts[active].pause();
        testbed.hosts[active].start_after(pause);
        Ok(())
    }
}

fn tend_until(testbed: &mut Testbed, deadline: At) -> Result<(), String> {
    while now() < deadline {
        testbed.tend()?;
        thread::sleep(TICK);
    }
    Ok(())
}

/// The most that a takeover may take once the lock's holder is gone: a standby reads once
/// per R, waits T·(1 + e) from then, renews for C·R, and starts at its next stroke.
pub(crate) fn takeover_max(timing: Timing) -> Duration {
    timing.r + timing.lock_time().mul_f64(1.01) + timing.r * timing.c + timing.r
}

/// The most that agents may take to have the cluster again: the old link is silent for
/// twice 5/4 R, a round of dialling waits 2 s, one attempt to open 2 s, and one pause 1 s.
pub(crate) fn rejoin_max(timing: Timing) -> Duration {
    takeover_max(timing) + timing.r.mul_f64(2.5) + Duration::from_secs(5)
}
