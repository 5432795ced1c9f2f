//! The pause of all agents of a key, as an entry of a [`Bucket`].
//!
//! | key | entry |
//! |---|---|
//! | `putex.pause.<key>` | the last pause, or its end: a tombstone |
//!
//! | header | value |
//! |---|---|
//! | `Putex-Serial` | decimal: higher than that of each entry before |
//! | `Putex-Life` | for how many milliseconds it lasts |
//! | `Putex-Nonce` | decimal: by it, the writer of a pause knows it |
//! | `Putex-By` | who has requested it, for people |
//!
//! The payload is the reason, for people. The pause lasts by the clock of the store.

use std::time::{Duration, SystemTime};

use super::lifetime::{LIFE, left_of, lifetime_up_to, read_with_age};
use super::name::PAUSE_PREFIX;
use super::{ATTEMPT, Bucket, Content, Entry, StoreResult};
use crate::core::{Instant, PAUSE_MAX, Pause, PauseEntry, sanitize, sanitize_field};
use crate::sys;

const BY: &str = "Putex-By";
const SERIAL: &str = "Putex-Serial";

/// An entry of a higher serial number is damaged: no later entry could have a higher one.
const SERIAL_MAX: u64 = u64::MAX / 2;

/// A pause of a higher serial number is damaged: its end could not have a higher one.
const PAUSE_SERIAL_MAX: u64 = SERIAL_MAX / 2;

/// The longest reason that is shown, in characters.
const REASON_MAX: usize = 200;

/// A pause as it is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPause {
    /// How long the pause lasts.
    pub lasts: Duration,
    /// The requester of the pause, for people.
    pub by: String,
    /// The reason, for people.
    pub reason: String,
    /// A random number, by which the writer of the pause knows it.
    pub number: u64,
}

pub(crate) fn key_of(key: &str) -> String {
    format!("{PAUSE_PREFIX}{key}")
}

/// Returns the serial number in the content of an entry, 0 if there is none.
pub(crate) fn serial_of(content: &Content) -> u64 {
    let serial = content.header(SERIAL).and_then(|serial| serial.parse().ok());
    serial.filter(|serial| *serial <= SERIAL_MAX).unwrap_or_default()
}

/// Returns the serial number of the entry that replaces this one, where agents have read entries up
/// to the serial number `read`: the store may have lost those. It is higher than those of lost
/// entries that other agents have read, unless the clock of this host is behind their writers'.
pub(crate) fn next_serial(replaced: Option<&Entry>, read: u64) -> u64 {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let replaced = replaced.map(|entry| serial_of(&entry.content)).unwrap_or_default();
    replaced.max(read).saturating_add(1).max(clock.as_millis() as u64)
}

/// Converts a pause, or its end, into the content of an entry of this serial number.
pub(crate) fn to_content(pause: Option<&StoredPause>, serial: u64) -> Content {
    let mut content = match pause {
        Some(StoredPause { lasts, by, reason, number }) => {
            let lasts = lasts.as_millis().to_string();
            let headers = [(LIFE, lasts), (ATTEMPT, number.to_string()), (BY, sanitize(by))];
            Content::new(headers, reason.as_bytes())
        }
        None => Content::tombstone(),
    };
    content.headers.push((SERIAL.to_owned(), serial.to_string()));
    content
}

/// Converts the content of an entry into a pause; `None` for a tombstone, or if it is none.
pub(crate) fn from_content(content: &Content) -> Option<StoredPause> {
    if content.is_tombstone() || !(1..=PAUSE_SERIAL_MAX).contains(&serial_of(content)) {
        return None;
    }
    let reason: String =
        String::from_utf8_lossy(&content.payload).chars().take(REASON_MAX).collect();
    Some(StoredPause {
        lasts: lifetime_up_to(PAUSE_MAX, content)?,
        by: content.header(BY).map(sanitize_field).unwrap_or_default(),
        reason: sanitize_field(&reason),
        number: content.attempt()?,
    })
}

