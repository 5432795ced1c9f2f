//! Getting the lock: the acquiring write, and the wait until its holder before
//! must be dead.

use std::time::Duration;

use super::active::Active;
use super::facts::{Facts, Seen};
use super::left::Left;
use super::pending::{Pending, Verdict};
use super::standby::{Standby, stood_still};
use super::stopping::Stopping;
use super::{Hold, NewWrite, Next, State, earliest, prepare_write, shut_down};
use crate::core::event::{Ending, Event, Level};
use crate::core::guard::Inherited;
use crate::core::record::{KeyValue, Record, RecordState, Revision};
use crate::core::time::{Instant, Ms};

/// The acquiring write is under way.
#[derive(Clone, Debug)]
pub(super) struct Taking {
    pending: Pending,
    confirm: Option<Duration>,
    previous: Option<String>,
    /// Unresolved by then, it is left alone: the next read shows what became of it.
    give_up: Instant,
    adoption: Option<Adoption>,
    /// The one before was refused.
    again: bool,
}

/// The service of a previous life that goes on under the same term.
#[derive(Clone, Debug)]
struct Adoption {
    term: Revision,
    inherited: Inherited,
}

impl Taking {
    /// Takes the lock as it was seen, in the way that its claim allows.
    pub(super) fn go(facts: &mut Facts, seen: &Seen, now: Instant) -> Next {
        let Seen {
            key_state, claim, ..
        } = seen;
        let give_up = now.after(facts.config.timing.renewal());
        // For fencing it: never this agent's own token, or it would fence itself.
        let previous = match &key_state.found {
            KeyValue::Record(Record { token, .. }) => {
                let other = !token.is_empty() && *token != facts.me.token;
                other.then(|| token.clone())
            }
            KeyValue::Absent | KeyValue::Marker => None,
        };
        let standing = if claim.confirm.is_some() {
            RecordState::Taking
        } else {
            RecordState::Active
        };
        let grace = claim.confirm.unwrap_or_default();
        let draft = NewWrite {
            expected: key_state.revision,
            standing,
            term: None,
            grace,
        };
        let mut pending = prepare_write(facts, draft, now, give_up);
        pending.advance(facts, now);
        let taking = Taking {
            pending,
            confirm: claim.confirm,
            previous,
            give_up,
            adoption: None,
            again: facts.refused.is_some(),
        };
        Next::Go(State::Taking(taking), stood_still(claim))
    }

    /// Renews the record of a previous life of this agent, if that is what stands
    /// under the key: the service neither stops nor starts. Only before its guard
    /// would have stopped the service: a record alone does not tell that it runs.
    pub(super) fn adopt(facts: &mut Facts, inherited: Inherited, now: Instant) -> Next {
        let seen = facts.seen.clone();
        let Some((seen, term)) = seen.and_then(|seen| Some((seen.clone(), seen.claim.adopt?)))
        else {
            let why = "the lock is not the previous life's any more".to_owned();
            return Stopping::inherited(facts, inherited, why, now);
        };
        let draft = NewWrite {
            expected: seen.key_state.revision,
            standing: RecordState::Active,
            term: Some(term),
            grace: Duration::ZERO,
        };
        let valid_until = inherited.fence.valid_until;
        let mut pending = prepare_write(facts, draft, now, valid_until);
        pending.advance(facts, now);
        let taking = Taking {
            pending,
            confirm: None,
            previous: inherited.under.previous.clone(),
            give_up: valid_until,
            adoption: Some(Adoption { term, inherited }),
            again: false,
        };
        let why = format!("from {}, term {term}", seen.claim.holder);
        Next::Go(State::Taking(taking), why)
    }

    /// Returns the service that is being adopted.
    pub(super) fn inherited(&self) -> Option<&Inherited> {
        let adoption = self.adoption.as_ref();
        adoption.map(|adoption| &adoption.inherited)
    }

    /// Whether the one before was refused.
    pub(super) fn is_again(&self) -> bool {
        self.again
    }

    /// It came to nothing; what a previous life left running has to go.
    fn fail(self, facts: &mut Facts, why: String, now: Instant) -> Next {
        match self.adoption {
            Some(adoption) => Stopping::inherited(facts, adoption.inherited, why, now),
            None => Next::Go(State::Standby(Standby::new(now)), why),
        }
    }

    pub(super) fn turn(mut self, facts: &mut Facts, event: &Event, now: Instant) -> Next {
        if let Event::Shutdown(signal) = event {
            // What was sent may be stored: left to expire, it wakes nobody early.
            return match self.adoption {
                Some(adoption) => {
                    let left = Left::Inherited(adoption.inherited);
                    Stopping::to_end(facts, left, Ending::Clean, signal, now)
                }
                None => shut_down(facts, signal, now),
            };
        }
        match self.pending.heed(facts, event, now) {
            Verdict::Open => {}
            Verdict::Held { revision, sent } => return self.held(facts, revision, sent, now),
            Verdict::Lost(why) => return self.fail(facts, format!("not taken: {why}"), now),
            Verdict::RolledBack => return self.fail(facts, "not taken".to_owned(), now),
        }
        if facts.rolled_back.is_some() || now >= self.give_up {
            let r = Ms(facts.config.timing.renewal());
            let why = match &self.adoption {
                Some(_) => "the lock of the previous life has run out".to_owned(),
                None if facts.refused.is_some() => format!("the take was refused for R = {r}"),
                None => format!("the take was not acknowledged within R = {r}"),
            };
            return self.fail(facts, why, now);
        }
        self.pending.advance(facts, now);
        Next::Stay(State::Taking(self))
    }

