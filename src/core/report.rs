//! What the pump tells the operator. Only people read the texts: code and tests match on the
//! variants.

use std::fmt;
use std::time::Duration;

use crate::core::command::MAY_STILL_RUN;
use crate::core::level::Level;
use crate::core::record::Revision;
use crate::core::time::Ms;
use crate::core::timing::ELECTION_T_MIN;

/// A line of the agent's log that the pump asks for. Texts of others are sanitized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The state has changed.
    Moved {
        /// Name of the state before.
        from: &'static str,
        /// Name of the new state.
        to: &'static str,
        /// Why.
        why: Reason,
        /// How much it matters.
        level: Level,
    },
    /// The agent ends at once, since the service is down; why.
    Ends(Reason),
    /// An open store is out of reach; why.
    StoreLost(String),
    /// A store that was open before is open.
    StoreOpenAgain,
    /// The store refuses an agent that it has served; why.
    StoreRefuses(String),
    /// What the store says of the bucket.
    Bucket(String),
    /// An election of a leader can cost the lock.
    ElectionRisk {
        /// T.
        lock_time: Duration,
        /// How many servers keep a copy of the bucket.
        replicas: u32,
    },
    /// The store does not have what it had.
    RolledBack(Rollback),
    /// The key was deleted.
    KeyDeleted,
    /// A read was not answered; why.
    ReadUnanswered(String),
    /// What became of a write is unknown; after how long, and why.
    WriteUnanswered(Duration, String),
    /// The store has refused to store the lock; why.
    NotStored(String),
    /// Somebody else holds the lock, or nobody.
    HeldBy {
        /// Who.
        holder: Holder,
        /// Revision of the record.
        revision: Revision,
        /// The attempt to take that lock was refused before.
        again: bool,
    },
    /// The lock was released, as this revision.
    Released(Revision),
    /// Another has the lock that was to be released.
    NothingToRelease,
    /// The release came to nothing.
    NotReleased,
    /// A lock is not released: its holder before may still be stopping.
    LeftToExpire,
    /// The lock is held under this agent's token.
    OwnToken {
        /// The token.
        token: String,
        /// The holder's host.
        host: String,
    },
    /// Another live agent has this agent's token.
    DuplicateToken {
        /// The token.
        token: String,
        /// The other's host.
        host: String,
        /// The other's incarnation.
        incarnation: String,
    },
    /// The guard cannot do what is required of it; why.
    Unfit(String),
    /// A guard that has answered is gone; why.
    GuardLost(String),
    /// There is no guard; why.
    NoGuard(String),
    /// The guard did not answer for so long and is killed.
    GuardKilled(Duration),
    /// A health check on standby has passed.
    Candidate,
    /// A health check on standby has failed; why.
    NotCandidate(String),
    /// A health check on standby was killed.
    CheckKilled,
    /// A health check takes longer than R, which is this.
    CheckSlow(Duration),
    /// A health check of the service has failed, which costs nothing; why it has failed.
    CheckExcused(String, Excuse),
    /// The lock has run out and nobody is known to have stopped the service.
    MayStillRun,
}

