//! TLS and credentials, on real servers: logins that are accepted, logins that are refused, and the
//! reasons that are reported.

mod agent;
mod check;
mod jwt;
mod login;
mod pki;
mod trust;

use std::time::Duration;

use putex::core::event::Opened;
use putex::core::time::Instant;
use putex::nats::{Client, ConnectOptions, Login, Server};
use putex::store::nats::{NatsSettings, NatsStore};
use putex::store::{LockKey, StoreError, StoreErrorKind};
use putex::sys;

use crate::support::clock::READ_MAX;

fn soon() -> Instant {
    sys::now().after(Duration::from_secs(30))
}

fn client(urls: &str, access: ConnectOptions) -> Client {
    let servers = Server::parse_list(urls).expect("URLs");
    Client::new(servers, access)
}

/// A store of the key `web` in the bucket `locks`.
fn store(urls: &str, access: ConnectOptions) -> LockKey {
    store_at(urls, access, None)
}

fn store_at(urls: &str, access: ConnectOptions, api: Option<&str>) -> LockKey {
    let settings = NatsSettings {
        bucket: "locks".to_owned(),
        replicas: 1,
        allow_memory: false,
        for_locks: false,
        api: api.unwrap_or("$JS.API").to_owned(),
    };
    let bucket = NatsStore::new(client(urls, access), settings);
    LockKey::new(Box::new(bucket), "web", 1, READ_MAX)
}

fn open(urls: &str, access: ConnectOptions) -> Result<Opened, StoreError> {
    store(urls, access).open(soon())
}

/// Why no store came to be, as the agent would be told: with 77 and 78 in front for
/// what ends it at its start.
fn refusal(urls: &str, access: ConnectOptions) -> String {
    let deadline = sys::now().after(Duration::from_secs(3));
    match store(urls, access).open(deadline) {
        Ok(opened) => panic!("{urls}: opened: {:?}", opened.bucket.remarks),
        Err(StoreError { kind: StoreErrorKind::Credentials, text }) => format!("77 {text}"),
        Err(StoreError { kind: StoreErrorKind::Unsafe, text }) => format!("78 {text}"),
        Err(StoreError { kind: StoreErrorKind::Unreachable, text }) => text,
        Err(error) => panic!("{urls}: {error:?}"),
    }
}

fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert!(!text.contains('\n'), "{text:?}");
}

fn by(login: Login) -> ConnectOptions {
    ConnectOptions::new(login, "test".to_owned(), Duration::from_secs(2))
}

fn nobody() -> ConnectOptions {
    by(Login::None)
}
