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
//! Servers, proxies, sandboxes and the observer are those of [`crate::support`].
//!
//! Nothing here looks at the agent's state: whether a service runs is read from
//! the kernel, when a lock was renewed from the bytes that pass the proxies.

#![allow(dead_code, reason = "each of the binaries that include the rig uses its own part of it")]

pub(crate) mod cost;
pub(crate) mod host;
pub(crate) mod report;
pub(crate) mod runit;
pub(crate) mod scenarios;
pub(crate) mod scene;
pub(crate) mod service;
pub(crate) mod setting;
pub(crate) mod timing;
