//! h. Agents of 0.2.0 beside the new ones. i. Old servers.

use std::path::Path;

use crate::rig::host::plans;
use crate::rig::report::{Report, story};
use crate::rig::scene::Scene;
use crate::rig::setting::Setting;

/// A host with a new agent and one with 0.2.0 take over from each other, `rounds`
/// times each way.
pub(crate) fn old_and_new_take_over_from_each_other(
    setting: &Setting,
    old: &Path,
    rounds: usize,
) -> Report {
    story("h: 0.2.0 and new agents share one key", |report| {
        let mut plans = plans(&setting.agent, 2);
        plans[0].agent = old.to_owned();
        Scene::set(setting, plans)?.play(report, |scene, report| {
            scene.hosts[0].start()?;
            scene.wait_for_active()?;
            scene.hosts[1].start()?;
            scene.wait_taking_part(1)?;
            for number in 0..rounds * 2 {
                let active = scene.wait_for_active()?;
                scene.pass_part_of_a_stroke(number);
                let killed_at = scene.hosts[active].kill_host();
                let renewal = scene.hosts[active].proxy.last_renewal();
                let renewed_at = renewal.ok_or("the active agent has never renewed")?.at;
                let (_, up_at) = scene.next_active(active, killed_at)?;
                let name = if active == 0 { "new after 0.2.0" } else { "0.2.0 after new" };
                let took = up_at.saturating_sub(renewed_at);
                report.measure_of(name, scene.timing.takeover(), took);
                report.check_at_least(name, took, scene.timing.takeover());
                scene.hosts[active].start()?;
                scene.wait_taking_part(active)?;
            }
            Ok(())
        })
    })
}
