//! The agents that have to acknowledge a pause, and its end.

use super::*;
use crate::status::PauseStatus;

fn agents(of: &[(&str, Option<u64>, AgentState)]) -> Agents {
    let agent = |(token, pause, state): &(&str, Option<u64>, AgentState)| {
        let key = ((*token).to_owned(), "h".to_owned());
        (key, AgentStatus { pause: *pause, state: *state, ..AgentStatus::of_candidate(token) })
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
    let lacking = |agents: &Agents| still_paused(Some(&held), agents, AT);
    let none = agents(&[("h1", None, AgentState::Active), ("h2", None, AgentState::Standby)]);
    assert_eq!(lacking(&none), Vec::<String>::new());
    let one = agents(&[("h1", Some(8), AgentState::Active), ("h2", None, AgentState::Standby)]);
    assert_eq!(lacking(&one), ["h1: has not acknowledged the end"]);
    let silent = lacking(&agents(&[("h2", None, AgentState::Standby)]));
    assert_eq!(silent, ["h1: does not answer"]);
}

/// Another operator has paused them since: it was said that they would go on later.
#[test]
fn agents_that_observe_a_later_pause_have_acknowledged_the_end_of_the_one_before() {
    let later = agents(&[("h1", Some(10), AgentState::Active)]);
    let paused = |revision| {
        let (until, by, reason) = (String::new(), String::new(), String::new());
        let paused = PauseStatus { until, expires_in_seconds: 9.0, by, reason, revision };
        KeyStatus { paused: Some(paused), ..KeyStatus::of_agents(&[], Vec::new()) }
    };
    assert_eq!(still_paused(Some(&paused(10)), &later, AT), Vec::<String>::new());
    // The read is older than the end.
    let before = agents(&[("h1", Some(8), AgentState::Active)]);
    assert_eq!(still_paused(Some(&paused(8)), &before, AT).len(), 1);
}

/// Of two writes of a lost store, the revisions say nothing: the command said that the pause had
/// ended, which an agent observed that had not noticed the loss.
#[test]
fn a_pause_that_does_not_stand_has_not_ended_for_an_agent_that_observes_it() {
    let none = KeyStatus::of_agents(&[], Vec::new());
    for lost in [9, 10] {
        let agents = agents(&[("h1", Some(lost), AgentState::Standby)]);
        let lacking = still_paused(Some(&none), &agents, AT);
        assert_eq!(lacking, ["h1: has not acknowledged the end"]);
    }
}

/// An agent that had a pause in mind did not say so while it stopped or took the lock: the command
/// said that the pause had ended, and the agent observed it afterwards.
#[test]
fn a_busy_agent_acknowledges_no_pause_and_no_end_of_one_that_it_has_not_read() {
    for state in [AgentState::Looking, AgentState::Taking, AgentState::Stopping] {
        let own = agents(&[("h1", Some(9), state)]);
        assert_eq!(lacking(None, &own, AT).len(), 1, "{state}");
        assert_eq!(still_paused(None, &agents(&[("h1", Some(8), state)]), AT).len(), 1, "{state}");
    }
}

fn pause(number: u64) -> StoredPause {
    let (lasts, by) = (Duration::from_secs(3600), "root@h3".to_owned());
    StoredPause { lasts, by, reason: String::new(), number }
}

/// Another operator had replaced it by a longer one that was not acknowledged, and had written it
/// again: it was said to be withdrawn, and stood.
#[test]
fn a_pause_is_withdrawn_that_another_operator_has_written_again() {
    let (own, before) = (pause(1), pause(2));
    let entry = |content: Content| {
        let key = stored::key_of("web");
        Entry { key, revision: AT, content }
    };
    let again = stored::to_content(&StoredPause { lasts: Duration::from_secs(9), ..own.clone() });
    let again = entry(again);
    assert_eq!(withdrawal(Some(&again), &own, None), Some(Content::tombstone()));
    let written = withdrawal(Some(&again), &own, Some(&before));
    assert_eq!(written, Some(stored::to_content(&before)));
    for of_others in [stored::to_content(&before), Content::tombstone()].map(entry) {
        assert_eq!(withdrawal(Some(&of_others), &own, None), None);
    }
    assert_eq!(withdrawal(None, &own, None), None);
}
