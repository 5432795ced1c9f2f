//! Opening a bucket: the requests, and the results that follow from the answers.

use base64ct::{Base64, Encoding as _};

use super::*;
use crate::core::BucketId;
use crate::nats::fake::{Frame, Peer};
use crate::store::{BucketInfo, open_or_make};

const CREATED: &str = "2026-11-22T07:00:00Z";

/// STREAM.INFO of a fit bucket of that creation time, with these members beside.
fn fit(created: &str, last: u64, more: &str) -> String {
    let config = bucket::create("locks", 1);
    let state = format!(r#"{{"last_seq":{last}}}"#);
    format!(r#"{{"config":{config},"created":"{created}","state":{state},"ts":"{created}"{more}}}"#)
}

/// MSG.GET of an entry with this value.
fn message(key: &str, seq: u64, value: &str) -> String {
    let data = Base64::encode_string(value.as_bytes());
    format!(r#"{{"message":{{"subject":"$KV.locks.{key}","seq":{seq},"data":"{data}"}}}}"#)
}

/// Takes frames, which must begin like these.
fn frames<const N: usize>(peer: &mut Peer, starts: [&str; N]) -> [Frame; N] {
    starts.map(|start| {
        let frame = peer.frame();
        let text = format!("{} {}", frame.words.join(" "), frame.body);
        assert!(text.starts_with(start), "not {start}: {text}");
        frame
    })
}

const SUBSCRIPTIONS: [&str; 1] = ["SUB putex.hint.locks.web "];
const STREAM_INFO: &str = "PUB $JS.API.STREAM.INFO.KV_locks ";
const GET: &str = "PUB $JS.API.STREAM.MSG.GET.KV_locks ";

/// The key `web`, which is subscribed to and read.
const WEB: Opening<'_> = Opening { makes_bucket: true, subscribed: &["web"], read: &["web"] };

fn revisions(entries: &[Option<Entry>]) -> Vec<Option<Revision>> {
    entries.iter().map(|entry| entry.as_ref().map(|entry| entry.revision)).collect()
}

/// Opens the bucket `locks` with the key `web` at a server with this script.
fn opened_at(
    script: impl FnOnce(&mut Peer) + Send + 'static,
) -> StoreResult<(BucketInfo, Vec<Option<Entry>>)> {
    let fake = FakeServer::once(script);
    let mut store = store_of(vec![fake.server()]);
    let opened = open_or_make(&mut store, WEB, sys::now().after(PATIENCE));
    drop(store);
    fake.finish();
    opened
}

/// No change of the key after the read may be missed.
#[test]
fn keys_are_subscribed_to_before_they_are_read_with_the_epoch() {
    let (bucket, entries) = opened_at(|peer| {
        peer.accept_client();
        frames(peer, SUBSCRIPTIONS);
        let [info] = frames(peer, [STREAM_INFO]);
        assert!(peer.is_waited_for());
        peer.reply_to(&info, &fit(CREATED, 7, ""));
        let [web, epoch] = frames(peer, [GET, GET]);
        assert!(web.body.contains("$KV.locks.web"), "{web:?}");
        assert!(epoch.body.contains("$KV.locks.putex.epoch"), "{epoch:?}");
        // In any order.
        peer.reply_to(&epoch, &message("putex.epoch", 1, "e"));
        peer.reply_to(&web, &message("web", 7, "a"));
        assert_eq!(peer.rest(), "", "more was sent");
    })
    .expect("opened");
    let id = BucketId { epoch: "e".to_owned(), created: CREATED.to_owned() };
    assert_eq!((bucket.id, bucket.last), (id, Revision(7)));
    assert_eq!(revisions(&entries), [Some(Revision(7))]);
}

/// A stream without a time of its creation, and one without a leader, are not of use yet.
#[test]
fn a_bucket_that_is_being_made_is_waited_for() {
    let (bucket, _) = opened_at(|peer| {
        peer.accept_client();
        frames(peer, SUBSCRIPTIONS);
        for created in ["0001-01-01T00:00:00Z", CREATED] {
            let [info] = frames(peer, [STREAM_INFO]);
            peer.reply_to(&info, &fit(created, 7, ""));
        }
        let [web, epoch] = frames(peer, [GET, GET]);
        peer.reply_to(&web, &message("web", 7, "a"));
        peer.reply_to(&epoch, &message("putex.epoch", 1, "e"));
    })
    .expect("opened");
    assert_eq!(bucket.last, Revision(7));
}
