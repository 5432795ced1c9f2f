//! The JSON that a server answers with.

use serde_json::{Value, json};

use super::assert_one_line;
use crate::core::event::{StoreError, Written};
use crate::core::record::Revision;
use crate::nats::bucket;
use crate::nats::jetstream::{self, StreamInfo, code};
use crate::nats::{Server, ServerInfo};
use crate::store::nats::answer;

/// The JSON of an INFO: what is taken from it can be logged, is no larger than the
/// JSON, and reads the same from JSON that says nothing else.
pub fn info(data: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(data) else {
        return false;
    };
    let info = match ServerInfo::parse(text, "h:1") {
        Ok(info) => info,
        Err(why) => {
            assert_one_line(why);
            return false;
        }
    };
    let value: Value = serde_json::from_str(text).expect("it was read as JSON");
    assert!(value.is_object(), "{text}");
    let mut bytes = 0;
    for text in [&info.name, &info.version].into_iter().chain(&info.cluster).chain(&info.domain) {
        assert_one_line(text);
        bytes += text.len();
    }
    bytes += info.connect_urls.iter().map(String::len).sum::<usize>();
    assert!(bytes <= text.len(), "{bytes} bytes out of {}", text.len());
    let plain = json!({
        "server_name": info.name,
        "version": info.version,
        "cluster": info.cluster,
        "domain": info.domain,
        "jetstream": info.jetstream,
        "max_payload": info.max_payload,
        "connect_urls": info.connect_urls,
        "ldm": info.lame_duck,
        "headers": info.headers,
        "tls_required": info.tls_required,
        "tls_available": info.tls_available,
        "nonce": info.nonce,
    });
    assert_eq!(ServerInfo::parse(&plain.to_string(), "h:1").as_ref(), Ok(&info));
    let urls = value["connect_urls"].as_array().into_iter().flatten();
    assert!(urls.filter_map(Value::as_str).eq(&info.connect_urls));
    for url in &info.connect_urls {
        advertised(url);
    }
    true
}

/// A server that another advertises is one that can be written in a list, and is to
/// prove the name of the one that was given.
fn advertised(url: &str) {
    let given = Server::parse_list("tls://t@n1.example").expect("a server");
    if let Some(server) = given[0].advertised(url) {
        let shown = server.to_string();
        assert_one_line(&shown);
        assert_eq!(given[0].advertised(&shown).as_ref(), Some(&server));
        let mut listed = Server::parse_list(&format!("tls://t@{shown}")).expect("a server");
        "n1.example".clone_into(&mut listed[0].tls_name);
        assert_eq!(listed, [server]);
    }
}

/// An answer of JetStream: nothing counts as stored but an acknowledgement with a
/// sequence, from the stream that was meant; what is read can be written as the
/// server writes it and reads the same.
pub fn answers(data: &[u8]) -> bool {
    let value: Value = serde_json::from_slice(data).unwrap_or(Value::Null);
    [acknowledged(data, &value), stored(data, &value), stream(data)].contains(&true)
}

fn acknowledged(data: &[u8], value: &Value) -> bool {
    let ack = jetstream::ack(data);
    if let Ok((stream, seq)) = &ack {
        assert!(*seq > 0 && value["error"].is_null());
        assert_eq!(value["seq"].as_u64(), Some(*seq));
        let plain = json!({"stream": stream, "seq": seq}).to_string();
        assert_eq!(jetstream::ack(plain.as_bytes()), ack);
    }
    let named = value["stream"].as_str().unwrap_or("KV_locks").to_owned();
    for (stream, replicated) in [("KV_locks", false), ("KV_locks", true), (&*named, true)] {
        let ours = ack.as_ref().is_ok_and(|(owner, _)| owner == stream);
        match answer::written(stream, replicated, data) {
            Written::Stored(revision) => {
                assert!(ours, "stored by another stream");
                assert_eq!(value["seq"].as_u64(), Some(revision.0));
            }
            Written::Moved(revision) => {
                let code = ack.as_ref().map_err(|failure| failure.err_code);
                assert_eq!(code, Err(code::WRONG_LAST));
                assert!(!ours, "moved to {revision:?}, and acknowledged");
            }
            // A refusal is believed only when the server named its reason.
            Written::Denied(StoreError { text, .. }) => {
                let code = ack.as_ref().map_err(|failure| failure.err_code);
                assert!(code.is_err_and(|code| code > 0));
                assert_one_line(&text);
            }
            Written::Unknown(text) => {
                assert!(!ours);
                assert_one_line(&text);
            }
        }
    }
    ack.is_ok()
}

