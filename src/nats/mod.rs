//! The NATS client: the raw protocol, synchronous, owned by one thread.
//!
//! There is no reader thread, no writer thread and no lock. The owner of a
//! [`Client`] waits with poll(2), and every wait has a deadline on the clock that
//! counts suspend. A request is one write, one poll and one read.
//!
//! | module | its one job |
//! |---|---|
//! | [`client`] | a connection to one of several servers, requests, hints |
//! | `link` | one connection: handshake, frames in and out, liveness |
//! | `session` | what belongs to one connection: inbox, subscriptions, queue |
//! | `stream` | the connection's bytes, plain or with TLS in between |
//! | [`tls`] | TLS without I/O: what is wanted, and what its failures mean |
//! | `dial` | from a name to a connected socket, by a deadline |
//! | `pace` | backoff and jitter |
//! | `info` | what a server says of itself |
//! | `complaint` | what a `-ERR` means |
//! | `decode` | bytes from the server, in any pieces, to operations |
//! | `encode` | operations to bytes, with nothing injected |
//! | [`headers`] | the header block of a message |
//! | [`jetstream`] | requests to JetStream and their answers, as JSON |
//! | [`bucket`] | how a bucket is set up, and whether it can be trusted |
//! | [`url`] | the `--nats` list |
//! | [`auth`] | who we say we are, and where that is read from |
//! | [`nkey`] | NKeys: Ed25519 keys in letters |
//! | [`secret`] | files with secrets and certificates |
//! | `letters` | base64, base64url, base32 |
//! | `calendar` | dates in messages |
//!
//! # Invariants
//!
//! 1. Nothing that was written for one connection is sent on another: a
//!    connection dies with its buffers.
//! 2. A request that fails says whether it may have reached anybody; see
//!    [`RequestError`].
//! 3. No input of a server makes memory grow beyond the named limits.
//! 4. No secret is in any text that this module makes, but for the CONNECT line.

pub mod auth;
pub mod bucket;
mod calendar;
pub mod client;
mod complaint;
pub(crate) mod decode;
mod dial;
pub(crate) mod encode;
pub mod headers;
mod info;
pub mod jetstream;
mod letters;
mod link;
pub mod nkey;
mod pace;
pub mod secret;
mod session;
mod stream;
pub mod tls;
pub mod url;

#[cfg(test)]
pub(crate) mod fake;

pub use auth::{Credentials, Login, Secret};
pub use client::{Access, Client, ConnectError, Event, RequestError, Sid};
pub use decode::Message;
pub use dial::unknown_names;
pub use headers::Headers;
pub use info::ServerInfo;
pub use tls::Tls;
pub use url::{Server, UrlError};

/// Writes an I/O error as the end of a message: lower case, no error number.
fn why(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => "unknown error".to_owned(),
    }
}
