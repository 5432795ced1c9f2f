//! The decoder against what real servers sent, whole and cut anywhere.

use std::fs;
use std::path::Path;

use super::*;
use crate::nats::info::ServerInfo;

/// A recorded conversation: what the server sent, and the operations in it.
struct Transcript {
    name: String,
    bytes: Vec<u8>,
    verbs: String,
}

/// Reads `tests/transcripts/*.txt`: `# comment`, `C: line of the client`, `S: line
/// of the server`, and `V: verbs of all that the server sent`. Lines are escaped.
fn transcripts() -> Vec<Transcript> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut all = Vec::new();
    for entry in fs::read_dir(place).expect("the transcripts") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let (mut bytes, mut verbs) = (Vec::new(), String::new());
        for line in fs::read_to_string(&path).expect("text").lines() {
            match line.split_at(line.len().min(3)) {
                ("S: ", text) => bytes.extend(unescape(text)),
                ("V: ", text) => verbs.push_str(text),
                ("C: ", _) => {}
                _ => assert!(line.starts_with("# "), "{name}: {line}"),
            }
        }
        all.push(Transcript { name, bytes, verbs });
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(all.len() >= 7, "only {} transcripts", all.len());
    all
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next().expect("an escape") {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'\\' => b'\\',
            b'x' => {
                let digits = [rest.next().expect("a digit"), rest.next().expect("a digit")];
                let digits = str::from_utf8(&digits).expect("ASCII");
                u8::from_str_radix(digits, 16).expect("hexadecimal")
            }
            other => panic!("escape {other}"),
        });
    }
    bytes
}

/// Takes out all there is, up to the first error.
fn drain(decoder: &mut Decoder, ops: &mut Vec<ServerOp>) -> Result<(), ProtocolError> {
    while let Some(op) = decoder.next()? {
        ops.push(op);
    }
    Ok(())
}

/// Decodes the pieces in turn, as a link would.
fn decode_in(pieces: &[&[u8]]) -> Result<Vec<ServerOp>, ProtocolError> {
    let (mut decoder, mut ops) = (Decoder::default(), Vec::new());
    for piece in pieces.iter().flat_map(|piece| piece.chunks(READ_BYTES_MAX)) {
        decoder.feed(piece)?;
        drain(&mut decoder, &mut ops)?;
    }
    Ok(ops)
}

fn decode(bytes: &[u8]) -> Result<Vec<ServerOp>, ProtocolError> {
    decode_in(&[bytes])
}

fn one(text: &str) -> ServerOp {
    let mut ops = decode(text.as_bytes()).expect("valid");
    assert_eq!(ops.len(), 1, "{ops:?}");
    ops.remove(0)
}

fn verb(op: &ServerOp) -> &'static str {
    match op {
        ServerOp::Info(_) => "INFO",
        ServerOp::Msg { message, .. } if message.headers != Headers::default() => "HMSG",
        ServerOp::Msg { .. } => "MSG",
        ServerOp::Ping => "PING",
        ServerOp::Pong => "PONG",
        ServerOp::Ok => "+OK",
        ServerOp::Err(_) => "-ERR",
    }
}

#[test]
fn transcripts_decode_to_what_is_in_them() {
    for transcript in transcripts() {
        let name = &transcript.name;
        let ops = decode(&transcript.bytes).expect(name);
        let verbs: Vec<&str> = ops.iter().map(verb).collect();
        assert_eq!(verbs.join(" "), transcript.verbs, "{name}");
    }
}

#[test]
fn recorded_infos_say_who_and_when_to_leave() {
    for transcript in transcripts() {
        let name = &transcript.name;
        let mut infos = Vec::new();
        for op in decode(&transcript.bytes).expect(name) {
            if let ServerOp::Info(json) = op {
                infos.push(ServerInfo::parse(&json, "h:1").expect(name));
            }
        }
        assert!(infos.iter().all(|info| name.contains(&info.version) && info.headers), "{name}");
        let lame = infos.last().is_some_and(|info| info.lame_duck);
        assert_eq!(lame, name.starts_with("cluster"), "{name}");
        let others = infos.iter().any(|info| !info.connect_urls.is_empty());
        assert_eq!(others, name.starts_with("cluster"), "{name}");
    }
}

