//! The entries of a bucket's folder: reading, listing, and compare-and-set.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use rustix::io::Errno;

use super::folder::{Folder, SEQUENCE};
use super::text::{self, Kind};
use crate::core::event::Written;
use crate::core::record::Revision;
use crate::core::time::Instant;
use crate::store::{Content, Entry, Expected, Listing, OPERATION, StoreError, is_below};

/// Longest file name of Linux file systems, in bytes; bounds the escaped key.
const NAME_BYTES_MAX: usize = 255;

impl Folder {
    /// Returns the highest revision of the bucket.
    pub(super) fn last(&self) -> Result<Revision, StoreError> {
        let last = self.number(SEQUENCE, "sequence")?;
        last.map(Revision).ok_or_else(|| self.damaged(SEQUENCE, "is missing"))
    }

    /// Returns the entry of a key. A record that was removed by hand is a tombstone.
    pub(super) fn entry(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        let first = Kind::First.file_of(key);
        if first.len() > NAME_BYTES_MAX {
            return Err(StoreError::Unsafe(format!(
                "the key is too long: the file name {first} has {} bytes, more than the maximum \
                 of {NAME_BYTES_MAX}",
                first.len()
            )));
        }
        // Before the record: a key without a record that had a first one has lost it.
        let first = self.number::<NonZeroU64>(&first, "first");
        let entry = match self.record(key)? {
            Some(entry) => Some(entry),
            None => first?.map(|first| tombstone(key, Revision(first.get()))),
        };
        // The sequence last: without the lock it may only be too new.
        let (revision, last) = (revision_of(entry.as_ref()), self.last()?);
        if revision > last {
            let what = format!("stands at {last}, before revision {revision} of a record");
            return Err(self.damaged(SEQUENCE, &what));
        }
        Ok(entry)
    }

    /// Returns the entry in the record's file of a key.
    pub(super) fn record(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        let name = Kind::Record.file_of(key);
        let Some((revision, content)) = self.parsed(&name, text::decode_record)? else {
            return Ok(None);
        };
        Ok(Some(Entry { key: key.to_owned(), revision, content }))
    }

    /// Lists the keys below a prefix, under the lock: a rename can hide its file from a
    /// reader of the folder.
    pub(super) fn list(&self, prefix: &str, deadline: Instant) -> Result<Listing, StoreError> {
        let _held = self.lock(deadline)?;
        self.verify()?;
        let files = self.key_files()?.into_iter();
        let kept = files.filter(|(kind, key)| *kind != Kind::Announcement && is_below(key, prefix));
        let keys: BTreeSet<String> = kept.map(|(_, key)| key).collect();
        let entries = keys.iter().filter_map(|key| self.entry(key).transpose());
        Ok(Listing { entries: entries.collect::<Result<_, _>>()?, last: self.last()? })
    }

    /// Stores the content of a key if the condition holds. An error means not stored.
    pub(super) fn compare_and_set(
        &self,
        key: &str,
        expected: Expected<'_>,
        content: &Content,
        deadline: Instant,
    ) -> Result<Written, StoreError> {
        let _held = self.lock(deadline)?;
        self.verify()?;
        // Read in any case: a damaged record is never overwritten.
        let entry = self.entry(key)?;
        let stands_at = match expected {
            Expected::Key(_) => revision_of(entry.as_ref()),
            Expected::OtherKey(other, _) => revision_of(self.entry(other)?.as_ref()),
        };
        if stands_at != expected.revision() {
            return Ok(Written::Moved(Some(stands_at)));
        }
        let Some(next) = self.last()?.0.checked_add(1) else {
            return Err(self.damaged(SEQUENCE, "has no number left"));
        };
        let (record, first) = (Kind::Record.file_of(key), Kind::First.file_of(key));
        self.replace(SEQUENCE, format!("sequence {next}").as_bytes())?;
        self.prepare(&record, &text::encode_record(Revision(next), content))?;
        if let Err(error) = self.publish(&record) {
            let failed = self.failed("write", &record, error);
            return match error {
                // After this error of rename(2) the file may have either content.
                Errno::IO => Ok(Written::Unknown(failed.to_string())),
                _ => Err(failed),
            };
        }
        // A failure here does no harm: the next write tries again.
        if matches!(self.file(&first), Ok(None)) {
            let _ = self.replace(&first, format!("first {next}").as_bytes());
        }
        match self.sync() {
            Ok(()) => Ok(Written::Stored(Revision(next))),
            Err(error) => Ok(Written::Unknown(error.to_string())),
        }
    }

    /// Writes the announcement for a key.
    pub(super) fn announce(
        &self,
        key: &str,
        content: &Content,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let _held = self.lock(deadline)?;
        self.verify()?;
        self.replace(&Kind::Announcement.file_of(key), &text::encode_content(content))
    }
}

/// Returns the entry of a key whose record was removed by hand.
fn tombstone(key: &str, revision: Revision) -> Entry {
    let content = Content::new([(OPERATION, "DEL".to_owned())], b"");
    Entry { key: key.to_owned(), revision, content }
}

/// Returns the revision at which a key stands, 0 without an entry.
fn revision_of(entry: Option<&Entry>) -> Revision {
    entry.map_or(Revision(0), |entry| entry.revision)
}
