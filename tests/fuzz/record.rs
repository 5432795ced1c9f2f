//! Records: a token with the headers beside it, as NATS hands them out.

use std::time::{Duration, SystemTime};

use super::Noise;
use crate::core::priority::Priority;
use crate::core::record::{Incarnation, KeyState, KeyValue, Lease, Record, RecordState, Revision};
use crate::core::sanitize;
use crate::core::timing::{COUNT_MAX, R_MAX};
use crate::nats::decode::{Decoder, ServerOp};
use crate::nats::jetstream::Stored;
use crate::nats::{Headers, encode};
use crate::store::Entry;
use crate::store::lock_key::{to_content, to_key_state};
use crate::store::nats::answer;
use crate::store::nats::write::sendable;
use crate::store::record;

const STREAM: &str = "KV_locks";
const SUBJECT: &str = "$KV.locks.web";
/// The headers that a server adds to a message that it hands out.
const ADDED: [(&str, &str); 3] =
    [("Nats-Stream", STREAM), ("Nats-Subject", SUBJECT), ("Nats-Sequence", "7")];

/// A header block with the value behind it, as a server hands it out: what is taken
/// for a record can be written and is then read the same; nothing in the block can
/// stand for what the server says itself.
pub fn record(data: &[u8]) -> bool {
    let end = data.windows(4).position(|four| four == b"\r\n\r\n");
    let (block, payload) = data.split_at(end.map_or(data.len(), |at| at + 4));
    let headers = Headers::parse(block);
    super::wire::look_into(&headers);
    let read = handed_out(&headers, block, payload);
    nothing_is_forged(block);
    let lease = invented(data);
    let token = String::from_utf8_lossy(payload).into_owned();
    survives(&Record { token, lease: Some(lease) });
    read
}

/// Returns whether it was a record of ours.
fn handed_out(headers: &Headers, block: &[u8], payload: &[u8]) -> bool {
    let stream = headers.iter().filter(|field| field.0 == "Nats-Stream").last();
    let stream = stream.map_or(STREAM, |field| field.1).to_owned();
    if let Some((_, revision)) = answer::hint(headers, &stream) {
        assert!(revision > Revision(0));
        assert_eq!(answer::hint(headers, &format!("{stream}x")), None);
    }
    let key_state = read_at_7(block, payload);
    if let KeyValue::Record(record) = key_state.value {
        assert!(record.token.len() <= 3 * payload.len());
        survives(&record);
        return record.lease.is_some();
    }
    false
}

/// Reads a message as the leader hands it out, with the sequence 7.
fn read_at_7(block: &[u8], payload: &[u8]) -> KeyState {
    let stored = Stored {
        seq: 7,
        headers: block.to_vec(),
        data: payload.to_vec(),
        time: SystemTime::UNIX_EPOCH,
    };
    let key_state = to_key_state(Some(answer::entry(SUBJECT, &stored)));
    assert_eq!(key_state.revision, Revision(7));
    key_state
}

/// A record that was read, or made up, can be written and is read the same.
fn survives(record: &Record) {
    let again = read_back(record);
    let told = |text: &str| answer::printable(text);
    let expected = Record {
        token: record.token.clone(),
        lease: record.lease.clone().map(|lease| Lease {
            host: told(&lease.host),
            boot: told(&lease.boot),
            ..lease
        }),
    };
    assert_eq!(again, expected);
    if let Some(lease) = &again.lease {
        assert!(lease.renewal <= R_MAX && lease.grace <= R_MAX * COUNT_MAX);
        assert!(lease.failures <= COUNT_MAX && lease.confirmations <= COUNT_MAX);
        let headers = record::to_headers(lease);
        let find = |name: &str| headers.iter().find(|header| header.0 == name);
        let same = record::from_headers(|name| find(name).map(|header| header.1.as_str()));
        assert_eq!(same.as_ref(), Some(lease));
    }
}

/// Publishes a record and reads it as a server hands it out.
fn read_back(record: &Record) -> Record {
    let content = to_content(record);
    let mut headers = sendable(&content);
    headers.extend(ADDED);
    let token = record.token.as_bytes();
    let written = encode::publish(SUBJECT, None, &headers, token);
    let (out, _) = written.expect("a record can always be written");
    let delivered = [b"HMSG $KV.locks.web 1 ", &out[b"HPUB $KV.locks.web ".len()..]].concat();
    let mut decoder = Decoder::default();
    decoder.feed(&delivered).expect("it fits");
    let Ok(Some(ServerOp::Msg { message, .. })) = decoder.next() else {
        panic!("{record:?} is no message");
    };
    let content = answer::content(&message.headers, &message.payload);
    let entry = Entry { key: "web".to_owned(), revision: Revision(7), content, age: None };
    let key_state = to_key_state(Some(entry));
    let KeyState { revision: Revision(7), value: KeyValue::Record(record) } = key_state else {
        panic!("{record:?} became {key_state:?}");
    };
    record
}

/// A user who may write a key may send any header, the server's own names too. The server adds its
/// own headers behind them, and those count.
fn nothing_is_forged(block: &[u8]) {
    let text = String::from_utf8_lossy(block);
    let mut forged = "NATS/1.0\r\n".to_owned();
    for line in text.lines().skip(1).filter(|line| !line.is_empty()) {
        forged.push_str(line);
        forged.push_str("\r\n");
    }
    for (name, value) in ADDED {
        forged.push_str(&format!("{name}: {value}\r\n"));
    }
    let headers = Headers::parse((forged + "\r\n").as_bytes());
    let hint = Some((SUBJECT, Revision(7)));
    assert_eq!(answer::hint(&headers, STREAM), hint);
}

/// Returns a lease that an agent could have, made of what stands in `data`.
pub(super) fn invented(data: &[u8]) -> Lease {
    let mut noise = Noise::of(data);
    let mut below = |limit: u64| noise.number() % limit;
    let text = String::from_utf8_lossy(data);
    let middle = text.chars().count() / 2;
    let (host, boot): (String, String) =
        (text.chars().take(middle).collect(), text.chars().skip(middle).collect());
    Lease {
        incarnation: Incarnation(u128::from(below(u64::MAX)) << 64 | u128::from(below(u64::MAX))),
        nonce: below(u64::MAX),
        host,
        boot: sanitize(&boot),
        renewal: Duration::from_millis(below(60_001)),
        failures: u32::try_from(below(101)).unwrap_or(0),
        confirmations: u32::try_from(below(101)).unwrap_or(0),
        grace: Duration::from_millis(below(6_000_001)),
        term: Some(Revision(below(u64::MAX))).filter(|term| term.0 % 3 > 0),
        state: [RecordState::Taking, RecordState::Active, RecordState::Released]
            [usize::try_from(below(3)).unwrap_or(0)],
        priority: Priority::of(u8::try_from(below(17)).unwrap_or(0)).unwrap_or(Priority::Never),
        released_to: Some(sanitize(&text).trim().to_owned()).filter(|token| !token.is_empty()),
    }
}
