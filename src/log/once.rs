//! Lines whose cause may come thousands of times a second.

use std::cell::Cell;
use std::time::Duration;

use crate::core::Instant;

/// The shortest time between two such lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// Decides when a line is logged that comes at most once a second.
#[derive(Debug, Default)]
pub(crate) struct OncePerSecond(Cell<Option<Instant>>);

impl OncePerSecond {
    /// Returns whether the line is logged now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let is_due = self.0.get().is_none_or(|last| now.since(last) >= INTERVAL);
        if is_due {
            self.0.set(Some(now));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_at_once_and_then_once_a_second() {
        let line = OncePerSecond::default();
        let due =
            (0..3000).filter(|ms| line.is_due(Instant::from_boot(Duration::from_millis(*ms))));
        assert_eq!(due.collect::<Vec<_>>(), [0, 1000, 2000]);
    }
}
