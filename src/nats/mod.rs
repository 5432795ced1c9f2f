//! The NATS client: the raw protocol, synchronous, owned by one thread.
//!
//! The client has no reader thread, no writer thread and no lock: only lookups and handshakes
//! have threads, so that others can be tried beside them. The owner of a
//! [`Client`] waits with poll(2), and every wait has a deadline on the clock that
//! counts suspend. A request is one write, one poll and one read.
//!
//! | module | its one job |
//! |---|---|
//! | [`client`] | a connection to one of several servers, requests, hints |
//! | `pool` | the servers: which one is tried next and beside which, when one is left |
//! | `link` | a single connection: handshake, frames in and out, liveness, queue |
//! | `connect_options` | the options of all connections |
//! | `stream` | the bytes of a connection, plain or inside TLS |
//! | [`tls`] | TLS without I/O: the options, and the meaning of its failures |
//! | `dial` | gets a connection: lookups and handshakes beside each other |
//! | `info` | the INFO of a server |
//! | `server_error` | the meaning of a `-ERR` |
//! | `decode` | decodes bytes of the server, in any pieces, into operations |
//! | `encode` | encodes operations; no value can inject another line |
//! | [`headers`] | the header block of a message |
//! | [`jetstream`] | requests to JetStream and their answers, as JSON |
//! | [`micro`] | micro services: how clients find a program, and what it tells them |
//! | [`bucket`] | the configuration of a bucket, and whether it is safe for a lock |
//! | [`url`] | the `--nats` list |
//! | [`auth`] | credentials, and the files that they are read from |
//! | [`nkey`] | NKeys: Ed25519 keys in base32 |
//! | [`mod@file`] | files with secrets and certificates: owner, mode, size |
//!
//! # Invariants
//!
//! 1. Bytes written for one connection are never sent on another: a connection is
//!    dropped together with its buffers.
//! 2. A failed request says whether it may have had an effect; see [`RequestError`].
//! 3. No input of a server makes memory grow beyond the named limits.
//! 4. Only the CONNECT line contains secrets; no message and no log line does.

pub mod auth;
pub mod bucket;
pub mod client;
mod connect_options;
pub(crate) mod decode;
mod dial;
pub(crate) mod encode;
pub mod file;
pub mod headers;
mod info;
pub mod jetstream;
mod link;
pub mod micro;
pub mod nkey;
mod pool;
mod server_error;
mod stream;
pub mod tls;
pub mod url;

#[cfg(test)]
#[path = "tests/fake.rs"]
pub(crate) mod fake;

use crate::core::{StoreError, StoreErrorKind};

pub use auth::{Credentials, Login, Secret};
pub use client::{Client, ClientEvent, Outgoing, RequestError};
pub use connect_options::{ConnectOptions, RefuseAlone};
pub use decode::Message;
pub use headers::Headers;
pub use info::ServerInfo;
pub(crate) use link::HINT_PREFIX;
pub use tls::Tls;
pub use url::Server;

/// Returns a random number, 0 when the kernel has none: then no connection is made either.
fn random() -> u64 {
    crate::sys::random().unwrap_or(0) as u64
}

/// Returns the error for a wait that the kernel refuses.
fn no_timer(error: std::io::Error) -> StoreError {
    StoreErrorKind::Unreachable.error(format!("no timer: {}", io_error_text(&error)))
}

/// Formats an I/O error as the last part of a message: lower case, no error number.
fn io_error_text(error: &std::io::Error) -> String {
    let mut text = error.to_string();
    text.truncate(text.find(" (os error").unwrap_or(text.len()));
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    text
}
