//! The mark of a bucket in which tickets and leases of an earlier bucket have run out: the entry
//! `putex.settled`.
//!
//! | header | value |
//! |---|---|
//! | `Putex-Life` | the longest lifetime that was waited for, in milliseconds |
//! | `Putex-Epoch` | the random id of the bucket |

use std::time::Duration;

use super::lifetime::{LIFE, lifetime};
use super::name::MARK_KEY;
use super::{Bucket, Content, Entry, Expected};
use crate::core::tickets::Mark;
use crate::core::{Instant, Revision, Written};

const EPOCH: &str = "Putex-Epoch";

/// Writes a mark in the place of its revision.
pub fn write(bucket: &mut dyn Bucket, mark: &Mark, deadline: Instant) -> Written {
    let expected = Expected::Key(mark.revision);
    bucket.write(MARK_KEY, expected, &to_content(mark), None, deadline)
}

/// Converts a mark into the content of its entry.
pub(crate) fn to_content(mark: &Mark) -> Content {
    let headers = [(LIFE, mark.lifetime.as_millis().to_string()), (EPOCH, mark.epoch.clone())];
    Content::new(headers, b"")
}

pub(crate) fn of_entry(entry: Option<Entry>) -> Mark {
    let none = Mark { revision: Revision(0), epoch: String::new(), lifetime: Duration::ZERO };
    entry.map_or(none, |Entry { revision, content, .. }| Mark {
        revision,
        epoch: content.header(EPOCH).unwrap_or_default().to_owned(),
        lifetime: lifetime(&content).unwrap_or_default(),
    })
}
