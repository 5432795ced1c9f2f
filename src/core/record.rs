//! What stands in the bucket under the key, and what it means.
//!
//! The value is the token, plain, and blank when released: what putex 0.2.0 and
//! the `nats` command read and write. Everything else is [`Lease`], in headers of
//! the same message. A record without them was written by somebody else.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::core::priority::Priority;

/// The store's number for one write. Later writes have larger ones; 0 means that
/// the key has no record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One instance of an agent: a random number chosen when the process started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incarnation(pub u128);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What the writer of a record was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// It took the lock from another and waits before it starts the service.
    Taking,
    /// It runs the service.
    Active,
    /// It stopped the service and gave the lock back. The value is blank.
    Released,
}

/// What putex writes beside the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who wrote it.
    pub incarnation: Incarnation,
    /// Which attempt of that incarnation this was: a repeated write keeps it.
    pub nonce: u64,
    /// Name of the writer's host.
    pub host: String,
    /// The writer's boot, as the kernel names it.
    pub boot: String,
    /// The writer's R.
    pub renewal: Duration,
    /// The writer's F.
    pub failures: u32,
    /// The writer's C.
    pub confirmations: u32,
    /// How long a challenger must wait after it has seen the record: F·R of the writer. What
    /// another version has published counts, if that is more.
    pub lock_time: Duration,
    /// How long a successor must wait between taking over and starting. C·R of
    /// the writer; while [`RecordState::Taking`], of its predecessor too if longer.
    pub grace: Duration,
    /// Revision of the acquiring write; `None` in that write itself.
    pub term: Option<Revision>,
    /// What the writer was doing.
    pub state: RecordState,
    /// The writer's priority; `None` if it wrote none.
    pub priority: Option<Priority>,
    /// The token of the agent that is to have the lock next; `None` for all.
    pub released_to: Option<String>,
}

/// A value with, when putex 0.3 or later wrote it, the [`Lease`] beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The holder's token; blank when nobody holds the lock.
    pub token: String,
    /// `None` when something else wrote the record: putex 0.2.0, an operator.
    pub lease: Option<Lease>,
}

impl Record {
    /// Returns whether it says that nobody holds the lock.
    pub fn is_blank(&self) -> bool {
        self.token.trim().is_empty()
    }
}

/// What a read found under the key.
#[derive(Clone, Debug, PartialEq, Eq)]
// A record is what stands there nearly always.
#[allow(clippy::large_enum_variant)]
pub enum KeyValue {
    /// No message at all.
    Absent,
    /// The mark that a delete or purge left behind.
    Marker,
    /// A record.
    Record(Record),
}

impl KeyValue {
    /// Returns what putex 0.3 or later wrote beside the token, if it did.
    pub fn lease(&self) -> Option<&Lease> {
        match self {
            KeyValue::Record(record) => record.lease.as_ref(),
            KeyValue::Absent | KeyValue::Marker => None,
        }
    }
}

/// What a read found, and the revision that it stands at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// Revision of the key's last message; 0 when absent.
    pub revision: Revision,
    /// What that message says.
    pub value: KeyValue,
}

/// Which bucket this is. Two buckets of one name, or one bucket before and after
/// its server forgot it, differ in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketId {
    /// Random id, written once into every bucket.
    pub epoch: String,
    /// When the store says the bucket was created; compared for equality only.
    pub created: String,
}
