//! The agents that a command has heard of in its reads.
//!
//! An agent that is started anew has another incarnation. Two incarnations of one token and host
//! are one agent if the earlier one has not answered any more since the later one has: each read
//! waits R for the agents that have answered the read before.

use std::collections::{BTreeMap, BTreeSet};

use crate::core::AgentStatus;
use crate::status::KeyStatus;

/// The agents, each with its last answer.
#[derive(Debug, Default)]
pub(super) struct Agents {
    heard: BTreeMap<Id, Heard>,
    /// How many reads there were.
    reads: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    token: String,
    host: String,
    incarnation: String,
}

#[derive(Debug)]
struct Heard {
    first_read: u32,
    last_read: u32,
    status: AgentStatus,
}

impl Agents {
    /// Notes the answers of one read.
    pub(super) fn note(&mut self, status: &KeyStatus) {
        self.reads += 1;
        let last_read = self.reads;
        for agent in &status.agents {
            let [token, host, incarnation] =
                [&agent.token, &agent.host, &agent.incarnation].map(String::clone);
            let id = Id { token, host, incarnation };
            let first_read = self.heard.get(&id).map_or(last_read, |before| before.first_read);
            self.heard.insert(id, Heard { first_read, last_read, status: agent.clone() });
        }
        let gone: Vec<Id> =
            self.heard.iter().filter(|agent| self.is_gone(*agent)).map(|it| it.0.clone()).collect();
        gone.iter().for_each(|id| drop(self.heard.remove(id)));
    }

    /// Returns whether another incarnation has begun in the place of this one.
    fn is_gone(&self, (id, Heard { last_read, .. }): (&Id, &Heard)) -> bool {
        let replaces = |(other, by): (&Id, &Heard)| {
            let is_of_agent = other.token == id.token && other.host == id.host;
            is_of_agent && other != id && by.first_read >= *last_read
        };
        *last_read < self.reads && self.heard.iter().any(replaces)
    }

    /// Returns the last answers.
    pub(super) fn all(&self) -> impl Iterator<Item = &AgentStatus> {
        self.heard.values().map(|heard| &heard.status)
    }

    /// Returns the tokens that two agents have.
    pub(super) fn twins(&self) -> BTreeSet<&str> {
        let tokens = self.heard.keys().map(|id| &*id.token);
        tokens.clone().filter(|token| tokens.clone().filter(|it| it == token).count() > 1).collect()
    }
}

#[cfg(test)]
impl FromIterator<AgentStatus> for Agents {
    fn from_iter<All: IntoIterator<Item = AgentStatus>>(all: All) -> Agents {
        let mut agents = Agents::default();
        agents.note(&KeyStatus::of_agents(&[], all.into_iter().collect()));
        agents
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes reads with these answers, each a token, a host and an incarnation; returns the
    /// incarnations that count, and the tokens of two agents.
    fn after(reads: &[&[&str]]) -> (String, String) {
        let mut agents = Agents::default();
        for read in reads {
            let answers = read.iter().map(|answer| {
                let [token, host, incarnation] =
                    answer.split('/').map(str::to_owned).collect::<Vec<_>>().try_into().expect("3");
                AgentStatus { host, incarnation, ..AgentStatus::of_candidate(&token) }
            });
            agents.note(&KeyStatus::of_agents(&[], answers.collect()));
        }
        let count = agents.all().map(|agent| &*agent.incarnation).collect::<Vec<_>>().join(" ");
        (count, agents.twins().into_iter().collect::<Vec<_>>().join(" "))
    }

    /// A pause was refused since an agent that was upgraded meanwhile counted as two.
    #[test]
    fn an_agent_that_is_started_anew_counts_once() {
        let due = |count: &str| (count.to_owned(), String::new());
        assert_eq!(after(&[&["h1/a/1"], &["h1/a/2"]]), due("2"));
        // The earlier incarnation answered just before it ended.
        assert_eq!(after(&[&["h1/a/1", "h1/a/2"], &["h1/a/2"]]), due("2"));
        assert_eq!(after(&[&["h1/a/1"], &["h1/a/1", "h1/a/2"], &["h1/a/2"]]), due("2"));
        assert_eq!(after(&[&["h1/a/1"], &[], &["h1/a/2"], &[]]), due("2"));
    }

    /// The pause of two agents of one token was acknowledged when one of them answered late.
    #[test]
    fn an_agent_that_answers_beside_another_of_its_token_is_a_second_one() {
        let due = |count: &str| (count.to_owned(), "h1".to_owned());
        assert_eq!(after(&[&["h1/a/1", "h1/a/2"]]), due("1 2"));
        let both = &["h1/a/1", "h1/a/2"];
        assert_eq!(after(&[both, both, &["h1/a/2"], &["h1/a/2"]]), due("1 2"));
        assert_eq!(after(&[&["h1/a/1"], both, both, &["h1/a/1"]]), due("1 2"));
        // Another host never stands for this one.
        assert_eq!(after(&[&["h1/a/1"], &["h1/b/2"], &["h1/b/2"]]), due("1 2"));
    }

    #[test]
    fn an_agent_that_is_silent_still_counts() {
        assert_eq!(after(&[&["h1/a/1", "h2/b/2"], &["h2/b/2"], &[]]).0, "1 2");
    }
}
