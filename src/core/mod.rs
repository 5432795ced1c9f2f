//! The decisions of putex, pure: no clock, no I/O, no threads, no logging, no randomness. Time is
//! an argument.
//!
//! | module | its one job |
//! |---|---|
//! | [`time`] | instants of one host, and how durations are shown |
//! | [`text`] | text that others chose, made safe to show |
//! | [`timing`] | R, F, C and every duration that follows from them |
//! | [`record`] | the record in the bucket under the key, and its meaning |
//! | [`command`] | the operator's commands, the values that each is told, and their outcomes |
//! | [`report`] | the reports of the pump to the operator |
//! | [`agent_status`] | the status of an agent, for commands, its metrics and the service manager |
//! | [`event`] | the events that the pump takes in, and the effects that it asks for |
//! | [`protocol`] | the messages between agent and guard |
//! | [`service_report`] | the reports of the guard to the operator |
//! | [`service`] | the actions of the guard, and the processes of the commands that it runs |
//! | `stop` | the stop procedure |
//! | [`watchdog_timeout`] | which timeout of a watchdog device resets the host in time |
//! | [`guard`] | the guard: when the service may run, when it is stopped |
//! | [`mod@write`] | a write, until its outcome is known |
//! | [`observed`] | the revisions of a bucket that this host has seen unchanged, and since when |
//! | [`lease`] | until when a lease is held, as its holder and as others know it |
//! | [`tickets`] | `putex lock`, `grab` and `release`: names, tickets, and their times |
//! | [`pump`] | the trampoline: state and event in, state and effects out |
//! | [`metrics`] | the metrics of an agent, as text for Prometheus |

pub mod agent_status;
pub mod command;
pub mod event;
pub mod guard;
pub mod lease;
pub mod metrics;
pub mod observed;
pub mod priority;
pub mod protocol;
pub mod pump;
#[cfg(test)]
#[path = "tests/random.rs"]
mod random;
pub mod record;
pub mod report;
pub mod seat;
pub mod service;
pub mod service_report;
mod stop;
pub mod text;
pub mod tickets;
pub mod time;
pub mod timing;
pub mod watchdog_timeout;
pub mod write;

// The names that the other rooms use.
pub use self::agent_status::{AgentState, AgentStatus, ServiceStatus};
pub use self::command::{Command, LockContext, Outcome, Role, Run};
pub use self::event::{
    Effect, Ending, Event, GuardEvent, Opened, Pause, PauseEntry, StoreError, StoreErrorKind,
    Switchover, SwitchoverRequest, Written,
};
pub use self::guard::{Guard, GuardAction, GuardInput};
pub use self::metrics::Metrics;
pub use self::observed::Observed;
pub use self::priority::Priority;
pub use self::protocol::{
    DeviceUse, Grant, GuardConfig, GuardReport, ServiceState, Stake, StartState, StopOrder, ToGuard,
};
pub use self::pump::{AgentId, Config, Deadline, Pump, Since, bounce};
pub use self::record::{
    BucketId, Incarnation, KeyState, KeyValue, Lease, Record, RecordState, Revision,
};
pub use self::seat::{SEATS_MAX, Seat};
pub use self::text::{sanitize, sanitize_field};
pub use self::time::{Instant, Ms};
pub use self::timing::{
    COUNT_MAX, DRIFT_PPM_DEFAULT, ELECTION_T_MIN, PAUSE_MAX, Percent, R_MAX, REACH_MAX, SLACK,
    Timing, guard_answer_time,
};
pub use self::watchdog_timeout::{resets_in_time, too_slow, wanted_timeout};
