//! d. Servers and links that come and go.

use std::time::Duration;

use rustix::process::Signal;

use crate::rig::report::{Report, story};
use crate::rig::scene::Scene;
use crate::rig::setting::Setting;
use crate::support::clock::{now, observe_for, wait_until};
use crate::support::proxy::Mode;

/// A short restart leaves clients without a server for so long.
const RESTART_MIN: Duration = Duration::from_millis(250);
/// Within this time a restarted server has to be back, or the scenario says nothing.
const RESTART_MAX: Duration = Duration::from_millis(400);
/// So many restarts may take longer, because other work of the host slows them down.
const RESTARTS_MAX: usize = 3;

/// The server restarts within 0.4 s, and nothing moves.
pub(crate) fn a_short_server_restart_moves_nothing(setting: &Setting) -> Report {
    story("d: the server restarts", |report| {
        // A client waits longer before it connects to a server that has ended twice: each restart
        // is one of another server.
        for _ in 0..RESTARTS_MAX {
            let mut is_fast = false;
            Scene::open(setting, 3)?.play(report, |scene, report| {
                scene.wait_for_active()?;
                let stopped_at = scene.server.stop(Signal::TERM);
                observe_for((stopped_at + RESTART_MIN).saturating_sub(now()));
                let back_at = scene.server.restart()?;
                let gone_for = back_at.saturating_sub(stopped_at);
                report.measure("server gone", gone_for);
                is_fast = gone_for <= RESTART_MAX;
                if is_fast {
                    scene.check_nothing_moves(report, stopped_at, scene.timing.takeover() * 2);
                }
                Ok(())
            })?;
            if is_fast {
                return Ok(());
            }
        }
        Err("this machine is too busy to restart a server in time".to_owned())
    })
}

/// The server is gone for 8R: the service stops in time, and comes back by itself.
pub(crate) fn a_long_server_outage_stops_the_service(setting: &Setting) -> Report {
    story("d: the server is gone for 8R", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let stopped_at = scene.server.stop(Signal::KILL);
            scene.check_stopped_in_time(report, active, stopped_at);
            let down_at = now();
            observe_for((stopped_at + scene.timing.r * 8).saturating_sub(now()));
            let ups = scene.observer.ups_since(down_at);
            report
                .check(ups.is_empty(), || "a service started while there was no server".to_owned());
            let back_at = scene.server.restart()?;
            scene.wait_for_active()?;
            let ups = scene.observer.ups_since(back_at);
            let up_at = ups.first().map_or(back_at, |(at, _)| *at);
            report.measure("server back to service back", up_at.saturating_sub(back_at));
            Ok(())
        })
    })
}

/// The link of the active agent breaks, with or without notice.
pub(crate) fn a_broken_link_moves_the_service(setting: &Setting, mode: Mode) -> Report {
    story(&format!("d: the active link: {mode:?}"), |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let broken_at = scene.hosts[active].proxy.turn(mode);
            let renewed_at = scene.check_stopped_in_time(report, active, broken_at);
            let (_, up_at) = scene.next_active(active, broken_at)?;
            let took = up_at.saturating_sub(renewed_at);
            report.measure_of("failover", scene.timing.takeover(), took);
            report.check_at_least("failover", took, scene.timing.takeover());
            scene.wait_for_active()?;
            let healed_at = scene.hosts[active].proxy.turn(Mode::Pass);
            let window = scene.timing.takeover() + scene.timing.r;
            scene.check_nothing_moves(report, healed_at, window);
            scene.wait_taking_part(active)?;
            Ok(())
        })
    })
}

/// The link of the active agent takes R/10 each way, and nothing moves.
pub(crate) fn a_slow_link_moves_nothing(setting: &Setting) -> Report {
    story("d: the active link is slow", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let delay = Mode::Delay(scene.timing.r / 10);
            let slow_at = scene.hosts[active].proxy.turn(delay);
            let window = scene.timing.takeover() * 2;
            scene.check_nothing_moves(report, slow_at, window);
            scene.hosts[active].proxy.turn(Mode::Pass);
            Ok(())
        })
    })
}

/// The answer to one renewal is lost, and nothing moves.
pub(crate) fn a_lost_acknowledgement_moves_nothing(setting: &Setting) -> Report {
    story("d: one acknowledgement is lost", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let since = now();
            let proxy = &scene.hosts[active].proxy;
            proxy.swallow_next_ack();
            wait_until(now() + scene.timing.longest_wait(), || proxy.swallowed_at())
                .ok_or("no acknowledgement came that could be lost")?;
            let window = scene.timing.takeover() * 2;
            scene.check_nothing_moves(report, since, window);
            Ok(())
        })
    })
}
