//! The status of an agent, for commands, its metrics and the service manager.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::core::priority::Priority;
use crate::core::seat::SEATS_MAX;
use crate::core::text::{display_as_json, sanitize_field};

/// The state of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentState {
    /// The key has not been read yet.
    Looking,
    /// Another agent holds the lock, or no agent holds it.
    Standby,
    /// The acquiring write is under way.
    Taking,
    /// The lock was taken, and the service of another agent may not be down yet.
    Confirming,
    /// The agent holds the lock and runs the service.
    Active,
    /// The service is being stopped.
    Stopping,
    /// The agent exits.
    Ended,
}

impl AgentState {
    /// All states.
    pub const ALL: [AgentState; 7] = [
        AgentState::Looking,
        AgentState::Standby,
        AgentState::Taking,
        AgentState::Confirming,
        AgentState::Active,
        AgentState::Stopping,
        AgentState::Ended,
    ];
}

display_as_json! { AgentState }

/// The agent's knowledge of its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceStatus {
    /// Nothing is known: the guard has not answered.
    Unknown,
    /// The service is down.
    Down,
    /// Start has not succeeded yet under this lock.
    Starting,
    /// Start has succeeded.
    Up,
    /// The service is being stopped.
    Stopping,
    /// The service must be down by now, and is not known to be.
    Overdue,
}

/// The status of an agent. Times are seconds, in whole milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// The token of the agent.
    pub token: String,
    /// The name of the agent's host.
    pub host: String,
    /// The random number of this instance, 32 hexadecimal digits.
    pub incarnation: String,
    /// The version of putex.
    pub version: String,
    /// The state of the agent.
    pub state: AgentState,
    /// For how long the agent has been in this state.
    pub state_seconds: f64,
    /// Why the agent is in this state.
    pub why: String,
    /// The agent's knowledge of its service.
    pub service: ServiceStatus,
    /// For how long the status of the service has been the same.
    pub service_seconds: f64,
    /// The agent's seat, if it has one of several.
    pub seat: Option<u32>,
    /// How many seats there are, by the agent's settings.
    pub seats: u32,
    /// The number of agents that the key should have, if the agent's settings give one.
    pub agents: Option<u32>,
    /// The number of the agent's take, while it holds the lock.
    pub term: Option<u64>,
    /// The priority of the agent: 1 to 15, or `never`.
    pub priority: String,
    /// Why the agent would not take a free lock; `None` if it would, or holds the lock.
    pub not_candidate_why: Option<String>,
    /// Whether the agent observes a pause.
    pub paused: bool,
    /// The highest serial number of a pause, or of its end, that the agent has read.
    pub pause: u64,
    /// The random id of the bucket; blank if the agent has not opened one yet.
    pub epoch: String,
    /// Whether the agent's store is open.
    pub store_up: bool,
    /// Whether the agent's guard answers. An agent that only observes needs none.
    pub guard_up: bool,
    /// Whether start may begin although the agent asserts it no more.
    pub start_pending: bool,
    /// How the last start of the agent's term ended, if it failed.
    pub start_failure: Option<String>,
    /// R, in seconds.
    pub renewal_seconds: f64,
    /// F.
    pub failures: u32,
    /// C.
    pub confirmations: u32,
}

/// Returns a time in seconds, in whole milliseconds.
pub(crate) fn seconds(time: Duration) -> f64 {
    time.as_millis() as f64 / 1000.0
}

/// Longest time that is accepted, in seconds: some centuries.
const SECONDS_MAX: f64 = 1e10;

impl AgentStatus {
    /// Returns whether an agent of this version may have sent this status.
    pub fn is_valid(&self) -> bool {
        let times = [self.state_seconds, self.service_seconds, self.renewal_seconds];
        self.priority.parse::<Priority>().is_ok()
            && !self.token.trim().is_empty()
            && self.seat.is_none_or(|seat| seat < SEATS_MAX)
            && times.into_iter().all(|seconds| (0.0..SECONDS_MAX).contains(&seconds))
    }

    /// Reads an agent's status, made safe to show; `None` if no agent of this version sends it.
    pub fn from_json(value: serde_json::Value) -> Option<AgentStatus> {
        let status: AgentStatus = serde_json::from_value(value).ok()?;
        status.is_valid().then(|| status.sanitized())
    }

    /// Returns the status with all texts made safe to show: anybody who may send messages may have
    /// chosen them.
    #[must_use]
    pub fn sanitized(self) -> AgentStatus {
        let clean = |text: String| sanitize_field(&text);
        AgentStatus {
            token: clean(self.token),
            host: clean(self.host),
            incarnation: clean(self.incarnation),
            version: clean(self.version),
            why: clean(self.why),
            priority: clean(self.priority),
            not_candidate_why: self.not_candidate_why.map(clean),
            start_failure: self.start_failure.map(clean),
            epoch: clean(self.epoch),
            ..self
        }
    }

    /// Returns whether the agent is on standby, and its service is known to be down.
    pub fn stands_by(&self) -> bool {
        self.state == AgentState::Standby && self.service == ServiceStatus::Down
    }

    /// Returns whether the agent holds the lock and has not asserted start yet: it waits until the
    /// pause is read, or over.
    pub fn start_waits(&self) -> bool {
        self.state == AgentState::Active && self.service == ServiceStatus::Down
    }

    /// Returns for how long the first start of the agent's term has been running, if it runs.
    pub fn start_runs_for(&self) -> Option<Duration> {
        let runs = self.service == ServiceStatus::Starting && self.start_failure.is_none();
        runs.then(|| Duration::from_secs_f64(self.service_seconds))
    }

    /// Returns whether the agent would take a free lock, or holds the lock.
    pub fn is_candidate(&self) -> bool {
        self.not_candidate_why.is_none()
    }

    /// Returns the remarks for people besides the state: first the faults, then why the agent is in
    /// this state, or does not take the lock.
    pub fn remarks(&self) -> String {
        let late = "THE SERVICE MAY STILL RUN HERE".to_owned();
        let late = Some(late).filter(|_| self.service == ServiceStatus::Overdue);
        let failure = self.start_failure.as_ref().map(|how| format!("start fails: {how}"));
        let runs = self.start_runs_for().map(|_| "start still runs".to_owned());
        let waits = self.start_waits().then(|| "start has not begun".to_owned());
        let why = match (&self.not_candidate_why, self.state) {
            (Some(why), AgentState::Standby) => format!("no candidate: {why}"),
            (None, AgentState::Standby) => "candidate".to_owned(),
            _ => self.why.clone(),
        };
        let alone = self.state == AgentState::Active && !self.guard_up;
        let alone = alone.then(|| "the guard does not answer".to_owned());
        let cut_off = self.state == AgentState::Active && !self.store_up;
        let cut_off = cut_off.then(|| "the store is out of reach".to_owned());
        let all = [late, failure, runs, waits, alone, cut_off, Some(why)].into_iter().flatten();
        all.collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
#[path = "tests/sample_status.rs"]
mod sample_status;
