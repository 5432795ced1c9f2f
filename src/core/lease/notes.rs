//! What a host has seen of a lease before.
//!
//! Nobody expires a lease who has not seen it for as long as it lasts, and a command sees it for a
//! moment only. So each command leaves what it has seen for the next one of this host. Instants
//! are those of one clock, and revisions those of one bucket: whoever keeps the notes keeps them
//! apart.

use std::time::Duration;

use super::WriteBounds;
use crate::core::record::Revision;
use crate::core::time::Instant;

/// A write, by its revision and the number of its command. A store that has gone back gives a
/// revision again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    revision: Revision,
    attempt: u64,
}

/// What a host has seen of one lease, and of its bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseNotes {
    /// The last entry of the lease that is known, and when it was written.
    written: Option<(Written, WriteBounds)>,
    /// When the last read began that was certain to show the last revision, and that revision.
    exact: Option<(Instant, Revision)>,
    /// Since when the bucket has been seen.
    bucket_since: Option<Instant>,
}

impl LeaseNotes {
    /// Takes in that a read, from `began` to `ended`, has shown this revision of the key, 0 for no
    /// entry, written by the command of this number. `is_exact`: it cannot have been an old one.
    /// Returns `false` if a later one is known: then the read tells nothing.
    pub fn read(
        &mut self,
        (revision, attempt): (Revision, u64),
        (began, ended): (Instant, Instant),
        is_exact: bool,
    ) -> bool {
        let known = self.written.map_or(Revision(0), |(known, _)| known.revision);
        let known = known.max(self.exact.map_or(Revision(0), |(_, known)| known));
        if revision < known {
            return false;
        }
        let not_there_at = self.exact.filter(|(_, shown)| *shown < revision).map(|(at, _)| at);
        self.add(Written { revision, attempt }, WriteBounds::of_read(not_there_at, ended));
        if is_exact {
            self.exact = Some((began, revision));
        }
        true
    }

    /// Takes in that a read which began then and has shown this revision was no old one.
    pub fn confirm(&mut self, revision: Revision, began: Instant) {
        self.exact = Some((began, revision));
    }

    /// Takes in that a write of this host, sent at `sent` and acknowledged by `ended`, has this
    /// revision and this number of its command.
    pub fn write(
        &mut self,
        (revision, attempt): (Revision, u64),
        (sent, ended): (Instant, Instant),
    ) {
        self.add(Written { revision, attempt }, WriteBounds::of_own(sent, ended));
        self.exact = Some((sent, revision));
    }

    fn add(&mut self, written: Written, bounds: WriteBounds) {
        let known = self.written.filter(|(known, _)| *known == written);
        self.written = Some((written, known.map_or(bounds, |(_, known)| known.and(bounds))));
    }

    /// Forgets what was seen of the lease: somebody has removed its entries.
    pub fn forget(&mut self) {
        (self.written, self.exact) = (None, None);
    }

    /// Returns when this revision was written.
    pub fn written(&self, revision: Revision) -> Option<WriteBounds> {
        self.written.filter(|(known, _)| known.revision == revision).map(|(_, bounds)| bounds)
    }

    /// Returns since when the bucket has been seen, which is now at the latest.
    pub fn see_bucket(&mut self, now: Instant) -> Instant {
        *self.bucket_since.get_or_insert(now)
    }

    /// Returns since when the bucket has been seen.
    pub fn bucket_since(&self) -> Option<Instant> {
        self.bucket_since
    }

    /// Adds since when the bucket has been seen.
    #[must_use]
    pub fn with_bucket_since(self, bucket_since: Option<Instant>) -> LeaseNotes {
        LeaseNotes { bucket_since, ..self }
    }

    /// Returns what was seen of the lease as words, instants in nanoseconds since the boot.
    pub fn to_text(&self) -> String {
        let nanos = |at: Instant| at.since_boot().as_nanos().to_string();
        let instant = |at: Option<Instant>| at.map_or("-".to_owned(), nanos);
        let written = self.written.map_or("- - - -".to_owned(), |(written, bounds)| {
            let Written { revision, attempt } = written;
            let (not_before, not_after) = (instant(bounds.not_before), nanos(bounds.not_after));
            format!("{revision} {attempt} {not_before} {not_after}")
        });
        let exact = self.exact.map(|(at, revision)| format!("{revision} {}", nanos(at)));
        format!("{written} {}", exact.as_deref().unwrap_or("- -"))
    }

