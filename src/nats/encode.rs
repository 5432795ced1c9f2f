//! Encodes operations. A subject, name or value that could begin another line is an error.

use serde_json::json;

use super::auth::Credentials;

/// Longest line that is sent, without its end: the server's default limit, above
/// which it closes the connection.
pub(crate) const LINE_BYTES_MAX: usize = 4096;

pub(super) const PING: &[u8] = b"PING\r\n";

pub(super) const PONG: &[u8] = b"PONG\r\n";

/// The reason why an operation cannot be sent, in one printable line without payload or value.
pub(crate) type EncodeError = String;

/// `CONNECT <json>\r\n`
///
/// `verbose` and `pedantic` are sent as false because the server takes a missing
/// `verbose` for true. `nonce` is the text that the server wants signed.
///
/// # Errors
///
/// When the server and the credentials do not go together.
pub(crate) fn connect(
    name: &str,
    tls: bool,
    credentials: &Credentials,
    nonce: Option<&str>,
) -> Result<String, &'static str> {
    let mut options = json!({
        "verbose": false,
        "pedantic": false,
        "lang": "rust",
        "version": env!("CARGO_PKG_VERSION"),
        "protocol": 1,
        "headers": true,
        "no_responders": true,
        "echo": true,
        "name": name,
        "tls_required": tls,
    });
    credentials.add_to(&mut options, nonce)?;
    // JSON escapes every control character, so the line ends where it should.
    Ok(format!("CONNECT {options}\r\n"))
}

/// `SUB <subject> <sid>\r\n`; elements of the subject but the first may be wildcards.
pub(crate) fn sub(subject: &str, sid: u64) -> Result<String, EncodeError> {
    let whole = subject.strip_suffix(".>").unwrap_or(subject);
    let (first, rest) = whole.split_once('.').unzip();
    let plain = rest.into_iter().flat_map(|rest| rest.split('.')).filter(|it| *it != "*");
    let plain: Vec<_> = [first.unwrap_or(whole)].into_iter().chain(plain).collect();
    check_subject(&plain.join("."))?;
    line(format!("SUB {subject} {sid}"))
}

/// `UNSUB <sid>\r\n`
pub(crate) fn unsub(sid: u64) -> String {
    format!("UNSUB {sid}\r\n")
}

/// `PUB <subject> [reply-to] <#bytes>\r\n[payload]\r\n`, or with headers
/// `HPUB <subject> [reply-to] <#header bytes> <#total bytes>\r\n[headers]\r\n\r\n[payload]\r\n`
///
/// Returns the frame, and the size that the server counts: headers and payload, in bytes.
pub(crate) fn publish(
    subject: &str,
    reply: Option<&str>,
    headers: &[(&str, &str)],
    payload: &[u8],
) -> Result<(Vec<u8>, usize), EncodeError> {
    check_subject(subject)?;
    let mut target = subject.to_owned();
    if let Some(reply) = reply {
        check_subject(reply)?;
        target.extend([" ", reply]);
    }
    let block = if headers.is_empty() { String::new() } else { header_block(headers)? };
    let total = block.len() + payload.len();
    let line = match block.len() {
        0 => line(format!("PUB {target} {total}"))?,
        length => line(format!("HPUB {target} {length} {total}"))?,
    };
    Ok(([line.as_bytes(), block.as_bytes(), payload, b"\r\n"].concat(), total))
}

/// Writes the header block. A name is visible ASCII without a colon. A value has no control
/// character, and no outer blanks, which would not survive.
///
/// An empty value is refused because the server takes an empty expected sequence for an
/// unconditional write.
fn header_block(headers: &[(&str, &str)]) -> Result<String, EncodeError> {
    let mut block = "NATS/1.0\r\n".to_owned();
    for (name, value) in headers {
        let visible = |byte: u8| byte.is_ascii_graphic() && byte != b':';
        if name.is_empty() || !name.bytes().all(visible) {
            return Err(format!("'{}' is not a header name", name.escape_debug()));
        }
        if value.is_empty() || value.trim() != *value || value.contains(char::is_control) {
            return Err(format!("header {name}: not a header value"));
        }
        block.extend([name, ": ", value, "\r\n"]);
    }
    block.push_str("\r\n");
    Ok(block)
}

/// Returns a subject if it is valid, for itself or as a prefix: the server swallows a publish to
/// another one silently.
pub(crate) fn valid_subject(text: &str) -> Result<String, &'static str> {
    let bad = |letter: char| letter.is_whitespace() || letter.is_control() || "*>".contains(letter);
    if text.split('.').any(str::is_empty) {
        return Err("is not a subject: there must be something around each dot");
    }
    match text.contains(bad) {
        true => Err("is not a subject: it has a blank or a wildcard"),
        false => Ok(text.to_owned()),
    }
}