fn stored(data: &[u8], value: &Value) -> bool {
    let subject = value["message"]["subject"].as_str().unwrap_or("$KV.locks.web");
    if let Ok(Some(other)) = jetstream::stored(data, "$KV.locks.other") {
        assert_eq!(subject, "$KV.locks.other", "{other:?}");
    }
    match jetstream::stored(data, subject) {
        Ok(Some(stored)) => {
            assert!(stored.seq > 0 && value["error"].is_null());
            assert!(stored.headers.len() + stored.data.len() <= data.len());
            // There is one way to write a text in base64.
            let coded = |name: &str| value["message"][name].as_str().unwrap_or_default();
            assert_eq!(base64(&stored.headers), coded("hdrs"));
            assert_eq!(base64(&stored.data), coded("data"));
            let message = json!({
                "subject": subject,
                "seq": stored.seq,
                "hdrs": base64(&stored.headers),
                "data": base64(&stored.data),
                "time": humantime::format_rfc3339_nanos(stored.time).to_string(),
            });
            let plain = json!({ "message": message }).to_string();
            let again = jetstream::stored(plain.as_bytes(), subject);
            assert_eq!(again, Ok(Some(stored.clone())));
            assert_eq!(answer::entry(subject, &stored).revision, Revision(stored.seq));
        }
        Ok(None) => {
            assert_eq!(value["error"]["err_code"].as_u64(), Some(code::NO_MESSAGE));
        }
        Err(failure) => {
            assert_one_line(&failure.to_string());
            return false;
        }
    }
    true
}

/// Standard base64 with padding, as the server writes it.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let at = |index: usize| three.get(index).copied().unwrap_or(0);
        let bits = u32::from_be_bytes([0, at(0), at(1), at(2)]);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            out.push(if place > three.len() { '=' } else { char::from(letter) });
        }
    }
    out
}

/// A list of subjects has each of them once, in their order.
fn stream(data: &[u8]) -> bool {
    let info = match jetstream::stream_info(data) {
        Ok(info) => info,
        Err(failure) => {
            assert_one_line(&failure.to_string());
            return false;
        }
    };
    assert!(info.subjects.is_sorted_by(|one, next| one < next));
    let counts: serde_json::Map<_, _> =
        info.subjects.iter().map(|name| (name.clone(), json!(1))).collect();
    let leader = if info.has_leader { "n1" } else { "" };
    let plain = json!({
        "cluster": {"leader": leader, "name": info.cluster, "replicas": []},
        "ts": info.time.map(|time| humantime::format_rfc3339_nanos(time).to_string()),
        "config": info.config,
        "created": info.created,
        "state": {"last_seq": info.last_seq, "subjects": counts},
        "total": counts.len(),
    });
    let again = jetstream::stream_info(plain.to_string().as_bytes());
    // Of a number with a fraction serde_json reads the last digit wrongly now and then.
    assert!(again.as_ref() == Ok(&info) || has_fraction(&info.config), "{again:?} of {info:?}");
    judged(&info);
    true
}

fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(values) => values.iter().any(has_fraction),
        Value::Object(values) => values.values().any(has_fraction),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// A bucket is good enough for a lock only with every property that a lock needs.
fn judged(info: &StreamInfo) {
    let config = &info.config;
    let named = config["name"].as_str().and_then(|name| name.strip_prefix("KV_"));
    let bucket = named.unwrap_or("locks");
    match bucket::check(bucket, config, false) {
        Ok(found) => {
            let is_absent = |field: &str| config[field].is_null();
            let has = |field: &str, default: Value| is_absent(field) || config[field] == default;
            assert!(is_absent("mirror") && is_absent("subject_transform"));
            assert!(has("sources", json!([])));
            assert!(config["storage"] == "file" && config["retention"] == "limits");
            assert!(has("max_age", json!(0)) && has("subject_delete_marker_ttl", json!(0)));
            for field in ["allow_msg_counter", "no_ack", "sealed", "discard_new_per_subject"] {
                assert!(has(field, json!(false)), "{field}");
            }
            assert!(has("persist_mode", json!("default")));
            assert_eq!(config["subjects"], json!([format!("$KV.{bucket}.>")]));
            assert_eq!(config["num_replicas"], found.replicas);
            // The name is the user's own by then, and was checked before.
            found.remarks.iter().for_each(|text| assert_one_line(&text.replace(bucket, "")));
        }
        Err(text) => assert_one_line(&text.replace(bucket, "")),
    }
}
