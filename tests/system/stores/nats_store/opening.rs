//! Opening a bucket: created, created by several at once, accepted with remarks, refused.

use std::path::Path;
use std::sync::Barrier;
use std::thread;

use putex::core::event::{Event, Written};
use putex::core::record::{KeyValue, Record, Revision};
use putex::core::seat::Seat;
use putex::store::nats::NatsStore;
use putex::store::{LockKey, StoreError, StoreErrorKind as Kind};
use serde_json::json;

use super::server::{self, old_config, on_servers, soon};
use super::{open, plain, watch, write};
use crate::support::clock::READ_MAX;
use crate::support::server::{Server, free_port};

fn refusal(store: &mut LockKey) -> String {
    let opened = store.open(soon());
    let Err(StoreError { kind: Kind::Unsafe, text }) = opened else {
        panic!("not unsafe but {opened:?}");
    };
    text
}

#[test]
fn a_new_bucket_is_made_as_asked() {
    on_servers(|binary| {
        let server = Server::start(binary, "");
        let (_, first) = open(&server, "locks");
        let info = server.admin().stream("INFO", "locks", "");
        let expected = json!({
            "subjects": ["$KV.locks.>"], "retention": "limits", "storage": "file",
            "discard": "new", "num_replicas": 1, "max_age": 0, "max_msgs_per_subject": 1,
            "max_msgs": -1, "max_bytes": -1, "max_msg_size": -1,
            "deny_delete": true, "deny_purge": true, "allow_rollup_hdrs": false,
            "republish": {"src": "$KV.locks.>", "dest": "putex.hint.locks.>"},
        });
        for (field, value) in expected.as_object().expect("an object") {
            assert_eq!(&info["config"][field], value, "{field}");
        }
        let [server_line, made] = &first.bucket.remarks[..] else {
            panic!("{:?}", first.bucket.remarks)
        };
        assert!(
            server_line.contains(&format!("nats-server {}", server.version())),
            "{server_line}"
        );
        assert_eq!(made, "bucket locks: did not exist and was created");
        assert_eq!(
            (first.bucket.last, first.key_states[0].value.clone()),
            (Revision(1), KeyValue::Absent)
        );
        assert_eq!((first.bucket.id.epoch.len(), first.bucket.age), (32, None));
        let (_, second) = open(&server, "locks");
        assert_eq!(second.bucket.id, first.bucket.id);
        assert_eq!(second.bucket.remarks.len(), 1, "{:?}", second.bucket.remarks);
    });
}

#[test]
fn many_that_open_at_once_agree_on_the_epoch() {
    on_servers(|binary| {
        const RACERS: usize = 8;
        let server = Server::start(binary, "");
        for round in 0..5 {
            let (bucket, start) = (format!("race{round}"), Barrier::new(RACERS));
            let opened: Vec<_> = thread::scope(|scope| {
                let racer = || {
                    let mut store = server.store(&bucket, "web");
                    start.wait();
                    store.open(soon()).expect("opened")
                };
                let racers: Vec<_> = (0..RACERS).map(|_| scope.spawn(racer)).collect();
                racers.into_iter().map(|racer| racer.join().expect("joined")).collect()
            });
            assert!(opened.iter().all(|one| one.bucket.id == opened[0].bucket.id), "{opened:?}");
        }
    });
}

#[test]
fn a_bucket_that_differs_and_is_made_at_the_same_time_is_taken() {
    on_servers(|binary| {
        let server = Server::start(binary, "");
        for round in 0..10 {
            let (bucket, start) = (format!("race{round}"), Barrier::new(2));
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut admin = server.admin();
                    let config = old_config(&bucket).to_string();
                    start.wait();
                    admin.request(&format!("$JS.API.STREAM.CREATE.KV_{bucket}"), &config);
                });
                let mut store = server.store(&bucket, "web");
                start.wait();
                store.open(soon()).expect("opened, whoever made it");
            });
        }
    });
}

#[test]
fn a_bucket_of_putex_0_2_0_is_taken_with_remarks_and_works() {
    on_servers(|binary| {
        let server = Server::start(binary, "");
        let mut admin = server.admin();
        admin.stream("CREATE", "locks", &old_config("locks").to_string());
        let seq = admin.put("$KV.locks.web", &[], "old-agent");
        let (mut store, opened) = open(&server, "locks");
        for lacks in ["allow_rollup_hdrs", "deny_purge", "no republish"] {
            assert!(
                opened.bucket.remarks.iter().any(|line| line.contains(lacks)),
                "{:?}",
                opened.bucket.remarks
            );
        }
        assert_eq!(opened.bucket.remarks.len(), 4, "{:?}", opened.bucket.remarks);
        assert_eq!(opened.key_states[0].revision, Revision(seq));
        assert_eq!(opened.key_states[0].value, KeyValue::Record(plain("old-agent")));
        assert_eq!(opened.bucket.last, Revision(seq + 1), "the epoch came last");
        let revision = write(&mut store, opened.key_states[0].revision, "a");
        assert_eq!(store.read(Seat::FIRST, soon()).expect("read").revision, revision);
    });
}

