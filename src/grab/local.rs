//! `putex grab` and `putex release` in a directory: tickets that no process has, beside those of
//! `putex lock`. All is on one clock of one boot, so a lock is had exactly as long as its ticket
//! stands.

use std::env;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::{Ended, Grabbed, Limits, Speaker, Task};
use crate::core::tickets::decision::describe;
use crate::core::tickets::grab::STEP_MAX;
use crate::core::tickets::{
    Broken, Decision, LockTiming, Mode, Name, Released, StoredTicket, Ticket, decide, of_requester,
};
use crate::core::{Incarnation, Instant, Revision};
use crate::exit::{Exit, LockExit, Refusal};
use crate::lock::listener::{Listener, NotWaited, enter, not_waited, with_patience};
use crate::lock::{HELD, check_held};
use crate::store::StoreResult;
use crate::store::dir::tickets::{Entered, LAST, Listed, LocalTickets};
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

/// What is wanted of the directory.
struct Wanted {
    ticket: Ticket,
    /// How long the ticket stands when it is not written again.
    lasts: Duration,
    /// How often it is written while it waits.
    step: Duration,
    /// Others are not waited for any longer.
    limit: Instant,
    withdraws: bool,
}

/// What became of a ticket that was asked for.
struct Requested {
    /// Its number, and until when it stands; `None` if it was not added.
    stands: Option<(Revision, Instant)>,
    decision: Decision,
    /// The other tickets.
    found: Listed,
    /// Those that had run out, and were removed for it.
    removed: Vec<StoredTicket>,
}

impl Wanted {
    /// Asks for the ticket. It is written when that is due, or when it is granted: all who wait
    /// hear of a write, and if they answered with one, they would not come to rest. If the
    /// requester has another ticket that overlaps, it would wait for itself: then that is returned.
    fn request(
        &self,
        entered: &Entered<'_>,
        write_at: &mut Option<Instant>,
    ) -> StoreResult<Result<Requested, StoredTicket>> {
        let ticket = &self.ticket;
        let mut found = entered.list(&ticket.name, None)?;
        let is_alike = |other: &Ticket| other.name == ticket.name && other.mode == ticket.mode;
        let mine = found.of_requester(&ticket.token);
        if let Some(other) = mine.clone().find(|(_, it)| !is_alike(it)) {
            return Ok(Err(other.0.clone()));
        }
        let alike = mine.chain(found.run_out_of(&ticket.token)).find(|(_, it)| is_alike(it));
        let own = alike.map(|(own, _)| own.clone());
        let number = own.as_ref().map(|own| own.number);
        let stood_until = own.and_then(|own| {
            found.standing.retain(|other| other.key != own.key);
            found.ends.remove(&own.key)
        });
        let at = number.unwrap_or(LAST);
        let removed = entered.remove_run_out(&found, ticket, at)?;
        let decision = decide(ticket, at, &found.standing);
        let waits = matches!(decision, Decision::Wait { .. });
        let now = sys::now();
        let stands = match (number, stood_until) {
            (None, _) if waits && self.withdraws => None,
            (Some(number), Some(until)) if waits && write_at.is_some_and(|at| now < at) => {
                Some((number, until))
            }
            (number, stood_until) => {
                let until = now.after(self.lasts).max(stood_until.unwrap_or(now));
                *write_at = Some(now.after(self.step));
                Some((entered.write_until(ticket, number, until)?, until))
            }
        };
        Ok(Ok(Requested { stands, decision, found, removed }))
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
        let wanted = Wanted {
            ticket,
            lasts: timing.lifetime(),
            step: timing.renewal().min(STEP_MAX),
            limit: sys::now().after(limits.wait),
            withdraws: limits.withdraws,
        };
        self.in_bucket(|tickets| self.grab_in(tickets, &wanted))
    }

