//! e. A clean stop. f. Two agents with one token.

use std::time::Duration;

use rustix::process::Signal;

use crate::rig::host::plans;
use crate::rig::report::{Report, story};
use crate::rig::scenarios::COMMANDS_MAX;
use crate::rig::scene::Scene;
use crate::rig::setting::Setting;
use crate::support::clock::{now, observe_for};

/// Longest time from a release to the next start, beside the commands.
const HANDOVER_MAX: Duration = Duration::from_millis(150);

/// The active agent is told to end: it stops the service, releases the lock and
/// ends with status 0; another starts the service at once.
pub(crate) fn a_terminated_agent_hands_over(setting: &Setting, rounds: usize) -> Report {
    story("e: the active agent is terminated", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            for number in 0..rounds {
                let active = scene.wait_for_active()?;
                scene.pass_part_of_a_stroke(number);
                let told_at = scene.hosts[active].signal_agent(Signal::TERM);
                let longest_wait = told_at + scene.timing.longest_wait();
                let status = scene.hosts[active].wait_exit(longest_wait);
                let code = status.and_then(|status| status.code());
                report.check(code == Some(0), || format!("the agent ended with {status:?}"));
                let down_at = scene.down(active, told_at)?;
                let (_, up_at) = scene.next_active(active, told_at)?;
                report.measure("service gone", up_at.saturating_sub(down_at));
                let release = scene.hosts[active].proxy.release_since(told_at);
                let released_at = release.ok_or("the agent did not release the lock")?.at;
                let unseen = scene.observer.longest_gap();
                report.check(released_at + unseen >= down_at, || {
                    "the lock was released before the service was stopped".to_owned()
                });
                let handover = up_at.saturating_sub(released_at);
                report.measure("release to next start", handover);
                report.check_fast("release to next start", handover, HANDOVER_MAX + COMMANDS_MAX);
                scene.hosts[active].start()?;
                scene.wait_taking_part(active)?;
            }
            Ok(())
        })
    })
}

/// Two hosts were given one token: they are never active both, and the one that sees the other
/// renew says so.
pub(crate) fn one_token_twice_is_never_active_twice(setting: &Setting) -> Report {
    story("f: two agents with one token", |report| {
        let mut plans = plans(&setting.agent, 2);
        plans[1].token = plans[0].token.clone();
        Scene::set(setting, plans)?.play(report, |scene, report| {
            let since = now();
            scene.start_all()?;
            let watcher = 1 - scene.wait_for_active()?;
            let (host, deadline) = (&scene.hosts[watcher], now() + scene.timing.longest_wait());
            let line = host.wait_for_line("two live agents have the same token", since, deadline);
            report.check(line.is_some(), || {
                format!("host {watcher} did not say that its token is used twice")
            });
            report.note(format!("host {watcher}: {}", line.unwrap_or_default()));
            observe_for(scene.timing.takeover() * 2);
            Ok(())
        })
    })
}