impl Report {
    /// Returns how much it matters.
    pub fn level(&self) -> Level {
        match self {
            Self::Moved { level, .. } => *level,
            Self::StoreRefuses(_) | Self::RolledBack(_) | Self::DuplicateToken { .. } => {
                Level::Error
            }
            Self::Unfit(_) | Self::NoGuard(_) | Self::GuardKilled(_) => Level::Error,
            Self::MayStillRun => Level::Error,
            Self::StoreLost(_) | Self::ElectionRisk { .. } | Self::KeyDeleted => Level::Warn,
            Self::NotStored(_) | Self::NotReleased | Self::OwnToken { .. } => Level::Warn,
            Self::GuardLost(_) | Self::NotCandidate(_) | Self::CheckKilled => Level::Warn,
            Self::CheckSlow(_) | Self::CheckExcused(..) => Level::Warn,
            Self::Ends(_) | Self::StoreOpenAgain | Self::Bucket(_) => Level::Info,
            Self::HeldBy { again: false, .. } | Self::Candidate => Level::Info,
            Self::Released(_) | Self::NothingToRelease | Self::LeftToExpire => Level::Info,
            Self::HeldBy { again: true, .. } => Level::Debug,
            Self::ReadUnanswered(_) | Self::WriteUnanswered(..) => Level::Debug,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moved { from, to, why, .. } => write!(f, "{from} -> {to}: {why}"),
            Self::Ends(why) => write!(f, "{why}"),
            Self::StoreLost(why) => write!(f, "store lost: {why}"),
            Self::StoreOpenAgain => write!(f, "store open again"),
            Self::StoreRefuses(why) => {
                write!(f, "the store will not serve this agent any more: {why}")
            }
            Self::Bucket(text) => write!(f, "{text}"),
            Self::ElectionRisk { lock_time, replicas } => write!(
                f,
                "T = {} is shorter than {}: with {replicas} replicas a leader election of NATS \
                 (4 to 8 s) can cost the lock",
                Ms(*lock_time),
                Ms(ELECTION_T_MIN)
            ),
            Self::RolledBack(how) => write!(f, "the store has rolled back: {how}"),
            Self::KeyDeleted => write!(f, "the key was deleted: its delete marker stands there"),
            Self::ReadUnanswered(why) => write!(f, "no answer to a read: {why}"),
            Self::WriteUnanswered(after, why) => {
                write!(f, "no answer to a write after {}: {why}", Ms(*after))
            }
            Self::NotStored(why) => write!(f, "the lock could not be stored: {why}"),
            Self::HeldBy { holder, revision, .. } => {
                write!(f, "the lock is held by {holder}, revision {revision}")
            }
            Self::Released(revision) => write!(f, "the lock is released, revision {revision}"),
            Self::NothingToRelease => write!(f, "the lock is another's already"),
            Self::NotReleased => write!(f, "the lock could not be released: it is left to expire"),
            Self::LeftToExpire => {
                write!(f, "the lock is left to expire: its holder before may still be stopping")
            }
            Self::OwnToken { token, host } => write!(
                f,
                "the lock is held under this agent's own token {token} by another incarnation on \
                 host {host}: this agent's previous instance, or another agent with the same token"
            ),
            Self::DuplicateToken { token, host, incarnation } => write!(
                f,
                "two live agents have the same token {token}: another runs on host {host}, \
                 incarnation {incarnation}; give each its own --token"
            ),
            Self::Unfit(why) => write!(f, "not a candidate: {why}"),
            Self::GuardLost(why) => write!(f, "the guard is gone: {why}"),
            Self::NoGuard(why) => write!(f, "there is no guard: {why}"),
            Self::GuardKilled(within) => {
                write!(f, "the guard did not answer within {}: it is killed", Ms(*within))
            }
            Self::Candidate => write!(f, "health check passed: a candidate"),
            Self::NotCandidate(why) => write!(f, "health check failed: {why}; not a candidate"),
            Self::CheckKilled => write!(f, "health check did not end within T and was killed"),
            Self::CheckSlow(r) => write!(f, "the health check takes longer than R = {}", Ms(*r)),
            Self::CheckExcused(why, excuse) => write!(f, "health check failed: {why}; {excuse}"),
            Self::MayStillRun => write!(f, "{MAY_STILL_RUN}"),
        }
    }
}

