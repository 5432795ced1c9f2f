//! Who has to acknowledge a pause, and its end.

use super::*;

fn agents(of: &[(&str, Option<u64>, AgentState)]) -> Agents {
    let agent = |(token, pause, state): &(&str, Option<u64>, AgentState)| {
        (((*token).to_owned(), "h".to_owned()), (*pause, *state))
    };
    of.iter().map(agent).collect()
}

const AT: Revision = Revision(9);

#[test]
fn each_agent_that_was_seen_and_each_holder_has_to_acknowledge_a_pause() {
    let held = KeyStatus::of_agents(&[("h1", HolderState::Active)], Vec::new());
    let all = agents(&[("h1", Some(9), AgentState::Active), ("h2", Some(9), AgentState::Standby)]);
    assert_eq!(lacking(Some(&held), &all, AT), Vec::<String>::new());
    assert_eq!(lacking(None, &agents(&[]), AT), Vec::<String>::new(), "nobody is there");
    let earlier =
        agents(&[("h1", Some(9), AgentState::Active), ("h2", Some(8), AgentState::Standby)]);
    assert_eq!(lacking(Some(&held), &earlier, AT), ["h2: has not acknowledged it"]);
    let stops = agents(&[("h1", None, AgentState::Stopping), ("h2", Some(9), AgentState::Standby)]);
    assert_eq!(lacking(Some(&held), &stops, AT), ["h1: stops its service"]);
    let silent = lacking(Some(&held), &agents(&[("h2", Some(9), AgentState::Standby)]), AT);
    assert!(silent[0].starts_with("h1: holds the lock and does not answer"), "{silent:?}");
    let dead = KeyStatus::of_agents(&[("h1", HolderState::Overdue)], Vec::new());
    let others = agents(&[("h2", Some(9), AgentState::Standby)]);
    assert_eq!(lacking(Some(&dead), &others, AT), Vec::<String>::new(), "it is dead");
}

#[test]
fn a_holder_of_another_version_is_not_paused() {
    let mut status = KeyStatus::of_agents(&[("h1", HolderState::Active)], Vec::new());
    assert_eq!(why_not(&status), Vec::<String>::new());
    status.holders[0].renewed_age_seconds = None;
    assert!(why_not(&status)[0].contains("does not tell the age"));
    status.holders[0].term = None;
    assert_eq!(why_not(&status), ["h1: is an agent of another version, which observes no pause"]);
}

#[test]
fn the_end_of_a_pause_is_acknowledged_by_all_too() {
    let held = KeyStatus::of_agents(&[("h1", HolderState::Active)], Vec::new());
    let none = agents(&[("h1", None, AgentState::Active), ("h2", None, AgentState::Standby)]);
    assert_eq!(still_paused(Some(&held), &none), Vec::<String>::new());
    let one = agents(&[("h1", Some(9), AgentState::Active), ("h2", None, AgentState::Standby)]);
    assert_eq!(still_paused(Some(&held), &one), ["h1: has not acknowledged the end"]);
    let silent = still_paused(Some(&held), &agents(&[("h2", None, AgentState::Standby)]));
    assert_eq!(silent, ["h1: does not answer"]);
}
