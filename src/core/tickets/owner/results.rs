//! The answers of the store: the bucket, the mark, and the own ticket.

use super::{Asker, Goal, Own, Phase, TicketOwner};
use crate::core::event::{StoreError, StoreErrorKind as Kind, Written};
use crate::core::observed::Observed;
use crate::core::record::Revision;
use crate::core::tickets::{EarlierKeys, End, Ticket, TicketsOpened};
use crate::core::time::Instant;
use crate::core::write::Outcome;

/// Why a ticket is refused if its number is not above all revisions that were seen before.
const HAS_GONE_BACK: &str = "the bucket has gone back";

const IS_REPLACED: &str = "its ticket was removed or replaced";

impl TicketOwner {
    pub(super) fn opened(&mut self, opened: TicketsOpened, now: Instant) {
        let TicketsOpened { info, mark, notes } = opened;
        if let Err(why) = info.retires {
            return self.refuse(Kind::Unsafe.error(why), now);
        }
        if self.bucket.is_none() {
            // The wait for others begins now.
            if let Goal::Get(Some(limit)) = &mut self.goal {
                *limit = limit.after(now.since(self.began));
            }
            self.began = now;
        }
        let is_same = self.bucket.as_ref() == Some(&info.id);
        let has_gone_back = is_same && info.last < self.last;
        let (was_open, is_another) = (self.bucket.is_some(), !is_same || has_gone_back);
        if is_another {
            self.seen = Observed::nothing(self.seen.clock(), &info.id.epoch);
        }
        self.seen.learn(&notes.1, now);
        self.noted = notes;
        self.missing_mark = mark.missing(&info.id.epoch, self.timing.lifetime());
        self.watched.clear();
        self.renews_alone = false;
        self.quiet_since = None;
        self.hinted = Revision(0);
        // A copy of the write that is under way may be among the entries that are there now.
        if is_another || self.write.is_none() {
            self.last = info.last;
        }
        self.bucket = Some(info.id);
        if was_open && is_another {
            let why = if is_same { HAS_GONE_BACK } else { "the bucket was made anew" };
            return self.gone(why, now);
        }
        self.phase = match (&self.goal, &self.own, &self.write) {
            (_, None, None) => return self.begin(now),
            (Goal::End(..), _, _) => Phase::Ending,
            (Goal::Get(_) | Goal::Keep | Goal::Lost(_), _, _) => Phase::Writing,
        };
    }

    /// A store that was never reached is tried for T, any other store without a limit.
    pub(super) fn not_opened(&mut self, error: StoreError, now: Instant) {
        if self.bucket.is_none() {
            self.not_taken(error, Phase::Closed, now);
        } else {
            self.failed(error, Phase::Closed, now);
        }
    }

    /// The store has not taken a ticket yet: it is tried for T.
    fn not_taken(&mut self, error: StoreError, then: Phase, now: Instant) {
        if self.earlier(self.began.after(self.timing.lifetime())) <= now {
            self.refuse(error, now);
        } else {
            self.failed(error, then, now);
        }
    }

    fn refuse(&mut self, error: StoreError, now: Instant) {
        match self.goal {
            Goal::Get(_) => self.end(End::Refused(error), now),
            // The bucket may become fit again before the ticket has run out.
            Goal::Keep | Goal::Lost(_) | Goal::End(..) => {
                self.failed(error, self.phase.clone(), now);
            }
        }
    }

    pub(super) fn written(&mut self, written: Written, now: Instant) {
        match self.phase.clone() {
            Phase::WritingMark(_) => match written {
                Written::Stored(_) | Written::Moved(_) => self.phase = Phase::Closed,
                Written::Denied(error) => self.not_taken(error, Phase::Closed, now),
                Written::Unknown(why) => self.unanswered(why, Phase::Closed, now),
            },
            // A refusal does no harm: without the notes, the next attempt waits for longer.
            Phase::Noting(leaving) => self.leave(leaving, now),
            Phase::Removing(dead) => self.removed(dead, written, now),
            Phase::Ending => match (&mut self.goal, written) {
                (Goal::End(_, write), written) => {
                    let outcome = write.answered(written);
                    self.ended(outcome, now);
                }
                (_, Written::Stored(_) | Written::Moved(_)) => {
                    self.take_new_key();
                    self.quiet_since = None;
                    self.rest(now, Phase::Listing);
                }
                (_, Written::Denied(error)) => self.failed(error, Phase::Ending, now),
                (_, Written::Unknown(why)) => self.unanswered(why, Phase::Ending, now),
            },
            Phase::Closed
            | Phase::Writing
            | Phase::ReadingOwn
            | Phase::Listing
            | Phase::Watching(_)
            | Phase::Resting(..)
            | Phase::Done => {
                if let Some(write) = &mut self.write {
                    let outcome = write.answered(written);
                    self.learned(outcome, now);
                }
            }
        }
    }

