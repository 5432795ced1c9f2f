//! 3f, 3g, 3k: commands that hang, fail or take long while the lock is at stake.

use std::time::Duration;

use rustix::process::Signal;

use crate::rig::host::{Plan, plans};
use crate::rig::report::{Report, story};
use crate::rig::scenarios::COMMANDS_MAX;
use crate::rig::scenarios::guard::{check_takeover, kill_agent};
use crate::rig::scene::Scene;
use crate::rig::setting::Setting;
use crate::support::clock::{At, now, observe_for, wait_until};
use crate::support::process;
use crate::support::proxy::Mode;

/// Longest time from a release to the next start, beside the commands.
const HANDOVER_MAX: Duration = Duration::from_millis(150);

/// The last resort may come so much before the end of the stop budget.
const RESORT_EARLIER: Duration = Duration::from_millis(50);

/// A start that never ends by itself lasts this long.
const HANG: Duration = Duration::from_secs(80_000);

/// The exit status of an agent that could not stop its service.
const NOT_STOPPED: i32 = 70;

/// The cause for which an agent stops a service whose stop command hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its link falls silent.
    LostLink,
    /// The same, and the agent is killed while stop hangs.
    LostLinkThenKilled,
    /// The agent is told to end.
    Told,
}

/// Stop hangs for ever: it is killed when its time is over, the last resort does its
/// work in time, and the lock is not given back.
pub(crate) fn a_hanging_stop_meets_the_last_resort(setting: &Setting, cause: Cause) -> Report {
    story(&format!("3f: stop hangs: {cause:?}"), |report| {
        let mut plans: Vec<Plan> = plans(&setting.agent, 3);
        plans.iter_mut().for_each(|plan| plan.last_resort = true);
        Scene::set(setting, plans)?.play(report, |scene, report| {
            scene.start_all()?;
            let active = scene.wait_for_active()?;
            let before = scene.hosts[active].service.stops().len();
            let lost_at = make_stop_hang(scene, active, cause)?;
            let stops = check_last_resort(scene, report, active, lost_at)?;
            check_killed(scene, report, stops.get(before));
            check_takeover(scene, report, active, lost_at)?;
            if cause == Cause::Told {
                let longest_wait = now() + scene.timing.longest_wait();
                let status = scene.hosts[active].wait_exit(longest_wait);
                let code = status.and_then(|status| status.code());
                report.check(code == Some(NOT_STOPPED), || {
                    format!("the agent ended with {status:?} and not {NOT_STOPPED}")
                });
            }
            scene.wait_for_active()?;
            let healed_at = scene.hosts[active].proxy.turn(Mode::Pass);
            let window = scene.timing.takeover() + scene.timing.r;
            scene.check_nothing_moves(report, healed_at, window);
            let release = scene.hosts[active].proxy.release_since(lost_at);
            report.check(release.is_none(), || {
                "the lock was released although stop has not succeeded".to_owned()
            });
            let well_at = now();
            scene.hosts[active].service.set_stop_hang(false);
            if scene.hosts[active].agent_runs() {
                scene.wait_taking_part(active)?;
                let window = now().saturating_sub(well_at);
                scene.check_nothing_moves(report, well_at, window);
                return Ok(());
            }
            let host = &scene.hosts[active];
            let gone = || host.guards().is_empty().then_some(());
            let gone = wait_until(well_at + scene.timing.longest_wait(), gone);
            report.check(gone.is_some(), || {
                "the guard goes on although stop has succeeded".to_owned()
            });
            scene.comes_back(report, active)
        })
    })
}

/// Makes the stop of `active` hang and lets `cause` happen; returns when.
fn make_stop_hang(scene: &mut Scene, active: usize, cause: Cause) -> Result<At, String> {
    let host = &scene.hosts[active];
    host.service.set_stop_hang(true);
    if cause == Cause::Told {
        return Ok(host.signal_agent(Signal::TERM));
    }
    let stops = host.service.stops().len();
    let lost_at = host.proxy.turn(Mode::Freeze);
    if cause == Cause::LostLinkThenKilled {
        let begun = || (host.service.stops().len() > stops).then_some(());
        wait_until(lost_at + scene.timing.longest_wait(), begun)
            .ok_or("stop was not even begun")?;
        kill_agent(scene, active);
    }
    Ok(lost_at)
}

/// Waits for the last resort and checks that it came when stop had had its time; returns
/// every stop command up to then.
fn check_last_resort(
    scene: &Scene,
    report: &mut Report,
    active: usize,
    lost_at: At,
) -> Result<Vec<u32>, String> {
    let (host, timing) = (&scene.hosts[active], scene.timing);
    let resorted = || host.service.resorted_at();
    let resorted_at = wait_until(lost_at + timing.longest_wait(), resorted);
    let resorted_at = resorted_at.ok_or("the last resort was not run")?;
    let stops = host.service.stops();
    let renewal = host.proxy.last_known_renewal();
    let renewed_at = renewal.ok_or("the active agent has never renewed")?.at;
    let after = resorted_at.saturating_sub(renewed_at);
    let name = "last renewal to last resort";
    report.measure_of(name, timing.takeover(), after);
    let least = timing.last_resort_min().saturating_sub(RESORT_EARLIER);
    report.check_at_least(name, after, least);
    report.check_at_most(name, after, timing.takeover());
    Ok(stops)
}

