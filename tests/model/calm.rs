//! What becomes of a world once faults have ceased: soon one agent is active.

use super::Model;
use super::act::{Act, Acts};
use super::cue::End;
use super::turn::Turn;
use super::world::World;

/// More acts than come before any world is calm.
const ACTS_MAX: u32 = 10_000;

/// Lets a world go on without faults, everything at its first chance, until the
/// service runs somewhere under an active agent; returns how long that takes.
///
/// # Errors
///
/// When it takes too long, or when something is broken on the way.
pub(crate) fn calm_down(model: &mut Model, world: &World) -> Result<Option<i32>, String> {
    let mut world = *world;
    world.common.faults = 0;
    let (mut passed, within) = (0, model.calm_within);
    for _ in 0..ACTS_MAX {
        if served(model, &world) {
            return Ok(Some(passed));
        }
        let acts = Acts::of(model, &world);
        let alive = world.hosts.iter().any(|host| host.mind.is_some());
        let next = acts.free.iter().find(|act| hurries(**act, alive));
        let act = *next.unwrap_or(&acts.due[0]);
        if let Act::Pass(by) = act {
            if !alive {
                // Nobody is left who could do it.
                return Ok(None);
            }
            passed += by;
        }
        if passed > within {
            return Err(format!(
                "nobody is active {} ms after the last fault",
                passed / 1000
            ));
        }
        let mut turn = Turn::of(model, world);
        turn.act(act)?;
        world = turn.world;
    }
    Err("time stands still".to_owned())
}

fn served(model: &Model, world: &World) -> bool {
    world.hosts.iter().any(|host| {
        let state = host.mind.map(|mind| model.pumps.get(mind).mind.state());
        host.up && host.frozen.is_none() && state == Some("active")
    })
}

/// Whether that happens at once when there are no faults: what takes its time ends,
/// and an agent is restarted if no other lives.
fn hurries(act: Act, alive: bool) -> bool {
    match act {
        Act::Thaw { .. } | Act::Open { .. } | Act::Perform { .. } | Act::Answer { .. } => true,
        Act::End { how, .. } => how == End::Well,
        Act::Begin { .. } => !alive,
        Act::Pass(_)
        | Act::Tick { .. }
        | Act::GuardTick { .. }
        | Act::GiveUp { .. }
        | Act::Land { .. }
        | Act::Delay { .. }
        | Act::Hang { .. }
        | Act::Close { .. }
        | Act::Kill { .. }
        | Act::Freeze { .. }
        | Act::KillGuard { .. }
        | Act::Terminate { .. } => false,
    }
}
