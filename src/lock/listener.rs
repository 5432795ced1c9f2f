//! How a process waits in a directory of locks: for the lock of the folder, for the ends and the
//! changes of tickets, and for a signal where it takes signals.
//!
//! The system call that waits for the end of a ticket has no deadline: where there is one, a thread
//! calls it.

use std::array;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFd;

use crate::core::tickets::{Name, StoredTicket};
use crate::core::{Instant, Revision, StoreError, StoreErrorKind};
use crate::exit::Refusal;
use crate::lock::signals::Signals;
use crate::store::dir::tickets::{Changes, Entered, Listed, LocalTickets, wait_for_end};
use crate::sys::{self, Alarm, PollFlags, Waker};

/// How long a process without patience waits for others that take a ticket at the same moment.
const ENTERED_WITHIN: Duration = Duration::from_secs(2);

/// How often a process that waits for the lock of the folder looks for signals.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// How often a ticket is inspected whose change nobody tells of.
const INSPECT: Duration = Duration::from_millis(250);

/// What a process listens to that waits: the ends of tickets, and their changes.
pub(crate) struct Listener {
    tickets: Rc<LocalTickets>,
    /// `None` if nothing tells of changes.
    changes: Option<Changes>,
    /// Changes matter.
    hears_changes: bool,
    /// Woken by threads at the end of one of the tickets.
    waker: Arc<Waker>,
    /// The keys and revisions of the tickets for which there is a thread.
    heard: BTreeSet<(String, Revision)>,
}

/// Why a process does not wait.
pub(crate) enum NotWaited {
    /// This signal ends it.
    Interrupted(i32),
    /// The bucket was removed or replaced: tickets in it are worth nothing.
    Replaced,
    /// It cannot.
    Refused(Refusal),
}

/// Enters a bucket. Others are in it for some microseconds, or, stopped, for ever: they are waited
/// for until the limit, if there is one, or a signal. `name` is that of the request.
pub(crate) fn enter<'a>(
    tickets: &'a Rc<LocalTickets>,
    signals: Option<&Signals>,
    limit: Option<Instant>,
    name: &Name,
) -> Result<Entered<'a>, NotWaited> {
    let limit = limit.map(with_patience);
    loop {
        let look_at = signals.map(|_| sys::now().after(SIGNALS_EVERY));
        let until = look_at.into_iter().chain(limit).min();
        if let Some(entered) = tickets.enter(until).map_err(|error| not_waited(tickets, error))? {
            return Ok(entered);
        }
        if let Some(signal) = signals.and_then(Signals::next_deadly) {
            return Err(NotWaited::Interrupted(signal));
        }
        if limit.is_some_and(|limit| sys::now() >= limit) {
            let text = "another process does not go on with the directory: it is stopped, or the \
                        disk";
            let error = StoreErrorKind::Unreachable.error(format!("{name}: {text}"));
            return Err(NotWaited::Refused(error.into()));
        }
    }
}

/// Returns until when others are waited for that take a ticket at the same moment, by a process
/// that waits for the lock until this instant.
pub(crate) fn with_patience(limit: Instant) -> Instant {
    limit.max(sys::now().after(ENTERED_WITHIN))
}

/// Returns why a process does not go on after this error.
pub(crate) fn not_waited(tickets: &LocalTickets, error: StoreError) -> NotWaited {
    if tickets.are_lost() { NotWaited::Replaced } else { NotWaited::Refused(error.into()) }
}

impl Listener {
    /// Returns one that has heard of no end yet. `hears_changes`: whether it hears of all changes
    /// from now on. Who hears of ends alone is not woken by others.
    pub(crate) fn new(
        tickets: &Rc<LocalTickets>,
        hears_changes: bool,
    ) -> Result<Listener, NotWaited> {
        Ok(Listener {
            tickets: Rc::clone(tickets),
            changes: if hears_changes { tickets.changes() } else { None },
            hears_changes,
            waker: Arc::new(Waker::new().map_err(cannot_wait)?),
            heard: BTreeSet::new(),
        })
    }

    /// Listens to these of the tickets that were found, from now on. Returns when the first of them
    /// ends by itself.
    pub(crate) fn listen_to(
        &mut self,
        keys: &BTreeSet<String>,
        found: &Listed,
    ) -> Result<Option<Instant>, NotWaited> {
        let is_listened_to = |ticket: &&StoredTicket| keys.contains(&ticket.key);
        for ticket in found.standing.iter().filter(is_listened_to) {
            if let Some(changes) = &mut self.changes {
                changes.subscribe(&[&ticket.key]);
            }
            let is_heard =
                |it: &mut Listener| !it.heard.insert((ticket.key.clone(), ticket.revision));
            if found.ends.contains_key(&ticket.key) || is_heard(self) {
                continue;
            }
            let opened = self.tickets.open_to_wait(ticket);
            let file = opened.map_err(|error| not_waited(&self.tickets, error))?;
            let waker = Arc::clone(&self.waker);
            let run = move || {
                // Whoever is woken sees what came of it.
                let _ = file.map(wait_for_end);
                waker.wake();
            };
            sys::start_small_thread("putex-ticket", run).map_err(cannot_wait)?;
        }
        Ok(keys.iter().filter_map(|key| found.ends.get(key).copied()).min())
    }

    /// Waits for an end, a change, a signal, or this instant.
    pub(crate) fn wait(
        &mut self,
        signals: Option<&Signals>,
        until: Option<Instant>,
    ) -> Result<(), NotWaited> {
        loop {
            let woken = self.waker.as_fd();
            let is_over = match &mut self.changes {
                Some(changes) => {
                    let queue = changes.queue().unwrap_or(woken);
                    let [is_woken, has_changed] = wait_for([woken, queue], signals, until)?;
                    is_woken || !has_changed || changes.read()
                }
                None => {
                    // The tickets are inspected now and then.
                    let soon = self.hears_changes.then(|| sys::now().after(INSPECT));
                    wait_for([woken], signals, until.into_iter().chain(soon).min())?;
                    true
                }
            };
            if is_over {
                self.waker.clear();
                return Ok(());
            }
        }
    }
}

/// Waits until one of these is readable, or until this instant. A signal that is taken ends that.
fn wait_for<const N: usize>(
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
