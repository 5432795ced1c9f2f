//! Statuses of keys for the tests.

use super::*;

impl KeyStatus {
    /// Returns the status of a key with these holders, in a seat each if there are several, and
    /// with agents that say something of themselves.
    pub(crate) fn of_agents(
        holders: &[(&str, HolderState)],
        agents: Vec<AgentStatus>,
    ) -> KeyStatus {
        let holder = |(seat, (token, state)): (u32, &(&str, HolderState))| Holder {
            token: (*token).to_owned(),
            seat: (holders.len() > 1).then_some(seat),
            state: *state,
            term: Some(4),
            renewed_age_seconds: Some(0.0),
            timing: Some(TimingStatus { renewal_seconds: 1.0, failures: 3, confirmations: 1 }),
            ..Holder::default()
        };
        let holders = (0..).zip(holders).map(holder).collect();
        let status = KeyStatus::new("web".to_owned(), Kind::Agent, holders, Vec::new());
        KeyStatus { state: KeyState::Held, agents, ..status }
    }
}
