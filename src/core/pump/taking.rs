//! Getting the lock: the acquiring write, and the wait until its holder before
//! must be dead.

use std::time::Duration;

use super::active::Active;
use super::context::Context;
use super::deadline::{Deadline, Timer, earliest};
use super::standby::Standby;
use super::stopping::Stopping;
use super::store_view::Seen;
use super::write::{NewWrite, Pending, Verdict, prepare_write};
use super::{Hold, Next, State};
use crate::core::event::{Ending, Event};
use crate::core::protocol::Grant;
use crate::core::record::{KeyValue, Record, RecordState, Revision};
use crate::core::report::{LockLoss, Reason, Report};
use crate::core::time::Instant;

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

/// The service of an earlier instance that goes on under the same term.
#[derive(Clone, Debug)]
struct Adoption {
    term: Revision,
    grant: Grant,
}

impl Taking {
    /// Takes the lock as it was seen, in the way that its claim allows.
    pub(super) fn go(context: &mut Context, seen: &Seen, now: Instant) -> Next {
        let Seen { key_state, takeover, .. } = seen;
        let give_up = now.after(context.config.timing.renewal());
        // For fencing it: never this agent's own token, or it would fence itself.
        let previous = match &key_state.value {
            KeyValue::Record(Record { token, .. }) => {
                let other = !token.is_empty() && *token != context.id.token;
                other.then(|| token.clone())
            }
            KeyValue::Absent | KeyValue::Marker => None,
        };
        let state =
            if takeover.confirm.is_some() { RecordState::Taking } else { RecordState::Active };
        let grace = takeover.confirm.unwrap_or_default();
        let write = NewWrite { expected: key_state.revision, state, term: None, grace };
        let mut pending = prepare_write(context, write, now, give_up);
        pending.advance(context, now);
        let taking = Taking {
            pending,
            confirm: takeover.confirm,
            previous,
            give_up,
            adoption: None,
            again: context.store.refused.is_some(),
        };
        let why = Reason::Free(takeover.holder.clone(), takeover.wait);
        Next::Go(State::Taking(taking), why)
    }

    /// Renews the record of an earlier instance of this agent, if that is what stands under
    /// the key: the service neither stops nor starts. Only while its guard lets the service
    /// run: a record alone does not tell that it does.
    pub(super) fn adopt(context: &mut Context, grant: Grant, now: Instant) -> Next {
        let Some((revision, term)) = adoptable(context, &grant) else {
            return Stopping::inherited(context, grant, Reason::NotPredecessors, now);
        };
        let write = NewWrite {
            expected: revision,
            state: RecordState::Active,
            term: Some(term),
            grace: Duration::ZERO,
        };
        let valid_until = grant.valid_until;
        let mut pending = prepare_write(context, write, now, valid_until);
        pending.advance(context, now);
        let taking = Taking {
            pending,
            confirm: None,
            previous: grant.context.previous.clone(),
            give_up: valid_until,
            adoption: Some(Adoption { term, grant }),
            again: false,
        };
        Next::Go(State::Taking(taking), Reason::Predecessor(term))
    }

    /// Whether the one before was refused.
    pub(super) fn is_again(&self) -> bool {
        self.again
    }

    /// It came to nothing; what a previous life left running has to go.
    fn fail(self, context: &mut Context, why: Reason, now: Instant) -> Next {
        match self.adoption {
            Some(adoption) => Stopping::inherited(context, adoption.grant, why, now),
            None => Next::Go(State::Standby(Standby::new(now)), why),
        }
    }

    pub(super) fn turn(mut self, context: &mut Context, event: &Event, now: Instant) -> Next {
        if let Event::Shutdown(signal) = event {
            // What was sent may be stored: left to expire, it wakes nobody early.
            let grant = self.adoption.map(|adoption| adoption.grant);
            return Stopping::to_end(context, grant, Ending::Clean, Reason::Told(signal), now);
        }
        match self.pending.receive(context, event, now) {
            Verdict::Open => {}
            Verdict::Held { revision, sent } => return self.held(context, revision, sent, now),
            Verdict::Lost(why) => return self.fail(context, Reason::NotTaken(why), now),
        }
        if context.store.rolled_back.is_some() || now >= self.give_up {
            let r = context.config.timing.renewal();
            let why = match &self.adoption {
                Some(_) => Reason::PredecessorOver,
                None if context.store.refused.is_some() => Reason::TakeRefused(r),
                None => Reason::TakeUnanswered(r),
            };
            return self.fail(context, why, now);
        }
        self.pending.advance(context, now);
        Next::Stay(State::Taking(self))
    }

