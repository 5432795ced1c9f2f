//! Events of an agent, in one of its threads.

use std::time::Duration;

use putex::core::record::Revision;
use putex::core::seat::Seat;

use super::wire::{Reply, StoreRequest};

/// An event of an agent, in one of its threads.
#[derive(Debug)]
pub enum AgentEvent {
    /// The process has begun.
    Begin,
    /// The agent tries to lock `agent.lock` again.
    TryLock,
    /// The pump takes the next event from its inbox.
    Inbox,
    PumpDue,
    /// The guard client takes the next order, or reads what its guard has written.
    Client,
    Heard(usize),
    /// The health check begins, ends, has a deadline.
    CheckBegins,
    CheckEnded(usize),
    KillDue,
    /// The store thread is asked, answered, left without an answer.
    Request(Box<StoreRequest>),
    Reply(u64, Box<Reply>),
    AskOver(u64),
    OpenAgain,
    Hint(u64, Seat, u64),
    LinkLost(u64),
    /// Another requests the lock.
    LockRequested(LockRequest),
}

/// An agent of a higher priority wants to have a lock.
#[derive(Clone, Copy, Debug)]
pub struct LockRequest {
    pub seat: Seat,
    pub term: Revision,
    /// The site of that agent.
    pub to: usize,
    pub lasts: Duration,
}

/// The threads that can be late each on its own.
#[derive(Clone, Copy, Debug)]
pub enum Thread {
    Pump,
    Client,
    Check,
    Store,
}

impl Thread {
    /// All of them, and whatever else there is on a host.
    pub const COUNT: usize = 5;
}

impl AgentEvent {
    pub fn thread(&self) -> Thread {
        match self {
            AgentEvent::Begin | AgentEvent::TryLock | AgentEvent::Inbox | AgentEvent::PumpDue => {
                Thread::Pump
            }
            AgentEvent::Client | AgentEvent::Heard(_) => Thread::Client,
            AgentEvent::CheckBegins | AgentEvent::CheckEnded(_) | AgentEvent::KillDue => {
                Thread::Check
            }
            AgentEvent::Request(_)
            | AgentEvent::Reply(..)
            | AgentEvent::AskOver(_)
            | AgentEvent::OpenAgain
            | AgentEvent::Hint(..)
            | AgentEvent::LinkLost(_)
            | AgentEvent::LockRequested(_) => Thread::Store,
        }
    }

    /// A deadline that has passed is looked at after the events that are there.
    pub fn is_due(&self) -> bool {
        matches!(self, AgentEvent::PumpDue)
    }

    pub fn number(&self) -> u64 {
        match self {
            AgentEvent::Begin => 0,
            AgentEvent::TryLock => 1,
            AgentEvent::Inbox => 2,
            AgentEvent::PumpDue => 3,
            AgentEvent::Client => 4,
            AgentEvent::Heard(_) => 5,
            AgentEvent::CheckBegins => 7,
            AgentEvent::CheckEnded(_) => 8,
            AgentEvent::KillDue => 9,
            AgentEvent::Request(_) => 10,
            AgentEvent::Reply(..) => 11,
            AgentEvent::AskOver(_) => 12,
            AgentEvent::OpenAgain => 13,
            AgentEvent::Hint(..) => 14,
            AgentEvent::LinkLost(_) => 15,
            AgentEvent::LockRequested(_) => 16,
        }
    }
}
