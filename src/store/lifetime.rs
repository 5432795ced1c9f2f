//! How long an entry lasts that ends by itself.

use std::time::Duration;

use super::{Bucket, Content, Entry, Expected, StoreResult};
use crate::core::tickets::grab::LIFETIME_MAX;
use crate::core::{Instant, Revision, Written};

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

/// Returns for how much longer an entry stands that lasts so long after it was written, by the
/// clock of the store: it may be read long after that. `None` if it is over.
///
/// # Errors
///
/// When there was no answer by the deadline.
pub(super) fn left(
    bucket: &mut dyn Bucket,
    entry: &Entry,
    lasts: Duration,
    deadline: Instant,
) -> StoreResult<Option<Duration>> {
    let left = lasts.saturating_sub(age(bucket, entry, deadline)?);
    Ok(Some(left).filter(|left| !left.is_zero()))
}

/// Returns how long ago an entry was written, by the clock of the store. Where the store does not
/// tell, it counts as written now.
///
/// # Errors
///
/// When there was no answer by the deadline.
pub(super) fn age(
    bucket: &mut dyn Bucket,
    entry: &Entry,
    deadline: Instant,
) -> StoreResult<Duration> {
    let ages = bucket.ages(std::slice::from_ref(entry), deadline)?;
    Ok(ages.first().copied().flatten().unwrap_or_default())
}

/// Ends the entry of a key that stands at this revision, before its time.
pub(super) fn end(bucket: &mut dyn Bucket, key: &str, at: Revision, deadline: Instant) -> Written {
    bucket.compare_and_set(key, Expected::Key(at), &Content::tombstone(), deadline)
}
