//! Findings about the agents of a key, and what they say of themselves. Pure.

use std::collections::BTreeSet;

use super::finding::{Finding, Level};
use crate::core::{AgentStatus, ServiceStatus};
use crate::status::{Holder, HolderState, KeyStatus, PauseStatus};

/// R in milliseconds, F and C.
pub(super) type TimingKey = (u64, u32, u32);

/// Returns R, F and C of each holder and agent.
pub(super) fn timings(status: &KeyStatus) -> BTreeSet<TimingKey> {
    let ms = |seconds: f64| (seconds * 1000.0).round() as u64;
    let of_agent = |it: &AgentStatus| (ms(it.renewal_seconds), it.failures, it.confirmations);
    let of_holder = |holder: &Holder| {
        let timing = holder.timing?;
        Some((ms(timing.renewal_seconds), timing.failures, timing.confirmations))
    };
    let holders = status.holders.iter().filter_map(of_holder);
    status.agents.iter().map(of_agent).chain(holders).collect()
}

/// Returns the findings about the agents of a key. `is_local`: all are on one host, with a bucket
/// in a directory. `given`: R, F and C of the settings of this host, if there are any.
pub(super) fn judge(status: &KeyStatus, is_local: bool, given: Option<TimingKey>) -> Vec<Finding> {
    let all = [
        answers(status),
        standby(status, is_local),
        agreement(status, given),
        active(status),
        twins(status),
        service(&status.agents),
        pause(status),
    ];
    let key = Some(status.key.clone());
    all.into_iter().map(|finding| Finding { key: key.clone(), ..finding }).collect()
}

/// Returns whether all holders answer, and an agent that would take the lock over: no agent that
/// answers later changes that.
pub(super) fn is_fit(status: &KeyStatus, is_local: bool) -> bool {
    answers(status).level == Level::Ok && standby(status, is_local).level == Level::Ok
}

/// Returns a finding about the agents of these keys as it is to be told when this user may not ask
/// the agents, for this reason: what rests on their answers is not known.
pub(super) fn without_answers(finding: Finding, keys: &[KeyStatus], why: &str) -> Finding {
    let is_overdue = |status: &KeyStatus| {
        finding.key.as_ref() == Some(&status.key) && overdue(status).next().is_some()
    };
    let is_of_bucket = match finding.name {
        "agents" => keys.iter().any(is_overdue),
        name => name == "agreement" || name == "pause",
    };
    if is_of_bucket {
        return finding;
    }
    let advice = "see Rights in NATS in putex help theory";
    let text = format!("not asked: {why}");
    Finding { key: finding.key, ..Finding::unknown(finding.name, text, advice) }
}

/// Returns the holders that are gone, as the bucket shows.
fn overdue(status: &KeyStatus) -> impl Iterator<Item = &Holder> {
    status.holders.iter().filter(|holder| holder.state == HolderState::Overdue)
}

/// Returns tokens in one text.
fn joined<'a>(tokens: impl IntoIterator<Item = &'a str>) -> String {
    tokens.into_iter().collect::<Vec<_>>().join(" ")
}

/// Judges whether all holders answer.
fn answers(status: &KeyStatus) -> Finding {
    let KeyStatus { holders, agents, .. } = status;
    let (count, warning) = (agents.len() as u32, Level::Warning);
    let overdue = joined(overdue(status).map(|holder| &*holder.token));
    let is_paused = status.paused.is_some();
    let tokens = holders.iter().map(|holder| &*holder.token);
    let silent = joined(tokens.filter(|token| status.agent(token).is_none()));
    if !overdue.is_empty() && is_paused {
        let text = format!(
            "{overdue} does not renew its lock, and nobody takes it over before the pause is over"
        );
        Finding::new("agents", Level::Critical, text, "putex resume ends the pause")
    } else if !overdue.is_empty() {
        let text = format!("{overdue} does not renew its lock: it is dead, or cut off");
        Finding::new("agents", warning, text, "putex status says who takes over, and when")
    } else if !silent.is_empty() {
        let text = format!("{silent} has the lock and does not answer");
        let advice = "look whether its agent and its host live, or are cut off; putex status says \
                      when another agent takes over. One that does live lacks the right to \
                      subscribe to $SRV.> or to answer, or this user the one to publish to \
                      $SRV.STATS.putex";
        Finding::new("agents", warning, text, advice)
    } else if agents.is_empty() {
        let advice = "start an agent of this key, or name another KEY";
        Finding::new("agents", warning, "no agent answers, and nobody has the lock", advice)
    } else {
        let tokens = joined(agents.iter().map(|agent| &*agent.token));
        let Some(due) = status.agents_due() else {
            return Finding::ok("agents", format!("{count} answer: {tokens}"));
        };
        let text = format!("{count} of {due} agents answer: {tokens}");
        Finding::new("agents", warning, text, "look for the others; --agents says how many are due")
    }
}

