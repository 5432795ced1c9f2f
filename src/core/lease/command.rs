//! The decisions of `putex lease`: one command that claims a lease, extends or expires it, or asks
//! whether it is held.
//!
//! Every write names the revision that it replaces, so a command that decides by an old read is
//! refused. An answer that rests on an entry that is *not* there, or not any more, is different: a
//! server that does not know yet that it is not the leader may have given it. In a bucket of
//! several copies such an answer is confirmed first, by a write that names the revision that was
//! read.

use std::time::Duration;

use super::step::{LeaseEnd, LeaseInput, LeaseStep, LeaseTask, LeaseTurn, LeaseView};
use super::{LeaseEntry, LeaseState, LeaseTime, StoredLease};
use crate::core::event::{BucketInfo, StoreError, StoreErrorKind as Kind, Written};
use crate::core::observed::{Observed, WriteBounds};
use crate::core::record::{BucketId, Revision};
use crate::core::tickets::Mark;
use crate::core::time::Instant;
use crate::core::timing::REACH_MAX;
use crate::core::write::{Outcome, PendingWrite};

/// A request has an answer within this time, or is made again.
pub const REQUEST_MAX: Duration = Duration::from_secs(5);

/// The pause before a request is repeated.
const PAUSE: Duration = Duration::from_millis(100);

/// A command for a lease.
#[derive(Clone, Debug)]
pub struct LeaseCommand {
    task: LeaseTask,
    drift_ppm: u32,
    /// The number of the last write, which no other write has.
    attempt: u64,
    /// When the step under way began.
    began: Instant,
    /// When a store that fails is given up.
    until: Instant,
    /// Until when the command waits for a lease to run out.
    wait_until: Instant,
    bucket: Option<BucketId>,
    /// The mark of the bucket, where that may be lost.
    mark: Option<Mark>,
    replicas: u32,
    notes: Observed,
    /// The last read of the lease, and the instant at which that read began.
    last_read: (StoredLease, Instant),
    /// The last write of the lease in this bucket.
    write: Option<PendingWrite>,
    /// The lease that the last write expires, if it is to expire one.
    expiring: Option<LeaseView>,
    step: LeaseStep,
}

impl LeaseCommand {
    /// Returns a command. `attempt` is a number that no other command has.
    pub fn new(task: LeaseTask, drift_ppm: u32, attempt: u64, now: Instant) -> LeaseCommand {
        let wait = if let LeaseTask::Expire { wait } = task { wait } else { Duration::ZERO };
        LeaseCommand {
            task,
            drift_ppm,
            attempt,
            began: now,
            until: now.after(REACH_MAX.max(wait)),
            wait_until: now.after(wait),
            bucket: None,
            mark: None,
            replicas: 1,
            notes: Observed::default(),
            last_read: (StoredLease { revision: Revision(0), attempt: 0, lease: None }, now),
            write: None,
            expiring: None,
            step: LeaseStep::Open,
        }
    }

    /// Returns the notes of this host on the lease.
    pub fn notes(&self) -> &Observed {
        &self.notes
    }

    /// Returns the next step, which begins at this instant.
    pub fn next(&mut self, now: Instant) -> LeaseTurn {
        self.began = now;
        let mut by = now.after(REQUEST_MAX).min(self.until).max(now.after(REQUEST_MAX / 4));
        let at = self.last_read.0.revision;
        if let LeaseStep::Write(_) = self.step {
            match self.write.as_mut().filter(|write| write.expected == at) {
                Some(write) => write.send_again(now),
                None => {
                    self.attempt = self.attempt.wrapping_add(1);
                    self.write = Some(PendingWrite::send(at, self.attempt, now));
                }
            }
        } else if self.step == LeaseStep::Open && self.bucket.is_none() {
            by = by.max(self.until);
        }
        LeaseTurn { step: self.step.clone(), at, attempt: self.attempt, by }
    }