/// A write of a stranger must not keep the service from running.
#[test]
fn a_value_that_is_too_large_is_the_record_of_a_stranger() {
    on_servers(|binary| {
        let server = Server::start(binary, "");
        let (mut store, before) = open(&server, "locks");
        let mut admin = server.admin();
        for (size, headers) in
            [(786_500, &[][..]), (1_048_500, &[]), (1_048_000, &[("Putex-Format", "1")])]
        {
            let value = "x".repeat(size);
            let revision = Revision(admin.put("$KV.locks.web", headers, &value));
            let hint = watch(&mut store, soon());
            assert_eq!(hint, Ok(Some(Event::Hint(Seat::FIRST, Some(revision)))), "{size}");
            let key_state = store.read(Seat::FIRST, soon()).expect("read");
            let KeyValue::Record(record) = key_state.value else { panic!("no record: {size}") };
            let text = format!("(too large to be read, revision {revision})");
            let large = Record { token: text, lease: None };
            assert!(record == plain(&value) || record == large, "{size}");
            assert_eq!(key_state.revision, revision);
            write(&mut store, revision, "a");
        }
        admin.put("$KV.locks.putex.epoch", &[], &"x".repeat(1_048_500));
        let (_, first) = open(&server, "locks");
        let (_, second) = open(&server, "locks");
        assert_eq!(first.bucket.id, second.bucket.id);
        assert_ne!(first.bucket.id, before.bucket.id);
        admin.put("$KV.locks.putex.epoch", &[], &"x".repeat(1_048_500));
        let (_, third) = open(&server, "locks");
        assert_ne!(third.bucket.id, second.bucket.id, "another epoch");
    });
}

/// Agents at servers of two domains would make a bucket in each.
#[test]
fn a_domain_is_told_unless_it_is_asked_for() {
    on_servers(|binary| {
        let lines = "jetstream { store_dir: \"FOLDER/js\", domain: hub }\n";
        let server = Server::start(binary, lines);
        let mut settings = server::settings("locks");
        for (api, is_told) in [("$JS.API", true), ("$JS.hub.API", false)] {
            settings.api = api.to_owned();
            let bucket = NatsStore::new(server.client(None), settings.clone());
            let opened =
                LockKey::new(Box::new(bucket), "web", 1, READ_MAX).open(soon()).expect("opened");
            let text = format!("{:?}", opened.bucket.remarks);
            assert_eq!(text.contains(" is in JetStream domain hub: "), is_told, "{text}");
        }
    });
}

/// Agents at a hub and at its leaf node would make a bucket in each, and both run. A leaf node
/// without a name cannot be told.
#[test]
fn a_leaf_node_without_a_domain_is_told() {
    on_servers(|binary| {
        let port = free_port();
        let lines = format!("leafnodes {{ listen: \"127.0.0.1:{port}\" }}");
        let hub = Server::start(binary, &lines);
        let remotes = format!("remotes: [{{ url: \"nats://127.0.0.1:{port}\" }}]");
        let leaf = Server::start(binary, &format!("server_name: leaf\nleafnodes {{ {remotes} }}"));
        for (server, is_leaf) in [(&hub, false), (&leaf, true)] {
            let (_, opened) = open(server, "locks");
            let text = format!("{:?}", opened.bucket.remarks);
            assert_eq!(
                text.contains(" is a leaf node without a JetStream domain"),
                is_leaf,
                "{text}"
            );
        }
    });
}

#[test]
fn a_damaged_epoch_is_written_anew() {
    on_servers(|binary| {
        let server = Server::start(binary, "");
        let (mut store, before) = open(&server, "locks");
        let mut admin = server.admin();
        for headers in [&[("KV-Operation", "DEL")][..], &[]] {
            admin.put("$KV.locks.putex.epoch", headers, " ");
            let after = store.open(soon()).expect("opened");
            assert_ne!(after.bucket.id.epoch, before.bucket.id.epoch);
            assert_eq!(after.bucket.id.epoch.len(), 32);
            let again = store.open(soon()).expect("opened");
            assert_eq!(again.bucket.id, after.bucket.id);
        }
    });
}

