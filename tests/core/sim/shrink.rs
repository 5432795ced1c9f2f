//! A run, and how a run that fails is made small.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::clock::{MS, True};
use super::counters::Counters;
use super::faults::Kinds;
use super::oracle::Failure;
use super::scenario::{Limits, Scenario};
use super::world::World;

/// The result of a run.
pub struct Ran {
    pub failure: Option<Failure>,
    pub counters: Counters,
    pub hash: u64,
    pub lasted: True,
    pub drawn: String,
}

/// Runs a seed. A panic inside of the core is a failure like any other.
pub fn run(seed: u64, limits: &Limits, trace: bool) -> Ran {
    let scenario = Scenario::draw(seed, limits);
    let mut world = World::new(&scenario, trace);
    let ran = catch_unwind(AssertUnwindSafe(|| world.run()));
    if let Err(panic) = ran {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        world.fail("panic", text.unwrap_or_default());
    }
    Ran {
        failure: world.failure.take(),
        counters: world.counters,
        hash: world.hash,
        lasted: world.now,
        drawn: world.trace.as_ref().map_or(String::new(), |trace| trace.draw(world.now)),
    }
}

/// Returns the least that still fails by the same oracle: kinds of fault are left out
/// one at a time, and faults end as early as possible.
pub fn shrink(seed: u64, limits: &Limits) -> Limits {
    let Some(failure) = run(seed, limits, false).failure else {
        return limits.clone();
    };
    let fails = |limits: &Limits| {
        let failure_now = run(seed, limits, false).failure;
        failure_now.is_some_and(|now| now.oracle == failure.oracle)
    };
    let mut least = limits.clone();
    loop {
        let before = least.without;
        let kinds = Scenario::draw(seed, &least).kinds;
        for kind in kinds.iter() {
            let less = Limits { without: least.without.with(kind), ..least.clone() };
            if fails(&less) {
                least = less;
            }
        }
        if least.without == before {
            break;
        }
    }
    let (mut low, mut high) = (0, failure.at + MS);
    while high - low > MS {
        let middle = low + (high - low) / 2;
        let less = Limits { until: Some(middle), ..least.clone() };
        if fails(&less) {
            high = middle;
            least = less;
        } else {
            low = middle;
        }
    }
    least
}

/// Returns the kinds that are left.
pub fn left(seed: u64, limits: &Limits) -> Kinds {
    Scenario::draw(seed, limits).kinds
}
