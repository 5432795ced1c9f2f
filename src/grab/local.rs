//! `putex grab` and `putex release` in a directory: timed tickets in the file of locks, in which
//! `putex lock` has its tickets too. All is on one clock of one boot, so a lock is had exactly as
//! long as its ticket stands.

use std::env;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{Ended, Grabbed, Limits, Speaker, Task};
use crate::core::tickets::decision::describe;
use crate::core::tickets::grab::STEP_MAX;
use crate::core::tickets::{
    Broken, Decision, LockTiming, Mode, Name, Released, StoredTicket, Ticket, of_requester,
};
use crate::core::{Incarnation, Instant, Revision};
use crate::exit::{Exit, LockExit, Refusal};
use crate::lock::listener::{Listener, enter};
use crate::lock::{HELD, check_held};
use crate::store::lock_file::{self, Added, LockFile};
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

/// What is wanted of the file.
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

/// How the ticket stands.
enum Inspected {
    /// What became of it.
    At(Added),
    /// It was not added: the requester has this one.
    Overlaps(StoredTicket),
    /// The file was removed or replaced: the ticket in it is worth nothing.
    Replaced,
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
        };
        let wanted = Wanted {
            ticket,
            lasts: timing.lifetime(),
            step: timing.renewal().min(STEP_MAX),
            limit: sys::now().after(limits.wait),
            withdraws: limits.withdraws,
        };
        loop {
            let file = Arc::new(LockFile::open(self.base, self.bucket)?);
            if let Some(grabbed) = self.grab_in(&file, &wanted)? {
                return Ok(grabbed);
            }
        }
    }

    /// Grabs in this file; `None` if it was removed or replaced.
    fn grab_in(&self, file: &Arc<LockFile>, wanted: &Wanted) -> Result<Option<Grabbed>, Refusal> {
        let mut listener: Option<Listener> = None;
        let mut shown = String::new();
        // When the ticket is to be written again; this process has not written it yet.
        let mut write_at = None;
        loop {
            let added = match self.inspect(file, wanted, &mut write_at)? {
                Inspected::At(added) => added,
                Inspected::Overlaps(other) => {
                    return Ok(Some(Grabbed::Overlaps(of_requester(&other))));
                }
                Inspected::Replaced => return Ok(None),
            };
            added.removed.iter().for_each(|other| self.speaker.warn_of_removal(other));
            let Decision::Wait { blockers, watched } = &added.decision else {
                let (Some(term), Some(valid_until)) = (added.number, added.until) else { continue };
                if sys::now() < valid_until {
                    return Ok(Some(Grabbed::Granted { term, valid_until }));
                }
                // This process was stopped for long.
                write_at = None;
                continue;
            };
            if sys::now() >= wanted.limit {
                return self.leave(file, wanted, &added, blockers);
            }
            self.speaker.show_wait(&describe(blockers), &mut shown);
            match &mut listener {
                Some(listener) => {
                    let watched = blockers.iter().filter(|it| watched.contains(&it.key));
                    let watched: Vec<_> = watched.map(|it| it.number).collect();
                    let ends_at = listener.watch_for(&watched, &added.timed)?;
                    let ends = [Some(wanted.limit), write_at, ends_at].into_iter().flatten();
                    listener.wait(None, ends.min())?;
                }
                // From here on no change is missed.
                none => *none = Some(Listener::new(file, true)?),
            }
        }
    }

    fn enter(&self, file: &Arc<LockFile>, limit: Instant) -> Result<bool, Refusal> {
        Ok(enter(file, None, Some(limit), &self.speaker.request.name)?)
    }

    /// Writes the ticket when that is due, or when it is granted; else inspects it only. All who
    /// wait hear of a write: if they answered with one, they would not come to rest.
    fn inspect(
        &self,
        file: &Arc<LockFile>,
        wanted: &Wanted,
        write_at: &mut Option<Instant>,
    ) -> Result<Inspected, Refusal> {
        if !self.enter(file, wanted.limit)? {
            return Ok(Inspected::Replaced);
        }
        if write_at.is_some_and(|at| sys::now() < at) {
            if let Some(added) = file.inspect_timed(&wanted.ticket)?
                && matches!(added.decision, Decision::Wait { .. })
            {
                return Ok(Inspected::At(added));
            }
            if !self.enter(file, wanted.limit)? {
                return Ok(Inspected::Replaced);
            }
        }
        *write_at = Some(sys::now().after(wanted.step));
        Ok(match file.add_timed(&wanted.ticket, wanted.lasts, wanted.withdraws)? {
            Ok(added) => Inspected::At(added),
            Err(other) => Inspected::Overlaps(other),
        })
    }

    /// Ends a process whose ticket waits.
    fn leave(
        &self,
        file: &Arc<LockFile>,
        wanted: &Wanted,
        added: &Added,
        blockers: &[StoredTicket],
    ) -> Result<Option<Grabbed>, Refusal> {
        let why = describe(blockers);
        let (Some(term), Some(valid_until)) = (added.number, added.until) else {
            return Ok(Some(Grabbed::Withdrawn(why)));
        };
        // Whoever has come first all the time has kept the ticket from being granted.
        let is_first = |it: &StoredTicket| it.number < Revision(term) && it.ticket.is_ok();
        if wanted.withdraws && blockers.iter().any(is_first) {
            if !self.enter(file, wanted.limit)? {
                return Ok(None);
            }
            file.end_timed(&wanted.ticket.name, &wanted.ticket.token)?;
            return Ok(Some(Grabbed::Withdrawn(why)));
        }
        let ahead = blockers.len() as u64;
        Ok(Some(Grabbed::Queued { term, ahead, valid_until, why }))
    }

    /// Ends the timed ticket of this token.
    fn end(&self, name: &Name, token: &str) -> Result<lock_file::Ended, Refusal> {
        loop {
            let file = Arc::new(LockFile::open(self.base, self.bucket)?);
            if self.enter(&file, sys::now())? {
                return Ok(file.end_timed(name, token)?);
            }
        }
    }

    fn release(&self, name: &Name) -> Result<Ended, Refusal> {
        let who = &self.speaker.request.who;
        let lock_file::Ended { ended, others, timed } = self.end(name, who)?;
        let is_own = |other: &&StoredTicket| {
            let ticket = other.ticket.as_ref();
            timed.contains_key(&other.number) && ticket.is_ok_and(|it| it.token == *who)
        };
        self.speaker.released(match ended {
            Some(_) => Released::Ended,
            None => Released::Absent(others.iter().find(is_own).map(of_requester)),
        })
    }

    /// Ends the ticket of this holder, unless a process has it.
    fn break_lock(&self, name: &Name, holder: &str) -> Result<Ended, Refusal> {
        let lock_file::Ended { ended, others, timed } = self.end(name, holder)?;
        let broken = ended.and_then(|StoredTicket { number, ticket, .. }| {
            let Ticket { token, mode, .. } = ticket.ok()?;
            Some(Broken { term: number.0, holder: token, mode })
        });
        let is_of_process = |other: &StoredTicket| {
            let is_its = |it: &Ticket| it.token == holder && it.name == *name;
            !timed.contains_key(&other.number) && other.ticket.as_ref().is_ok_and(is_its)
        };
        if others.iter().any(is_of_process) {
            let text = "a process of putex lock has the ticket of";
            self.speaker.warn(&format!("not broken: {text} {holder}; end that process"));
            let broken = broken.map(|broken| self.speaker.broke(&broken));
            return Ok((broken.unwrap_or_default(), LockExit::NotHad as u8));
        }
        self.speaker.released(match (broken, others.first()) {
            (Some(broken), _) => Released::Broken(vec![broken]),
            (None, Some(first)) => Released::NotHeldBy(of_requester(first)),
            (None, None) => Released::Absent(None),
        })
    }
}
