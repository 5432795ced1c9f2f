use super::*;
use serde_json::json;

macro_rules! recorded {
    ($name:literal) => {
        [
            &include_bytes!(concat!("../../../tests/data/nats-2.15.1/", $name, ".json"))[..],
            &include_bytes!(concat!("../../../tests/data/nats-2.10.26/", $name, ".json"))[..],
        ]
    };
}

#[test]
fn info_and_create_of_both_servers_are_read() {
    for payload in recorded!("info") {
        let info = stream_info(payload).expect("recorded");
        assert_eq!(info.last_seq, 2);
        assert_eq!(info.config["subjects"], json!(["$KV.locks.>"]));
        assert!(info.created.starts_with("2026-11-2") && info.is_made() && info.time.is_some());
    }
    for payload in recorded!("create") {
        assert_eq!(stream_info(payload).expect("recorded").last_seq, 0);
    }
}

#[test]
fn a_stream_without_a_time_is_still_being_made() {
    let mut value: Value = serde_json::from_slice(recorded!("info")[1]).expect("recorded");
    value["created"] = NO_TIME.into();
    let info = stream_info(value.to_string().as_bytes()).expect("recorded");
    assert!(!info.is_made());
}

/// Each other member of a cluster is given by the time since the leader heard of it.
#[test]
fn a_leader_that_hears_no_majority_may_not_be_one() {
    let cases: [(&[u64], bool); 7] = [
        (&[], true),
        (&[20, 900], true),
        (&[20, 9000], true),
        (&[3000, 9000], false),
        (&[20], true),
        (&[3000], false),
        (&[20, 20, 9000, 9000], true),
    ];
    for (active, expected) in cases {
        let mut value: Value = serde_json::from_slice(recorded!("info")[0]).expect("recorded");
        let replicas = active.iter().map(|ms| json!({"name": "n", "active": ms * 1_000_000}));
        let replicas: Vec<_> = replicas.collect();
        value["cluster"] = json!({"name": "t", "leader": "n1", "replicas": replicas});
        let read = |value: &Value| stream_info(value.to_string().as_bytes()).expect("recorded");
        assert_eq!(read(&value).has_leader, expected, "{active:?}");
        value["cluster"]["leader"].take();
        assert!(!read(&value).has_leader);
    }
}

#[test]
fn a_list_of_subjects_needs_a_leader_and_is_whole() {
    for payload in recorded!("info_subjects") {
        let info = stream_info(payload).expect("recorded");
        assert_eq!(info.subjects, ["$KV.locks.lock.a.1", "$KV.locks.lock.b"]);
        assert_eq!((info.last_seq, info.has_leader), (4, true));
    }
    let recorded = || -> Value {
        let payload = recorded!("info_subjects")[0];
        serde_json::from_slice(payload).expect("recorded")
    };
    let read = |value: &Value| stream_info(value.to_string().as_bytes());
    let mut none = recorded();
    none["state"]["subjects"].take();
    none["total"] = json!(0);
    assert_eq!(read(&none).expect("none").subjects, Vec::<String>::new());
    for cluster in [json!({}), json!({"leader": ""}), json!({"leader": null})] {
        let mut leaderless = recorded();
        leaderless["cluster"] = cluster;
        assert!(!read(&leaderless).expect("a list").has_leader);
    }
    let mut part = recorded();
    part["total"] = json!(3);
    assert!(read(&part).is_err());
    let mut damaged = recorded();
    damaged["state"]["subjects"] = json!(["$KV.locks.lock.b"]);
    assert!(read(&damaged).is_err());
}

#[test]
fn a_missing_stream_is_told_by_its_code() {
    for payload in recorded!("info_missing") {
        let failure = stream_info(payload).expect_err("no stream");
        assert_eq!(failure.err_code, code::STREAM_NOT_FOUND);
        assert_eq!(failure.to_string(), "stream not found (error 10059)");
    }
}

#[test]
fn the_text_of_an_error_decides_nothing() {
    let payload = br#"{"error":{"code":500,"err_code":10047,"description":"stream not found"}}"#;
    let failure = stream_info(payload).expect_err("error");
    assert_eq!(failure.err_code, code::STORAGE_EXCEEDED);
    let payload = br#"{"error":{"err_code":10008,"description":"no message found"}}"#;
    assert!(stored(payload, "$KV.locks.web").is_err());
}

