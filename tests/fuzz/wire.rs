//! The protocol of NATS: what comes in, however it is cut, and what goes out.

use serde_json::Value;

use super::Noise;
use crate::nats::decode::{
    BUFFER_BYTES_MAX, Decoder, LINE_BYTES_MAX, MESSAGE_BYTES_MAX, Message, OVERFLOW, ProtocolError,
    READ_BYTES_MAX, ServerOp,
};
use crate::nats::{Headers, Login, Secret, encode};

/// The result of a stream of bytes: the operations, and the error that ended it.
type Outcome = (Vec<ServerOp>, Option<ProtocolError>);

/// Bytes from a server: the result does not depend on how they were cut, memory
/// follows what came and never what was announced, an error is final, and every
/// operation means the same when it is written again as a server writes it.
pub fn decoder(data: &[u8]) -> bool {
    let whole = decode(data, |_| READ_BYTES_MAX);
    assert_eq!(decode(data, |_| 1), whole, "byte by byte");
    let mut noise = Noise::of(data);
    // The filler is a MiB.
    if whole.1.is_none() && (data.len() < 24 || noise.below(64) == 0) {
        comes_to_an_end(data);
    }
    for longest in [8, 200, READ_BYTES_MAX] {
        let cut = decode(data, |_| 1 + noise.below(longest));
        assert_eq!(cut, whole, "cut into at most {longest}");
    }
    for op in &whole.0 {
        let (line, content) = written(op);
        // Bytes that were no text take more room as text, and then the line may be too long.
        if line.len() > LINE_BYTES_MAX && !matches!(op, ServerOp::Info(_)) {
            continue;
        }
        let mut again = [line.as_bytes(), b"\r\n", &content].concat();
        let (ops, error) = decode(&again, |_| READ_BYTES_MAX);
        assert_eq!(error, None, "{op:?} written again");
        assert!(ops.len() == 1, "{op:?} became {ops:?}");
        assert_same(op, &ops[0]);
        if let Some(end) = again.len().checked_sub(2).filter(|_| !content.is_empty()) {
            again[end..].copy_from_slice(b"\rx");
            let (_, error) = decode(&again, |_| READ_BYTES_MAX);
            assert!(error.is_some(), "{op:?} without its end");
        }
    }
    !whole.0.is_empty()
}

/// Feeds `data` in pieces, the next as long as `piece` says.
fn decode(data: &[u8], mut piece: impl FnMut(usize) -> usize) -> Outcome {
    let mut decoder = Decoder::default();
    let (mut ops, mut fed) = (Vec::new(), 0);
    while fed < data.len() {
        let end = (fed + piece(fed)).min(data.len());
        let taken = decoder.feed(&data[fed..end]);
        fed = end;
        let error = taken.and_then(|()| drain(&mut decoder, &mut ops, fed));
        if let Err(error) = error {
            // Nothing after an error can be trusted.
            assert_eq!(decoder.feed(b"PING\r\n"), Err(error.clone()));
            assert_eq!(decoder.next(), Err(error.clone()));
            assert_eq!(decoder.held_bytes(), 0);
            return (ops, Some(error));
        }
    }
    (ops, None)
}

/// After any bytes there is an end to waiting for the rest: as much as a message may have is an
/// operation, is skipped, or is refused, and never more than there is room for.
fn comes_to_an_end(data: &[u8]) {
    let filler = vec![b'x'; MESSAGE_BYTES_MAX + 2 * READ_BYTES_MAX];
    let (mut decoder, mut fed) = (Decoder::default(), 0);
    let error = [data, &filler].concat().chunks(READ_BYTES_MAX).find_map(|piece| {
        fed += piece.len();
        let taken = decoder.feed(piece);
        taken.and_then(|()| drain(&mut decoder, &mut Vec::new(), fed)).err()
    });
    assert!(error.is_some() || decoder.is_skipping(), "it waits on");
    assert_ne!(error.as_deref(), Some(OVERFLOW));
}

