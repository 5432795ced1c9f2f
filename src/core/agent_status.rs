//! What an agent says of itself when it is asked for its status.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::core::priority::Priority;
use crate::core::seat::SEATS_MAX;
use crate::core::text::sanitize_field;

/// What an agent says of itself. Times are seconds, in whole milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Its token.
    pub token: String,
    /// The name of its host.
    pub host: String,
    /// The random number of this instance, 32 hexadecimal digits.
    pub incarnation: String,
    /// The version of putex.
    pub version: String,
    /// Its state: `looking`, `standby`, `taking`, `confirming`, `active`, `stopping` or `ended`.
    pub state: String,
    /// For how long it has been in this state.
    pub state_seconds: f64,
    /// Why it is in this state.
    pub why: String,
    /// Its seat, if it has one of several.
    pub seat: Option<u32>,
    /// The number of its take, while it holds the lock.
    pub term: Option<u64>,
    /// For how much longer the lock is valid, while it holds the lock.
    pub valid_seconds: Option<f64>,
    /// Its priority: 1 to 15, or `never`.
    pub priority: String,
    /// How long an agent of a higher priority must have been fit before it gets the lock back;
    /// `None` for never.
    pub failback_seconds: Option<f64>,
    /// Whether it takes the lock when that may be had.
    pub candidate: bool,
    /// Why it does not, if so.
    pub not_candidate_why: Option<String>,
    /// The revision of the pause that it observes.
    pub pause: Option<u64>,
    /// Whether its store is open.
    pub store_up: bool,
    /// Whether its guard answers. One that only observes needs none.
    pub guard_up: bool,
    /// How the last start of its term ended, if it failed.
    pub start_failure: Option<String>,
    /// For how long the first start of its term has been running, if it runs.
    #[serde(default)]
    pub start_runs_seconds: Option<f64>,
    /// Whether the service had to be down by now and is not known to be.
    #[serde(default)]
    pub may_still_run: bool,
    /// Whether the service is known to be down.
    #[serde(default)]
    pub service_down: bool,
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

/// The states of an agent.
pub(crate) const STATES: [&str; 7] =
    ["looking", "standby", "taking", "confirming", "active", "stopping", "ended"];

/// Longest time that is believed, in seconds: some centuries.
const SECONDS_MAX: f64 = 1e10;

impl AgentStatus {
    /// Returns whether an agent of this version may have said that.
    pub fn is_valid(&self) -> bool {
        let times = [Some(self.state_seconds), Some(self.renewal_seconds), self.valid_seconds];
        let others = [self.failback_seconds, self.start_runs_seconds];
        let times = times.into_iter().chain(others).flatten();
        STATES.contains(&&*self.state)
            && self.priority.parse::<Priority>().is_ok()
            && !self.token.trim().is_empty()
            && self.seat.is_none_or(|seat| seat < SEATS_MAX)
            && times.into_iter().all(|seconds| (0.0..SECONDS_MAX).contains(&seconds))
    }

    /// Reads what an agent has said, made safe to show; `None` if no agent of this version says so.
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
            state: clean(self.state),
            why: clean(self.why),
            priority: clean(self.priority),
            not_candidate_why: self.not_candidate_why.map(clean),
            start_failure: self.start_failure.map(clean),
            ..self
        }
    }
}

#[cfg(test)]
impl AgentStatus {
    /// Returns the status of a candidate on standby, with R 1 s, F 3 and C 1.
    pub(crate) fn of_candidate(token: &str) -> AgentStatus {
        AgentStatus {
            token: token.to_owned(),
            host: token.to_owned(),
            incarnation: token.to_owned(),
            version: "0".to_owned(),
            state: "standby".to_owned(),
            state_seconds: 1.0,
            why: String::new(),
            seat: None,
            term: None,
            valid_seconds: None,
            priority: "1".to_owned(),
            failback_seconds: None,
            candidate: true,
            not_candidate_why: None,
            pause: None,
            store_up: true,
            guard_up: true,
            start_failure: None,
            start_runs_seconds: None,
            may_still_run: false,
            service_down: true,
            renewal_seconds: 1.0,
            failures: 3,
            confirmations: 1,
        }
    }
}