/// Why the state has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The bucket is open, and the guard has answered.
    Open,
    /// The lock was not known within R.
    NotRead,
    /// The agent was told to end, by the signal of this name.
    Told(&'static str),
    /// The store refuses the agent, which ends.
    Refused,
    /// The lock may be taken: from whom, and how long it had to stand still.
    Free(Holder, Duration),
    /// The lock is the previous instance's, of this term.
    Predecessor(Revision),
    /// The previous instance has left a service running, but not the lock.
    NotPredecessors,
    /// The lock of the previous instance has run out.
    PredecessorOver,
    /// The previous instance's lock is this agent's, as this revision.
    Adopted(Revision),
    /// The lock is taken as this revision, and was free.
    TakenFree(Revision),
    /// The lock is taken as this revision; after so long the service may start.
    Taken(Revision, Duration),
    /// The lock was not taken.
    NotTaken(LockLoss),
    /// The take was refused for R.
    TakeRefused(Duration),
    /// The take was not acknowledged within R.
    TakeUnanswered(Duration),
    /// The take was acknowledged when the lock had run out.
    TakeTooLate,
    /// The holder before had so long to stop.
    Confirmed(Duration),
    /// A lock that was not confirmed is lost.
    LostUnconfirmed(LockLoss),
    /// The lock is lost.
    Lost(LockLoss),
    /// The health check has failed; why.
    CheckFailed(String),
    /// The health check was killed after so long.
    CheckKilled(Duration),
    /// The health check did not end within so long, although it was to be killed.
    CheckHangs(Duration),
    /// The guard cannot do what is required of it.
    Unfit,
    /// The guard has stopped the service.
    GuardStopped,
    /// The service is down, so long before it had to be.
    Down(Duration),
    /// The service is down; that is known so long after it had to be. The guard tells when it
    /// was.
    DownLate(Duration),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HUNG: &str = "the health check did not end within";
        match self {
            Self::Open => write!(f, "the bucket is open"),
            Self::NotRead => write!(f, "the lock could not be read within R"),
            Self::Told(signal) => write!(f, "{signal}: ending"),
            Self::Refused => write!(f, "the store is refused: ending"),
            Self::Free(holder, Duration::ZERO) => write!(f, "from {holder}"),
            Self::Free(holder, wait) => {
                write!(f, "from {holder}, not renewed for {}", Ms(*wait))
            }
            Self::Predecessor(term) => {
                write!(f, "from this agent's previous instance, term {term}")
            }
            Self::NotPredecessors => {
                write!(f, "the lock is not the previous instance's any more")
            }
            Self::PredecessorOver => write!(f, "the lock of the previous instance has run out"),
            Self::Adopted(revision) => {
                write!(f, "adopted as revision {revision}, the service goes on")
            }
            Self::TakenFree(revision) => write!(f, "taken as revision {revision}, free to start"),
            Self::Taken(revision, wait) => {
                write!(f, "taken as revision {revision}, start in {}", Ms(*wait))
            }
            Self::NotTaken(LockLoss::RolledBack(_)) => write!(f, "not taken"),
            Self::NotTaken(loss) => write!(f, "not taken: {loss}"),
            Self::TakeRefused(r) => write!(f, "the take was refused for R = {}", Ms(*r)),
            Self::TakeUnanswered(r) => {
                write!(f, "the take was not acknowledged within R = {}", Ms(*r))
            }
            Self::TakeTooLate => write!(f, "the take was acknowledged too late to count"),
            Self::Confirmed(wait) => write!(f, "the holder before had {} to stop", Ms(*wait)),
            Self::LostUnconfirmed(LockLoss::NotRenewed(_)) => {
                write!(f, "lost: no renewal was acknowledged in time")
            }
            Self::LostUnconfirmed(loss) => write!(f, "lost: {loss}"),
            Self::Lost(loss) => write!(f, "{loss}"),
            Self::CheckFailed(why) => write!(f, "health check failed: {why}"),
            Self::CheckKilled(after) => write!(f, "{HUNG} {} and was killed", Ms(*after)),
            Self::CheckHangs(after) => write!(f, "{HUNG} {}", Ms(*after)),
            Self::Unfit => write!(f, "the guard cannot do what is required of it"),
            Self::GuardStopped => write!(f, "the guard has stopped the service"),
            Self::Down(left) => write!(f, "down, {} before it had to be", Ms(*left)),
            Self::DownLate(late) => {
                write!(f, "known to be down {} after it had to be", Ms(*late))
            }
        }
    }
}

/// Why a lock is not this agent's, or not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockLoss {
    /// No renewal was acknowledged within T·(1 − e), which is this.
    NotRenewed(Duration),
    /// A write was refused, as another revision stands there, which the store may name; and
    /// the revision that was expected.
    Moved(Option<Revision>, Revision),
    /// A read shows another's write; its revision, and the revision that was expected.
    Overwritten(Revision, Revision),
    /// A record of another holder stands there.
    HeldBy(Revision, Option<Holder>),
    /// The store does not have what it had; how that shows, unless it was just reported.
    RolledBack(Option<Rollback>),
}

