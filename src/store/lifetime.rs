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

/// Reads the entry of a key, and how long ago it was written, by the clock of the store. Where the
/// store does not tell, it counts as written now.
///
/// # Errors
///
/// When there was no answer by the deadline.
pub(crate) fn read_with_age(
    bucket: &mut dyn Bucket,
    key: &str,
    deadline: Instant,
) -> StoreResult<Option<(Entry, Duration)>> {
    let listing = bucket.list(Selection::Key(key), deadline)?;
    let found = listing.entries.into_iter().zip(listing.ages).next();
    Ok(found.map(|(entry, age)| (entry, age.unwrap_or_default())))
}

/// Returns for how much longer an entry of this age stands that lasts so long; `None` if that is
/// over.
pub(super) fn left_of(lasts: Duration, age: Duration) -> Option<Duration> {
    Some(lasts.saturating_sub(age)).filter(|left| !left.is_zero())
}
