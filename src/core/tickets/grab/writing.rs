//! How the ticket is written, and what comes of a write.

use super::{Attempt, Grabbed, Grabber, Own, Phase};
use crate::core::event::{StoreErrorKind, Written};
use crate::core::record::Revision;
use crate::core::tickets::{EarlierKeys, HAS_GONE_BACK, Step, Ticket};
use crate::core::time::Instant;

impl Grabber {
    /// Returns the next write of the ticket. One without an answer is repeated unchanged.
    pub(super) fn next_write(&mut self, now: Instant, by: Instant) -> Step {
        let attempt = match self.attempt {
            Some(attempt) => attempt,
            None => {
                self.ticket.attempt = self.ticket.attempt.wrapping_add(1);
                if self.own.is_none() {
                    self.ticket.lifetime = self.timing.lifetime();
                }
                self.ticket.seen = self.seen.clone();
                let expected = self.own.as_ref().map_or(Revision(0), |own| own.revision);
                Attempt { expected, first_sent: now }
            }
        };
        self.attempt = Some(attempt);
        let number = self.own.as_ref().map(|own| own.number);
        let (at, ticket) = (attempt.expected, self.ticket.clone());
        match self.leaving {
            Some(_) => Step::Write(at, number, ticket, by),
            None => Step::WriteAndList(at, number, ticket, self.earlier_keys(), by),
        }
    }

    pub(super) fn written(&mut self, written: Written, sent: Instant, now: Instant) {
        match (self.phase.clone(), written) {
            // Whatever became of it, the mark that stands counts.
            (Phase::WritingMark, Written::Stored(_) | Written::Moved(_)) => {
                self.phase = Phase::ReadingMark;
            }
            (Phase::WritingMark, Written::Denied(why) | Written::Unknown(why)) => {
                self.failed(why, Phase::ReadingMark, now);
            }
            (Phase::Removing(_), Written::Stored(_)) => self.next_removal(now),
            // It was renewed, or others have removed it. What has shown it unmoved may be old.
            (Phase::Removing(_), Written::Moved(_)) => {
                self.next_removal(now);
                if self.phase == Phase::Listing {
                    self.pause(Phase::Listing, now);
                }
            }
            (Phase::Removing(_), Written::Denied(why) | Written::Unknown(why)) => {
                self.failed(why, Phase::Listing, now);
            }
            (Phase::Noting(_), _) => self.leave_without_ticket(),
            // Another process has written it since, or it has ended before.
            (Phase::Withdrawing(grabbed), Written::Stored(_) | Written::Moved(_)) => {
                self.take_new_key();
                self.phase = grabbed.map_or(Phase::Listing, Phase::Done);
            }
            (Phase::Withdrawing(grabbed), Written::Denied(why) | Written::Unknown(why)) => {
                self.failed(why, Phase::Withdrawing(grabbed), now);
            }
            (_, Written::Stored(revision)) if revision <= self.last => {
                self.end(Grabbed::Refused(StoreErrorKind::Unsafe, HAS_GONE_BACK.to_owned()));
            }
            (_, Written::Stored(revision)) => self.stored(revision, sent, now),
            (_, Written::Moved(_)) => {
                self.leaving = None;
                self.phase = Phase::ReadingOwn;
            }
            (_, Written::Denied(why)) => {
                if self.attempt.is_some_and(|attempt| attempt.first_sent == sent) {
                    // No copy of it was sent before.
                    self.attempt = None;
                }
                self.failed(why, Phase::Writing, now);
            }
            (_, Written::Unknown(why)) => self.failed(why, Phase::Writing, now),
        }
    }

    /// A write of the ticket that was sent at this instant stands.
    fn stored(&mut self, revision: Revision, sent: Instant, now: Instant) {
        let has_run_out = self.has_run_out(now);
        let first_sent = self.attempt.take().map_or(sent, |attempt| attempt.first_sent);
        let (element, validity) = (self.key_element(), self.validity());
        let own = self.own.get_or_insert_with(|| Own {
            element,
            number: revision,
            revision,
            sent: first_sent,
            validity,
            is_written: true,
            earlier_keys: EarlierKeys::default(),
        });
        own.revision = revision;
        self.last = self.last.max(revision);
        // A hint of a later revision than this was false.
        self.hinted = self.hinted.min(revision);
        if has_run_out {
            self.leaving = None;
            self.phase = Phase::Withdrawing(None);
            return;
        }
        (own.sent, own.validity, own.is_written) = (sent, validity, true);
        let valid_until = own.valid_until();
        self.phase = match self.leaving.take() {
            Some(Grabbed::Queued { term, ahead, why, .. }) => {
                Phase::Done(Grabbed::Queued { term, ahead, valid_until, why })
            }
            Some(_) | None => Phase::Listing,
        };
    }

    /// The key was read after a write that was refused or had no answer.
    pub(super) fn own_read(&mut self, revision: Revision, ticket: Option<Ticket>, now: Instant) {
        let Some(attempt) = self.attempt else {
            self.phase = Phase::Listing;
            return;
        };
        let own = ticket.filter(|ticket| ticket.incarnation == self.ticket.incarnation);
        if own.as_ref().is_some_and(|own| own.attempt == self.ticket.attempt) {
            return self.stored(revision, attempt.first_sent, now);
        }
        if revision == attempt.expected {
            // The answer may be older than the write, which may come yet.
            return self.failed("its ticket is not stored".to_owned(), Phase::Writing, now);
        }
        // Another process of the requester has written it, or it has ended.
        self.take_new_key();
        self.phase = if own.is_none() { Phase::Closed } else { Phase::Listing };
    }
}
