//! How a process waits in a directory of locks: for the lock of the folder, for the ends and the
//! changes of tickets, and for a signal where it takes signals.
//!
//! The system call that waits for the end of a ticket has no deadline: where there is one, a thread
//! calls it.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crate::core::tickets::{Name, StoredTicket};
use crate::core::{Instant, Revision, StoreError, StoreErrorKind};
use crate::exit::{Exit, Refusal};
use crate::lock::signals::Signals;
use crate::store::StoreResult;
use crate::store::dir::folder::Folder;
use crate::store::dir::tickets::{Entered, Listed, wait_for_end};
use crate::store::dir::watch::Watch;
use crate::sys::{self, Alarm, Waker};

/// How long a process without patience waits for others that take a ticket at the same moment.
const ENTERED_WITHIN: Duration = Duration::from_secs(10);

/// How often a process that waits for the lock of the folder looks for signals.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// How often a ticket is inspected whose change nobody tells of.
const INSPECT: Duration = Duration::from_millis(250);

/// A process that asks for a lock, or ends one.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    /// The name that the process asks for.
    pub(crate) name: &'a Name,
    /// When the process does not wait any longer; `None` if it waits for ever.
    pub(crate) limit: Option<Instant>,
    /// The signals that end its wait, if it takes signals.
    pub(crate) signals: Option<&'a Signals>,
}

/// A process in an open bucket.
pub(crate) struct Waiter<'a> {
    asker: Asker<'a>,
    folder: Rc<Folder>,
    /// Tells of changes of tickets that end by themselves. `None` until such a ticket is waited
    /// for.
    changes: Option<Watch>,
    /// Woken by threads at the end of a ticket, or when one cannot wait for that.
    waker: Arc<Waker>,
    /// How the wait of a thread has ended, which it sends before it wakes.
    ends: Receiver<io::Result<()>>,
    /// Cloned for each thread.
    end_sender: Sender<io::Result<()>>,
    /// The keys and revisions of the tickets for which there is a thread.
    heard: BTreeSet<(String, Revision)>,
}

/// The result of a look at the tickets.
pub(crate) enum Looked<T> {
    /// The process does not wait any longer.
    Over(T),
    Waits(Turn),
}

/// Why a process waits, and until when.
pub(crate) struct Turn {
    /// How many tickets come first; 0 for a process that has none itself.
    pub(crate) ahead: usize,
    /// The reason, for people.
    pub(crate) why: String,
    /// The tickets that were found.
    pub(crate) found: Listed,
    /// The keys of the tickets whose end, or change, the process waits for.
    pub(crate) watched: BTreeSet<String>,
    /// When it looks again in any case.
    pub(crate) look_at: Option<Instant>,
}

/// Why a process does not wait.
pub(crate) enum NotWaited {
    /// This signal ends it.
    Interrupted(i32),
    /// The bucket was removed or replaced: tickets in it are worth nothing.
    Replaced,
    /// The process cannot wait.
    Refused(Refusal),
}

