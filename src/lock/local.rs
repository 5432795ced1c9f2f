//! The lock of one host: one process, which waits for the lock, runs the command and waits for
//! its end. The command inherits the open file whose lock is the ticket.
//!
//! A signal ends a process that waits, and its ticket; nothing has to be done but to write the
//! report: with `--report`, the signals are taken.

use std::env;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::account::{Account, Ending, Outcome};
use super::command::Children;
use super::front::{Front, Grant};
use super::held::{self, HELD};
use super::hold::Hold;
use super::listener::{self, Listener, NotWaited};
use super::signals::Signals;
use super::{Request, Wait};
use crate::core::tickets::decision::describe;
use crate::core::tickets::{Decision, Mode, Ticket};
use crate::core::{Incarnation, Instant, Revision, StoreError};
use crate::exit::Refusal;
use crate::store::lock_file::{Added, LockFile};
use crate::sys::{self, raw};

/// The process that was started by the user.
struct Local<'a> {
    request: &'a Request,
    /// The directory, and the bucket in it.
    store: (&'a Path, &'a str),
    /// What is said of the lock.
    account: &'a mut Account,
    /// When the lock is not waited for any longer.
    limit: Option<Instant>,
    /// The signals. Without a report they are taken after the wait.
    signals: Option<Signals>,
}

/// A ticket that was granted.
struct Granted {
    /// Keeps the ticket, also with `--close`.
    _file: Arc<LockFile>,
    /// What the command inherits, which has the ticket too.
    inherited: Option<File>,
    grant: Grant,
}

/// Why the wait for a ticket has not ended with it.
enum NotGranted {
    /// The lock was not had in time.
    Over(Ending),
    /// A signal has ended the wait.
    Interrupted(i32),
    /// The file was removed or replaced: the ticket in it is worth nothing.
    Replaced,
    /// The lock cannot be had.
    Refused(Refusal),
}

impl From<NotWaited> for NotGranted {
    fn from(not_waited: NotWaited) -> NotGranted {
        match not_waited {
            NotWaited::Interrupted(signal) => NotGranted::Interrupted(signal),
            NotWaited::Refused(refusal) => NotGranted::Refused(refusal),
        }
    }
}

impl From<StoreError> for NotGranted {
    fn from(error: StoreError) -> NotGranted {
        NotGranted::Refused(error.into())
    }
}

/// See [`super::run_local`].
pub(super) fn run(
    request: &Request,
    store: (&Path, &str),
    account: &mut Account,
) -> Result<Ending, Refusal> {
    held::check(&request.name, env::var_os(HELD).as_deref())?;
    let no_signals = Refusal::system("cannot take signals: ");
    // While it waits, a signal ends or stops this process by itself, and its ticket with it: by
    // default, or as the first process of a container by the handler that `main` has set.
    raw::unblock_signals().map_err(&no_signals)?;
    // With a report there is something to write before.
    let signals = request.report.as_ref().map(|_| Signals::open()).transpose();
    let signals = signals.map_err(&no_signals)?;
    let limit = match request.wait {
        Wait::Forever => None,
        Wait::For(time) => Some(account.began.after(time)),
    };
    let mut local = Local { request, store, account, limit, signals };
    loop {
        match local.get() {
            Ok(granted) => return local.run(granted),
            Err(NotGranted::Over(ending)) => return Ok(ending),
            Err(NotGranted::Interrupted(signal)) => return Ok(local.account.interrupted(signal)),
            Err(NotGranted::Refused(refusal)) => return Err(refusal),
            // What it waits for in the new file is said again.
            Err(NotGranted::Replaced) => local.account.last_shown.clear(),
        }
    }
}

