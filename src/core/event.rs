//! The events that the pump takes in, and the effects that it asks for.
//!
//! At most one request to the store and one instance of each command are under
//! way at a time, so an answer needs no number to find its question.

use std::time::Duration;

use displaydoc::Display;
use serde::{Deserialize, Serialize};

use crate::core::command::{Outcome, Run};
use crate::core::protocol::{GuardReport, ToGuard};
use crate::core::record::{BucketId, KeyState, Record, Revision};
use crate::core::report::Report;
use crate::core::seat::Seat;
use crate::core::time::Instant;

/// An event for the pump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A deadline may have passed.
    Tick,
    /// The bucket is open, at first or again.
    Opened(Opened),
    /// The store is out of reach. An outstanding request was answered before.
    Closed(String),
    /// The store will not serve this agent as it is set up.
    Rejected(StoreError),
    /// Answer to [`Effect::Read`].
    Read(Result<KeyState, String>),
    /// Answer to [`Effect::Write`].
    Written(Written),
    /// The key of a seat seems to have changed, to this revision if the hint names one.
    Hint(Seat, Option<Revision>),
    /// An operator, or an agent of a higher priority, wants another agent to have the lock.
    SwitchoverRequested(SwitchoverRequest),
    /// The entry of the pause of the agents of this key was read.
    PauseRead(PauseEntry),
    /// Somebody wants to know the status of this agent. The thread that runs the pump answers, by
    /// [`Pump::status`](crate::core::Pump::status).
    StatusRequested,
    /// The health check ended.
    CheckEnded(Outcome),
    /// An event of the guard that [`Effect::ConnectGuard`] with this number asked for.
    Guard(u64, GuardEvent),
    /// The agent was told to end, by the signal of this name.
    Shutdown(&'static str),
}

impl Event {
    /// Returns the state of the key of a seat, if the event tells it. `seat` is that of the last
    /// request: the answer to a read shows its key.
    pub fn key_state(&self, seat: Seat) -> Option<&KeyState> {
        if let Event::Opened(opened) = self {
            return opened.key_states.get(seat.index());
        }
        if let Event::Read(answer) = self { answer.as_ref().ok() } else { None }
    }
}

/// An event of a guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardEvent {
    /// The guard has answered, or something has changed.
    Report(GuardReport),
    /// The guard is gone, or could not be started; why.
    Lost(String),
}

/// An opened bucket, as it was at one moment during the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketInfo {
    /// The identity of the bucket.
    pub id: BucketId,
    /// Highest revision in the whole bucket.
    pub last: Revision,
    /// How long the bucket is known to have existed, by a clock of this host.
    /// `None` when the store cannot tell.
    pub age: Option<Duration>,
    /// Whether an earlier bucket of this name may have been lost while locks or leases in it were
    /// held. A directory ends with its host.
    pub may_be_lost: bool,
    /// The number of servers that keep a copy of the bucket.
    pub replicas: u32,
    /// Remarks for the operator: which server answered, whether the bucket was created just now,
    /// the hazards of its configuration.
    pub remarks: Vec<String>,
    /// Whether the bucket removes entries that have ended; an error says why they stay for ever.
    pub retires: Result<(), String>,
}

/// An opened bucket with the keys of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The bucket.
    pub bucket: BucketInfo,
    /// The state of the key of each seat.
    pub key_states: Vec<KeyState>,
    /// The state of the key of the pause.
    pub pause: PauseEntry,
}

/// The kinds of failures of a store. If several servers fail, the greatest kind counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StoreErrorKind {
    /// The store was not reached or did not answer: another attempt may help.
    Unreachable,
    /// This host lacks a resource, such as descriptors or memory.
    System,
    /// The bucket, or its configuration, is not safe for a lock; no server proved its identity,
    /// or a local file that a safe connection needs is missing or unusable. Another attempt does
    /// not change that.
    Unsafe,
    /// Every server refused the credentials, or this user lacks a permission. Another attempt
    /// does not change that.
    Credentials,
    /// A server answered, but cannot be used now. An error of all servers of a client has the kind
    /// [`StoreErrorKind::Unreachable`] instead.
    Unfit,
}

impl StoreErrorKind {
    /// Returns an error of this kind.
    #[must_use]
    pub fn error(self, text: impl Into<String>) -> StoreError {
        StoreError { kind: self, text: text.into() }
    }

