//! What the files of a bucket's folder are called and what they say.
//!
//! Pure text: nothing here touches the disk.

use std::fmt::Write as _;

use crate::core::record::{Record, Revision};
use crate::core::text::sanitize;
use crate::store::Notice;
use crate::store::lease::{from_headers, to_headers};

/// Ends the name of every record, and of nothing else.
pub(crate) const RECORD_SUFFIX: &str = ".key";
/// First line of every file.
const FORMAT: &str = "putex 1\n";
/// What begins the last line, with the line break before it.
const END: &str = "\nend ";
/// Length in bytes of [`END`], 16 hexadecimal digits, and a line break.
const TRAILER_BYTES: usize = END.len() + 16 + 1;

/// The names of one key's files.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) record: String,
    pub(crate) first: String,
    pub(crate) notice: String,
}

impl Names {
    /// Returns the names for `key`. Those of two keys differ, none has a slash,
    /// and none is without a dot, as the bucket's own files are.
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
            first: format!("{safe}.first"),
            notice: format!("{safe}.twin"),
        }
    }

    /// Returns the longest of them.
    pub(crate) fn longest(&self) -> &str {
        &self.first
    }
}

/// Returns `body` as the content of a file: format line, body, checksum.
pub(crate) fn frame(body: &str) -> String {
    let text = format!("{FORMAT}{body}");
    let sum = checksum(text.as_bytes());
    format!("{text}{END}{sum:016x}\n")
}

/// Returns the body of a file's content.
///
/// # Errors
///
/// What is wrong with the content, as the end of a sentence about the file.
pub(crate) fn unframe(content: &[u8]) -> Result<String, &'static str> {
    let at = content.len().checked_sub(TRAILER_BYTES);
    let (text, trailer) = content.split_at(at.ok_or("is cut off")?);
    let digits = trailer
        .strip_prefix(END.as_bytes())
        .and_then(|rest| rest.strip_suffix(b"\n"))
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .ok_or("has no end line")?;
    if digits != format!("{:016x}", checksum(text)) {
        return Err("does not match its checksum");
    }
    let text = std::str::from_utf8(text).map_err(|_| "is not text")?;
    let body = text.strip_prefix(FORMAT);
    Ok(body.ok_or("is not of the format putex 1")?.to_owned())
}

/// FNV-1a, 64 bits: finds damage, not forgery; who may forge may write as well.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Returns the body of a record's file.
pub(crate) fn encode_record(revision: Revision, record: &Record) -> String {
    let mut body = format!("revision {revision}\n");
    for (name, value) in record.lease.iter().flat_map(to_headers) {
        // Writing to a string cannot fail.
        let _ = writeln!(body, "{name}: {value}");
    }
    body.push('\n');
    body.push_str(&record.token);
    body
}

/// Returns what [`encode_record`] was given, `None` when the body is not its.
pub(crate) fn decode_record(body: &str) -> Option<(Revision, Record)> {
    let (head, token) = body.split_once("\n\n")?;
    let mut lines = head.split('\n');
    let revision = parse_number("revision", lines.next()?)?;
    let split = |line: &'_ str| line.find(": ").map(|at| (at, at + 2));
    let headers: Vec<(&str, &str)> = lines
        .map(|line| split(line).map(|(to, from)| (&line[..to], &line[from..])))
        .collect::<Option<_>>()?;
    let find = |name: &str| headers.iter().find(|(key, _)| *key == name);
    let lease = from_headers(|name| find(name).map(|(_, value)| *value));
    let token = token.to_owned();
    Some((Revision(revision), Record { token, lease }))
}

/// Returns the body of a notice's file.
pub(crate) fn encode_notice(notice: &Notice) -> String {
    format!(
        "incarnation {}\nhost {}\n\n{}",
        sanitize(&notice.incarnation),
        sanitize(&notice.host),
        notice.token
    )
}

/// Returns what [`encode_notice`] was given, `None` when the body is not its.
pub(crate) fn decode_notice(body: &str) -> Option<Notice> {
    let (head, token) = body.split_once("\n\n")?;
    let (incarnation, host) = head.split_once('\n')?;
    Some(Notice {
        token: token.to_owned(),
        incarnation: incarnation.strip_prefix("incarnation ")?.to_owned(),
        host: host.strip_prefix("host ")?.to_owned(),
    })
}

/// Returns N of a line `NAME N`, `None` when the line is another. 0 is no number
/// of a record, but that of an empty sequence.
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
        }
    }

    #[test]
    fn a_changed_byte_anywhere_is_found() {
        let whole = frame("revision 7\n\nalpha").into_bytes();
        assert_eq!(unframe(&whole), Ok("revision 7\n\nalpha".to_owned()));
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(unframe(&damaged).is_err(), "byte {at}");
            assert!(unframe(&whole[..at]).is_err(), "cut off at {at}");
        }
    }

    #[test]
    fn a_token_may_be_any_text() {
        for token in ["", "\n\n", "a\n\nb: c\nend 0", "ä", "Putex-State: active"] {
            let record = Record {
                token: token.to_owned(),
                lease: None,
            };
            let body = encode_record(Revision(9), &record);
            assert_eq!(decode_record(&body), Some((Revision(9), record)));
        }
    }
}
