//! The names of the files of a bucket's folder, and their content. Pure.

use std::fmt::Write as _;

use crate::core::record::Revision;
use crate::store::Content;

/// End of the name of a record's file, and of no other file.
const RECORD_SUFFIX: &str = ".key";
/// End of the name of the file that keeps the revision of a key's first record.
const FIRST_SUFFIX: &str = ".first";
/// End of the name of the file with the last announcement for a key.
const ANNOUNCEMENT_SUFFIX: &str = ".twin";
/// First line of every file.
const FORMAT: &str = "putex 1\n";
/// Beginning of the last line, with the line break before it.
const END: &str = "\nend ";
/// Length in bytes of [`END`], 16 hexadecimal digits, and a line break.
const TRAILER_BYTES: usize = END.len() + 16 + 1;

/// The names of the files of one key.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) record: String,
    pub(crate) first: String,
    pub(crate) announcement: String,
}

impl Names {
    /// Returns the names for `key`. Those of two keys differ, none has a slash, and each
    /// has a dot, unlike the names of the bucket's own files.
    pub(crate) fn new(key: &str) -> Names {
        let mut safe = String::new();
        for byte in key.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_=.".contains(&byte) {
                safe.push(char::from(byte));
            } else {
                // Writing to a string cannot fail.
                let _ = write!(safe, "%{byte:02X}");
            }
        }
        Names {
            record: format!("{safe}{RECORD_SUFFIX}"),
            first: format!("{safe}{FIRST_SUFFIX}"),
            announcement: format!("{safe}{ANNOUNCEMENT_SUFFIX}"),
        }
    }

    /// Returns the longest name.
    pub(crate) fn longest(&self) -> &str {
        &self.first
    }
}

/// The kinds of the files of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The entry of the key.
    Record,
    /// The revision of its first record.
    First,
    /// The last announcement.
    Announcement,
}

/// Returns the key and the kind of a file, `None` when the file is of no key.
pub(crate) fn key_of(name: &str) -> Option<(String, Kind)> {
    let (safe, kind) = [
        (RECORD_SUFFIX, Kind::Record),
        (FIRST_SUFFIX, Kind::First),
        (ANNOUNCEMENT_SUFFIX, Kind::Announcement),
    ]
    .into_iter()
    .find_map(|(suffix, kind)| Some((name.strip_suffix(suffix)?, kind)))?;
    let mut parts = safe.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    let key = String::from_utf8(bytes).ok()?;
    // One name for each file of a key: another escape of the same key is not of this program.
    let Names { record, first, announcement } = Names::new(&key);
    let ours = [record, first, announcement].iter().any(|ours| ours == name);
    ours.then_some((key, kind))
}

/// Returns the content of a file: format line, `body`, checksum.
pub(crate) fn frame(body: &[u8]) -> Vec<u8> {
    let text = [FORMAT.as_bytes(), body].concat();
    let end = format!("{END}{:016x}\n", checksum(&text));
    [&text, end.as_bytes()].concat()
}

/// Returns the body of the content of a file.
///
/// # Errors
///
/// What is wrong with the content, as the end of a sentence about the file.
pub(crate) fn unframe(content: &[u8]) -> Result<&[u8], &'static str> {
    let at = content.len().checked_sub(TRAILER_BYTES);
    let (text, trailer) = content.split_at(at.ok_or("is cut off")?);
    let digits = trailer
        .strip_prefix(END.as_bytes())
        .and_then(|rest| rest.strip_suffix(b"\n"))
        .ok_or("has no end line")?;
    if digits != format!("{:016x}", checksum(text)).as_bytes() {
        return Err("does not match its checksum");
    }
    let body = text.strip_prefix(FORMAT.as_bytes());
    body.ok_or("is not of the format putex 1")
}

/// FNV-1a, 64 bits: finds damage, not forgery; a forger could write the file as well.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Returns the body of a record's file.
pub(crate) fn encode_record(revision: Revision, content: &Content) -> Vec<u8> {
    let mut body = format!("revision {revision}\n").into_bytes();
    body.extend(encode_content(content));
    body
}

/// Returns the arguments of [`encode_record`], `None` when it did not write the body.
pub(crate) fn decode_record(body: &[u8]) -> Option<(Revision, Content)> {
    let end = body.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = body.split_at(end);
    let revision = parse_number("revision", str::from_utf8(line).ok()?)?;
    Some((Revision(revision), decode_content(&rest[1..])?))
}

/// Returns headers, a line each, a blank line, and the payload.
pub(crate) fn encode_content(content: &Content) -> Vec<u8> {
    let mut body = String::new();
    for (name, value) in &content.headers {
        // Writing to a string cannot fail.
        let _ = writeln!(body, "{name}: {value}");
    }
    body.push('\n');
    [body.as_bytes(), &content.payload].concat()
}

/// Returns the argument of [`encode_content`], `None` when it did not write the body.
pub(crate) fn decode_content(body: &[u8]) -> Option<Content> {
    let (mut headers, mut rest) = (Vec::new(), body);
    loop {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let line = str::from_utf8(&rest[..end]).ok()?;
        rest = &rest[end + 1..];
        if line.is_empty() {
            let payload = rest.to_vec();
            return Some(Content { headers, payload });
        }
        let (name, value) = line.split_once(": ")?;
        headers.push((name.to_owned(), value.to_owned()));
    }
}

/// Returns N of a line `NAME N`, `None` when the line is another. 0 is the number of an
/// empty sequence, never of a record.
pub(crate) fn parse_number(name: &str, line: &str) -> Option<u64> {
    line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_have_names_that_differ() {
        let keys = ["a/b", "a%2Fb", "a%2fb", "", ".", "..", "a", "a.key", "ä"];
        for (at, key) in keys.iter().enumerate() {
            let names = Names::new(key);
            assert!(!names.record.contains('/'), "{key:?} is {}", names.record);
            for other in &keys[..at] {
                assert_ne!(Names::new(other).record, names.record, "{other:?} {key:?}");
            }
            for (name, kind) in [
                (&names.record, Kind::Record),
                (&names.first, Kind::First),
                (&names.announcement, Kind::Announcement),
            ] {
                assert_eq!(key_of(name), Some(((*key).to_owned(), kind)));
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

    /// The bytes that 0.3.0 writes and reads.
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
        assert_eq!(text, "putex 1\nrevision 7\nPutex-Format: 1\n\nalpha");
        assert_eq!(end.len(), 17);
    }
}
