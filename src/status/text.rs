//! The status of a bucket as a table for people. Pure.

use super::model::{Bounds, Holder, HolderState, KeyState, KeyStatus, Kind, PauseStatus, Status};
use crate::core::{AgentState, AgentStatus};

/// Blanks between two columns.
const GAP: usize = 2;

/// Returns the status of these names, or of all if there are none.
pub(super) fn table(status: &Status, names: &[String]) -> String {
    if status.epoch.is_none() && status.keys.is_empty() {
        return format!("bucket {}: does not exist yet\n", status.bucket);
    }
    if status.keys.is_empty() && names.is_empty() {
        let hint = "name the KEY of agents that have not had a lock yet";
        return format!("bucket {}: no locks and no leases; {hint}\n", status.bucket);
    }
    // In front of each name, the bucket looked as a part of it: a user who wrote both to putex lock
    // had a lock of his own.
    let mut lines = vec![format!("bucket {}", status.bucket)];
    for key in &status.keys {
        lines.extend([String::new(), headline(key)]);
        lines.extend(columns(&rows(key)));
        lines.extend(key.paused.as_ref().map(paused));
        lines.extend(warnings(key));
    }
    for name in names.iter().filter(|name| status.keys.iter().all(|key| key.key != **name)) {
        lines.push(format!("{name}  no lock, no lease and no agent"));
    }
    lines.extend(status.not_asked.as_deref().map(super::not_asked));
    lines.into_iter().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Returns the line about a name.
fn headline(status: &KeyStatus) -> String {
    let KeyStatus { key, kind, state, holders, waiters, agents, .. } = status;
    let standing: Vec<_> = status.standing_holders().collect();
    let held = match (state, &standing[..]) {
        (KeyState::Free, _) if holders.is_empty() => "free".to_owned(),
        (KeyState::Free, _) => "has run out".to_owned(),
        (KeyState::Held, []) => "nobody has it".to_owned(),
        (KeyState::Held, [Holder { state: HolderState::Unreadable, .. }]) => {
            "cannot be read".to_owned()
        }
        (KeyState::Held, [holder]) => {
            let of_holder = agents.iter().find(|agent| is_of(agent, holder));
            let since = of_holder.filter(|agent| agent.state == AgentState::Active);
            let since = since.map(|agent| format!(" for {}", brief(agent.state_seconds)));
            format!("held by {}{}", holder.token, since.unwrap_or_default())
        }
        (KeyState::Held, several) => {
            let tokens: Vec<_> = several.iter().map(|holder| &*holder.token).collect();
            format!("held by {}", tokens.join(" and "))
        }
    };
    let timing = holders.iter().find_map(|holder| holder.timing);
    let timing = timing.map_or(String::new(), |timing| {
        let renewal = brief(timing.renewal_seconds);
        format!("    R {renewal} F {} C {}", timing.failures, timing.confirmations)
    });
    let waiting = match waiters.len() {
        0 => String::new(),
        count => format!(", {count} waiting"),
    };
    let moves = status.switchover.as_ref().map_or(String::new(), |it| {
        format!(", {} is to give it to {}, as {} wants", it.from, it.to, it.by)
    });
    let answer = match agents.len() {
        _ if *kind != Kind::Agent => String::new(),
        0 => ", no agent answers".to_owned(),
        1 => ", 1 agent answers".to_owned(),
        count => format!(", {count} agents answer"),
    };
    format!("{key}  {kind}: {held}{answer}{waiting}{moves}{timing}")
}

/// Returns the lines about what is wrong with a name.
fn warnings(status: &KeyStatus) -> Vec<String> {
    let fewer = status
        .agents_due()
        .map(|due| format!("WARNING: {} of {due} agents answer", status.agents.len()));
    let is_silent = |holder: &&Holder| {
        let is_agent = status.kind == Kind::Agent && holder.timing.is_some();
        is_agent && status.agent(&holder.token).is_none()
    };
    let silent = status.holders.iter().filter(is_silent).map(|holder| {
        let why = "its agent is dead or cut off, or may not answer, see putex help status";
        format!("WARNING: {} holds it and does not answer: {why}", holder.token)
    });
    let too_many = status.too_many().map(|what| format!("CRITICAL: {what}"));
    let lost = status.lost_pause.as_ref();
    let lost = lost.map(|what| format!("WARNING: {what}; putex resume {} ends it", status.key));
    too_many.into_iter().chain(lost).chain(fewer).chain(silent).collect()
}

/// Returns the line about a pause.
fn paused(pause: &PauseStatus) -> String {
    let PauseStatus { until, expires_in_seconds, by, reason, .. } = pause;
    let left = brief(*expires_in_seconds);
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    format!("PAUSED until {until}, for {left} still, by {by}{reason}")
}

/// Returns whether this agent has written the record of a holder, for all that is known.
fn is_of(agent: &AgentStatus, holder: &Holder) -> bool {
    let is_of_term = agent.term.is_some() && agent.term == holder.term;
    agent.token == holder.token && (is_of_term || agent.state == AgentState::Stopping)
}

/// The columns of all names. A column that says nothing of a name is left out.
const COLUMNS: [&str; 11] =
    ["SEAT", "PRIO", "PLACE", "MODE", "SLOT", "TOKEN", "STATE", "TERM", "SINCE", "WRITTEN", "WHY"];

/// The cell of a value that there is not.
const NONE: &str = "-";

/// The cells of a row.
type Row = [String; COLUMNS.len()];

/// Returns the rows of a name, the first of them with the names of the columns.
fn rows(status: &KeyStatus) -> Vec<Vec<String>> {
    // Of a holder that answers, its agent says more than the record.
    let is_silent = |holder: &&Holder| !status.agents.iter().any(|agent| is_of(agent, holder));
    let of_holders = status.holders.iter().filter(is_silent).chain(&status.waiters);
    let of_holders = of_holders.map(|holder| holder_row(holder, status));
    let rows: Vec<Row> = of_holders.chain(status.agents.iter().map(agent_row)).collect();
    let says_much = |at: &usize| rows.iter().any(|row| row[*at] != NONE);
    let shown: Vec<usize> = (0..COLUMNS.len()).filter(says_much).collect();
    let names = Some(COLUMNS.map(str::to_owned)).filter(|_| !rows.is_empty());
    let all = names.iter().chain(&rows);
    all.map(|row| shown.iter().map(|at| row[*at].clone()).collect()).collect()
}

/// Returns the row of a holder that says nothing of itself, or of a ticket that waits.
fn holder_row(holder: &Holder, status: &KeyStatus) -> Row {
    [
        cell(holder.seat),
        cell(holder.priority.as_ref()),
        cell(holder.ahead),
        cell(holder.mode),
        cell(holder.slot),
        holder.token.clone(),
        holder.state.to_string(),
        cell(holder.term),
        NONE.to_owned(),
        cell(holder.renewed_age_seconds.map(|age| format!("{} ago", brief(age)))),
        why(holder, status),
    ]
}

fn agent_row(agent: &AgentStatus) -> Row {
    let host = Some(&agent.host).filter(|host| **host != agent.token);
    let host = host.map(|host| format!("; on host {host}")).unwrap_or_default();
    [
        cell(agent.seat),
        agent.priority.clone(),
        NONE.to_owned(),
        NONE.to_owned(),
        NONE.to_owned(),
        agent.token.clone(),
        agent.state.to_string(),
        cell(agent.term),
        brief(agent.state_seconds),
        NONE.to_owned(),
        agent.remarks() + &host,
    ]
}

/// Returns a value, or what stands for none.
fn cell(value: Option<impl ToString>) -> String {
    value.map_or(NONE.to_owned(), |value| value.to_string())
}

/// Returns what else is known of a holder, or of a ticket that waits.
fn why(holder: &Holder, status: &KeyStatus) -> String {
    let (is_agent, is_paused) = (status.kind == Kind::Agent, status.paused.is_some());
    let host = holder.host.as_ref().filter(|host| **host != holder.token);
    let left = holder.expires_in_seconds.map(|Bounds { min, .. }| brief(min));
    let expiry = match (holder.state, left) {
        (HolderState::Overdue, _) if is_paused => {
            Some("not renewed; nobody takes it over before the pause is over".to_owned())
        }
        // The remark on a ticket says what comes of it.
        (HolderState::Overdue, _) if holder.remark.is_some() => None,
        (HolderState::Overdue, _) => Some("not renewed: others may have it".to_owned()),
        (HolderState::Waiting, _) | (_, None) => None,
        (_, Some(left)) if !is_agent => Some(format!("{left} left unless renewed")),
        (_, Some(left)) => (!is_paused).then(|| format!("taken over in {left} unless renewed")),
    };
    // An agent that has taken the lock anew since the record was read does answer.
    let is_silent = is_agent && status.agent(&holder.token).is_none();
    let silent = is_silent.then(|| "does not answer".to_owned());
    let host = host.map(|host| format!("on host {host}"));
    let texts = [host, expiry, holder.remark.clone(), silent];
    texts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Returns a number of seconds as a person reads it: two units at the most.
pub(super) fn brief(seconds: f64) -> String {
    if seconds < 60.0 {
        let text = format!("{seconds:.1}");
        return format!("{}s", text.strip_suffix(".0").unwrap_or(&text));
    }
    let whole = seconds as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    let both = |units: [(u64, &str); 2]| {
        let units = units.into_iter().filter(|(count, _)| *count > 0);
        units.map(|(count, unit)| format!("{count}{unit}")).collect::<String>()
    };
    match (days, hours) {
        (1.., _) => both([(days, "d"), (hours, "h")]),
        (0, 1..) => both([(hours, "h"), (minutes, "m")]),
        (0, 0) => both([(minutes, "m"), (whole % 60, "s")]),
    }
}

/// Returns rows with each column as wide as its widest value.
fn columns(rows: &[Vec<String>]) -> Vec<String> {
    let count = rows.first().map_or(0, Vec::len);
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(|at| width(at) + GAP).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        cells.map(|(cell, width)| format!("{cell:<width$}")).collect()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_two_units_at_the_most() {
        for (seconds, text) in [
            (0.0, "0s"),
            (0.04, "0s"),
            (1.25, "1.2s"),
            (59.9, "59.9s"),
            (60.0, "1m"),
            (61.9, "1m1s"),
            (3600.0, "1h"),
            (3_660.0, "1h1m"),
            (273_600.0, "3d4h"),
        ] {
            assert_eq!(brief(seconds), text, "{seconds}");
        }
    }
}
