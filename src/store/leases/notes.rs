//! The notes of this host on leases, kept for its next commands in files that do not outlive a
//! boot.
//!
//! The folder has up to 256 files of JSON, each with up to 16 notes, the last ones first: a lease
//! that is not asked for again is forgotten when others need its note. A lease that is forgotten,
//! and a file that is lost or damaged, cost time only.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::core::tickets::Name;
use crate::core::{Instant, Observed};
use crate::store::StoreResult;
use crate::store::dir::permissions::open_private;
use crate::store::dir::text::{checksum, frame, unframe};
use crate::sys::private_file;

/// The name of the folder. That of a bucket has no dot.
const FOLDER: &str = "seen.leases";

/// Most notes in a file.
const NOTES_MAX: usize = 16;

/// The word for the bucket itself, which is no name of a lease.
const OF_BUCKET: &str = "-";

/// A name of a lease, or the word for its bucket, and what was seen of it.
type NoteOn = (String, Observed);

/// The folder with the notes of a host.
pub struct NotesFolder {
    path: PathBuf,
    clock: String,
}

impl NotesFolder {
    /// Opens the folder below `base`, and makes it if it does not exist. `clock` is the name of
    /// the clock of this process.
    ///
    /// # Errors
    ///
    /// When it cannot be made, or others could write to it.
    pub fn open(base: &Path, clock: String) -> StoreResult<NotesFolder> {
        let path = base.join(FOLDER);
        open_private(base, &path)?;
        Ok(NotesFolder { path, clock })
    }

    /// Returns the notes on a lease of the bucket with this id.
    pub fn read(&self, epoch: &str, name: &Name, now: Instant) -> Observed {
        let mut observed = Observed::nothing(&self.clock, epoch);
        for word in [&name.to_string(), OF_BUCKET] {
            let notes = self.notes_in(&self.file_of(word, epoch));
            let found = notes.iter().filter(|(of, _)| of == word);
            found.for_each(|(_, noted)| observed.learn(noted, now));
        }
        observed
    }

    /// Notes this on a lease.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn write(&self, name: &Name, observed: &Observed) -> io::Result<()> {
        if self.clock.is_empty() {
            return Ok(());
        }
        self.replace(&name.to_string(), observed)?;
        let mut of_bucket = observed.clone();
        of_bucket.forget_all();
        match of_bucket.is_empty() {
            true => Ok(()),
            false => self.replace(OF_BUCKET, &of_bucket),
        }
    }

    /// Returns the name of the file with the notes on this word.
    fn file_of(&self, word: &str, epoch: &str) -> String {
        let text = format!("{word} {} {epoch}", self.clock);
        format!("{:02x}", checksum(text.as_bytes()) as u8)
    }

    fn notes_in(&self, file: &str) -> Vec<NoteOn> {
        let content = fs::read(self.path.join(file)).unwrap_or_default();
        let body = unframe(&content).unwrap_or_default();
        serde_json::from_slice(body).unwrap_or_default()
    }

    /// Replaces the note on this word. Of two commands at once, one may lose its note.
    fn replace(&self, word: &str, observed: &Observed) -> io::Result<()> {
        let file = self.file_of(word, &observed.epoch);
        let mut notes = self.notes_in(&file);
        notes.retain(|(of, noted)| of != word || !observed.is_of(noted));
        notes.insert(0, (word.to_owned(), observed.clone()));
        notes.truncate(NOTES_MAX);
        private_file::replace(&self.path, &file, &frame(&serde_json::to_vec(&notes)?))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::Revision;

    fn folder(name: &str, clock: &str) -> NotesFolder {
        let base = std::env::temp_dir().join(format!("putex-notes-{}-{name}", std::process::id()));
        NotesFolder::open(&base, clock.to_owned()).expect("a folder")
    }

    fn remove(folder: &NotesFolder) {
        fs::remove_dir_all(folder.path.parent().expect("its base")).expect("it is there");
    }

    fn name(text: &str) -> Name {
        Name::parse(text).expect("a name")
    }

    fn at(secs: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(secs))
    }

    #[test]
    fn notes_are_of_one_bucket_one_lease_and_one_clock() {
        let notes = folder("kept", "boot");
        let mut seen = Observed::nothing("boot", "8c3e");
        seen.write((Revision(7), 5), (at(3), at(4)));
        seen.see_bucket(at(2));
        notes.write(&name("db/x"), &seen).expect("it is written");
        assert_eq!(notes.read("8c3e", &name("db/x"), at(9)), seen);
        let mut of_bucket = Observed::nothing("boot", "8c3e");
        of_bucket.see_bucket(at(2));
        assert_eq!(notes.read("8c3e", &name("db"), at(9)), of_bucket);
        assert!(notes.read("8c3f", &name("db/x"), at(9)).is_empty());
        assert!(notes.read("8c3e", &name("db/x"), at(1)).is_empty());
        for other in ["other", ""] {
            let other = folder("kept", other);
            assert!(other.read("8c3e", &name("db/x"), at(9)).is_empty());
        }
        remove(&notes);
    }

    #[test]
    fn the_folder_stays_small_and_keeps_what_was_noted_last() {
        let notes = folder("small", "boot");
        let mut seen = Observed::nothing("boot", "8c3e");
        seen.write((Revision(7), 5), (at(3), at(4)));
        for number in 0..6_000 {
            notes.write(&name(&format!("job-{number}")), &seen).expect("it is written");
        }
        let files: Vec<_> = fs::read_dir(&notes.path).expect("a folder").flatten().collect();
        assert!(files.len() <= 256, "{}", files.len());
        assert!(files.iter().all(|file| file.metadata().is_ok_and(|it| it.len() < 8192)));
        assert_eq!(notes.read("8c3e", &name("job-5999"), at(9)), seen);
        assert!(notes.read("8c3e", &name("job-0"), at(9)).is_empty());
        remove(&notes);
    }

    #[test]
    fn a_damaged_file_says_nothing_and_is_replaced() {
        let notes = folder("damaged", "boot");
        let (mut seen, name) = (Observed::nothing("boot", "8c3e"), name("db"));
        seen.write((Revision(7), 5), (at(3), at(4)));
        let file = notes.path.join(notes.file_of("db", "8c3e"));
        for damaged in ["", "[]", "\0"] {
            fs::write(&file, damaged).expect("it is written");
            assert!(notes.read("8c3e", &name, at(9)).is_empty(), "{damaged:?}");
        }
        notes.write(&name, &seen).expect("it is written");
        assert_eq!(notes.read("8c3e", &name, at(9)), seen);
        remove(&notes);
    }
}
