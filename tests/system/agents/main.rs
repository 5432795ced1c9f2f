//! Agents, guards and the operator's commands: the real programs, with servers, links, processes
//! and clocks. These measure time, so they are run one at a time: see `tests/all`.

mod agent;
mod cgroup;
mod commands;
mod doctor;
mod instances;
mod log;
mod metrics;
mod micro;
mod on_change;
mod processes;
#[path = "../rig/mod.rs"]
mod rig;
mod sandbox;
mod seats;
mod service_manager;
mod shortage;
#[path = "../small_host/mod.rs"]
mod small_host;
mod status;
#[path = "../../support/mod.rs"]
mod support;
mod upgrade;
mod waits;
