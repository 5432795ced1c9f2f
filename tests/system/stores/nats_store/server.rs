//! Stores and clients of a test's own nats-server.

use std::path::Path;
use std::time::Duration;

use putex::core::time;
use putex::nats::{Client, ConnectOptions, Login, Outgoing, Secret, url};
use putex::store::LockKey;
use putex::store::nats::{API, NatsSettings, NatsStore};
use putex::sys;
use serde_json::Value;

use crate::support::clock::READ_MAX;
use crate::support::programs;
use crate::support::server::Server;

/// Runs a story on every server at hand.
pub(crate) fn on_servers(story: impl Fn(&Path)) {
    for binary in programs::nats_servers() {
        println!("with {}", binary.display());
        story(&binary);
    }
}

/// Returns the deadline of a call that must succeed.
pub(crate) fn soon() -> time::Instant {
    sys::now().after(Duration::from_secs(30))
}

impl Server {
    pub(crate) fn client(&self, login: Option<(&str, &str)>) -> Client {
        let servers = url::Server::parse_list(&self.url("nats", "127.0.0.1")).expect("a URL");
        let credentials = match login {
            Some((user, password)) => {
                Login::User { name: user.to_owned(), password: Secret::Given(password.to_owned()) }
            }
            None => Login::None,
        };
        let name = "test".to_owned();
        let options = ConnectOptions::new(credentials, name, Duration::from_secs(2));
        Client::new(servers, options)
    }

    /// Returns a key of a bucket with the settings of [`settings`].
    pub(crate) fn store(&self, bucket: &str, key: &str) -> LockKey {
        LockKey::new(self.bucket(bucket), key, 1, READ_MAX)
    }

    /// Returns a bucket with the settings of [`settings`].
    pub(crate) fn bucket(&self, bucket: &str) -> Box<NatsStore> {
        Box::new(NatsStore::new(self.client(None), settings(bucket)))
    }

    /// Returns a store of the key `web` that has logged in.
    pub(crate) fn store_as(&self, user: &str, password: &str, bucket: &str) -> LockKey {
        let client = self.client(Some((user, password)));
        LockKey::new(Box::new(NatsStore::new(client, settings(bucket))), "web", 1, READ_MAX)
    }

    pub(crate) fn admin(&self) -> Admin {
        self.admin_as(None)
    }

    pub(crate) fn admin_as(&self, login: Option<(&str, &str)>) -> Admin {
        let mut client = self.client(login);
        client.connect(soon()).expect("connected");
        Admin(client)
    }
}

/// Returns settings of a bucket in a file with one copy.
pub(crate) fn settings(bucket: &str) -> NatsSettings {
    let (bucket, api) = (bucket.to_owned(), API.to_owned());
    NatsSettings { bucket, replicas: 1, allow_memory: false, for_locks: false, api }
}

/// A client of the server without a store.
pub(crate) struct Admin(Client);

impl Admin {
    /// Makes a request and returns the JSON of its answer.
    pub(crate) fn request(&mut self, subject: &str, body: &str) -> Value {
        self.request_if_there(subject, body).expect("an answer")
    }

    /// As [`Admin::request`] of servers that may not be there yet: `None` without an answer.
    pub(crate) fn request_if_there(&mut self, subject: &str, body: &str) -> Option<Value> {
        let outgoing = Outgoing { subject, payload: body.as_bytes(), ..Outgoing::default() };
        let reply = self.0.request(&outgoing, soon()).ok()?;
        Some(serde_json::from_slice(&reply.payload).expect("JSON"))
    }

    /// As [`Admin::request`] about a stream, and the answer must not be an error.
    pub(crate) fn stream(&mut self, what: &str, bucket: &str, body: &str) -> Value {
        let answer = self.request(&format!("$JS.API.STREAM.{what}.KV_{bucket}"), body);
        assert!(answer["error"].is_null(), "{what} {bucket}: {answer}");
        answer
    }

    /// Publishes with headers, and returns the sequence that it got.
    pub(crate) fn put(&mut self, subject: &str, headers: &[(&str, &str)], value: &str) -> u64 {
        let reply = self
            .0
            .request(
                &Outgoing { subject, headers, payload: value.as_bytes(), ..Outgoing::default() },
                soon(),
            )
            .expect("an answer");
        let answer: Value = serde_json::from_slice(&reply.payload).expect("JSON");
        answer["seq"].as_u64().filter(|seq| *seq > 0).unwrap_or_else(|| panic!("{answer}"))
    }

    /// Publishes and expects no answer.
    pub(crate) fn publish(&mut self, subject: &str, headers: &[(&str, &str)]) {
        self.0.publish(&Outgoing { subject, headers, ..Outgoing::default() }).expect("published");
    }
}

/// Returns the configuration of a bucket as putex 0.2.0 asked for it.
pub(crate) fn old_config(bucket: &str) -> Value {
    serde_json::json!({
        "name": format!("KV_{bucket}"), "description": "",
        "subjects": [format!("$KV.{bucket}.>")], "retention": "limits",
        "max_consumers": 0, "max_msgs": 0, "max_bytes": 0, "discard": "new", "max_age": 0,
        "max_msgs_per_subject": 1, "max_msg_size": 0, "storage": "file", "num_replicas": 1,
        "allow_rollup_hdrs": true, "deny_delete": true,
    })
}