fn check_subject(subject: &str) -> Result<(), EncodeError> {
    let refuse = |_| format!("'{}' is not a subject", subject.escape_debug());
    valid_subject(subject).map(drop).map_err(refuse)
}

fn line(text: String) -> Result<String, EncodeError> {
    match text.len() > LINE_BYTES_MAX {
        true => Err(format!("a subject makes the line longer than {LINE_BYTES_MAX} bytes")),
        false => Ok(text + "\r\n"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::nats::auth::{Login, Secret};

    fn text(published: Result<(Vec<u8>, usize), EncodeError>) -> Result<String, EncodeError> {
        published.map(|(frame, _)| String::from_utf8(frame).expect("these frames are text"))
    }

    #[test]
    fn frames() {
        let frame = |reply, headers, payload| {
            text(publish("$KV.locks.b", reply, headers, payload)).expect("valid")
        };
        assert_eq!(frame(None, &[], b"v1"), "PUB $KV.locks.b 2\r\nv1\r\n");
        assert_eq!(frame(Some("_INBOX.x.1"), &[], b""), "PUB $KV.locks.b _INBOX.x.1 0\r\n\r\n");
        assert_eq!(
            frame(Some("in.1"), &[("Nats-Expected-Last-Subject-Sequence", "0")], b"v1"),
            "HPUB $KV.locks.b in.1 52 54\r\nNATS/1.0\r\n\
             Nats-Expected-Last-Subject-Sequence: 0\r\n\r\nv1\r\n"
        );
        assert_eq!(sub("_INBOX.x.*", 7), Ok("SUB _INBOX.x.* 7\r\n".to_owned()));
        assert_eq!([PING, PONG].concat(), b"PING\r\nPONG\r\n");
    }

    #[test]
    fn connect_is_one_line_whatever_is_in_it() {
        let password = Secret::Given("p\"\\\n".to_owned());
        let login = Login::User { name: "u\r\nPUB x 0".to_owned(), password };
        let credentials = login.read().expect("nothing to read");
        let text = connect("putex\r\n", false, &credentials, None).expect("no key to sign with");
        let json = text.strip_prefix("CONNECT ").and_then(|rest| rest.strip_suffix("\r\n"));
        let json = json.expect("prefix and line end");
        assert!(!json.contains(['\r', '\n']));
        let value: Value = serde_json::from_str(json).expect("valid JSON");
        assert_eq!(value["user"], "u\r\nPUB x 0");
        assert_eq!(value["pass"], "p\"\\\n");
        assert_eq!(value["name"], "putex\r\n");
        assert_eq!(value["verbose"], false);
        assert_eq!(value["headers"], true);
        assert_eq!(value["no_responders"], true);
        assert_eq!(value["protocol"], 1);
        assert!(value.get("auth_token").is_none());
    }

    #[test]
    fn subjects() {
        let long = "a".repeat(LINE_BYTES_MAX);
        for bad in ["", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\r\nb", "a\0b", "a\u{a0}b"] {
            assert!(text(publish(bad, None, &[], b"")).is_err(), "{bad:?}");
            assert!(text(publish("a", Some(bad), &[], b"")).is_err(), "{bad:?}");
            assert!(sub(bad, 1).is_err(), "{bad:?}");
        }
        for wild in ["*", ">", "*.b", ">.a", "a*b.c>", "a.>.b", "a.*b", "a.*", "a.>", "a.*.b"] {
            assert!(text(publish(wild, None, &[], b"")).is_err(), "{wild:?}");
            let is_sound = ["a.*", "a.>", "a.*.b"].contains(&wild);
            assert_eq!(sub(wild, 1).is_ok(), is_sound, "{wild:?}");
        }
        let too_long = text(publish(&long, None, &[("A", "b")], b""));
        let refused = Err("a subject makes the line longer than 4096 bytes".to_owned());
        assert_eq!(too_long, refused);
    }

    #[test]
    fn headers() {
        let with = |name, value| text(publish("a", None, &[(name, value)], b""));
        assert!(with("A-b_1", "any: thing, \u{e9}").is_ok());
        for name in ["", "a b", "a:", "a\r\nb", "a\n", "\u{e9}", "a\t"] {
            let refused = Err(format!("'{}' is not a header name", name.escape_debug()));
            assert_eq!(with(name, "v"), refused);
        }
        for value in ["", " ", "a\r\nB: c", "a\n", "\r", "a\0", " a", "a ", "a\u{85}b"] {
            let refused = Err("header A: not a header value".to_owned());
            assert_eq!(with("A", value), refused, "{value:?}");
        }
    }

    #[test]
    fn errors_are_one_printable_line() {
        let error = sub("a\r\nb", 1).expect_err("refused");
        assert_eq!(error, "'a\\r\\nb' is not a subject");
    }
}
