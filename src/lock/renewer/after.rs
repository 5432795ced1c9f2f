//! The end of `--hold`: the lock of a command that has ended is released in time.

use super::Renewer;
use crate::core::Instant;
use crate::core::tickets::Input;

impl Renewer {
    /// The command and its group have ended.
    pub(super) fn command_has_ended(&mut self) {
        self.command = None;
        self.has_ended = true;
    }

    /// Returns when the lock of a command that has ended is released. It was held for long enough
    /// then by the count of the front too, which begins later.
    pub(super) fn release_at(&self) -> Option<Instant> {
        let held_from = self.known_at.or(self.granted_at);
        let held_from = held_from.filter(|_| self.has_ended && !self.is_ending)?;
        Some(held_from.after(self.hold))
    }

    /// Releases the lock of a command that has ended, if that is due.
    pub(super) fn release_in_time(&mut self, now: Instant) {
        if self.release_at().is_some_and(|at| now >= at) {
            self.finish(now);
        }
    }

    /// The lock is not needed any more.
    pub(super) fn finish(&mut self, now: Instant) {
        self.is_ending = true;
        self.owner.handle(Input::Done, now);
    }
}
