//! The tasks of a command of `putex lease`, its steps, their results, and its end.

use std::time::Duration;

use super::{LeaseEntry, LeaseState, LeaseTime, StoredLease};
use crate::core::event::{BucketInfo, StoreError, Written};
use crate::core::observed::{Observed, WriteBounds};
use crate::core::record::Revision;
use crate::core::tickets::Mark;
use crate::core::time::{Instant, Ms};

/// The task of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseTask {
    /// Claim the lease for a holder.
    Claim {
        /// The holder that is to have the lease.
        holder: String,
        /// The least time for which the holder is to have the lease, from the beginning of the
        /// command.
        at_least: Duration,
    },
    /// Extend the lease of a holder.
    Extend {
        /// The holder of the lease.
        holder: String,
        /// The least time for which the holder is to have the lease, from the beginning of the
        /// command.
        at_least: Duration,
    },
    /// Expire the lease once it has run out.
    Expire {
        /// The longest wait for the lease to run out.
        wait: Duration,
    },
    /// Tell whether the lease is held.
    Check {
        /// The holder that is asked about; `None`: anybody.
        holder: Option<String>,
    },
}

/// A lease as a host knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// The holder of the lease, or its last one.
    pub holder: String,
    /// The number of the claim.
    pub term: Revision,
    /// Whether the lease is held.
    pub state: LeaseState,
    /// Until when nobody can have expired it; `None` if nothing is known.
    pub held_until: Option<Instant>,
    /// From when on this host may expire it.
    pub run_out_at: Instant,
}

impl LeaseView {
    /// Returns the lease that stands at this revision, as a host with these notes knows it now.
    pub fn of(
        lease: &LeaseEntry,
        revision: Revision,
        notes: &Observed,
        drift_ppm: u32,
        now: Instant,
    ) -> LeaseView {
        let time = LeaseTime { duration: lease.duration, drift_ppm };
        let written = notes.written(revision).unwrap_or(WriteBounds::of_read(None, now));
        LeaseView {
            holder: lease.holder.clone(),
            term: lease.term_at(revision),
            state: time.state(written, now),
            held_until: time.held_until(written),
            run_out_at: time.run_out_at(written),
        }
    }
}

/// How a command has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEnd {
    /// The lease is claimed or extended.
    Had {
        /// The number of the claim.
        term: Revision,
        /// Until when nobody else can have it.
        valid_until: Instant,
    },
    /// The lease was claimed or extended, and has run out again before this process went on.
    Over(Revision),
    /// The lease is not claimed: somebody has it, or it was not expired yet.
    Taken(LeaseView),
    /// The lease is not claimed: the bucket may be one that was lost and made anew. No lease is
    /// claimed in it for this time.
    Young(Duration),
    /// The lease is not extended: the holder does not have it any more. The lease that stands.
    NotHad(Option<LeaseView>),
    /// The lease was expired.
    Expired(LeaseView),
    /// The lease may not be expired yet.
    TooEarly(LeaseView),
    /// There is no lease to be expired.
    Absent,
    /// The command has asked whether the lease is held: the state of the lease, and the lease if
    /// there is one. Where there is none, the state is unsure in a bucket that may have been lost.
    Checked(LeaseState, Option<LeaseView>),
    /// The store does not serve the command.
    Refused(StoreError),
}

/// A step. Its result is passed to [`LeaseCommand::handle`](super::LeaseCommand::handle).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseStep {
    /// Open the bucket, also after a failure, as it may have been lost and made anew, and read its
    /// mark: [`LeaseInput::Opened`].
    Open,
    /// Read the lease in the bucket that was opened, and in no other: [`LeaseInput::Read`].
    Read,
    /// Write this mark in the place of its revision: [`LeaseInput::Written`].
    WriteMark(Mark),
    /// Write the lease in the place of the one that was read, `None` to expire it:
    /// [`LeaseInput::Written`].
    Write(Option<LeaseEntry>),
    /// Confirm by a write that the lease stands as it was read: [`LeaseInput::Written`]. Then the
    /// command ends in this way; with `None` it decides by that read alone, without the notes.
    Confirm(Option<LeaseEnd>),
    /// Do nothing until then: [`LeaseInput::Rested`].
    Rest(Instant),
    /// End in this way. The last step there is.
    Exit(LeaseEnd),
}

/// A step that begins.
#[derive(Clone, Debug)]
pub struct LeaseTurn {
    /// The step.
    pub step: LeaseStep,
    /// The revision of the lease that was read.
    pub at: Revision,
    /// The number of the attempt that stands in the last write of the lease.
    pub attempt: u64,
    /// When a request without an answer is given up.
    pub by: Instant,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseInput {
    /// The bucket was opened; with its mark, and the notes of this host on the lease in this
    /// bucket.
    Opened(Result<Box<(BucketInfo, Mark, Observed)>, StoreError>),
    /// The lease was read.
    Read(Result<StoredLease, String>),
    /// The result of a write.
    Written(Written),
    /// A rest is over, or was cut short.
    Rested,
}

/// Returns, for people, why no lease is claimed in a new bucket yet, and how much time is left.
pub fn why_young(left: Duration) -> String {
    format!(
        "first lease of this length in the bucket, and those of a lost bucket may still be held: \
         try again in {}, or, only if no bucket was lost, run putex init",
        Ms(left)
    )
}