#[test]
fn every_split_of_every_transcript_decodes_to_the_same() {
    for transcript in transcripts() {
        let (name, bytes) = (&transcript.name, &transcript.bytes);
        let whole = decode(bytes).expect(name);
        for at in 0..=bytes.len() {
            let (before, after) = bytes.split_at(at);
            assert_eq!(decode_in(&[before, after]).expect(name), whole, "{name} at {at}");
        }
        for size in [1, 2, 3, 7, 64] {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            assert_eq!(decode_in(&pieces).expect(name), whole, "{name} by {size}");
        }
    }
}

#[test]
fn a_message_in_all_its_forms() {
    for text in ["MSG a.b 7 2\r\nhi\r\n", "msg\ta.b \t 7  2 \r\nhi\r\n", "MsG a.b 7 2\nhi\r\n"] {
        let ServerOp::Msg { sid, message } = one(text) else {
            panic!("{text:?}");
        };
        assert_eq!((sid, message.subject.as_str(), message.reply), (7, "a.b", None));
        assert_eq!(message.headers, Headers::default());
        assert_eq!(message.payload, b"hi");
    }
    let text = "HMSG a 18446744073709551615 rep.ly 18  24\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\nho\r\n";
    let ServerOp::Msg { sid, message } = one(text) else {
        panic!("no message");
    };
    assert_eq!((sid, message.reply.as_deref()), (u64::MAX, Some("rep.ly")));
    assert_eq!(message.headers.get("A"), Some("b"));
    assert_eq!(message.payload, b"hi\r\nho");
    let ops =
        decode(b"PING\r\npong \r\n+ok\r\n-ERR 'Stale Connection'\r\nINFO {} \r\nMSG a 1 0\r\n\r\n");
    let ops = ops.expect("valid");
    assert_eq!(
        ops[..4],
        [
            ServerOp::Ping,
            ServerOp::Pong,
            ServerOp::Ok,
            ServerOp::Err("Stale Connection".to_owned()),
        ]
    );
    assert_eq!(ops[4], ServerOp::Info("{}".to_owned()));
    assert_eq!(verb(&ops[5]), "MSG");
}

#[test]
fn a_subject_that_is_not_text_is_no_error() {
    let ops = decode(b"MSG a.\xff 1 1\r\nx\r\n-ERR '\xff\x07'\r\n").expect("valid");
    assert_eq!(ops[1], ServerOp::Err("\u{fffd}?".to_owned()));
}

#[test]
fn what_no_server_sends() {
    for text in [
        "\r\n",
        "HTTP/1.1 400 Bad Request\r\n",
        "PINGPONG\r\n",
        "MSG\r\n",
        "MSG a 1\r\n",
        "MSG a 1 b c 2\r\n",
        "MSG a x 2\r\n",
        "MSG a -1 2\r\n",
        "MSG a 1 -2\r\n",
        "MSG a 1 +2\r\n",
        "MSG a 1 2x\r\n",
        "MSG a 1 99999999999999999999\r\n",
        "MSG a 99999999999999999999 1\r\n",
        "MSG a 1 2\r\nhi!\r\n",
        "MSG a 1 2\r\nhi\n\r",
        "HMSG a 1 2\r\n",
        "HMSG a 1 3 2\r\n",
        "HMSG a 1 b c 2 2\r\n",
        "\u{16}\u{3}\u{1}\r\n",
    ] {
        let error = decode(text.as_bytes()).expect_err(text);
        assert!(!error.to_string().contains(char::is_control), "{error}");
    }
    assert!(decode(b"INFO \xff\r\n").is_err());
}

