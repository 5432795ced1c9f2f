//! b. Steady state, and hosts that die.

use std::time::Duration;

use crate::rig::report::{Report, story};
use crate::rig::scene::Scene;
use crate::rig::setting::Setting;

/// Three agents run for `window`: one is active, and it stays the same one.
pub(crate) fn nothing_moves_when_nothing_happens(setting: &Setting, window: Duration) -> Report {
    story("b: steady state", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            scene.wait_for_active()?;
            let since = crate::support::clock::now();
            scene.check_nothing_moves(report, since, window);
            Ok(())
        })
    })
}

/// The active host is killed `kills` times; another takes over no earlier than
/// T + C·R after the last renewal, and not much later.
pub(crate) fn another_takes_over_from_a_killed_host(setting: &Setting, kills: usize) -> Report {
    story("b: the active host is killed", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let timing = scene.timing;
            for number in 0..kills {
                let active = scene.wait_for_active()?;
                scene.pass_part_of_a_stroke(number);
                let killed_at = scene.hosts[active].kill_host();
                let renewal = scene.hosts[active].proxy.last_renewal();
                let renewed_at = renewal.ok_or("the active agent has never renewed")?.at;
                let (_, up_at) = scene.next_active(active, killed_at)?;
                let took = up_at.saturating_sub(renewed_at);
                report.measure_of("failover", timing.takeover(), took);
                report.check_at_least("failover", took, timing.takeover());
                report.check_fast("failover", took, timing.takeover_max());
                scene.hosts[active].start()?;
                scene.wait_taking_part(active)?;
            }
            Ok(())
        })
    })
}
