//! The pause of all agents of a key, as an entry of a [`Bucket`].
//!
//! | key | entry |
//! |---|---|
//! | `putex.pause.<key>` | the last pause, or a tombstone |
//!
//! | header | value |
//! |---|---|
//! | `Putex-Life` | for how many milliseconds it lasts |
//! | `Putex-Keep-Running` | `yes` if the holder publishes a longer lock time |
//! | `Putex-Keep-Ms` | for how many milliseconds this pause or one before lets a service run on |
//! | `Putex-Holders` | how many holders there were |
//! | `Putex-Nonce` | decimal: by it, whoever has written a pause knows it |
//! | `Putex-By` | who has requested it, for people |
//!
//! The payload is the reason, for people. The pause lasts by the clock of the store. One that was
//! ended before its time, and that kept a service running, has a lifetime of 0 until all have
//! acknowledged the end.

use std::time::Duration;

use super::lifetime::{self, LIFE, lifetime_up_to};
use super::{Bucket, Content, Entry, Expected, StoreResult};
use crate::core::{
    Instant, PAUSE_MAX, Pause, PauseEntry, Revision, Written, sanitize, sanitize_field,
};
use crate::sys;

const KEEP_RUNNING: &str = "Putex-Keep-Running";
const KEEP_MS: &str = "Putex-Keep-Ms";
const HOLDERS: &str = "Putex-Holders";
const BY: &str = "Putex-By";
const NUMBER: &str = "Putex-Nonce";

/// How the keys of pauses begin.
pub(crate) const PREFIX: &str = "putex.pause.";

/// The longest reason that is shown, in characters.
const REASON_MAX: usize = 200;

/// A pause as it is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPause {
    /// How long it lasts.
    pub lasts: Duration,
    /// For how long after it was written a holder may keep its service running without a store,
    /// because of this pause or of one before; zero for none.
    pub keeps_for: Duration,
    /// How many holders there were when it was written.
    pub holders: u32,
    /// Whether the service may run on without a store.
    pub keep_running: bool,
    /// Who has requested it, for people.
    pub by: String,
    /// The reason, for people.
    pub reason: String,
    /// A random number, by which whoever has written it knows it.
    pub number: u64,
}

impl StoredPause {
    /// Returns what is left of a pause that was ended before its time: for how much longer so many
    /// holders may keep their services running because of it.
    pub(crate) fn ended(keeps_for: Duration, holders: u32, by: String) -> StoredPause {
        let (lasts, reason) = (Duration::ZERO, String::new());
        StoredPause { lasts, keeps_for, holders, keep_running: false, by, reason, number: 0 }
    }
}

/// Returns the key of the pause of the agents of a key.
pub(crate) fn key_of(key: &str) -> String {
    format!("{PREFIX}{key}")
}

fn to_content(pause: &StoredPause) -> Content {
    let StoredPause { lasts, keeps_for, holders, keep_running, by, reason, number } = pause;
    let headers = [
        (LIFE, lasts.as_millis().to_string()),
        (NUMBER, number.to_string()),
        (BY, sanitize(by)),
        (KEEP_MS, keeps_for.as_millis().to_string()),
        (HOLDERS, holders.to_string()),
        (KEEP_RUNNING, if *keep_running { "yes" } else { "no" }.to_owned()),
    ];
    Content::new(headers, reason.as_bytes())
}

/// Converts the content of an entry into a pause; `None` for a tombstone, or if it is none.
pub(crate) fn from_content(content: &Content) -> Option<StoredPause> {
    if content.is_tombstone() {
        return None;
    }
    let reason: String =
        String::from_utf8_lossy(&content.payload).chars().take(REASON_MAX).collect();
    let keeps_for = Duration::from_millis(content.header(KEEP_MS)?.parse().ok()?);
    Some(StoredPause {
        lasts: lifetime_up_to(PAUSE_MAX, content)?,
        keeps_for: Some(keeps_for).filter(|keeps_for| *keeps_for <= PAUSE_MAX)?,
        holders: content.header(HOLDERS)?.parse().ok()?,
        keep_running: content.header(KEEP_RUNNING) == Some("yes"),
        by: content.header(BY).map(sanitize_field).unwrap_or_default(),
        reason: sanitize_field(&reason),
        number: content.header(NUMBER)?.parse().ok()?,
    })
}

/// A pause that stands, or the time for which one before it kept a service running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CurrentPause {
    /// As it was written.
    pub(crate) pause: StoredPause,
    /// How long the pause lasts still, zero if it is over.
    pub(crate) left: Duration,
    /// For how much longer a holder may keep its service running, zero for none.
    pub(crate) kept_left: Duration,
}

