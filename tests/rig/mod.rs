//! The end-to-end rig: real agents, real servers, and an observer that believes
//! neither.
//!
//! ```text
//!   Host 0: agent --- Proxy ---+
//!           service            |
//!   Host 1: agent --- Proxy ---+--- Server (nats-server)
//!           service            |
//!   Host 2: agent --- Proxy ---+
//!           service
//!   Observer: samples which services are alive, every 2 ms
//! ```
//!
//! A [`scene::Scene`] is one such picture. A scenario sets one up, does something
//! to it, and puts what it measured and what it found wrong into a
//! [`report::Report`]. The short tests and the long campaigns run the same scenarios.
//!
//! | environment | what it names |
//! |---|---|
//! | `PUTEX_UNDER_TEST` | the agent, instead of the one just built |
//! | `NATS_SERVER` | nats-server, instead of the one in `PATH` |
//! | `NATS_SERVER_OLD` | a nats-server of 2.9.10, for scenario i |
//! | `PUTEX_020` | the binary of putex 0.2.0, for scenario h and the cost of it |
//! | `PUTEX_DEBUG` | a debug build of the agent, for scenario 3j in a release build |
//! | `RUNSV` | runit's `runsv`, instead of the one in `PATH`, for scenario 3b |
//! | `PUTEX_REQUIRE_TOOLS` | 1: a missing `runsv` is a failure instead of a skipped scenario |
//! | `PUTEX_REQUIRE_SERVER` | 1: a missing server is a failure instead of a skipped scenario |
//!
//! Nothing here looks at the agent's state: whether a service runs is read from
//! the kernel, when a lock was renewed from the bytes that pass the proxies.

#![allow(
    dead_code,
    reason = "each of the binaries that include the rig uses its own part of it"
)]

pub(crate) mod bad_input;
pub(crate) mod clock;
pub(crate) mod cost;
pub(crate) mod host;
pub(crate) mod observer;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod report;
pub(crate) mod runit;
pub(crate) mod scenarios;
pub(crate) mod scene;
pub(crate) mod server;
pub(crate) mod service;
pub(crate) mod setting;
pub(crate) mod waits;
pub(crate) mod wire;
