//! A write, until its outcome is known.
//!
//! A compare-and-set names the revision that it replaces. A write without an answer is repeated
//! unchanged: of all its copies one is stored at most. When the store says that the key stands at
//! another revision, a read tells by the number of the attempt whether that is an earlier copy.
//!
//! ```text
//!  send --> answered --> Held, Refused, Lost
//!   ^          | Repeat    | Read
//!   +----------+--- read <-+
//!                     +--> Held, Replaced
//! ```

use super::event::{StoreError, Written};
use super::record::Revision;
use super::time::Instant;

/// A write whose outcome is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingWrite {
    /// The revision that the write replaces.
    pub(super) expected: Revision,
    /// The number by which the write is known.
    pub(super) attempt: u64,
    pub(super) first_sent: Instant,
    pub(super) last_sent: Instant,
    /// A copy had no answer: it may be stored, or come yet.
    pub(super) is_unknown: bool,
}

/// The outcome of a write, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The write is stored.
    Held {
        /// The revision at which the write stands.
        revision: Revision,
        /// When the write was sent, at the earliest.
        sent: Instant,
    },
    /// The write is not stored, and never will be: another write has come first.
    Lost,
    /// The write does not stand. It may have stood: another write has come first, or has replaced
    /// it.
    Replaced,
    /// The write is not stored, and the store says why: no copy of it is under way.
    Refused(StoreError),
    /// The outcome is not known, for this reason: the same write is sent again.
    Repeat(String),
    /// The key is to be read.
    Read,
}

impl PendingWrite {
    /// Returns a write in the place of this revision, the first copy of which is sent at this
    /// instant. The record contains `attempt`: no other write of the key has this number.
    pub fn send(expected: Revision, attempt: u64, now: Instant) -> PendingWrite {
        PendingWrite { expected, attempt, first_sent: now, last_sent: now, is_unknown: false }
    }

    /// Notes that another copy is sent at this instant.
    pub fn send_again(&mut self, now: Instant) {
        self.last_sent = now;
    }

    /// Another write is to be sent, in the place of this revision, if the one that was sent was in
    /// the place of another.
    pub fn replace(&mut self, expected: Revision) {
        if self.expected != expected {
            (self.expected, self.is_unknown) = (expected, false);
        }
    }

    /// Takes in the answer to the last copy.
    pub fn answered(&mut self, written: Written) -> Outcome {
        match written {
            Written::Stored(revision) => Outcome::Held { revision, sent: self.last_sent },
            // The last copy may have found the record that an earlier one has stored.
            Written::Moved(_) if self.is_unknown => Outcome::Read,
            Written::Moved(_) => Outcome::Lost,
            Written::Denied(error) if self.is_unknown => Outcome::Repeat(error.text),
            Written::Denied(error) => Outcome::Refused(error),
            Written::Unknown(why) => {
                self.is_unknown = true;
                Outcome::Repeat(why)
            }
        }
    }

    /// Takes in that a read has shown this revision of the key, 0 for none, and the number of the
    /// attempt in it, if the same owner wrote it.
    pub fn read(&self, revision: Revision, attempt: Option<u64>) -> Outcome {
        if revision == self.expected {
            // The read may be older than the write, which may come yet.
            Outcome::Repeat("it is not stored".to_owned())
        } else if attempt == Some(self.attempt) {
            // Any copy may be the stored one: the first counts.
            Outcome::Held { revision, sent: self.first_sent }
        } else {
            Outcome::Replaced
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::event::StoreErrorKind;

    fn at(seconds: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(seconds))
    }

    fn unknown() -> Written {
        Written::Unknown("no answer".to_owned())
    }

    #[test]
    fn a_write_that_was_answered_counts_from_the_copy_that_the_store_has_answered() {
        let mut write = PendingWrite::send(Revision(6), 3, at(1));
        assert!(matches!(write.answered(unknown()), Outcome::Repeat(_)));
        write.send_again(at(4));
        let held = write.answered(Written::Stored(Revision(9)));
        assert_eq!(held, Outcome::Held { revision: Revision(9), sent: at(4) });
    }

    #[test]
    fn a_copy_that_was_stored_before_is_recognized_and_counts_from_the_first() {
        let mut write = PendingWrite::send(Revision(6), 3, at(1));
        assert_eq!(write.answered(Written::Moved(None)), Outcome::Lost);
        write.answered(unknown());
        write.send_again(at(4));
        assert_eq!(write.answered(Written::Moved(None)), Outcome::Read);
        let held = Outcome::Held { revision: Revision(9), sent: at(1) };
        assert_eq!(write.read(Revision(9), Some(3)), held);
        assert_eq!(write.read(Revision(9), Some(2)), Outcome::Replaced);
        assert_eq!(write.read(Revision(0), None), Outcome::Replaced);
        // The content by which a write is known may have stood there before.
        for attempt in [2, 3] {
            assert!(matches!(write.read(Revision(6), Some(attempt)), Outcome::Repeat(_)));
        }
    }

    #[test]
    fn a_refusal_tells_nothing_of_a_copy_without_an_answer() {
        let denied = || Written::Denied(StoreErrorKind::Credentials.error("no permission"));
        let mut write = PendingWrite::send(Revision(6), 3, at(1));
        assert!(matches!(write.answered(denied()), Outcome::Refused(_)));
        write.answered(unknown());
        assert!(matches!(write.answered(denied()), Outcome::Repeat(_)));
    }
}
