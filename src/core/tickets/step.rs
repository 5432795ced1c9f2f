//! The steps of the owner of a ticket, their results, and its messages to the asker: the front of a
//! command, or a script.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::earlier_keys::EarlierKeys;
use super::ticket::{StoredTicket, Ticket};
use super::times::LIFETIME_DEFAULT;
use crate::core::event::{BucketInfo, StoreError, Written};
use crate::core::observed::Observed;
use crate::core::record::Revision;
use crate::core::time::{Instant, Ms, StoreTime};

/// A message to the asker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToFront {
    /// The lock is waited for; why, for people. Repeated when the reason changes.
    Waiting {
        /// Number of tickets that are granted before this one; 0 while the store is not reached, or
        /// the mark of the bucket is missing. The last message of all to a script whose ticket
        /// keeps its place.
        ahead: usize,
        /// The holder of the lock, or the reason for the wait.
        why: String,
    },
    /// The lock is held until this instant, V. Repeated after each renewal, later each time; the
    /// last message of all to a script.
    Granted {
        /// V: the command is dead by then.
        valid_until: Instant,
        /// The fencing token.
        term: u64,
        /// The random id of the bucket.
        epoch: String,
        /// The slot, from 0, of a lock with slots.
        slot: Option<u32>,
    },
    /// The lock is lost: the command is to be ended now. Nothing but `Ended` follows.
    Lost(String),
    /// The ticket has ended, or there is none: the renewer ends. Or the ticket may stand, and the
    /// asker waits no longer for its end.
    Ended(End),
}

/// How a ticket has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The ticket was released, after `Done` or a loss.
    Released,
    /// The lock was held, and lost before it was to be released, for this reason: the ticket did
    /// not stand any more.
    Lost(String),
    /// The lock was not granted in time; its holder.
    NotHad(String),
    /// The lock cannot be had, for this reason.
    Refused(StoreError),
    /// A script has this ticket for some of the names already, with other names or in another
    /// mode: it would wait for itself.
    Overlaps(String),
}

/// The next step. Its result is passed to [`TicketOwner::handle`](super::TicketOwner::handle).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Open the bucket, and read its mark and the notes: [`Input::Opened`].
    Open(Instant),
    /// Write this mark in the place of its revision: [`Input::Written`].
    WriteMark(Mark, Instant),
    /// Write the own ticket, of this number, in the place of this revision:
    /// [`Input::Written`]. The first write has no number.
    Write(Revision, Option<Revision>, Ticket, Instant),
    /// End the own ticket, which stands at this revision and has this lifetime:
    /// [`Input::Written`].
    End(Revision, Duration, Instant),
    /// Read the own ticket: [`Input::Own`].
    ReadOwn(Instant),
    /// List the tickets that may conflict and are not known to be later: [`Input::Listed`].
    List(EarlierKeys, Instant),
    /// Subscribe to the hints of these tickets: [`Input::Subscribed`].
    Watch(BTreeSet<String>),
    /// End the ticket of another, which stands at this revision: [`Input::Written`].
    Remove(StoredTicket, Instant),
    /// Write these notes in the place of this revision, for processes by the same clock:
    /// [`Input::Written`].
    WriteNotes(Revision, Observed, Instant),
    /// Wait until this instant, for a hint, or for the front: [`Input::Rested`],
    /// [`Input::Renewed`], [`Input::Ended`], [`Input::Gone`].
    Rest(Instant),
    /// End. The last step there is.
    Exit,
}

/// The mark of a bucket in which all earlier tickets have run out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The revision of the mark, 0 without one.
    pub revision: Revision,
    /// The random id of the bucket that the mark was written for: a mark that was under way while
    /// the bucket was made anew tells nothing of the new one.
    pub epoch: String,
    /// The longest lifetime of a ticket that was waited for; zero without a mark.
    pub lifetime: Duration,
}

impl Mark {
    /// Returns the mark that a bucket of this epoch lacks for tickets of this lifetime, if it lacks
    /// one. Nobody knows the lifetimes of the tickets of a lost bucket: they had the default one
    /// unless somebody has chosen another.
    pub fn missing(self, epoch: &str, lifetime: Duration) -> Option<Mark> {
        let is_of_bucket = self.epoch == epoch;
        let least = if is_of_bucket { lifetime } else { lifetime.max(LIFETIME_DEFAULT) };
        let mark = Mark { epoch: epoch.to_owned(), lifetime: self.lifetime.max(least), ..self };
        (!is_of_bucket || mark.lifetime > self.lifetime).then_some(mark)
    }

    /// Returns the reason, for people, for this wait before a missing mark is written.
    pub fn why_missing(wait: Duration) -> String {
        let wait = Ms(wait);
        format!(
            "this bucket is new to locks of this length (R*F, --for), and those of a lost bucket \
             may still be held: none is granted for {wait}; let one request wait as long (-w), or, \
             only if no bucket was lost, run putex init"
        )
    }
}

/// A bucket that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketsOpened {
    /// The bucket.
    pub info: BucketInfo,
    /// The mark of the bucket.
    pub mark: Mark,
    /// The notes of processes with the same clock on these names, and their revision, 0 without
    /// notes.
    pub notes: (Revision, Observed),
}

/// A listing of tickets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketsListed {
    /// The tickets that stand.
    pub standing: Vec<StoredTicket>,
    /// The keys of the tickets that this process has ended, as their markers say.
    pub ended: Vec<String>,
    /// The revision of the bucket up to which the listing is complete.
    pub last: Revision,
    /// The time of the store, at the request or before, if the store tells its time.
    pub at: Option<StoreTime>,
}

/// The result of a step, or an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The bucket was opened.
    Opened(Result<Box<TicketsOpened>, StoreError>),
    /// The end of a write.
    Written(Written),
    /// The own ticket was read: its revision, and the ticket if it has not ended.
    Own(Result<(Revision, Option<Ticket>), String>),
    /// The tickets were listed, or why not.
    Listed(Result<TicketsListed, String>),
    /// The hints of the tickets come from now on.
    Subscribed,
    /// A ticket that is watched was renewed; its new revision, if that is known.
    Renewed(Option<Revision>),
    /// A ticket that is watched has ended; the revision of its end, if that is known.
    Ended(Option<Revision>),
    /// The wait is over.
    Rested,
    /// The store is lost.
    Gone(String),
    /// The lock was granted some time ago, and the front has run no command: it is stopped.
    Unused,
    /// The lock is not needed any more: no command runs.
    Done,
}
