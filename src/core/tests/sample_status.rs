//! The status of an agent, for tests.

use super::*;

impl AgentStatus {
    /// Returns the status of a candidate on standby, with R 1 s, F 3 and C 1.
    pub(crate) fn of_candidate(token: &str) -> AgentStatus {
        AgentStatus {
            token: token.to_owned(),
            host: token.to_owned(),
            incarnation: token.to_owned(),
            version: "0".to_owned(),
            state: AgentState::Standby,
            state_seconds: 1.0,
            why: String::new(),
            service: ServiceStatus::Down,
            service_seconds: 1.0,
            seat: None,
            seats: 1,
            agents: None,
            term: None,
            priority: "1".to_owned(),
            not_candidate_why: None,
            paused: false,
            pause: 0,
            epoch: "e".to_owned(),
            store_up: true,
            guard_up: true,
            start_pending: false,
            start_failure: None,
            renewal_seconds: 1.0,
            failures: 3,
            confirmations: 1,
        }
    }
}
