//! The changes of an owner's goal and ticket, and its messages to the asker about them.

use std::time::Duration;

use super::{Asker, Goal, Phase, TicketOwner};
use crate::core::event::{StoreError, StoreErrorKind as Kind};
use crate::core::tickets::{End, ToFront};
use crate::core::time::Instant;
use crate::core::write::PendingWrite;

/// Bounds of the pause before a request is repeated.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// Longer than the end of a command is waited for.
const LONG: Duration = Duration::from_secs(3600);

impl TicketOwner {
    /// Ends the ticket, if there is one. A script that is refused keeps its ticket, which may be
    /// granted.
    pub(super) fn end(&mut self, end: End, now: Instant) {
        let stays = matches!((self.asker, &end), (Asker::Script { .. }, End::Refused(..)));
        let write = PendingWrite::send(self.own_revision(), 0, now);
        (self.goal, self.why_unrenewed) = (Goal::End(end, write), None);
        match (&self.own, &self.write, &self.phase) {
            (None, None, _) => self.finish(),
            (_, _, _) if stays => self.finish(),
            (_, _, Phase::Closed | Phase::Done) => {}
            (_, _, _) => self.phase = Phase::Ending,
        }
    }

    pub(super) fn finish(&mut self) {
        if let Goal::End(end, _) = &self.goal
            && self.phase != Phase::Done
        {
            let end = end.clone();
            self.phase = Phase::Done;
            self.tell(ToFront::Ended(end));
        }
    }

    /// A granted ticket is lost. Nothing is done until its command has ended.
    pub(super) fn lose(&mut self, why: &str, now: Instant) {
        let until = self.valid_until().unwrap_or(now);
        self.goal = Goal::Lost(self.timing.kill_times_after_loss(now, until));
        self.phase = Phase::Resting(now.after(LONG), Box::new(Phase::Done));
        self.tell(ToFront::Lost(why.to_owned()));
    }

    /// Begins to get the lock in a bucket that is open.
    pub(super) fn begin(&mut self, now: Instant) {
        let writes = matches!(self.asker, Asker::Command(_)) && !self.is_soft(now);
        self.phase = if writes { Phase::Writing } else { Phase::Listing };
    }

    /// The next ticket has another key. A key is used once: the marker of its end is its last
    /// entry, whichever server is read.
    pub(super) fn take_new_key(&mut self) {
        (self.own, self.write, self.ticket.slot) = (None, None, None);
        self.ticket.is_granted = false;
        self.renews_alone = false;
        self.nonce.1 += 1;
    }

    /// The own ticket does not stand any more, or not as it was.
    pub(super) fn gone(&mut self, why: &str, now: Instant) {
        match self.goal {
            Goal::Get(_) => {
                self.take_new_key();
                self.begin(now);
            }
            Goal::Keep => self.lose(why, now),
            Goal::Lost(_) => {}
            Goal::End(ref mut end, _) => {
                // A lock that was held until now.
                if *end == End::Released && self.ticket.is_granted {
                    *end = End::Lost(format!("{why}, another may have had the lock"));
                }
                self.own = None;
                self.finish();
            }
        }
    }

    /// The own ticket waits, and V has passed by the clock of this process. A command begins anew.
    /// A script looks for the ticket again: another process of the requester may rely on it for
    /// longer.
    pub(super) fn leave_run_out(&mut self, now: Instant) {
        match self.asker {
            Asker::Command(_) => self.phase = Phase::Ending,
            Asker::Script { .. } => self.gone("its ticket has run out", now),
        }
    }

    /// A request had no result: it is made again after a pause. A ticket that is not granted yet is
    /// given up if that does not help.
    pub(super) fn failed(&mut self, error: StoreError, then: Phase, now: Instant) {
        if let Goal::Get(_) = self.goal {
            if error.kind.is_final() || self.store_limit().is_some_and(|limit| now >= limit) {
                return self.end(End::Refused(error), now);
            }
            self.tell(ToFront::Waiting { ahead: 0, why: error.text });
        } else {
            self.why_unrenewed = Some(error);
        }
        self.rest(now, then);
    }

    /// A request had no answer, or one that tells nothing.
    pub(super) fn unanswered(&mut self, why: impl Into<String>, then: Phase, now: Instant) {
        self.failed(Kind::Unreachable.error(why), then, now);
    }

