//! The leases of `putex lease` as entries of a [`Bucket`]: `lease.<element>...e<bucket>`.
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
//!
//! The last element of a key is of the random id of the bucket. Revisions begin again in a bucket
//! that is made anew: a write that was under way to the lost one would find the revision that it
//! names, and replace the lease of another.

mod notes;

use super::lifetime::{LIFE, lifetime, read_with_age};
use super::mark;
use super::name::{MARK_KEY, READ_KEY};
use super::{
    ATTEMPT, Bucket, BucketInfo, Content, Entry, Expected, MARKER_REASON, OPERATION, Opening,
    Selection, StoreResult, open_or_make,
};
use crate::core::lease::{LeaseEntry, StoredLease};
use crate::core::tickets::grab::LIFETIME_MAX;
use crate::core::tickets::{Mark, Name};
use crate::core::{Instant, Revision, Written, sanitize};

pub use self::notes::NotesFolder;

/// The first element of the keys.
const ROOT: &str = "lease";

const TERM: &str = "Putex-Term";
const END: &str = "Putex-End";

/// How many letters of the id of a bucket are in a key.
const EPOCH_LETTERS: usize = 16;

/// Returns the last element of the keys in the bucket with this random id.
fn last_element(epoch: &str) -> String {
    let letters = epoch.chars().filter(char::is_ascii_alphanumeric).take(EPOCH_LETTERS);
    format!("e{}", letters.collect::<String>())
}

/// Converts a lease into the content of its entry; `None`: it is expired, by this host.
fn to_content(lease: Option<&LeaseEntry>, attempt: u64, host: &str) -> Content {
    let attempt = (ATTEMPT, attempt.to_string());
    let Some(lease) = lease else {
        let why = format!("expired by {}", sanitize(host));
        return Content::new([(OPERATION, "DEL".to_owned()), attempt, (END, why)], b"");
    };
    let mut headers = vec![(LIFE, lease.duration.as_millis().to_string()), attempt];
    headers.extend(lease.term.map(|term| (TERM, term.to_string())));
    Content::new(headers, lease.holder.as_bytes())
}

fn to_stored(entry: Option<Entry>) -> StoredLease {
    let Some(Entry { key, revision, content, .. }) = entry else {
        return StoredLease { revision: Revision(0), attempt: 0, lease: None };
    };
    // Only entries of leases that are expired have a time after which a server removes them.
    let is_removed = content.header(MARKER_REASON) == Some("MaxAge");
    let lease = match content.is_tombstone() {
        true if content.header(END).is_some() || is_removed => None,
        true => return deleted_by_hand(revision),
        false => Some(of_content(&content, revision).map_err(|why| format!("{key}: {why}"))),
    };
    StoredLease { revision, attempt: content.attempt().unwrap_or_default(), lease }
}

/// Returns the lease that stands for one that was deleted by something else than putex: its holder,
/// who is not known, may count on it for as long as a lease can last.
fn deleted_by_hand(revision: Revision) -> StoredLease {
    let holder = "(deleted by hand)".to_owned();
    let lease = LeaseEntry { holder, duration: LIFETIME_MAX, term: None };
    StoredLease { revision, attempt: 0, lease: Some(Ok(lease)) }
}

fn damaged(name: &str) -> String {
    format!("its {name} is missing or damaged: putex did not write it; nats kv purge frees it")
}

fn of_content(content: &Content, revision: Revision) -> Result<LeaseEntry, String> {
    content.attempt().ok_or_else(|| damaged(ATTEMPT))?;
    let term = content.header(TERM).map(str::parse).transpose().map_err(|_| damaged(TERM))?;
    let term = term.map(Revision);
    if term.is_some_and(|term| term >= revision) {
        return Err(damaged(TERM));
    }
    Ok(LeaseEntry {
        // The holder is compared as it is, and made harmless where it is printed.
        holder: String::from_utf8(content.payload.clone()).map_err(|_| damaged("holder"))?,
        duration: lifetime(content).ok_or_else(|| damaged(LIFE))?,
        term,
    })
}

/// The leases of a bucket.
pub struct Leases {
    bucket: Box<dyn Bucket>,
    /// The random id of the bucket that was opened.
    epoch: String,
}

impl Leases {
    /// Returns the leases of this bucket, which is not open yet.
    pub fn new(bucket: Box<dyn Bucket>) -> Leases {
        Leases { bucket, epoch: String::new() }
    }

    /// Returns the bucket, for its other entries.
    pub fn bucket(&mut self) -> &mut dyn Bucket {
        &mut *self.bucket
    }

    /// Returns the key of a lease in the bucket that was opened.
    pub fn key(&self, name: &Name) -> String {
        format!("{}.{}", prefix(name), last_element(&self.epoch))
    }

    /// Opens the bucket and reads its mark.
    ///
    /// # Errors
    ///
    /// As of [`Bucket::open`].
    pub fn open(&mut self, by: Instant) -> StoreResult<(BucketInfo, Mark)> {
        let (info, entries) = open_or_make(&mut *self.bucket, Opening::make(&[MARK_KEY]), by)?;
        self.epoch.clone_from(&info.id.epoch);
        Ok((info, mark::of_entry(entries.into_iter().next().flatten())))
    }

    /// Reads a lease in the bucket that was opened.
    ///
    /// # Errors
    ///
    /// When there was no answer by the deadline, or the bucket was made anew since.
    pub fn read(&mut self, name: &Name, by: Instant) -> StoreResult<StoredLease> {
        // A listing is of the bucket that was opened.
        let key = self.key(name);
        Ok(to_stored(read_with_age(&mut *self.bucket, &key, by)?))
    }

