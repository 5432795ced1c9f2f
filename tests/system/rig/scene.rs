//! A server, some hosts and the observer: what a scenario plays in.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::host::{Host, Plan, plans};
use super::report::Report;
use super::setting::Setting;
use super::timing::Timing;
use crate::support::clock::{At, ms, now, observe_for, wait_until};
use crate::support::observer::Observer;
use crate::support::server::Server;

/// So many lines of each agent are quoted when something is wrong.
const LINES_MAX: usize = 8;

/// How long processes that were killed may take to be gone.
const GONE_MAX: Duration = Duration::from_secs(1);

/// Everything of one run. Hosts go before the server when it is dropped.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) observer: Observer,
    pub(crate) hosts: Vec<Host>,
    pub(crate) server: Server,
    /// The bucket that the agents share, another one in each scene.
    pub(crate) bucket: String,
    pub(crate) timing: Timing,
}

impl Scene {
    /// Starts a server and `count` agents of their own token.
    pub(crate) fn open(setting: &Setting, count: usize) -> Result<Scene, String> {
        let mut scene = Scene::set(setting, plans(&setting.agent, count))?;
        scene.start_all()?;
        Ok(scene)
    }

    /// Starts a server, and prepares hosts whose agents do not run yet.
    pub(crate) fn set(setting: &Setting, plans: Vec<Plan>) -> Result<Scene, String> {
        let server = Server::try_start(&setting.server, "")?;
        let timing = setting.timing;
        let bucket = unused_bucket();
        let host = |plan| Host::new(plan, server.port(), &bucket, timing);
        let hosts: Vec<Host> = plans.into_iter().map(host).collect();
        let pipes = hosts.iter().map(|host| host.service.pipe()).collect();
        Ok(Scene { observer: Observer::start(pipes), hosts, server, bucket, timing })
    }

    /// Lets `tell` happen to this scene, and then checks what must hold whatever
    /// happened: no overlap, exactly one active at the end, and nothing left of a host
    /// that was killed.
    pub(crate) fn play(
        mut self,
        report: &mut Report,
        tell: impl FnOnce(&mut Scene, &mut Report) -> Result<(), String>,
    ) -> Result<(), String> {
        let told = tell(&mut self, report);
        let ended = told.and_then(|()| self.wait_for_active());
        report.check_overlap(self.observer.overlap());
        report.measure("longest gap of the observer", self.observer.longest_gap());
        if ended.is_err() || !report.is_clean() {
            self.quote_agents(report);
        }
        self.check_nothing_is_left(report);
        ended.map(|_| ())
    }

    /// As [`Scene::play`], where nothing can hold: what happened is noted.
    pub(crate) fn play_unguarded(
        mut self,
        report: &mut Report,
        tell: impl FnOnce(&mut Scene, &mut Report) -> Result<(), String>,
    ) -> Result<(), String> {
        let told = tell(&mut self, report);
        report.note(format!(
            "more than one service ran for {:.0} ms, which nothing could prevent",
            ms(self.observer.overlap())
        ));
        self.check_nothing_is_left(report);
        told
    }

    fn check_nothing_is_left(&mut self, report: &mut Report) {
        for (number, host) in self.hosts.iter_mut().enumerate() {
            host.kill_host();
            let gone = || (host.processes() == 0).then_some(());
            report.check(wait_until(now() + GONE_MAX, gone).is_some(), || {
                format!("host {number} was killed, and some of its processes live on")
            });
        }
    }

    /// Adds what the agents said last to a report that finds something wrong, and before
    /// that what they said and what ran around the first time that two services ran.
    fn quote_agents(&self, report: &mut Report) {
        let lines: Vec<_> = self.hosts.iter().map(Host::said).collect();
        if let Some((from, to)) = self.observer.overlaps().first().copied() {
            let around = |at: &At| *at + self.timing.takeover() * 2 >= from && *at <= to;
            let ran = |(at, set): &(At, u32)| (*at, format!("services: {set:b}"));
            let mut told: Vec<_> = self.observer.history().0.iter().map(ran).collect();
            for (number, lines) in lines.iter().enumerate() {
                let named = |(at, line): &(At, String)| (*at, format!("host {number}: {line}"));
                told.extend(lines.iter().map(named));
            }
            told.retain(|(at, _)| around(at));
            told.sort_unstable();
            for (at, line) in told {
                report.note(format!("{:.0} ms, {line}", ms(at) - ms(from)));
            }
        }
        for (number, lines) in lines.iter().enumerate() {
            let skipped = lines.len().saturating_sub(LINES_MAX);
            for (at, line) in &lines[skipped..] {
                let ago = ms(now().saturating_sub(*at));
                report.note(format!("host {number}, {ago:.0} ms ago: {line}"));
            }
        }
    }

    /// Starts every agent.
    pub(crate) fn start_all(&mut self) -> Result<(), String> {
        self.hosts.iter_mut().try_for_each(Host::start)
    }

