//! Reading lines that [`Destination::line`](super::Destination::line) has made, after the journal
//! or a syslog daemon has put time, host and program before them.
//!
//! | the line begins with | written by |
//! |---|---|
//! | `TIME putex: KEY: ` | putex, into a file |
//! | `TIME HOST PROGRAM[PID]: KEY: ` | `journalctl -o short-iso-precise`; syslog daemons |
//!
//! `TIME` is that of RFC 3339, with `Z` or an offset.

use std::time::{Duration, SystemTime};

use ::log::Level;

use super::format::mark;

/// A line about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogLine<'a> {
    /// When it was written; `None` if the line does not say it in a form that can be used.
    pub(crate) at: Option<LineTime>,
    /// The name of the host; blank if the line has none.
    pub(crate) host: &'a str,
    /// The text behind the key and the mark of the level.
    pub(crate) text: &'a str,
}

/// The time in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineTime {
    /// Since the beginning of 1970, in UTC.
    pub(crate) since_epoch: Duration,
    /// How many digits its second has behind the point.
    pub(crate) digits: usize,
}

/// Reads a line, without its end; `None` if it is not about this key.
pub(crate) fn read_line<'a>(line: &'a str, key: &str) -> Option<LogLine<'a>> {
    let (first, rest) = line.split_once(' ')?;
    let Some(at) = time(first) else {
        let (before, text) = line.split_once(&format!("{key}: "))?;
        let follows = before.is_empty() || before.ends_with(": ") || before.ends_with('>');
        return follows.then(|| LogLine { at: None, host: "", text: without_mark(text) });
    };
    let (host, message) = match rest.strip_prefix("putex: ") {
        Some(message) => ("", message),
        None => {
            let (head, message) = rest.split_once(": ")?;
            let (host, program) = head.split_once(' ')?;
            (!program.contains(' ')).then_some((host, message))?
        }
    };
    let text = message.strip_prefix(key)?.strip_prefix(": ")?;
    Some(LogLine { at: Some(at), host, text: without_mark(text) })
}

fn without_mark(text: &str) -> &str {
    let marks = Level::iter().map(mark).filter(|mark| !mark.is_empty());
    marks.filter_map(|mark| text.strip_prefix(mark)).next().unwrap_or(text)
}

/// Reads a time of RFC 3339, which may lack the colon of its offset.
fn time(text: &str) -> Option<LineTime> {
    let seconds = text.get(..19).filter(|text| text.as_bytes()[10] == b'T')?;
    let rest = &text[19..];
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
        None => ("", rest),
    };
    let east = match rest {
        "Z" => 0,
        offset => minutes(offset)? * 60,
    };
    let shown = if fraction.is_empty() {
        format!("{seconds}Z")
    } else {
        format!("{seconds}.{}Z", fraction.get(..9).unwrap_or(fraction))
    };
    let local = humantime::parse_rfc3339(&shown).ok()?;
    let since = local.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let shift = Duration::from_secs(east.unsigned_abs());
    let since_epoch =
        if east > 0 { since.checked_sub(shift)? } else { since.checked_add(shift)? };
    Some(LineTime { since_epoch, digits: fraction.len() })
}

/// Reads an offset from UTC, in minutes.
fn minutes(offset: &str) -> Option<i64> {
    let (sign, rest) = match offset.as_bytes().first()? {
        b'+' => (1, &offset[1..]),
        b'-' => (-1, &offset[1..]),
        _ => return None,
    };
    let digits = rest.replace(':', "");
    let is_offset = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = digits.parse().ok().filter(|_| is_offset)?;
    (number % 100 < 60 && number < 2400).then_some(sign * (number / 100 * 60 + number % 100))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Destination;

    fn since(text: &str) -> Option<u128> {
        time(text).map(|time| time.since_epoch.as_micros())
    }

    #[test]
    fn a_line_is_read_as_it_was_written_whoever_has_passed_it_on() {
        let line = |to: Destination, level| {
            let line = to.line("db", level, None, "looking -> standby: the bucket is open");
            String::from_utf8(line).expect("it is text").trim_end().to_owned()
        };
        let of_syslog = line(Destination::Syslog, Level::Warn);
        let of_syslog = of_syslog.split_once('>').expect("a priority").1.to_owned();
        let of_journal = line(Destination::Journal, Level::Error);
        let of_journal = of_journal.split_once('>').expect("a priority").1.to_owned();
        for (line, host) in [
            (line(Destination::TerminalOrFile, Level::Info), ""),
            (format!("2026-11-21T16:35:30.123456+01:00 h1 {of_syslog}"), "h1"),
            (format!("2026-11-21T15:35:30.123456+0000 h2 putex[7]: {of_journal}"), "h2"),
            (format!("2026-11-21T15:35:30Z {}", line(Destination::Pipe, Level::Debug)), ""),
        ] {
            let read = read_line(&line, "db").expect("it is about db");
            assert!(read.at.is_some(), "{line}");
            assert_eq!((read.host, read.text), (host, "looking -> standby: the bucket is open"));
            assert_eq!(read_line(&line, "d"), None);
            assert_eq!(read_line(&line, "b"), None);
        }
    }

    #[test]
    fn a_line_without_a_usable_time_says_so() {
        let pipe = Destination::Pipe.line("db", Level::Warn, None, "hello");
        let pipe = String::from_utf8(pipe).expect("it is text");
        for line in [
            pipe.trim_end(),
            "Nov 21 15:35:30 h1 putex[7]: db: warning: hello",
            "2026-11-21 15:35:30.123 putex: db: hello",
            "<4>db: warning: hello",
        ] {
            let read = read_line(line, "db").expect("it is about db");
            assert_eq!((read.at, read.host, read.text), (None, "", "hello"), "{line}");
        }
        for other in ["", "putex: other: hello", "2026-11-21T15:35:30Z h1 sshd[1]: bye db: x"] {
            assert_eq!(read_line(other, "db"), None, "{other}");
        }
    }

    #[test]
    fn times_of_all_offsets_are_those_of_utc() {
        let at = since("2026-11-21T15:35:30.123456Z").expect("a time");
        assert_eq!(since("2026-11-21T16:35:30.123456+01:00"), Some(at));
        assert_eq!(since("2026-11-21T16:35:30.123456+0100"), Some(at));
        assert_eq!(since("2026-11-21T10:05:30.123456-05:30"), Some(at));
        assert_eq!(since("2026-11-21T15:35:30.123Z"), Some(at - 456));
        assert_eq!(since("2026-11-21T15:35:30+00:00"), Some(at - 123_456));
        for wrong in [
            "",
            "now",
            "2026-11-21T15:35:30",
            "2026-11-21T15:35:30.5",
            "2026-13-21T15:35:30Z",
            "2026-11-21T15:35:30+1",
            "2026-11-21T15:35:30+99:99",
            "2026-11-21 15:35:30Z",
            "1969-12-31T23:59:59Z",
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
        ] {
            assert_eq!(since(wrong), None, "{wrong}");
        }
    }
}