#[test]
fn an_error_is_final() {
    let mut decoder = Decoder::default();
    decoder.feed(b"PING\r\nNONSENSE\r\nPING\r\n").expect("room");
    assert_eq!(decoder.next(), Ok(Some(ServerOp::Ping)));
    let error = decoder.next().expect_err("nonsense");
    assert_eq!(decoder.next(), Err(error.clone()));
    assert_eq!(decoder.feed(b"PING\r\n"), Err(error));
    assert_eq!(decoder.held_bytes(), 0);
}

#[test]
fn lines_up_to_their_limit_whatever_the_split() {
    for (verb, limit) in [("-ERR ", LINE_BYTES_MAX), ("INFO ", INFO_LINE_BYTES_MAX)] {
        for end in ["\r\n", "\n"] {
            let fits = format!("{verb}{}{end}", "x".repeat(limit - verb.len()));
            let too_long = format!("{verb}{}{end}", "x".repeat(limit + 1 - verb.len()));
            for size in [1000, READ_BYTES_MAX, limit, limit + 1, limit + 2] {
                let pieces: Vec<&[u8]> = fits.as_bytes().chunks(size).collect();
                assert!(decode_in(&pieces).is_ok(), "{verb} by {size}");
                let pieces: Vec<&[u8]> = too_long.as_bytes().chunks(size).collect();
                assert_eq!(decode_in(&pieces), Err(malformed(LINE_TOO_LONG)), "{verb} by {size}");
            }
        }
        let endless = format!("{verb}{}", "x".repeat(limit + 2));
        assert_eq!(decode(endless.as_bytes()), Err(malformed(LINE_TOO_LONG)));
    }
}

#[test]
fn messages_up_to_their_limit() {
    let text = |size: usize| format!("MSG a 1 {size}\r\n{}\r\nPING\r\n", "x".repeat(size));
    for size in [MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX + 1, 3 * MESSAGE_BYTES_MAX] {
        for piece in [1000, READ_BYTES_MAX] {
            let text = text(size);
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(piece).collect();
            let ops = decode_in(&pieces).expect("valid");
            let [ServerOp::Msg { message, .. }, ServerOp::Ping] = &ops[..] else {
                panic!("{} operations", ops.len());
            };
            assert_eq!(message.payload.len(), MESSAGE_BYTES_MAX, "of {size} by {piece}");
        }
    }
    for size in ["134217729", "4294967295", "18446744073709551615"] {
        for line in [format!("MSG a 1 {size}\r\n"), format!("HMSG a 1 {size} {size}\r\n")] {
            let mut decoder = Decoder::default();
            decoder.feed(line.as_bytes()).expect("room");
            let error = decoder.next().expect_err("too large");
            assert_eq!(error, "a message is larger than the limit of 134217728 bytes");
        }
    }
}

#[test]
fn memory_is_given_back_and_never_more_than_the_bound() {
    let (mut decoder, mut ops) = (Decoder::default(), Vec::new());
    let size = 2 * MESSAGE_BYTES_MAX;
    let text = format!("MSG a 1 {size}\r\n{}\r\n", "x".repeat(size));
    let mut most = 0;
    for piece in text.as_bytes().chunks(READ_BYTES_MAX) {
        decoder.feed(piece).expect("room");
        most = most.max(decoder.held_bytes());
        drain(&mut decoder, &mut ops).expect("valid");
    }
    assert!(most > MESSAGE_BYTES_MAX && most <= BUFFER_BYTES_MAX, "{most}");
    assert!(decoder.held_bytes() <= IDLE_BYTES_MAX, "{}", decoder.held_bytes());

    let mut decoder = Decoder::default();
    let piece = b"PING\r\n".repeat(2000);
    let fed = (0..1000).find_map(|_| decoder.feed(&piece).err());
    assert_eq!(fed, Some(OVERFLOW.to_owned()), "nothing was taken out");
}
