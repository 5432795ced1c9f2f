//! What the store has answered: the bucket, the mark, and the own ticket.

use super::{Goal, Own, Phase, TicketOwner};
use crate::core::event::{BucketInfo, StoreError, StoreErrorKind, Written};
use crate::core::observed::Observed;
use crate::core::record::Revision;
use crate::core::tickets::{EarlierKeys, End, HAS_GONE_BACK, Mark, Ticket, ToFront};
use crate::core::time::Instant;
use crate::core::write::Outcome;

impl TicketOwner {
    pub(super) fn opened(&mut self, info: BucketInfo, now: Instant) {
        if let Err(why) = info.retires {
            return self.refuse(StoreErrorKind::Unsafe, why, now);
        }
        if self.bucket.is_none()
            && let Goal::Get(Some(limit)) = &mut self.goal
        {
            // The wait for others begins now.
            *limit = limit.after(now.since(self.began));
        }
        let is_same = self.bucket.as_ref().is_none_or(|id| *id == info.id);
        let has_gone_back = is_same && info.last < self.last;
        if self.bucket.is_none() || !is_same || has_gone_back {
            self.seen = Observed::nothing(self.seen.clock(), &info.id.epoch);
        }
        self.watched.clear();
        self.quiet_since = None;
        self.hinted = Revision(0);
        self.last = info.last;
        self.bucket = Some(info.id);
        self.phase = match (&self.own, &self.write) {
            (None, None) => Phase::ReadingMark,
            (_, _) => Phase::Writing,
        };
        if !is_same || has_gone_back {
            let why = if is_same { HAS_GONE_BACK } else { "the bucket was made anew" };
            self.gone(why, now);
            if matches!(self.goal, Goal::Get(_)) {
                self.phase = Phase::ReadingMark;
            }
        }
    }

    /// A store that was never reached is tried for T. One that was will be reached again.
    pub(super) fn not_opened(&mut self, StoreError { kind, text }: StoreError, now: Instant) {
        let is_final = match kind {
            StoreErrorKind::Unsafe | StoreErrorKind::Credentials => true,
            StoreErrorKind::Unreachable | StoreErrorKind::Unfit => {
                self.bucket.is_none() && self.tried_enough(now)
            }
        };
        if is_final && matches!(self.goal, Goal::Get(_)) {
            self.refuse(kind, text, now);
        } else {
            self.failed(text, Phase::Closed, now);
        }
    }

    /// Returns whether a store without an answer, or that takes no ticket, was tried for T.
    fn tried_enough(&self, now: Instant) -> bool {
        self.earlier(self.began.after(self.timing.lifetime())) <= now
    }

    pub(super) fn refuse(&mut self, kind: StoreErrorKind, why: String, now: Instant) {
        match self.goal {
            Goal::Get(_) => self.end(End::Refused(kind, why), now),
            // The bucket may become fit again before the ticket has run out.
            Goal::Keep | Goal::Lost(_) | Goal::End(..) => self.failed(why, self.phase.clone(), now),
        }
    }

    pub(super) fn marked(&mut self, mark: Mark, now: Instant) {
        let epoch = self.bucket.as_ref().map_or("", |id| &*id.epoch);
        let Some(mark) = mark.missing(epoch, self.timing.lifetime()) else {
            return self.begin(now);
        };
        let wait = self.timing.removal_wait(mark.lifetime);
        let why = Mark::why_missing(wait);
        self.seen.see_bucket(now);
        self.phase = Phase::Young(now.after(wait), mark);
        self.tell(ToFront::Waiting { ahead: 0, why });
    }

    pub(super) fn written(&mut self, written: Written, now: Instant) {
        match (&self.phase, &self.goal) {
            (Phase::Young(..), _) => match written {
                Written::Denied(why) if self.tried_enough(now) => {
                    self.refuse(StoreErrorKind::Unreachable, why, now);
                }
                // Whatever became of it, the mark that stands counts.
                Written::Stored(_)
                | Written::Moved(_)
                | Written::Denied(_)
                | Written::Unknown(_) => self.rest(now, Phase::ReadingMark),
            },
            (Phase::Noting(why, ..), Goal::Get(_)) => {
                // Whether it is noted or not: the next attempt begins anew at worst.
                let why = why.clone();
                self.end(End::NotHad(why), now);
            }
            (Phase::Removing(dead), _) => {
                let at = dead.last().map(|dead| dead.revision).unwrap_or_default();
                self.removed(at, written, now);
            }
            (Phase::Withdrawing, Goal::Get(_)) => match written {
                Written::Stored(_) | Written::Moved(_) => self.withdrawn(now),
                Written::Denied(why) | Written::Unknown(why) => {
                    self.failed(why, Phase::Withdrawing, now);
                }
            },
            (_, Goal::End(..)) => match written {
                Written::Stored(_) | Written::Moved(_) => {
                    self.own = None;
                    self.finish();
                }
                Written::Denied(_) | Written::Unknown(_) => self.rest(now, Phase::Writing),
            },
            (_, Goal::Get(_) | Goal::Keep | Goal::Lost(_)) => {
                if let Some(write) = &mut self.write {
                    let outcome = write.answered(written);
                    self.learned(outcome, now);
                }
            }
        }
    }

