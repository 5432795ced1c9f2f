//! Which lock goes to which agent, and what is refused.

use std::time::Duration;

use log::Level;

use super::*;

/// The agent of a token in a state, and why it is no candidate.
fn agent(token: &str, state: AgentState, why_not: Option<&str>) -> AgentStatus {
    AgentStatus {
        state,
        priority: "2".to_owned(),
        not_candidate_why: why_not.map(str::to_owned),
        ..AgentStatus::of_candidate(token)
    }
}

fn request(from: Option<&str>, to: Option<&str>) -> Request {
    Request {
        key: "web".to_owned(),
        from: from.map(str::to_owned),
        to: to.map(str::to_owned),
        wait: Duration::from_secs(30),
        by: "root@h".to_owned(),
        level: Level::Warn as u64,
    }
}

fn chosen(request: &Request, status: &KeyStatus) -> Result<(String, String, u32), String> {
    match choose(request, Some(status)) {
        Ok(Chosen { seat, from, to, .. }) => Ok((from, to, seat.0)),
        Err(Unchosen::Done(text)) => Err(format!("done: {text}")),
        Err(Unchosen::Refused(reasons) | Unchosen::Lacking(reasons)) => Err(reasons.join("; ")),
    }
}

#[test]
fn the_holder_and_the_best_candidate_are_chosen_or_it_is_said_why_not() {
    let status = KeyStatus::of_agents(
        &[("h1", HolderState::Active)],
        vec![
            AgentStatus { service: ServiceStatus::Up, ..agent("h1", AgentState::Active, None) },
            AgentStatus { priority: "1".to_owned(), ..agent("h4", AgentState::Standby, None) },
            agent("h2", AgentState::Standby, None),
            agent("h3", AgentState::Standby, Some("the health check has failed")),
            agent("h5", AgentState::Stopping, None),
        ],
    );
    let due = |to: &str| Ok(("h1".to_owned(), to.to_owned(), 0));
    let refused = |text: &str| Err(text.to_owned());
    for (from, to, found) in [
        (None, None, due("h4")),
        (Some("h1"), Some("h2"), due("h2")),
        (None, Some("h1"), refused("done: h1 has it already")),
        (Some("h2"), None, refused("done: h2 does not hold it")),
        (
            Some("h7"),
            None,
            refused(
                "h7 does not hold it, and does not say that its service is down; it is held by h1",
            ),
        ),
        (
            Some("h5"),
            None,
            refused(
                "h5 does not hold it, and does not say that its service is down; it is held by h1",
            ),
        ),
    ] {
        assert_eq!(chosen(&request(from, to), &status), found, "{from:?} {to:?}");
    }
    for (to, why) in [
        ("h3", "h3: no candidate: the health check has failed"),
        ("h5", "h5: no candidate: it is stopping"),
        ("h7", "h7: no answer"),
    ] {
        let refused = chosen(&request(None, Some(to)), &status).expect_err(to);
        assert!(refused.contains(why), "{refused}");
    }
}

/// Its record may stand for as long as nobody takes the lock. Where start fails, the command said
/// that the holder has it already.
#[test]
fn a_holder_that_does_not_answer_is_not_said_to_have_it() {
    let service = ServiceStatus::Starting;
    for more in [None, Some(AgentStatus { service, ..agent("h1", AgentState::Active, None) })] {
        let mut agents = vec![agent("h2", AgentState::Standby, None)];
        agents.extend(more);
        let status = KeyStatus::of_agents(&[("h1", HolderState::Active)], agents);
        let refused = chosen(&request(None, Some("h1")), &status).expect_err("it is not known");
        assert_eq!(refused, "h1 holds it, and does not say that start has succeeded");
    }
}

#[test]
fn of_several_holders_one_is_named_and_none_gets_a_second_seat() {
    let holders = [("h1", HolderState::Active), ("h2", HolderState::Active)];
    let status = KeyStatus::of_agents(&holders, vec![agent("h3", AgentState::Standby, None)]);
    let refused = chosen(&request(None, None), &status).expect_err("two");
    assert_eq!(refused, "it is held by h1 and h2; write --from with one of them");
    let due = Ok(("h2".to_owned(), "h3".to_owned(), 1));
    assert_eq!(chosen(&request(Some("h2"), None), &status), due);
    // The host of h1 must not be taken for one that has given its lock.
    let refused = chosen(&request(Some("h1"), Some("h2")), &status).expect_err("a seat");
    assert_eq!(refused, "h2 has a seat already");
}

#[test]
fn a_lock_that_is_free_or_changes_hands_is_not_moved() {
    let agents = || vec![agent("h2", AgentState::Standby, Some("priority never"))];
    for (holders, why) in [
        (&[][..], "nobody holds it; h2: no candidate: priority never"),
        (&[("h1", HolderState::Taking)], "h1: has taken the lock a moment ago"),
        (&[("h1", HolderState::Overdue)], "h1: does not renew its lock"),
    ] {
        let status = KeyStatus::of_agents(holders, agents());
        let refused = chosen(&request(None, None), &status).expect_err(why);
        assert!(refused.starts_with(why), "{refused}");
    }
    let unknown = Err(Unchosen::Lacking(vec![UNKNOWN_KEY.to_owned()]));
    assert_eq!(choose(&request(None, None), None), unknown);
    assert_eq!(choose(&request(None, Some("h1")), None), unknown);
}
