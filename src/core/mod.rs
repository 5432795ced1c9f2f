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
//! | [`level`] | how much a message matters |
//! | [`report`] | what the pump tells the operator |
//! | [`event`] | what the world tells the pump, what the pump wants of the world |
//! | [`protocol`] | what agent and guard tell each other |
//! | [`service_report`] | what the guard tells the operator |
//! | [`service`] | what the guard does to the service, and the processes of its commands |
//! | `stop` | the stop procedure |
//! | [`watchdog_timeout`] | which timeout of a watchdog device resets the host in time |
//! | [`guard`] | the guard: when the service may run, when it is stopped |
//! | [`pump`] | the trampoline: state and event in, state and effects out |

pub mod command;
pub mod event;
pub mod guard;
pub mod level;
pub mod protocol;
pub mod pump;
pub mod record;
pub mod report;
pub mod service;
pub mod service_report;
mod stop;
pub mod text;
pub mod time;
pub mod timing;
pub mod watchdog_timeout;
