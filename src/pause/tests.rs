//! The agents that have to acknowledge a pause, and its end.

use super::*;
use crate::core::Revision;
use crate::status::PauseStatus;

/// Agents, each with the pause that it observes, or the end of one that it has read.
fn agents(of: &[(&str, Result<u64, u64>, AgentState)]) -> Agents {
    agents_with(of, |agent| agent)
}

/// Agents as those of [`agents`], each changed.
fn agents_with(
    of: &[(&str, Result<u64, u64>, AgentState)],
    change: impl Fn(AgentStatus) -> AgentStatus,
) -> Agents {
    let agent = |(token, read, state): &(&str, Result<u64, u64>, AgentState)| {
        let (paused, Ok(pause) | Err(pause)) = (read.is_ok(), *read);
        let agent =
            AgentStatus { paused, pause, term: Some(4), ..AgentStatus::of_candidate(token) };
        change(AgentStatus { state: *state, ..agent })
    };
    of.iter().map(agent).collect()
}

const SERIAL: u64 = 9;

#[test]
fn each_agent_that_was_seen_and_each_holder_has_to_acknowledge_a_pause() {
    let held = KeyStatus::of_agents(&[("h1", HolderState::Active)], Vec::new());
    let all = agents(&[("h1", Ok(9), AgentState::Active), ("h2", Ok(9), AgentState::Standby)]);
    assert_eq!(unacknowledged(Some(&held), &all, SERIAL), Vec::<String>::new());
    assert_eq!(unacknowledged(None, &agents(&[]), SERIAL), Vec::<String>::new(), "nobody is there");
    // A pause of before, a later one, and its own one, which is over for this agent.
    for other in [Ok(8), Ok(10), Err(9)] {
        let of = [("h1", Ok(9), AgentState::Active), ("h2", other, AgentState::Standby)];
        let lacking = unacknowledged(Some(&held), &agents(&of), SERIAL);
        assert_eq!(lacking, ["h2: has not acknowledged it"], "{other:?}");
    }
    let stops = agents(&[("h1", Err(0), AgentState::Stopping), ("h2", Ok(9), AgentState::Standby)]);
    assert_eq!(unacknowledged(Some(&held), &stops, SERIAL), ["h1: stops its service"]);
    // The guard may receive an assertion of start yet.
    let hung = agents_with(&[("h1", Err(9), AgentState::Active)], |agent| AgentStatus {
        guard_up: false,
        ..agent
    });
    assert_eq!(unacknowledged(Some(&held), &hung, SERIAL), ["h1: its guard does not answer"]);
    let starting = agents_with(&[("h1", Ok(9), AgentState::Active)], |agent| AgentStatus {
        start_pending: true,
        ..agent
    });
    assert_eq!(unacknowledged(Some(&held), &starting, SERIAL), ["h1: its start is about to begin"]);
    let others = agents(&[("h2", Ok(9), AgentState::Standby)]);
    let silent = unacknowledged(Some(&held), &others, SERIAL);
    assert!(silent[0].starts_with("h1: holds the lock and does not answer"), "{silent:?}");
    let dead = KeyStatus::of_agents(&[("h1", HolderState::Overdue)], Vec::new());
    assert_eq!(unacknowledged(Some(&dead), &others, SERIAL), Vec::<String>::new(), "it is dead");
}

/// An agent was killed while its guard stood still, and started again to observe only. The new
/// instance acknowledged the pause, and the guard of the dead one began start in it.
#[test]
fn the_lock_of_an_earlier_instance_is_waited_for() {
    let mut held = KeyStatus::of_agents(&[("h1", HolderState::Active)], Vec::new());
    let of_term = |held: &KeyStatus, term| {
        let of = [("h1", Ok(9), AgentState::Active)];
        let agents = agents_with(&of, |agent| AgentStatus { term, ..agent });
        unacknowledged(Some(held), &agents, SERIAL)
    };
    assert_eq!(of_term(&held, Some(4)), Vec::<String>::new());
    for term in [None, Some(9)] {
        assert_eq!(of_term(&held, term), ["h1: the lock of its earlier instance has not run out"]);
    }
    held.holders[0].state = HolderState::Overdue;
    assert_eq!(of_term(&held, None), Vec::<String>::new());
}

