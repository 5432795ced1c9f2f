//! How a process waits in a directory of locks: for the lock of the folder, for the ends and the
//! changes of tickets, and for a signal where it takes signals.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use crate::core::tickets::StoredTicket;
use crate::core::tickets::key::is_key_of_script;
use crate::core::{Instant, StoreError};
use crate::exit::Refusal;
use crate::lock::signals::Signals;
use crate::store::dir::changes::Changes;
use crate::store::dir::folder::Folder;
use crate::store::dir::tickets::{Entered, wait_for_end};
use crate::store::dir::watch::Watch;
use crate::store::{Hint, StoreResult};
use crate::sys;

/// How long a process without patience waits for others that take a ticket at the same moment.
const ENTERED_WITHIN: Duration = Duration::from_secs(10);

/// How often a process that waits for the lock of the folder looks for signals.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// How often a ticket is inspected whose change nobody tells of.
const INSPECT: Duration = Duration::from_millis(250);

/// A process that asks for a lock in an open bucket.
pub(super) struct Waiter<'a> {
    /// When the process does not wait any longer; `None` if it waits for ever.
    limit: Option<Instant>,
    /// The signals that end its wait, if it takes signals.
    signals: Option<&'a Signals>,
    folder: Rc<Folder>,
    /// Tells of the ends of tickets that processes have, where there is a deadline too, and of
    /// changes of tickets that end by themselves as soon as such a ticket is waited for.
    changes: Changes,
}

/// Why a process waits, and until when.
pub(super) struct Turn {
    /// How many tickets come first; 0 for a process that has none itself.
    pub(super) ahead: usize,
    /// The reason, for people.
    pub(super) why: String,
    /// The tickets that stand.
    pub(super) found: Vec<StoredTicket>,
    /// The keys of the tickets whose end, or change, the process waits for.
    pub(super) watched: BTreeSet<String>,
    /// When it looks again in any case.
    pub(super) look_at: Option<Instant>,
}

/// Why a process does not wait any longer, without the lock.
pub(super) enum NotGranted {
    /// The lock was not had in time, for this reason.
    NotHad(String),
    /// This signal ends the process.
    Interrupted(i32),
    /// The bucket was removed or replaced: tickets in it are worth nothing.
    Replaced,
    /// The process cannot wait.
    Refused(Refusal),
}

impl<'a> Waiter<'a> {
    /// Returns a process that waits until this limit.
    pub(super) fn new(
        limit: Option<Instant>,
        signals: Option<&'a Signals>,
        folder: Folder,
    ) -> Result<Waiter<'a>, Refusal> {
        let changes = Changes::new(None).map_err(Refusal::system("cannot wait: "))?;
        Ok(Waiter { limit, signals, folder: Rc::new(folder), changes })
    }

    /// Enters the bucket and does something there. Others are in it for some microseconds, or,
    /// stopped, for ever: they are waited for until the limit, if there is one, or a signal.
    pub(super) fn enter<T>(
        &self,
        act: impl FnOnce(&Entered<'_>) -> StoreResult<T>,
    ) -> Result<T, NotGranted> {
        let signals = self.signals;
        let limit = self.limit.map(|limit| limit.max(sys::now().after(ENTERED_WITHIN)));
        loop {
            let look_at = signals.map(|_| sys::now().after(SIGNALS_EVERY));
            let until = look_at.into_iter().chain(limit).min();
            let entered = self.folder.enter(until).map_err(|error| self.not_granted(error))?;
            if let Some(entered) = entered {
                return act(&entered).map_err(|error| self.not_granted(error));
            }
            if let Some(signal) = signals.and_then(Signals::next_deadly) {
                return Err(NotGranted::Interrupted(signal));
            }
            if limit.is_some_and(|limit| sys::now() >= limit) {
                return Err(NotGranted::Refused(self.folder.is_busy().into()));
            }
        }
    }

    /// Returns why the process does not go on after this error.
    fn not_granted(&self, error: StoreError) -> NotGranted {
        match self.folder.is_lost() {
            true => NotGranted::Replaced,
            false => NotGranted::Refused(error.into()),
        }
    }

    /// Waits until it is time to look again: one of the watched tickets has ended or changed, or
    /// the limit has passed, or a signal has come.
    pub(super) fn wait(&mut self, turn: &Turn) -> Result<(), NotGranted> {
        let is_watched = |ticket: &&StoredTicket| turn.watched.contains(&ticket.key);
        let watched: Vec<_> = turn.found.iter().filter(is_watched).collect();
        let ends_itself = |ticket: &&StoredTicket| is_key_of_script(&ticket.key);
        if watched.iter().any(ends_itself) && self.changes.watch.is_none() {
            // From here on no change is missed.
            self.changes.watch = Some(Watch::new(&self.folder).0);
            return Ok(());
        }
        let runs_out =
            |ticket: &&StoredTicket| Some(ticket.ticket.as_ref().ok()?.runs_out.as_ref()?.at);
        let runs_out_at = watched.iter().filter_map(runs_out).min();
        let until = [self.limit, turn.look_at, runs_out_at].into_iter().flatten().min();
        if let ([ticket], None, None) = (&watched[..], until, self.signals)
            && !ends_itself(ticket)
        {
            let file = self.open_to_wait(ticket)?;
            return file.map_or(Ok(()), wait_for_end).map_err(cannot_wait);
        }
        for ticket in watched {
            match &mut self.changes.watch {
                Some(watch) if ends_itself(&ticket) => watch.subscribe(&[&ticket.key]),
                Some(_) | None => {
                    let file = self.open_to_wait(ticket)?;
                    let added = self.changes.add(&ticket.key, ticket.revision, file);
                    added.map_err(cannot_wait)?;
                }
            }
        }
        // Where the system has no means left to tell of changes, the tickets are inspected now and
        // then.
        let soon = self.changes.watch.as_ref().is_some_and(|watch| watch.queue().is_none());
        let soon = soon.then(|| sys::now().after(INSPECT));
        let until = until.into_iter().chain(soon).min();
        let wake = self.signals.map(AsFd::as_fd);
        let hint = self.changes.wait(&self.folder, wake, until).map_err(cannot_wait)?;
        if let (Hint::Woken, Some(signals)) = (hint, self.signals)
            && let Some(signal) = signals.next_deadly()
        {
            return Err(NotGranted::Interrupted(signal));
        }
        Ok(())
    }

    /// Opens a ticket to wait for its end; `None` if it has ended, or was written anew since it was
    /// found: one that got a slot ends no wait for that slot.
    fn open_to_wait(&self, ticket: &StoredTicket) -> Result<Option<File>, NotGranted> {
        let opened = self.folder.open_to_wait(&ticket.key);
        let opened = opened.map_err(|error| self.not_granted(error))?;
        Ok(opened.filter(|(_, revision)| *revision == ticket.revision).map(|(file, _)| file))
    }
}

fn cannot_wait(error: io::Error) -> NotGranted {
    NotGranted::Refused(Refusal::system("cannot wait: ")(error))
}