    /// Takes in the result of a step.
    pub fn handle(&mut self, input: LeaseInput, now: Instant) {
        match input {
            LeaseInput::Opened(Ok(opened)) => self.opened(*opened),
            LeaseInput::Opened(Err(error)) => self.failed(error, now),
            LeaseInput::Read(Ok(stored)) => self.read(stored, now),
            LeaseInput::Read(Err(why)) => self.failed(Kind::Unreachable.error(why), now),
            LeaseInput::Written(written) => match self.step.clone() {
                LeaseStep::Write(lease) => self.written(written, lease, now),
                LeaseStep::Confirm(then) => self.confirmed(written, then, now),
                LeaseStep::WriteMark(_) => match written {
                    // The mark that stands counts, whatever the result of this write is.
                    Written::Stored(_) | Written::Moved(_) => self.step = LeaseStep::Open,
                    Written::Denied(error) => self.failed(error, now),
                    Written::Unknown(why) => self.failed(Kind::Unreachable.error(why), now),
                },
                LeaseStep::Open | LeaseStep::Read | LeaseStep::Rest(_) | LeaseStep::Exit(_) => {}
            },
            LeaseInput::Rested => {
                if let LeaseStep::Rest(until) = self.step
                    && now >= until
                {
                    self.step = LeaseStep::Open;
                }
            }
        }
    }

    fn end(&mut self, end: LeaseEnd) {
        self.step = LeaseStep::Exit(end);
    }

    /// A request had no result: the command begins again after a pause, until it gives up.
    fn failed(&mut self, error: StoreError, now: Instant) {
        let StoreError { kind, text } = error;
        if now < self.until && !kind.is_final() {
            self.step = LeaseStep::Rest(now.after(PAUSE));
            return;
        }
        let doubt = match self.write.is_some_and(|write| write.is_unknown) {
            true => "; the last write may have been stored",
            false => "",
        };
        self.end(LeaseEnd::Refused(kind.error(format!("{text}{doubt}"))));
    }

    fn opened(&mut self, (info, mark, notes): (BucketInfo, Mark, Observed)) {
        if self.bucket.as_ref() != Some(&info.id) {
            // The notes and the write are those of another bucket.
            (self.notes, self.write, self.expiring) = (notes, None, None);
        }
        (self.bucket, self.mark) = (Some(info.id), Some(mark).filter(|_| info.may_be_lost));
        self.replicas = info.replicas;
        self.step = LeaseStep::Read;
    }

    fn read(&mut self, stored: StoredLease, now: Instant) {
        let (began, is_exact) = (self.began, self.replicas == 1);
        let entry = (stored.revision, stored.attempt);
        let is_new = self.notes.read(entry, (began, now), is_exact);
        self.last_read = (stored, began);
        if is_new {
            return self.decide(now);
        }
        match is_exact {
            // Somebody has removed the later entries.
            true => self.read_anew(now),
            false => self.step = LeaseStep::Confirm(None),
        }
    }

    /// Drops the notes, and decides by the last read alone.
    fn read_anew(&mut self, now: Instant) {
        self.notes.forget_all();
        let (StoredLease { revision, attempt, .. }, began) = &self.last_read;
        self.notes.read((*revision, *attempt), (*began, now), true);
        self.decide(now);
    }

