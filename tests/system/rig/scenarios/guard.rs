//! 3a to 3d: agents that die or sleep alone, with a supervisor and without, and guards
//! that die. The service does not outlive its lock.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::rig::host::plans;
use crate::rig::report::{Report, story};
use crate::rig::runit;
use crate::rig::scene::Scene;
use crate::rig::setting::Setting;
use crate::support::clock::{At, now, observe_for, wait_until};
use crate::support::process;

/// So soon after its agent died a supervisor, or the rig, has another one running.
const RESTART_MAX: Duration = Duration::from_millis(100);

/// The agent alone is killed and nobody starts it again: the service is down before
/// another may start, and another takes over.
pub(crate) fn a_killed_agent_does_not_leave_its_service(setting: &Setting) -> Report {
    story("3a: the active agent alone is killed", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let killed_at = kill_agent(scene, active);
            check_takeover(scene, report, active, killed_at)?;
            scene.comes_back(report, active)
        })
    })
}

/// Agents that were told to end leave no process behind: no guard, no service.
pub(crate) fn agents_that_end_leave_nothing(setting: &Setting) -> Report {
    story("3a: every agent is told to end", |report| {
        Scene::open(setting, 2)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            scene.wait_taking_part(1 - active)?;
            for number in [1 - active, active] {
                let told_at = scene.hosts[number].signal_agent(Signal::TERM);
                let deadline = told_at + scene.timing.longest_wait();
                let host = &mut scene.hosts[number];
                let status = host.wait_exit(deadline);
                let code = status.and_then(|status| status.code());
                report.check(code == Some(0), || format!("the agent ended with {status:?}"));
                let gone = || (host.processes() == 0).then_some(());
                let gone = wait_until(now() + scene.timing.r, gone);
                report.check(gone.is_some(), || {
                    let guards = host.guards().len();
                    format!("a clean end leaves processes behind, {guards} of them guards")
                });
            }
            scene.start_all()
        })
    })
}

/// The agent alone is killed and started again at once, `rounds` times on one host: the
/// service is not interrupted.
pub(crate) fn a_restarted_agent_goes_on(setting: &Setting, rounds: usize) -> Report {
    story("3b: the active agent is restarted at once", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let before = Running::on(scene, active)?;
            let since = now();
            for number in 0..rounds {
                scene.pass_part_of_a_stroke(number);
                let killed_at = kill_agent(scene, active);
                scene.hosts[active].start()?;
                let gone = now().saturating_sub(killed_at);
                report.measure("agent gone", gone);
                report.check_fast("agent gone, or this machine is too busy", gone, RESTART_MAX);
                wait_for_adoption(scene, report, active, killed_at)?;
            }
            scene.check_nothing_moves(report, since, now() - since + scene.timing.takeover());
            before.check_the_same(scene, report, active)
        })
    })
}

/// The same with a real supervisor, `runsv`: it is the one that starts the agent again.
pub(crate) fn a_supervised_agent_goes_on(setting: &Setting, runsv: &Path, rounds: usize) -> Report {
    story("3b: runsv restarts the active agent", |report| {
        Scene::set(setting, plans(&setting.agent, 3))?.play(report, |scene, report| {
            for host in &mut scene.hosts {
                host.start_supervised(runsv)?;
            }
            let active = scene.wait_for_active()?;
            let before = Running::on(scene, active)?;
            let since = now();
            for number in 0..rounds {
                observe_for(runit::PAUSE.mul_f64(1.1));
                scene.pass_part_of_a_stroke(number);
                let host = &scene.hosts[active];
                let old = host.pid().ok_or("runsv runs no agent")?;
                let killed_at = host.signal_agent(Signal::KILL);
                let another = || host.pid().filter(|pid| *pid != old);
                wait_until(killed_at + scene.timing.longest_wait(), another)
                    .ok_or("runsv started no other agent")?;
                report.measure("agent gone", now().saturating_sub(killed_at));
                wait_for_adoption(scene, report, active, killed_at)?;
            }
            scene.check_nothing_moves(report, since, now() - since + scene.timing.takeover());
            before.check_the_same(scene, report, active)
        })
    })
}

