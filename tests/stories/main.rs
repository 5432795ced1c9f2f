//! Stories of the real program, one at a time: agents and guards with R of 1 s, locks, leases and
//! the commands of an operator, on a directory and on nats-server. Order and overlap are
//! asserted, never promptness. `tests/system` has the others.

mod agents;
mod hosts;
mod locks;
mod operator;
#[path = "../system/rig/service.rs"]
#[allow(dead_code, reason = "the rig uses the rest")]
mod service;
#[path = "../support/mod.rs"]
mod support;
