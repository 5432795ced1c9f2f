use std::time::SystemTime;

use super::write::expected_headers;
use super::*;
use crate::core::Revision;
use crate::core::tickets::grab::CLOCKS_MARGIN;
use crate::nats::fake::FakeServer;
use crate::nats::{ConnectOptions, Login, Server, bucket};
use crate::sys::PATIENCE;

mod cluster;
mod micro;
mod open;

#[test]
fn the_header_of_a_compare_and_set_is_never_empty_and_spelt_as_the_server_spells_it() {
    const SEQUENCE: &str = "Nats-Expected-Last-Subject-Sequence";
    const STREAM: (&str, &str) = ("Nats-Expected-Stream", "KV_locks");
    const SUBJECT: &str = "Nats-Expected-Last-Subject-Sequence-Subject";
    for (revision, text) in [(0, "0"), (7, "7"), (u64::MAX, "18446744073709551615")] {
        let revision = Revision(revision);
        for (expected, subject) in [
            (Expected::Key(revision), None),
            (Expected::OtherKey("a.b", revision), Some("$KV.locks.a.b")),
        ] {
            let headers = expected_headers(expected, "locks");
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
            let subject = subject.map(|subject| (SUBJECT, subject));
            let all = [(SEQUENCE, text), STREAM].into_iter().chain(subject);
            assert_eq!(headers, all.collect::<Vec<_>>());
        }
    }
}

/// Such an entry counted as new: a ticket that a server had restored was continued beside the next
/// holder.
#[test]
fn what_is_stored_far_in_the_future_has_no_age() {
    let (stored, second) = (SystemTime::UNIX_EPOCH, Duration::from_secs(1));
    assert_eq!(read::age(stored, Some(stored + 3 * second)), Some(3 * second));
    assert_eq!(read::age(stored + CLOCKS_MARGIN, Some(stored)), Some(Duration::ZERO));
    assert_eq!(read::age(stored + CLOCKS_MARGIN + second, Some(stored)), None);
    assert_eq!(read::age(stored, None), None);
}

/// Returns a store of the bucket `locks`, not connected.
fn store_of(servers: Vec<Server>) -> NatsStore {
    let options = ConnectOptions::new(Login::None, "test".to_owned(), Duration::from_secs(5));
    let client = Client::new(servers, options);
    let (bucket, api) = ("locks".to_owned(), API.to_owned());
    let settings = NatsSettings { bucket, replicas: 1, allow_memory: false, for_locks: false, api };
    NatsStore::new(client, settings)
}

/// Calls a store that is connected to a server with these answers to its requests.
fn with_answers<T>(answers: &[&str], call: impl FnOnce(&mut NatsStore, Instant) -> T) -> T {
    let answers: Vec<_> = answers.iter().map(|answer| (*answer).to_owned()).collect();
    let fake = FakeServer::once(move |peer| {
        peer.accept_client();
        for answer in answers {
            peer.answer(&answer);
        }
    });
    // The only server would not be left so soon.
    let mut store = store_of(fake.beside_another());
    let deadline = sys::now().after(PATIENCE);
    let connected = store.client.connect(deadline);
    connected.expect("the script accepts the client");
    let outcome = call(&mut store, deadline);
    fake.finish();
    outcome
}

fn list(answers: &[&str]) -> Result<Listing, StoreError> {
    let selection = Selection::below("lock");
    with_answers(answers, |store, deadline| {
        store.bucket = Ok(opened());
        store.list_now(selection, deadline)
    })
}

/// The bucket of the answers of [`subjects`].
fn opened() -> OpenBucket {
    OpenBucket { created: "now".to_owned(), replicated: false, has_ttl: false }
}