#[test]
fn every_unsafe_bucket_is_refused_with_its_reason() {
    on_servers(|binary| {
        let server = Server::start(binary, "");
        let mut admin = server.admin();
        admin.stream("CREATE", "origin", &old_config("origin").to_string());
        let cases = [
            ("mirror", json!({"mirror": {"name": "KV_origin"}, "subjects": []})),
            ("sources", json!({"sources": [{"name": "KV_origin"}]})),
            ("subjects $KV.b2.> more.>", json!({"subjects": ["$KV.b2.>", "more.>"]})),
            ("subjects $KV.b3.web", json!({"subjects": ["$KV.b3.web"]})),
            ("subject_transform", json!({"subject_transform": {"src": ">", "dest": "x.>"}})),
            (
                "republish to $KV.elsewhere.>",
                json!({"republish": {"src": ">", "dest": "$KV.elsewhere.>"}}),
            ),
            ("storage memory", json!({"storage": "memory"})),
            ("retention workqueue", json!({"retention": "workqueue"})),
            ("retention interest", json!({"retention": "interest"})),
            ("max_age 3600000000000", json!({"max_age": 3_600_000_000_000u64})),
            ("discard old with max_msgs 9", json!({"discard": "old", "max_msgs": 9})),
            ("discard old with max_bytes 999", json!({"discard": "old", "max_bytes": 999})),
            (
                "subject_delete_marker_ttl 1000000000",
                json!({"subject_delete_marker_ttl": 1_000_000_000u64}),
            ),
            ("persist_mode async", json!({"persist_mode": "async"})),
            ("no_ack true", json!({"no_ack": true})),
            ("discard_new_per_subject true", json!({"discard_new_per_subject": true})),
            ("allow_msg_counter true", json!({"allow_msg_counter": true, "discard": "old"})),
            ("max_msg_size 64", json!({"max_msg_size": 64})),
        ];
        let unknown_to_old = [
            "subject_delete_marker_ttl 1000000000",
            "persist_mode async",
            "allow_msg_counter true",
        ];
        for (number, (reason, change)) in cases.iter().enumerate() {
            let bucket = format!("b{number}");
            let mut config = old_config(&bucket);
            for (field, value) in change.as_object().expect("an object") {
                config[field] = value.clone();
            }
            admin.stream("CREATE", &bucket, &config.to_string());
            let mut store = server.store(&bucket, "web");
            if server.is_old() && unknown_to_old.contains(reason) {
                store.open(soon()).expect("the server ignored it, and so do we");
                continue;
            }
            let text = refusal(&mut store);
            assert!(text.starts_with(&format!("bucket {bucket}: ")), "{text}");
            assert!(text.contains(&format!("{reason}: ")), "{reason}: {text}");
            let written = store.write(Seat::FIRST, Revision(0), &plain("a"), soon());
            assert!(matches!(written, Written::Unknown(_)), "written nevertheless: {written:?}");
            let messages = admin.stream("INFO", &bucket, "")["state"]["messages"].clone();
            assert_eq!(messages, 0, "{bucket} was written to");
        }
    });
}

const ACCOUNTS: &str = r#"
accounts {
  A {
    jetstream: enabled
    users: [
      { user: admin, password: secret }
      { user: reader, password: secret, permissions: { publish: { deny: ["$KV.locks.web"] } } }
      { user: guest, password: secret, permissions: { publish: {
          allow: ["$JS.API.STREAM.INFO.*"] } } }
      { user: frugal, password: secret, permissions: {
          publish: { allow: ["$KV.locks.web", "$JS.API.STREAM.INFO.KV_locks",
            "$JS.API.STREAM.MSG.GET.KV_locks"] }
          subscribe: { allow: ["_INBOX.>"] } } }
    ]
  }
  B { users: [{ user: poor, password: secret }] }
}
jetstream { store_dir: "FOLDER/js" }
"#;

fn with_accounts(binary: &Path) -> Server {
    Server::start(binary, ACCOUNTS)
}

#[test]
fn a_user_of_one_key_needs_no_more_than_that() {
    on_servers(|binary| {
        let server = with_accounts(binary);
        server.store_as("admin", "secret", "locks").open(soon()).expect("made");
        let mut store = server.store_as("frugal", "secret", "locks");
        let opened = store.open(soon()).expect("opened");
        assert_eq!(opened.key_states[0].value, KeyValue::Absent);
        let revision = write(&mut store, Revision(0), "a");
        assert_eq!(store.read(Seat::FIRST, soon()).expect("read").revision, revision);
    });
}

#[test]
fn a_server_or_an_account_without_jetstream_is_named() {
    on_servers(|binary| {
        let server = Server::start_without_jetstream(binary);
        let error = server.store("locks", "web").open(soon());
        let Err(StoreError { kind: Kind::Unreachable, text }) = error else { panic!("{error:?}") };
        assert!(text.contains("JetStream is not enabled"), "{text}");
        let server = with_accounts(binary);
        let text = refusal(&mut server.store_as("poor", "secret", "locks"));
        assert!(text.contains("error 10039"), "{text}");
    });
}
