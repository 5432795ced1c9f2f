//! `putex grab` and `putex release` in a directory: tickets that no process has, beside those of
//! `putex lock`. All is on one clock of one boot, so a lock is had exactly as long as its ticket
//! stands.

use std::env;
use std::path::Path;
use std::time::Duration;

use super::{Ended, Grabbed, Limits, Speaker, Task};
use crate::core::tickets::decision::describe;
use crate::core::tickets::grab::STEP_MAX;
use crate::core::tickets::{
    Broken, Decision, LockTiming, Mode, Name, Released, StoredTicket, Ticket, decide, of_requester,
};
use crate::core::{Incarnation, Instant, Revision};
use crate::exit::{Exit, LockExit, Refusal};
use crate::lock::waiter::{Asker, Looked, NotWaited, Turn, Waiter, in_bucket};
use crate::lock::{HELD, check_held};
use crate::store::StoreResult;
use crate::store::dir::tickets::{Entered, LAST, Listed};
use crate::store::name::no_such_bucket;
use crate::sys;

/// See [`super::run_local`].
pub(super) fn run(speaker: Speaker<'_>, base: &Path, bucket: &str) -> Result<Ended, Refusal> {
    if speaker.request.needs_bucket() && !base.join(bucket).exists() {
        return Err(Refusal::new(Exit::Unsafe, no_such_bucket(bucket)));
    }
    let name = speaker.request.name.clone();
    let local = Local { speaker, base, bucket };
    match &local.speaker.request.task {
        Task::Grab { mode, timing, limits, busy_status } => {
            check_held(&name, env::var_os(HELD).as_deref())?;
            let grabbed = local.grab(name, *mode, *timing, *limits)?;
            local.speaker.grabbed(grabbed, *busy_status)
        }
        Task::Release => local.release(&name),
        Task::Break(holder) => local.break_lock(&name, holder),
    }
}

struct Local<'a> {
    speaker: Speaker<'a>,
    base: &'a Path,
    bucket: &'a str,
}

/// A ticket that is asked for, in one bucket.
struct Wanted {
    ticket: Ticket,
    /// How long the ticket stands when it is not written again.
    lasts: Duration,
    /// How often it is written while it waits.
    step: Duration,
    /// Others are not waited for any longer.
    limit: Instant,
    withdraws: bool,
    /// When the ticket is to be written again; `None` if this process has not written it yet.
    write_at: Option<Instant>,
    /// Tickets that had run out and were removed for this one. That is still to be said.
    removed: Vec<StoredTicket>,
}

impl Wanted {
    /// Decides about the ticket, unless the requester has another one that overlaps: it would wait
    /// for itself. It is written when that is due, or when it is granted: all who wait hear of a
    /// write, and if they answered with one, they would not come to rest.
    fn inspect(&mut self, entered: &Entered<'_>) -> StoreResult<Looked<Grabbed>> {
        entered.check_clock()?;
        let ticket = &self.ticket;
        let mut found = entered.list(&ticket.name, None)?;
        let is_alike = |other: &Ticket| other.name == ticket.name && other.mode == ticket.mode;
        let mine = found.of_requester(&ticket.token);
        if let Some(other) = mine.clone().find(|(_, it)| !is_alike(it)) {
            return Ok(Looked::Over(Grabbed::Overlaps(of_requester(other.0))));
        }
        let alike = mine.chain(found.run_out_of(&ticket.token)).find(|(_, it)| is_alike(it));
        let own = alike.map(|(own, _)| own.clone());
        let stood_until = own.as_ref().and_then(|own| {
            found.standing.retain(|other| other.key != own.key);
            found.ends.remove(&own.key)
        });
        let number = own.as_ref().map(|own| own.number);
        let at = number.unwrap_or(LAST);
        self.removed.extend(entered.remove_run_out(&found, ticket, at)?);
        let now = sys::now();
        let Decision::Wait { blockers, watched } = decide(ticket, at, &found.standing) else {
            let (Revision(term), valid_until) = self.write(entered, number, stood_until)?;
            return Ok(Looked::Over(Grabbed::Granted { term, valid_until }));
        };
        let (why, ahead) = (describe(&blockers), blockers.len());
        let stands = match (number, stood_until) {
            (None, _) if self.withdraws => None,
            (Some(number), Some(until)) if self.write_at.is_some_and(|at| now < at) => {
                Some((number, until))
            }
            (number, stood_until) => Some(self.write(entered, number, stood_until)?),
        };
        if now < self.limit {
            let look_at = self.write_at;
            return Ok(Looked::Waits(Turn { ahead, why, found, watched, look_at }));
        }
        let Some((number, valid_until)) = stands else {
            return Ok(Looked::Over(Grabbed::Withdrawn(why)));
        };
        // Whoever has come first all the time has kept the ticket from being granted.
        let is_first = |it: &StoredTicket| it.number < number && it.ticket.is_ok();
        if self.withdraws && blockers.iter().any(is_first) {
            end(entered, &self.ticket.name, &self.ticket.token)?;
            return Ok(Looked::Over(Grabbed::Withdrawn(why)));
        }
        let (term, ahead) = (number.0, ahead as u64);
        Ok(Looked::Over(Grabbed::Queued { term, ahead, valid_until, why }))
    }

