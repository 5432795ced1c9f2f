//! The lock of one host: one process, which waits for the lock, runs the command and waits for
//! its end. The command inherits an open file whose lock is the ticket.
//!
//! A signal ends a process that waits, and its ticket; nothing has to be done but to write the
//! report: with `--report`, the signals are taken.

use std::env;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::account::{Account, Ending, Outcome};
use super::command::Children;
use super::front::{Front, Grant};
use super::held::{self, HELD};
use super::hold::Hold;
use super::listener::{self, Listener, NotWaited, not_waited};
use super::signals::Signals;
use super::{Request, Wait};
use crate::core::tickets::decision::describe;
use crate::core::tickets::{Decision, Mode, StoredTicket, Ticket, decide};
use crate::core::{Incarnation, Instant};
use crate::exit::Refusal;
use crate::store::dir::tickets::{Entered, LAST, Listed, LocalTickets, OwnTicket, wait_for_end};
use crate::store::{StoreError, StoreResult};
use crate::sys::{self, raw};

/// How often a name is looked at that is free, but was not for long enough.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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

/// How a ticket stands that was asked for.
struct Requested {
    ticket: Ticket,
    /// `None` if it was not added, since it would have had to wait.
    own: Option<OwnTicket>,
    decision: Decision,
    /// The tickets before it.
    found: Listed,
}

/// A ticket that was granted.
struct Granted {
    own: OwnTicket,
    grant: Grant,
}

/// Why the wait for a ticket has not ended with it.
enum NotGranted {
    /// The lock was not had in time.
    Over(Ending),
    /// It was not waited for.
    NotWaited(NotWaited),
}

impl From<NotWaited> for NotGranted {
    fn from(not_waited: NotWaited) -> NotGranted {
        NotGranted::NotWaited(not_waited)
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
            Err(NotGranted::NotWaited(why)) => match why {
                NotWaited::Interrupted(signal) => return Ok(local.account.interrupted(signal)),
                NotWaited::Refused(refusal) => return Err(refusal),
                // What it waits for in the new bucket is said again.
                NotWaited::Replaced => local.account.last_shown.clear(),
            },
        }
    }
}

