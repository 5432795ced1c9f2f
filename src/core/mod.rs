//! What the agent decides, and when. Pure: no clock, no I/O, no threads, no
//! logging, no randomness. Time is an argument.
//!
//! | module | its one job |
//! |---|---|
//! | [`time`] | instants of one host, and how durations are shown |
//! | [`text`] | text that others chose, made safe to show |
//! | [`timing`] | R, F, C and every duration that follows from them |
//! | [`record`] | what stands in the bucket under the key, and what it means |
//! | [`command`] | the operator's commands, what each is told, how each ended |
//! | [`report`] | what the pump tells the operator |
//! | [`agent_status`] | what an agent says of itself when it is asked for its status |
//! | [`event`] | what the world tells the pump, what the pump wants of the world |
//! | [`protocol`] | what agent and guard tell each other |
//! | [`service_report`] | what the guard tells the operator |
//! | [`service`] | what the guard does to the service, and the processes of its commands |
//! | `stop` | the stop procedure |
//! | [`watchdog_timeout`] | which timeout of a watchdog device resets the host in time |
//! | [`guard`] | the guard: when the service may run, when it is stopped |
//! | [`mod@write`] | one write, until it is known what became of it |
//! | [`observed`] | what this host has seen unmoved in a bucket, and since when |
//! | [`lease`] | until when a lease is held, as its holder and as others know it |
//! | [`tickets`] | `putex lock`: names, tickets, and their times |
//! | [`pump`] | the trampoline: state and event in, state and effects out |
//! | [`metrics`] | what the metrics of an agent are, and how they are written |

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
    Effect, Ending, Event, GuardEvent, Opened, Pause, StoreError, StoreErrorKind,
    SwitchoverRequest, Written,
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
    COUNT_MAX, DRIFT_PPM_DEFAULT, ELECTION_T_MIN, LOCK_TIME_MAX, PAUSE_MAX, Percent, R_MAX,
    REACH_MAX, SLACK, Timing, guard_answer_time,
};
pub use self::watchdog_timeout::{resets_in_time, too_slow, wanted_timeout};
