//! An instant at which the pump wants to be called, and what for.

use crate::core::time::Instant;

/// What the pump waits for.
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
    /// The holder before must be down.
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
    /// A guard that stops the service is told so again.
    RepeatStop,
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
    /// When.
    pub at: Instant,
    /// What for.
    pub timer: Timer,
}

/// Returns whether a timer has run out; one that is not set has not.
pub(super) fn has_run_out(timer: Option<Deadline>, now: Instant) -> bool {
    timer.is_some_and(|timer| now >= timer.at)
}

/// Returns the earliest of the timers that are set.
pub(super) fn earliest<const N: usize>(timers: [Option<Deadline>; N]) -> Option<Deadline> {
    timers.into_iter().flatten().min()
}