    /// More is known of the write of the own ticket.
    fn learned(&mut self, outcome: Outcome, now: Instant) {
        match outcome {
            Outcome::Held { revision, .. } if revision <= self.last => {
                self.refuse(StoreErrorKind::Unsafe, HAS_GONE_BACK.to_owned(), now);
                self.gone(HAS_GONE_BACK, now);
            }
            Outcome::Held { revision, sent } => self.stored(revision, sent, now),
            Outcome::Read => self.phase = Phase::ReadingOwn,
            Outcome::Lost => {
                self.write = None;
                self.gone("its ticket was removed or replaced", now);
            }
            // There is no ticket.
            Outcome::Refused(why) if self.own.is_none() => {
                self.write = None;
                if self.tried_enough(now) {
                    self.refuse(StoreErrorKind::Unreachable, why, now);
                } else {
                    self.failed(why, Phase::Writing, now);
                }
            }
            Outcome::Refused(why) | Outcome::Repeat(why) => self.unresolved(why, now),
        }
    }

    /// Takes the answer to the removal of a dead ticket, which was seen at this revision.
    fn removed(&mut self, at: Revision, written: Written, now: Instant) {
        match written {
            Written::Stored(_) => self.next_removal(now),
            // It was renewed, or others have removed it. What has shown it unmoved was old.
            Written::Moved(_) => {
                self.seen.forget(at);
                self.next_removal(now);
            }
            // Others may remove it, or this owner later: the store says the same again soon.
            Written::Denied(why) => {
                self.seen.forget(at);
                if !self.gave_up(&why, now) {
                    self.rest(now, self.listing_phase());
                }
            }
            Written::Unknown(why) => self.failed(why, self.listing_phase(), now),
        }
    }

    /// Returns whether others may have removed the ticket since its last acknowledged write, or
    /// since a first write that may have been stored. Then a later write may find its revision all
    /// the same: that was restored, or the key has no entry any more.
    pub(super) fn has_run_out(&self, now: Instant) -> bool {
        let own = self.own.as_ref().map(|own| own.sent);
        let sent = own.or(self.write.map(|write| write.first_sent));
        sent.is_some_and(|sent| now >= sent.after(self.timing.validity()))
    }

    /// A write of the own ticket that was sent at this instant stands.
    pub(super) fn stored(&mut self, revision: Revision, sent: Instant, now: Instant) {
        self.why_unrenewed = None;
        let has_run_out = self.has_run_out(now);
        let first_sent = self.write.take().map_or(sent, |write| write.first_sent);
        let own = self.own.get_or_insert_with(|| Own {
            number: revision,
            revision,
            sent: first_sent,
            earlier_keys: EarlierKeys::default(),
        });
        own.revision = revision;
        if !has_run_out {
            own.sent = sent;
        }
        self.last = self.last.max(revision);
        // A hint of a later revision than this was false.
        self.hinted = self.hinted.min(revision);
        match self.goal {
            Goal::Get(_) if has_run_out => self.phase = Phase::Withdrawing,
            Goal::Get(_) => self.phase = Phase::Listing,
            Goal::Keep if has_run_out => self.lose("it was renewed too late", now),
            Goal::Keep => self.granted(),
            Goal::Lost(_) => {}
            Goal::End(..) => self.phase = Phase::Writing,
        }
    }

    /// The ticket is granted, and renewed from now on.
    pub(super) fn granted(&mut self) {
        let (Some(own), Some(id)) = (&self.own, &self.bucket) else { return };
        let (valid_until, epoch) = (own.valid_until(self.timing), id.epoch.clone());
        self.goal = Goal::Keep;
        self.ticket.is_granted = true;
        self.phase = Phase::Resting(own.renew_at(self.timing), Box::new(Phase::Writing));
        let (term, slot) = (own.number.0, self.ticket.slot);
        self.tell(ToFront::Granted { valid_until, term, epoch, slot });
    }

    /// The own key was read after a write that was refused or had no answer.
    pub(super) fn own_read(&mut self, revision: Revision, ticket: Option<Ticket>, now: Instant) {
        let Some(write) = &self.write else {
            self.phase = Phase::Writing;
            return;
        };
        let own = ticket.filter(|ticket| ticket.incarnation == self.ticket.incarnation);
        let outcome = write.read(revision, own.map(|ticket| ticket.attempt));
        self.learned(outcome, now);
    }

    /// It is not known yet whether the pending write is stored.
    fn unresolved(&mut self, why: String, now: Instant) {
        match self.goal {
            // A first write that comes later runs out by itself.
            Goal::End(..) if self.own.is_none() => self.finish(),
            Goal::End(..) => {
                self.write = None;
                self.phase = Phase::Writing;
            }
            Goal::Get(_) | Goal::Keep | Goal::Lost(_) => {
                self.failed(why, Phase::Writing, now);
            }
        }
    }
}
