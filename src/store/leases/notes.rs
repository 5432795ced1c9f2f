//! What this host has seen of leases, kept for its next commands in files that do not outlive a
//! boot.
//!
//! The folder has up to 256 files, each with up to 16 lines, the last ones first: a lease that is
//! not asked for again is forgotten when others need its line. That, and a file that is lost or
//! damaged, costs time only.
//!
//! | line | content |
//! |---|---|
//! | first | `clock NAME`, the clock of the instants |
//! | others | the random id of the bucket, the lease, [`LeaseNotes::to_text`] |
//! | others | the random id of the bucket, `-`, since when the bucket has been seen |

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::core::Instant;
use crate::core::lease::LeaseNotes;
use crate::core::tickets::Name;
use crate::store::StoreResult;
use crate::store::dir::permissions::open_private;
use crate::store::dir::text::{checksum, frame, unframe};

/// The name of the folder. That of a bucket has no dot.
const FOLDER: &str = "seen.leases";

/// Most lines in a file.
const LINES_MAX: usize = 16;

/// The word for the bucket itself, which is no name of a lease.
const OF_BUCKET: &str = "-";

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

    /// Returns what was noted on a lease of the bucket with this id.
    pub fn read(&self, epoch: &str, name: &Name, now: Instant) -> LeaseNotes {
        let of_lease = self.find(epoch, &name.to_string());
        let of_lease = of_lease.and_then(|text| LeaseNotes::from_text(&text, now));
        let since = self.find(epoch, OF_BUCKET).and_then(|text| text.parse().ok());
        let since = since.map(|nanos| Instant::from_boot(Duration::from_nanos(nanos)));
        let since = since.filter(|since| *since <= now);
        of_lease.unwrap_or_default().with_bucket_since(since)
    }

    /// Notes this on a lease of the bucket with this id.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn write(&self, epoch: &str, name: &Name, notes: &LeaseNotes) -> io::Result<()> {
        self.replace(epoch, &name.to_string(), &notes.to_text())?;
        match notes.bucket_since() {
            Some(since) => {
                let nanos = since.since_boot().as_nanos();
                self.replace(epoch, OF_BUCKET, &nanos.to_string())
            }
            None => Ok(()),
        }
    }

    fn file_of(&self, start: &str) -> PathBuf {
        self.path.join(format!("{:02x}", checksum(start.as_bytes()) as u8))
    }

    /// Returns how a line begins. Whoever wrote the id of the bucket may have written anything.
    fn start(epoch: &str, word: &str) -> String {
        let epoch: String = epoch.chars().filter(char::is_ascii_alphanumeric).collect();
        format!("{epoch} {word} ")
    }

    /// Returns the lines of a file by this clock.
    fn lines(&self, file: &Path) -> Vec<String> {
        let content = fs::read(file).unwrap_or_default();
        let text = unframe(&content).ok().and_then(|body| str::from_utf8(body).ok());
        let mut lines = text.unwrap_or_default().lines();
        let is_known = lines.next() == Some(&format!("clock {}", self.clock));
        if is_known { lines.map(str::to_owned).collect() } else { Vec::new() }
    }

    fn find(&self, epoch: &str, word: &str) -> Option<String> {
        if self.clock.is_empty() {
            return None;
        }
        let start = NotesFolder::start(epoch, word);
        let lines = self.lines(&self.file_of(&start)).into_iter();
        lines.into_iter().find_map(|line| line.strip_prefix(&start).map(str::to_owned))
    }

    fn replace(&self, epoch: &str, word: &str, text: &str) -> io::Result<()> {
        if self.clock.is_empty() {
            return Ok(());
        }
        let start = NotesFolder::start(epoch, word);
        let file = self.file_of(&start);
        let others = self.lines(&file).into_iter().filter(|line| !line.starts_with(&start));
        let first = [format!("clock {}", self.clock), format!("{start}{text}")];
        let lines: Vec<String> = first.into_iter().chain(others.take(LINES_MAX - 1)).collect();
        // Two commands at once: the line of one of them may be lost.
        let new = self.path.join(format!("new.{}", std::process::id()));
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options.open(&new).and_then(|mut open| {
            open.write_all(&frame(lines.join("\n").as_bytes()))?;
            fs::rename(&new, &file)
        });
        written.inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })
    }
}

#[cfg(test)]
mod tests {
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
        let mut seen = LeaseNotes::default();
        seen.write((Revision(7), 5), (at(3), at(4)));
        seen.see_bucket(at(2));
        notes.write("8c3e", &name("db/x"), &seen).expect("it is written");
        assert_eq!(notes.read("8c3e", &name("db/x"), at(9)), seen);
        let of_bucket = LeaseNotes::default().with_bucket_since(Some(at(2)));
        assert_eq!(notes.read("8c3e", &name("db"), at(9)), of_bucket);
        assert_eq!(notes.read("8c3f", &name("db/x"), at(9)), LeaseNotes::default());
        assert_eq!(notes.read("8c3e", &name("db/x"), at(1)), LeaseNotes::default());
        for other in ["other", ""] {
            let other = folder("kept", other);
            assert_eq!(other.read("8c3e", &name("db/x"), at(9)), LeaseNotes::default());
        }
        remove(&notes);
    }

    #[test]
    fn the_folder_stays_small_and_keeps_what_was_noted_last() {
        let notes = folder("small", "boot");
        let mut seen = LeaseNotes::default();
        seen.write((Revision(7), 5), (at(3), at(4)));
        for number in 0..6_000 {
            notes.write("8c3e", &name(&format!("job-{number}")), &seen).expect("it is written");
        }
        let files: Vec<_> = fs::read_dir(&notes.path).expect("a folder").flatten().collect();
        assert!(files.len() <= 256, "{}", files.len());
        assert!(files.iter().all(|file| file.metadata().is_ok_and(|it| it.len() < 4096)));
        assert_eq!(notes.read("8c3e", &name("job-5999"), at(9)), seen);
        assert_eq!(notes.read("8c3e", &name("job-0"), at(9)), LeaseNotes::default());
        remove(&notes);
    }

    #[test]
    fn a_damaged_file_says_nothing_and_is_replaced() {
        let notes = folder("damaged", "boot");
        let (mut seen, name) = (LeaseNotes::default(), name("db"));
        seen.write((Revision(7), 5), (at(3), at(4)));
        let file = notes.file_of(&NotesFolder::start("8c3e", "db"));
        for damaged in ["", "clock boot\n8c3e db 7 5 1 2 7 1", "\0"] {
            fs::write(&file, damaged).expect("it is written");
            assert_eq!(notes.read("8c3e", &name, at(9)), LeaseNotes::default(), "{damaged:?}");
        }
        notes.write("8c3e", &name, &seen).expect("it is written");
        assert_eq!(notes.read("8c3e", &name, at(9)), seen);
        remove(&notes);
    }
}