/// Both hosts of a cloned machine have one name and one token. The pause of two such agents was
/// reported as acknowledged when one of them had read it.
#[test]
fn two_agents_of_one_token_do_not_count_as_one() {
    let instance = |incarnation: &str| AgentStatus {
        incarnation: incarnation.to_owned(),
        ..AgentStatus::of_candidate("h1")
    };
    let twins = |instances: &[&str]| {
        let answers = instances.iter().map(|it| instance(it)).collect();
        KeyStatus::of_agents(&[("h1", HolderState::Active)], answers).twins().len()
    };
    assert_eq!(twins(&["a", "b"]), 1);
    assert_eq!(twins(&["a", "a"]), 0, "an answer that came twice");
    assert_eq!(twins(&["b"]), 0, "the agent was upgraded");
}

#[test]
fn a_holder_of_another_version_is_not_paused() {
    let mut status = KeyStatus::of_agents(&[("h1", HolderState::Active)], Vec::new());
    assert_eq!(why_not(&status), Vec::<String>::new());
    status.holders[0].term = None;
    assert_eq!(why_not(&status), ["h1: is an agent of another version, which observes no pause"]);
}

#[test]
fn the_end_of_a_pause_is_acknowledged_by_all_too() {
    let held = KeyStatus::of_agents(&[("h1", HolderState::Active)], Vec::new());
    let lacking = |agents: &Agents| unended(Some(&held), agents, SERIAL);
    let all = agents(&[("h1", Err(9), AgentState::Active), ("h2", Err(10), AgentState::Standby)]);
    assert_eq!(lacking(&all), Vec::<String>::new());
    // Also an agent that observes no pause: it may read yet what a leader of before shows.
    for before in [Ok(8), Err(8), Err(0)] {
        let agents = agents(&[("h1", before, AgentState::Active)]);
        assert_eq!(lacking(&agents), ["h1: has not acknowledged the end"], "{before:?}");
    }
    let silent = lacking(&agents(&[("h2", Err(9), AgentState::Standby)]));
    assert_eq!(silent, ["h1: does not answer"]);
}

/// Another operator has paused them since: it was said that they would go on later.
#[test]
fn agents_that_observe_a_later_pause_have_acknowledged_the_end_of_the_one_before() {
    let later = agents(&[("h1", Ok(10), AgentState::Active)]);
    let paused = |serial| {
        let (until, by, reason) = (String::new(), String::new(), String::new());
        let paused = PauseStatus { until, expires_in_seconds: 9.0, by, reason, serial };
        KeyStatus { paused: Some(paused), ..KeyStatus::of_agents(&[], Vec::new()) }
    };
    assert_eq!(unended(Some(&paused(10)), &later, SERIAL), Vec::<String>::new());
    // The status is older than the end.
    let before = agents(&[("h1", Ok(8), AgentState::Active)]);
    assert_eq!(unended(Some(&paused(8)), &before, SERIAL).len(), 1);
    // The store has lost the later one.
    let none = KeyStatus::of_agents(&[], Vec::new());
    assert_eq!(unended(Some(&none), &later, SERIAL), ["h1: has not acknowledged the end"]);
}

#[test]
fn a_busy_agent_acknowledges_no_pause() {
    for state in [AgentState::Looking, AgentState::Taking, AgentState::Stopping] {
        assert_eq!(
            unacknowledged(None, &agents(&[("h1", Ok(9), state)]), SERIAL).len(),
            1,
            "{state}"
        );
    }
}

fn pause(number: u64) -> StoredPause {
    let (lasts, by) = (Duration::from_secs(3600), "root@h3".to_owned());
    StoredPause { lasts, by, reason: String::new(), number }
}

/// Another operator may have replaced it meanwhile, or ended it.
#[test]
fn no_pause_but_the_own_one_is_withdrawn() {
    let own = pause(1);
    let serial = stored::next_serial(None, 0) * 2;
    let entry = |pause| {
        let (key, content) = (stored::key_of("web"), stored::to_content(pause, serial));
        Entry { key, revision: Revision(9), content, age: None }
    };
    let written = withdrawal(Some(&entry(Some(&own))), &own, 0);
    assert_eq!(written, Some(stored::to_content(None, serial + 1)));
    for of_others in [entry(Some(&pause(2))), entry(None)] {
        assert_eq!(withdrawal(Some(&of_others), &own, 0), None);
    }
    assert_eq!(withdrawal(None, &own, 0), None);
}
