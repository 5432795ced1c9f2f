//! How long an entry lasts that ends by itself.

use std::time::Duration;

use super::{Bucket, Content, Entry, Selection, StoreResult};
use crate::core::Instant;
use crate::core::tickets::grab::LIFETIME_MAX;

/// The header with a lifetime, in milliseconds.
pub(super) const LIFE: &str = "Putex-Life";

/// Returns the lifetime of a ticket, a lease or a request for switchover. None of them may make
/// others wait for ever.
pub(super) fn lifetime(content: &Content) -> Option<Duration> {
    lifetime_up_to(LIFETIME_MAX, content)
}

/// Returns the lifetime in an entry; `None` if it is longer than `most`.
pub(super) fn lifetime_up_to(most: Duration, content: &Content) -> Option<Duration> {
    let lifetime = Duration::from_millis(content.header(LIFE)?.parse().ok()?);
    (lifetime <= most).then_some(lifetime)
}

/// Reads the entry of a key with its age.
///
/// # Errors
///
/// When there was no answer by the deadline.
pub(crate) fn read_with_age(
    bucket: &mut dyn Bucket,
    key: &str,
    deadline: Instant,
) -> StoreResult<Option<Entry>> {
    Ok(bucket.list(Selection::Key(key), deadline)?.entries.pop())
}

/// Returns for how much longer an entry stands that lasts so long; `None` if that is over. Where
/// the store does not tell its age, it counts as written now.
pub(super) fn left_of(lasts: Duration, entry: &Entry) -> Option<Duration> {
    let left = lasts.saturating_sub(entry.age.unwrap_or_default());
    Some(left).filter(|left| !left.is_zero())
}
