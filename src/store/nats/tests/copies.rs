//! Entries that a listing reads beside the names, or from any copy of the bucket.

use base64ct::{Base64, Encoding as _};

use super::*;

const END: [&str; 3] = ["NATS/1.0 204 EOB", "Nats-Num-Pending: 0", "Nats-UpTo-Sequence: 7"];

/// Lists `lock.a` and `lock.b`, which are used once, in a bucket whose copies are asked. They
/// answer with these headers and payloads; the leader is asked for these keys then, and has both.
/// Returns the payloads of the listing, and whether the copies would be asked again.
fn list_from_copies(
    copy: &[(&[&str], &str)],
    left: &'static [&'static str],
) -> (Vec<String>, bool) {
    let own = |(lines, payload): &(&[&str], &str)| {
        (lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>(), (*payload).to_owned())
    };
    let copy: Vec<_> = copy.iter().map(own).collect();
    let fake = FakeServer::once(move |peer| {
        peer.accept_client();
        let names = r#""$KV.locks.lock.a":1,"$KV.locks.lock.b":1"#;
        peer.answer(&subjects(LEADER, names));
        let request = peer.frame();
        assert_eq!(request.words[1], "$JS.API.DIRECT.GET.KV_locks");
        assert_eq!(request.body, r#"{"multi_last":["$KV.locks.lock.a","$KV.locks.lock.b"]}"#);
        for (lines, payload) in &copy {
            let lines: Vec<_> = lines.iter().map(|line| &**line).collect();
            peer.reply_with_headers(&request, &lines, payload);
        }
        for key in left {
            let request = peer.frame();
            assert_eq!(request.words[1], "$JS.API.STREAM.MSG.GET.KV_locks");
            assert!(request.body.contains(key), "{request:?}");
            peer.reply_to(&request, &B.replace("lock.b", key));
        }
    });
    let mut store = store_of(vec![fake.server()]);
    let deadline = sys::now().after(PATIENCE);
    store.client.connect(deadline).expect("the script accepts the client");
    store.bucket = Ok(OpenBucket { reads_directly: true, ..opened() });
    let prefixes = ["lock".to_owned()];
    let selection = Selection { used_once: &|_| true, ..Selection::all(&prefixes) };
    let listing = store.list_now(selection, deadline).expect("a listing");
    fake.finish();
    let text = |entry: &Entry| String::from_utf8_lossy(&entry.content.payload).into_owned();
    let asks_again = store.bucket.is_ok_and(|bucket| bucket.reads_directly);
    (listing.entries.iter().map(text).collect(), asks_again)
}

/// Returns the headers of an entry as a copy of the bucket sends it.
fn copy_of<'a>(stream: &'a str, subject: &'a str, more: &'a str) -> Vec<&'a str> {
    vec!["NATS/1.0", more, stream, subject, "Nats-Sequence: 5", "Nats-Num-Pending: 1"]
}

