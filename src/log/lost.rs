//! Counting the lines that were lost because nobody took them.

use std::io::{self, ErrorKind};
use std::time::Duration;

use crate::core::Instant;

/// The shortest time between two lines that give a count.
const INTERVAL: Duration = Duration::from_secs(1);

/// The lines that were lost and that no line has counted yet.
#[derive(Debug, Default)]
pub(super) struct LostLines {
    unread: u64,
    failed: u64,
    /// The last error of a write.
    error: String,
    counted: Option<Instant>,
}

impl LostLines {
    /// Adds lines for which the reader left no room.
    pub(super) fn add_unread(&mut self, lines: u64) {
        self.unread += lines;
    }

    /// Adds a line that could not be written.
    pub(super) fn add(&mut self, error: &io::Error) {
        if error.kind() == ErrorKind::WouldBlock {
            self.unread += 1;
        } else {
            self.failed += 1;
            self.error = error.to_string();
        }
    }

    /// Returns the text of a line that counts them: none less than a second after the last
    /// one, unless `at_once`.
    pub(super) fn text(&self, now: Instant, at_once: bool) -> Option<String> {
        let early = |counted: Instant| !at_once && now.since(counted) < INTERVAL;
        if self.counted.is_some_and(early) {
            return None;
        }
        let dropped =
            |count: u64, why: &str| format!("{count} log lines were dropped: the log {why}");
        let unread = || dropped(self.unread, "was not read");
        let failed = || dropped(self.failed, &format!("could not be written: {}", self.error));
        match (self.unread > 0, self.failed > 0) {
            (true, true) => Some(format!("{}; {}", unread(), failed())),
            (true, false) => Some(unread()),
            (false, true) => Some(failed()),
            (false, false) => None,
        }
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
        lost.add_unread(2);
        lost.add(&ErrorKind::WouldBlock.into());
        let unread = "3 log lines were dropped: the log was not read";
        assert_eq!(lost.text(at(0), false).as_deref(), Some(unread));
        lost.counted(at(0));
        assert_eq!(lost.text(at(2000), false), None);
        lost.add(&io::Error::other("no disk"));
        assert_eq!(lost.text(at(999), false), None);
        let failed = "1 log lines were dropped: the log could not be written: no disk";
        assert_eq!(lost.text(at(999), true).as_deref(), Some(failed));
        lost.add_unread(1);
        let both = format!("1 log lines were dropped: the log was not read; {failed}");
        assert_eq!(lost.text(at(1000), false), Some(both));
    }
}