    /// Decides by the last read.
    fn decide(&mut self, now: Instant) {
        let lease = match self.last_read.0.lease.clone().transpose() {
            Err(why) => return self.end(LeaseEnd::Refused(Kind::Unsafe.error(why))),
            Ok(lease) => lease,
        };
        let revision = self.last_read.0.revision;
        let as_known = |lease| LeaseView::of(lease, revision, &self.notes, self.drift_ppm, now);
        let view = lease.as_ref().map(as_known);
        match (self.task.clone(), lease.zip(view)) {
            (LeaseTask::Claim { holder, at_least }, None) => {
                self.begin_claim(holder, at_least, now)
            }
            (LeaseTask::Claim { .. } | LeaseTask::Extend { .. }, Some((it, _)))
                if let Some(sent) = self.sent_what_was_read() =>
            {
                self.had(&it, revision, sent, now);
            }
            (LeaseTask::Claim { .. }, Some((_, view))) => self.end(LeaseEnd::Taken(view)),
            (LeaseTask::Extend { holder, at_least }, Some((it, _))) if it.holder == holder => {
                self.extend(it, at_least, now);
            }
            (LeaseTask::Extend { .. }, standing) => {
                let view = standing.map(|(_, view)| view);
                self.end_confirmed(LeaseEnd::NotHad(view));
            }
            (LeaseTask::Expire { .. }, None) => {
                let own = self.sent_what_was_read().and(self.expiring.take());
                match own {
                    Some(view) => self.end(LeaseEnd::Expired(view)),
                    None => self.end_confirmed(LeaseEnd::Absent),
                }
            }
            (LeaseTask::Expire { .. }, Some((_, view))) => {
                // The store answers: its time begins anew.
                self.until = now.after(REACH_MAX).max(self.wait_until);
                if view.state == LeaseState::RunOut {
                    self.expiring = Some(view);
                    self.step = LeaseStep::Write(None);
                } else if view.run_out_at <= self.wait_until {
                    self.step = LeaseStep::Rest(view.run_out_at);
                } else {
                    self.end(LeaseEnd::TooEarly(view));
                }
            }
            // A lease of a lost bucket may be held.
            (LeaseTask::Check { .. }, None) if self.missing_mark(Duration::ZERO).is_some() => {
                self.end(LeaseEnd::Checked(LeaseState::Unsure, None));
            }
            (LeaseTask::Check { .. }, None) => {
                self.end_confirmed(LeaseEnd::Checked(LeaseState::RunOut, None));
            }
            (LeaseTask::Check { holder }, Some((it, view))) => {
                let is_anothers = holder.is_some_and(|holder| holder != it.holder);
                if is_anothers || view.state == LeaseState::RunOut {
                    self.end_confirmed(LeaseEnd::Checked(LeaseState::RunOut, Some(view)));
                } else {
                    self.end(LeaseEnd::Checked(view.state, Some(view)));
                }
            }
        }
    }

    /// Ends in this way once the last read is known to be no old one.
    fn end_confirmed(&mut self, end: LeaseEnd) {
        match self.replicas {
            1 => self.end(end),
            _ => self.step = LeaseStep::Confirm(Some(end)),
        }
    }

    fn confirmed(&mut self, written: Written, end: Option<LeaseEnd>, now: Instant) {
        match (written, end) {
            (Written::Stored(_), end) => {
                let (StoredLease { revision, .. }, began) = &self.last_read;
                self.notes.confirm(*revision, *began);
                match end {
                    Some(end) => self.end(end),
                    None => self.read_anew(now),
                }
            }
            // This end is safe without a confirmation: the holder relies on the lease no more.
            (Written::Denied(_), Some(end @ LeaseEnd::NotHad(_))) => self.end(end),
            (Written::Denied(_), Some(LeaseEnd::Checked(_, view))) => {
                self.end(LeaseEnd::Checked(LeaseState::Unsure, view));
            }
            (Written::Denied(error), _) => self.failed(error, now),
            (Written::Unknown(why), _) => self.failed(Kind::Unreachable.error(why), now),
            (Written::Moved(_), _) => {
                let why = "the lease was read from a server that is behind";
                self.failed(Kind::Unreachable.error(why), now);
            }
        }
    }

    /// Returns the earliest instant at which this command has sent the entry of the last read;
    /// `None` if the entry is not of this command.
    fn sent_what_was_read(&self) -> Option<Instant> {
        let StoredLease { revision, attempt, .. } = self.last_read.0;
        let read = self.write?.read(revision, Some(attempt));
        if let Outcome::Held { sent, .. } = read { Some(sent) } else { None }
    }

