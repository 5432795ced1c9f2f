//! c. Health checks that fail, are slow, or hang.

use std::time::Duration;

use crate::rig::report::{Report, story};
use crate::rig::scenarios::COMMANDS_MAX;
use crate::rig::scene::Scene;
use crate::rig::setting::Setting;
use crate::support::clock::now;

/// A hanging check lasts this long: for ever.
const HANG: Duration = Duration::from_secs(100_000);

/// The check of the active agent fails: its service stops at the next stroke, and
/// another takes over within one R.
pub(crate) fn a_failing_check_moves_the_service(setting: &Setting) -> Report {
    story("c: the active check fails", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let sick_at = now();
            scene.hosts[active].service.set_sick(true);
            let down_at = scene.down(active, sick_at)?;
            let (_, up_at) = scene.next_active(active, sick_at)?;
            let most = scene.timing.r + COMMANDS_MAX;
            let stopping = down_at.saturating_sub(sick_at);
            report.measure("sick to service stopped", stopping);
            report.check_fast("sick to service stopped", stopping, most);
            let moving = up_at.saturating_sub(down_at);
            report.measure("stopped to next one started", moving);
            report.check_fast("stopped to next one started", moving, most);
            let well_at = now();
            scene.hosts[active].service.set_sick(false);
            let window = scene.timing.takeover() + scene.timing.r;
            scene.check_nothing_moves(report, well_at, window);
            Ok(())
        })
    })
}

/// A check that takes longer than R but ends before T costs nothing.
pub(crate) fn a_slow_check_moves_nothing(setting: &Setting) -> Report {
    story("c: the active check takes 2R", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let slow_at = now();
            scene.hosts[active].service.set_slow(scene.timing.r * 2);
            let window = scene.timing.takeover() * 2;
            scene.check_nothing_moves(report, slow_at, window);
            scene.hosts[active].service.set_slow(Duration::ZERO);
            Ok(())
        })
    })
}

/// A check that never ends costs the lock, and the service is stopped in time.
pub(crate) fn a_hanging_check_moves_the_service(setting: &Setting) -> Report {
    story("c: the active check hangs", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let hung_at = now();
            scene.hosts[active].service.set_slow(HANG);
            let renewed_at = scene.check_stopped_in_time(report, active, hung_at);
            let (_, up_at) = scene.next_active(active, hung_at)?;
            let took = up_at.saturating_sub(renewed_at);
            report.measure_of("failover", scene.timing.takeover(), took);
            scene.hosts[active].service.set_slow(Duration::ZERO);
            Ok(())
        })
    })
}
