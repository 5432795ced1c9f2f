//! The reports of the pump to the operator. Only people read the texts: code and tests match on the
//! variants. The comment of a variant is its text: `displaydoc` makes it one. Texts of others in it
//! are sanitized.

use std::time::Duration;

use displaydoc::Display;
use log::Level;

use crate::core::agent_status::AgentState;
use crate::core::priority::Priority;
use crate::core::record::Revision;
use crate::core::seat::Seat;
use crate::core::service_report::ServiceReport;
use crate::core::time::Ms;

/// A line of the agent's log that the pump asks for.
#[derive(Clone, Debug, Display, PartialEq, Eq)]
#[ignore_extra_doc_attributes]
pub enum Report {
    /// {from} -> {to}: {why}
    Moved {
        /// The state before.
        from: AgentState,
        /// The new state.
        to: AgentState,
        /// Why the state has changed.
        why: Reason,
        /// The level of the line.
        level: Level,
    },
    /// {0}
    ///
    /// The agent ends at once, since the service is down.
    Ends(Reason),
    /// store lost: {0}
    StoreLost(String),
    /// store open again
    StoreOpenAgain,
    /// the store will not serve this agent any more: {0}
    StoreRefuses(String),
    /// {0}
    ///
    /// What the store says of the bucket.
    Bucket(String),
    #[displaydoc(
        "T = {lock_time} is shorter than {least}: with {replicas} replicas a leader election of \
         NATS (4 to 8 s) can cost the lock"
    )]
    /// An election of a leader can cost the lock.
    ElectionRisk {
        /// T.
        lock_time: Ms,
        /// The least T that survives an election.
        least: Ms,
        /// How many servers keep a copy of the bucket.
        replicas: u32,
    },
    /// the store has rolled back: {0}
    RolledBack(Rollback),
    /// the key was deleted: its delete marker stands there
    KeyDeleted,
    /// no answer to a read: {0}
    ReadUnanswered(String),
    #[displaydoc("no answer to a write after {after}: {why}")]
    /// No answer to a write.
    WriteUnanswered {
        /// How long the answer was waited for.
        after: Ms,
        /// Why there is no answer.
        why: String,
        /// The copy before it had no answer either.
        again: bool,
    },
    /// the lock could not be stored: {0}
    NotStored(String),
    /// {lock} is held by {holder}, revision {revision}
    HeldBy {
        /// The lock.
        lock: LockName,
        /// The holder.
        holder: Holder,
        /// Revision of the record.
        revision: Revision,
        /// The attempt to take that lock was refused before.
        again: bool,
    },
    /// {lock} is free ({free}), revision {revision}
    IsFree {
        /// The lock.
        lock: LockName,
        /// Why the lock is free.
        free: FreeReason,
        /// Revision of the record.
        revision: Revision,
        /// The attempt to take that lock was refused before.
        again: bool,
    },
    /// this agent takes seat {0}
    TakesSeat(Seat),
    /// would take {lock} now, {why}: it only observes
    WouldTake {
        /// The lock.
        lock: LockName,
        /// Why the lock may be taken.
        why: Reason,
    },
    /// {lock} is requested: its holder has priority {than}
    RequestsFailback {
        /// The lock.
        lock: LockName,
        /// The holder's priority.
        than: Priority,
    },
    /// paused for {0} by {1}
    ///
    /// The requester, and the reason if one was given.
    Paused(Ms, String),
    /// the pause is over
    PauseOver,
    /// the pause was ended
    Resumed,
    /// the lock is released, revision {0}
    Released(Revision),
    /// the lock is another's already
    NothingToRelease,
    /// the lock could not be released: it is left to expire
    NotReleased,
    /// the lock is left to expire: its holder before may still be stopping
    LeftToExpire,
    #[displaydoc(
        "the lock is held under this agent's own token {token} by another incarnation on host \
         {host}: this agent's previous instance, or another agent with the same token"
    )]
    /// The lock is held under this agent's token.
    OwnToken {
        /// The token.
        token: String,
        /// The holder's host.
        host: String,
    },
    #[displaydoc(
        "two live agents have the same token {token}: another runs on host {host}, incarnation \
         {incarnation}; give each its own --token"
    )]
    /// Another live agent has this agent's token.
    DuplicateToken {
        /// The token.
        token: String,
        /// The host of the other agent.
        host: String,
        /// The incarnation of the other agent.
        incarnation: String,
    },
    /// not a candidate: {0}
    ///
    /// The guard cannot do what is required of it.
    Unfit(String),
    /// the guard is gone: {0}
    GuardLost(String),
    /// there is no guard: {0}
    NoGuard(String),
    /// the guard did not answer within {0}: it is killed
    GuardKilled(Ms),
    /// health check passed: a candidate
    Candidate,
    /// health check failed: {0}; not a candidate
    NotCandidate(String),
    /// the health check takes longer than R = {0}
    CheckSlow(Ms),
    /// start has run for {0}: it has to end when the service runs, and is not ended while the lock
    /// is renewed
    StartRuns(Ms),
    /// health check failed: {0}; {1}
    CheckExcused(String, Excuse),
    /// {0}
    ///
    /// The guard would report it, and does not answer.
    Service(ServiceReport),
}

