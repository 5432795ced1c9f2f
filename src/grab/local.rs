//! `putex grab` and `putex release` in a directory: tickets that no process has, beside those of
//! `putex lock`. All is on one clock of one boot, so a lock is had exactly as long as its ticket
//! stands.

use std::path::Path;
use std::time::Duration;

use log::Level;

use super::{Grabbed, Request, Speaker, Task, ticket};
use crate::core::tickets::decision::describe;
use crate::core::tickets::grab::STEP_MAX;
use crate::core::tickets::{
    Broken, Decision, End, Name, Released, StoredTicket, Ticket, ToFront, decide, of_requester,
};
use crate::core::{Instant, Revision};
use crate::exit::{Ended, Exit, Refusal};
use crate::lock::check_held;
use crate::lock::waiter::{Asker, Looked, Turn, in_bucket};
use crate::log::Destination;
use crate::store::StoreResult;
use crate::store::dir::tickets::{Entered, LAST, Listed};
use crate::store::name::no_such_bucket;
use crate::sys;

/// Serves a request, in a bucket of a directory.
///
/// # Errors
///
/// Why the request was not served.
pub fn run(
    request: &Request,
    base: &Path,
    bucket: &str,
    destination: Destination,
) -> Result<Ended, Refusal> {
    if request.needs_bucket() && !base.join(bucket).exists() {
        return Err(Refusal::new(Exit::Unsafe, no_such_bucket(bucket)));
    }
    let local = Local { speaker: Speaker { request, destination }, store: (base, bucket) };
    match &request.task {
        Task::Grab { timing, wait, withdraws, busy_status, .. } => {
            check_held(&request.name)?;
            let ticket = ticket(request, 0);
            let step = timing.renewal().min(STEP_MAX);
            let limit = sys::now().after(*wait);
            let wanted = Wanted { ticket, step, limit, withdraws: *withdraws, write_at: None };
            local.speaker.grabbed(local.grab(wanted)?, *busy_status)
        }
        Task::Release => local.release(),
        Task::Break(holder) => local.break_lock(holder),
    }
}

struct Local<'a> {
    speaker: Speaker<'a>,
    /// The directory, and the name of the bucket.
    store: (&'a Path, &'a str),
}

/// A ticket that is asked for, in a bucket.
struct Wanted {
    ticket: Ticket,
    /// How often the ticket is written while it waits.
    step: Duration,
    /// Others are not waited for after this instant.
    limit: Instant,
    withdraws: bool,
    /// When the ticket is to be written again; `None` if this process has not written it yet.
    write_at: Option<Instant>,
}

impl Wanted {
    /// Decides about the ticket, unless the requester has another one that overlaps: it would wait
    /// for itself. The ticket is written when that is due, or when it is granted: all waiters hear
    /// of a write, and if they answered with a write, they would not come to rest.
    fn inspect(&mut self, entered: &Entered<'_>) -> StoreResult<Looked<Grabbed>> {
        entered.check_clock()?;
        let ticket = &self.ticket;
        let mut found = entered.list(&ticket.name, None)?;
        let is_alike = |other: &Ticket| other.name == ticket.name && other.mode == ticket.mode;
        let other = found.of_requester(&ticket.token).find(|(_, it)| !is_alike(it));
        if let Some((other, _)) = other {
            return Ok(ended(End::Overlaps(of_requester(other))));
        }
        let own = found.of_requester(&ticket.token).next().map(|(own, _)| own.clone());
        let own = own.and_then(|StoredTicket { key, number, .. }| {
            found.standing.retain(|other| other.key != key);
            Some((number, found.ends.remove(&key)?))
        });
        let now = sys::now();
        let at = own.map_or(LAST, |(number, _)| number);
        let Decision::Wait { blockers, watched } = decide(ticket, at, &found.standing) else {
            let (Revision(term), valid_until) = self.write(entered, own)?;
            let epoch = entered.epoch().to_owned();
            let last = ToFront::Granted { valid_until, term, epoch, slot: None };
            return Ok(Looked::Over(Grabbed { last, ticket: None }));
        };
        let (why, ahead) = (describe(&blockers, None), blockers.len());
        let stands = match own {
            None if self.withdraws => None,
            Some(_) if self.write_at.is_some_and(|at| now < at) => own,
            Some(_) | None => Some(self.write(entered, own)?),
        };
        if now < self.limit {
            let look_at = self.write_at;
            return Ok(Looked::Waits(Turn { ahead, why, found, watched, look_at }));
        }
        let Some((number, valid_until)) = stands else { return Ok(ended(End::NotHad(why))) };
        // A ticket that has come first all the time has kept this one from being granted.
        let is_first = |it: &StoredTicket| it.number < number && it.ticket.is_ok();
        if self.withdraws && blockers.iter().any(is_first) {
            end(entered, &self.ticket.name, &self.ticket.token)?;
            return Ok(ended(End::NotHad(why)));
        }
        let last = ToFront::Waiting { ahead, why };
        Ok(Looked::Over(Grabbed { last, ticket: Some((number.0, valid_until)) }))
    }

