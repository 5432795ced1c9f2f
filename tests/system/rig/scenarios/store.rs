//! g. A store that loses what it promised to keep.

use std::time::Duration;

use rustix::process::Signal;

use crate::rig::host::{KEY, plans};
use crate::rig::report::{Report, story};
use crate::rig::scene::Scene;
use crate::rig::setting::Setting;
use crate::support::clock::{At, now, observe_for, wait_until};
use crate::support::wire::Client;

/// An agent may notice a server before the rig does.
const NOTICE_EARLIER: Duration = Duration::from_millis(20);

/// So many lines of each agent are shown after a loss.
const LINES_MAX: usize = 4;

/// Somebody deletes the key with an ordinary client.
pub(crate) fn a_deleted_key_stops_the_service(setting: &Setting) -> Report {
    story("g: the key is deleted", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let mut client = Client::connect(scene.server.port())?;
            let lost_at = now();
            let subject = format!("$KV.{}.{KEY}", scene.bucket);
            let answer = client.request(&subject, "KV-Operation: DEL", "")?;
            answer.stored_revision().ok_or("the marker was not stored")?;
            check_loss(scene, report, active, lost_at, lost_at)
        })
    })
}

/// Somebody deletes the bucket.
pub(crate) fn a_deleted_bucket_stops_the_service(setting: &Setting) -> Report {
    story("g: the bucket is deleted", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let mut client = Client::connect(scene.server.port())?;
            let lost_at = now();
            client.call(&format!("STREAM.DELETE.KV_{}", scene.bucket), "")?;
            check_loss(scene, report, active, lost_at, lost_at)
        })
    })
}

/// The server's store is put back to an older state.
pub(crate) fn a_restored_store_stops_the_service(setting: &Setting) -> Report {
    story("g: the store is restored from a copy", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            scene.wait_for_active()?;
            scene.server.stop(Signal::TERM);
            let copy = scene.server.copy_store()?;
            scene.server.restart()?;
            let active = wait_for_renewals(scene, 4)?;
            let lost_at = scene.server.stop(Signal::TERM);
            scene.server.restore_store(&copy)?;
            let back_at = scene.server.restart()?;
            check_loss(scene, report, active, lost_at, back_at)
        })
    })
}

/// The bucket was kept in memory, and its server dies.
pub(crate) fn a_lost_memory_bucket_stops_the_service(setting: &Setting) -> Report {
    story("g: a bucket in memory is lost", |report| {
        let mut plans = plans(&setting.agent, 3);
        plans.iter_mut().for_each(|plan| plan.flags.push("--allow-memory".to_owned()));
        Scene::set(setting, plans)?.play(report, |scene, report| {
            Client::connect(scene.server.port())?.create_bucket(&scene.bucket, "memory")?;
            scene.start_all()?;
            let active = scene.wait_for_active()?;
            let lost_at = scene.server.stop(Signal::KILL);
            let back_at = scene.server.restart()?;
            check_loss(scene, report, active, lost_at, back_at)
        })
    })
}

/// Waits until the active agent has renewed `count` times more, and returns whose
/// it is.
fn wait_for_renewals(scene: &Scene, count: u64) -> Result<usize, String> {
    let active = scene.wait_for_active()?;
    let revision = || {
        let renewal = scene.hosts[active].proxy.last_renewal();
        renewal.map_or(0, |renewal| renewal.revision)
    };
    let enough = revision() + count;
    wait_until(now() + scene.timing.longest_wait(), || (revision() >= enough).then_some(active))
        .ok_or_else(|| "the active agent does not renew".to_owned())
}

/// The holder's service stops, nobody starts for T + C·R after the store was `back`,
/// and then there is one again.
fn check_loss(
    scene: &mut Scene,
    report: &mut Report,
    active: usize,
    lost_at: At,
    back_at: At,
) -> Result<(), String> {
    let timing = scene.timing;
    let longest_wait = lost_at + timing.takeover() + timing.r;
    let down_at = wait_until(longest_wait, || scene.observer.down_since(active, lost_at));
    report.check(down_at.is_some(), || {
        "the holder's service went on after its lock was lost".to_owned()
    });
    if let Some(down_at) = down_at {
        report.measure("loss to service stopped", down_at.saturating_sub(lost_at));
    }
    let started = || scene.observer.ups_since(lost_at).first().copied();
    if let Some((up_at, host)) = wait_until(now() + timing.longest_wait(), started) {
        let waited = up_at.saturating_sub(back_at);
        report.measure_of("loss to next start", timing.takeover(), waited);
        let least = timing.takeover().saturating_sub(NOTICE_EARLIER);
        report.check_at_least("loss to next start", waited, least);
        report.note(format!("host {active} was active before, host {host} after"));
    }
    observe_for(timing.takeover());
    for (number, host) in scene.hosts.iter().enumerate() {
        for line in host.said_since(lost_at).into_iter().take(LINES_MAX) {
            report.note(format!("host {number} said: {line}"));
        }
    }
    Ok(())
}
