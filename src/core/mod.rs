//! What the agent decides, and when. Pure: no clock, no I/O, no threads, no
//! logging, no randomness. Time is an argument.
//!
//! | module | its one job |
//! |---|---|
//! | [`timing`] | R, F, C and every duration that follows from them |
//! | [`record`] | what stands in the bucket under the key, and what it means |
//! | [`event`] | what the world tells the pump, what the pump wants of the world |
//! | [`bite`] | which timeout of a watchdog device resets the host in time |
//! | [`guard`] | when the guard acts, and what it does then |
//! | [`pump`] | the trampoline: state and event in, state and effects out |

pub mod bite;
pub mod event;
pub mod guard;
pub mod pump;
pub mod record;
pub mod timing;