/// Checks that the first stop that hung is not left hanging.
fn check_killed(scene: &Scene, report: &mut Report, stop: Option<&u32>) {
    let killed = || stop.is_none_or(|pid| !process::lives(*pid)).then_some(());
    let killed = wait_until(now() + scene.timing.r, killed);
    report.check(stop.is_some() && killed.is_some(), || {
        "no stop was run before the last resort, or it was left hanging".to_owned()
    });
}

/// Stop fails three times before it works: nobody starts meanwhile, the lock is released
/// after it, and another takes over at once.
pub(crate) fn a_failing_stop_is_repeated(setting: &Setting, agent_ends: bool) -> Report {
    let why = if agent_ends { "told to end" } else { "a sick service" };
    story(&format!("3g: stop fails three times: {why}"), |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let service = &scene.hosts[active].service;
            let stops = service.stops().len();
            service.set_stop_failures(3);
            let since = now();
            if agent_ends {
                scene.hosts[active].signal_agent(Signal::TERM);
            } else {
                service.set_sick(true);
            }
            let down_at = scene.down(active, since)?;
            let (_, up_at) = scene.next_active(active, since)?;
            let host = &scene.hosts[active];
            let tries = host.service.stops().len() - stops;
            report.check(tries > 3, || format!("stop ran {tries} times only"));
            let release = host.proxy.release_since(since);
            let released_at = release.ok_or("the lock was not released after stop")?.at;
            let unseen = scene.observer.longest_gap();
            report.check(released_at + unseen >= down_at, || {
                "the lock was released before the service was stopped".to_owned()
            });
            let renewal = host.proxy.last_known_renewal();
            let renewed_at = renewal.ok_or("the active agent has never renewed")?.at;
            let expired = up_at.saturating_sub(renewed_at) >= scene.timing.takeover();
            report.check(up_at >= released_at || expired, || {
                "another started while stop was still being tried".to_owned()
            });
            report.measure("asked to stop to service stopped", down_at - since);
            let handover = up_at.saturating_sub(released_at);
            report.measure("release to next start", handover);
            let most = HANDOVER_MAX + COMMANDS_MAX;
            report.check_fast("release to next start", handover, most);
            host.service.set_sick(false);
            if !agent_ends {
                return scene.wait_taking_part(active);
            }
            let status = scene.hosts[active].wait_exit(now() + scene.timing.longest_wait());
            let code = status.and_then(|status| status.code());
            report.check(code == Some(0), || format!("the agent ended with {status:?}"));
            scene.comes_back(report, active)
        })
    })
}

/// Start takes `span` and longer: the lock is renewed and nothing moves. Then the lock is
/// lost with start still running: start is killed and the service stopped in time.
pub(crate) fn a_slow_start_keeps_and_loses_its_lock(setting: &Setting, span: Duration) -> Report {
    story("3k: start takes long", |report| {
        Scene::set(setting, plans(&setting.agent, 3))?.play(report, |scene, report| {
            for host in &scene.hosts {
                host.service.set_start_slow(span / 2, HANG);
            }
            let begun_at = now();
            scene.start_all()?;
            let started = || scene.observer.ups_since(begun_at).first().copied();
            let (up_at, active) =
                wait_until(begun_at + scene.timing.longest_wait() + span, started)
                    .ok_or("no service came up")?;
            scene.check_nothing_moves(report, up_at + Duration::from_nanos(1), span / 2);
            let host = &scene.hosts[active];
            let starter = host.service.starter().ok_or("start was not run")?;
            report.check(process::lives(starter), || {
                "start ended while the lock was held".to_owned()
            });
            let starting = host.service.starting();
            report.check(starting.as_deref() == Some("1"), || {
                format!("beside a running start the check was told {starting:?}")
            });
            let renewal = host.proxy.last_known_renewal();
            let renewed_at = renewal.map_or(begun_at, |renewal| renewal.at);
            let since = now().saturating_sub(renewed_at);
            report.check_fast("last renewal beside start", since, scene.timing.r * 2);
            for host in &scene.hosts {
                host.service.set_start_slow(Duration::ZERO, Duration::ZERO);
            }
            let lost_at = host.proxy.turn(Mode::Freeze);
            check_takeover(scene, report, active, lost_at)?;
            report.check(!process::lives(starter), || {
                "start still runs although the lock was lost".to_owned()
            });
            scene.wait_for_active()?;
            let healed_at = scene.hosts[active].proxy.turn(Mode::Pass);
            observe_for(scene.timing.r);
            let window = scene.timing.takeover();
            scene.check_nothing_moves(report, healed_at, window);
            scene.wait_taking_part(active)
        })
    })
}
