//! The stores of `putex`: one trait, [`Bucket`], over a NATS JetStream KV bucket and over
//! a directory of one host.
//!
//! | module | content |
//! |---|---|
//! | [`nats`] | a bucket on NATS servers |
//! | [`dir`] | a bucket in a directory, and the tickets of `putex lock` there |
//! | [`lock_key`] | the lock key of an agent: records, stored as entries |
//! | [`question`] | the questions of commands to agents, and the answers |
//! | `follow_up` | when an agent follows hints and messages |
//! | [`record`] | the headers of a record |
//! | [`tickets`] | the tickets of `putex lock` in NATS, stored as entries |
//! | [`leases`] | the leases of `putex lease`, stored as entries; the notes of this host on them |
//! | [`mark`] | the mark of a bucket that has been there for long enough |
//! | [`pause`] | the pause of all agents of a key |
//! | [`switchover`] | the request that a lock goes to another agent |
//! | `lifetime` | how long an entry lasts that ends by itself |
//! | [`reopening`] | the pauses between the attempts of an agent to open its store |
//! | [`name`] | the names that buckets and keys may have |
//! | `pace` | how often a loop makes requests |
//!
//! # Invariants
//!
//! 1. Entries are written by compare-and-set only.
//! 2. A write has three results. A store answers [`Written::Unknown`] whenever the write
//!    may have been stored, and it never sends a write after its answer.
//! 3. Every call returns at its deadline at the latest.

pub mod dir;
mod follow_up;
pub mod leases;
pub(crate) mod lifetime;
pub mod lock_key;
pub mod mark;
pub mod name;
pub mod nats;
pub(crate) mod pace;
pub mod pause;
pub mod question;
pub mod record;
pub mod reopening;
pub mod switchover;
pub mod tickets;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::core::time::StoreTime;
use crate::core::{AgentStatus, Instant, Revision, Written};

pub use crate::core::event::{BucketInfo, StoreError, StoreErrorKind};
pub use lock_key::LockKey;
pub use question::{AgentAnswer, AgentQuestion};

/// The result of a call of a store.
pub type StoreResult<T> = Result<T, StoreError>;

/// The content of an entry: headers, and a payload of any bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Names and values in their order. Blanks around a value may be lost, and so may a header
    /// with a blank value.
    pub headers: Vec<(String, String)>,
    /// The value of the key.
    pub payload: Vec<u8>,
}

/// The header of a marker, which the server stores when it removes the last entry of a key.
const MARKER_REASON: &str = "Nats-Marker-Reason";

/// The header with the number of the attempt that has written an entry: by it, the process that has
/// made the attempt knows the attempt again.
const ATTEMPT: &str = "Putex-Nonce";

/// The header of a tombstone, an entry that says that its key was deleted.
const OPERATION: &str = "KV-Operation";

impl Content {
    /// Returns the content with these headers.
    pub(crate) fn new<'a>(
        headers: impl IntoIterator<Item = (&'a str, String)>,
        payload: &[u8],
    ) -> Content {
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value));
        Content { headers: headers.collect(), payload: payload.to_vec() }
    }

    pub(crate) fn tombstone() -> Content {
        Content::new([(OPERATION, "DEL".to_owned())], b"")
    }

    /// Returns the value of the first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the number of the attempt that has written the entry, if it says one.
    pub(crate) fn attempt(&self) -> Option<u64> {
        self.header(ATTEMPT)?.parse().ok()
    }

    /// Returns whether the entry says that its key was deleted.
    pub fn is_tombstone(&self) -> bool {
        let ends = |(name, value): &(String, String)| {
            name == MARKER_REASON || name == OPERATION && (value == "DEL" || value == "PURGE")
        };
        self.headers.iter().any(ends)
    }

    /// Checks that every header can be written, and that none belongs to the protocol: a
    /// second header of compare-and-set could make the write unconditional.
    fn check(&self) -> Result<(), String> {
        for (name, value) in &self.headers {
            let visible = |byte: u8| byte.is_ascii_graphic() && byte != b':';
            if name.is_empty() || !name.bytes().all(visible) || is_protocol_header(name) {
                return Err(format!("header {name:?}: not a name that may be written"));
            }
            if value.chars().any(char::is_control) {
                return Err(format!("header {name}: its value has a control character"));
            }
        }
        Ok(())
    }
}