    /// Returns whether a command ends by such an error at once, without another attempt.
    pub fn is_final(self) -> bool {
        match self {
            StoreErrorKind::System | StoreErrorKind::Unsafe | StoreErrorKind::Credentials => true,
            StoreErrorKind::Unreachable | StoreErrorKind::Unfit => false,
        }
    }
}

/// Why a store did not open or did not answer.
#[derive(Clone, Debug, Display, PartialEq, Eq, Serialize, Deserialize)]
#[displaydoc("{text}")]
pub struct StoreError {
    /// The kind, which tells whether another attempt may help.
    pub kind: StoreErrorKind,
    /// The reason, for the operator.
    pub text: String,
}

/// The outcome of a compare-and-set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Stored, as this revision.
    Stored(Revision),
    /// Not stored: the key stands at another revision. The store may name it.
    Moved(Option<Revision>),
    /// Not stored, for a reason other than the revision: a full disk, a limit; of the kind
    /// [`StoreErrorKind::Credentials`] if this user lacks the right.
    Denied(StoreError),
    /// Perhaps stored, perhaps not, perhaps later.
    Unknown(String),
}

/// A request to the holder of a lock: to give it to another agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchoverRequest {
    /// The seat.
    pub seat: Seat,
    /// The term of the lock: the request is for no later one.
    pub term: Revision,
    /// Token of the agent that is to have the lock.
    pub to: String,
    /// When the request runs out: nobody begins to carry it out from then on.
    pub until: Instant,
}

/// The request that a lock goes to another agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switchover {
    /// The seat.
    pub seat: Seat,
    /// The term of the lock that is to go.
    pub term: Revision,
    /// Token of the holder, for people.
    pub from: String,
    /// Token of the agent that is to have the lock.
    pub to: String,
    /// The time within which the switchover may be begun.
    pub lasts: Duration,
    /// The requester of the switchover, for people.
    pub by: String,
    /// A random number, by which a command that has written it knows it.
    pub number: u64,
}

/// The state of the key of the pause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PauseEntry {
    /// The serial number of the pause, or of its end: each is higher than all before. 0 if there is
    /// no entry.
    pub serial: u64,
    /// The pause; `None` if it has ended.
    pub pause: Option<Pause>,
}

/// A pause of all agents of a key: no agent starts, stops or takes over the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// When the pause ends by itself.
    pub until: Instant,
    /// The requester, for people.
    pub by: String,
    /// Why the pause was requested, for people.
    pub reason: String,
}

/// An effect that the pump asks for. Effects are performed in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read the key of a seat and answer with [`Event::Read`] by the deadline.
    Read {
        /// The seat.
        seat: Seat,
        /// When to answer that nothing was read.
        deadline: Instant,
    },
    /// Store the record of a seat if its key stands at `expected`; answer with
    /// [`Event::Written`] by the deadline.
    Write {
        /// The seat.
        seat: Seat,
        /// The revision that the key must stand at; 0 for none.
        expected: Revision,
        /// The record to store.
        record: Record,
        /// When to answer that the outcome is unknown.
        deadline: Instant,
    },
    /// Read the pause, and answer with [`Event::PauseRead`] once it is read: start waits for the
    /// answer. Best effort.
    ReadPause,
    /// Request the lock of a seat for this agent from its holder. Best effort.
    RequestSwitchover(Switchover),
    /// Connect to the guard that lives on this host, or start one, and send it these messages
    /// first. Its events carry this number. The guard of the previous number is forgotten.
    ConnectGuard(u64, Vec<ToGuard>),
    /// Send the guard a message.
    TellGuard(ToGuard),
    /// Kill the guard, which does not answer. No event of this guard follows.
    KillGuard,
    /// Kill all processes in the control group of start: there is no guard that could.
    KillCgroup,
    /// Run the health check; answer with [`Event::CheckEnded`].
    RunCheck(Run),
    /// Move the deadline of the health check that runs.
    ExtendCheck(Instant),
    /// Kill the health check with its process group. It still ends with
    /// [`Event::CheckEnded`].
    KillCheck,
    /// Tell the operator.
    Report(Report),
    /// End the agent. The last effect there is.
    Exit(Ending),
}

/// How the agent ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The agent was told to end, and the service is down.
    Clean,
    /// The agent was told to end, but the service could not be stopped.
    NotStopped,
    /// The store will not serve the agent.
    Rejected(StoreError),
}
