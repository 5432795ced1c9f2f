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
        KeyStatus {
            key: "web".to_owned(),
            kind: Kind::Agent,
            state: KeyState::Held,
            holders: (0..).zip(holders).map(holder).collect(),
            waiters: Vec::new(),
            agents,
            switchover: None,
            paused: None,
            has_lost_pause: false,
        }
    }
}
