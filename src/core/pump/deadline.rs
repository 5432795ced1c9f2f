//! An instant at which the pump wants to be called, and the reason.

use crate::core::time::Instant;

/// A timer of the pump, which is the reason for a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The store has not been read, or the guard has not answered: the agent goes on as if
    /// the lock were another's.
    LookingOver,
    /// The next stroke.
    Stroke,
    /// The key is read again.
    ReadKey,
    /// The confirming check begins.
    TakeoverCheck,
    /// The lock may be taken.
    Take,
    /// The lock is requested from its holder.
    RequestFailback,
    /// A health check that has passed does not count any more.
    CheckStale,
    /// A write that was not acknowledged is given up.
    GiveUpWrite,
    /// A write is sent, or sent again.
    SendWrite,
    /// The service of the previous holder must be down.
    Confirmed,
    /// A renewal of a lock that is not yet confirmed.
    RenewUnconfirmed,
    /// The lock runs out.
    LockOver,
    /// The health check takes longer than R.
    SlowCheck,
    /// The lock is renewed beside a health check.
    RenewBesideCheck,
    /// The health check is killed.
    CheckOver,
    /// The service must be down.
    DeadBy,
    /// The agent ends although the service is not known to be down.
    GiveUpStop,
    /// The release is given up.
    GiveUpRelease,
    /// A guard is started.
    GuardStart,
    /// A guard that has not answered is killed.
    GuardAnswer,
    /// The guard is asked for a report.
    AskGuard,
    /// The pause is over.
    PauseOver,
}

impl Timer {
    /// Returns a deadline with this reason.
    pub fn at(self, at: Instant) -> Deadline {
        Deadline { at, timer: self }
    }
}

/// An instant with its reason. The earlier deadline is the smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    /// The instant.
    pub at: Instant,
    /// The reason.
    pub timer: Timer,
}

/// The timers that are set in a state. Each state, and each part that waits for something, sets its
/// own by `set_timers`. A timer whose end would change nothing is not set.
#[derive(Debug, Default)]
pub(super) struct Timers(Vec<Deadline>);

impl Timers {
    pub(super) fn set(&mut self, timer: Timer, at: Instant) {
        self.0.push(timer.at(at));
    }

    /// Returns whether a timer is set and has run out.
    pub(super) fn is_over(&self, timer: Timer, now: Instant) -> bool {
        self.0.iter().any(|deadline| deadline.timer == timer && now >= deadline.at)
    }

    pub(super) fn earliest(&self) -> Option<Deadline> {
        self.0.iter().min().copied()
    }
}
