//! `putex init`: makes a bucket in which nobody waits for what an earlier bucket may have held.
//!
//! A lost bucket that was made anew looks like a new one, so the first lock and the first lease in
//! a bucket wait until those of a lost bucket have run out. An operator who makes the bucket knows
//! that none was lost, and the mark of the bucket says so.

use crate::core::tickets::Mark;
use crate::core::tickets::grab::LIFETIME_MAX;
use crate::core::{Instant, REACH_MAX, StoreErrorKind, Written};
use crate::exit::Refusal;
use crate::store::name::MARK_KEY;
use crate::store::{Bucket, FirstKeys, mark, open_or_make};
use crate::sys;

/// How often a write is repeated after an answer that leaves open whether it was stored, or after
/// somebody else has written the mark.
const WRITES_MAX: u32 = 5;

/// Makes the bucket of this name unless it exists, and marks it as one for which no older one was
/// lost. Returns what to print.
///
/// # Errors
///
/// Why the bucket cannot be used, or why it may not be marked.
pub fn run(bucket: &mut dyn Bucket, name: &str, is_local: bool) -> Result<String, Refusal> {
    let by = sys::now().after(REACH_MAX);
    let (info, entries) = open_or_make(bucket, FirstKeys::read(&[MARK_KEY]), by)?;
    let found = mark::of_entry(entries.into_iter().next().flatten());
    // A directory ends with its host: what is in it is as old as the boot at most.
    if !is_local && let Some(missing) = found.missing(&info.id.epoch, LIFETIME_MAX) {
        write(bucket, &info.id.epoch, missing, by)?;
    }
    let mut lines = info.remarks;
    lines.push(format!("bucket {name}: ready; no lock or lease waits for an older bucket"));
    lines.extend(info.retires.err());
    Ok(lines.join("\n") + "\n")
}

/// Writes the mark, unless somebody else does.
fn write(bucket: &mut dyn Bucket, epoch: &str, missing: Mark, by: Instant) -> Result<(), Refusal> {
    let (mut missing, mut last) = (missing, String::new());
    for _ in 0..WRITES_MAX {
        match mark::write(bucket, &missing, by) {
            Written::Stored(_) => return Ok(()),
            Written::Denied(why) => return Err(StoreErrorKind::Credentials.error(why).into()),
            Written::Moved(_) => "others write it all the time".clone_into(&mut last),
            Written::Unknown(why) => last = why,
        }
        // The last attempt may have been stored after all.
        match mark::read(bucket, by)?.missing(epoch, LIFETIME_MAX) {
            Some(still_missing) => missing = still_missing,
            None => return Ok(()),
        }
    }
    let text = format!("the mark of the bucket was not written: {last}");
    Err(StoreErrorKind::Unreachable.error(text).into())
}
