//! How the ticket is written, and what comes of a write.

use super::{Grabbed, Grabber, Own, Phase};
use crate::core::event::{StoreErrorKind, Written};
use crate::core::record::Revision;
use crate::core::tickets::{EarlierKeys, HAS_GONE_BACK, Step, Ticket};
use crate::core::time::Instant;
use crate::core::write::{Outcome, PendingWrite};

impl Grabber {
    /// Returns the next write of the ticket. One without an answer is repeated unchanged.
    pub(super) fn next_write(&mut self, now: Instant, by: Instant) -> Step {
        let mut write = match self.write {
            Some(write) => write,
            None => {
                self.ticket.attempt = self.ticket.attempt.wrapping_add(1);
                if self.own.is_none() {
                    self.ticket.lifetime = self.timing.lifetime();
                }
                self.ticket.seen = self.seen.clone();
                let expected = self.own.as_ref().map_or(Revision(0), |own| own.revision);
                PendingWrite::send(expected, self.ticket.attempt, now)
            }
        };
        write.send_again(now);
        self.write = Some(write);
        let number = self.own.as_ref().map(|own| own.number);
        let (at, ticket) = (write.expected, self.ticket.clone());
        match self.leaving {
            Some(_) => Step::Write(at, number, ticket, by),
            None => Step::WriteAndList(at, number, ticket, self.earlier_keys(), by),
        }
    }

    pub(super) fn written(&mut self, written: Written, now: Instant) {
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
            (_, written) => {
                if let Some(write) = &mut self.write {
                    let outcome = write.answered(written);
                    self.learned(outcome, now);
                }
            }
        }
    }

    /// More is known of the write of the ticket.
    fn learned(&mut self, outcome: Outcome, now: Instant) {
        match outcome {
            Outcome::Held { revision, .. } if revision <= self.last => {
                self.end(Grabbed::Refused(StoreErrorKind::Unsafe, HAS_GONE_BACK.to_owned()));
            }
            Outcome::Held { revision, sent } => self.stored(revision, sent, now),
            Outcome::Read => {
                self.leaving = None;
                self.phase = Phase::ReadingOwn;
            }
            // Another process of the requester has written it, or it has ended.
            Outcome::Lost => {
                self.leaving = None;
                self.take_new_key();
                self.phase = Phase::Closed;
            }
            Outcome::Refused(why) => {
                self.write = None;
                self.failed(why, Phase::Writing, now);
            }
            Outcome::Repeat(why) => self.failed(why, Phase::Writing, now),
        }
    }

    /// A write of the ticket that was sent at this instant stands.
    fn stored(&mut self, revision: Revision, sent: Instant, now: Instant) {
        let has_run_out = self.has_run_out(now);
        let first_sent = self.write.take().map_or(sent, |write| write.first_sent);
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
        let Some(write) = &self.write else {
            self.phase = Phase::Listing;
            return;
        };
        let own = ticket.filter(|ticket| ticket.incarnation == self.ticket.incarnation);
        let outcome = write.read(revision, own.map(|ticket| ticket.attempt));
        self.learned(outcome, now);
    }
}