    /// Does something in the bucket, and again as long as that is removed or replaced meanwhile.
    fn in_bucket<T>(
        &self,
        act: impl Fn(&Rc<LocalTickets>) -> Result<T, NotWaited>,
    ) -> Result<T, Refusal> {
        loop {
            let until = with_patience(sys::now());
            let tickets = LocalTickets::open(self.base, self.bucket, Some(until))?;
            match act(&tickets) {
                Ok(done) => return Ok(done),
                Err(NotWaited::Replaced) => {}
                Err(NotWaited::Refused(refusal)) => return Err(refusal),
                Err(NotWaited::Interrupted(signal)) => {
                    return Err(Refusal::new(Exit::System, format!("ended by signal {signal}")));
                }
            }
        }
    }

    /// Enters the bucket, with patience until this instant, and does something there.
    fn enter<T>(
        &self,
        tickets: &Rc<LocalTickets>,
        limit: Instant,
        act: impl FnOnce(&Entered<'_>) -> StoreResult<T>,
    ) -> Result<T, NotWaited> {
        let entered = enter(tickets, None, Some(limit), &self.speaker.request.name)?;
        act(&entered).map_err(|error| not_waited(tickets, error))
    }

    fn grab_in(&self, tickets: &Rc<LocalTickets>, wanted: &Wanted) -> Result<Grabbed, NotWaited> {
        let mut listener: Option<Listener> = None;
        let mut shown = String::new();
        // When the ticket is to be written again; this process has not written it yet.
        let mut write_at = None;
        loop {
            let request = |entered: &Entered<'_>| wanted.request(entered, &mut write_at);
            let requested = match self.enter(tickets, wanted.limit, request)? {
                Ok(requested) => requested,
                Err(other) => return Ok(Grabbed::Overlaps(of_requester(&other))),
            };
            requested.removed.iter().for_each(|other| self.speaker.warn_of_removal(other));
            let Decision::Wait { blockers, watched } = &requested.decision else {
                match requested.stands {
                    Some((Revision(term), valid_until)) if sys::now() < valid_until => {
                        return Ok(Grabbed::Granted { term, valid_until });
                    }
                    // This process was stopped for long.
                    Some(_) | None => continue,
                }
            };
            if sys::now() >= wanted.limit {
                return self.leave(tickets, wanted, requested.stands, blockers);
            }
            self.speaker.show_wait(&describe(blockers), &mut shown);
            match &mut listener {
                Some(listener) => {
                    let ends_at = listener.listen_to(watched, &requested.found)?;
                    let ends = [Some(wanted.limit), write_at, ends_at].into_iter().flatten();
                    listener.wait(None, ends.min())?;
                }
                // From here on no change is missed.
                none => *none = Some(Listener::new(tickets, true)?),
            }
        }
    }

    /// Ends a process whose ticket waits.
    fn leave(
        &self,
        tickets: &Rc<LocalTickets>,
        wanted: &Wanted,
        stands: Option<(Revision, Instant)>,
        blockers: &[StoredTicket],
    ) -> Result<Grabbed, NotWaited> {
        let why = describe(blockers);
        let Some((number, valid_until)) = stands else { return Ok(Grabbed::Withdrawn(why)) };
        // Whoever has come first all the time has kept the ticket from being granted.
        let is_first = |it: &StoredTicket| it.number < number && it.ticket.is_ok();
        if wanted.withdraws && blockers.iter().any(is_first) {
            let Ticket { name, token, .. } = &wanted.ticket;
            self.enter(tickets, wanted.limit, |entered| end(entered, name, token))?;
            return Ok(Grabbed::Withdrawn(why));
        }
        Ok(Grabbed::Queued { term: number.0, ahead: blockers.len() as u64, valid_until, why })
    }

    /// Ends the ticket of this requester; see [`end`].
    fn end(&self, name: &Name, token: &str) -> Result<(Option<StoredTicket>, Listed), Refusal> {
        self.in_bucket(|tickets| {
            self.enter(tickets, sys::now(), |entered| end(entered, name, token))
        })
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
