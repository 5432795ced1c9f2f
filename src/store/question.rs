//! The questions of commands to agents, and their answers. None is stored.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::core::AgentStatus;

/// A question of a command to agents about their status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentQuestion {
    /// A random number. Answers to the last one count.
    #[serde(skip)]
    pub number: String,
    /// The bucket of the agents: that of the store that asks, which fills it in.
    pub bucket: String,
    /// Their keys.
    pub keys: BTreeSet<String>,
    /// Whether the agents read the requests of operators: a hint may be lost, or the bucket has
    /// none.
    pub reads_requests: bool,
}

impl AgentQuestion {
    /// Makes a question to the agents of these keys, with a random number.
    pub fn new(number: u128, keys: BTreeSet<String>, reads_requests: bool) -> AgentQuestion {
        let (number, bucket) = (format!("{number:032x}"), String::new());
        AgentQuestion { number, bucket, keys, reads_requests }
    }
}

/// The answer of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentAnswer {
    /// The key of the agent.
    pub key: String,
    /// The status of the agent.
    pub status: AgentStatus,
}