/// Where an agent says what keeps it from the lock.
const SEE_WHY: &str = "see WHY in putex status";

/// Judges whether there is an agent that would take the lock.
fn standby(status: &KeyStatus, is_local: bool) -> Finding {
    let has_lock = |agent: &AgentStatus| {
        agent.term.is_some() || status.holders.iter().any(|holder| holder.token == agent.token)
    };
    let others: Vec<_> = status.agents.iter().filter(|agent| !has_lock(agent)).collect();
    let candidates: Vec<_> = others.iter().filter(|agent| agent.is_candidate()).collect();
    // Of a lock that nobody has, one of them is to be the holder.
    let is_free = status.holders.is_empty();
    if candidates.len() > usize::from(is_free) {
        let tokens = joined(candidates.iter().map(|agent| &*agent.token));
        return Finding::ok("standby", format!("would take the lock over: {tokens}"));
    }
    let runs = |holder: &Holder| holder.state != HolderState::Overdue;
    let nobody = candidates.is_empty() && !status.holders.iter().any(runs);
    // A pause is a finding of its own, and somebody wants it.
    let (level, beginning) = match nobody && status.paused.is_none() {
        true => (Level::Critical, "nobody has the lock, and no agent would take it"),
        false => (Level::Warning, "no other agent would take the lock over"),
    };
    let unfit = others.iter().filter(|agent| !agent.is_candidate()).map(|it| {
        let why = it.not_candidate_why.as_deref().unwrap_or("it has no seat to take");
        format!("{}: {why}", it.token)
    });
    let unfit = unfit.collect::<Vec<_>>().join("; ");
    let tokens = joined(others.iter().map(|agent| &*agent.token));
    let advice = if !unfit.is_empty() {
        &format!("{SEE_WHY}, and the log of {tokens}")
    } else if status.agents.is_empty() && nobody {
        "start the agents of this key"
    } else if nobody {
        SEE_WHY
    } else if is_free {
        &format!("if nobody takes it, {SEE_WHY}, and the log of {tokens}")
    } else if is_local {
        "agents of this host alone can: have the bucket in NATS for a second host"
    } else {
        "run an agent of this key on a second host"
    };
    let why = if unfit.is_empty() { unfit } else { format!(": {unfit}") };
    Finding::new("standby", level, format!("{beginning}{why}"), advice)
}

fn describe((renewal, failures, confirmations): TimingKey) -> String {
    format!("R {renewal} ms F {failures} C {confirmations}")
}

/// Judges whether R, F and C are the same everywhere.
fn agreement(status: &KeyStatus, given: Option<TimingKey>) -> Finding {
    let of_agents = timings(status);
    let all: BTreeSet<_> = of_agents.iter().copied().chain(given).collect();
    let shown = of_agents.into_iter().map(describe).collect::<Vec<_>>().join(", ");
    if shown.is_empty() {
        Finding::unknown("agreement", "nobody says R, F and C", "see the agents above")
    } else if all.len() > 1 {
        let here = given.map(|given| format!(", the settings here {}", describe(given)));
        let text = format!("agents have {shown}{}", here.unwrap_or_default());
        let advice = "give all agents of a key, and this command, the same -r, -f and -c";
        Finding::new("agreement", Level::Warning, text, advice)
    } else {
        Finding::ok("agreement", format!("all have {shown}"))
    }
}

