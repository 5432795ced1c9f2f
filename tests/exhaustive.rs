//! Every history of a small model, with the shipped pump and the shipped guard in it.
//! See `tests/model/mod.rs`.
//!
//! The small search is run with all other tests. The deep ones, which take minutes and
//! some gigabytes:
//!
//! ```text
//! cargo test --release --test exhaustive -- --ignored --nocapture
//! PUTEX_MODEL="faults=2 steps=4 states=100000000" cargo test --release \
//!     --test exhaustive deep -- --ignored --nocapture
//! ```
//!
//! Words of `PUTEX_MODEL`: agents, f, c, faults, steps, instances, cgroup, states; what is left out
//! is as in [`SMALL`].

#![allow(clippy::unwrap_used)]

mod model;

use std::time::Instant;

use model::{Budget, Scope, Search, SearchResult};

/// What every run of the tests looks through.
const SMALL: Scope = Scope {
    agents: 2,
    failures: 2,
    confirmations: 1,
    budget: Budget {
        faults: 1,
        hangs: 0,
        signals: 0,
    },
    steps: 1,
    instances: 2,
    cgroup: false,
    late: false,
    states_max: 150_000_000,
};

/// What is looked through when there is time.
const DEEP: [Scope; 4] = [
    Scope { steps: 4, ..SMALL },
    Scope {
        failures: 3,
        confirmations: 2,
        ..SMALL
    },
    Scope { agents: 3, ..SMALL },
    Scope {
        budget: Budget {
            faults: 2,
            hangs: 0,
            signals: 0,
        },
        ..SMALL
    },
];

fn search(scope: Scope) -> SearchResult {
    let began = Instant::now();
    let found = Search::new(scope).run();
    println!(
        "{scope}: {} states, {} transitions, depth {}, {}, {:.1?}",
        found.states,
        found.transitions,
        found.depth,
        if found.whole { "whole" } else { "cut short" },
        began.elapsed()
    );
    println!(
        "  {} states of the pump, {} of the guard; {} states followed until calm, {:?} at the \
         longest, {:?} allowed",
        found.pump_states, found.guard_states, found.calmed, found.calm_longest, found.calm_within
    );
    if let Some((why, path)) = &found.broken {
        panic!("{why}\n{path}");
    }
    found
}

#[test]
fn no_history_of_two_agents_with_one_fault_breaks_the_promise() {
    let found = search(SMALL);
    assert!(found.whole);
    assert!(found.states > 100_000, "the model has shrunk");
}

#[test]
#[ignore = "takes minutes"]
fn deep() {
    match std::env::var("PUTEX_MODEL") {
        Ok(words) => drop(search(scope(&words))),
        Err(_) => DEEP.into_iter().for_each(|scope| drop(search(scope))),
    }
}

fn scope(words: &str) -> Scope {
    let mut scope = SMALL;
    for word in words.split_whitespace() {
        let (name, number) = word.split_once('=').unwrap();
        let number: u32 = number.parse().unwrap();
        match name {
            "agents" => scope.agents = number as usize,
            "f" => scope.failures = number,
            "c" => scope.confirmations = number,
            "faults" => scope.budget.faults = u8::try_from(number).unwrap(),
            "hangs" => scope.budget.hangs = u8::try_from(number).unwrap(),
            "signals" => scope.budget.signals = u8::try_from(number).unwrap(),
            "steps" => scope.steps = number,
            "instances" => scope.instances = u8::try_from(number).unwrap(),
            "cgroup" => scope.cgroup = number > 0,
            "late" => scope.late = number > 0,
            "states" => scope.states_max = number as usize,
            other => panic!("PUTEX_MODEL: unknown word {other}"),
        }
    }
    scope
}