impl Decoder {
    /// Returns whether bytes of a message are still to be skipped.
    fn is_skipping(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.surplus > 0)
    }

    /// Returns the capacity of the buffer in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.buffer.capacity()
    }
}

fn drain(decoder: &mut Decoder, ops: &mut Vec<ServerOp>, fed: usize) -> Result<(), ProtocolError> {
    loop {
        let held = decoder.held_bytes();
        assert!(held <= BUFFER_BYTES_MAX, "{held} bytes held");
        assert!(held <= 2 * fed, "{held} bytes held for {fed}");
        match decoder.next()? {
            Some(op) => ops.push(checked(op, fed)),
            None => return Ok(()),
        }
    }
}

/// Checks that an operation is no larger than what it was made of.
fn checked(op: ServerOp, fed: usize) -> ServerOp {
    match &op {
        ServerOp::Info(json) => assert!(json.len() <= fed),
        // A byte that is not text becomes three.
        ServerOp::Err(text) => {
            assert!(text.len() <= 3 * fed);
            super::assert_one_line(text);
        }
        ServerOp::Msg { message, .. } => {
            assert!(message.weight() <= size_of::<Message>() + 3 * fed);
            look_into(&message.headers);
        }
        ServerOp::Ping | ServerOp::Pong | ServerOp::Ok => {}
    }
    op
}

/// Asks a header block for all that it can be asked for.
pub(super) fn look_into(headers: &Headers) {
    assert!(headers.status().is_none_or(|status| status <= 999));
    for (name, value) in headers.iter() {
        assert!(!name.is_empty() && !name.contains([':', '\n']), "{name:?}");
        assert!(!value.contains('\n'), "{value:?}");
    }
}

/// Returns an operation as a server writes it: its line, and what follows it.
fn written(op: &ServerOp) -> (String, Vec<u8>) {
    let whole = |line: String| (line, Vec::new());
    let (verb, sid, message, block) = match op {
        ServerOp::Info(json) => return whole(format!("INFO {json} ")),
        ServerOp::Ping => return whole("PING".to_owned()),
        ServerOp::Pong => return whole("PONG".to_owned()),
        ServerOp::Ok => return whole("+OK".to_owned()),
        ServerOp::Err(text) => return whole(format!("-ERR '{text}'")),
        ServerOp::Msg { sid, message } if message.headers == Headers::default() => {
            ("MSG", sid, message, None)
        }
        ServerOp::Msg { sid, message } => ("HMSG", sid, message, Some(block(&message.headers))),
    };
    let block_bytes = block.as_ref().map(|block| format!("{} ", block.len()));
    let content = [block.unwrap_or_default().as_bytes(), &message.payload].concat();
    let line = format!(
        "{verb} {} {sid} {}{}{}",
        message.subject,
        message.reply.as_ref().map(|reply| format!("{reply} ")).unwrap_or_default(),
        block_bytes.unwrap_or_default(),
        content.len()
    );
    (line, [&content[..], b"\r\n"].concat())
}

/// Returns a header block with the same status and fields.
fn block(headers: &Headers) -> String {
    let mut block = "NATS/1.0".to_owned();
    if let Some(status) = headers.status() {
        block.push_str(&format!(" {status:03}"));
    }
    block.push_str("\r\n");
    for (name, value) in headers.iter() {
        block.push_str(&format!("{name}: {value}\r\n"));
    }
    block + "\r\n"
}

fn assert_same(one: &ServerOp, other: &ServerOp) {
    let (ServerOp::Msg { sid, message }, ServerOp::Msg { sid: id, message: again }) = (one, other)
    else {
        assert_eq!(one, other);
        return;
    };
    assert_eq!(sid, id);
    assert_eq!(message.subject, again.subject);
    assert_eq!(message.reply, again.reply);
    assert_eq!(message.payload, again.payload);
    assert_eq!(message.headers.status(), again.headers.status());
    let fields = |message: &Message| {
        let fields = message.headers.iter();
        let owned = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        owned.collect::<Vec<_>>()
    };
    assert_eq!(fields(message), fields(again));
}