impl Report {
    /// Returns the level of the line.
    pub fn level(&self) -> Level {
        match self {
            Self::Moved { level, .. } => *level,
            Self::StoreRefuses(_) | Self::RolledBack(_) | Self::DuplicateToken { .. } => {
                Level::Error
            }
            Self::Unfit(_) | Self::NoGuard(_) | Self::GuardKilled(_) => Level::Error,
            Self::Service(report) => report.level(),
            Self::StoreLost(_) | Self::ElectionRisk { .. } | Self::KeyDeleted => Level::Warn,
            Self::NotStored(_) | Self::NotReleased | Self::OwnToken { .. } => Level::Warn,
            Self::GuardLost(_) | Self::NotCandidate(_) => Level::Warn,
            Self::CheckSlow(_) | Self::CheckExcused(..) | Self::StartRuns(_) => Level::Warn,
            Self::Ends(_) | Self::StoreOpenAgain | Self::Bucket(_) => Level::Info,
            Self::HeldBy { again: false, .. } | Self::IsFree { again: false, .. } => Level::Info,
            Self::TakesSeat(_) | Self::Candidate => Level::Info,
            Self::WouldTake { .. } => Level::Info,
            Self::RequestsFailback { .. } => Level::Info,
            Self::Paused(..) | Self::PauseOver | Self::Resumed => Level::Info,
            Self::Released(_) | Self::NothingToRelease | Self::LeftToExpire => Level::Info,
            Self::WriteUnanswered { again: false, .. } => Level::Info,
            Self::HeldBy { again: true, .. } | Self::IsFree { again: true, .. } => Level::Debug,
            Self::ReadUnanswered(_) | Self::WriteUnanswered { again: true, .. } => Level::Debug,
        }
    }
}

/// The name of a lock of a group of agents, in a text.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq)]
pub enum LockName {
    /// the lock
    Only,
    /// seat {0}
    Seat(Seat),
}

