//! How a process waits in the file of locks: for the door, for other tickets, for changes of the
//! file, and for a signal where it takes signals.
//!
//! The system call that waits for a locked byte has no deadline: where there is one, a thread
//! calls it.

use std::array;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFd;

use crate::core::tickets::Name;
use crate::core::{Instant, Revision, StoreError, StoreErrorKind};
use crate::exit::{Exit, Refusal};
use crate::lock::signals::Signals;
use crate::store::StoreResult;
use crate::store::lock_file::LockFile;
use crate::sys::{self, Alarm, PollFlags, Waker};

/// How long a process without patience waits for others that take a ticket at the same moment.
const ENTERED_WITHIN: Duration = Duration::from_secs(2);

/// How often a ticket is inspected whose end nobody tells of.
const INSPECT: Duration = Duration::from_millis(250);

/// Buffer for what the kernel tells of a file: many events.
const EVENT_BYTES: usize = 4096;

/// What a process listens to that waits: threads that wait for the ends of tickets, and changes of
/// the file.
pub(crate) struct Listener {
    file: Arc<LockFile>,
    /// Woken at the end of one of the tickets.
    waker: Arc<Waker>,
    /// The tickets for which there is a thread.
    heard: BTreeSet<Revision>,
    changes: Option<OwnedFd>,
    /// Changes matter.
    inspects: bool,
}

/// Why a process does not wait.
pub(crate) enum NotWaited {
    /// This signal ends it.
    Interrupted(i32),
    /// It cannot.
    Refused(Refusal),
}

impl From<StoreError> for NotWaited {
    fn from(error: StoreError) -> NotWaited {
        NotWaited::Refused(error.into())
    }
}

impl From<NotWaited> for Refusal {
    fn from(not_waited: NotWaited) -> Refusal {
        match not_waited {
            NotWaited::Interrupted(signal) => {
                Refusal::new(Exit::System, format!("ended by signal {signal}"))
            }
            NotWaited::Refused(refusal) => refusal,
        }
    }
}

/// Enters by the door of a file; returns whether the path still names it. Others stay in the door
/// for some microseconds, or, stopped, for ever: they are waited for until the limit, if there is
/// one, or a signal. The process ends after an error. `name` is that of the request.
pub(crate) fn enter(
    file: &Arc<LockFile>,
    signals: Option<&Signals>,
    limit: Option<Instant>,
    name: &Name,
) -> Result<bool, NotWaited> {
    if file.try_to_enter()? {
        return Ok(file.is_current()?);
    }
    if limit.is_none() && signals.is_none() {
        file.enter()?;
        return Ok(file.is_current()?);
    }
    let waker = Arc::new(Waker::new().map_err(cannot_wait)?);
    run_in_thread(file, &waker, LockFile::enter)?;
    let until = limit.map(|limit| limit.max(sys::now().after(ENTERED_WITHIN)));
    let [thread_is_done] = wait_for([waker.as_fd()], signals, until)?;
    // The thread has the door: who has it enters again. While it still waits for the door, this
    // thread must not enter, nor go on: that one would get the door later, and nobody would leave.
    if thread_is_done && file.try_to_enter()? {
        return Ok(file.is_current()?);
    }
    let text = "another process does not go on with the lock file: it is stopped, or the disk";
    Err(StoreErrorKind::Unreachable.error(format!("{name}: {text}")).into())
}

impl Listener {
    /// Returns one that listens to no end yet. `hears_changes` says whether a write into the file
    /// matters.
    pub(crate) fn new(file: &Arc<LockFile>, hears_changes: bool) -> Result<Listener, NotWaited> {
        Ok(Listener {
            file: Arc::clone(file),
            waker: Arc::new(Waker::new().map_err(cannot_wait)?),
            heard: BTreeSet::new(),
            changes: if hears_changes { file.changes() } else { None },
            inspects: hears_changes,
        })
    }

    /// Listens to the ends of these tickets from now on. Returns when the first of them ends by
    /// itself.
    pub(crate) fn watch_for(
        &mut self,
        numbers: &[Revision],
        timed: &BTreeMap<Revision, Instant>,
    ) -> Result<Option<Instant>, NotWaited> {
        for number in numbers.iter().copied() {
            if !timed.contains_key(&number) && self.heard.insert(number) {
                run_in_thread(&self.file, &self.waker, move |file| file.wait_for_end_of(number))?;
            }
        }
        Ok(numbers.iter().filter_map(|number| timed.get(number).copied()).min())
    }

    /// Waits for an end, a change, a signal, or this instant.
    pub(crate) fn wait(
        &self,
        signals: Option<&Signals>,
        until: Option<Instant>,
    ) -> Result<(), NotWaited> {
        let woken = self.waker.as_fd();
        match &self.changes {
            Some(changes) => {
                let [_, is_changed] = wait_for([woken, changes.as_fd()], signals, until)?;
                if is_changed {
                    // One read empties it, or the next wait ends at once.
                    let _ = rustix::io::read(changes, &mut [0; EVENT_BYTES]);
                }
            }
            // Nothing tells of changes: the file is inspected now and then.
            None if self.inspects => {
                let soon = sys::now().after(INSPECT);
                let until = until.map_or(soon, |until| until.min(soon));
                wait_for([woken], signals, Some(until))?;
            }
            None => drop(wait_for([woken], signals, until)?),
        }
        self.waker.clear();
        Ok(())
    }
}

/// Has a thread do something with the file, and wakes the caller then.
fn run_in_thread(
    file: &Arc<LockFile>,
    waker: &Arc<Waker>,
    work: impl FnOnce(&LockFile) -> StoreResult<()> + Send + 'static,
) -> Result<(), NotWaited> {
    let (file, waker) = (Arc::clone(file), Arc::clone(waker));
    let run = move || {
        // Whoever is woken sees what came of it.
        let _ = work(&file);
        drop(file);
        waker.wake();
    };
    sys::start_small_thread("putex-file", run).map(drop).map_err(cannot_wait)
}

/// Waits until one of these is readable, or until this instant. A signal that is taken ends that.
pub(super) fn wait_for<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    signals: Option<&Signals>,
    until: Option<Instant>,
) -> Result<[bool; N], NotWaited> {
    let alarm = Alarm::new().map_err(cannot_wait)?;
    loop {
        let all = fds.iter().copied().chain(signals.map(AsFd::as_fd));
        let mut polled: Vec<_> =
            all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        alarm.poll(&mut polled, until).map_err(cannot_wait)?;
        if let Some(signal) = signals.and_then(Signals::next_deadly) {
            return Err(NotWaited::Interrupted(signal));
        }
        let is_ready = array::from_fn(|at| !polled[at].revents().is_empty());
        if is_ready.contains(&true) || until.is_some_and(|until| sys::now() >= until) {
            return Ok(is_ready);
        }
    }
}

fn cannot_wait(error: io::Error) -> NotWaited {
    NotWaited::Refused(Refusal::system("cannot wait: ")(error))
}
