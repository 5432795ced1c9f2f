//! All logs that are given: their lines, sorted by agents.

use std::time::Duration;

use super::agent_log::AgentLog;
use super::event::Forms;
use super::judge::Term;
use super::lines::Lines;
use crate::core::sanitize_field;
use crate::exit::{Exit, Refusal};
use crate::log::read_line;

/// So many hosts may be in the logs: what is kept of each is small.
const HOSTS_MAX: usize = 1000;

/// So many terms may be in the logs.
const TERMS_MAX: usize = 100_000;

/// The logs of a key.
pub(super) struct Logs {
    key: String,
    forms: Forms,
    /// The agents, one for each host in the lines of each log.
    pub(super) agents: Vec<AgentLog>,
    /// The one of the last line: the next line is of the same as a rule.
    last: usize,
    /// The names of the logs.
    names: Vec<String>,
    /// How many files each log is in.
    pub(super) parts: Vec<usize>,
    /// The lines about the key.
    pub(super) lines: u64,
    /// Those of them without a usable time, and those of those that matter.
    pub(super) untimed: u64,
    pub(super) untimed_events: u64,
    /// The terms of all agents.
    pub(super) terms: Vec<Term>,
}

impl Logs {
    pub(super) fn new(key: &str) -> Logs {
        Logs {
            key: key.to_owned(),
            forms: Forms::new(),
            agents: Vec::new(),
            last: 0,
            names: Vec::new(),
            parts: Vec::new(),
            lines: 0,
            untimed: 0,
            untimed_events: 0,
            terms: Vec::new(),
        }
    }

    /// Reads a log, whose parts are these files in their order.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or there is too much in it.
    pub(super) fn read(&mut self, parts: &[String]) -> Result<(), Refusal> {
        let (log, mut number, mut terms) = (self.names.len(), 0, 0);
        self.names.push(parts.last().map_or_else(String::new, |name| sanitize_field(name)));
        self.parts.push(parts.len());
        for part in parts {
            let mut lines = Lines::open(part)?;
            while let Some(line) = lines.next()? {
                number += 1;
                if !contains(line, self.key.as_bytes()) {
                    continue;
                }
                terms += self.add(log, number, &String::from_utf8_lossy(line))?;
                if terms + self.terms.len() > TERMS_MAX {
                    let why = format!("more than {TERMS_MAX} terms; write a part of the logs");
                    return Err(Refusal::new(Exit::Usage, format!("--log: {part}: {why}")));
                }
            }
        }
        Ok(())
    }

    /// Takes in a line; returns how many terms have ended in it.
    fn add(&mut self, log: usize, number: u64, line: &str) -> Result<usize, Refusal> {
        let Some(line) = read_line(line.trim_end_matches('\r'), &self.key) else { return Ok(0) };
        self.lines += 1;
        let event = self.forms.event(line.text);
        let Some(at) = line.at else {
            self.untimed += 1;
            self.untimed_events += u64::from(event.is_some());
            return Ok(0);
        };
        let is_of = |agent: &AgentLog| agent.log == log && agent.host == line.host;
        if !self.agents.get(self.last).is_some_and(is_of) {
            self.last = self.agents.iter().position(is_of).unwrap_or(self.agents.len());
        }
        if self.last == HOSTS_MAX {
            let text = format!("--log: more than {HOSTS_MAX} hosts; write a part of the logs");
            return Err(Refusal::new(Exit::Usage, text));
        }
        if self.last == self.agents.len() {
            self.agents.push(AgentLog::new(self.last, log, line.host));
        }
        let agent = &mut self.agents[self.last];
        let before = agent.terms.len();
        agent.add(at.since_epoch, at.digits, number, event);
        Ok(agent.terms.len().saturating_sub(before))
    }

    /// Ends all logs.
    pub(super) fn finish(&mut self) {
        for agent in &mut self.agents {
            if agent.agent.is_none() {
                let host = &agent.host;
                let name = if host.is_empty() { &self.names[agent.log] } else { host };
                agent.agent = Some(format!("({})", sanitize_field(name)));
            }
            self.terms.extend(agent.finish());
        }
    }

    /// Returns the name of the log that a term is from.
    pub(super) fn name_of(&self, term: &Term) -> &str {
        &self.names[self.agents[term.source].log]
    }

    /// Returns the agents that have had the lock, and whose logs are missing.
    pub(super) fn missing(&self) -> Vec<&str> {
        let mut missing = Vec::new();
        for name in self.agents.iter().flat_map(|log| &log.others) {
            let is_given = self.agents.iter().any(|log| log.agent.as_ref() == Some(name));
            if !is_given && !missing.contains(&&**name) {
                missing.push(&**name);
            }
        }
        missing
    }

    /// Returns the logs in which no line is about the key.
    pub(super) fn without_lines(&self) -> impl Iterator<Item = &str> {
        let has_none = |log: &usize| self.agents.iter().all(|agent| agent.log != *log);
        (0..self.names.len()).filter(has_none).map(|log| &*self.names[log])
    }

    /// Returns when the first and the last line were written.
    pub(super) fn span(&self) -> Option<(Duration, Duration)> {
        let first = self.agents.iter().filter_map(|log| log.first_at).min()?;
        Some((first, self.agents.iter().map(|log| log.last_at).max()?))
    }
}

/// Returns whether a line has the key in it.
fn contains(line: &[u8], key: &[u8]) -> bool {
    let (Some(first), rest) = (key.first(), line) else { return true };
    let mut rest = rest;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        if rest[at..].starts_with(key) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

#[cfg(test)]
mod tests;
