use std::time::SystemTime;

use super::*;
use crate::core::{KeyValue, Record};
use crate::store::lock_key::{to_content, to_key_state};
use crate::store::nats::write::sendable;
use crate::store::record;

const STREAM: &str = "KV_locks";
const SUBJECT: &str = "$KV.locks.web";

fn block(lines: &str) -> Headers {
    Headers::parse(format!("NATS/1.0\r\n{lines}\r\n\r\n").as_bytes())
}

fn error(code: u64, text: &str) -> Vec<u8> {
    let error = serde_json::json!({"code": 400, "err_code": code, "description": text});
    serde_json::json!({"error": error, "stream": STREAM, "seq": 0}).to_string().into_bytes()
}

#[test]
fn an_acknowledgement_counts_only_from_our_stream() {
    let ours = br#"{"stream":"KV_locks", "seq":7}"#;
    assert_eq!(written(STREAM, true, ours), Written::Stored(Revision(7)));
    let theirs = written(STREAM, false, br#"{"stream":"KV_other","seq":7}"#);
    assert!(matches!(&theirs, Written::Unknown(text) if text.contains("KV_other")), "{theirs:?}");
    for answer in [&b""[..], b"{}", br#"{"stream":"KV_locks","seq":0}"#, b"+OK"] {
        assert!(matches!(written(STREAM, false, answer), Written::Unknown(_)));
    }
}

#[test]
fn refusals_are_told_from_what_may_have_been_stored() {
    let moved = written(STREAM, true, &error(10071, "wrong last sequence: 9"));
    assert_eq!(moved, Written::Moved(Some(Revision(9))));
    let unnamed = written(STREAM, true, &error(10071, "wrong last sequence"));
    assert_eq!(unnamed, Written::Moved(None));
    for code in [10003, 10023, 10047, 10054, 10060, 10109, 10167] {
        let denied = written(STREAM, true, &error(code, "no"));
        assert!(
            matches!(&denied, Written::Denied(error) if error.text.contains(&code.to_string()))
        );
    }
    for code in [10164, 10008, 10009, 10118, 10158, 10194, 0, 99_999] {
        let unknown = written(STREAM, false, &error(code, "wrong last sequence: 9"));
        assert!(matches!(unknown, Written::Unknown(_)), "{code}: {unknown:?}");
    }
}

#[test]
fn a_failed_store_is_final_only_where_there_is_one_copy() {
    let full = error(10077, "maximum bytes exceeded");
    assert!(matches!(written(STREAM, false, &full), Written::Denied(_)));
    assert!(matches!(written(STREAM, true, &full), Written::Unknown(_)));
}

#[test]
fn an_unanswered_write_is_unknown_unless_it_was_not_permitted() {
    let text = || "x".to_owned();
    let forbidden = unanswered(SUBJECT, &RequestError::Forbidden(text()));
    let of_right = matches!(&forbidden, Written::Denied(error)
        if error.kind == StoreErrorKind::Credentials && error.text.contains(SUBJECT));
    assert!(of_right, "{forbidden:?}");
    for error in [RequestError::NoResponders, RequestError::Unanswered(text())] {
        assert!(matches!(unanswered(SUBJECT, &error), Written::Unknown(_)), "{error:?}");
    }
}

const SERVERS: &str = "Nats-Stream: KV_locks\r\nNats-Subject: $KV.locks.web\r\nNats-Sequence: 5";

#[test]
fn a_hint_is_believed_only_with_the_servers_own_headers() {
    let forged = "Nats-Sequence: 99\r\nNats-Stream: KV_x\r\nNats-Subject: y";
    for lines in [SERVERS.to_owned(), format!("{forged}\r\n{SERVERS}")] {
        assert_eq!(hint(&block(&lines), STREAM), Some((SUBJECT, Revision(5))), "{lines}");
    }
    for (from, to) in [
        ("KV_locks", "KV_other"),
        ("Nats-Sequence: 5", "Nats-Sequence: 0"),
        ("Nats-Sequence: 5", "Nats-Sequence: five"),
        ("Nats-Sequence: 5", "Nats-Sequence:"),
        ("Nats-Sequence", "nats-sequence"),
    ] {
        assert_eq!(hint(&block(&SERVERS.replace(from, to)), STREAM), None, "{from} -> {to}");
    }
}

#[test]
fn marks_of_deletion_are_told_by_their_headers() {
    for mark in ["KV-Operation: DEL", "KV-Operation: PURGE", "Nats-Marker-Reason: MaxAge"] {
        let headers = format!("NATS/1.0\r\n{mark}\r\n\r\n").into_bytes();
        let stored = Stored { seq: 5, headers, data: Vec::new(), time: SystemTime::UNIX_EPOCH };
        let key_state = to_key_state(Some(entry(SUBJECT, &stored)));
        assert_eq!(
            (key_state.revision, key_state.value),
            (Revision(5), KeyValue::Marker),
            "{mark}"
        );
    }
    let none = to_key_state(None);
    assert_eq!((none.revision, none.value), (Revision(0), KeyValue::Absent));
}

#[test]
fn a_hint_that_lacks_something_is_none() {
    let revision = Revision(5);
    assert_eq!(hint(&block(SERVERS), STREAM), Some((SUBJECT, revision)));
    for name in ["Nats-Stream", "Nats-Subject", "Nats-Sequence"] {
        let lacking = block(&SERVERS.replace(name, "X"));
        assert_eq!(hint(&lacking, STREAM), None, "{name}");
    }
}

#[test]
fn headers_of_the_protocol_are_no_content_but_for_the_reason_of_a_marker() {
    let lines = format!(
        "Nats-Expected-Last-Subject-Sequence: 4\r\nA: b\r\nnats-x: y\r\n\
         Nats-Marker-Reason: MaxAge\r\nNa: c\r\n{SERVERS}"
    );
    let headers = [("A", "b"), ("Nats-Marker-Reason", "MaxAge"), ("Na", "c")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(content(&block(&lines), b"").headers, headers);
}

#[test]
fn a_lease_with_blanks_survives_and_no_empty_header_is_sent() {
    let lease = record::from_headers(|name| match name {
        "Putex-Format" => Some("1"),
        "Putex-State" => Some("active"),
        "Putex-Timing" => Some("500 3 2"),
        "Putex-Host" | "Putex-Boot" => Some(""),
        _ => Some("7"),
    });
    let record = Record { token: "t".to_owned(), lease };
    assert!(record.lease.is_some());
    let sent = to_content(&record);
    let headers = sendable(&sent);
    assert!(headers.iter().all(|(_, value)| !value.is_empty()), "{headers:?}");
    let lines: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let headers = format!("NATS/1.0\r\n{}\r\n\r\n", lines.join("\r\n")).into_bytes();
    let stored = Stored { seq: 5, headers, data: b"t".to_vec(), time: SystemTime::UNIX_EPOCH };
    let key_state = to_key_state(Some(entry(SUBJECT, &stored)));
    assert_eq!(key_state.value, KeyValue::Record(record));
}

#[test]
fn what_a_server_says_is_told_in_one_line() {
    let theirs = written(STREAM, false, br#"{"stream":"KV\nforged\u0085","seq":7}"#);
    assert!(matches!(&theirs, Written::Unknown(text) if text.contains("KV?forged?")), "{theirs:?}");
}
