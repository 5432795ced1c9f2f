//! The header block of a message: a version line, perhaps with a status, then
//! `Name: value` lines.
//!
//! The block is stored as received and searched on each lookup, so that a block of
//! many short lines takes no more memory than its bytes.

/// The first bytes of every header block.
const VERSION: &str = "NATS/1.0";

/// The status of a request that no subscriber received.
pub const NO_RESPONDERS: u16 = 503;

/// `NATS/1.0[ <status>[ <description>]]\r\n[<name>: <value>\r\n]...\r\n`
///
/// Names are case-sensitive, as on the server. Any client can publish any block, so
/// no block is an error: a block without the version line has no status and no
/// fields, and a line that is not a field is skipped. The whole block is kept, unless it has
/// no version line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub(super) String);

impl Headers {
    /// Stores a block as received. Bytes that are not UTF-8 are replaced.
    pub fn parse(block: &[u8]) -> Headers {
        if !block.starts_with(VERSION.as_bytes()) {
            return Headers::default();
        }
        Headers(String::from_utf8_lossy(block).into_owned())
    }

    /// Returns the status of the version line, such as 503 or 404.
    pub fn status(&self) -> Option<u16> {
        let word = self.0.lines().next()?.strip_prefix(VERSION)?.split_whitespace().next()?;
        if word.len() != 3 || !word.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        word.parse().ok()
    }

    /// Returns all fields in their order, including repeated ones.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.lines().skip(1).filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            let (name, value) = (name.trim(), value.trim());
            (!name.is_empty()).then_some((name, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Headers {
        /// Returns the value of the first field of this name.
        pub(crate) fn get(&self, name: &str) -> Option<&str> {
            self.iter().find(|field| field.0 == name).map(|field| field.1)
        }
    }

    fn parse(text: &str) -> Headers {
        Headers::parse(text.as_bytes())
    }

    #[test]
    fn status_lines() {
        for (text, status) in [
            ("NATS/1.0\r\n\r\n", None),
            ("NATS/1.0 503\r\n\r\n", Some(503)),
            ("NATS/1.0 404 Message Not Found\r\n\r\n", Some(404)),
            ("NATS/1.0   408   Bad Request \r\n\r\n", Some(408)),
            ("NATS/1.0\t204\tEOB\r\n\r\n", Some(204)),
            ("NATS/1.0503\r\n\r\n", Some(503)),
            ("NATS/1.0 50\r\n\r\n", None),
            ("NATS/1.0 +50\r\n\r\n", None),
            ("NATS/1.0 5033\r\n\r\n", None),
            ("NATS/1.0 503", Some(503)),
            ("HTTP/1.0 503\r\n\r\n", None),
            ("NATS/1.", None),
            ("", None),
        ] {
            let headers = parse(text);
            assert_eq!(headers.status(), status, "{text:?}");
        }
    }

    #[test]
    fn fields() {
        let headers = parse(
            "NATS/1.0\r\nA:b\r\nSpaced :  much  \r\nTwice: first\r\nTwice: second\r\n\
             no field\r\n: nameless\r\nEmpty:\r\nTime: 12:30\r\n\r\n",
        );
        assert_eq!(headers.get("A"), Some("b"));
        assert_eq!(headers.get("Spaced"), Some("much"));
        assert_eq!(headers.get("Twice"), Some("first"));
        assert_eq!(headers.get("Empty"), Some(""));
        assert_eq!(headers.get("Time"), Some("12:30"));
        assert_eq!(headers.get("a"), None, "names are case-sensitive");
        assert_eq!(headers.get(""), None);
        assert_eq!(headers.iter().count(), 6);
    }

    #[test]
    fn damaged_blocks_have_nothing() {
        for block in ["", "A: b\r\n\r\n", "NATS/1.0\r\n\r\n"] {
            let headers = parse(block);
            assert!(headers.status().is_none() && headers.iter().next().is_none(), "{block:?}");
        }
        let headers = Headers::parse(b"NATS/1.0\r\nA: \xff\xfe\r\n\r\n");
        assert_eq!(headers.get("A"), Some("\u{fffd}\u{fffd}"));
    }
}