    /// Writes the ticket, in the place of the own one of this number if it stands until then.
    /// Returns its number, and until when it stands: never for less long than before.
    fn write(
        &mut self,
        entered: &Entered<'_>,
        own: Option<(Revision, Instant)>,
    ) -> StoreResult<(Revision, Instant)> {
        let now = sys::now();
        let until = own.map_or(now, |(_, until)| until).max(now.after(self.ticket.lifetime));
        self.write_at = Some(now.after(self.step));
        let number = own.map(|(number, _)| number);
        Ok((entered.write_until(&self.ticket, number, until)?, until))
    }
}

impl Local<'_> {
    /// Waits until the ticket is granted, or the limit.
    fn grab(&self, mut wanted: Wanted) -> Result<Grabbed, Refusal> {
        in_bucket(self.store, self.asker(wanted.limit), |waiter| {
            // This process has written nothing in another bucket.
            wanted.write_at = None;
            let mut shown = String::new();
            loop {
                match waiter.enter(|entered| wanted.inspect(entered))? {
                    // This process was stopped for long.
                    Looked::Over(Grabbed {
                        last: ToFront::Granted { valid_until, .. }, ..
                    }) if sys::now() >= valid_until => {}
                    Looked::Over(grabbed) => return Ok(grabbed),
                    Looked::Waits(turn) => {
                        self.speaker.show_wait(&turn.why, &mut shown);
                        waiter.wait(&turn)?;
                    }
                }
            }
        })
    }

    fn asker(&self, limit: Instant) -> Asker<'_> {
        Asker { name: &self.speaker.request.name, limit: Some(limit), signals: None }
    }

    /// Ends the ticket of this requester; see [`end`].
    fn end(&self, token: &str) -> Result<(Option<StoredTicket>, Listed), Refusal> {
        let asker = self.asker(sys::now());
        let act = |entered: &Entered<'_>| end(entered, asker.name, token);
        in_bucket(self.store, asker, |waiter| waiter.enter(act))
    }

    fn release(&self) -> Result<Ended, Refusal> {
        let who = &self.speaker.request.who;
        let (ended, others) = self.end(who)?;
        let own = others.of_requester(who).next().map(|(other, _)| other);
        let other = || own.or(others.standing.first()).map(of_requester);
        self.speaker.released(match ended {
            Some(_) => Released::Ended,
            None => Released::Absent(other()),
        })
    }

    /// Ends the ticket of this holder, unless a process has it.
    fn break_lock(&self, holder: &str) -> Result<Ended, Refusal> {
        let (ended, others) = self.end(holder)?;
        let broken = ended.and_then(|StoredTicket { number, ticket, .. }| {
            let Ticket { token, mode, .. } = ticket.ok()?;
            Some(Broken { term: number.0, holder: token, mode })
        });
        let is_of_process = |other: &StoredTicket| {
            let name = &self.speaker.request.name;
            let is_its = |it: &Ticket| it.token == holder && it.name == *name;
            !others.ends.contains_key(&other.key) && other.ticket.as_ref().is_ok_and(is_its)
        };
        if others.standing.iter().any(is_of_process) {
            let who = format!("a process of putex lock has the ticket of {holder}");
            self.speaker.tell(Level::Warn, &format!("not broken: {who}; end that process"));
            let broken = broken.map(|broken| self.speaker.broke(&broken));
            return Ok((broken.unwrap_or_default(), Exit::NotHad as u8));
        }
        self.speaker.released(match (broken, others.standing.first()) {
            (Some(broken), _) => Released::Broken(vec![broken]),
            (None, Some(first)) => Released::NotHeldBy(of_requester(first)),
            (None, None) => Released::Absent(None),
        })
    }
}

/// Returns that a request has ended so, without a ticket.
fn ended(end: End) -> Looked<Grabbed> {
    Looked::Over(Grabbed { last: ToFront::Ended(end), ticket: None })
}

/// Ends the ticket that this requester has for this name. Returns it, and the other tickets.
fn end(
    entered: &Entered<'_>,
    name: &Name,
    token: &str,
) -> StoreResult<(Option<StoredTicket>, Listed)> {
    entered.check_clock()?;
    let mut found = entered.list(name, None)?;
    let own = found.of_requester(token).find(|(_, it)| it.name == *name);
    let own = own.map(|(own, _)| own.clone());
    if let Some(own) = &own {
        entered.remove(own)?;
        found.standing.retain(|other| other.key != own.key);
        found.ends.remove(&own.key);
    }
    Ok((own, found))
}