/// `subject|reply|name=value|...||payload`, to be published: it is refused and
/// nothing is written, or a server reads one frame with exactly this in it.
pub fn frames(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let (head, payload) = text.split_once("||").unwrap_or((&text, ""));
    let mut parts = head.split('|');
    let subject = parts.next().unwrap_or_default();
    let reply = parts.next().filter(|reply| !reply.is_empty());
    let headers: Vec<(&str, &str)> =
        parts.map(|part| part.split_once('=').unwrap_or((part, ""))).collect();
    subscribe(subject);
    connect(subject, payload);
    publish(subject, reply, &headers, payload.as_bytes())
}

fn publish(subject: &str, reply: Option<&str>, headers: &[(&str, &str)], payload: &[u8]) -> bool {
    let (out, total) = match encode::publish(subject, reply, headers, payload) {
        Ok(encoded) => encoded,
        Err(error) => {
            super::assert_one_line(&error.to_string());
            return false;
        }
    };
    let line_end = out.windows(2).position(|two| two == b"\r\n");
    let (line, rest) = out.split_at(line_end.expect("a line"));
    assert!(line.len() <= encode::LINE_BYTES_MAX);
    let line = str::from_utf8(line).expect("text");
    assert_eq!(rest.len(), 2 + total + 2, "the size that the server counts");
    assert!(rest.ends_with(b"\r\n"));
    let target = [Some(subject), reply].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let fields = line.split_once(' ').expect("fields").1;
    let sizes = fields.strip_prefix(&target).expect("subject and reply");
    assert!(sizes.bytes().all(|byte| byte == b' ' || byte.is_ascii_digit()), "{line}");
    // A server delivers what it was given, with the subscription's number.
    let delivery = match line.strip_prefix("HPUB ") {
        Some(rest) => format!("HMSG {}", rest.replacen(' ', " 7 ", 1)),
        None => line.replacen(' ', " 7 ", 2).replacen("PUB 7 ", "MSG ", 1),
    };
    let delivery = [delivery.as_bytes(), rest].concat();
    let (mut ops, error) = decode(&delivery, |_| READ_BYTES_MAX);
    if line.len() + 2 > LINE_BYTES_MAX || total > MESSAGE_BYTES_MAX {
        return true;
    }
    assert_eq!((ops.len(), error), (1, None), "{line}");
    let Some(ServerOp::Msg { sid, message }) = ops.pop() else {
        panic!("{line}: not a message");
    };
    assert_eq!(sid, 7);
    assert_eq!(message.subject, subject);
    assert_eq!(message.payload, payload);
    assert!(message.headers.iter().eq(headers.iter().copied()));
    // The server takes an empty expected sequence for an unconditional write.
    assert!(message.headers.iter().all(|(_, value)| !value.is_empty()));
    true
}

fn subscribe(subject: &str) {
    match encode::sub(subject, 7) {
        Ok(frame) => {
            assert_eq!(frame, format!("SUB {subject} 7\r\n"));
            assert!(!subject.contains(char::is_whitespace));
        }
        Err(error) => super::assert_one_line(&error.to_string()),
    }
}

fn connect(name: &str, password: &str) {
    let word = Secret::Given(password.to_owned());
    let login = Login::User { name: name.to_owned(), password: word };
    let credentials = login.read().expect("nothing to read");
    let text = encode::connect(name, false, &credentials, None).expect("no key to sign with");
    let json = text.strip_prefix("CONNECT ").and_then(|rest| rest.strip_suffix("\r\n"));
    let json = json.expect("one line");
    super::assert_one_line(&json.replace('\u{7f}', "").replace(|c| c >= '\u{80}', ""));
    let value: Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(value["name"].as_str(), Some(name));
    assert_eq!(value["user"].as_str(), Some(name));
    assert_eq!(value["pass"].as_str(), Some(password));
}
