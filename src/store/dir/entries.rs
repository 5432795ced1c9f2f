//! The entries of a bucket's folder: reading, listing, and compare-and-set.

use std::collections::BTreeSet;

use rustix::io::Errno;

use super::folder::{Folder, FolderError, SEQUENCE};
use super::text::{self, Kind, Names};
use crate::core::event::Written;
use crate::core::record::Revision;
use crate::core::time::Instant;
use crate::store::{Content, Entry, Expected, Listing, OPERATION, is_below};

impl Folder {
    /// Returns the highest revision of the bucket.
    pub(super) fn last(&self) -> Result<Revision, FolderError> {
        let Some(body) = self.text_file(SEQUENCE)? else {
            return Err(self.damaged(SEQUENCE, "is missing"));
        };
        match text::parse_number("sequence", &body) {
            Some(last) => Ok(Revision(last)),
            None => Err(self.damaged(SEQUENCE, "does not say what it should")),
        }
    }

    /// Returns the entry of a key. A record that was removed by hand is a tombstone.
    pub(super) fn entry(&self, key: &str) -> Result<Option<Entry>, FolderError> {
        let entry = self.unchecked_entry(key)?;
        // The sequence last: without the lock it may only be too new.
        let (revision, last) = (revision_of(entry.as_ref()), self.last()?);
        if revision > last {
            let what = format!("stands at {last}, before revision {revision} of a record");
            return Err(self.damaged(SEQUENCE, &what));
        }
        Ok(entry)
    }

    fn unchecked_entry(&self, key: &str) -> Result<Option<Entry>, FolderError> {
        if let Some(entry) = self.record(key)? {
            return Ok(Some(entry));
        }
        let first = Names::new(key).first;
        let Some(body) = self.text_file(&first)? else {
            return Ok(None);
        };
        // The key's first record may have been stored since it was read above.
        if let Some(entry) = self.record(key)? {
            return Ok(Some(entry));
        }
        match text::parse_number("first", &body) {
            Some(revision) if revision > 0 => Ok(Some(Entry {
                key: key.to_owned(),
                revision: Revision(revision),
                content: Content {
                    headers: vec![(OPERATION.to_owned(), "DEL".to_owned())],
                    payload: Vec::new(),
                },
            })),
            _ => Err(self.damaged(&first, "does not say what it should")),
        }
    }

    /// Returns the entry in the record's file of a key.
    pub(super) fn record(&self, key: &str) -> Result<Option<Entry>, FolderError> {
        let name = Names::new(key).record;
        let Some(body) = self.file(&name)? else {
            return Ok(None);
        };
        match text::decode_record(&body) {
            Some((revision, content)) if revision > Revision(0) => {
                Ok(Some(Entry { key: key.to_owned(), revision, content }))
            }
            _ => Err(self.damaged(&name, "does not say what it should")),
        }
    }

    /// Lists the keys below a prefix, under the lock: a rename can hide its file from a
    /// reader of the folder.
    pub(super) fn list(&self, prefix: &str, deadline: Instant) -> Result<Listing, FolderError> {
        let _held = self.lock(deadline)?;
        self.verify()?;
        let entries = self.entries_below(prefix)?;
        let last = self.last()?;
        Ok(Listing { entries, last })
    }

    /// Returns the entries below a prefix. Needs the lock.
    fn entries_below(&self, prefix: &str) -> Result<Vec<Entry>, FolderError> {
        let files = self.file_names()?;
        let keys: BTreeSet<String> = files
            .iter()
            .filter_map(|name| text::key_of(name))
            .filter(|(key, kind)| *kind != Kind::Announcement && is_below(key, prefix))
            .map(|(key, _)| key)
            .collect();
        let mut entries = Vec::new();
        for key in keys {
            entries.extend(self.entry(&key)?);
        }
        Ok(entries)
    }

    /// Stores the content of a key if the condition holds. An error means not stored.
    pub(super) fn compare_and_set(
        &self,
        key: &str,
        expected: Expected<'_>,
        content: &Content,
        deadline: Instant,
    ) -> Result<Written, FolderError> {
        let _held = self.lock(deadline)?;
        self.verify()?;
        // Read in any case: a damaged record is never overwritten.
        let entry = self.entry(key)?;
        let stands_at = match expected {
            Expected::Key(_) => revision_of(entry.as_ref()),
            Expected::OtherKey(other, _) => revision_of(self.entry(other)?.as_ref()),
            Expected::Below(prefix, _) => {
                let entries = self.entries_below(prefix)?;
                let revisions = entries.iter().map(|entry| entry.revision);
                revisions.max().unwrap_or(Revision(0))
            }
        };
        if stands_at != expected.revision() {
            return Ok(Written::Moved(Some(stands_at)));
        }
        let Some(next) = self.last()?.0.checked_add(1) else {
            return Err(self.damaged(SEQUENCE, "has no number left"));
        };
        let names = Names::new(key);
        self.replace(SEQUENCE, format!("sequence {next}").as_bytes())?;
        self.prepare(&names.record, &text::encode_record(Revision(next), content))?;
        match self.publish(&names.record) {
            Ok(()) => {}
            // After this error of rename(2) the file may have either content.
            Err(Errno::IO) => {
                let error = self.failed("write", &names.record, &Errno::IO.into());
                return Ok(Written::Unknown(error.to_string()));
            }
            Err(error) => return Err(self.failed("write", &names.record, &error.into())),
        }
        // A failure here does no harm: the next write tries again.
        if matches!(self.file(&names.first), Ok(None)) {
            let _ = self.replace(&names.first, format!("first {next}").as_bytes());
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
    ) -> Result<(), FolderError> {
        let _held = self.lock(deadline)?;
        self.verify()?;
        let body = text::encode_content(content);
        self.replace(&Names::new(key).announcement, &body)
    }
}

/// Returns the revision at which a key stands, 0 without an entry.
fn revision_of(entry: Option<&Entry>) -> Revision {
    entry.map_or(Revision(0), |entry| entry.revision)
}
