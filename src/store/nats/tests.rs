use std::iter;

use super::write::expected_headers;
use super::*;
use crate::core::tickets::{Mode, Name, Seen, StoredTicket, Ticket, Unreadable};
use crate::core::{Incarnation, Revision};
use crate::nats::fake::FakeServer;
use crate::nats::{ConnectOptions, Login, Server, bucket};
use crate::store::tickets::Tickets;
use crate::sys::PATIENCE;

mod confirm;
mod copies;
mod early;
mod micro;

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

/// Returns a store of the bucket `locks`, not connected.
fn store_of(servers: Vec<Server>) -> NatsStore {
    let options = ConnectOptions::new(Login::None, "test".to_owned(), Duration::from_secs(5));
    let client = Client::new(servers, options);
    let (bucket, api) = ("locks".to_owned(), API.to_owned());
    let settings = NatsSettings { bucket, replicas: 1, allow_memory: false, api };
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

/// Returns whether the bucket had to be created.
fn find_or_create(answers: [&str; 3]) -> Result<bool, StoreError> {
    let found = with_answers(&answers, NatsStore::find_or_create);
    found.map(|(_, created)| created)
}

fn list(answers: &[&str]) -> Result<Listing, StoreError> {
    let prefixes = ["lock".to_owned()];
    let selection = Selection::all(&prefixes);
    with_answers(answers, |store, deadline| {
        store.bucket = Ok(opened());
        store.list_now(selection, deadline)
    })
}

/// The bucket of the answers of [`subjects`].
fn opened() -> OpenBucket {
    OpenBucket {
        created: "now".to_owned(),
        replicated: false,
        level: 0,
        retirement: None,
        has_ttl: false,
        reads_directly: false,
    }
}

/// The answer to STREAM.INFO with these subjects.
fn subjects(cluster: &str, subjects: &str) -> String {
    let state = format!(r#"{{"last_seq":7,"subjects":{{{subjects}}}}}"#);
    format!(r#"{{"created":"now","state":{state},"cluster":{cluster}}}"#)
}

const LEADER: &str = r#"{"leader":"n1"}"#;
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

#[test]
fn a_listing_reads_no_entry_of_a_forgotten_key() {
    let names = ["lock.a", "lock.a.ended", "lock.ab", "lock.c.ended", "lock.d"];
    assert_eq!(list_of(&names, &["lock.ab", "lock.d"]), ["lock.ab", "lock.d"]);
}

/// `putex status` showed neither, and said of a lock that is held that it is free.
#[test]
fn the_key_of_an_agent_may_look_like_the_note_of_a_forgotten_key() {
    let names = ["db", "db.ended"];
    assert_eq!(list_of(&names, &names), names);
}

/// Lists keys of these names, and returns those that the listing has. These are `read`.
fn list_of(names: &[&str], read: &[&str]) -> Vec<String> {
    let names: Vec<_> = names.iter().map(|name| format!(r#""$KV.locks.{name}":1"#)).collect();
    let entry = |key| {
        let message = format!(r#"{{"subject":"$KV.locks.{key}","seq":6,"data":"dg=="}}"#);
        format!(r#"{{"message":{message}}}"#)
    };
    let replies = iter::once(subjects(LEADER, &names.join(","))).chain(read.iter().map(entry));
    let replies: Vec<_> = replies.collect();
    let listing = list(&replies.iter().map(|reply| &**reply).collect::<Vec<_>>());
    listing.expect("a listing").entries.into_iter().map(|entry| entry.key).collect()
}

/// The owner of a ticket that others remove may write it once more: the note hid a holder.
#[test]
fn only_the_owner_of_a_ticket_says_that_nobody_writes_it_again() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        for written in ["$KV.locks.lock.a.1f", "$KV.locks.lock.a.2f"] {
            let write = peer.frame();
            assert_eq!(write.words[1], written);
            peer.reply_to(&write, r#"{"stream":"KV_locks","seq":7}"#);
        }
        assert_eq!(peer.frame().words[1], "$KV.locks.lock.a.2f.ended");
    });
    let mut store = store_of(vec![fake.server()]);
    let deadline = sys::now().after(PATIENCE);
    store.client.connect(deadline).expect("the script accepts the client");
    store.bucket = Ok(OpenBucket { retirement: Some(Retirement::Ttl), has_ttl: true, ..opened() });
    let own = Ticket {
        name: Name::parse("a").expect("a name"),
        mode: Mode::Exclusive,
        slot: None,
        lifetime: PATIENCE,
        token: "vm".to_owned(),
        incarnation: Incarnation(1),
        attempt: 1,
        seen: Seen::default(),
    };
    let ticket = Err(Unreadable { why: "it is damaged".to_owned(), lifetime: None });
    let (key, revision) = ("lock.a.1f".to_owned(), Revision(3));
    let other = StoredTicket { key, revision, number: revision, ticket };
    let mut tickets = Tickets::new(Box::new(store), &own);
    tickets.remove(&other, "vm", deadline);
    tickets.end("2f", Revision(5), deadline);
    fake.finish();
}

/// The holders of the lost bucket may still run their commands.
#[test]
fn a_listing_of_a_bucket_that_was_made_anew_is_none_and_closes_the_store() {
    let anew = subjects(LEADER, "").replace("now", "later");
    let prefixes = ["lock".to_owned()];
    let selection = Selection::all(&prefixes);
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

/// One round trip: the reads of the listing travel with the write.
#[test]
fn a_listing_beside_a_write_is_sent_with_it_and_reads_no_entry_that_is_known() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        let (write, list) = (peer.frame(), peer.frame());
        assert_eq!(write.words[1], "$KV.locks.lock.a.1");
        assert_eq!(list.words[1], "$JS.API.STREAM.INFO.KV_locks");
        peer.reply_to(&write, r#"{"stream":"KV_locks","seq":7}"#);
        peer.reply_to(&list, &subjects(LEADER, r#""$KV.locks.lock.a.1":1"#));
    });
    let mut store = store_of(vec![fake.server()]);
    let deadline = sys::now().after(PATIENCE);
    store.client.connect(deadline).expect("the script accepts the client");
    store.bucket = Ok(opened());
    let prefixes = ["lock".to_owned()];
    let selection = Selection::all(&prefixes);
    let content = Content::new([], b"own");
    let (written, listing) =
        store.write_and_list("lock.a.1", Revision(0), &content, selection, deadline);
    fake.finish();
    assert_eq!(written, Written::Stored(Revision(7)));
    let entry = Entry { key: "lock.a.1".to_owned(), revision: Revision(7), content };
    assert_eq!(listing, Ok(Listing { entries: vec![entry], last: Revision(7) }));
}

#[test]
fn a_listing_without_a_leader_is_none() {
    let Err(StoreError { kind: Kind::Unreachable, text }) = list(&[&subjects("{}", "")]) else {
        panic!("a listing of nobody");
    };
    assert_eq!(text, "listing: KV_locks has no leader");
}

/// The answer of a leader that was cut off from its replicas: it still shows what it had.
fn remembered() -> String {
    let config = bucket::create("locks", 3, "2.10.0");
    format!(
        r#"{{"config":{config},"created":"2026-11-22T07:00:00Z","state":{{"last_seq":569}},
            "cluster":{{"leader":"n1","replicas":[{{"active":9000000000}}]}}}}"#
    )
}

#[test]
fn a_bucket_without_a_leader_is_not_called_fit() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        for kind in ["hint", "twin"] {
            assert_eq!(peer.frame().words[1], format!("putex.{kind}.locks.web"));
        }
        peer.answer(&remembered());
    });
    let inspected = store_of(vec![fake.server()]).inspect(&["web"], sys::now().after(PATIENCE));
    fake.finish();
    let Err(StoreError { kind: Kind::Unreachable, text }) = inspected else {
        panic!("fit: {inspected:?}");
    };
    assert_eq!(text, "bucket: KV_locks has no leader");
}

#[test]
fn a_bucket_without_a_leader_is_neither_opened_nor_made() {
    let found = with_answers(&[&remembered()], NatsStore::find_or_create);
    let Err(StoreError { kind: Kind::Unreachable, text }) = found else {
        panic!("believed: {found:?}");
    };
    assert_eq!(text, "bucket: KV_locks has no leader");
}

/// A leader that is cut off from its replicas answers every read and stores nothing.
#[test]
fn a_read_does_not_make_up_for_writes_without_an_answer() {
    const BUSY: &str = r#"{"error":{"code":400,"err_code":BUSY_CODE,"description":"in flight"}}"#;
    let busy = BUSY.replace("BUSY_CODE", &code::BUSY.to_string());
    for (is_recent, stays) in [(true, false), (false, true)] {
        let connected = with_answers(&[&busy, MISSING, &busy], |store, by| {
            let (created, replicated, level) = ("now".to_owned(), true, 1);
            store.bucket = Ok(OpenBucket { created, replicated, level, ..opened() });
            let write = |store: &mut NatsStore| {
                let content = Content::default();
                store.compare_and_set("web", Expected::Key(Revision(0)), &content, by)
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

/// The connected server, which is called `fake` and is new, may be a leafnode.
#[test]
fn several_copies_need_a_leader_whose_version_is_known() {
    let accept = |replicas: u32, rest: &str| {
        let config = bucket::create("locks", replicas, "2.10.0");
        let state = r#""created":"2026-11-22T07:00:00Z","state":{"last_seq":0}"#;
        let text = format!(r#"{{"config":{config},{state},{rest}}}"#);
        let info = jetstream::stream_info(text.as_bytes()).expect("an answer");
        with_answers(&[], |store, _| store.accept_bucket(&info))
    };
    let time = r#""ts":"2026-11-22T07:00:01Z""#;
    for (replicas, rest, remarks) in [
        (3, format!(r#"{time},"cluster":{{"name":"hub","leader":"n1"}}"#), 0),
        (3, r#""cluster":{"name":"hub","leader":"fake"}"#.to_owned(), 0),
        (1, r#""cluster":{"leader":"n1"}"#.to_owned(), 0),
        (1, format!(r#"{time},"cluster":{{"name":"hub","leader":"n1"}}"#), 1),
    ] {
        let found = accept(replicas, &rest).expect("safe").remarks;
        assert_eq!(found.len(), remarks, "{found:?}");
        assert!(found.iter().all(|text| text.contains("one copy on cluster hub: ")), "{found:?}");
    }
    for leader in [r#""name":"hub","leader":"n1""#, r#""name":"hub""#] {
        let found = accept(3, &format!(r#""cluster":{{{leader}}}"#));
        let Err(StoreError { kind: Kind::Unsafe, text }) = found else { panic!("{found:?}") };
        assert!(text.contains("older than nats-server 2.10: a replicated"), "{text}");
        assert!(text.ends_with("nats-server 2.15.1, named fake is known"), "{text}");
    }
}

/// The leader tells its version to those who are connected to it, and the candidates have it.
#[test]
fn a_server_of_the_cluster_that_is_not_its_leader_is_left_if_the_version_is_not_known() {
    let fake = FakeServer::once(|peer| {
        let name = r#""server_name":"n1","cluster":"hub""#;
        peer.accept_client_as(&format!(
            r#"{{{name},"version":"2.9.25","headers":true,"max_payload":65536}}"#
        ));
        early::frames(peer, early::SUBSCRIPTIONS);
        let (config, replica) = (bucket::create("locks", 3, "2.10.0"), r#"{"active":1}"#);
        peer.answer(&format!(
            r#"{{"config":{config},"created":"2026-11-22T07:00:00Z","state":{{"last_seq":0}},
                "cluster":{{"name":"hub","leader":"n2","replicas":[{replica},{replica}]}}}}"#
        ));
    });
    let mut store = store_of(vec![fake.server()]);
    let opened = store.open(early::WEB, sys::now().after(PATIENCE));
    fake.finish();
    let Err(StoreError { kind: Kind::Unreachable, text }) = opened else { panic!("{opened:?}") };
    assert!(text.contains("its leader n2 is older than nats-server 2.10"), "{text}");
    assert!(!store.client.is_connected());
}

/// Each is refused before anything is sent: this store has no connection.
#[test]
fn a_condition_that_the_servers_do_not_check_is_refused() {
    let mut store = store_of(Vec::new());
    let key = Expected::Key(Revision(0));
    let other = Expected::OtherKey("lease", Revision(0));
    let wild = Expected::OtherKey("lock.*", Revision(0));
    for (level, expected, reason) in [
        (0, other, "older than nats-server 2.11"),
        (1, wild, "is not allowed in a key"),
        (0, key, "not connected"),
        (1, other, "not connected"),
    ] {
        let created = String::new();
        store.bucket = Ok(OpenBucket { created, replicated: true, level, ..opened() });
        let content = Content::default();
        let deadline = sys::now().after(PATIENCE);
        match store.compare_and_set("lock.a", expected, &content, deadline) {
            Written::Denied(text) if reason != "not connected" => {
                assert!(text.contains(reason), "{text}");
            }
            Written::Unknown(text) => assert!(text.contains(reason), "{text}"),
            written @ (Written::Stored(_) | Written::Moved(_) | Written::Denied(_)) => {
                panic!("{expected:?}: {written:?}");
            }
        }
    }
}

/// nats-server 2.9 may say so while it makes that very stream for somebody else.
#[test]
fn subjects_that_overlap_may_be_those_of_the_bucket_itself() {
    let none = r#"{"error":{"code":404,"err_code":10059,"description":"stream not found"}}"#;
    let overlap = r#"{"error":{"code":400,"err_code":10065,"description":"subjects overlap"}}"#;
    let config = bucket::create("locks", 1, "2.10.0");
    let stands = format!(
        r#"{{"config":{config},"created":"2026-11-22T07:00:00Z","state":{{"last_seq":0}}}}"#
    );
    let found = find_or_create([none, overlap, &stands]);
    assert!(!found.expect("the bucket"), "another made it");
    let Err(StoreError { kind: Kind::Unsafe, text }) = find_or_create([none, overlap, none]) else {
        panic!("another stream has its subjects");
    };
    assert_eq!(text, "creating the bucket: KV_locks: subjects overlap (error 10065)");
}
