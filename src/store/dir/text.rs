//! The names of the files of a bucket's folder, and their content. Pure.

use std::num::NonZeroU64;
use std::str::FromStr;

use crate::core::Revision;
use crate::nats::url::percent_decode;
use crate::store::Content;

/// First line of every file.
const FORMAT: &str = "putex 2\n";
/// Beginning of the last line, with the line break before it.
const END: &str = "\nend ";
/// Length in bytes of [`END`], 16 hexadecimal digits, and a line break.
const TRAILER_BYTES: usize = END.len() + 16 + 1;

/// The kinds of the files of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The question of a command to the agents of the key.
    Question,
    /// The entry of the key.
    Record,
    /// The entry of a ticket that stands as long as a process has its file locked.
    Held,
    /// The entry of a ticket that stands until an instant.
    Until,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Kind; 4] = [Kind::Question, Kind::Record, Kind::Held, Kind::Until];

    /// Returns the end of the names of these files. No other file's name has it.
    fn suffix(self) -> &'static str {
        match self {
            Kind::Question => ".asked",
            Kind::Record => ".key",
            Kind::Held => ".held",
            Kind::Until => ".until",
        }
    }

    /// Returns the name of the file of `key`. The names of two keys differ, none has a slash,
    /// and each has a dot, unlike the names of the bucket's own files.
    pub(crate) fn file_of(self, key: &str) -> String {
        let escaped = |byte: u8| match byte.is_ascii_alphanumeric() || b"-_=.".contains(&byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        };
        key.bytes().map(escaped).collect::<String>() + self.suffix()
    }
}

/// Returns the kind and the key of a file, `None` when the file is of no key.
pub(crate) fn key_of(name: &str) -> Option<(Kind, String)> {
    let mut kinds = Kind::ALL.into_iter();
    let (kind, safe) = kinds.find_map(|kind| Some((kind, name.strip_suffix(kind.suffix())?)))?;
    let key = percent_decode(safe).ok()?;
    // A file has one name: another escape of the same key is not of this program.
    (kind.file_of(&key) == name).then_some((kind, key))
}

/// Returns the content of a file: format line, `body`, checksum.
pub(crate) fn frame(body: &[u8]) -> Vec<u8> {
    let text = [FORMAT.as_bytes(), body].concat();
    let trailer = trailer(&text);
    [text, trailer].concat()
}

/// Returns the body of the content of a file.
///
/// # Errors
///
/// The damage, as the end of a sentence about the file.
pub(crate) fn unframe(content: &[u8]) -> Result<&[u8], &'static str> {
    let parts = content.split_last_chunk::<TRAILER_BYTES>();
    let (text, end) = parts.ok_or("is cut off")?;
    if !end.starts_with(END.as_bytes()) {
        return Err("has no end line");
    }
    if end[..] != trailer(text) {
        return Err("does not match its checksum");
    }
    text.strip_prefix(FORMAT.as_bytes())
        .ok_or("is not of the format putex 2: another version of putex has written it")
}

/// Returns the last line of a file, with the line break before it.
fn trailer(text: &[u8]) -> Vec<u8> {
    format!("{END}{:016x}\n", checksum(text)).into_bytes()
}

/// Returns a checksum: FNV-1a, 64 bits. It detects damage, not forgery: a forger could replace
/// the whole file.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Returns the body of a record's file: the revision and the headers, a line each, then a blank
/// line and the payload.
pub(crate) fn encode_record(revision: Revision, content: &Content) -> Vec<u8> {
    let lines = content.headers.iter().map(|(name, value)| format!("{name}: {value}\n"));
    let lines = format!("revision {revision}\n{}\n", lines.collect::<String>());
    [lines.as_bytes(), &content.payload].concat()
}

/// Decodes a body of [`encode_record`]; `None` for another body.
pub(crate) fn decode_record(body: &[u8]) -> Option<(Revision, Content)> {
    let end = body.windows(2).position(|two| two == b"\n\n")?;
    let (head, payload) = (str::from_utf8(&body[..end]).ok()?, body[end + 2..].to_vec());
    let mut lines = head.split('\n');
    let revision: NonZeroU64 = parse_number("revision", lines.next()?)?;
    let header = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_owned(), value.to_owned()))
    };
    let headers = lines.map(header).collect::<Option<_>>()?;
    Some((Revision(revision.get()), Content { headers, payload }))
}

/// Returns N of a line `NAME N`; `None` for another line.
pub(crate) fn parse_number<N: FromStr>(name: &str, line: &str) -> Option<N> {
    line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_have_names_that_differ() {
        let keys = ["a/b", "a%2Fb", "a%2fb", "", ".", "..", "a", "a.key", "ä"];
        for (at, key) in keys.iter().enumerate() {
            for kind in Kind::ALL {
                let name = kind.file_of(key);
                assert!(!name.contains('/'), "{key:?} is {name}");
                for other in &keys[..at] {
                    assert_ne!(kind.file_of(other), name, "{other:?} {key:?}");
                }
                assert_eq!(key_of(&name), Some((kind, (*key).to_owned())));
            }
        }
    }

    #[test]
    fn a_changed_byte_anywhere_is_found() {
        let body = b"revision 7\n\nalpha";
        let whole = frame(body);
        assert_eq!(unframe(&whole), Ok(&body[..]));
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(unframe(&damaged).is_err(), "byte {at}");
            assert!(unframe(&whole[..at]).is_err(), "cut off at {at}");
        }
    }

    #[test]
    fn a_payload_may_be_any_bytes() {
        let headers = [("A", "b: c"), ("B", "")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        for payload in ["", "\n\n", "a\n\nb: c\nend 0", "ä", "Putex-State: active"] {
            for headers in [Vec::new(), headers.to_vec()] {
                let content = Content { headers, payload: [payload.as_bytes(), b"\xff"].concat() };
                let body = encode_record(Revision(9), &content);
                assert_eq!(decode_record(&body), Some((Revision(9), content)));
            }
        }
    }

    /// The bytes that this version writes and reads: others need another format.
    #[test]
    fn the_grammar_of_a_record_stays() {
        let content = Content {
            headers: vec![("Putex-Format".to_owned(), "1".to_owned())],
            payload: b"alpha".to_vec(),
        };
        let body = encode_record(Revision(7), &content);
        assert_eq!(body, b"revision 7\nPutex-Format: 1\n\nalpha");
        let whole = String::from_utf8(frame(&body)).expect("text");
        let (text, end) = whole.rsplit_once("\nend ").expect("an end line");
        assert_eq!(text, "putex 2\nrevision 7\nPutex-Format: 1\n\nalpha");
        assert_eq!(end.len(), 17);
    }
}
