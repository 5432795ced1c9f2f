//! `putex init`: makes a bucket in which nobody waits for what an earlier bucket may have held.
//!
//! A lost bucket that was made anew looks like a new one, so the first lock and the first lease in
//! a bucket wait until those of a lost bucket have run out. An operator who makes the bucket knows
//! that none was lost, and the mark of the bucket says so.

use crate::core::REACH_MAX;
use crate::core::tickets::grab::LIFETIME_MAX;
use crate::exit::{Exit, Refusal};
use crate::nats::bucket::too_few_replicas;
use crate::operation;
use crate::store::name::MARK_KEY;
use crate::store::{Bucket, Opening, mark, open_or_make};
use crate::sys;

/// Makes the bucket of this name, with this number of replicas, unless it exists, and marks it as
/// one for which no older one was lost. Returns what to print.
///
/// # Errors
///
/// Why the bucket cannot be used, or why it may not be marked. One that exists with fewer replicas
/// is not marked.
pub fn run(bucket: &mut dyn Bucket, name: &str, replicas: u32) -> Result<String, Refusal> {
    let none = Opening::make(&[]);
    let (info, _) = open_or_make(bucket, none, sys::now().after(REACH_MAX))?;
    // A directory ends with its host: what is in it is as old as the boot at most.
    if info.may_be_lost {
        if let Some(why) = too_few_replicas(name, info.replicas, replicas) {
            return Err(Refusal::new(Exit::Unsafe, why));
        }
        let may = "the mark of the bucket may be missing";
        // The mark that stands counts, whoever has written it.
        let _ = operation::write(bucket, MARK_KEY, may, REACH_MAX, |found, _| {
            let mark = mark::of_entry(found.cloned());
            let missing = mark.missing(&info.id.epoch, LIFETIME_MAX);
            missing.map(|missing| mark::to_content(&missing)).ok_or(())
        })?;
    }
    let mut lines = info.remarks;
    match info.retires {
        Ok(()) => lines.push(format!(
            "bucket {name}: ready; no lock or lease waits for those of a lost bucket"
        )),
        Err(why) => lines.extend([format!("bucket {name}: ready for agents, not for locks"), why]),
    }
    Ok(lines.join("\n") + "\n")
}