    /// Returns why a granted ticket was not renewed the last time, if so.
    pub fn why_unrenewed(&self) -> Option<&StoreError> {
        self.why_unrenewed.as_ref().filter(|_| self.goal == Goal::Keep)
    }

    /// The ticket is granted. That of a command is renewed from now on.
    pub(super) fn granted(&mut self) {
        let (Some(own), Some(id)) = (&self.own, &self.bucket) else { return };
        let (term, epoch, slot) = (own.number.0, id.epoch.clone(), self.ticket.slot);
        let (valid_until, renew_at) = (own.valid_until, own.renew_at);
        match self.asker {
            Asker::Command(_) => {
                self.goal = Goal::Keep;
                self.ticket.is_granted = true;
                self.phase = Phase::Resting(renew_at, Box::new(Phase::Writing));
            }
            Asker::Script { .. } => self.phase = Phase::Done,
        }
        self.tell(ToFront::Granted { valid_until, term, epoch, slot });
    }

    /// Does the acts that are due because time has passed.
    pub(super) fn act_in_time(&mut self, now: Instant) {
        if self.goal == Goal::Keep && self.kill_times().is_some_and(|at| now >= at.terminate_at) {
            let why = self.why_unrenewed.iter().map(|why| format!(": {why}"));
            let why = format!("it was not renewed in time{}", why.collect::<String>());
            self.lose(&why, now);
        }
        if self.phase == Phase::Writing && self.has_run_out(now) {
            match (&self.goal, &self.own, &self.write) {
                (Goal::Get(_), Some(_), None) => self.leave_run_out(now),
                (Goal::Get(_), None, Some(_)) => self.take_new_key(),
                (_, _, _) => {}
            }
        }
        let Goal::End(end, write) = self.goal.clone() else { return };
        let has_run_out = self.runs_out_at().is_none_or(|until| now >= until);
        let stands = self.own.is_some() && matches!(self.asker, Asker::Command(_));
        if has_run_out && !stands {
            return self.finish();
        }
        let is_denied = self.why_unrenewed.as_ref().is_some_and(|why| why.kind.is_final());
        if now < write.first_sent.after(self.step()) && !is_denied && !has_run_out {
            return;
        }
        // The asker waits no longer for the end of the ticket.
        let kind = self.why_unrenewed.as_ref().map_or(Kind::Unreachable, |why| why.kind);
        let why = self.why_unrenewed.iter().map(|why| format!(": {why}")).collect::<String>();
        let text = format!("the own ticket may stand until it runs out{why}");
        let Asker::Command(_) = self.asker else {
            return self.end(End::Refused(kind.error(text)), now);
        };
        self.tell(ToFront::Ended(match end {
            End::NotHad(first) => End::NotHad(format!("{first}; {text}")),
            End::Refused(first) => End::Refused(first.kind.error(format!("{first}; {text}"))),
            End::Released | End::Lost(_) | End::Overlaps(_) => End::Refused(kind.error(text)),
        }));
        if has_run_out {
            // The ticket runs out by itself.
            self.phase = Phase::Done;
        }
    }

    /// The tickets of others could not be listed. A store that is too slow is asked again after as
    /// long as the request took, but one step at most: this process may have been stopped
    /// meanwhile.
    pub(super) fn not_listed(&mut self, why: String, now: Instant) {
        self.unanswered(why, Phase::Listing, now);
        if let Phase::Resting(until, _) = self.phase {
            let asked = now.since(self.requested).min(self.step());
            self.list_at = until.max(now.after(asked));
            self.renews_alone = true;
            self.rest_to_list();
        }
    }

    /// The tickets of others are listed when that is due. The own one is renewed meanwhile.
    pub(super) fn rest_to_list(&mut self) {
        let renew_at = self.own.as_ref().map_or(self.list_at, |own| own.renew_at);
        self.phase = Phase::Resting(self.list_at.min(renew_at), Box::new(Phase::Listing));
    }

    /// A request is repeated after a pause.
    pub(super) fn rest(&mut self, now: Instant, then: Phase) {
        let pause = (self.timing.renewal() / 16).clamp(PAUSE_MIN, PAUSE_MAX);
        self.phase = Phase::Resting(now.after(pause), Box::new(then));
    }

    pub(super) fn tell(&mut self, message: ToFront) {
        if self.last_message.as_ref() != Some(&message) {
            self.last_message = Some(message.clone());
            self.messages.push(message);
        }
    }
}
