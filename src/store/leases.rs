//! The leases of `putex lease` as entries of a [`Bucket`]: `lease.<element>...`.
//!
//! | header | value |
//! |---|---|
//! | `Putex-Life` | how long the lease lasts, in milliseconds |
//! | `Putex-Term` | the revision of the claim; absent in the claim itself |
//! | `Putex-Nonce` | the number of the command that has written it |
//! | `Putex-End` | who has expired it; `KV-Operation: DEL` stands beside it |
//!
//! The payload is the holder. A lease that was expired leaves its tombstone: its revision is the
//! condition of the next claim.

mod notes;

use super::mark::{self, LIFE};
use super::name::MARK_KEY;
use super::{
    Bucket, BucketInfo, Content, Entry, Expected, FirstKey, OPERATION, Selection, StoreResult,
};
use crate::core::lease::{LeaseEntry, StoredLease};
use crate::core::tickets::{Mark, Name};
use crate::core::{Instant, Revision, Written, sanitize, sanitize_field};

pub use self::notes::NotesFolder;

/// The first element of the keys.
const ROOT: &str = "lease";

const TERM: &str = "Putex-Term";
const ATTEMPT: &str = "Putex-Nonce";
const END: &str = "Putex-End";

/// Returns the key of a lease.
pub fn key(name: &Name) -> String {
    format!("{ROOT}.{}", name.elements().join("."))
}

/// Converts a lease into the content of its entry; `None`: it is expired, by somebody.
fn to_content(lease: Option<&LeaseEntry>, by: &str) -> Content {
    let Some(lease) = lease else {
        let why = format!("expired by {}", sanitize(by));
        return Content::new([(OPERATION, "DEL".to_owned()), (END, why)], b"");
    };
    let mut headers =
        vec![(LIFE, lease.duration.as_millis().to_string()), (ATTEMPT, lease.attempt.to_string())];
    headers.extend(lease.term.map(|term| (TERM, term.to_string())));
    Content::new(headers, lease.holder.as_bytes())
}

/// Converts the entry of a lease.
fn to_stored(entry: Option<Entry>) -> StoredLease {
    let Some(Entry { key, revision, content }) = entry else {
        return StoredLease { revision: Revision(0), lease: None };
    };
    let lease = (!content.is_tombstone()).then(|| of_content(&content, revision));
    let lease = lease.map(|lease| lease.map_err(|why| format!("{key}: {why}")));
    StoredLease { revision, lease }
}

fn of_content(content: &Content, revision: Revision) -> Result<LeaseEntry, String> {
    let damaged = |name: &str| format!("its {name} is missing or damaged: putex did not write it");
    let number = |name: &str| content.header(name).map(str::parse::<u64>).transpose();
    let term = number(TERM).map_err(|_| damaged(TERM))?.map(Revision);
    if term.is_some_and(|term| term >= revision) {
        return Err(damaged(TERM));
    }
    let attempt = number(ATTEMPT).ok().flatten();
    Ok(LeaseEntry {
        holder: sanitize_field(&String::from_utf8_lossy(&content.payload)),
        duration: mark::lifetime(content).ok_or_else(|| damaged(LIFE))?,
        term,
        attempt: attempt.ok_or_else(|| damaged(ATTEMPT))?,
    })
}

/// The leases of a bucket.
pub struct Leases(Box<dyn Bucket>);

impl Leases {
    /// Returns the leases of this bucket.
    pub fn new(bucket: Box<dyn Bucket>) -> Leases {
        Leases(bucket)
    }

    /// Returns the bucket, for its other entries.
    pub fn bucket(&mut self) -> &mut dyn Bucket {
        &mut *self.0
    }

    /// Opens the bucket and reads a lease.
    ///
    /// # Errors
    ///
    /// As of [`Bucket::open`].
    pub fn open(&mut self, name: &Name, by: Instant) -> StoreResult<(BucketInfo, StoredLease)> {
        let (info, entry) = self.0.open(FirstKey::Read(&key(name)), by)?;
        Ok((info, to_stored(entry)))
    }

    /// Reads a lease.
    ///
    /// # Errors
    ///
    /// When there was no answer by the deadline.
    pub fn read(&mut self, name: &Name, by: Instant) -> StoreResult<StoredLease> {
        Ok(to_stored(self.0.get(&key(name), by)?))
    }