/// The agent is stopped for 3·(T + C·R) and then goes on: the service is down before
/// another may start, and what wakes up starts nothing.
pub(crate) fn a_sleeping_agent_does_not_keep_its_service(setting: &Setting) -> Report {
    story("3c: the active agent sleeps", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let asleep_at = scene.hosts[active].signal_agent(Signal::STOP);
            check_takeover(scene, report, active, asleep_at)?;
            let until = asleep_at + scene.timing.takeover() * 3;
            observe_for(until.saturating_sub(now()));
            let woken_at = scene.hosts[active].signal_agent(Signal::CONT);
            let window = scene.timing.takeover() + scene.timing.r;
            scene.check_nothing_moves(report, woken_at, window);
            let ups = scene.observer.ups_since(asleep_at).len();
            report.check(ups == 1, || {
                format!("{ups} services started after one agent went to sleep")
            });
            if scene.hosts[active].agent_runs() {
                report.note("the agent that slept lives");
                return scene.wait_taking_part(active);
            }
            report.note("the agent that slept was killed");
            scene.comes_back(report, active)
        })
    })
}

/// The guard is killed: there is another one within R, and nothing moves. That one is
/// worth as much: then the agent alone is killed.
pub(crate) fn a_killed_guard_is_replaced(setting: &Setting) -> Report {
    story("3d: the guard is killed", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let old = the_guard(scene, active)?;
            let killed_at = now();
            process::signal(old, Signal::KILL);
            let host = &scene.hosts[active];
            let another = || host.guards().into_iter().find(|pid| *pid != old);
            let longest_wait = killed_at + scene.timing.longest_wait();
            let new = wait_until(longest_wait, another).ok_or("there is no other guard")?;
            let took = now().saturating_sub(killed_at);
            report.measure_of("guard killed to another guard", scene.timing.r, took);
            report.check_fast("guard killed to another guard", took, scene.timing.r);
            let how = "the guard is gone: it has ended: killed by signal 9";
            let line = host.wait_for_line(how, killed_at, longest_wait);
            report.check(line.is_some(), || format!("the agent did not say: {how}"));
            let window = scene.timing.takeover();
            scene.check_nothing_moves(report, killed_at, window);
            let (host, guards) = (&scene.hosts[active], scene.hosts[active].guards());
            // A guard that a busy host keeps from answering in time is replaced too, and the log
            // says so.
            let said = host.said_since(killed_at);
            let is_replaced = said.iter().any(|line| line.contains("the guard did not answer"));
            report.check(guards == [new] || is_replaced && guards.len() == 1, || {
                format!("the guards are {guards:?} where {new} was expected alone")
            });
            let killed_at = kill_agent(scene, active);
            check_takeover(scene, report, active, killed_at)?;
            scene.comes_back(report, active)
        })
    })
}

/// Agent and guard are killed at once. Nothing is left on that host that could act but
/// a hardware watchdog: how long the service runs on is noted.
pub(crate) fn agent_and_guard_die_together(setting: &Setting) -> Report {
    story("3d: agent and guard are killed at once", |report| {
        Scene::open(setting, 3)?.play_unguarded(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let guard = the_guard(scene, active)?;
            let killed_at = scene.hosts[active].signal_agent(Signal::KILL);
            process::signal(guard, Signal::KILL);
            report.measure("agent killed to guard killed", now() - killed_at);
            let (_, up_at) = scene.next_active(active, killed_at)?;
            report.measure("both killed to next start", up_at.saturating_sub(killed_at));
            observe_for(scene.timing.takeover());
            let what = match scene.observer.down_since(active, killed_at) {
                Some(down_at) => format!("ended after {:?}", down_at - killed_at),
                None => format!("still ran after {:?}", now() - killed_at),
            };
            report.note(format!("the service that nobody guarded {what}"));
            Ok(())
        })
    })
}

/// The guard is stopped and stays so. An agent whose guard does not listen may go on or
/// step down; two services never run.
pub(crate) fn a_stopped_guard_is_survived(setting: &Setting) -> Report {
    story("3d: the guard is stopped", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let guard = the_guard(scene, active)?;
            let stopped_at = now();
            process::signal(guard, Signal::STOP);
            observe_for(scene.timing.takeover() * 2);
            let changes = scene.observer.changes_since(stopped_at);
            report.note(match changes {
                0 => "a stopped guard moves nothing".to_owned(),
                _ => format!("a stopped guard makes services start or stop {changes} times"),
            });
            process::signal(guard, Signal::CONT);
            observe_for(scene.timing.takeover());
            Ok(())
        })
    })
}