/// Returns whether a header belongs to the NATS protocol, in any case of its letters.
fn is_protocol_header(name: &str) -> bool {
    name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("nats-"))
}

/// The last entry of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The revision of the write that stored it, never 0.
    pub revision: Revision,
    /// The stored content.
    pub content: Content,
    /// How long ago it was written, by the clock of the store; `None` where the store does not
    /// tell, and if it was not listed.
    pub age: Option<Duration>,
}

/// The condition of a write: the revision of a key, 0 if the key must have no entry.
///
/// A condition on another key does not check the written key: the write replaces the entry
/// of the written key whatever its revision is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected<'a> {
    /// The revision of the written key.
    Key(Revision),
    /// The revision of another key.
    OtherKey(&'a str, Revision),
}

impl Expected<'_> {
    /// Returns the expected revision.
    pub fn revision(&self) -> Revision {
        let (Expected::Key(revision) | Expected::OtherKey(_, revision)) = self;
        *revision
    }
}

/// Which keys are listed.
#[derive(Clone, Copy)]
pub enum Selection<'a> {
    /// A single key.
    Key(&'a str),
    /// Keys below a prefix.
    Below {
        /// The keys `prefix.…`; all keys of the bucket if it is blank.
        prefix: &'a str,
        /// A condition: only the keys for which it is true are listed.
        wanted: &'a dyn Fn(&str) -> bool,
    },
}

impl<'a> Selection<'a> {
    /// Returns all keys below this prefix.
    pub fn below(prefix: &'a str) -> Selection<'a> {
        Selection::Below { prefix, wanted: &|_| true }
    }

    /// Returns whether this key is listed.
    fn selects(&self, key: &str) -> bool {
        match self {
            Selection::Key(selected) => key == *selected,
            Selection::Below { prefix, wanted } => {
                let rest = key.strip_prefix(prefix);
                let is_below = rest.is_some_and(|rest| rest.len() > 1 && rest.starts_with('.'));
                (prefix.is_empty() || is_below) && wanted(key)
            }
        }
    }
}

/// The selected keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The entries, one for each key, tombstones included, in the order of the keys.
    pub entries: Vec<Entry>,
    /// The time of the store when it was asked, if the store tells its time.
    pub at: Option<StoreTime>,
    /// The listing is complete up to this revision of the bucket.
    pub last: Revision,
}

/// The end of a [`Bucket::wait`].
#[derive(Clone, Debug, PartialEq)]
pub enum Hint {
    /// An entry seems to have changed.
    Changed {
        /// The key.
        key: String,
        /// The new revision, when the hint has one.
        revision: Option<Revision>,
        /// Whether the entry is a marker of an end, or was removed.
        is_end: bool,
    },
    /// The status of this agent is requested, see [`Bucket::send_status`].
    StatusRequested {
        /// Whether the agent is to read the requests of operators.
        reads_requests: bool,
    },
    /// An agent has answered [`Bucket::ask_agents`].
    Answered(Box<AgentAnswer>),
    /// This user may not ask agents; the message of the server.
    NotAsked(String),
    /// The wake descriptor is readable.
    Woken,
    /// The deadline passed.
    Elapsed,
    /// The store is lost and must be opened again, with the reason.
    Gone(String),
}

/// How long the last entry of a key stays at least: as short as a server takes it, since a listing
/// reads it. A write that is under way so long and names a revision is refused all the same.
pub const LASTS_MIN: Duration = Duration::from_secs(1);

/// An open bucket, and the entries of the keys that were read.
pub type OpenedBucket = (BucketInfo, Vec<Option<Entry>>);

