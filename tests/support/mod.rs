//! The code that the test suites share: it launches servers, agents and other processes,
//! observes them, waits for them and ends them. No process and no file outlives its test,
//! also after a panic and a SIGINT, and no file is written outside of the test's folder.
//!
//! | module | |
//! |---|---|
//! | [`programs`] | which putex and which servers are tested |
//! | [`clock`] | waiting for an event with a deadline |
//! | [`folder`], `cgroups` | a temporary folder; control groups of agents in it |
//! | [`sandbox`] | a folder and the processes in it: where putex is run |
//! | [`agent`] | a running agent and its log |
//! | [`server`] | nats-server |
//! | [`network`] | network namespaces |
//! | [`proxy`], [`wire`] | a link to a server that can misbehave; its protocol |
//! | [`observer`] | which services ran, and when |
//! | [`log`], [`process`] | lines with their time of arrival; signals, marks |
//!
//! | environment | what it names |
//! |---|---|
//! | `PUTEX_UNDER_TEST` | the putex, instead of the one just built |
//! | `NATS_SERVER` | nats-server, instead of the one that is found |
//! | `NATS_SERVER_OLD` | a nats-server of 2.10, instead of the one that is found |
//! | `PUTEX_020` | the binary of putex 0.2.0 |
//! | `PUTEX_DEBUG` | a debug build of putex, for a release build of the tests |
//! | `PUTEX_REQUIRE_TOOLS` | 1: a missing tool is a failure instead of a skipped test |
//!
//! Tools are looked for in `PATH`, and where `tests/tools` puts those that a host lacks.

#![allow(dead_code, reason = "each suite is a crate of its own, and uses its own part of this")]

pub(crate) mod agent;
mod cgroups;
pub(crate) mod clock;
pub(crate) mod folder;
pub(crate) mod log;
pub(crate) mod network;
pub(crate) mod observer;
pub(crate) mod process;
pub(crate) mod programs;
pub(crate) mod proxy;
pub(crate) mod sandbox;
pub(crate) mod server;
pub(crate) mod wire;