/// What copies of a bucket say counts only where it delays at worst.
#[test]
fn entries_of_a_copy_count_if_it_has_all_that_the_leader_has_named() {
    const STREAM: &str = "Nats-Stream: KV_locks";
    const A: &str = "Nats-Subject: $KV.locks.lock.a";
    let (a, b) =
        (copy_of(STREAM, A, "X: y"), copy_of(STREAM, "Nats-Subject: $KV.locks.lock.b", "X: y"));
    let all = list_from_copies(&[(&b, "copy b"), (&a, "copy a"), (&END, "")], &[]);
    assert_eq!(all, (vec!["copy a".to_owned(), "copy b".to_owned()], true));
    let from_leader = || vec!["v".to_owned(), "v".to_owned()];
    let one = || vec!["v".to_owned(), "copy b".to_owned()];
    // It is behind, or the reply has not all.
    for end in [
        ["NATS/1.0 204 EOB", "Nats-Num-Pending: 0", "Nats-UpTo-Sequence: 6"],
        ["NATS/1.0 204 EOB", "Nats-Num-Pending: 1", "Nats-UpTo-Sequence: 7"],
        ["NATS/1.0 204 EOB", "Nats-Num-Pending: 0", "X: y"],
    ] {
        let found =
            list_from_copies(&[(&a, "copy"), (&b, "copy"), (&end, "")], &["lock.a", "lock.b"]);
        assert_eq!(found, (from_leader(), true), "{end:?}");
    }
    // A copy that is being made lacks entries.
    let found = list_from_copies(&[(&b, "copy b"), (&END, "")], &["lock.a"]);
    assert_eq!(found, (one(), true));
    // Nothing follows the tombstone of a key that is used once.
    let ended = copy_of(STREAM, A, "KV-Operation: DEL");
    let found = list_from_copies(&[(&ended, ""), (&b, "copy b"), (&END, "")], &[]);
    assert_eq!(found, (vec![String::new(), "copy b".to_owned()], true));
    // Another bucket; an entry that was not asked for.
    let foreign = copy_of("Nats-Stream: KV_other", A, "X: y");
    let other = copy_of(STREAM, "Nats-Subject: $KV.locks.lock.c", "X: y");
    for useless in [foreign, other] {
        let found = list_from_copies(&[(&useless, ""), (&b, "copy b"), (&END, "")], &["lock.a"]);
        assert_eq!(found, (one(), true), "{useless:?}");
    }
    // One that does not know the request, and one that sends more than was asked for.
    let unknown: [&str; 1] = ["NATS/1.0 408 Empty Request"];
    let found = list_from_copies(&[(&unknown, "")], &["lock.a", "lock.b"]);
    assert_eq!(found, (from_leader(), false));
    let found = list_from_copies(&[(&a, ""), (&a, ""), (&a, "")], &["lock.a", "lock.b"]);
    assert_eq!(found, (from_leader(), false));
    // None that may be asked.
    let found = list_from_copies(&[], &["lock.a", "lock.b"]);
    assert_eq!(found, (from_leader(), false));
}

/// A waiter reads the tombstone of the ticket before its own with the names: that saves a round
/// trip of each hand-over. An entry from before the names would hide a change.
#[test]
fn of_the_entries_that_are_read_beside_the_names_the_tombstone_of_an_ended_key_counts() {
    let tombstone = |key: &str| {
        let headers = "NATS/1.0\r\nKV-Operation: DEL\r\n\r\n".as_bytes();
        let headers = Base64::encode_string(headers);
        let message = format!(r#"{{"subject":"$KV.locks.{key}","seq":6,"hdrs":"{headers}"}}"#);
        format!(r#"{{"message":{message}}}"#)
    };
    let names = subjects(LEADER, r#""$KV.locks.lock.b":1"#);
    let (prefixes, ended) = (["lock".to_owned()], ["lock.b".to_owned()]);
    let list = |answers: &[&str]| {
        with_answers(answers, |store, deadline| {
            store.bucket = Ok(opened());
            let selection = Selection { ended: &ended, ..Selection::all(&prefixes) };
            store.list_now(selection, deadline).expect("a listing").entries
        })
    };
    let read_once = list(&[&names, &tombstone("lock.b")]);
    assert!(read_once[0].content.is_tombstone(), "{read_once:?}");
    let read_again = list(&[&names, B, &tombstone("lock.b")]);
    assert!(read_again[0].content.is_tombstone(), "{read_again:?}");
    assert_eq!(list(&[&subjects(LEADER, ""), MISSING]), []);
}

/// Where the acknowledgement of a release is lost, its tombstone stood in the bucket for ever.
#[test]
fn whoever_reads_a_tombstone_that_its_owner_has_not_had_purged_has_it_purged() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        peer.answer(&subjects(LEADER, r#""$KV.locks.lock.b":1"#));
        let headers = Base64::encode_string(b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n");
        peer.answer(&format!(
            r#"{{"message":{{"subject":"$KV.locks.lock.b","seq":6,"hdrs":"{headers}"}}}}"#
        ));
        let purge = peer.frame();
        assert_eq!(purge.words[1], "$JS.API.STREAM.PURGE.KV_locks");
        assert_eq!(purge.body, r#"{"filter":"$KV.locks.lock.b","seq":7}"#);
    });
    let mut store = store_of(vec![fake.server()]);
    let deadline = sys::now().after(PATIENCE);
    store.client.connect(deadline).expect("the script accepts the client");
    store.bucket = Ok(OpenBucket { retirement: Some(Retirement::Purge), ..opened() });
    let prefixes = ["lock".to_owned()];
    let selection = Selection { used_once: &|_| true, ..Selection::all(&prefixes) };
    store.list_now(selection, deadline).expect("a listing");
    fake.finish();
}
