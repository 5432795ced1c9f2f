//! The store in a NATS bucket, on real servers: the stories that every store must
//! pass, and those that only a server can tell.

mod cluster;
mod herd;
mod opening;
mod server;
mod silence;

use std::os::fd::AsFd;
use std::time::Duration;

use putex::core::event::{Event, Opened, Written};
use putex::core::record::{KeyValue, Record, Revision};
use putex::core::seat::Seat;
use putex::core::time::Instant;
use putex::store::nats::{NatsSettings, NatsStore};
use putex::store::{Bucket, Content, Expected, LASTS_MIN, LockKey, Opening, open_or_make};
use putex::sys::{self, Waker};

use crate::support::clock::{READ_MAX, until_true};
use crate::support::server::Server;
use server::{old_config, on_servers, soon};

/// How long nothing must happen to be believed that nothing does.
const QUIET: Duration = Duration::from_millis(100);

fn plain(token: &str) -> Record {
    Record { token: token.to_owned(), lease: None }
}

fn open(server: &Server, bucket: &str) -> (LockKey, Opened) {
    let mut store = server.store(bucket, "web");
    let opened = store.open(soon()).expect("the store opens");
    (store, opened)
}

fn write(store: &mut LockKey, expected: Revision, token: &str) -> Revision {
    let written = store.write(Seat::FIRST, expected, &plain(token), soon());
    let Written::Stored(revision) = written else {
        panic!("not stored over {expected}: {written:?}");
    };
    revision
}

/// Watches until `until`, which must not be interrupted.
fn watch(store: &mut LockKey, until: Instant) -> Result<Option<Event>, String> {
    let waker = Waker::new().expect("a descriptor");
    store.watch(waker.as_fd(), Some(until))
}

fn assert_quiet(store: &mut LockKey) {
    assert_eq!(watch(store, sys::now().after(QUIET)), Ok(None));
}

#[test]
fn every_story_of_a_store_holds() {
    on_servers(|binary| {
        let server = Server::start(binary, "");
        let version = server.version();
        let for_locks = !version.starts_with("2.10.");
        let make = |bucket: &str| {
            let settings = NatsSettings { for_locks, ..server::settings(bucket) };
            Box::new(NatsStore::new(server.client(None), settings)) as Box<dyn Bucket>
        };
        crate::contract::all(&make, for_locks);
    });
}

/// Pauses, requests for switchover and leases end by an entry that stays: a server that is killed
/// restores what an entry has replaced that it has removed since, as that of a ticket.
#[test]
fn what_ends_by_an_entry_that_stays_is_not_restored_by_a_server_that_is_killed() {
    on_servers(|binary| {
        let mut server = Server::start(binary, "");
        let mut store = server.bucket("locks");
        open_or_make(&mut *store, Opening::make(&["pause"]), soon()).expect("the store opens");
        let content = Content { headers: Vec::new(), payload: Vec::new() };
        for key in ["pause", "ticket"] {
            let written = store.write(key, Expected::Key(Revision(0)), &content, None, soon());
            let Written::Stored(at) = written else { panic!("{written:?}") };
            let end = Content {
                headers: vec![("KV-Operation".to_owned(), "DEL".to_owned())],
                ..content.clone()
            };
            let ended = match key {
                "pause" => store.write(key, Expected::Key(at), &end, None, soon()),
                _ => store.write(key, Expected::Key(at), &end, Some(LASTS_MIN), soon()),
            };
            assert!(matches!(ended, Written::Stored(_)), "{ended:?}");
        }
        let mut admin = server.admin();
        let filter = r#"{"subjects_filter":"$KV.locks.ticket"}"#;
        let mut subjects = || admin.stream("INFO", "locks", filter)["state"]["subjects"].clone();
        if !server.version().starts_with("2.10.") {
            until_true("the removal of the ticket's end", || subjects().is_null());
        }
        server.kill();
        server.restart().expect("it starts again");
        let mut store = server.bucket("locks");
        open_or_make(&mut *store, Opening::make(&["pause"]), soon()).expect("the store opens");
        let pause = store.get("pause", soon()).expect("an answer").expect("an entry");
        assert!(pause.content.is_tombstone(), "{pause:?}");
        println!("the ticket: {:?}", store.get("ticket", soon()).expect("an answer"));
    });
}

