//! The entries of a bucket's folder: reading, listing, and compare-and-set.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;

use super::folder::{Folder, SEQUENCE};
use super::text::{self, Kind};
use crate::core::{Instant, Revision, Written};
use crate::store::{
    Content, Entry, Expected, Listing, Selection, StoreErrorKind, StoreResult, is_below,
};

/// Longest file name of Linux file systems, in bytes; bounds the escaped key.
const NAME_BYTES_MAX: usize = 255;

impl Folder {
    /// Returns the highest revision of the bucket.
    pub(super) fn last(&self) -> StoreResult<Revision> {
        let last = self.number(SEQUENCE, "sequence")?;
        last.map(Revision).ok_or_else(|| self.damaged(SEQUENCE, "is missing"))
    }

    /// Returns the entry of a key. A record that was removed by hand is a tombstone.
    pub(super) fn entry(&self, key: &str) -> StoreResult<Option<Entry>> {
        let first = Kind::First.file_of(key);
        if first.len() > NAME_BYTES_MAX {
            return Err(StoreErrorKind::Unsafe.error(format!(
                "the key is too long: the file name {first} has {} bytes, more than the maximum \
                 of {NAME_BYTES_MAX}",
                first.len()
            )));
        }
        // Read before the record: if there was a first record and there is none now, the record
        // was removed.
        let first = self.number::<NonZeroU64>(&first, "first");
        let entry = match self.record(key)? {
            Some((revision, content)) => Some(Entry { key: key.to_owned(), revision, content }),
            None => first?.map(|first| tombstone(key, Revision(first.get()))),
        };
        // Read after the record: without the lock, `sequence` may be newer than the record.
        let (revision, last) = (revision_of(entry.as_ref()), self.last()?);
        if revision > last {
            let what = format!("stands at {last}, before revision {revision} of a record");
            return Err(self.damaged(SEQUENCE, &what));
        }
        Ok(entry)
    }

    /// Returns how long ago an entry was written, by the wall clock; `None` for one that was
    /// removed by hand.
    pub(super) fn age(&self, entry: &Entry) -> StoreResult<Option<Duration>> {
        let path = self.path.join(Kind::Record.file_of(&entry.key));
        // The file is replaced at each write: it may be a later one.
        let written = std::fs::metadata(path).and_then(|metadata| metadata.modified());
        let Ok(written) = written else { return Ok(None) };
        let stands = self.record(&entry.key)?.is_some_and(|(at, _)| at == entry.revision);
        let age = SystemTime::now().duration_since(written).unwrap_or_default();
        Ok(Some(if stands { age } else { Duration::ZERO }))
    }

    /// Returns the revision and the content in the record file of a key.
    pub(super) fn record(&self, key: &str) -> StoreResult<Option<(Revision, Content)>> {
        self.parsed(&Kind::Record.file_of(key), text::decode_record)
    }

    /// Lists the selected keys, under the lock: reading the folder can miss a file that is
    /// renamed meanwhile.
    pub(super) fn list(
        &self,
        Selection { prefixes, wanted, .. }: Selection<'_>,
        deadline: Instant,
    ) -> StoreResult<Listing> {
        let _held = self.lock(deadline)?;
        self.verify()?;
        let files = self.key_files()?.into_iter();
        let is_selected = |key: &str| prefixes.iter().any(|it| is_below(key, it)) && wanted(key);
        let kept = files
            .filter(|(kind, key)| matches!(kind, Kind::First | Kind::Record) && is_selected(key));
        let keys: BTreeSet<String> = kept.map(|(_, key)| key).collect();
        let entries = keys.iter().filter_map(|key| self.entry(key).transpose());
        Ok(Listing { entries: entries.collect::<Result<_, _>>()?, last: self.last()? })
    }

    /// Removes the files of a key that stands at this revision.
    pub(super) fn remove(
        &self,
        key: &str,
        revision: Revision,
        deadline: Instant,
    ) -> StoreResult<()> {
        let _held = self.lock(deadline)?;
        self.verify()?;
        if self.record(key)?.is_some_and(|(stored, _)| stored == revision) {
            // Without the first revision the key never had a record.
            for kind in [Kind::First, Kind::Record] {
                self.unlink(&kind.file_of(key))?;
            }
        }
        Ok(())
    }

    /// Stores the content of a key if the condition holds. An error means not stored.
    pub(super) fn compare_and_set(
        &self,
        key: &str,
        expected: Expected<'_>,
        content: &Content,
        deadline: Instant,
    ) -> StoreResult<Written> {
        let _held = self.lock(deadline)?;
        self.verify()?;
        // Read whatever the condition is: a damaged record is never overwritten.
        let entry = self.entry(key)?;
        let current = match expected {
            Expected::Key(_) => revision_of(entry.as_ref()),
            Expected::OtherKey(other, _) => revision_of(self.entry(other)?.as_ref()),
        };
        if current != expected.revision() {
            return Ok(Written::Moved(Some(current)));
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
        // The next write tries again after a failure.
        if matches!(self.file(&first), Ok(None)) {
            let _ = self.replace(&first, format!("first {next}").as_bytes());
        }
        match self.sync() {
            Ok(()) => Ok(Written::Stored(Revision(next))),
            Err(error) => Ok(Written::Unknown(error.to_string())),
        }
    }
}

/// Returns the entry of a key whose record was removed by hand.
fn tombstone(key: &str, revision: Revision) -> Entry {
    Entry { key: key.to_owned(), revision, content: Content::tombstone() }
}

/// Returns the revision of a key, 0 without an entry.
fn revision_of(entry: Option<&Entry>) -> Revision {
    entry.map_or(Revision(0), |entry| entry.revision)
}
