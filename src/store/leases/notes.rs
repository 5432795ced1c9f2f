//! The notes of this host on leases, kept for its next commands in files that do not outlive a
//! boot.
//!
//! The folder has up to 256 files, each with up to 16 lines, the last ones first: a lease that is
//! not asked for again is forgotten when others need its line. A lease that is forgotten, and a
//! file that is lost or damaged, cost time only.
//!
//! A line is the name of a lease, or `-` for its bucket, and [`Observed::to_text`].

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::core::tickets::Name;
use crate::core::{Instant, Observed};
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

    /// Returns the notes on a lease of the bucket with this id.
    pub fn read(&self, epoch: &str, name: &Name, now: Instant) -> Observed {
        let mut observed = Observed::nothing(&self.clock, epoch);
        for word in [&name.to_string(), OF_BUCKET] {
            let start = start(word, &observed);
            let lines = self.lines(&self.file_of(&start));
            let line = lines.iter().find(|line| line.starts_with(&start));
            if let Some((_, text)) = line.and_then(|line| line.split_once(' ')) {
                observed.learn(&Observed::from_text(text), now);
            }
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

    fn file_of(&self, start: &str) -> PathBuf {
        self.path.join(format!("{:02x}", checksum(start.as_bytes()) as u8))
    }

    fn lines(&self, file: &Path) -> Vec<String> {
        let content = fs::read(file).unwrap_or_default();
        let text = unframe(&content).ok().and_then(|body| str::from_utf8(body).ok());
        text.unwrap_or_default().lines().map(str::to_owned).collect()
    }

    fn replace(&self, word: &str, observed: &Observed) -> io::Result<()> {
        let start = start(word, observed);
        let file = self.file_of(&start);
        let others = self.lines(&file).into_iter().filter(|line| !line.starts_with(&start));
        let first = [format!("{word} {}", observed.to_text())];
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

/// Returns how the line of this word begins.
fn start(word: &str, observed: &Observed) -> String {
    format!("{word} {} ", observed.heading())
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
        assert!(files.iter().all(|file| file.metadata().is_ok_and(|it| it.len() < 4096)));
        assert_eq!(notes.read("8c3e", &name("job-5999"), at(9)), seen);
        assert!(notes.read("8c3e", &name("job-0"), at(9)).is_empty());
        remove(&notes);
    }

    #[test]
    fn a_damaged_file_says_nothing_and_is_replaced() {
        let notes = folder("damaged", "boot");
        let (mut seen, name) = (Observed::nothing("boot", "8c3e"), name("db"));
        seen.write((Revision(7), 5), (at(3), at(4)));
        let file = notes.file_of(&start("db", &seen));
        for damaged in ["", "db boot 8c3e 7.5:4:3", "\0"] {
            fs::write(&file, damaged).expect("it is written");
            assert!(notes.read("8c3e", &name, at(9)).is_empty(), "{damaged:?}");
        }
        notes.write(&name, &seen).expect("it is written");
        assert_eq!(notes.read("8c3e", &name, at(9)), seen);
        remove(&notes);
    }
}
