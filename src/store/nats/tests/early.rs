//! Opening a bucket: what is sent with the login, and what is made of the answers.

use base64ct::{Base64, Encoding as _};

use super::*;
use crate::core::BucketId;
use crate::nats::fake::{Frame, Peer};

/// INFO of a server of this version.
fn info_of(version: &str) -> String {
    let rest = r#""headers":true,"jetstream":true,"max_payload":65536"#;
    format!(r#"{{"server_name":"n1","version":"{version}",{rest}}}"#)
}

const CREATED: &str = "2026-11-22T07:00:00Z";

/// STREAM.INFO of a fit bucket of that creation time, with these members beside.
fn fit(created: &str, last: u64, more: &str) -> String {
    let config = bucket::create("locks", 1, "2.10.0");
    format!(r#"{{"config":{config},"created":"{created}","state":{{"last_seq":{last}}}{more}}}"#)
}

/// MSG.GET of an entry with this value.
fn message(key: &str, seq: u64, value: &str) -> String {
    let data = Base64::encode_string(value.as_bytes());
    format!(r#"{{"message":{{"subject":"$KV.locks.{key}","seq":{seq},"data":"{data}"}}}}"#)
}

/// MSG.GET of an epoch that was written into the bucket of that creation time.
fn epoch_entry(value: &str, created: &str) -> String {
    let headers = format!("NATS/1.0\r\nPutex-Created: {created}\r\n\r\n");
    let headers = Base64::encode_string(headers.as_bytes());
    message("putex.epoch", 1, value)
        .replace(r#","data""#, &format!(r#","hdrs":"{headers}","data""#))
}

/// Takes frames, which must begin like these.
pub(super) fn frames<const N: usize>(peer: &mut Peer, starts: [&str; N]) -> [Frame; N] {
    starts.map(|start| {
        let frame = peer.frame();
        let text = format!("{} {}", frame.words.join(" "), frame.body);
        assert!(text.starts_with(start), "not {start}: {text}");
        frame
    })
}

pub(super) const SUBSCRIPTIONS: [&str; 2] =
    ["SUB putex.hint.locks.web ", "SUB putex.twin.locks.web "];
const STREAM_INFO: &str = "PUB $JS.API.STREAM.INFO.KV_locks ";
const GET: &str = "PUB $JS.API.STREAM.MSG.GET.KV_locks ";

/// The key `web`, which is subscribed to and read.
pub(super) const WEB: FirstKeys<'_> = FirstKeys { subscribed: &["web"], read: &["web"] };

fn revisions(entries: &[Option<Entry>]) -> Vec<Option<Revision>> {
    entries.iter().map(|entry| entry.as_ref().map(|entry| entry.revision)).collect()
}

/// Opens the bucket `locks` with the key `web` at a server with this script.
fn opened_at(
    script: impl FnOnce(&mut Peer) + Send + 'static,
) -> StoreResult<(BucketInfo, Vec<Option<Entry>>)> {
    let fake = FakeServer::once(script);
    let mut store = store_of(vec![fake.server()]);
    let opened = store.open(WEB, sys::now().after(PATIENCE));
    drop(store);
    fake.finish();
    opened
}

/// An agent whose R is four round trips could not take a lock in time: it used to wait for the
/// answer to each request before the next.
#[test]
fn the_reads_of_an_opening_travel_with_the_login() {
    let (bucket, entries) = opened_at(|peer| {
        peer.send(&format!("INFO {}\r\n", info_of("2.10.0")));
        peer.take_handshake();
        frames(peer, SUBSCRIPTIONS);
        let [info, epoch, web] = frames(peer, [STREAM_INFO, GET, GET]);
        assert!(epoch.body.contains("$KV.locks.putex.epoch"), "{epoch:?}");
        assert!(web.body.contains("$KV.locks.web"), "{web:?}");
        assert!(peer.is_waited_for());
        peer.send("PONG\r\n");
        // In any order.
        peer.reply_to(&web, &message("web", 7, "a"));
        peer.reply_to(&epoch, &epoch_entry("e", CREATED));
        peer.reply_to(&info, &fit(CREATED, 7, ""));
        assert_eq!(peer.rest(), "", "more was sent");
    })
    .expect("opened");
    let id = BucketId { epoch: "e".to_owned(), created: CREATED.to_owned() };
    assert_eq!((bucket.id, bucket.last), (id, Revision(7)));
    assert_eq!(revisions(&entries), [Some(Revision(7))]);
}

/// nats-server 2.9.10 ends with a fault when a stream is read that is being created.
#[test]
fn a_server_that_may_fail_at_a_read_is_sent_none_before_the_stream_is_made() {
    for version in ["2.9.25", "2.10.0-beta.1", "dev"] {
        let (bucket, entries) = opened_at(move |peer| {
            peer.send(&format!("INFO {}\r\n", info_of(version)));
            peer.take_handshake();
            assert!(peer.is_waited_for());
            peer.send("PONG\r\n");
            frames(peer, SUBSCRIPTIONS);
            for created in ["0001-01-01T00:00:00Z", CREATED] {
                let [info] = frames(peer, [STREAM_INFO]);
                assert!(peer.is_waited_for());
                peer.reply_to(&info, &fit(created, 7, ""));
            }
            let [first, second] = frames(peer, [GET, GET]);
            peer.reply_to(&first, &epoch_entry("e", CREATED));
            peer.reply_to(&second, &message("web", 7, "a"));
            assert_eq!(peer.rest(), "", "more was sent");
        })
        .expect("opened");
        assert_eq!((&*bucket.id.epoch, bucket.last), ("e", Revision(7)));
        assert_eq!(revisions(&entries), [Some(Revision(7))]);
    }
}

/// What was read beside it may be of nobody, of the bucket before, or of one that is not made.
#[test]
fn what_is_read_beside_an_unusable_answer_is_read_again() {
    let none = r#"{"error":{"code":404,"err_code":10059,"description":"stream not found"}}"#;
    let [old, web] = [epoch_entry("old", CREATED), message("web", 7, "a")];
    let unusable = [
        ("not made", fit("0001-01-01T00:00:00Z", 7, "")),
        ("no leader", fit(CREATED, 7, r#","cluster":{}"#)),
        ("no bucket", none.to_owned()),
    ];
    for (why, info) in unusable {
        reads_again(why, [info, old.clone(), web.clone()], [STREAM_INFO, GET, GET]);
    }
    let old_epochs = [
        ("of the bucket before", epoch_entry("old", "2026-11-22T06:00:00Z")),
        ("of whatever bucket", message("putex.epoch", 1, "old")),
        ("deleted", epoch_entry(" ", CREATED)),
        ("absent", MISSING.to_owned()),
        ("of a bucket that was gone", none.to_owned()),
    ];
    for (why, epoch) in old_epochs {
        reads_again(why, [fit(CREATED, 7, ""), epoch, web.clone()], [GET, GET]);
    }
    reads_again("of another key", [fit(CREATED, 7, ""), old.clone(), old], [GET, GET]);
}

/// Opens a bucket whose first answers are these. Then these requests come again.
fn reads_again<const N: usize>(why: &str, first: [String; 3], again: [&'static str; N]) {
    println!("{why}");
    let (bucket, entries) = opened_at(move |peer| {
        peer.send(&format!("INFO {}\r\n", info_of("2.15.1")));
        peer.take_handshake();
        peer.send("PONG\r\n");
        frames(peer, SUBSCRIPTIONS);
        for (request, answer) in frames(peer, [STREAM_INFO, GET, GET]).iter().zip(&first) {
            peer.reply_to(request, answer);
        }
        let answers = [fit(CREATED, 9, ""), epoch_entry("new", "earlier"), message("web", 10, "b")];
        for (start, answer) in again.iter().zip(&answers[3 - N..]) {
            let [request] = frames(peer, [start]);
            peer.reply_to(&request, answer);
        }
        assert_eq!(peer.rest(), "", "more was sent");
    })
    .expect("opened");
    assert_eq!(bucket.id, BucketId { epoch: "new".to_owned(), created: CREATED.to_owned() });
    let [Some(entry)] = &*entries else { panic!("{entries:?}") };
    assert_eq!((entry.revision, &*entry.content.payload), (Revision(10), &b"b"[..]));
}
