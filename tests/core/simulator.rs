//! The simulator with fixed seeds. `tests/all simulate` plays fresh ones, and the same fault kinds
//! by the hundred thousand: see `tests/system/simulate.rs`.

use crate::sim::campaign;

/// The first of the seeds, and their number: some seconds of a debug build.
const SEEDS: &str = "--base 1 --seeds 1000 --jobs 1";

/// The promise, and all that the pages say of deadlines, alarms and needless moves, holds in each
/// history. A history that fails is made small and printed.
#[test]
fn no_history_of_the_fixed_seeds_breaks_the_promise() {
    let words = SEEDS.split_whitespace().map(str::to_owned).collect();
    let held = campaign::play(words).unwrap_or_else(|campaign::Usage(text)| panic!("{text}"));
    assert!(held, "the output has the seed, and what failed in it");
}
