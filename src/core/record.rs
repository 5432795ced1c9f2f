//! The record in the bucket under the key, and its meaning.
//!
//! The value is the token, plain, and blank when released: putex 0.2.0 and the `nats` command read
//! and write it. Everything else is [`Lease`], in headers of the same message. A record without
//! these headers was written by somebody else.

use std::time::Duration;

use displaydoc::Display;
use serde::{Deserialize, Serialize};

use crate::core::priority::Priority;

/// The store's number for one write. Later writes have larger ones; 0 means that the key has no
/// record.
#[derive(
    Clone, Copy, Debug, Default, Display, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize,
)]
#[displaydoc("{0}")]
pub struct Revision(pub u64);

/// The random number of one instance of an agent, chosen when the process started.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, Serialize, Deserialize)]
#[displaydoc("{0:032x}")]
pub struct Incarnation(pub u128);

/// The state of the writer of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// The writer took the lock from another and waits before it starts the service.
    Taking,
    /// The writer runs the service.
    Active,
    /// The writer stopped the service and gave the lock back. The value is blank.
    Released,
}

/// The part of a record that putex writes beside the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The instance that wrote the record.
    pub incarnation: Incarnation,
    /// The number of the writer's attempt: a repeated write keeps it.
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
    /// How long a successor must wait between taking over and starting. C·R of the writer; while
    /// [`RecordState::Taking`], of its predecessor too if longer.
    pub grace: Duration,
    /// Revision of the acquiring write; `None` in that write itself.
    pub term: Option<Revision>,
    /// The state of the writer.
    pub state: RecordState,
    /// The writer's priority.
    pub priority: Priority,
    /// The token of the agent that is to have the lock next; `None` for all.
    pub released_to: Option<String>,
}

impl Lease {
    /// Returns how long a challenger must wait after it has seen the record: F·R of the writer.
    pub fn lock_time(&self) -> Duration {
        self.renewal * self.failures
    }
}

/// A value, with the [`Lease`] beside it when putex 0.3 or later wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The holder's token; blank when nobody holds the lock.
    pub token: String,
    /// `None` when another program wrote the record: putex 0.2.0, or a tool of an operator.
    pub lease: Option<Lease>,
}

impl Record {
    /// Returns whether the record says that nobody holds the lock.
    pub fn is_blank(&self) -> bool {
        self.token.trim().is_empty()
    }
}

/// The value of a key, as a read found it.
#[derive(Clone, Debug, PartialEq, Eq)]
// Nearly all values are records.
#[allow(clippy::large_enum_variant)]
pub enum KeyValue {
    /// No message.
    Absent,
    /// The mark that a delete or purge left behind.
    Marker,
    /// A record.
    Record(Record),
}

impl KeyValue {
    /// Returns the part that putex 0.3 or later wrote beside the token, if it did.
    pub fn lease(&self) -> Option<&Lease> {
        match self {
            KeyValue::Record(record) => record.lease.as_ref(),
            KeyValue::Absent | KeyValue::Marker => None,
        }
    }

    /// Returns the record of a holder, if one stands there.
    pub fn holder(&self) -> Option<&Record> {
        match self {
            KeyValue::Record(record) if !record.is_blank() => Some(record),
            KeyValue::Record(_) | KeyValue::Absent | KeyValue::Marker => None,
        }
    }
}

/// The state of a key, as a read found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// Revision of the key's last message; 0 when absent.
    pub revision: Revision,
    /// The value of that message.
    pub value: KeyValue,
}

/// The identity of a bucket. Two buckets of one name, or one bucket before and after its server
/// forgot it, differ in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketId {
    /// Random id, written once into every bucket.
    pub epoch: String,
    /// When the store says the bucket was created; compared for equality only.
    pub created: String,
}
