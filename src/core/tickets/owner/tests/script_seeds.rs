//! Scripts: many seeds of the simulation.

use super::script_simulation::Simulation;

/// Returns how often a lock was granted, and how many kills of the server have restored a ticket.
fn run_seeds(first: u64, count: u64) -> (usize, usize) {
    let (mut grants, mut restored) = (0, 0);
    for seed in first..first + count {
        let ended = std::panic::catch_unwind(|| {
            let mut simulation = Simulation::new(seed);
            (simulation.run(), simulation.restored)
        });
        let ended = ended.unwrap_or_else(|_| panic!("seed {seed}"));
        (grants, restored) = (grants + ended.0, restored + ended.1);
    }
    (grants, restored)
}

#[test]
fn no_two_have_the_lock_at_once_whatever_is_killed_lost_or_late() {
    let (grants, restored) = run_seeds(1, 1_500);
    assert!(grants > 8_000, "only {grants} times the lock was had");
    assert!(restored > 1_000, "only {restored} kills of the server restored a ticket");
}

/// `PUTEX_SEEDS=FIRST,COUNT` chooses the seeds.
#[test]
#[ignore = "takes minutes"]
fn many_seeds() {
    let text = std::env::var("PUTEX_SEEDS").unwrap_or_else(|_| "1,100000".to_owned());
    let (first, count) = text.split_once(',').expect("FIRST,COUNT");
    let (first, count) = (first.parse().expect("a number"), count.parse().expect("a number"));
    let (grants, restored) = run_seeds(first, count);
    println!("{count} seeds, {grants} grants, {restored} kills that restored a ticket");
}
