//! How the ticket is written, and what comes of a write.

use super::{Attempt, Grabbed, Grabber, Own, Phase};
use crate::core::event::Written;
use crate::core::record::Revision;
use crate::core::tickets::{EarlierKeys, Step, Ticket};
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
                    self.was_found = false;
                }
                self.ticket.seen = self.seen.clone();
                let expected = self.own.as_ref().map_or(self.free_at, |own| own.revision);
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
            (Phase::Noting(_), _) => self.phase = Phase::Withdrawing,
            // Another process has written it since, or it has ended before.
            (Phase::Withdrawing, Written::Stored(_) | Written::Moved(_)) => {
                let why = self.why_waiting.clone();
                self.end(Grabbed::Withdrawn(why));
            }
            (Phase::Withdrawing, Written::Denied(why) | Written::Unknown(why)) => {
                self.failed(why, Phase::Withdrawing, now);
            }
            (_, Written::Stored(revision)) => self.stored(revision, sent),
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
    fn stored(&mut self, revision: Revision, sent: Instant) {
        self.attempt = None;
        let own = self.own.get_or_insert_with(|| Own {
            number: revision,
            revision,
            sent: None,
            earlier_keys: EarlierKeys::default(),
        });
        (own.revision, own.sent) = (revision, Some(sent));
        self.last = self.last.max(revision);
        // A hint of a later revision than this was false.
        self.hinted = self.hinted.min(revision);
        self.phase = match self.leaving.take() {
            Some(Grabbed::Queued { term, ahead, why, .. }) => {
                let valid_until = sent.after(self.timing.validity());
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
            return self.stored(revision, attempt.first_sent);
        }
        if revision == attempt.expected {
            // The answer may be older than the write, which may come yet.
            return self.failed("its ticket is not stored".to_owned(), Phase::Writing, now);
        }
        self.attempt = None;
        let had_one = self.own.take().is_some();
        if own.is_none() {
            self.free_at = revision;
        }
        self.phase = if own.is_none() && had_one { Phase::Closed } else { Phase::Listing };
    }
}