impl Local<'_> {
    /// Adds a ticket and waits until it is granted.
    fn get(&mut self) -> Result<Granted, NotGranted> {
        let (base, bucket) = self.store;
        let refused = |error: StoreError| NotWaited::Refused(error.into());
        let until = self.limit.map(listener::with_patience);
        let tickets = LocalTickets::open(base, bucket, until).map_err(refused)?;
        let ticket = Ticket {
            name: self.request.name.clone(),
            mode: self.request.mode,
            slot: None,
            lifetime: Duration::ZERO,
            token: self.request.token.clone(),
            incarnation: Incarnation(0),
            attempt: 0,
            is_granted: false,
            counts_if_stored_by: None,
        };
        let mut requested = match self.get_softly(&tickets, &ticket)? {
            Some(requested) => requested,
            None => {
                self.request(&tickets, ticket, self.request.wait == Wait::For(Duration::ZERO))?
            }
        };
        self.wait_for_turn(&tickets, &mut requested)?;
        let epoch = tickets.epoch().map_err(refused)?;
        let Requested { own, ticket: Ticket { slot, .. }, .. } = requested;
        // Only what would wait is not added.
        let own = own.ok_or(NotWaited::Replaced)?;
        let term = own.number.0;
        Ok(Granted { own, grant: Grant { term, slot, epoch } })
    }

    /// Enters the bucket and does something there.
    fn enter<T>(
        &self,
        tickets: &Rc<LocalTickets>,
        act: impl FnOnce(&Entered<'_>) -> StoreResult<T>,
    ) -> Result<T, NotWaited> {
        let name = &self.account.name;
        let entered = listener::enter(tickets, self.signals.as_ref(), self.limit, name)?;
        act(&entered).map_err(|error| not_waited(tickets, error))
    }

    /// Adds a ticket, unless it would have to wait and is not to.
    fn request(
        &self,
        tickets: &Rc<LocalTickets>,
        mut ticket: Ticket,
        only_if_free: bool,
    ) -> Result<Requested, NotWaited> {
        self.enter(tickets, |entered| {
            let found = entered.list(&ticket.name, None)?;
            entered.remove_run_out(&found, &ticket, LAST)?;
            let decision = decide(&ticket, LAST, &found.standing);
            ticket.slot = slot_of(&decision);
            let waits = matches!(decision, Decision::Wait { .. });
            let own = match only_if_free && waits {
                true => None,
                false => Some(entered.add(&ticket)?),
            };
            Ok(Requested { ticket, own, decision, found })
        })
    }

    /// Decides anew about a ticket that waits. A slot that it gets stands in it then.
    fn judge_again(
        &self,
        tickets: &Rc<LocalTickets>,
        requested: &mut Requested,
    ) -> Result<(), NotWaited> {
        let Requested { ticket, own: Some(own), decision, found } = requested else {
            return Ok(());
        };
        let stands = self.enter(tickets, |entered| {
            *found = entered.list(&ticket.name, Some(own.number))?;
            entered.remove_run_out(found, ticket, own.number)?;
            *decision = decide(ticket, own.number, &found.standing);
            if let Decision::Slot(_) = decision {
                ticket.slot = slot_of(decision);
                entered.replace(own, ticket)?;
            }
            entered.has(own)
        })?;
        if stands { Ok(()) } else { Err(NotWaited::Replaced) }
    }

    /// Waits, without a ticket, until the name is free, and was for long enough. `None` if the
    /// request queues as any other.
    fn get_softly(
        &mut self,
        tickets: &Rc<LocalTickets>,
        ticket: &Ticket,
    ) -> Result<Option<Requested>, NotGranted> {
        let Some(soft) = self.request.soft else { return Ok(None) };
        let hard_at = soft.hard_after.map(|after| self.account.began.after(after));
        let mut listener = Listener::new(tickets, true)?;
        let mut quiet_since = None;
        loop {
            let now = sys::now();
            if hard_at.is_some_and(|at| now >= at) {
                return Ok(None);
            }
            let found = self.enter(tickets, |entered| entered.list(&ticket.name, None))?;
            let (why, wake_at) = match decide(ticket, LAST, &found.standing) {
                Decision::Wait { blockers, watched } => {
                    quiet_since = None;
                    (describe(&blockers), listener.listen_to(&watched, &found)?)
                }
                Decision::Granted | Decision::Slot(_) => {
                    let quiet_at = quiet_since.get_or_insert(now).after(soft.quiet_for);
                    if now >= quiet_at {
                        let requested = self.request(tickets, ticket.clone(), true)?;
                        if requested.own.is_some() {
                            return Ok(Some(requested));
                        }
                        // Somebody was faster.
                        continue;
                    }
                    let look_at = now.after(LOOK_EVERY).min(quiet_at);
                    ("free, but not for long enough yet".to_owned(), Some(look_at))
                }
            };
            if self.limit.is_some_and(|limit| now >= limit) {
                return Err(self.not_had(&why));
            }
            self.account.waits(0, &why);
            let until = [self.limit, hard_at, wake_at].into_iter().flatten().min();
            listener.wait(self.signals.as_ref(), until)?;
        }
    }

    /// Waits until a ticket is granted, or cannot be.
    fn wait_for_turn(
        &mut self,
        tickets: &Rc<LocalTickets>,
        requested: &mut Requested,
    ) -> Result<(), NotGranted> {
        let mut listener: Option<Listener> = None;
        while let Decision::Wait { blockers, watched } = &requested.decision {
            let (why, found) = (describe(blockers), &requested.found);
            let is_over = self.limit.is_some_and(|limit| sys::now() >= limit);
            if is_over || requested.own.is_none() {
                return Err(self.not_had(&why));
            }
            self.account.waits(blockers.len(), &why);
            // A slot is got, and a ticket of putex grab ends, by a change.
            let hears_changes =
                matches!(requested.ticket.mode, Mode::Slots(_)) || !found.ends.is_empty();
            let is_simple = !hears_changes && self.limit.is_none() && self.signals.is_none();
            match (blockers.last().filter(|_| is_simple), &mut listener) {
                (Some(latest), _) => wait_for_end_of(tickets, latest)?,
                (None, Some(listener)) => {
                    let ends_at = listener.listen_to(watched, found)?;
                    let until = ends_at.into_iter().chain(self.limit).min();
                    listener.wait(self.signals.as_ref(), until)?;
                }
                // From here on no change is missed.
                (None, none) => *none = Some(Listener::new(tickets, hears_changes)?),
            }
            self.judge_again(tickets, requested)?;
        }
        Ok(())
    }

    /// Runs the command; returns how the process is to end.
    fn run(self, mut granted: Granted) -> Result<Ending, Refusal> {
        if self.request.closes {
            granted.own.inherited = None;
        }
        let no_start = Refusal::system("cannot start the command: ");
        let grant = &granted.grant;
        self.account.granted(grant.term, &grant.epoch, grant.slot);
        self.account.outcome = Outcome::NotStarted;
        let signals = self.signals.map_or_else(Signals::open, Ok).map_err(&no_start)?;
        let children = Children::adopt().map_err(&no_start)?;
        let front = Front::new(self.request, &mut *self.account, signals, children)?;
        let ending = Hold::run_local(front, grant, granted.own.inherited.as_ref())?;
        drop(granted);
        self.account.released();
        Ok(ending)
    }

    /// The lock was not had in time.
    fn not_had(&mut self, why: &str) -> NotGranted {
        NotGranted::Over(self.account.not_had(why, self.request.busy_status))
    }
}

/// Returns the slot that a ticket is given.
fn slot_of(decision: &Decision) -> Option<u32> {
    match decision {
        Decision::Slot(slot) => Some(*slot),
        Decision::Granted | Decision::Wait { .. } => None,
    }
}

/// Waits until a ticket has ended that a process has.
fn wait_for_end_of(tickets: &LocalTickets, ticket: &StoredTicket) -> Result<(), NotWaited> {
    let opened = tickets.open_to_wait(ticket).map_err(|error| not_waited(tickets, error))?;
    let ended = opened.map_or(Ok(()), wait_for_end);
    ended.map_err(|error| NotWaited::Refused(Refusal::system("cannot wait: ")(error)))
}