#[test]
fn marks_of_deletion_are_told_from_absence() {
    on_servers(|binary| {
        let server = Server::start(binary, "");
        let mut admin = server.admin();
        admin.stream("CREATE", "locks", &old_config("locks").to_string());
        let (mut store, _) = open(&server, "locks");
        for header in [
            &[("KV-Operation", "DEL")][..],
            &[("KV-Operation", "PURGE"), ("Nats-Rollup", "sub")],
            &[("Nats-Marker-Reason", "MaxAge")],
        ] {
            let mark = Revision(admin.put("$KV.locks.web", header, ""));
            let key_state = store.read(Seat::FIRST, soon()).expect("read");
            assert_eq!(
                (key_state.revision, key_state.value),
                (mark, KeyValue::Marker),
                "{header:?}"
            );
            let absent = store.write(Seat::FIRST, Revision(0), &plain("a"), soon());
            assert_eq!(absent, Written::Moved(Some(mark)), "{header:?}");
            let opened = server.store("locks", "web").open(soon()).expect("opened");
            assert_eq!(
                (opened.key_states[0].revision, opened.key_states[0].value.clone()),
                (mark, KeyValue::Marker)
            );
            write(&mut store, mark, "a");
        }
        admin.stream("PURGE", "locks", r#"{"filter":"$KV.locks.web"}"#);
        let key_state = store.read(Seat::FIRST, soon()).expect("read");
        assert_eq!((key_state.revision, key_state.value), (Revision(0), KeyValue::Absent));
    });
}

#[test]
fn a_deleted_bucket_is_noticed_and_not_made_again() {
    on_servers(|binary| {
        let server = Server::start(binary, "");
        let mut admin = server.admin();
        let gone = "the bucket KV_locks does not exist any more";
        for by_write in [false, true] {
            let (mut store, _) = open(&server, "locks");
            let revision = write(&mut store, Revision(0), "a");
            admin.stream("DELETE", "locks", "");
            if by_write {
                let written = store.write(Seat::FIRST, revision, &plain("a"), soon());
                assert_eq!(written, Written::Unknown(format!("nothing stored: {gone}")));
            } else {
                assert_eq!(store.read(Seat::FIRST, soon()), Err(gone.to_owned()));
            }
            let written = store.write(Seat::FIRST, Revision(0), &plain("a"), soon());
            assert_eq!(written, Written::Unknown(format!("nothing sent: {gone}")));
            assert_eq!(store.read(Seat::FIRST, soon()), Err(gone.to_owned()));
            assert_eq!(watch(&mut store, soon()), Err(gone.to_owned()));
            let info = admin.request("$JS.API.STREAM.INFO.KV_locks", "");
            assert_eq!(info["error"]["err_code"], 10059, "made again: {info}");
            let opened = store.open(soon()).expect("opened again");
            assert!(opened.bucket.remarks.iter().any(|line| line.contains("was created")));
            admin.stream("DELETE", "locks", "");
        }
    });
}

#[test]
fn a_bucket_deleted_and_made_anew_is_another() {
    on_servers(|binary| {
        let server = Server::start(binary, "");
        let (mut a, before) = open(&server, "locks");
        let revision = write(&mut a, Revision(0), "a");
        server.admin().stream("DELETE", "locks", "");
        let (mut b, after) = open(&server, "locks");
        assert_ne!(before.bucket.id.epoch, after.bucket.id.epoch);
        assert_ne!(before.bucket.id.created, after.bucket.id.created);
        assert_eq!(
            a.write(Seat::FIRST, revision, &plain("a"), soon()),
            Written::Moved(Some(Revision(0)))
        );
        write(&mut b, Revision(0), "b");
        assert_eq!(a.open(soon()).expect("opened").bucket.id, after.bucket.id);
    });
}

#[test]
fn a_bucket_in_memory_is_another_after_its_server_ended() {
    on_servers(|binary| {
        let mut server = Server::start(binary, "");
        let mut config = old_config("locks");
        config["storage"] = "memory".into();
        server.admin().stream("CREATE", "locks", &config.to_string());
        let mut settings = server::settings("locks");
        settings.allow_memory = true;
        let mut store = LockKey::new(
            Box::new(NatsStore::new(server.client(None), settings)),
            "web",
            1,
            READ_MAX,
        );
        let before = store.open(soon()).expect("opened");
        write(&mut store, Revision(0), "a");
        server.kill();
        server.restart().expect("it starts");
        let after = store.open(soon()).expect("opened again");
        assert_ne!(before.bucket.id.epoch, after.bucket.id.epoch);
        assert_eq!(after.key_states[0].value, KeyValue::Absent);
    });
}

#[test]
fn an_older_copy_of_the_store_shows_in_the_last_revision() {
    on_servers(|binary| {
        let mut server = Server::start(binary, "");
        let (mut store, before) = open(&server, "locks");
        let early = write(&mut store, Revision(0), "a");
        server.kill();
        let copy = server.copy_store().expect("there is room");
        server.restart().expect("it starts");
        let mut revision = store.open(soon()).expect("opened").key_states[0].revision;
        for _ in 0..5 {
            revision = write(&mut store, revision, "a");
        }
        let last = store.open(soon()).expect("opened").bucket.last;
        assert_eq!(last, revision);
        server.kill();
        server.restore_store(&copy).expect("there is room");
        server.restart().expect("it starts");
        let after = store.open(soon()).expect("opened");
        assert_eq!(after.bucket.id, before.bucket.id, "nothing else shows it");
        assert_eq!((after.bucket.last, after.key_states[0].revision), (early, early));
    });
}

#[test]
fn a_lost_link_is_told_and_nothing_is_sent_later() {
    on_servers(|binary| {
        let mut server = Server::start(binary, "");
        let (mut store, _) = open(&server, "locks");
        let revision = write(&mut store, Revision(0), "a");
        server.kill();
        let written = store.write(Seat::FIRST, revision, &plain("b"), soon());
        assert!(matches!(written, Written::Unknown(_)), "{written:?}");
        assert!(store.read(Seat::FIRST, soon()).is_err());
        let watched = watch(&mut store, soon());
        assert!(watched.is_err(), "{watched:?}");
        server.restart().expect("it starts");
        // Not before the bucket was checked again.
        let written = store.write(Seat::FIRST, revision, &plain("b"), soon());
        assert!(matches!(written, Written::Unknown(_)), "{written:?}");
        assert!(store.read(Seat::FIRST, soon()).is_err());
        let opened = store.open(soon()).expect("opened again");
        assert_eq!(opened.key_states[0].revision, revision);
        write(&mut store, revision, "b");
    });
}

#[test]
fn a_full_or_sealed_bucket_denies() {
    on_servers(|binary| {
        let server = Server::start(binary, "");
        let mut admin = server.admin();
        let mut config = old_config("locks");
        config["max_msgs"] = 1.into();
        admin.stream("CREATE", "locks", &config.to_string());
        let (mut store, _) = open(&server, "locks");
        let written = store.write(Seat::FIRST, Revision(0), &plain("a"), soon());
        assert!(
            matches!(&written, Written::Denied(error) if error.text.contains("10077")),
            "{written:?}"
        );
        config["sealed"] = true.into();
        admin.stream("UPDATE", "locks", &config.to_string());
        let written = store.write(Seat::FIRST, Revision(0), &plain("a"), soon());
        assert!(
            matches!(&written, Written::Denied(error) if error.text.contains("10109")),
            "{written:?}"
        );
    });
}

#[test]
fn a_hint_names_what_was_stored_and_nothing_else() {
    on_servers(|binary| {
        let server = Server::start(binary, "");
        let (mut a, _) = open(&server, "locks");
        let (mut b, _) = open(&server, "locks");
        let revision = write(&mut a, Revision(0), "a");
        assert_eq!(watch(&mut b, soon()), Ok(Some(Event::Hint(Seat::FIRST, Some(revision)))));
        assert_quiet(&mut b);
        let refused = a.write(Seat::FIRST, Revision(0), &plain("a"), soon());
        assert_eq!(refused, Written::Moved(Some(revision)));
        assert_quiet(&mut b);
        let mut admin = server.admin();
        let forged = [("Nats-Sequence", "99"), ("Nats-Stream", "x"), ("Nats-Subject", "y")];
        let seq = admin.put("$KV.locks.web", &forged, "b");
        assert_eq!(watch(&mut b, soon()), Ok(Some(Event::Hint(Seat::FIRST, Some(Revision(seq))))));
        assert_eq!(b.read(Seat::FIRST, soon()).expect("read").revision, Revision(seq));
        for damaged in [
            &[][..],
            &forged,
            &[("Nats-Stream", "KV_locks"), ("Nats-Subject", "$KV.locks.web")],
            &[
                ("Nats-Stream", "KV_locks"),
                ("Nats-Subject", "$KV.locks.web"),
                ("Nats-Sequence", "0"),
            ],
        ] {
            admin.publish("putex.hint.locks.web", damaged);
        }
        assert_quiet(&mut b);
    });
}