/// Opens a bucket, which is made if it does not exist; see [`Bucket::open`].
///
/// # Errors
///
/// See [`StoreError`]; the store is closed then.
pub fn open_or_make(
    bucket: &mut dyn Bucket,
    how: Opening<'_>,
    deadline: Instant,
) -> StoreResult<OpenedBucket> {
    let opened = bucket.open(how, deadline)?;
    opened.ok_or_else(|| StoreErrorKind::Unreachable.error("the bucket does not exist"))
}

/// Opens a bucket if it exists, to be read only; see [`Bucket::open`].
///
/// # Errors
///
/// See [`StoreError`]; the store is closed then.
pub fn open_existing(
    bucket: &mut dyn Bucket,
    deadline: Instant,
) -> StoreResult<Option<BucketInfo>> {
    let how = Opening { makes_bucket: false, ..Opening::make(&[]) };
    let opened = bucket.open(how, deadline)?;
    Ok(opened.map(|(info, _)| info))
}

/// How a bucket is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening<'a> {
    /// Whether the bucket is made if it does not exist. If not, nothing is made or written; the
    /// random id of the bucket is blank if it has none yet.
    pub makes_bucket: bool,
    /// The keys that are subscribed to, before a key is read: no change after the read is missed.
    pub subscribed: &'a [&'a str],
    /// The keys that are read.
    pub read: &'a [&'a str],
}

impl<'a> Opening<'a> {
    /// Returns the opening that makes the bucket if it does not exist, and reads these keys.
    pub fn make(read: &'a [&'a str]) -> Opening<'a> {
        Opening { makes_bucket: true, subscribed: &[], read }
    }
}

/// A bucket of keys. Each write gives its entry a higher revision than all before. Bucket and keys
/// have names that [`name`] allows: the command line sees to that.
pub trait Bucket: Send {
    /// Connects where needed, checks the bucket, subscribes to keys, and reads some at once as
    /// [`Bucket::get`] does: their entries are in the order of the keys. `None` if the bucket does
    /// not exist, and is not to be made. Subscriptions of an earlier connection are gone.
    ///
    /// # Errors
    ///
    /// See [`StoreError`]; the store is closed then.
    fn open(&mut self, how: Opening<'_>, deadline: Instant) -> StoreResult<Option<OpenedBucket>>;

    /// Returns the entry of a key as the leader of the bucket has it, `None` when the key has
    /// none. Until a leader learns of its replacement, its entry may be older than the last
    /// write.
    ///
    /// # Errors
    ///
    /// When the entry was not read by the deadline.
    fn get(&mut self, key: &str, deadline: Instant) -> StoreResult<Option<Entry>>;

    /// Returns the entries of the selected keys, confirmed by the leader, in the bucket that was
    /// opened.
    ///
    /// # Errors
    ///
    /// When the listing was not complete by the deadline, or the bucket was lost and made anew
    /// since it was opened.
    fn list(&mut self, selection: Selection<'_>, deadline: Instant) -> StoreResult<Listing>;

    /// Stores the content of a key if the condition holds. The store may remove the entry after the
    /// time that it `lasts`, if one is given. [`Written::Moved`] has the present revision of the
    /// key of the condition, if the store knows it.
    fn write(
        &mut self,
        key: &str,
        expected: Expected<'_>,
        content: &Content,
        lasts: Option<Duration>,
        deadline: Instant,
    ) -> Written;

    /// Subscribes to the hints of keys until the store is opened again.
    ///
    /// # Errors
    ///
    /// When the store is not open.
    fn subscribe(&mut self, keys: &[&str]) -> StoreResult<()>;

    /// Asks agents about their status. Best effort. In NATS their answers are hints; in a directory
    /// they are files of the agents.
    fn ask_agents(&mut self, _question: &AgentQuestion) {}

    /// Sends the status of this agent to those that requested it before [`Hint::StatusRequested`].
    /// Best effort. In a directory an agent has a file with its status.
    fn send_status(&mut self, _status: &AgentStatus) {}

    /// Waits for a hint, for `wake` to become readable, or for `deadline`.
    /// `None` waits for ever.
    fn wait(&mut self, wake: BorrowedFd<'_>, deadline: Option<Instant>) -> Hint;
}
