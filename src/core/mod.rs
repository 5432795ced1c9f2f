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
//! | [`event`] | what the world tells the pump, what the pump wants of the world |
//! | [`watchdog_timeout`] | which timeout of a watchdog device resets the host in time |
//! | [`guard`] | when the guard acts, and what it does then |
//! | [`pump`] | the trampoline: state and event in, state and effects out |

pub mod command;
pub mod event;
pub mod guard;
pub mod pump;
pub mod record;
pub mod text;
pub mod time;
pub mod timing;
pub mod watchdog_timeout;