#[test]
fn stored_messages_of_both_servers_are_read() {
    for payload in recorded!("stored") {
        let message = stored(payload, "$KV.locks.web").expect("recorded").expect("there");
        assert_eq!((message.seq, message.data.as_slice()), (2, &b"a"[..]));
        let headers =
            b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 0\r\nPutex-Format: 1\r\n\r\n";
        assert_eq!(message.headers, headers);
        assert!(stored(payload, "$KV.locks.other").is_err(), "message of another key");
    }
    for payload in recorded!("stored_marker") {
        let message = stored(payload, "$KV.locks.web").expect("recorded").expect("there");
        assert_eq!((message.seq, message.data.as_slice()), (3, &b""[..]));
        assert!(String::from_utf8_lossy(&message.headers).contains("KV-Operation: DEL"));
    }
    for payload in recorded!("stored_missing") {
        assert_eq!(stored(payload, "$KV.locks.no"), Ok(None));
    }
}

#[test]
fn acknowledgements_of_both_servers_are_read() {
    for payload in recorded!("ack") {
        assert_eq!(ack(payload), Ok(("KV_locks".to_owned(), 1)));
    }
    for payload in recorded!("ack_wrong_last") {
        let error = ack(payload).expect_err("an error reply");
        assert_eq!((error.err_code, error.revision()), (code::WRONG_LAST, Some(1)));
    }
}

#[test]
fn an_acknowledgement_that_says_nothing_of_this_write_is_not_one() {
    for payload in [
        &b""[..],
        b"{}",
        b"null",
        b"[1]",
        b"{\"stream\":\"KV_locks\"}",
        b"{\"stream\":\"KV_locks\",\"seq\":0}",
        b"{\"stream\":\"KV_locks\",\"seq\":-1}",
        b"{\"stream\":\"KV_locks\",\"seq\":\"7\"}",
        b"{\"seq\":7}",
        b"{\"stream\":\"KV_locks\",\"seq\":7,\"duplicate\": true}",
        b"{\"error\":\"no\",\"stream\":\"KV_locks\",\"seq\":7}",
        b"{\"stream\":\"KV_locks\",\"seq\":7",
    ] {
        let text = String::from_utf8_lossy(payload);
        let failure = ack(payload).expect_err(&text);
        assert_eq!(failure.err_code, 0, "{text}");
        assert!(failure.to_string().starts_with("answer not understood: "), "{failure}");
    }
}

#[test]
fn only_a_refused_compare_and_set_names_a_revision() {
    let error =
        |err_code, description: &str| Failure { err_code, description: description.to_owned() };
    assert_eq!(error(10071, "wrong last sequence: 0").revision(), Some(0));
    for text in ["wrong last sequence", "wrong last sequence: ", "wrong last sequence: -1", ""] {
        assert_eq!(error(10071, text).revision(), None, "{text}");
    }
    assert_eq!(error(10164, "wrong last sequence: 5").revision(), None);
}

#[test]
fn an_error_text_cannot_break_a_log_line() {
    let payload = br#"{"error":{"err_code":10077,"description":"full\nputex: all is well"}}"#;
    assert!(!ack(payload).expect_err("error").to_string().contains('\n'));
}

/// The part of a message that is kept may end anywhere within the value, or behind it.
#[test]
fn a_message_without_its_end_is_told_from_a_damaged_one() {
    for (headers, end) in [("", ""), (r#""hdrs":"TkFUUw==","#, ""), ("", r#"","time":"2026"#)] {
        let start = r#"{"type":"t","message":{"subject":"$KV.locks.web","seq":7,"#;
        let start = format!("{start}{headers}\"data\":\"");
        let value = "A".repeat(MESSAGE_BYTES_MAX - start.len() - end.len());
        let text = format!("{start}{value}{end}");
        let read = stored(text.as_bytes(), "$KV.locks.web").expect("read").expect("there");
        assert_eq!((read.seq, &*read.headers), (7, &b""[..]));
        assert_eq!(read.data, b"(too large to be read, revision 7)");
        assert!(stored(text.as_bytes(), "$KV.locks.other").is_err(), "message of another key");
        assert!(stored(&text.as_bytes()[1..], "$KV.locks.web").is_err(), "a short one");
    }
}

#[test]
fn base64_is_read_strictly() {
    let read = |coded: &str| {
        let message = json!({"subject": "$KV.locks.web", "seq": 1, "data": coded});
        let answer = json!({ "message": message }).to_string();
        stored(answer.as_bytes(), "$KV.locks.web").map(|stored| stored.expect("there").data)
    };
    for (coded, plain) in
        [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob")]
    {
        assert_eq!(read(coded).as_deref(), Ok(plain.as_bytes()), "{coded}");
    }
    assert_eq!(read("+/+/"), Ok(vec![0xfb, 0xff, 0xbf]));
    for damaged in [
        "Zg", "Zg=", "Z===", "====", "=", "Zh==", "Zm9", "Z g=", "Zm 9v", "Zg==Zg==", "Zm9\n",
        "-_8=",
    ] {
        let refused = Err(malformed("damaged base64"));
        assert_eq!(read(damaged), refused, "{damaged}");
    }
}