/// Returns what stands in an entry, by the clock of the store; `None` if it is over, also where the
/// store does not tell: servers before nats-server 2.10.
///
/// # Errors
///
/// When there was no answer by the deadline.
pub(crate) fn standing(
    bucket: &mut dyn Bucket,
    entry: &Entry,
    deadline: Instant,
) -> StoreResult<Option<CurrentPause>> {
    let Some(pause) = from_content(&entry.content) else { return Ok(None) };
    let Some(age) = lifetime::age(bucket, entry, deadline)? else { return Ok(None) };
    let left = pause.lasts.saturating_sub(age);
    let kept_left = pause.keeps_for.saturating_sub(age);
    let stands = !left.is_zero() || !kept_left.is_zero();
    Ok(stands.then_some(CurrentPause { pause, left, kept_left }))
}

/// Reads the pause of the agents of a key as they are to observe it, from a bucket of this epoch.
///
/// # Errors
///
/// When there was no answer by the deadline.
pub(crate) fn read(
    bucket: &mut dyn Bucket,
    key: &str,
    epoch: &str,
    deadline: Instant,
) -> StoreResult<PauseEntry> {
    let entry = bucket.get(&key_of(key), deadline)?;
    of_entry(bucket, entry, epoch, deadline)
}

/// Returns the pause as agents are to observe it that this entry of a bucket of this epoch is. One
/// that cannot be understood counts as none.
///
/// # Errors
///
/// When there was no answer by the deadline.
pub(crate) fn of_entry(
    bucket: &mut dyn Bucket,
    entry: Option<Entry>,
    epoch: &str,
    deadline: Instant,
) -> StoreResult<PauseEntry> {
    let none = PauseEntry::none(epoch);
    let began = sys::now();
    let Some(entry) = entry else { return Ok(none) };
    let revision = entry.revision;
    if entry.content.is_tombstone() {
        return Ok(PauseEntry { revision, ..none });
    }
    let Some(stored) = from_content(&entry.content) else { return Ok(none) };
    let StoredPause { lasts, keeps_for, keep_running, by, reason, .. } = stored;
    let age = lifetime::age(bucket, &entry, deadline)?;
    let left = age.map_or(Duration::ZERO, |age| lasts.saturating_sub(age));
    let until = began.after(left);
    let pause = Pause { revision, until, keep_running, by, reason };
    // Never too early, as the end of the pause is never too late.
    let kept_until = sys::now().after(keeps_for).before(age.unwrap_or_default());
    Ok(PauseEntry {
        epoch: epoch.to_owned(),
        revision,
        pause: (!left.is_zero()).then_some(pause),
        kept_until: (!keeps_for.is_zero()).then_some(kept_until),
    })
}

/// Writes a pause in the place of this revision.
pub(crate) fn write(
    bucket: &mut dyn Bucket,
    key: &str,
    at: Revision,
    pause: &StoredPause,
    deadline: Instant,
) -> Written {
    let content = to_content(pause);
    bucket.compare_and_set(&key_of(key), Expected::Key(at), &content, deadline)
}

/// Ends the pause that stands at this revision, and all that was known of it.
pub(crate) fn end(bucket: &mut dyn Bucket, key: &str, at: Revision, deadline: Instant) -> Written {
    lifetime::end(bucket, &key_of(key), at, deadline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::OPERATION;

    fn pause() -> StoredPause {
        StoredPause {
            lasts: Duration::from_secs(7200),
            keeps_for: Duration::from_secs(7200),
            holders: 2,
            keep_running: true,
            by: "root@h3".to_owned(),
            reason: "new kernel".to_owned(),
            number: 7,
        }
    }

    #[test]
    fn a_pause_survives_the_way_through_an_entry() {
        assert_eq!(from_content(&to_content(&pause())), Some(pause()));
        let plain = StoredPause { keep_running: false, reason: String::new(), ..pause() };
        assert_eq!(from_content(&to_content(&plain)), Some(plain));
    }

    #[test]
    fn an_entry_that_is_damaged_or_over_is_no_pause() {
        let whole = to_content(&pause());
        for at in [0, 1, 3, 4] {
            let mut damaged = whole.clone();
            damaged.headers[at].1 = "-x".to_owned();
            assert_eq!(from_content(&damaged), None, "{:?}", whole.headers[at]);
        }
        let endless = StoredPause { lasts: PAUSE_MAX + Duration::from_millis(1), ..pause() };
        let mut over = whole;
        over.headers.push((OPERATION.to_owned(), "DEL".to_owned()));
        assert_eq!((from_content(&to_content(&endless)), from_content(&over)), (None, None));
    }

    #[test]
    fn a_text_that_would_confuse_a_terminal_is_made_plain() {
        let sly = StoredPause { reason: "a\x1b[2Jb\r\n".repeat(200), ..pause() };
        let read = from_content(&to_content(&sly)).expect("a pause");
        assert!(read.reason.chars().count() <= REASON_MAX, "{}", read.reason);
        assert!(!read.reason.chars().any(char::is_control), "{:?}", read.reason);
    }
}
