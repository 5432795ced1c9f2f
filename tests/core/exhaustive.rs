//! Every history of a small model, with the shipped pump and the shipped guard in it.
//! See `tests/core/model/mod.rs`.
//!
//! The small searches are run with all other tests. The deep ones, which take minutes and
//! some gigabytes:
//!
//! ```text
//! cargo test --release --test core exhaustive -- --ignored --nocapture
//! PUTEX_MODEL="agents=3 faults=1" cargo test --release \
//!     --test core exhaustive::deep -- --ignored --nocapture
//! ```
//!
//! Words of `PUTEX_MODEL`: agents, f, c, faults, hangs, signals, steps, instances, cgroup, late,
//! states; what is left out is as in [`TWO_AGENTS`].

use std::time::Instant;

use crate::model::{Budget, Scope, Search, SearchResult};

/// Two agents: what passes between hosts.
const TWO_AGENTS: Scope = Scope {
    agents: 2,
    failures: 2,
    confirmations: 1,
    budget: budget(1, 0, 0),
    steps: 1,
    instances: 2,
    cgroup: false,
    late: false,
    states_max: 150_000_000,
};

/// A single agent: the messages between agent, guard and commands.
const ONE_AGENT: Scope = Scope { agents: 1, ..TWO_AGENTS };

const fn budget(faults: u8, hangs: u8, signals: u8) -> Budget {
    Budget { faults, hangs, signals }
}

/// Scopes of the deep searches.
const DEEP: [Scope; 11] = [
    Scope { agents: 3, ..TWO_AGENTS },
    Scope { budget: budget(1, 1, 0), ..TWO_AGENTS },
    Scope { budget: budget(1, 0, 1), ..TWO_AGENTS },
    Scope { failures: 3, confirmations: 2, ..TWO_AGENTS },
    Scope { steps: 4, ..TWO_AGENTS },
    Scope { late: true, ..TWO_AGENTS },
    Scope { budget: budget(1, 1, 0), ..ONE_AGENT },
    Scope { budget: budget(0, 2, 1), ..ONE_AGENT },
    Scope { budget: budget(1, 1, 1), instances: 1, ..ONE_AGENT },
    Scope { budget: budget(2, 0, 0), cgroup: true, ..ONE_AGENT },
    Scope { budget: budget(2, 1, 0), cgroup: true, ..ONE_AGENT },
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

/// Looks through a scope as a whole. A scope that has fewer states than it had has lost something.
fn look_through(scope: Scope, states: usize) {
    let found = search(scope);
    assert!(found.whole);
    assert!(found.states > states, "the model has shrunk");
}

#[test]
fn no_history_of_two_agents_with_one_fault_breaks_the_promise() {
    look_through(TWO_AGENTS, 300_000);
}

#[test]
fn no_history_of_a_slow_command_and_a_signal_breaks_the_promise() {
    let budget = budget(0, 1, 1);
    let scope = Scope { budget, ..ONE_AGENT };
    look_through(scope, 15_000);
}

#[test]
fn no_history_of_a_fault_and_a_slow_command_breaks_the_promise() {
    let budget = budget(1, 1, 0);
    let scope = Scope { budget, instances: 1, ..ONE_AGENT };
    look_through(scope, 250_000);
}

#[test]
fn no_history_of_a_fault_and_a_signal_breaks_the_promise() {
    let budget = budget(1, 0, 1);
    let scope = Scope { budget, cgroup: true, ..ONE_AGENT };
    look_through(scope, 90_000);
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
    let mut scope = TWO_AGENTS;
    for word in words.split_whitespace() {
        let (name, number) = word.split_once('=').unwrap();
        let number: u32 = number.parse().unwrap();
        let few = || u8::try_from(number).unwrap();
        match name {
            "agents" => scope.agents = number as usize,
            "f" => scope.failures = number,
            "c" => scope.confirmations = number,
            "faults" => scope.budget.faults = few(),
            "hangs" => scope.budget.hangs = few(),
            "signals" => scope.budget.signals = few(),
            "steps" => scope.steps = number,
            "instances" => scope.instances = few(),
            "cgroup" => scope.cgroup = number > 0,
            "late" => scope.late = number > 0,
            "states" => scope.states_max = number as usize,
            other => panic!("PUTEX_MODEL: unknown word {other}"),
        }
    }
    scope
}
