//! Agents, guards and the operator's commands: the real programs, with servers, links, processes
//! and clocks. These measure time, so they are run one at a time: see `tests/all`.

mod cgroup;
mod commands;
mod doctor;
mod instances;
mod killed_start;
mod log;
mod metrics;
mod micro;
mod on_change;
mod processes;
mod sandbox;
mod seats;
#[path = "../rig/service.rs"]
#[allow(dead_code, reason = "the rig uses the rest")]
mod service;
mod service_manager;
mod sessions;
mod shortage;
#[path = "../small_host/mod.rs"]
mod small_host;
mod status;
#[path = "../../support/mod.rs"]
mod support;
mod upgrade;
mod waits;
