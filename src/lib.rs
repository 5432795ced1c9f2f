//! The parts of `putex`. Not an API: the binary and its tests are the only users.
//!
//! Imports point one way: `cli` and `agent` know `store`, `store` knows `nats`;
//! `check` knows `cli`;
//! `agent` and `guard` know `command` and `log`; all know `core`, and `core` knows nothing.

pub mod agent;
pub mod cgroup;
pub mod check;
pub mod cli;
pub mod command;
pub mod core;
pub mod exit;
pub mod guard;
pub mod log;
pub mod nats;
pub mod store;
pub mod sys;

#[cfg(any(test, fuzzing))]
#[path = "../tests/fuzz/mod.rs"]
pub mod fuzz;
