//! What a requester has seen before, noted in its own ticket for its next process.
//!
//! Nobody removes the ticket of another who has not seen it unmoved for long enough, and a
//! process that makes one attempt sees it for a moment only. So it notes in its own ticket since
//! when it has seen the revisions of the tickets before it. The next process of the requester
//! reads that back. Instants are those of one clock, and revisions those of one bucket: on another
//! clock, and in a bucket that was made anew, the notes tell nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::core::record::Revision;
use crate::core::time::Instant;

/// Most notes in a ticket. The earliest tickets come first: once they are removed, the others
/// are noted.
pub const NOTES_MAX: usize = 32;

/// The bucket itself, which may be too young to be believed.
pub const BUCKET: Revision = Revision(0);

/// Since when revisions of the bucket have been seen. No two tickets have one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The name of the clock; blank for one that tells nothing later.
    clock: String,
    /// The random id of the bucket. Notes may be under way while the bucket is deleted and made
    /// anew: the same revision is that of another ticket then.
    epoch: String,
    since: BTreeMap<Revision, Instant>,
}

impl Seen {
    /// Returns no notes, by this clock, on the bucket of this id.
    pub fn nothing(clock: &str, epoch: &str) -> Seen {
        // It is one word in the text.
        let epoch = epoch.chars().filter(char::is_ascii_graphic).collect();
        Seen { clock: clock.to_owned(), epoch, since: BTreeMap::new() }
    }

    /// Returns the name of its clock.
    pub fn clock(&self) -> &str {
        &self.clock
    }

    /// Returns whether there are no notes.
    pub fn is_empty(&self) -> bool {
        self.since.is_empty()
    }

    /// Adds notes of this clock and bucket, which are read at this instant.
    pub fn learn(&mut self, noted: &Seen, now: Instant) {
        if self.clock != noted.clock || self.epoch != noted.epoch {
            return;
        }
        // A clock that has gone back has seen nothing in the future.
        for (revision, since) in noted.since.iter().filter(|(_, since)| **since <= now) {
            let known = self.since.entry(*revision).or_insert(*since);
            *known = (*known).min(*since);
        }
    }

    /// Takes over from notes of this clock and bucket, read at this instant, what was seen earlier
    /// of what is noted here; says whether there was something.
    pub fn is_told_more(&mut self, noted: &Seen, now: Instant) -> bool {
        let mut known = Seen { since: BTreeMap::new(), ..self.clone() };
        known.learn(noted, now);
        let mut is_more = false;
        for (revision, since) in &mut self.since {
            if let Some(earlier) = known.since(*revision).filter(|at| at < since) {
                (*since, is_more) = (earlier, true);
            }
        }
        is_more
    }

    /// Returns since when this revision has been seen.
    pub fn since(&self, revision: Revision) -> Option<Instant> {
        self.since.get(&revision).copied()
    }

    /// Notes that this is seen now, and forgets all others but the bucket.
    pub fn note(&mut self, revisions: impl IntoIterator<Item = Revision>, now: Instant) {
        let known = std::mem::take(&mut self.since);
        let kept = [BUCKET].into_iter().filter(|bucket| known.contains_key(bucket));
        let all = kept.chain(revisions.into_iter().take(NOTES_MAX));
        self.since = all.map(|it| (it, known.get(&it).copied().unwrap_or(now))).collect();
    }

    /// Notes that this revision, or the bucket, has been seen since then.
    pub fn add(&mut self, revision: Revision, since: Instant) {
        self.since.insert(revision, since);
    }

    /// Notes that the bucket is there now and may be too young.
    pub fn note_bucket(&mut self, now: Instant) {
        self.since.entry(BUCKET).or_insert(now);
    }

    /// Returns the notes as a text of one line. The times are milliseconds, rounded up: too late
    /// is safe.
    pub fn to_text(&self) -> String {
        let mut text = format!("{} {}", self.clock, self.epoch);
        for (revision, since) in self.since.iter().take(NOTES_MAX + 1) {
            let ms = since.since_boot().as_nanos().div_ceil(1_000_000);
            let _ = write!(text, " {revision}:{ms}");
        }
        text
    }