/// The answer to STREAM.INFO with these subjects.
fn subjects(cluster: &str, subjects: &str) -> String {
    let state = format!(r#"{{"last_seq":7,"subjects":{{{subjects}}}}}"#);
    format!(r#"{{"created":"now","state":{state},"cluster":{cluster}}}"#)
}

const LEADER: &str = r#"{"leader":"n1"}"#;
const NO_STREAM: &str =
    r#"{"error":{"code":404,"err_code":10059,"description":"stream not found"}}"#;
const MISSING: &str = r#"{"error":{"code":404,"err_code":10037,"description":"no message"}}"#;

const B: &str = r#"{"message":{"subject":"$KV.locks.lock.b","seq":6,"data":"dg=="}}"#;

/// Lists in a bucket where the entry of `lock.a` is not found; `again` are the answers after that.
fn list_without_a(again: &[&str]) -> Vec<String> {
    let both = subjects(LEADER, r#""$KV.locks.lock.a":1,"$KV.locks.lock.b":1"#);
    let listing = list(&[&[&*both, MISSING, B], again].concat()).expect("a listing");
    assert_eq!(listing.last, Revision(7));
    listing.entries.into_iter().map(|entry| entry.key).collect()
}

#[test]
fn a_key_without_an_entry_is_left_out_if_the_leader_does_not_name_it_any_more() {
    let gone = subjects(LEADER, "");
    assert_eq!(list_without_a(&[&gone]), ["lock.b"]);
}

/// A server that is no leader any more may lack the entry.
#[test]
fn a_listing_whose_key_has_no_entry_and_is_named_again_is_made_again() {
    let a = subjects(LEADER, r#""$KV.locks.lock.a":1"#);
    let both = subjects(LEADER, r#""$KV.locks.lock.a":1,"$KV.locks.lock.b":1"#);
    let read = B.replace("lock.b", "lock.a");
    assert_eq!(list_without_a(&[&a, &both, &read, B]), ["lock.a", "lock.b"]);
    let old = subjects(LEADER, "").replace(r#""last_seq":7"#, r#""last_seq":6"#);
    assert_eq!(list_without_a(&[&old, &both, &read, B]), ["lock.a", "lock.b"]);
}

/// The holders of the lost bucket may still run their commands.
#[test]
fn a_listing_of_a_bucket_that_was_made_anew_is_none_and_closes_the_store() {
    let anew = subjects(LEADER, "").replace("now", "later");
    let selection = Selection::below("lock");
    let (listing, listed_again) = with_answers(&[&anew], |store, deadline| {
        store.bucket = Ok(opened());
        (store.list_now(selection, deadline), store.list(selection, deadline))
    });
    for listing in [listing, listed_again] {
        let Err(StoreError { kind: Kind::Unreachable, text }) = listing else {
            panic!("believed: {listing:?}");
        };
        assert_eq!(text, "the bucket KV_locks was deleted and made anew");
    }
}

/// An agent on a slow link never read a pause: each of two requests took more than half of the
/// time that a read has.
#[test]
fn a_single_key_and_its_age_take_one_round_trip() {
    const READ: &str = r#"{"message":{"subject":"$KV.locks.putex.pause.web","seq":6,"data":"dg==",
        "time":"2026-11-22T07:00:00Z"}}"#;
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        let (list, read) = (peer.frame(), peer.frame());
        assert_eq!(list.body, r#"{"subjects_filter":"$KV.locks.putex.pause.web"}"#);
        let named = subjects(LEADER, r#""$KV.locks.putex.pause.web":1"#);
        peer.reply_to(&list, &named.replacen('{', r#"{"ts":"2026-11-22T07:00:05Z","#, 1));
        peer.reply_to(&read, READ);
    });
    let mut store = store_of(vec![fake.server()]);
    let deadline = sys::now().after(PATIENCE);
    store.client.connect(deadline).expect("the script accepts the client");
    store.bucket = Ok(opened());
    let listing = store.list(Selection::Key("putex.pause.web"), deadline).expect("a listing");
    fake.finish();
    assert_eq!(listing.entries.len(), 1);
    assert_eq!(
        (&*listing.entries[0].key, &*listing.entries[0].content.payload),
        ("putex.pause.web", &b"v"[..])
    );
    assert_eq!(listing.entries[0].age, Some(Duration::from_secs(5)));
}

#[test]
fn a_listing_without_a_leader_is_none() {
    let Err(StoreError { kind: Kind::Unreachable, text }) = list(&[&subjects("{}", "")]) else {
        panic!("a listing of nobody");
    };
    assert_eq!(text, "listing: KV_locks has no leader: most of its servers must run");
}

/// The answer of a leader that was cut off from its replicas: it still shows its old entries.
fn remembered() -> String {
    let config = bucket::create("locks", 3);
    format!(
        r#"{{"config":{config},"created":"2026-11-22T07:00:00Z","state":{{"last_seq":569}},
            "cluster":{{"leader":"n1","replicas":[{{"active":9000000000}}]}}}}"#
    )
}

#[test]
fn a_bucket_without_a_leader_is_not_called_fit() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        assert_eq!(peer.frame().words[1], "putex.hint.locks.web");
        peer.answer(&remembered());
    });
    let inspected = store_of(vec![fake.server()]).inspect(&["web"], sys::now().after(PATIENCE));
    fake.finish();
    let Err(StoreError { kind: Kind::Unreachable, text }) = inspected else {
        panic!("fit: {inspected:?}");
    };
    assert_eq!(text, "bucket: KV_locks has no leader: most of its servers must run");
}

#[test]
fn a_bucket_without_a_leader_is_neither_opened_nor_made() {
    let found = with_answers(&[&remembered()], |store, by| store.open_now(Opening::make(&[]), by));
    let Err(StoreError { kind: Kind::Unreachable, text }) = found else {
        panic!("believed: {found:?}");
    };
    assert_eq!(text, "bucket: KV_locks has no leader: most of its servers must run");
}

/// A leader that is cut off from its replicas answers every read and stores nothing.
#[test]
fn a_read_does_not_make_up_for_writes_without_an_answer() {
    const BUSY: &str = r#"{"error":{"code":400,"err_code":BUSY_CODE,"description":"in flight"}}"#;
    let busy = BUSY.replace("BUSY_CODE", &code::BUSY.to_string());
    for (is_recent, stays) in [(true, false), (false, true)] {
        let connected = with_answers(&[&busy, MISSING, &busy], |store, by| {
            store.bucket = Ok(OpenBucket { replicated: true, ..opened() });
            let write = |store: &mut NatsStore| {
                let content = Content::default();
                store.write("web", Expected::Key(Revision(0)), &content, None, by)
            };
            assert!(matches!(write(store), Written::Unknown(_)));
            if !is_recent {
                store.unanswered_write = Some(Instant::from_boot(Duration::ZERO));
            }
            assert_eq!(store.get("web", by), Ok(None));
            store.client.age(Duration::from_secs(5));
            assert!(matches!(write(store), Written::Unknown(_)));
            store.client.is_connected()
        });
        assert_eq!(connected, stays, "recent: {is_recent}");
    }
}

/// The leader decides: the connected server may be a leafnode.
#[test]
fn a_bucket_whose_leader_is_too_old_is_refused_with_the_version_that_is_needed() {
    let accept = |for_locks, level: &str, time: &str| {
        let mut config: serde_json::Value =
            serde_json::from_str(&bucket::create("locks", 3)).expect("JSON");
        config["metadata"]["_nats.level"] = level.into();
        let state = r#""created":"2026-11-22T07:00:00Z","state":{"last_seq":0}"#;
        let text = format!(r#"{{"config":{config},{state}{time}}}"#);
        let info = jetstream::stream_info(text.as_bytes()).expect("an answer");
        with_answers(&[], |store, _| {
            store.settings.for_locks = for_locks;
            store.accept_bucket(&info)
        })
    };
    let time = r#","ts":"2026-11-22T07:00:01Z""#;
    for (for_locks, level, time, needed) in [
        (false, "0", "", Some("2.10, which putex needs")),
        (true, "0", "", Some("2.10, which putex needs")),
        (false, "0", time, None),
        (true, "0", time, Some("2.11, which locks and leases need")),
        (true, "1", time, None),
    ] {
        match (accept(for_locks, level, time), needed) {
            (Ok(_), None) => {}
            (Err(StoreError { kind: Kind::Unsafe, text }), Some(needed)) => {
                let expected = format!("older than nats-server {needed}; upgrade it (server ");
                assert!(text.contains(&expected), "{text}");
                assert!(text.ends_with("nats-server 2.15.1, named fake)"), "{text}");
            }
            (found, _) => panic!("{level}, {time}, for locks: {for_locks}: {found:?}"),
        }
    }
}

/// The server would make a bucket that is refused then.
#[test]
fn a_server_that_is_too_old_is_not_asked_to_make_a_bucket() {
    for (version, for_locks, needed) in
        [("2.9.25", false, "2.10"), ("2.10.26", true, "2.11"), ("2.11.0-RC.1", true, "2.11")]
    {
        let fake = FakeServer::once(move |peer| {
            let rest = r#""headers":true,"jetstream":true,"max_payload":65536"#;
            peer.accept_client_as(&format!(
                r#"{{"server_name":"n1","version":"{version}",{rest}}}"#
            ));
            peer.answer(NO_STREAM);
            assert_eq!(peer.rest(), "", "more was sent");
        });
        let mut store = store_of(vec![fake.server()]);
        store.settings.for_locks = for_locks;
        let opened = store.open(Opening::make(&[]), sys::now().after(PATIENCE));
        drop(store);
        fake.finish();
        let Err(StoreError { kind: Kind::Unsafe, text }) = opened else { panic!("{opened:?}") };
        assert!(text.contains(&format!("older than nats-server {needed}, which")), "{text}");
    }
}

/// Each is refused before anything is sent: this store has no connection.
#[test]
fn a_condition_that_the_servers_may_not_check_is_refused() {
    let mut store = store_of(Vec::new());
    let key = Expected::Key(Revision(0));
    let other = Expected::OtherKey("lease", Revision(0));
    let wild = Expected::OtherKey("lock.*", Revision(0));
    for (for_locks, expected, reason) in [
        (false, other, "needs a store for locks"),
        (true, wild, "is not allowed in a key"),
        (false, key, "not connected"),
        (true, other, "not connected"),
    ] {
        store.settings.for_locks = for_locks;
        store.bucket = Ok(opened());
        let content = Content::default();
        let deadline = sys::now().after(PATIENCE);
        match store.write("lock.a", expected, &content, None, deadline) {
            Written::Denied(StoreError { text, .. }) if reason != "not connected" => {
                assert!(text.contains(reason), "{text}");
            }
            Written::Unknown(text) => assert!(text.contains(reason), "{text}"),
            written @ (Written::Stored(_) | Written::Moved(_) | Written::Denied(_)) => {
                panic!("{expected:?}: {written:?}");
            }
        }
    }
}

/// A leaf node without a cluster has its own name in the place of the cluster's.
#[test]
fn a_leaf_node_is_told_from_a_server_of_a_cluster() {
    for (cluster, expected) in [
        (Some("fake"), Some("is a leaf node without a JetStream domain")),
        (Some("c"), Some("one copy on cluster c")),
        (None, None),
    ] {
        let cluster = cluster.map(str::to_owned);
        let told = with_answers(&[], |store, _| store.hazards(1, cluster.as_ref()));
        let has = |expected| told.iter().any(|text| text.contains(expected));
        assert_eq!(told.len(), usize::from(expected.is_some()), "{told:?}");
        assert!(expected.is_none_or(has), "{told:?}");
    }
}