/// The guard is stopped, the agent killed and started again: the new one makes an end
/// of the guard that hangs, trusts nothing, and stops the service in time. The new agent
/// is a candidate like the others, so the next service may run on any host.
pub(crate) fn a_restarted_agent_meets_a_stopped_guard(setting: &Setting) -> Report {
    story("3d: a restarted agent finds its guard stopped", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let guard = the_guard(scene, active)?;
            process::signal(guard, Signal::STOP);
            let killed_at = kill_agent(scene, active);
            scene.hosts[active].start()?;
            let renewed_at = scene.check_stopped_in_time(report, active, killed_at);
            let (_, up_at) = scene.next_up(killed_at, |_| true).ok_or("nobody took the lock")?;
            check_failover(scene, report, up_at.saturating_sub(renewed_at));
            let guards = scene.hosts[active].guards();
            report.check(!guards.contains(&guard), || {
                format!("the guards are {guards:?}: {guard} still hangs there")
            });
            Ok(())
        })
    })
}

/// The properties that an uninterrupted service keeps.
struct Running {
    pid: u32,
    term: Option<String>,
    stops: usize,
}

impl Running {
    fn on(scene: &Scene, host: usize) -> Result<Running, String> {
        let service = &scene.hosts[host].service;
        let noted = || service.term().filter(|term| !term.is_empty());
        Ok(Running {
            pid: service.pid().ok_or("the service has no process number")?,
            term: wait_until(now() + scene.timing.longest_wait(), noted),
            stops: service.stops().len(),
        })
    }

    /// Checks that the same service runs under the same lock, and that nobody even
    /// tried to stop it.
    fn check_the_same(
        &self,
        scene: &Scene,
        report: &mut Report,
        host: usize,
    ) -> Result<(), String> {
        let now = Running::on(scene, host)?;
        report.check(self.pid == now.pid, || {
            format!("the service was process {} and is {}", self.pid, now.pid)
        });
        report.check(self.term == now.term, || {
            format!("the term was {:?} and is {:?}", self.term, now.term)
        });
        report
            .check(self.stops == now.stops, || "stop ran beside a service that goes on".to_owned());
        Ok(())
    }
}

/// Kills the agent of `host` alone, waits for its end, and returns when it was killed.
pub(crate) fn kill_agent(scene: &mut Scene, host: usize) -> At {
    let killed_at = scene.hosts[host].signal_agent(Signal::KILL);
    let _ = scene.hosts[host].wait_exit(killed_at + scene.timing.longest_wait());
    killed_at
}

/// Checks that the service of `host`, whose agent was lost, is down in time, and that
/// another takes over and not too early.
pub(crate) fn check_takeover(
    scene: &Scene,
    report: &mut Report,
    host: usize,
    lost_at: At,
) -> Result<(), String> {
    let renewed_at = scene.check_stopped_in_time(report, host, lost_at);
    let (_, up_at) = scene.next_active(host, lost_at)?;
    check_failover(scene, report, up_at.saturating_sub(renewed_at));
    Ok(())
}

/// Checks that a service that came up `took` after the last renewal before it did not
/// come too early.
fn check_failover(scene: &Scene, report: &mut Report, took: Duration) {
    report.measure_of("failover", scene.timing.takeover(), took);
    report.check_at_least("failover", took, scene.timing.takeover());
}

fn the_guard(scene: &Scene, host: usize) -> Result<u32, String> {
    let guards = scene.hosts[host].guards();
    match guards.as_slice() {
        [one] => Ok(*one),
        _ => Err(format!("host {host} has {} guards", guards.len())),
    }
}

fn wait_for_adoption(
    scene: &Scene,
    report: &mut Report,
    host: usize,
    killed_at: At,
) -> Result<(), String> {
    let deadline = killed_at + scene.timing.longest_wait();
    scene.hosts[host]
        .wait_for_line("adopted", killed_at, deadline)
        .ok_or("the new agent did not say that it adopted the service")?;
    report.measure("killed to adopted", now().saturating_sub(killed_at));
    Ok(())
}