    /// Reads such words at this instant; `None` if they are damaged. A clock that has gone back has
    /// seen nothing in the future.
    pub fn from_text(text: &str, now: Instant) -> Option<LeaseNotes> {
        let words: Vec<&str> = text.split(' ').collect();
        let instant = |word: &str| {
            let at = Instant::from_boot(Duration::from_nanos(word.parse().ok()?));
            (at <= now).then_some(at)
        };
        let revision = |word: &str| word.parse().ok().map(Revision);
        let [written @ .., exact, exact_at] = &words[..] else { return None };
        let written = match written {
            ["-", "-", "-", "-"] => None,
            [number, attempt, not_before, not_after] => {
                let not_before = match *not_before {
                    "-" => None,
                    word => Some(instant(word)?),
                };
                let written =
                    Written { revision: revision(number)?, attempt: attempt.parse().ok()? };
                Some((written, WriteBounds { not_before, not_after: instant(not_after)? }))
            }
            _ => return None,
        };
        let exact = match (*exact, *exact_at) {
            ("-", "-") => None,
            (number, at) => Some((instant(at)?, revision(number)?)),
        };
        Some(LeaseNotes { written, exact, bucket_since: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(secs))
    }

    fn read(notes: &mut LeaseNotes, entry: (u64, u64), times: [u64; 2], is_exact: bool) -> bool {
        let (revision, attempt) = entry;
        notes.read((Revision(revision), attempt), (at(times[0]), at(times[1])), is_exact)
    }

    fn write(notes: &mut LeaseNotes, entry: (u64, u64), times: [u64; 2]) {
        notes.write((Revision(entry.0), entry.1), (at(times[0]), at(times[1])));
    }

    #[test]
    fn a_revision_was_written_after_the_last_exact_read_that_lacks_it() {
        let mut notes = LeaseNotes::default();
        assert!(read(&mut notes, (0, 0), [1, 2], true));
        // A server that is behind may not have shown what was there already.
        assert!(read(&mut notes, (0, 0), [3, 4], false));
        assert!(read(&mut notes, (7, 1), [5, 6], true));
        assert!(read(&mut notes, (7, 1), [8, 9], true));
        assert_eq!(notes.written(Revision(7)), Some(WriteBounds::of_read(Some(at(1)), at(6))));
        assert_eq!(notes.written(Revision(8)), None);
        assert!(read(&mut notes, (9, 2), [10, 11], true));
        assert_eq!(notes.written(Revision(9)), Some(WriteBounds::of_read(Some(at(8)), at(11))));
        assert!(!read(&mut notes, (7, 1), [12, 13], true), "it is behind");
        assert_eq!(notes.written(Revision(9)), Some(WriteBounds::of_read(Some(at(8)), at(11))));
        write(&mut notes, (12, 3), [14, 15]);
        assert!(read(&mut notes, (12, 3), [16, 17], false));
        assert_eq!(notes.written(Revision(12)), Some(WriteBounds::of_own(at(14), at(15))));
        assert!(read(&mut notes, (13, 4), [18, 19], false));
        assert_eq!(notes.written(Revision(13)), Some(WriteBounds::of_read(Some(at(14)), at(19))));
    }

    /// A store that was put back gave the revision again, and the lease was expired by what had
    /// been noted of another one.
    #[test]
    fn a_revision_that_is_given_again_is_another_write() {
        let mut notes = LeaseNotes::default();
        write(&mut notes, (12, 3), [14, 15]);
        assert!(read(&mut notes, (12, 4), [30, 31], true));
        assert_eq!(notes.written(Revision(12)), Some(WriteBounds::of_read(None, at(31))));
    }

    #[test]
    fn notes_survive_the_way_through_text_and_damaged_ones_are_none() {
        let mut notes = LeaseNotes::default();
        let again = |notes: &LeaseNotes| LeaseNotes::from_text(&notes.to_text(), at(9));
        assert_eq!(again(&notes), Some(notes.clone()));
        read(&mut notes, (7, 5), [1, 2], false);
        assert_eq!(notes.to_text(), "7 5 - 2000000000 - -");
        assert_eq!(again(&notes), Some(notes.clone()));
        write(&mut notes, (8, 6), [3, 4]);
        assert_eq!(again(&notes), Some(notes.clone()));
        // The clock has gone back.
        assert_eq!(LeaseNotes::from_text(&notes.to_text(), at(3)), None);
        for damaged in
            ["", "7", "7 5 - x - -", "7 5 - - - -", "7 - - 2 - -", "- - - 2 - -", "- - - - 7 -"]
        {
            assert_eq!(LeaseNotes::from_text(damaged, at(9)), None, "{damaged}");
        }
    }
}