    fn held(self, facts: &mut Facts, revision: Revision, sent: Instant, now: Instant) -> Next {
        let valid_until = sent.after(facts.config.timing.validity());
        if now >= valid_until {
            let why = "the take was acknowledged too late to count".to_owned();
            return self.fail(facts, why, now);
        }
        let adoption = self.adoption.as_ref();
        let adopted = adoption.is_some();
        let hold = Hold {
            revision,
            term: adoption.map_or(revision, |adoption| adoption.term),
            valid_until,
            previous: self.previous,
        };
        if adopted {
            let why = format!("adopted as revision {revision}, the service goes on");
            return Next::Go(State::Active(Active::adopted(hold, now)), why);
        }
        match self.confirm {
            None => Next::Go(
                State::Active(Active::taken(hold, now)),
                format!("taken as revision {revision}, free to start"),
            ),
            Some(confirm) => Next::Go(
                State::Confirming(Confirming::new(facts, hold, confirm, now)),
                format!("taken as revision {revision}, start in {}", Ms(confirm)),
            ),
        }
    }

    pub(super) fn deadline(&self, facts: &Facts) -> Option<Instant> {
        earliest(Some(self.give_up), self.pending.deadline(facts))
    }
}

/// The lock is held, and renewed every R, until the holder before must be dead.
#[derive(Clone, Debug)]
pub(super) struct Confirming {
    hold: Hold,
    /// The service may start from here on.
    until: Instant,
    renew_at: Instant,
    grace: Duration,
    renewal: Option<Pending>,
}

impl Confirming {
    fn new(facts: &Facts, hold: Hold, grace: Duration, now: Instant) -> Confirming {
        let renew_at = now.after(facts.config.timing.renewal());
        Confirming {
            hold,
            until: now.after(grace),
            renew_at,
            grace,
            renewal: None,
        }
    }

    pub(super) fn turn(mut self, facts: &mut Facts, event: &Event, now: Instant) -> Next {
        let drop_to_standby = |facts: &mut Facts, why: String| {
            facts.seen = None;
            Next::Go(State::Standby(Standby::new(now)), why)
        };
        if let Event::Shutdown(signal) = event {
            facts.say(
                Level::Info,
                "the lock is left to expire: its holder before may still be stopping".to_owned(),
            );
            return shut_down(facts, signal, now);
        }
        if let Some(mut renewal) = self.renewal.take() {
            match renewal.heed(facts, event, now) {
                Verdict::Open => self.renewal = Some(renewal),
                Verdict::Held { revision, sent } => self.hold.renewed(facts, revision, sent),
                Verdict::Lost(why) => return drop_to_standby(facts, format!("lost: {why}")),
                Verdict::RolledBack => return drop_to_standby(facts, "lost".to_owned()),
            }
        }
        if let Some(why) = self.hold.contradicted(facts, event) {
            return drop_to_standby(facts, format!("lost: {why}"));
        }
        if now >= self.hold.valid_until {
            return drop_to_standby(
                facts,
                "lost: no renewal was acknowledged in time".to_owned(),
            );
        }
        self.advance(facts, now)
    }

    fn advance(mut self, facts: &mut Facts, now: Instant) -> Next {
        if self.renewal.is_none() && now >= self.until {
            let why = format!("the holder before had {} to stop", Ms(self.grace));
            return Next::Go(State::Active(Active::confirmed(self.hold, now)), why);
        }
        if self.renewal.is_none() && now >= self.renew_at {
            self.renew_at = self.renew_at.after(facts.config.timing.renewal()).max(now);
            let draft = NewWrite {
                expected: self.hold.revision,
                standing: RecordState::Taking,
                term: Some(self.hold.term),
                grace: self.grace,
            };
            self.renewal = Some(prepare_write(facts, draft, now, self.hold.valid_until));
        }
        if let Some(renewal) = &mut self.renewal {
            renewal.advance(facts, now);
        } else {
            self.hold.follow_hint(facts, now);
        }
        Next::Stay(State::Confirming(self))
    }

    pub(super) fn deadline(&self, facts: &Facts) -> Option<Instant> {
        let next = match &self.renewal {
            Some(renewal) => renewal.deadline(facts),
            None => Some(self.renew_at.min(self.until)),
        };
        earliest(Some(self.hold.valid_until), next)
    }
}
