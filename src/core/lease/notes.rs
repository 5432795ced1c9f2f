//! What a host has seen of a lease before.
//!
//! Nobody expires a lease who has not seen it for as long as it lasts, and a command sees it for a
//! moment only. So each command leaves what it has seen for the next one of this host. Instants
//! are those of one clock, and revisions those of one bucket: whoever keeps the notes keeps them
//! apart.

use std::fmt::Write as _;
use std::time::Duration;

use super::WriteBounds;
use crate::core::record::Revision;
use crate::core::time::Instant;

/// What a host has seen of one lease, and of its bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseNotes {
    /// The last revision of the lease that is known, and when it was written.
    written: Option<(Revision, WriteBounds)>,
    /// When the last read began that was certain to show the last revision, and that revision.
    exact: Option<(Instant, Revision)>,
    /// Since when the bucket has been seen.
    bucket_since: Option<Instant>,
}

impl LeaseNotes {
    /// Takes in that a read, from `began` to `ended`, has shown this revision of the key, 0 for no
    /// entry. `is_exact`: it cannot have been an old one. Returns `false` if a later one is known:
    /// then the read tells nothing.
    pub fn read(
        &mut self,
        revision: Revision,
        began: Instant,
        ended: Instant,
        is_exact: bool,
    ) -> bool {
        let known = self.written.map_or(Revision(0), |(known, _)| known);
        let known = known.max(self.exact.map_or(Revision(0), |(_, known)| known));
        if revision < known {
            return false;
        }
        let not_there_at = self.exact.filter(|(_, shown)| *shown < revision).map(|(at, _)| at);
        self.add(revision, WriteBounds::of_read(not_there_at, ended));
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
    /// revision.
    pub fn write(&mut self, revision: Revision, sent: Instant, ended: Instant) {
        self.add(revision, WriteBounds::of_own(sent, ended));
        self.exact = Some((sent, revision));
    }

    fn add(&mut self, revision: Revision, bounds: WriteBounds) {
        let known = self.written.filter(|(known, _)| *known == revision);
        self.written = Some((revision, known.map_or(bounds, |(_, known)| known.and(bounds))));
    }

    /// Forgets what was seen of the lease: somebody has removed its entries.
    pub fn forget(&mut self) {
        (self.written, self.exact) = (None, None);
    }

    /// Returns when this revision was written.
    pub fn written(&self, revision: Revision) -> Option<WriteBounds> {
        self.written.filter(|(known, _)| *known == revision).map(|(_, bounds)| bounds)
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
        let mut text = String::new();
        let mut add = |instant: Option<Instant>, revision: Option<Revision>| {
            let nanos = instant.map_or("-".to_owned(), |at| at.since_boot().as_nanos().to_string());
            let revision = revision.map_or("-".to_owned(), |it| it.to_string());
            let _ = write!(text, " {revision} {nanos}");
        };
        let (revision, bounds) = self.written.unzip();
        add(bounds.and_then(|it| it.not_before), revision);
        add(bounds.map(|it| it.not_after), revision);
        add(self.exact.map(|(at, _)| at), self.exact.map(|(_, revision)| revision));
        text.trim_start().to_owned()
    }

    /// Reads such words at this instant; `None` if they are damaged. A clock that has gone back has
    /// seen nothing in the future.
    pub fn from_text(text: &str, now: Instant) -> Option<LeaseNotes> {
        let words: Vec<&str> = text.split(' ').collect();
        let [revision, not_before, again, not_after, exact, exact_at] = words[..] else {
            return None;
        };
        let instant = |word: &str| match word {
            "-" => Some(None),
            _ => {
                let at = Instant::from_boot(Duration::from_nanos(word.parse().ok()?));
                (at <= now).then_some(Some(at))
            }
        };
        let number = |word: &str| match word {
            "-" => Some(None),
            _ => Some(Some(Revision(word.parse().ok()?))),
        };
        if revision != again {
            return None;
        }
        let (not_before, not_after) = (instant(not_before)?, instant(not_after)?);
        let written = match (number(revision)?, not_after) {
            (Some(revision), Some(not_after)) => {
                Some((revision, WriteBounds { not_before, not_after }))
            }
            (None, None) => None,
            _ => return None,
        };
        let exact = instant(exact_at)?.zip(number(exact)?);
        Some(LeaseNotes { written, exact, bucket_since: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(secs))
    }

    #[test]
    fn a_revision_was_written_after_the_last_exact_read_that_lacks_it() {
        let mut notes = LeaseNotes::default();
        assert!(notes.read(Revision(0), at(1), at(2), true));
        // A server that is behind may not have shown what was there already.
        assert!(notes.read(Revision(0), at(3), at(4), false));
        assert!(notes.read(Revision(7), at(5), at(6), true));
        assert!(notes.read(Revision(7), at(8), at(9), true));
        assert_eq!(notes.written(Revision(7)), Some(WriteBounds::of_read(Some(at(1)), at(6))));
        assert_eq!(notes.written(Revision(8)), None);
        assert!(notes.read(Revision(9), at(10), at(11), true));
        assert_eq!(notes.written(Revision(9)), Some(WriteBounds::of_read(Some(at(8)), at(11))));
        assert!(!notes.read(Revision(7), at(12), at(13), true), "it is behind");
        assert_eq!(notes.written(Revision(9)), Some(WriteBounds::of_read(Some(at(8)), at(11))));
        notes.write(Revision(12), at(14), at(15));
        assert!(notes.read(Revision(12), at(16), at(17), false));
        assert_eq!(notes.written(Revision(12)), Some(WriteBounds::of_own(at(14), at(15))));
        assert!(notes.read(Revision(13), at(18), at(19), false));
        assert_eq!(notes.written(Revision(13)), Some(WriteBounds::of_read(Some(at(14)), at(19))));
    }

    #[test]
    fn notes_survive_the_way_through_text_and_damaged_ones_are_none() {
        let mut notes = LeaseNotes::default();
        let text = |notes: &LeaseNotes| notes.to_text();
        assert_eq!(LeaseNotes::from_text(&text(&notes), at(9)), Some(notes.clone()));
        notes.read(Revision(7), at(1), at(2), false);
        assert_eq!(text(&notes), "7 - 7 2000000000 - -");
        assert_eq!(LeaseNotes::from_text(&text(&notes), at(9)), Some(notes.clone()));
        notes.write(Revision(8), at(3), at(4));
        assert_eq!(LeaseNotes::from_text(&text(&notes), at(9)), Some(notes.clone()));
        // The clock has gone back.
        assert_eq!(LeaseNotes::from_text(&text(&notes), at(3)), None);
        for damaged in ["", "7", "7 - 8 2 - -", "7 - 7 x - -", "7 - 7 - - -", "- - - 2 - -"] {
            assert_eq!(LeaseNotes::from_text(damaged, at(9)), None, "{damaged}");
        }
    }
}
