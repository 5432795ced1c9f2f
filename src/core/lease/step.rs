//! What a command of `putex lease` is to do, what it does next, what comes of that, and how it
//! ends.

use std::time::Duration;

use super::{LeaseEntry, LeaseState, LeaseTime, StoredLease};
use crate::core::event::{BucketInfo, StoreError, StoreErrorKind, Written};
use crate::core::observed::{Observed, WriteBounds};
use crate::core::record::Revision;
use crate::core::tickets::Mark;
use crate::core::time::{Instant, Ms};

/// What is to be done with a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseTask {
    /// It is claimed for a holder that is to have it for so long at least.
    Claim {
        /// Who is to have it.
        holder: String,
        /// For how long, from the beginning of the command.
        at_least: Duration,
    },
    /// Its holder is to have it for so long at least from now on.
    Extend {
        /// Who has it.
        holder: String,
        /// For how long, from the beginning of the command.
        at_least: Duration,
    },
    /// It is expired if it has run out, which is waited for.
    Expire {
        /// For how long that is waited for at most.
        wait: Duration,
    },
    /// Whether it is held.
    Check {
        /// By whom; `None`: by anybody.
        holder: Option<String>,
    },
}

/// A lease as a host knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// Who has it, or had.
    pub holder: String,
    /// The number of its claim.
    pub term: Revision,
    /// Whether it is held.
    pub state: LeaseState,
    /// Until when nobody can have expired it; `None` if nothing is known.
    pub held_until: Option<Instant>,
    /// From when on this host may expire it.
    pub run_out_at: Instant,
}

impl LeaseView {
    /// Returns what a host with these notes knows now of the lease that stands at this revision.
    pub fn of(
        lease: &LeaseEntry,
        revision: Revision,
        notes: &Observed,
        drift_ppm: u32,
        now: Instant,
    ) -> LeaseView {
        let time = LeaseTime::stored(lease.duration, drift_ppm);
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
    /// It is claimed or extended.
    Had {
        /// The number of the claim.
        term: Revision,
        /// Until when nobody else can have it.
        valid_until: Instant,
    },
    /// It was claimed or extended, and has run out again before this process went on.
    Over(Revision),
    /// It is not claimed: somebody has it, or it was not expired yet.
    Taken(LeaseView),
    /// It is not claimed: the bucket may be one that was lost and made anew. So long it is not
    /// believed yet.
    Young(Duration),
    /// It is not extended: the holder does not have it any more. Who has it.
    NotHad(Option<LeaseView>),
    /// It was expired.
    Expired(LeaseView),
    /// It may not be expired yet.
    TooEarly(LeaseView),
    /// There is no lease to be expired.
    Absent,
    /// Whether it is held: what is known of the lease, if there is one. Where there is none, it is
    /// not known in a bucket that may have been lost.
    Checked(LeaseState, Option<LeaseView>),
    /// The store does not serve it.
    Refused(StoreErrorKind, String),
}

/// What is done next. The result is told by [`LeaseCommand::handle`](super::LeaseCommand::handle).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseStep {
    /// Open the bucket and read its mark: [`LeaseInput::Opened`].
    Open(Instant),
    /// Read the lease in the bucket that was opened, and in no other: [`LeaseInput::Read`].
    Read(Instant),
    /// Write this mark in the place of its revision: [`LeaseInput::Written`].
    WriteMark(Mark, Instant),
    /// Write the lease in the place of this revision, `None` to expire it:
    /// [`LeaseInput::Written`].
    Write(Revision, Option<LeaseEntry>, Instant),
    /// Have it confirmed by a write that the lease stands at this revision:
    /// [`LeaseInput::Written`].
    Confirm(Revision, Instant),
    /// Do nothing until then: [`LeaseInput::Rested`].
    Rest(Instant),
    /// Nothing more is to be done.
    Exit,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseInput {
    /// The bucket was opened; with its mark, and what this host has seen of the lease in this
    /// bucket.
    Opened(Result<Box<(BucketInfo, Mark, Observed)>, StoreError>),
    /// The lease was read.
    Read(Result<StoredLease, String>),
    /// What has become of a write.
    Written(Written),
    /// A rest is over, or was cut short.
    Rested,
}

/// Says for people how long a bucket is not believed yet.
pub fn why_young(left: Duration) -> String {
    format!(
        "first lease of this length in the bucket: try again in {}, when leases of a lost bucket \
         have run out; putex init avoids the wait",
        Ms(left)
    )
}
