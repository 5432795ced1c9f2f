//! The lock of one host: one process, which waits for the lock, runs the command and waits for
//! its end. The command inherits an open file whose lock is the ticket.
//!
//! A signal ends a process that waits, and its ticket; nothing has to be done but to write the
//! report: with `--report`, the signals are taken.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::Request;
use super::account::{Account, Ending, Outcome};
use super::command::Children;
use super::front::Front;
use super::held::Grant;
use super::hold::Hold;
use super::protocol::End;
use super::signals::Signals;
use super::waiter::{Asker, Looked, NotWaited, Turn, Waiter, in_bucket};
use crate::core::Instant;
use crate::core::tickets::decision::describe;
use crate::core::tickets::{Decision, Ticket, decide};
use crate::exit::Refusal;
use crate::store::StoreResult;
use crate::store::dir::tickets::{Entered, LAST, OwnTicket};
use crate::sys::{self, raw};

/// How often a name is looked at that is free, but was not for long enough.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The result of a request.
enum Got {
    Granted(OwnTicket, Grant),
    /// The lock was not had in time, for this reason.
    NotHad(String),
    Interrupted(i32),
}

/// See [`super::run`].
pub(super) fn run(
    request: &Request,
    store: (&Path, &str),
    account: &mut Account,
) -> Result<Ending, Refusal> {
    let no_signals = Refusal::system("cannot take signals: ");
    // While it waits, a signal ends or stops this process by itself, and its ticket with it: by
    // default, or as the first process of a container by the handler that `main` has set.
    raw::unblock_signals().map_err(&no_signals)?;
    // With a report there is something to write before.
    let signals = request.report.as_ref().map(|_| Signals::open()).transpose();
    let signals = signals.map_err(&no_signals)?;
    let limit = request.wait.map(|time| account.began.after(time));
    let asker = Asker { name: &request.name, limit, signals: signals.as_ref() };
    let got = in_bucket(store, asker, |waiter| match get(request, limit, waiter, account) {
        Err(NotWaited::Interrupted(signal)) => Ok(Got::Interrupted(signal)),
        got => got,
    })?;
    let (mut own, grant) = match got {
        Got::Granted(own, grant) => (own, grant),
        Got::NotHad(why) => return Ok(account.not_had(&why)),
        Got::Interrupted(signal) => return Ok(account.interrupted(signal)),
    };
    if request.closes {
        own.inherited = None;
    }
    let no_start = Refusal::system("cannot start the command: ");
    account.granted(grant.clone());
    account.outcome = Outcome::NotStarted;
    let signals = signals.map_or_else(Signals::open, Ok).map_err(&no_start)?;
    let children = Children::adopt().map_err(&no_start)?;
    let front = Front::new(&mut *account, signals, children, None)?;
    let ending = Hold::run_local(front, &grant, own.inherited.as_ref())?;
    drop(own);
    account.released(Some(End::Released));
    Ok(ending)
}

/// Adds a ticket to an open bucket and waits until it is granted, or until the limit.
fn get(
    request: &Request,
    limit: Option<Instant>,
    waiter: &mut Waiter<'_>,
    account: &mut Account,
) -> Result<Got, NotWaited> {
    // A wait in another bucket is said again.
    account.last_shown.clear();
    let mut asked = Asked::new(request, limit, account.began);
    loop {
        match waiter.enter(|entered| asked.inspect(entered))? {
            Looked::Waits(turn) => {
                account.waits(turn.ahead, &turn.why);
                waiter.wait(&turn)?;
            }
            Looked::Over(got) => return Ok(got),
        }
    }
}

/// A request, and its ticket as soon as it has one.
struct Asked<'a> {
    request: &'a Request,
    limit: Option<Instant>,
    /// When a soft request queues as any other; `None` if never.
    hard_at: Option<Instant>,
    ticket: Ticket,
    own: Option<OwnTicket>,
    /// Since when the name was free whenever a soft request looked.
    free_since: Option<Instant>,
}

impl Asked<'_> {
    fn new(request: &Request, limit: Option<Instant>, began: Instant) -> Asked<'_> {
        let hard_after = request.soft.and_then(|soft| soft.hard_after);
        let ticket = Ticket::new(request.name.clone(), request.mode, request.token.clone());
        let hard_at = hard_after.map(|after| began.after(after));
        Asked { request, limit, hard_at, ticket, own: None, free_since: None }
    }

    /// Decides about the request. The request gets a ticket if it is granted, or is to queue. A
    /// soft request does not queue: it gets a ticket when the name was free for long enough. A slot
    /// that is given to a ticket stands in it then.
    fn inspect(&mut self, entered: &Entered<'_>) -> StoreResult<Looked<Got>> {
        let now = sys::now();
        // Somebody may have removed its file.
        if let Some(own) = &self.own
            && !entered.has(own)?
        {
            self.own = None;
        }
        let number = self.own.as_ref().map(|own| own.number);
        let is_late = self.limit.is_some_and(|limit| now >= limit);
        let may_queue = self.own.is_some() || self.hard_at.is_some_and(|at| now >= at);
        let soft = self.request.soft.filter(|_| !may_queue);
        let found = entered.list(&self.ticket.name, number)?;
        let turn = match decide(&self.ticket, number.unwrap_or(LAST), &found.standing) {
            Decision::Wait { blockers, watched } => {
                self.free_since = None;
                let ahead = if soft.is_some() { 0 } else { blockers.len() };
                let (why, look_at) =
                    (describe(&blockers, None), self.hard_at.filter(|_| soft.is_some()));
                Some(Turn { ahead, why, found, watched, look_at })
            }
            Decision::Slot(slot) => {
                self.ticket.slot = Some(slot);
                None
            }
            Decision::Granted => soft.and_then(|soft| {
                let quiet_at = self.free_since.get_or_insert(now).after(soft.quiet_for);
                let why = "free, but not for long enough yet".to_owned();
                let soon = [now.after(LOOK_EVERY), quiet_at].into_iter().chain(self.hard_at).min();
                let turn = Turn { ahead: 0, why, found, watched: BTreeSet::new(), look_at: soon };
                (now < quiet_at).then_some(turn)
            }),
        };
        if let Some(turn) = turn {
            if is_late {
                return Ok(Looked::Over(Got::NotHad(turn.why)));
            }
            if soft.is_none() && self.own.is_none() {
                self.own = Some(entered.add(&self.ticket)?);
            }
            return Ok(Looked::Waits(turn));
        }
        let own = match self.own.take() {
            None => entered.add(&self.ticket)?,
            Some(mut own) => {
                if self.ticket.slot.is_some() {
                    entered.replace(&mut own, &self.ticket)?;
                }
                own
            }
        };
        let (term, slot) = (own.number.0, self.ticket.slot);
        let grant = Grant { term, slot, epoch: entered.epoch().to_owned() };
        Ok(Looked::Over(Got::Granted(own, grant)))
    }
}