    /// Reads such a text. What is damaged is left out: that costs time only.
    pub fn from_text(text: &str) -> Seen {
        let mut words = text.split_ascii_whitespace();
        let mut name = || words.next().filter(|it| it.bytes().all(|byte| byte.is_ascii_graphic()));
        let (clock, epoch) = (name(), name());
        let notes = words.take(NOTES_MAX + 1).filter_map(|word| {
            let (revision, ms) = word.split_once(':')?;
            let since = Instant::from_boot(Duration::from_millis(ms.parse().ok()?));
            Some((Revision(revision.parse().ok()?), since))
        });
        match (clock, epoch, notes.collect::<BTreeMap<_, _>>()) {
            (Some(clock), Some(epoch), since) if !since.is_empty() => {
                Seen { clock: clock.to_owned(), epoch: epoch.to_owned(), since }
            }
            (_, _, _) => Seen::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_boot(Duration::from_millis(ms))
    }

    #[test]
    fn what_was_seen_is_kept_by_one_clock_only_and_never_made_earlier() {
        let mut seen = Seen::nothing("boot", "8c3e");
        let odd = Instant::from_boot(Duration::from_nanos(1_000_001));
        seen.note([Revision(7)], odd);
        seen.note_bucket(at(5));
        assert_eq!(seen.to_text(), "boot 8c3e 0:5 7:2");
        let read = Seen::from_text(&seen.to_text());
        let learnt = |clock: &str, noted: &Seen, now| {
            let mut seen = Seen::nothing(clock, "8c3e");
            seen.learn(noted, now);
            seen
        };
        let mut later = learnt("boot", &read, at(9));
        assert_eq!((later.since(Revision(7)), later.since(BUCKET)), (Some(at(2)), Some(at(5))));
        assert!(learnt("other", &read, at(9)).is_empty());
        assert!(learnt("", &Seen::from_text(" 8c3e 7:2"), at(9)).is_empty());
        assert!(learnt("boot", &Seen::from_text("boot 8c3f 7:2"), at(9)).is_empty());
        // The clock has gone back.
        assert_eq!(learnt("boot", &read, at(4)).since(BUCKET), None);
        // What was seen by this process is not forgotten, and the earlier time counts.
        later.learn(&Seen::from_text("boot 8c3e 7:1 8:6"), at(9));
        later.learn(&Seen::from_text("boot 8c3e 7:3"), at(9));
        assert_eq!(later.to_text(), "boot 8c3e 0:5 7:1 8:6");
    }

    #[test]
    fn a_revision_that_is_seen_again_keeps_its_time_and_one_that_moved_is_forgotten() {
        let mut seen = Seen::nothing("boot", "8c3e");
        seen.note_bucket(at(1));
        seen.note([Revision(7), Revision(8)], at(2));
        seen.note([Revision(7), Revision(9)], at(5));
        assert_eq!(seen.to_text(), "boot 8c3e 0:1 7:2 9:5");
        seen.note((10..100).map(Revision), at(6));
        assert_eq!(seen.to_text().split(' ').count(), 2 + 1 + NOTES_MAX);
        assert_eq!(Seen::from_text(&seen.to_text()), seen);
    }

    #[test]
    fn damaged_notes_are_left_out() {
        for text in [
            "",
            "boot",
            "b\u{1}t 8c3e 7:1",
            "boot 8\u{1} 7:1",
            "boot 7:1",
            "boot 8c3e x:1 7: :5 7",
            "boot 8c3e 7:-1",
            "boot 8c3e 7:99999999999999999999",
        ] {
            assert_eq!(Seen::from_text(text), Seen::default(), "{text}");
        }
        assert_eq!(Seen::from_text("boot 8c3e x:1 7:4").since(Revision(7)), Some(at(4)));
    }
}