    /// Waits until exactly one service has been running for R, and returns whose.
    pub(crate) fn wait_for_active(&self) -> Result<usize, String> {
        let settled = || {
            let calm = self.observer.unchanged_for() >= self.timing.r;
            calm.then(|| self.observer.only_active())?
        };
        let longest_wait = self.timing.longest_wait();
        wait_until(now() + longest_wait, settled).ok_or_else(|| {
            let active = self.observer.active();
            format!("not exactly one active within {longest_wait:?} but {active:?}")
        })
    }

    /// Waits for a service to come up on another host than `but` since `since`;
    /// returns the host and the instant.
    pub(crate) fn next_active(&self, but: usize, since: At) -> Result<(usize, At), String> {
        self.next_up(since, |host| host != but).ok_or_else(|| {
            let longest_wait = self.timing.longest_wait();
            format!("nobody took over from host {but} within {longest_wait:?}")
        })
    }

    /// Waits for a service to come up since `since` on a host that `may_be` accepts;
    /// returns the host and the instant.
    pub(crate) fn next_up(&self, since: At, may_be: impl Fn(usize) -> bool) -> Option<(usize, At)> {
        let came = || {
            let ups = self.observer.ups_since(since);
            let next = ups.into_iter().find(|(_, host)| may_be(*host));
            next.map(|(at, host)| (host, at))
        };
        wait_until(since + self.timing.longest_wait(), came)
    }

    /// Waits for the service of `host` to be dead since `since`; returns the instant.
    pub(crate) fn down(&self, host: usize, since: At) -> Result<At, String> {
        let longest_wait = self.timing.longest_wait();
        wait_until(since + longest_wait, || self.observer.down_since(host, since))
            .ok_or_else(|| format!("the service of host {host} ran on for {longest_wait:?}"))
    }

    /// Waits until the agent of `host`, started at `since`, takes part: it has read
    /// the lock and then had time for one more stroke.
    pub(crate) fn wait_taking_part(&self, host: usize) -> Result<(), String> {
        let (proxy, before) = (&self.hosts[host].proxy, self.hosts[host].proxy.counts());
        let longest_wait = self.timing.longest_wait();
        wait_until(now() + longest_wait, || (proxy.counts().since(before).reads > 0).then_some(()))
            .ok_or_else(|| {
                format!("the agent of host {host} read nothing within {longest_wait:?}")
            })?;
        observe_for(self.timing.r * (self.timing.c + 1));
        Ok(())
    }

    /// Starts an agent on `host`, where none runs any more, and checks that it moves
    /// nothing.
    pub(crate) fn comes_back(&mut self, report: &mut Report, host: usize) -> Result<(), String> {
        self.wait_for_active()?;
        let back_at = now();
        self.hosts[host].start()?;
        self.wait_taking_part(host)?;
        let since = now().saturating_sub(back_at);
        self.check_nothing_moves(report, back_at, since.max(self.timing.takeover()));
        Ok(())
    }

    /// Lets a part of a stroke pass that is another one for every `number`.
    pub(crate) fn pass_part_of_a_stroke(&self, number: usize) {
        #[expect(clippy::cast_precision_loss, reason = "numbers of rounds are small")]
        let part = (number as f64 * 0.618_034).fract();
        observe_for(self.timing.r.mul_f64(part));
    }

    /// Checks for `window` that no service starts or stops.
    pub(crate) fn check_nothing_moves(&self, report: &mut Report, since: At, window: Duration) {
        observe_for((since + window).saturating_sub(now()));
        let changes = self.observer.changes_since(since);
        report.check(changes == 0, || {
            format!("services started or stopped {changes} times where nothing should move")
        });
    }

    /// Checks that the service of `host` was dead before anybody else may start:
    /// T + C·R after the last renewal of which its agent knew, which is returned.
    pub(crate) fn check_stopped_in_time(&self, report: &mut Report, host: usize, since: At) -> At {
        let most = self.timing.takeover();
        let renewed_at = || {
            let renewal = self.hosts[host].proxy.last_known_renewal();
            renewal.map_or(since, |renewal| renewal.at)
        };
        let down_or_late = || {
            let down_at = self.observer.down_since(host, since);
            (down_at.is_some() || now() > renewed_at() + most * 2).then_some(down_at)
        };
        let down_at = wait_until(since + self.timing.longest_wait(), down_or_late).flatten();
        let renewed_at = renewed_at();
        let Some(down_at) = down_at else {
            report.check(false, || {
                format!("the service of host {host} ran on for more than twice T + C*R")
            });
            return renewed_at;
        };
        let after = down_at.saturating_sub(renewed_at);
        report.measure_of("last renewal to service stopped", most, after);
        // Other work of the host may blind the observer for longer than stop has left.
        let ran = self.observer.seen_running_until(down_at).saturating_sub(renewed_at);
        report.check_at_most("last renewal to service still running", ran, most);
        renewed_at
    }
}

/// Returns a bucket's name that no other scene uses, of this rig or another: what agents
/// keep on this host under the name of their bucket is never shared by two scenes.
fn unused_bucket() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("locks-{}-{number}", std::process::id())
}
