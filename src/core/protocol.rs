//! The messages between agent and guard.
//!
//! ```text
//! agent -> guard   Hello, Grant, AssertStart, Stop, AskReport
//! guard -> agent   Report, as the answer to every message, and after every change
//! ```
//!
//! A grant lets the guard run the service until the lock runs out. So an agent that is killed,
//! paused, cut off or upgraded needs no rule of its own: its grant runs out, or is extended in
//! time.

use serde::{Deserialize, Serialize};

use crate::core::command::LockContext;
use crate::core::record::Incarnation;
use crate::core::time::Instant;
use crate::core::timing::Timing;

/// Permission to run the service until the lock runs out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The instance of the agent that holds the lock.
    pub holder: Incarnation,
    /// The lock, as commands are told of it.
    pub context: LockContext,
    /// V: from here on the lock may be another's. The guard stops the service then.
    pub valid_until: Instant,
    /// When the service must be down: another host may start it from then on.
    pub dead_by: Instant,
}

impl Grant {
    /// Returns the order to stop the service of this lock.
    pub fn stop_order(&self) -> StopOrder {
        let Grant { context, dead_by, .. } = self.clone();
        StopOrder { dead_by, stake: Stake::Lock, context }
    }
}

/// The stake of a stop: whether the service had a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stake {
    /// The service was started under a lock: another host starts it after `dead_by`.
    Lock,
    /// Stop is run to make sure that the service is down.
    Assurance,
}

/// An order to stop the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopOrder {
    /// When the service must be down.
    pub dead_by: Instant,
    /// Whether the service may have been started under a lock.
    pub stake: Stake,
    /// The lock, as stop is told of it.
    pub context: LockContext,
}

/// A message from an agent to its guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGuard {
    /// How the guard is set up: the first message on every connection, sent with all settings.
    #[serde(skip)]
    Hello(GuardConfig),
    /// The service may run; extends an earlier grant.
    Grant(Grant),
    /// Start is to be run, unless it runs already.
    AssertStart,
    /// The service is to be stopped.
    Stop(StopOrder),
    /// The guard is to report: a report shows that the guard lives.
    AskReport,
}

impl ToGuard {
    /// Returns whether agent and guard count the message: a question changes nothing, so the
    /// reports before its answer still hold.
    pub fn is_counted(&self) -> bool {
        *self != ToGuard::AskReport
    }
}

/// Whether a watchdog device is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceUse {
    /// No device.
    None,
    /// A device, if it can be used.
    Optional,
    /// A device; the service does not run without it.
    Required,
}

/// The settings by which a guard decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardConfig {
    /// R, F, C and drift.
    pub timing: Timing,
    /// Whether there is a last resort.
    pub last_resort: bool,
    /// Whether a watchdog device is used.
    pub device: DeviceUse,
}

/// The report of a guard to its agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardReport {
    /// Number of messages that the guard has received on this connection, by
    /// [`ToGuard::is_counted`]. The report answers all of them.
    pub heard: u64,
    /// The guard's knowledge of the service.
    pub service: ServiceState,
    /// Why the service must not be started here, if so.
    pub unfit: Option<String>,
    /// How the last start of this term ended, if it failed. The text is for people: nothing is
    /// decided by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_failure: Option<String>,
    /// Start is being spawned: it begins later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub start_waits: bool,
}

/// A guard's knowledge of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceState {
    /// The guard of the previous instance may have left the service running.
    Unknown,
    /// Stop has succeeded, or start was never run.
    Down,
    /// The service may run under this grant.
    Up(Grant, StartState),
    /// The service is being stopped; the flag tells whether it had to be down by now.
    Stopping {
        /// `dead_by` has passed.
        overdue: bool,
    },
}

/// The state of the start commands of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartState {
    /// Start was not run under this grant.
    NotRun,
    /// The first start runs.
    FirstRuns,
    /// A start has ended.
    Ended,
}
