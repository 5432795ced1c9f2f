//! The future of a world once misfortunes have ceased: soon one agent is active.

use putex::core::AgentState;

use super::Model;
use super::messages::End;
use super::transition::{Choices, Transition};
use super::turn::Turn;
use super::world::{Budget, World};

/// More transitions than come before any world is calm.
const TRANSITIONS_MAX: u32 = 10_000;

/// Lets a world go on without misfortunes, everything at its first chance, until the
/// service runs somewhere under an active agent; returns how long that takes.
///
/// # Errors
///
/// When it takes too long, or when something is broken on the way.
pub(crate) fn calm_down(model: &mut Model, world: &World) -> Result<Option<i32>, String> {
    let mut world = *world;
    world.shared.left = Budget::default();
    let (mut passed, within) = (0, model.calm_within);
    for _ in 0..TRANSITIONS_MAX {
        if served(model, &world) {
            return Ok(Some(passed));
        }
        let choices = Choices::of(model, &world);
        let alive = world.hosts.iter().any(|host| host.pump.is_some());
        let next = choices.free.iter().find(|next| hurries(**next, alive));
        let next = *next.unwrap_or(&choices.due[0]);
        if let Transition::Pass(by) = next {
            if !alive {
                // Nobody is left who could do it.
                return Ok(None);
            }
            passed += by;
        }
        if passed > within {
            return Err(format!("nobody is active {} ms after the last misfortune", passed / 1000));
        }
        let mut turn = Turn::of(model, world);
        turn.perform(next)?;
        world = turn.world;
    }
    Err("time stands still".to_owned())
}

fn served(model: &Model, world: &World) -> bool {
    world.hosts.iter().any(|host| {
        let state = host.pump.map(|pump| model.pumps.state(pump));
        host.up && host.is_attended() && host.is_guarded() && state == Some(AgentState::Active)
    })
}

/// Whether that happens at once when nothing goes wrong: what takes its time ends,
/// and an agent is restarted if no other lives.
fn hurries(transition: Transition, alive: bool) -> bool {
    match transition {
        Transition::Thaw { .. }
        | Transition::ThawGuard { .. }
        | Transition::Open { .. }
        | Transition::Perform { .. }
        | Transition::Reply { .. }
        | Transition::Messages { .. }
        | Transition::Reports { .. }
        | Transition::Spawned { .. } => true,
        Transition::End { how, .. } => how != End::Failed,
        Transition::Begin { .. } => !alive,
        Transition::Pass(_)
        | Transition::Tick { .. }
        | Transition::GuardTick { .. }
        | Transition::GiveUp { .. }
        | Transition::Land { .. }
        | Transition::Delay { .. }
        | Transition::Hang { .. }
        | Transition::Lag { .. }
        | Transition::Close { .. }
        | Transition::Kill { .. }
        | Transition::Freeze { .. }
        | Transition::KillGuard { .. }
        | Transition::FreezeGuard { .. }
        | Transition::Terminate { .. } => false,
    }
}