    /// Writes the ticket, a new one without a number. Returns its number, and until when it stands:
    /// never for less long than before.
    fn write(
        &mut self,
        entered: &Entered<'_>,
        number: Option<Revision>,
        stood_until: Option<Instant>,
    ) -> StoreResult<(Revision, Instant)> {
        let now = sys::now();
        let until = now.after(self.lasts).max(stood_until.unwrap_or(now));
        self.write_at = Some(now.after(self.step));
        Ok((entered.write_until(&self.ticket, number, until)?, until))
    }
}

impl Local<'_> {
    fn grab(
        &self,
        name: Name,
        mode: Mode,
        timing: LockTiming,
        limits: Limits,
    ) -> Result<Grabbed, Refusal> {
        let ticket = Ticket {
            name,
            mode,
            slot: None,
            lifetime: timing.lifetime(),
            token: self.speaker.request.who.clone(),
            incarnation: Incarnation(0),
            attempt: 0,
            is_granted: false,
            counts_if_stored_by: None,
        };
        let limit = sys::now().after(limits.wait);
        self.in_bucket(limit, |waiter| {
            let mut wanted = Wanted {
                ticket: ticket.clone(),
                lasts: timing.lifetime(),
                step: timing.renewal().min(STEP_MAX),
                limit,
                withdraws: limits.withdraws,
                write_at: None,
                removed: Vec::new(),
            };
            self.wait_for(&mut wanted, waiter)
        })
    }

    /// Waits until the ticket is granted, or the limit.
    fn wait_for(&self, wanted: &mut Wanted, waiter: &mut Waiter<'_>) -> Result<Grabbed, NotWaited> {
        let mut shown = String::new();
        loop {
            let looked = waiter.enter(|entered| wanted.inspect(entered))?;
            wanted.removed.drain(..).for_each(|other| self.speaker.warn_of_removal(&other));
            match looked {
                // This process was stopped for long.
                Looked::Over(Grabbed::Granted { valid_until, .. }) if sys::now() >= valid_until => {
                }
                Looked::Over(grabbed) => return Ok(grabbed),
                Looked::Waits(turn) => {
                    self.speaker.show_wait(&turn.why, &mut shown);
                    waiter.wait(&turn)?;
                }
            }
        }
    }

    fn in_bucket<T>(
        &self,
        limit: Instant,
        act: impl FnMut(&mut Waiter<'_>) -> Result<T, NotWaited>,
    ) -> Result<T, Refusal> {
        let name = &self.speaker.request.name;
        let asker = Asker { name, limit: Some(limit), signals: None };
        in_bucket((self.base, self.bucket), asker, act)
    }

    /// Ends the ticket of this requester; see [`end`].
    fn end(&self, name: &Name, token: &str) -> Result<(Option<StoredTicket>, Listed), Refusal> {
        self.in_bucket(sys::now(), |waiter| waiter.enter(|entered| end(entered, name, token)))
    }

    fn release(&self, name: &Name) -> Result<Ended, Refusal> {
        let who = &self.speaker.request.who;
        let (ended, others) = self.end(name, who)?;
        let other = || others.of_requester(who).next().map(|(other, _)| of_requester(other));
        self.speaker.released(match ended {
            Some(_) => Released::Ended,
            None => Released::Absent(other()),
        })
    }

    /// Ends the ticket of this holder, unless a process has it.
    fn break_lock(&self, name: &Name, holder: &str) -> Result<Ended, Refusal> {
        let (ended, others) = self.end(name, holder)?;
        let broken = ended.and_then(|StoredTicket { number, ticket, .. }| {
            let Ticket { token, mode, .. } = ticket.ok()?;
            Some(Broken { term: number.0, holder: token, mode })
        });
        let is_of_process = |other: &StoredTicket| {
            let is_its = |it: &Ticket| it.token == holder && it.name == *name;
            !others.ends.contains_key(&other.key) && other.ticket.as_ref().is_ok_and(is_its)
        };
        if others.standing.iter().any(is_of_process) {
            let text = "a process of putex lock has the ticket of";
            self.speaker.warn(&format!("not broken: {text} {holder}; end that process"));
            let broken = broken.map(|broken| self.speaker.broke(&broken));
            return Ok((broken.unwrap_or_default(), LockExit::NotHad as u8));
        }
        self.speaker.released(match (broken, others.standing.first()) {
            (Some(broken), _) => Released::Broken(vec![broken]),
            (None, Some(first)) => Released::NotHeldBy(of_requester(first)),
            (None, None) => Released::Absent(None),
        })
    }
}

/// Ends the ticket that this requester has for this name, also if it has run out and nobody has
/// removed it. Returns it, and the other tickets.
fn end(
    entered: &Entered<'_>,
    name: &Name,
    token: &str,
) -> StoreResult<(Option<StoredTicket>, Listed)> {
    entered.check_clock()?;
    let mut found = entered.list(name, None)?;
    let mut mine = found.of_requester(token).chain(found.run_out_of(token));
    let own = mine.find(|(_, it)| it.name == *name).map(|(own, _)| own.clone());
    drop(mine);
    if let Some(own) = &own {
        entered.remove(own)?;
        found.standing.retain(|other| other.key != own.key);
        found.ends.remove(&own.key);
    }
    Ok((own, found))
}