    /// Reads the mark.
    ///
    /// # Errors
    ///
    /// When there was no answer by the deadline.
    pub fn mark(&mut self, by: Instant) -> StoreResult<Mark> {
        mark::read(&mut *self.0, by)
    }

    /// Writes a mark in the place of its revision.
    pub fn write_mark(&mut self, mark: &Mark, by: Instant) -> Written {
        mark::write(&mut *self.0, mark, by)
    }

    /// Writes a lease in the place of this revision; `None`: it is expired, by this host.
    pub fn write(
        &mut self,
        name: &Name,
        at: Revision,
        lease: Option<&LeaseEntry>,
        host: &str,
        by: Instant,
    ) -> Written {
        self.0.compare_and_set(&key(name), Expected::Key(at), &to_content(lease, host), by)
    }

    /// Has a write confirm that a lease stands at this revision.
    pub fn confirm(&mut self, name: &Name, at: Revision, by: Instant) -> Written {
        self.0.confirm(&key(name), at, by)
    }

    /// Opens the bucket and returns all leases that stand, with their names: all of the bucket, or
    /// of a name and below it.
    ///
    /// # Errors
    ///
    /// When the listing was not complete by the deadline.
    pub fn list(
        &mut self,
        prefix: Option<&Name>,
        by: Instant,
    ) -> StoreResult<(BucketInfo, Vec<(Name, StoredLease)>)> {
        let of_prefix = prefix.map(key);
        let first = of_prefix.clone().unwrap_or_else(|| MARK_KEY.to_owned());
        let (info, entry) = self.0.open(FirstKey::Read(&first), by)?;
        let own = entry.filter(|_| of_prefix.is_some());
        let prefixes = [of_prefix.unwrap_or_else(|| ROOT.to_owned())];
        let listing = self.0.list(Selection::all(&prefixes), by)?;
        let name = |key: &str| Name::parse(&key.strip_prefix("lease.")?.replace('.', "/")).ok();
        let all = own.into_iter().chain(listing.entries);
        let named = all.filter_map(|entry| Some((name(&entry.key)?, to_stored(Some(entry)))));
        Ok((info, named.filter(|(_, stored)| stored.lease.is_some()).collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn entry(revision: u64, content: Content) -> Option<Entry> {
        Some(Entry { key: "lease.db".to_owned(), revision: Revision(revision), content })
    }

    fn lease(term: Option<u64>) -> LeaseEntry {
        let duration = Duration::from_millis(60_607);
        LeaseEntry { holder: "h 1".to_owned(), duration, term: term.map(Revision), attempt: 7 }
    }

    #[test]
    fn a_lease_survives_the_way_through_an_entry() {
        for lease in [lease(None), lease(Some(5))] {
            let stored = to_stored(entry(9, to_content(Some(&lease), "h1")));
            let read = StoredLease { revision: Revision(9), lease: Some(Ok(lease)) };
            assert_eq!(stored, read);
        }
        let expired = to_stored(entry(9, to_content(None, "h1")));
        assert_eq!(expired, StoredLease { revision: Revision(9), lease: None });
        assert_eq!(to_stored(None), StoredLease { revision: Revision(0), lease: None });
        let name = Name::parse("db/users").expect("a name");
        assert_eq!(key(&name), "lease.db.users");
    }

    #[test]
    fn an_entry_that_putex_has_not_written_is_no_lease_and_is_not_free() {
        let whole = to_content(Some(&lease(Some(5))), "h1");
        for at in 0..whole.headers.len() {
            let mut damaged = whole.clone();
            damaged.headers[at].1 = "-x".to_owned();
            let stored = to_stored(entry(9, damaged));
            assert!(matches!(stored.lease, Some(Err(_))), "{:?}", whole.headers[at]);
        }
        for (name, value) in [(LIFE, "6000001"), (TERM, "9")] {
            let mut odd = whole.clone();
            let header = odd.headers.iter_mut().find(|(key, _)| key == name);
            header.expect("it is written").1 = value.to_owned();
            let stored = to_stored(entry(9, odd));
            assert!(matches!(stored.lease, Some(Err(_))), "{name}: {value}");
        }
        let foreign = to_stored(entry(9, Content::new([], b"h1")));
        assert!(matches!(foreign.lease, Some(Err(_))));
    }
}
