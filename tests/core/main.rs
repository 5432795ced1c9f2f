//! The pure core: stories of events in and effects out, the guard under a clock that the test
//! holds, every history of a small model, and simulated histories of fixed seeds. No process, no
//! file but the stories, no clock.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

mod exhaustive;
mod golden;
mod guard;
mod model;
#[allow(unreachable_pub)]
mod sim;
mod simulator;
mod story;
