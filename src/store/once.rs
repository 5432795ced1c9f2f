//! The IDs that have succeeded under a lock, for `putex lock --once`: the entry
//! `once.<element>...` of a [`Bucket`], a line for each ID.

use super::{Bucket, Content, Expected, StoreResult};
use crate::core::tickets::{Ids, Name, Once, OnceStep};
use crate::core::{Instant, Written};
use crate::sys;

/// The first element of the keys.
const ROOT: &str = "once";

/// Returns the key of the IDs of a lock.
pub fn key(name: &Name) -> String {
    format!("{ROOT}.{}", name.elements().join("."))
}

/// Makes the request that is due for an ID, if there is one; it ends by this instant. Returns
/// whether there was one.
pub fn advance(
    once: &mut Once,
    bucket: &mut dyn Bucket,
    name: &Name,
    now: Instant,
    by: Instant,
) -> bool {
    match once.next(now) {
        None => return false,
        Some(OnceStep::Read) => {
            let ids = read(bucket, name, by).map_err(|error| error.text);
            once.read(ids, sys::now());
        }
        Some(OnceStep::Write(ids)) => {
            let written = write(bucket, name, &ids, by);
            once.written(written, sys::now());
        }
    }
    true
}

/// Reads the IDs of a lock.
fn read(bucket: &mut dyn Bucket, name: &Name, deadline: Instant) -> StoreResult<Ids> {
    let entry = bucket.get(&key(name), deadline)?;
    Ok(entry.map_or_else(Ids::default, |it| Ids::parse(it.revision, &it.content.payload)))
}

/// Writes the IDs of a lock in the place of their revision.
fn write(bucket: &mut dyn Bucket, name: &Name, ids: &Ids, deadline: Instant) -> Written {
    let content = Content::new([], &ids.payload());
    bucket.compare_and_set(&key(name), Expected::Key(ids.revision), &content, deadline)
}