/// Opens a bucket and does something there, and again as long as that is removed or replaced
/// meanwhile.
///
/// # Errors
///
/// What is wrong with the bucket, or the signal that has ended it.
pub(crate) fn in_bucket<T>(
    (base, bucket): (&Path, &str),
    asker: Asker<'_>,
    mut act: impl FnMut(&mut Waiter<'_>) -> Result<T, NotWaited>,
) -> Result<T, Refusal> {
    loop {
        let folder = Rc::new(Folder::open(base, bucket)?);
        let waker = Arc::new(Waker::new().map_err(Refusal::system("cannot wait: "))?);
        let (end_sender, ends) = mpsc::channel();
        let heard = BTreeSet::new();
        let mut waiter = Waiter { asker, folder, changes: None, waker, ends, end_sender, heard };
        match act(&mut waiter) {
            Ok(done) => return Ok(done),
            Err(NotWaited::Replaced) => {}
            Err(NotWaited::Refused(refusal)) => return Err(refusal),
            Err(NotWaited::Interrupted(signal)) => {
                return Err(Refusal::new(Exit::System, format!("ended by signal {signal}")));
            }
        }
    }
}

impl Waiter<'_> {
    /// Enters the bucket and does something there. Others are in it for some microseconds, or,
    /// stopped, for ever: they are waited for until the limit, if there is one, or a signal.
    pub(crate) fn enter<T>(
        &self,
        act: impl FnOnce(&Entered<'_>) -> StoreResult<T>,
    ) -> Result<T, NotWaited> {
        let Asker { name, limit, signals } = self.asker;
        let limit = limit.map(|limit| limit.max(sys::now().after(ENTERED_WITHIN)));
        loop {
            let look_at = signals.map(|_| sys::now().after(SIGNALS_EVERY));
            let until = look_at.into_iter().chain(limit).min();
            let entered = self.folder.enter(until).map_err(|error| self.not_waited(error))?;
            if let Some(entered) = entered {
                return act(&entered).map_err(|error| self.not_waited(error));
            }
            if let Some(signal) = signals.and_then(Signals::next_deadly) {
                return Err(NotWaited::Interrupted(signal));
            }
            if limit.is_some_and(|limit| sys::now() >= limit) {
                let text = "the lock of the directory was not had in time: too many processes \
                            ask for it, one that has it is stopped, or the disk";
                let error = StoreErrorKind::Unreachable.error(format!("{name}: {text}"));
                return Err(NotWaited::Refused(error.into()));
            }
        }
    }

    /// Returns why the process does not go on after this error.
    fn not_waited(&self, error: StoreError) -> NotWaited {
        match self.folder.is_lost() {
            true => NotWaited::Replaced,
            false => NotWaited::Refused(error.into()),
        }
    }

    /// Waits until it is time to look again: one of the watched tickets has ended or changed, or
    /// the limit has passed, or a signal has come.
    pub(crate) fn wait(&mut self, turn: &Turn) -> Result<(), NotWaited> {
        let Turn { found, watched, look_at, .. } = turn;
        let ends_at = watched.iter().filter_map(|key| found.ends.get(key).copied()).min();
        if ends_at.is_some() && self.changes.is_none() {
            // From here on no change is missed.
            self.changes = Some(Watch::new(&self.folder).0);
            return Ok(());
        }
        let until = [self.asker.limit, *look_at, ends_at].into_iter().flatten().min();
        let is_watched = |ticket: &&StoredTicket| watched.contains(&ticket.key);
        let watched: Vec<_> = found.standing.iter().filter(is_watched).collect();
        if let ([ticket], None, None) = (&watched[..], until, self.asker.signals) {
            let file = self.folder.open_to_wait(ticket).map_err(|error| self.not_waited(error))?;
            return file.map_or(Ok(()), wait_for_end).map_err(cannot_wait);
        }
        for ticket in watched {
            if found.ends.contains_key(&ticket.key) {
                if let Some(changes) = &mut self.changes {
                    changes.subscribe(&[&ticket.key]);
                }
            } else if self.heard.insert((ticket.key.clone(), ticket.revision)) {
                // A process has the ticket.
                let opened = self.folder.open_to_wait(ticket);
                let file = opened.map_err(|error| self.not_waited(error))?;
                self.start_to_wait(move || file.map_or(Ok(()), wait_for_end))?;
            }
        }
        self.wait_for_wake(until)
    }

    /// Starts a thread that waits, and then wakes this process.
    fn start_to_wait(
        &self,
        wait: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<(), NotWaited> {
        let (waker, end_sender) = (Arc::clone(&self.waker), self.end_sender.clone());
        let run = move || {
            // The receiver is gone when this process does not wait any more.
            let _ = end_sender.send(wait());
            waker.wake();
        };
        sys::start_small_thread("putex-ticket", run).map(drop).map_err(cannot_wait)
    }

    /// Waits for an end, a change, a signal, or this instant.
    fn wait_for_wake(&mut self, until: Option<Instant>) -> Result<(), NotWaited> {
        let Waiter { asker, folder, changes, waker, ends, .. } = self;
        let alarm = Alarm::new().map_err(cannot_wait)?;
        // Where the system has no means left to tell of changes, the tickets are inspected now and
        // then.
        let soon = changes.as_ref().is_some_and(|it| it.queue().is_none());
        let soon = soon.then(|| sys::now().after(INSPECT));
        let until = until.into_iter().chain(soon).min();
        loop {
            let changed = changes.as_ref().and_then(Watch::queue);
            let all = [Some(waker.as_fd()), asker.signals.map(|it| it.fd.as_fd()), changed];
            alarm.wait_to_read(all.into_iter().flatten(), until).map_err(cannot_wait)?;
            if let Some(signal) = asker.signals.and_then(Signals::next_deadly) {
                return Err(NotWaited::Interrupted(signal));
            }
            let is_over = sys::is_ready(&**waker) || until.is_some_and(|at| sys::now() >= at);
            if is_over || changes.as_mut().is_some_and(|it| it.has_changed(folder)) {
                waker.clear();
                return ends.try_iter().collect::<io::Result<()>>().map_err(cannot_wait);
            }
        }
    }
}

fn cannot_wait(error: io::Error) -> NotWaited {
    NotWaited::Refused(Refusal::system("cannot wait: ")(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lock was free, and its waiter and all behind that slept for ever.
    #[test]
    fn a_thread_that_cannot_wait_for_the_end_of_a_ticket_ends_the_wait() {
        let base = std::env::temp_dir().join(format!("putex-waiter-{}", std::process::id()));
        let name = Name::parse("web/x").expect("a name");
        let asker = Asker { name: &name, limit: None, signals: None };
        let waited = in_bucket((&base, "b"), asker, |waiter| {
            waiter.start_to_wait(|| Err(rustix::io::Errno::NOLCK.into()))?;
            waiter.wait_for_wake(Some(sys::now().after(sys::PATIENCE)))
        });
        std::fs::remove_dir_all(base).expect("a folder");
        assert_eq!(waited.map_err(|refusal| refusal.exit), Err(Exit::System));
    }
}