    /// Writes a lease in the place of this revision, by the command of this number; `None`: it is
    /// expired, by this host.
    pub fn write(
        &mut self,
        name: &Name,
        at: Revision,
        lease: Option<&LeaseEntry>,
        (attempt, host): (u64, &str),
        by: Instant,
    ) -> Written {
        let (key, content) = (self.key(name), to_content(lease, attempt, host));
        self.bucket.write(&key, Expected::Key(at), &content, None, by)
    }

    /// Has a write confirm that a lease stands at this revision, in the bucket that was opened: the
    /// entry that was read before is the last one then.
    pub fn confirm(&mut self, name: &Name, at: Revision, by: Instant) -> Written {
        let (key, content) = (self.key(name), Content::default());
        let expected = Expected::OtherKey(&key, at);
        let written = self.bucket.write(READ_KEY, expected, &content, None, by);
        if !matches!(written, Written::Stored(_)) {
            return written;
        }
        // In a bucket that was made anew, nothing stands under the key either.
        let listed = self.bucket.list(Selection::Key(READ_KEY), by);
        listed.map_or_else(|error| Written::Unknown(error.text), |_| written)
    }

    /// Opens the bucket and returns all leases that stand, with their names: all of the bucket, or
    /// of a name and below it.
    ///
    /// # Errors
    ///
    /// When the listing was not complete by the deadline, or the bucket was made anew meanwhile.
    pub fn list(
        &mut self,
        below: Option<&Name>,
        by: Instant,
    ) -> StoreResult<(BucketInfo, Vec<(Name, StoredLease)>)> {
        let (info, _) = self.open(by)?;
        let prefix = below.map_or_else(|| ROOT.to_owned(), prefix);
        let listing = self.bucket.list(Selection::below(&prefix), by)?;
        let entries = listing.entries.into_iter();
        Ok((info, entries.filter_map(|entry| of_entry(entry, &self.epoch)).collect()))
    }
}

/// Returns the lease of an entry in the bucket with this random id, with its name; `None` if it is
/// that of no lease that stands.
pub(crate) fn of_entry(entry: Entry, epoch: &str) -> Option<(Name, StoredLease)> {
    let path = entry.key.strip_prefix(ROOT)?.strip_suffix(&*last_element(epoch))?;
    let name = Name::parse(&path.trim_matches('.').replace('.', "/")).ok()?;
    Some((name, to_stored(Some(entry)))).filter(|(_, stored)| stored.lease.is_some())
}

/// Returns how the keys of a lease begin.
fn prefix(name: &Name) -> String {
    format!("{ROOT}.{}", name.elements().join("."))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn entry(revision: u64, content: Content) -> Option<Entry> {
        Some(Entry {
            key: "lease.db.e8c3e".to_owned(),
            revision: Revision(revision),
            content,
            age: None,
        })
    }

    fn lease(term: Option<u64>) -> LeaseEntry {
        let duration = Duration::from_millis(60_607);
        LeaseEntry { holder: "h\u{202e} 1".to_owned(), duration, term: term.map(Revision) }
    }

    #[test]
    fn a_lease_survives_the_way_through_an_entry() {
        for lease in [lease(None), lease(Some(5))] {
            let stored = to_stored(entry(9, to_content(Some(&lease), 7, "h1")));
            let read = StoredLease { revision: Revision(9), attempt: 7, lease: Some(Ok(lease)) };
            assert_eq!(stored, read);
        }
        let expired = to_stored(entry(9, to_content(None, 7, "h1")));
        assert_eq!(expired, StoredLease { revision: Revision(9), attempt: 7, lease: None });
        let none = StoredLease { revision: Revision(0), attempt: 0, lease: None };
        assert_eq!(to_stored(None), none);
    }

    /// The holder of the lease may count on it for as long as a lease can last.
    #[test]
    fn a_lease_that_was_deleted_by_hand_is_not_free() {
        let deleted = Content::new([(OPERATION, "DEL".to_owned())], b"");
        let Some(Ok(lease)) = to_stored(entry(9, deleted)).lease else { panic!("it is free") };
        assert_eq!((&*lease.holder, lease.duration), ("(deleted by hand)", LIFETIME_MAX));
        let removed = Content::new([(MARKER_REASON, "MaxAge".to_owned())], b"");
        assert_eq!(to_stored(entry(9, removed)).lease, None);
    }

    #[test]
    fn an_entry_that_putex_has_not_written_is_no_lease_and_is_not_free() {
        let whole = to_content(Some(&lease(Some(5))), 7, "h1");
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
        for payload in [&b"h1"[..], b"\xff"] {
            let foreign = to_stored(entry(9, Content::new([], payload)));
            assert!(matches!(foreign.lease, Some(Err(_))));
        }
    }

    /// Two buckets of one name have the same revisions.
    #[test]
    fn the_key_of_a_lease_is_another_in_a_bucket_that_is_made_anew() {
        assert_ne!(last_element("8c3e"), last_element("8c3f"));
        let long = Name::parse(&"a".repeat(150)).expect("a name");
        for epoch in ["0123456789abcdef0123456789abcdef", "", "\u{e9}.*>"] {
            let key = format!("{}.{}", prefix(&long), last_element(epoch));
            crate::store::name::valid_key(&key).expect("a key");
        }
    }
}
