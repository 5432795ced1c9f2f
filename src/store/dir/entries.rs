//! The entries of a bucket's folder: reading, listing, compare-and-set, and their numbers.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::Resource;

use super::folder::Folder;
use super::sequence::{SEQUENCE, Sequence};
use super::text::{self, Kind};
use crate::core::time::StoreTime;
use crate::core::{Instant, Revision, Written};
use crate::store::{Content, Entry, Expected, Listing, Selection, StoreResult};

impl Folder {
    pub(super) fn entry(&self, key: &str) -> StoreResult<Option<Entry>> {
        let record = self.parsed(&Kind::Record.file_of(key), text::decode_record)?;
        let key = key.to_owned();
        Ok(record.map(|(revision, content)| Entry { key, revision, content, age: None }))
    }

    /// Checks that an entry was written before this number was given. The caller holds the lock.
    pub(super) fn check_revision(&self, revision: Revision, last: Revision) -> StoreResult<()> {
        if revision <= last {
            return Ok(());
        }
        let what = format!("stands at {last}, before revision {revision} of a record");
        Err(self.damaged(SEQUENCE, &what))
    }

    /// Returns how long ago the entry of a key was written, by the wall clock; `None` for a ticket,
    /// which stands however old it is. The caller holds the lock.
    fn age(&self, key: &str) -> Option<Duration> {
        let path = self.path.join(Kind::Record.file_of(key));
        let written = std::fs::metadata(path).and_then(|metadata| metadata.modified());
        Some(SystemTime::now().duration_since(written.ok()?).unwrap_or_default())
    }

    /// Lists the selected keys, under the lock: reading the folder can miss a file that is
    /// renamed meanwhile.
    pub(super) fn list(&self, selection: Selection<'_>, deadline: Instant) -> StoreResult<Listing> {
        let _held = self.lock(deadline)?;
        let files = self.key_files()?.into_iter();
        let files = files.filter(|(kind, key)| *kind != Kind::Question && selection.selects(key));
        // A key has one entry, whichever of its files are there.
        let kinds: BTreeMap<String, Kind> = files.map(|(kind, key)| (key, kind)).collect();
        let entries = kinds.iter().filter_map(|(key, kind)| {
            let entry = match kind {
                Kind::Held | Kind::Until => {
                    self.ticket(*kind, key).map(|found| found.map(|(entry, _)| entry))
                }
                Kind::Question | Kind::Record => self.entry(key),
            };
            entry.transpose()
        });
        let mut entries: Vec<Entry> = entries.collect::<StoreResult<_>>()?;
        entries.iter_mut().for_each(|entry| entry.age = self.age(&entry.key));
        let last = self.last()?;
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok().map(StoreTime);
        entries.iter().try_for_each(|entry| self.check_revision(entry.revision, last))?;
        Ok(Listing { entries, at, last })
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
        // Read whatever the condition is: a damaged record is never overwritten.
        let entry = self.entry(key)?;
        self.check_revision(revision_of(entry.as_ref()), self.last()?)?;
        let current = match expected {
            Expected::Key(_) => revision_of(entry.as_ref()),
            Expected::OtherKey(other, _) => revision_of(self.entry(other)?.as_ref()),
        };
        if current != expected.revision() {
            return Ok(Written::Moved(Some(current)));
        }
        let next = self.next(Revision(0))?;
        let record = Kind::Record.file_of(key);
        self.prepare(&record, &text::encode_record(next, content))?;
        // After an error of rename(2) the file may have either content.
        let stored = self.publish(&record).and_then(|()| self.sync());
        Ok(stored.map_or_else(|error| Written::Unknown(error.text), |()| Written::Stored(next)))
    }

    /// Returns the numbers, and their file. The caller holds the lock.
    fn sequence(&self, how: OFlags) -> StoreResult<(Sequence, File)> {
        let file = self.open_file(SEQUENCE, how)?;
        let file = file.ok_or_else(|| self.damaged(SEQUENCE, "is missing"))?;
        let sequence = self.read(SEQUENCE, &file, Sequence::decode)?;
        Ok((sequence.enter_boot(&self.boot), file))
    }

    /// Returns the highest revision of the bucket. The caller holds the lock.
    pub(super) fn last(&self) -> StoreResult<Revision> {
        Ok(Revision(self.sequence(OFlags::RDONLY)?.0.last))
    }

    /// Returns a revision that is higher than all before, and than `floor`. The caller holds the
    /// lock.
    pub(super) fn next(&self, floor: Revision) -> StoreResult<Revision> {
        let (mut sequence, file) = self.sequence(OFlags::RDWR)?;
        let taken = sequence.next_number(floor);
        let (next, is_new_step) =
            taken.ok_or_else(|| self.damaged(SEQUENCE, "has no number left"))?;
        let body = sequence.encode();
        if is_new_step {
            self.replace(SEQUENCE, body.as_bytes())?;
            self.sync()?;
        } else {
            // The kernel writes less than a page as a whole, also for a process that is killed, but
            // only a part of it below a limit of the size of files.
            let content = text::frame(body.as_bytes());
            let written = match rustix::process::getrlimit(Resource::Fsize).current {
                Some(limit) if limit < content.len() as u64 => Err(Errno::FBIG.into()),
                Some(_) | None => file.write_all_at(&content, 0),
            };
            written.map_err(|error| self.failed("write", SEQUENCE, error))?;
        }
        Ok(next)
    }
}

/// Returns the revision of a key, 0 without an entry.
fn revision_of(entry: Option<&Entry>) -> Revision {
    entry.map_or(Revision(0), |entry| entry.revision)
}
