//! Which lock goes to which agent, by what stands in the bucket and what the agents say. Pure.

use super::Request;
use crate::core::{AgentState, AgentStatus, Priority, Revision, Seat, ServiceStatus, Timing};
use crate::operation::UNKNOWN_KEY;
use crate::status::{Holder, HolderState, KeyStatus, TimingStatus};

/// Which lock is to go, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) seat: Seat,
    pub(super) term: Revision,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) timing: Timing,
}

/// Why nothing is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unchosen {
    /// The lock is where it should be.
    Done(String),
    /// The switchover cannot be done, by the record: why.
    Refused(Vec<String>),
    /// No agent has answered that can have it, or says what is needed: why, a line for each host.
    Lacking(Vec<String>),
}

/// Chooses the holder and the agent that is to have its lock.
pub(super) fn choose(
    request: &Request,
    status_of_key: Option<&KeyStatus>,
) -> Result<Chosen, Unchosen> {
    let refuse = |why: String| Unchosen::Refused(vec![why]);
    let lack = |why: String| Unchosen::Lacking(vec![why]);
    let Some(status) = status_of_key else { return Err(lack(UNKNOWN_KEY.to_owned())) };
    let holders = &status.holders[..];
    let is_from = |holder: &&Holder| request.from.as_ref().is_none_or(|it| holder.token == *it);
    if let (Some(to), [holder]) = (&request.to, holders)
        && holder.token == *to
    {
        return Err(match status.agent(to).is_some_and(|it| it.service == ServiceStatus::Up) {
            true => Unchosen::Done(format!("{to} has it already")),
            false => lack(format!("{to} holds it, and does not say that start has succeeded")),
        });
    }
    let from: Vec<&Holder> = holders.iter().filter(is_from).collect();
    let holder = match (&from[..], &request.from) {
        ([holder], _) => holder,
        ([], Some(token)) => {
            let why = "does not hold it, and does not say that its service is down";
            return Err(match status.agent(token).is_some_and(AgentStatus::stands_by) {
                true => Unchosen::Done(format!("{token} does not hold it")),
                false => lack(format!("{token} {why}; {}", held_by(holders))),
            });
        }
        ([], None) => return Err(Unchosen::Lacking(why_nobody(&status.agents))),
        ([_, _, ..], _) => {
            return Err(refuse(format!("{}; write --from with one of them", held_by(holders))));
        }
    };
    if let Some(to) = &request.to
        && holders.iter().any(|holder| holder.token == *to)
    {
        return Err(refuse(format!("{to} has a seat already")));
    }
    let from = holder.token.clone();
    let refuse = |why: &str| refuse(format!("{from}: {why}"));
    let why = match holder.state {
        HolderState::Taking => Some("has taken the lock a moment ago, and does not run yet"),
        HolderState::Overdue if status.paused.is_some() => {
            Some("does not renew its lock: others take it over when the pause is over")
        }
        HolderState::Overdue => Some("does not renew its lock: agents that run take it over"),
        HolderState::Active | HolderState::Unreadable | HolderState::Waiting => None,
    };
    if let Some(why) = why {
        return Err(refuse(why));
    }
    let (Some(term), Some(timing)) = (holder.term, holder.timing.and_then(TimingStatus::timing))
    else {
        return Err(refuse("is an agent of another version, which follows no such request"));
    };
    let to = candidate(request, &from, status)?.token.clone();
    Ok(Chosen { seat: Seat(holder.seat.unwrap_or(0)), term: Revision(term), from, to, timing })
}

/// Says who holds a lock.
fn held_by(holders: &[Holder]) -> String {
    let tokens: Vec<_> = holders.iter().map(|holder| &*holder.token).collect();
    match &tokens[..] {
        [] => "nobody holds it".to_owned(),
        _ => format!("it is held by {}", tokens.join(" and ")),
    }
}

/// Says why nobody holds a lock: what keeps each agent from it.
fn why_nobody(agents: &[AgentStatus]) -> Vec<String> {
    let of_agent = |agent: &AgentStatus| format!("{}: {}", agent.token, agent.remarks());
    let first = match agents {
        [] => "nobody holds it, and no agent of this key answers",
        _ => "nobody holds it",
    };
    [first.to_owned()].into_iter().chain(agents.iter().map(of_agent)).collect()
}

/// Returns the agent that is to have the lock.
fn candidate<'a>(
    request: &Request,
    from: &str,
    status: &'a KeyStatus,
) -> Result<&'a AgentStatus, Unchosen> {
    let why_not = |agent: &AgentStatus| match (&agent.not_candidate_why, agent.state) {
        (Some(why), AgentState::Standby) if agent.paused => {
            Some(format!("{why}; putex resume {} ends that", request.key))
        }
        (Some(why), _) => Some(why.clone()),
        (None, AgentState::Standby) if !agent.guard_up => {
            Some("its guard does not answer".to_owned())
        }
        (None, AgentState::Standby) => None,
        (None, state) => Some(format!("it is {state}")),
    };
    let others: Vec<_> = status.agents.iter().filter(|agent| agent.token != from).collect();
    let wanted = |agent: &&&AgentStatus| request.to.as_ref().is_none_or(|it| agent.token == *it);
    let fit = others.iter().filter(wanted).filter(|agent| why_not(agent).is_none());
    let first = |agent: &&&AgentStatus| {
        let priority = agent.priority.parse().unwrap_or(Priority::Never);
        (priority, agent.token.clone())
    };
    if let Some(agent) = fit.min_by_key(first) {
        return Ok(agent);
    }
    let mut reasons: Vec<String> = others
        .iter()
        .filter_map(|agent| Some(format!("{}: no candidate: {}", agent.token, why_not(agent)?)))
        .collect();
    if let Some(to) = request.to.as_ref().filter(|to| status.agent(to).is_none()) {
        let why = "no answer: there is no such agent, or it is cut off, or an old version";
        let known = others.iter().map(|agent| agent.token.as_str()).collect::<Vec<_>>().join(" ");
        reasons.insert(0, format!("{to}: {why}; {from} has the lock; others answer: {known}"));
    } else if others.is_empty() {
        let start = "start one on another host";
        reasons.push(format!("{from} has the lock, and no other agent has answered: {start}"));
    }
    Err(Unchosen::Lacking(reasons))
}

#[cfg(test)]
mod tests;