impl Local<'_> {
    /// Adds a ticket and waits until it is granted.
    fn get(&mut self) -> Result<Granted, NotGranted> {
        let (base, bucket) = self.store;
        let file = Arc::new(LockFile::open(base, bucket)?);
        let ticket = Ticket {
            name: self.request.name.clone(),
            mode: self.request.mode,
            slot: None,
            lifetime: Duration::ZERO,
            token: self.request.token.clone(),
            incarnation: Incarnation(0),
            attempt: 0,
            is_granted: false,
        };
        let added = match self.get_softly(&file, &ticket)? {
            Some(added) => added,
            None => {
                self.enter(&file)?;
                file.add(&ticket, self.request.wait == Wait::For(Duration::ZERO))?
            }
        };
        let waits = matches!(added.decision, Decision::Wait { .. });
        let added = match waits {
            true => self.wait_for_turn(&file, &ticket, added)?,
            false => added,
        };
        if waits && !file.is_current()? {
            return Err(NotGranted::Replaced);
        }
        let Added { number, slot, epoch, .. } = added;
        let term = number.unwrap_or_default();
        let inherited = match self.request.closes {
            true => None,
            false => Some(file.reader_of(Revision(term))?.ok_or(NotGranted::Replaced)?),
        };
        Ok(Granted { _file: file, inherited, grant: Grant { term, slot, epoch } })
    }

    /// Waits, without a ticket, until the name is free, and was for long enough. `None` if the
    /// request queues as any other.
    fn get_softly(
        &mut self,
        file: &Arc<LockFile>,
        ticket: &Ticket,
    ) -> Result<Option<Added>, NotGranted> {
        let Some(soft) = self.request.soft else { return Ok(None) };
        let hard_at = soft.hard_after.map(|after| self.account.began.after(after));
        let mut listener = Listener::new(file, true)?;
        let mut quiet_since = None;
        loop {
            let now = sys::now();
            if hard_at.is_some_and(|at| now >= at) {
                return Ok(None);
            }
            self.enter(file)?;
            let seen = file.inspect(ticket)?;
            let (why, wake_at) = match &seen.decision {
                Decision::Wait { blockers, .. } => {
                    quiet_since = None;
                    let latest: Vec<_> = blockers.last().map(|it| it.number).into_iter().collect();
                    (describe(blockers), listener.watch_for(&latest, &seen.timed)?)
                }
                Decision::Granted | Decision::Slot(_) => {
                    let quiet_at = quiet_since.get_or_insert(now).after(soft.quiet_for);
                    if now >= quiet_at {
                        self.enter(file)?;
                        let added = file.add(ticket, true)?;
                        if added.number.is_some() {
                            return Ok(Some(added));
                        }
                        // Somebody was faster.
                        continue;
                    }
                    ("free, but not for long enough yet".to_owned(), Some(quiet_at))
                }
            };
            if self.limit.is_some_and(|limit| now >= limit) {
                return Err(self.not_had(&why));
            }
            self.account.waits(0, &why);
            listener.wait(
                self.signals.as_ref(),
                [self.limit, hard_at, wake_at].into_iter().flatten().min(),
            )?;
        }
    }

    /// Enters by the door of the file that the path names. Others stay in it for some microseconds,
    /// or, stopped, for ever.
    fn enter(&self, file: &Arc<LockFile>) -> Result<(), NotGranted> {
        match listener::enter(file, self.signals.as_ref(), self.limit, &self.account.name)? {
            true => Ok(()),
            false => Err(NotGranted::Replaced),
        }
    }

    /// Waits until a ticket is granted, or cannot be.
    fn wait_for_turn(
        &mut self,
        file: &Arc<LockFile>,
        ticket: &Ticket,
        mut added: Added,
    ) -> Result<Added, NotGranted> {
        let mut listener: Option<Listener> = None;
        while let Decision::Wait { blockers, watched } = &added.decision {
            let why = describe(blockers);
            let is_over = self.limit.is_some_and(|limit| sys::now() >= limit);
            if is_over || added.number.is_none() {
                return Err(self.not_had(&why));
            }
            self.account.waits(blockers.len(), &why);
            let watched = blockers.iter().filter(|it| watched.contains(&it.key));
            let watched: Vec<_> = watched.map(|it| it.number).collect();
            // A slot is got, and a timed ticket ends, by a write into the file.
            let hears_changes = matches!(ticket.mode, Mode::Slots(_)) || !added.timed.is_empty();
            let is_simple = !hears_changes && self.limit.is_none() && self.signals.is_none();
            match (&watched[..], &mut listener) {
                ([latest], _) if is_simple => file.wait_for_end_of(*latest)?,
                (_, Some(listener)) => {
                    let ends_at = listener.watch_for(&watched, &added.timed)?;
                    let until = ends_at.into_iter().chain(self.limit).min();
                    listener.wait(self.signals.as_ref(), until)?;
                }
                // From here on no change is missed.
                (_, none) => *none = Some(Listener::new(file, hears_changes)?),
            }
            added = if hears_changes {
                self.enter(file)?;
                file.decide_again(ticket, added)?
            } else {
                file.decide_without(ticket, added)?
            };
        }
        Ok(added)
    }

    /// Runs the command; returns how the process is to end.
    fn run(self, granted: Granted) -> Result<Ending, Refusal> {
        let no_start = Refusal::system("cannot start the command: ");
        let grant = &granted.grant;
        self.account.granted(grant.term, &grant.epoch, grant.slot);
        self.account.outcome = Outcome::NotStarted;
        let signals = self.signals.map_or_else(Signals::open, Ok).map_err(&no_start)?;
        let children = Children::adopt().map_err(&no_start)?;
        let front = Front::new(self.request, &mut *self.account, signals, children)?;
        let ending = Hold::run_local(front, grant, granted.inherited.as_ref())?;
        // A thread that waits for another ticket has the file too, until this process ends.
        drop(granted);
        self.account.released();
        Ok(ending)
    }

    /// The lock was not had in time.
    fn not_had(&mut self, why: &str) -> NotGranted {
        NotGranted::Over(self.account.not_had(why, self.request.busy_status))
    }
}
