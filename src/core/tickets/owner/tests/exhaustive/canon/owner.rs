//! The parts of an owner that matter.

use super::super::*;
use super::{Form, owner_of};
use crate::core::observed::{BUCKET, Observed};
use crate::core::record::Revision;

impl Form<'_> {
    pub(super) fn owner(&mut self, owner: &TicketOwner, asker: &Asker) {
        let TicketOwner { timing: _, ticket, nonce: _, asker: _, began, goal, phase, .. } = owner;
        let TicketOwner { bucket, missing_mark, own, write, last, stood_at, .. } = owner;
        let TicketOwner { hinted, watched, quiet_since, seen, noted: _, last_message, .. } = owner;
        let TicketOwner { list_at, renews_alone, why_unrenewed: _, messages, .. } = owner;
        assert!(messages.is_empty(), "they were taken");
        assert_eq!(*stood_at, None, "no script is searched");
        self.ticket(ticket);
        // Of the time since the beginning, only whether these times have passed matters.
        let most = asker.soft.and_then(|soft| soft.hard_after).unwrap_or_default();
        let most = most.max(Duration::from_micros(LIFE));
        self.add(self.now.since(*began).min(most).as_nanos() as i64);
        let key = &owner.key_element();
        self.goal(goal, key);
        self.phase(phase);
        self.option(bucket.as_ref(), |form, id| form.epoch(&id.epoch));
        self.option(missing_mark.as_ref(), Self::mark);
        self.option(own.as_ref(), |form, own| {
            let Own { element: _, number, revision, lifetime, .. } = own;
            let Own { valid_until, renew_at, earlier_keys, .. } = own;
            form.add(lifetime.as_micros() as i64);
            form.number(*number);
            form.revision_of(key, *revision);
            form.instant(*valid_until);
            form.instant(*renew_at);
            form.option(earlier_keys.0.as_ref(), |form, keys| form.keys(keys));
        });
        self.option(*write, |form, write| {
            form.add(ticket.attempt as i64 - write.attempt as i64);
            form.write(key, write);
        });
        // No bucket goes back.
        self.option(asker.soft.map(|_| *last), Self::revision);
        self.hinted(*hinted);
        self.keys(watched);
        self.instant(*list_at.max(&self.now));
        self.add(i64::from(*renews_alone));
        self.option(*quiet_since, Self::instant);
        self.seen(seen);
        self.message(last_message.as_ref());
    }

    /// Takes in the tickets that stand, and those that may be met again in an old listing.
    fn seen(&mut self, seen: &Observed) {
        let entries = &self.state.bucket.entries;
        let key_of = |at| entries.iter().find(|(_, entry)| entry.revision == at).map(|it| it.0);
        let mut known: Vec<_> = seen.all().map(|(at, since)| (key_of(at.0), at, since)).collect();
        known.retain(|(key, at, _)| key.is_some() || *at == BUCKET || !self.is_calm);
        known.sort_by_key(|(key, at, _)| (key.map(|key| self.places[owner_of(key).0]), *at));
        self.add(known.len() as i64);
        for (key, at, since) in known {
            self.option(key, |form, key| form.key(key));
            if !self.is_calm {
                self.revision(at);
            }
            self.newest = self.newest.max(at.0);
            self.instant(since);
        }
    }

    /// A listing has to reach this revision.
    pub(super) fn hinted(&mut self, revision: Revision) {
        self.newest = self.newest.max(revision.0);
        if !self.is_calm {
            self.revision(revision);
        }
    }

    /// Takes in the last message: it is not sent again. A message about a wait is heard by nobody.
    fn message(&mut self, last: Option<&ToFront>) {
        match last {
            None | Some(ToFront::Waiting { .. }) => self.add(0),
            Some(ToFront::Granted { valid_until, term, epoch, slot }) => {
                self.add(1);
                self.instant(*valid_until);
                self.number(Revision(*term));
                self.epoch(epoch);
                self.add(slot.map_or(-1, i64::from));
            }
            Some(ToFront::Lost(_)) => self.add(2),
            Some(ToFront::Ended(end)) => {
                self.add(3);
                self.end(end);
            }
        }
    }

    fn end(&mut self, end: &End) {
        self.add(match end {
            End::Released => 0,
            End::NotHad(_) => 1,
            End::Refused(..) => 2,
            End::Overlaps(_) => 3,
            End::Lost(_) => 4,
        });
    }

    fn write(&mut self, key: &str, write: PendingWrite) {
        let PendingWrite { expected, attempt: _, first_sent, last_sent, is_unknown } = write;
        self.revision_of(key, expected);
        self.instant(first_sent);
        self.instant(last_sent);
        self.add(i64::from(is_unknown));
    }

    fn goal(&mut self, goal: &Goal, key: &str) {
        match goal {
            Goal::Get(limit) => {
                self.add(0);
                self.option(*limit, Self::instant);
            }
            Goal::Keep => self.add(1),
            Goal::Lost(KillTimes { terminate_at, kill_at }) => {
                self.add(2);
                self.instant(*terminate_at);
                self.instant(*kill_at);
            }
            Goal::End(end, write) => {
                self.add(3);
                self.end(end);
                self.write(key, *write);
            }
        }
    }

    fn phase(&mut self, phase: &Phase) {
        match phase {
            Phase::Closed => self.add(0),
            Phase::WritingMark(mark) => {
                self.add(2);
                self.mark(mark);
            }
            Phase::Writing => self.add(3),
            Phase::ReadingOwn => self.add(4),
            Phase::Listing => self.add(5),
            Phase::Ending => self.add(6),
            Phase::Watching(keys) => {
                self.add(8);
                self.keys(keys);
            }
            Phase::Removing(stored) => {
                self.add(9);
                self.add(stored.len() as i64);
                stored.iter().for_each(|stored| self.stored(stored));
            }
            Phase::Resting(until, then) => {
                self.add(10);
                self.instant(*until);
                self.phase(then);
            }
            Phase::Noting(..) => unreachable!("nobody here has a clock"),
            Phase::Done => self.add(11),
        }
    }
}