    fn held(self, context: &mut Context, revision: Revision, sent: Instant, now: Instant) -> Next {
        let valid_until = sent.after(context.config.timing.validity());
        if now >= valid_until {
            return self.fail(context, Reason::TakeTooLate, now);
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
            let active = Active::adopted(hold, now);
            return Next::Go(State::Active(active), Reason::Adopted(revision));
        }
        match self.confirm {
            None => Next::Go(State::Active(Active::taken(hold, now)), Reason::TakenFree(revision)),
            Some(confirm) => Next::Go(
                State::Confirming(Confirming::new(context, hold, confirm, now)),
                Reason::Taken(revision, confirm),
            ),
        }
    }

    pub(super) fn deadline(&self, context: &Context) -> Option<Deadline> {
        let give_up = Timer::GiveUpWrite.at(self.give_up);
        earliest(Some(give_up), self.pending.deadline(context))
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
    fn new(context: &Context, hold: Hold, grace: Duration, now: Instant) -> Confirming {
        let renew_at = now.after(context.config.timing.renewal());
        Confirming { hold, until: now.after(grace), renew_at, grace, renewal: None }
    }

    pub(super) fn turn(mut self, context: &mut Context, event: &Event, now: Instant) -> Next {
        let drop_to_standby = |context: &mut Context, why: LockLoss| {
            context.store.seen = None;
            Next::Go(State::Standby(Standby::new(now)), Reason::LostUnconfirmed(why))
        };
        if let Event::Shutdown(signal) = event {
            context.report(Report::LeftToExpire);
            return Stopping::to_end(context, None, Ending::Clean, Reason::Told(signal), now);
        }
        if let Some(mut renewal) = self.renewal.take() {
            match renewal.receive(context, event, now) {
                Verdict::Open => self.renewal = Some(renewal),
                Verdict::Held { revision, sent } => self.hold.renewed(context, revision, sent),
                Verdict::Lost(why) => return drop_to_standby(context, why),
            }
        }
        if let Some(why) = self.hold.contradicted(context, event) {
            return drop_to_standby(context, why);
        }
        if now >= self.hold.valid_until {
            let why = LockLoss::NotRenewed(context.config.timing.validity());
            return drop_to_standby(context, why);
        }
        self.advance(context, now)
    }

    fn advance(mut self, context: &mut Context, now: Instant) -> Next {
        if self.renewal.is_none() && now >= self.until {
            let active = Active::confirmed(self.hold, now);
            return Next::Go(State::Active(active), Reason::Confirmed(self.grace));
        }
        if self.renewal.is_none() && now >= self.renew_at {
            self.renew_at = self.renew_at.after(context.config.timing.renewal()).max(now);
            let write = NewWrite {
                expected: self.hold.revision,
                state: RecordState::Taking,
                term: Some(self.hold.term),
                grace: self.grace,
            };
            self.renewal = Some(prepare_write(context, write, now, self.hold.valid_until));
        }
        if let Some(renewal) = &mut self.renewal {
            renewal.advance(context, now);
        } else {
            self.hold.follow_hint(context, now);
        }
        Next::Stay(State::Confirming(self))
    }

    pub(super) fn deadline(&self, context: &Context) -> Option<Deadline> {
        let next = match &self.renewal {
            Some(renewal) => renewal.deadline(context),
            None => {
                let renew = Timer::RenewUnconfirmed.at(self.renew_at);
                Some(renew.min(Timer::Confirmed.at(self.until)))
            }
        };
        earliest(Some(Timer::LockOver.at(self.hold.valid_until)), next)
    }
}

/// Returns revision and term of the record under the key, if the instance wrote it to which
/// the guard's grant was given, for the term of that grant.
fn adoptable(context: &Context, grant: &Grant) -> Option<(Revision, Revision)> {
    let seen = context.store.seen.as_ref()?;
    let KeyValue::Record(Record { lease: Some(lease), .. }) = &seen.key_state.value else {
        return None;
    };
    let revision = seen.key_state.revision;
    let term = lease.term.unwrap_or(revision);
    let active = match lease.standing {
        RecordState::Active => true,
        RecordState::Taking | RecordState::Released => false,
    };
    let same = lease.incarnation == grant.holder && grant.context.term == Some(term);
    (active && same).then_some((revision, term))
}