impl fmt::Display for LockLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRenewed(within) => {
                write!(f, "no renewal was acknowledged within {}", Ms(*within))
            }
            Self::Moved(at, expected) => {
                let at = at.map_or_else(String::new, |at| format!(" {at}"));
                write!(f, "another revision{at} stands where {expected} was expected")
            }
            Self::Overwritten(at, expected) => {
                write!(f, "another's write, revision {at}, stands where {expected} was expected")
            }
            Self::HeldBy(at, holder) => {
                write!(f, "revision {at} is another's: ")?;
                holder.iter().try_for_each(|holder| holder.fmt(f))
            }
            Self::RolledBack(None) => write!(f, "the store has rolled back"),
            Self::RolledBack(Some(how)) => write!(f, "the store has rolled back: {how}"),
        }
    }
}

/// How it shows that the store does not have what it had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rollback {
    /// The bucket was created anew; its epoch before and now.
    BucketAnew(String, String),
    /// The bucket stands at this revision, below this one that was seen.
    BucketBehind(Revision, Revision),
    /// A write was stored as this revision, not above this one that was seen.
    WriteBehind(Revision, Revision),
    /// The key stands at this revision, below this one that was seen.
    KeyBehind(Revision, Revision),
    /// This revision was another record before.
    NumberAgain(Revision),
}

impl fmt::Display for Rollback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BucketAnew(old, new) => {
                write!(f, "the bucket was created anew: epoch {old} became {new}")
            }
            Self::BucketBehind(at, seen) => {
                write!(f, "the bucket stands at revision {at}, but {seen} was seen before")
            }
            Self::WriteBehind(at, seen) => {
                write!(f, "it stored revision {at}, but {seen} was seen before")
            }
            Self::KeyBehind(at, seen) => {
                write!(f, "the key stands at revision {at}, below {seen} which this agent saw")
            }
            Self::NumberAgain(at) => write!(f, "revision {at} was another record before"),
        }
    }
}

/// Who or what holds the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nobody: the key was deleted.
    Deleted,
    /// Nobody: there was a key.
    Gone,
    /// Nobody: there was never a key.
    Never,
    /// Nobody, as far as is known: there is no key in a bucket that is young.
    Unwatched,
    /// Somebody, by a record that the store may have lost later ones of.
    InRollback(String),
    /// Somebody, by a record older than one that was seen.
    InOlder(String),
    /// Somebody.
    Somebody(String),
    /// Nobody: an operator or another program has blanked the value.
    Blanked,
    /// Nobody: this agent has released the lock.
    ReleasedHere,
    /// Nobody: the lock was released on this host.
    Released(String),
    /// An agent of this host and token that is known to be dead.
    Predecessor,
    /// This agent.
    Own,
    /// This agent, which has not waited for the holder before.
    OwnUnconfirmed,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deleted => write!(f, "nobody (the key was deleted)"),
            Self::Gone => write!(f, "nobody (the key is gone)"),
            Self::Never => write!(f, "nobody (the key never existed)"),
            Self::Unwatched => {
                write!(f, "nobody (the key does not exist, in a bucket not watched for long yet)")
            }
            Self::InRollback(name) => write!(f, "{name}, in a bucket that has rolled back"),
            Self::InOlder(name) => write!(f, "{name}, in a record older than one seen before"),
            Self::Somebody(name) => write!(f, "{name}"),
            Self::Blanked => write!(f, "nobody (blanked, but not by this version of putex)"),
            Self::ReleasedHere => write!(f, "nobody (released by this agent)"),
            Self::Released(host) => write!(f, "nobody (released on host {host})"),
            Self::Predecessor => write!(f, "this agent's previous instance"),
            Self::Own => write!(f, "this agent"),
            Self::OwnUnconfirmed => write!(f, "this agent, unconfirmed"),
        }
    }
}

/// Why a health check that has failed does not move the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excuse {
    /// The service has so long to become fit.
    Grace(Duration),
    /// The first start of the term runs.
    StartRuns,
    /// So many have failed in a row, and so many move the service.
    Failure(u32, u32),
}

impl fmt::Display for Excuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grace(grace) => write!(f, "start grace of {}", Ms(*grace)),
            Self::StartRuns => write!(f, "start still runs"),
            Self::Failure(count, most) => write!(f, "failure {count} of {most}"),
        }
    }
}