/// Returns the pause in an entry, and how long it lasts still; `None` if it is over, or none.
pub(crate) fn standing(entry: &Entry) -> Option<(StoredPause, Duration)> {
    let pause = from_content(&entry.content)?;
    left_of(pause.lasts, entry).map(|left| (pause, left))
}

/// Reads what stands under the key of the pause, as the agents are to observe it.
///
/// # Errors
///
/// When there was no answer by the deadline.
pub(crate) fn read(
    bucket: &mut dyn Bucket,
    key: &str,
    deadline: Instant,
) -> StoreResult<PauseEntry> {
    let found = read_with_age(bucket, &key_of(key), deadline)?;
    // The age is that at the server: the end of the pause is never too early.
    let read_at = sys::now();
    let Some(entry) = found else { return Ok(PauseEntry::default()) };
    let pause = standing(&entry).map(|(StoredPause { by, reason, .. }, left)| Pause {
        until: read_at.after(left),
        by,
        reason,
    });
    Ok(PauseEntry { serial: serial_of(&entry.content), pause })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::OPERATION;

    fn pause() -> StoredPause {
        StoredPause {
            lasts: Duration::from_secs(7200),
            by: "root@h3".to_owned(),
            reason: "new kernel".to_owned(),
            number: 7,
        }
    }

    #[test]
    fn a_pause_survives_the_way_through_an_entry() {
        for of in [pause(), StoredPause { reason: String::new(), ..pause() }] {
            let content = to_content(Some(&of), 7);
            assert_eq!((serial_of(&content), from_content(&content)), (7, Some(of)));
        }
        let end = to_content(None, 8);
        assert_eq!((serial_of(&end), from_content(&end)), (8, None));
    }

    /// The clock of the host of an operator went back.
    #[test]
    fn each_serial_number_is_higher_than_the_one_before() {
        let entry = |serial| {
            let (key, content) = (key_of("web"), to_content(None, serial));
            Entry { key, revision: crate::core::Revision(1), content, age: None }
        };
        let first = next_serial(None, 0);
        assert!(next_serial(Some(&entry(1)), 0) >= first, "no lost one is as high");
        let ahead = first * 2;
        for (replaced, read) in [(1, ahead), (ahead, 1)] {
            assert_eq!(next_serial(Some(&entry(replaced)), read), ahead + 1);
        }
    }

    #[test]
    fn an_entry_that_is_damaged_or_over_is_no_pause() {
        let whole = to_content(Some(&pause()), 7);
        for at in [0, 1, 3] {
            let mut damaged = whole.clone();
            damaged.headers[at].1 = "-x".to_owned();
            assert_eq!(from_content(&damaged), None, "{:?}", whole.headers[at]);
        }
        let endless = StoredPause { lasts: PAUSE_MAX + Duration::from_millis(1), ..pause() };
        let mut over = whole;
        over.headers.push((OPERATION.to_owned(), "DEL".to_owned()));
        let endless = to_content(Some(&endless), 7);
        assert_eq!((from_content(&endless), from_content(&over)), (None, None));
        // No operator could have ended it, and each said that it was ended.
        for (serial, read) in [(u64::MAX, 0), (SERIAL_MAX, SERIAL_MAX)] {
            let last = to_content(Some(&pause()), serial);
            assert_eq!((serial_of(&last), from_content(&last)), (read, None));
        }
    }

    #[test]
    fn a_text_that_would_confuse_a_terminal_is_made_plain() {
        let sly = StoredPause { reason: "a\x1b[2Jb\r\n".repeat(200), ..pause() };
        let read = from_content(&to_content(Some(&sly), 7)).expect("a pause");
        assert!(read.reason.chars().count() <= REASON_MAX, "{}", read.reason);
        assert!(!read.reason.chars().any(char::is_control), "{:?}", read.reason);
    }
}