    /// Returns the mark that the bucket lacks for leases of this lifetime, if it lacks one.
    fn missing_mark(&self, lifetime: Duration) -> Option<Mark> {
        let epoch = self.bucket.as_ref().map_or("", |id| &*id.epoch);
        self.mark.clone()?.missing(epoch, lifetime)
    }

    /// Nobody has the lease: claims it, unless the bucket may have replaced a lost one.
    fn begin_claim(&mut self, holder: String, at_least: Duration, now: Instant) {
        let duration = LeaseTime::guaranteeing(at_least, self.drift_ppm).duration;
        let Some(missing) = self.missing_mark(duration) else {
            self.step = LeaseStep::Write(Some(LeaseEntry { holder, duration, term: None }));
            return;
        };
        let time = LeaseTime { duration: missing.lifetime, drift_ppm: self.drift_ppm };
        let since = self.notes.see_bucket(now);
        let old_at = time.run_out_at(WriteBounds::of_read(None, since));
        if now >= old_at {
            self.step = LeaseStep::WriteMark(missing);
        } else {
            self.end(LeaseEnd::Young(old_at.since(now)));
        }
    }

    fn extend(&mut self, lease: LeaseEntry, at_least: Duration, now: Instant) {
        let revision = self.last_read.0.revision;
        let time = LeaseTime { duration: lease.duration, drift_ppm: self.drift_ppm };
        let written = self.notes.written(revision);
        let term = lease.term_at(revision);
        match time.extended(written, at_least, now) {
            Some(time) => {
                let (duration, term) = (time.duration, Some(term));
                self.step = LeaseStep::Write(Some(LeaseEntry { duration, term, ..lease }));
            }
            None => {
                let valid_until = written.and_then(|written| time.held_until(written));
                self.end(LeaseEnd::Had { term, valid_until: valid_until.unwrap_or(now) });
            }
        }
    }

    fn written(&mut self, written: Written, lease: Option<LeaseEntry>, now: Instant) {
        let Some(write) = &mut self.write else { return };
        let replaced = write.expected;
        match (write.answered(written), lease) {
            // A bucket that was made anew meanwhile has no entry of this key either: the lease is
            // read, to know whether this write was stored in the bucket that was opened.
            (Outcome::Held { .. }, Some(_)) if replaced == Revision(0) && self.mark.is_some() => {
                self.step = LeaseStep::Read;
            }
            (Outcome::Held { revision, sent }, Some(lease)) => {
                self.had(&lease, revision, sent, now);
            }
            (Outcome::Held { revision, sent }, None) => {
                self.notes.write((revision, self.attempt), (sent, now));
                let view = self.expiring.take();
                self.end(view.map_or(LeaseEnd::Absent, LeaseEnd::Expired));
            }
            (Outcome::Lost | Outcome::Replaced | Outcome::Read, _) if now < self.until => {
                self.step = LeaseStep::Read;
            }
            (Outcome::Lost | Outcome::Replaced | Outcome::Read, _) => {
                let why = "others have written the lease again and again";
                self.failed(Kind::Unreachable.error(why), now);
            }
            (Outcome::Refused(error), _) => self.failed(error, now),
            (Outcome::Repeat(why), _) => self.failed(Kind::Unreachable.error(why), now),
        }
    }

    /// This command wrote the lease that stands at this revision, and sent it at `sent` at the
    /// earliest.
    fn had(&mut self, lease: &LeaseEntry, revision: Revision, sent: Instant, now: Instant) {
        self.notes.write((revision, self.attempt), (sent, now));
        let time = LeaseTime { duration: lease.duration, drift_ppm: self.drift_ppm };
        let (term, valid_until) = (lease.term_at(revision), time.guaranteed_until(sent));
        self.end(match now < valid_until {
            true => LeaseEnd::Had { term, valid_until },
            false => LeaseEnd::Over(term),
        });
    }
}

#[cfg(test)]
mod tests;