    /// Handles the outcome of the write that ends the own ticket. Where a script finds another
    /// revision, another process of its requester may rely on the ticket.
    fn ended(&mut self, outcome: Outcome, now: Instant) {
        match (outcome, self.asker) {
            (Outcome::Lost | Outcome::Replaced | Outcome::Read, Asker::Command(_)) => {
                self.phase = Phase::ReadingOwn;
            }
            (Outcome::Held { .. } | Outcome::Lost | Outcome::Replaced | Outcome::Read, _) => {
                self.own = None;
                self.finish();
            }
            (Outcome::Refused(error), _) => self.failed(error, Phase::Ending, now),
            (Outcome::Repeat(why), _) => self.unanswered(why, Phase::Ending, now),
        }
    }

    /// Handles the outcome of the pending write of the own ticket.
    fn learned(&mut self, outcome: Outcome, now: Instant) {
        match outcome {
            Outcome::Held { revision, .. } if revision <= self.last => {
                self.refuse(Kind::Unsafe.error(HAS_GONE_BACK), now);
                self.gone(HAS_GONE_BACK, now);
            }
            Outcome::Held { revision, sent } => self.stored(revision, sent, now),
            Outcome::Read => self.phase = Phase::ReadingOwn,
            Outcome::Lost | Outcome::Replaced => {
                self.write = None;
                self.gone(IS_REPLACED, now);
            }
            // There is no ticket.
            Outcome::Refused(error) if self.own.is_none() => {
                self.write = None;
                self.not_taken(error, Phase::Writing, now);
            }
            Outcome::Refused(error) => self.unresolved(error, now),
            Outcome::Repeat(why) => self.unresolved(Kind::Unreachable.error(why), now),
        }
    }

    /// The outcome of the pending write is not known yet.
    fn unresolved(&mut self, error: StoreError, now: Instant) {
        match self.goal {
            // A first write that comes later runs out by itself.
            Goal::End(..) if self.own.is_none() => self.finish(),
            Goal::End(..) => {
                self.write = None;
                self.phase = Phase::Ending;
            }
            Goal::Get(_) | Goal::Keep | Goal::Lost(_) => self.failed(error, Phase::Writing, now),
        }
    }

    /// The own key was read after a write that was refused or had no answer.
    pub(super) fn own_read(&mut self, revision: Revision, ticket: Option<Ticket>, now: Instant) {
        let own = ticket.filter(|ticket| ticket.incarnation == self.ticket.incarnation);
        if let Some(write) = &self.write {
            let outcome = write.read(revision, own.map(|ticket| ticket.attempt));
            self.learned(outcome, now);
        } else if let Goal::End(_, write) = self.goal {
            self.read_instead_of_end(revision, own.is_some(), write.is_unknown, now);
        }
    }

    /// The own key was read since the write that ends the ticket found another revision.
    fn read_instead_of_end(
        &mut self,
        revision: Revision,
        stands: bool,
        may_be_ended: bool,
        now: Instant,
    ) {
        match &mut self.own {
            // A renewal without an answer was stored after it had been looked for.
            Some(own) if stands && revision > own.revision => {
                own.revision = revision;
                self.phase = Phase::Ending;
            }
            // The read is older than the write.
            Some(own) if stands && revision == own.revision => self.rest(now, Phase::Ending),
            // An earlier copy of the write may have ended the ticket.
            _ if may_be_ended => {
                self.own = None;
                self.finish();
            }
            _ => self.gone(IS_REPLACED, now),
        }
    }

    /// A write of the own ticket that was sent at this instant stands.
    fn stored(&mut self, revision: Revision, sent: Instant, now: Instant) {
        self.why_unrenewed = None;
        let has_run_out = self.has_run_out(now);
        let first_sent = self.write.take().map_or(sent, |write| write.first_sent);
        let (element, validity, step) = (self.key_element(), self.validity(), self.step());
        let lifetime = self.ticket.lifetime;
        let own = self.own.get_or_insert_with(|| Own {
            element,
            number: revision,
            revision,
            lifetime,
            valid_until: first_sent.after(validity),
            renew_at: first_sent.after(step),
            earlier_keys: EarlierKeys::default(),
        });
        (own.revision, own.lifetime) = (revision, lifetime);
        if !has_run_out {
            (own.valid_until, own.renew_at) = (sent.after(validity), sent.after(step));
        }
        self.last = self.last.max(revision);
        // A hint of a later revision than this was false.
        self.hinted = self.hinted.min(revision);
        match self.goal {
            Goal::Get(_) if has_run_out => self.leave_run_out(now),
            Goal::Get(_) if self.ticket.is_granted => self.granted(),
            Goal::Get(_) if self.lists_later(now) => {
                self.renews_alone = false;
                self.rest_to_list();
            }
            Goal::Get(_) => self.phase = Phase::Listing,
            Goal::Keep if has_run_out => self.lose("it was renewed too late", now),
            Goal::Keep => self.granted(),
            Goal::Lost(_) => {}
            Goal::End(..) => self.phase = Phase::Ending,
        }
    }
}