/// Why the state has changed.
#[derive(Clone, Debug, Display, PartialEq, Eq)]
pub enum Reason {
    /// the bucket is open
    Open,
    /// the store or the guard has not answered within R
    NotRead,
    /// {0}: ending
    Told(&'static str),
    /// the store is refused: ending
    Refused,
    /// free ({0})
    Free(FreeReason),
    /// from {0}
    Own(Holder),
    /// from {0}, not renewed for {1}
    NotRenewed(Holder, Ms),
    /// free ({0}), watched for {1}
    WithoutHolder(FreeReason, Ms),
    /// from this agent's previous instance, term {0}
    Predecessor(Revision),
    /// the lock is not the previous instance's any more
    NotPredecessors,
    /// the previous instance held seat {0}, and --seats is smaller now
    SeatGone(Seat),
    /// the lock of the previous instance has run out
    PredecessorOver,
    /// adopted as revision {0}, the service goes on
    Adopted(Revision),
    /// taken as revision {0}, free to start
    TakenFree(Revision),
    /// taken as revision {0}, start in {1}
    Taken(Revision, Ms),
    /// not taken: {0}
    NotTaken(LockLoss),
    /// the take was refused for R = {0}
    TakeRefused(Ms),
    /// tried again after the store had refused
    TriedAgain,
    /// the take was not acknowledged within R = {0}
    TakeUnanswered(Ms),
    /// the take was acknowledged too late to count
    TakeTooLate,
    /// waited {0} for a previous holder to stop
    Confirmed(Ms),
    /// lost: {0}
    LostUnconfirmed(LockLoss),
    /// {0}
    Lost(LockLoss),
    /// health check failed: {0}
    CheckFailed(String),
    /// the health check did not end within {0} and was killed
    CheckKilled(Ms),
    /// the health check did not end within {0}
    CheckHangs(Ms),
    /// switchover to {0}
    Switchover(String),
    /// the guard cannot do what is required of it
    Unfit,
    /// the guard has stopped the service
    GuardStopped,
    /// down, {0} before it had to be
    Down(Ms),
    /// known to be down {0} after it had to be
    DownLate(Ms),
}

/// Why a lock is not this agent's, or not any more.
#[derive(Clone, Debug, Display, PartialEq, Eq)]
pub enum LockLoss {
    /// no renewal was acknowledged within {0}
    NotRenewed(Ms),
    /// another revision stands where {0} was expected
    Moved(Revision),
    /// another revision {0} stands where {1} was expected
    MovedTo(Revision, Revision),
    /// another's write, revision {0}, stands where {1} was expected
    Overwritten(Revision, Revision),
    /// revision {0} is another's: {1}
    HeldBy(Revision, LockState),
    /// the store has rolled back
    RolledBack,
}

impl Reason {
    /// Returns why the lock is taken after this wait: it is free, it is this agent's own, or its
    /// holder has not renewed it.
    pub(super) fn of_take(lock: LockState, wait: Duration) -> Reason {
        match (lock, wait) {
            (LockState::Free(why), Duration::ZERO) => Reason::Free(why),
            (LockState::Free(why), wait) => Reason::WithoutHolder(why, Ms(wait)),
            (LockState::Held(holder), Duration::ZERO) => Reason::Own(holder),
            (LockState::Held(holder), wait) => Reason::NotRenewed(holder, Ms(wait)),
        }
    }
}

/// The sign that the store has lost writes.
#[derive(Clone, Debug, Display, PartialEq, Eq)]
pub enum Rollback {
    /// the bucket was created anew; its epoch is {0}
    BucketAnew(String),
    /// the bucket stands at revision {0}, but {1} was seen before
    BucketBehind(Revision, Revision),
    /// it stored revision {0}, but {1} was seen before
    WriteBehind(Revision, Revision),
    /// the key stands at revision {0}, below {1} which this agent saw
    KeyBehind(Revision, Revision),
    /// revision {0} was another record before
    NumberAgain(Revision),
}

/// Whether a lock is held.
#[derive(Clone, Debug, Display, PartialEq, Eq)]
pub enum LockState {
    /// {0}
    Held(Holder),
    /// {0}
    Free(FreeReason),
}

/// The holder of a lock, in a text.
#[derive(Clone, Debug, Display, PartialEq, Eq)]
pub enum Holder {
    /// {0}, in a bucket that has rolled back
    InRollback(String),
    /// {0}, in a record older than one seen before
    InOlder(String),
    /// {0}
    Somebody(String),
    /// this agent's previous instance
    Predecessor,
    /// this agent
    Own,
    /// this agent, unconfirmed
    OwnUnconfirmed,
    /// this agent, in a record that may have been stored late
    OwnLate,
}

/// Why a lock is free.
#[derive(Clone, Debug, Display, PartialEq, Eq)]
pub enum FreeReason {
    /// the key was deleted
    Deleted,
    /// the key is gone
    Gone,
    /// the key never existed
    Never,
    /// no record yet
    Unwatched,
    /// blanked, but not by this version of putex
    Blanked,
    /// released by this agent
    ReleasedHere,
    /// released on host {0}
    Released(String),
    /// released on host {0}, for this agent
    ReleasedToThis(String),
    /// released on host {1}, for {0}
    ReleasedTo(String, String),
}

/// Why a health check that has failed does not move the service.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq)]
pub enum Excuse {
    /// start grace of {0}
    Grace(Ms),
    /// start still runs
    StartRuns,
    /// failure {0} of {1}
    Failure(u32, u32),
}
