//! Scripts: many seeds of the simulation.

use super::script_simulation::Simulation;
use super::{run_chosen_seeds, run_seeds};

/// Plays a seed of scripts.
fn play(seed: u64) -> (usize, usize) {
    let mut simulation = Simulation::new(seed);
    (simulation.run(), simulation.restored)
}

#[test]
fn no_two_have_the_lock_at_once_whatever_is_killed_lost_or_late() {
    let (grants, restored) = run_seeds(1, 1_500, play);
    assert!(grants > 7_000, "only {grants} times the lock was had");
    assert!(restored > 1_000, "only {restored} kills of the server restored a ticket");
}

#[test]
#[ignore = "takes minutes"]
fn many_seeds() {
    run_chosen_seeds(play);
}
