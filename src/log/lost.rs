//! Counting the lines that were lost because nobody took them.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::time::Duration;

use crate::core::Instant;

/// What stands behind the number of lines that were lost.
pub(super) const DROPPED: &str = " log lines were dropped: the log ";

/// The shortest time between two lines that give a count.
const INTERVAL: Duration = Duration::from_secs(1);

/// The lines that were lost and that no line has counted yet.
#[derive(Debug, Default)]
pub(super) struct LostLines {
    /// How many lines each cause has lost.
    counts: BTreeMap<String, u64>,
    counted: Option<Instant>,
}

impl LostLines {
    /// Adds lines that could not be written: `WouldBlock` if the reader left no room.
    pub(super) fn add(&mut self, lines: u64, error: &io::Error) {
        let cause = match error.kind() == ErrorKind::WouldBlock {
            true => "was not read".to_owned(),
            false => format!("could not be written: {error}"),
        };
        *self.counts.entry(cause).or_default() += lines;
    }

    /// Returns the text of a line that counts them: none less than a second after the last
    /// one, unless `at_once`.
    pub(super) fn text(&self, now: Instant, at_once: bool) -> Option<String> {
        let early = |counted: Instant| !at_once && now.since(counted) < INTERVAL;
        if self.counted.is_some_and(early) || self.counts.is_empty() {
            return None;
        }
        let text = |(cause, count)| format!("{count}{DROPPED}{cause}");
        Some(self.counts.iter().map(text).collect::<Vec<_>>().join("; "))
    }

    /// Begins to count anew: the line with the last text was written.
    pub(super) fn counted(&mut self, now: Instant) {
        *self = LostLines { counted: Some(now), ..LostLines::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_lines_are_counted_once_a_second_by_their_cause() {
        let at = |ms| Instant::from_boot(Duration::from_millis(ms));
        let mut lost = LostLines::default();
        assert_eq!(lost.text(at(0), true), None);
        lost.add(2, &ErrorKind::WouldBlock.into());
        lost.add(1, &ErrorKind::WouldBlock.into());
        let unread = "3 log lines were dropped: the log was not read";
        assert_eq!(lost.text(at(0), false).as_deref(), Some(unread));
        lost.counted(at(0));
        assert_eq!(lost.text(at(2000), false), None);
        lost.add(1, &io::Error::other("no disk"));
        assert_eq!(lost.text(at(999), false), None);
        let failed = "1 log lines were dropped: the log could not be written: no disk";
        assert_eq!(lost.text(at(999), true).as_deref(), Some(failed));
        lost.add(1, &ErrorKind::WouldBlock.into());
        let both = format!("{failed}; 1 log lines were dropped: the log was not read");
        assert_eq!(lost.text(at(1000), false), Some(both));
    }
}