/// Judges whether no more agents are active than may be: two buckets of one name would allow it.
fn active(status: &KeyStatus) -> Finding {
    let advice = "stop all but as many as there are seats; where servers are connected as leaf \
                  nodes, give their JetStream a domain, and agents --js-domain";
    match status.too_many() {
        None => Finding::ok("active", "no more agents are active than there are seats"),
        Some(text) => Finding::new("active", Level::Critical, text, advice),
    }
}

/// Judges whether each agent has a token of its own.
fn twins(status: &KeyStatus) -> Finding {
    match status.twins().first_key_value() {
        None => Finding::ok("twins", "each agent has a token of its own"),
        Some((token, instances)) => {
            let hosts = joined(instances.values().copied());
            let text = format!("{} agents have the token {token}, on {hosts}", instances.len());
            Finding::new("twins", Level::Critical, text, "give each agent a --token of its own")
        }
    }
}

/// Returns what is wrong with the service of an agent, if anything is: how bad it is, what it is,
/// and what to do. A start that fails is critical although the health check passes: the check may
/// pass without a service.
fn trouble(agent: &AgentStatus) -> Option<(Level, String, &'static str)> {
    let token = &agent.token;
    if agent.service == ServiceStatus::Overdue {
        let text = format!("the service of {token} had to be down, and MAY STILL RUN");
        Some((Level::Critical, text, "stop it there by hand; see the log of that agent"))
    } else if !agent.guard_up {
        let text = format!("the guard of {token} does not answer its agent");
        Some((Level::Critical, text, "see the log of that agent"))
    } else if let Some(how) = &agent.start_failure {
        let text = format!("start of {token} fails: {how}");
        Some((Level::Critical, text, "see what it printed in the log of that agent"))
    } else {
        let lock_time = agent.renewal_seconds * f64::from(agent.failures);
        if agent.start_waits() && !agent.paused && agent.state_seconds >= lock_time {
            let text = format!("start of {token} has not begun, for {:.0} s", agent.state_seconds);
            return Some((Level::Warning, text, "see the log of that agent, or run it elsewhere"));
        }
        // A start that takes longer than T hangs, as a rule.
        let seconds = agent.start_runs_for()?.as_secs_f64();
        let advice = "nothing ends a start that hangs while its lock is renewed: end it by hand, \
                      and give start a time-out of its own";
        let text = format!("start of {token} still runs, for {seconds:.0} s");
        (seconds >= lock_time).then_some((Level::Warning, text, advice))
    }
}

/// Judges the guard and the service of each agent.
fn service(agents: &[AgentStatus]) -> Finding {
    let troubles: Vec<_> = agents.iter().filter_map(trouble).collect();
    match troubles.iter().max_by_key(|(level, ..)| *level) {
        Some((level, _, advice)) => {
            let texts: Vec<_> = troubles.iter().map(|(_, text, _)| &**text).collect();
            Finding::new("service", *level, texts.join("; "), *advice)
        }
        None if agents.is_empty() => {
            Finding::unknown("service", "no agent says anything", "see agents above")
        }
        None => {
            Finding::ok("service", "guards answer, no stop is overdue, no start fails or hangs")
        }
    }
}

/// Judges whether agents are paused: nobody takes the lock over until that ends.
fn pause(status: &KeyStatus) -> Finding {
    let standing = status.paused.as_ref().map(|PauseStatus { until, by, reason, .. }| {
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        format!("paused until {until} by {by}{reason}: nobody takes over")
    });
    let advice = "it ends by itself; putex resume ends it sooner";
    match standing.or_else(|| status.lost_pause.clone()) {
        None => Finding::ok("pause", "no pause stands"),
        Some(text) => Finding::new("pause", Level::Warning, text, advice),
    }
}
