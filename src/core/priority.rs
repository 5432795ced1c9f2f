//! The priority of an agent among those that may take a lock.
//!
//! A priority changes no rule for a lock: it only delays a take. When the lock may be taken, an
//! agent of the first priority takes it at once. Each further priority waits longer than the one
//! before, by the time that a request may take. An agent that has the lock keeps it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The last priority of an agent that may take a lock.
pub const PRIORITY_MAX: u8 = 15;

/// The priority of an agent. The smallest one goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// The number of priorities that go first, 0 to 14.
    Behind(u8),
    /// The agent never takes a lock that is another's, or nobody's.
    Never,
}

impl Priority {
    /// The first priority, of an agent that waits for no other.
    pub const FIRST: Priority = Priority::Behind(0);

    /// Returns the priority of this number, from 1 to [`PRIORITY_MAX`]; `None` for another number.
    pub fn of(number: u8) -> Option<Priority> {
        (1..=PRIORITY_MAX).contains(&number).then(|| Priority::Behind(number - 1))
    }

    /// Returns whether an agent of this priority takes locks.
    pub fn is_candidate(self) -> bool {
        self != Priority::Never
    }

    /// Returns how long the agent waits when the lock may be taken. `step` is the time that a take
    /// of one priority may need.
    pub fn delay(self, step: Duration) -> Duration {
        match self {
            Priority::Behind(others) => step * u32::from(others),
            Priority::Never => Duration::ZERO,
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Priority::Behind(others) => (others + 1).fmt(f),
            Priority::Never => f.write_str("never"),
        }
    }
}

impl FromStr for Priority {
    type Err = ();

    fn from_str(text: &str) -> Result<Priority, ()> {
        match text {
            "never" => Some(Priority::Never),
            _ => text.parse().ok().and_then(Priority::of),
        }
        .ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_priority_waits_a_step_longer_than_the_one_before() {
        let step = Duration::from_millis(250);
        let delay = |number| Priority::of(number).map(|priority| priority.delay(step));
        assert_eq!(Priority::of(1), Some(Priority::FIRST));
        assert_eq!(delay(1), Some(Duration::ZERO));
        assert_eq!(delay(2), Some(step));
        assert_eq!(delay(15), Some(step * 14));
        assert_eq!((delay(0), delay(16)), (None, None));
        assert!(Priority::FIRST.is_candidate() && !Priority::Never.is_candidate());
    }

    #[test]
    fn a_priority_is_written_as_it_is_read_and_never_comes_last() {
        let written = ["1", "2", "15", "never"];
        let read: Vec<Priority> = written.iter().map(|it| it.parse().expect(it)).collect();
        assert!(read.is_sorted_by(|one, other| one < other));
        let shown: Vec<_> = read.iter().map(ToString::to_string).collect();
        assert_eq!(shown, written);
        assert_eq!(["0", "16", "", "always"].map(|it| it.parse::<Priority>()), [Err(()); 4]);
    }
}
