//! A write of the lock until its outcome is known, see [`PendingWrite`]: when each copy is sent,
//! and what its outcome means for the lock. Until then the holder's old validity stands.

use std::time::Duration;

use super::context::Context;
use super::deadline::{Timer, Timers};
use super::store_view::Attempt;
use crate::core::event::{Effect, Event, StoreError, Written};
use crate::core::record::{KeyState, Lease, Record, RecordState, Revision};
use crate::core::report::{LockLoss, Report, Rollback};
use crate::core::time::{Instant, Ms};
use crate::core::write::{Outcome, PendingWrite};

/// The fields in which writes differ.
#[derive(Clone, Debug)]
pub(super) struct NewWrite {
    pub(super) expected: Revision,
    pub(super) state: RecordState,
    pub(super) term: Option<Revision>,
    /// Grace that the previous holder was promised, while it may still need it.
    pub(super) grace: Duration,
    /// The agent that is to have the lock next; `None` for all.
    pub(super) released_to: Option<String>,
}

/// Prepares the write of a record of this agent.
pub(super) fn prepare_write(
    context: &mut Context,
    write: NewWrite,
    now: Instant,
    give_up: Instant,
) -> Pending {
    let timing = context.config.timing;
    context.nonce += 1;
    let nonce = context.nonce;
    let over_entry = write.expected > Revision(0);
    context.store.key_mut().written = Some(Attempt { nonce, over_entry });
    let lease = Lease {
        incarnation: context.id.incarnation,
        nonce,
        host: context.id.host.clone(),
        boot: context.id.boot.clone(),
        renewal: timing.renewal(),
        failures: timing.failures(),
        confirmations: timing.confirmations(),
        grace: write.grace.max(timing.confirmation()),
        term: write.term,
        state: write.state,
        priority: context.config.priority,
        released_to: write.released_to,
    };
    let token = match write.state {
        RecordState::Taking | RecordState::Active => context.id.token.clone(),
        RecordState::Released => String::new(),
    };
    Pending {
        expected: write.expected,
        attempt: nonce,
        record: Record { token, lease: Some(lease) },
        write: None,
        give_up,
        step: Step::Due(now),
    }
}

/// A write that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    expected: Revision,
    attempt: u64,
    record: Record,
    /// The write, once a copy of it was sent.
    write: Option<PendingWrite>,
    /// No copy is useful after this instant.
    pub(super) give_up: Instant,
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The next copy is due at this instant, or once the store is idle.
    Due(Instant),
    /// The copy is with the store.
    Sent,
    /// The store has refused a copy, but may have stored an earlier one: a read, due at this
    /// instant, tells.
    Resolve(Instant),
    /// This read is under way.
    Resolving,
}

/// The state of the lock after an event, as far as a [`Pending`] shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing is known yet.
    Undecided,
    /// The lock stands at this revision as this agent wrote it, and is valid until V, by the
    /// earliest copy that may be the stored one.
    Held { revision: Revision, valid_until: Instant },
    /// The lock is another agent's, or the store no longer has the record that it acknowledged.
    Lost(LockLoss),
}

impl Pending {
    /// Takes in an event, and notes what it tells of the key.
    pub(super) fn receive(
        &mut self,
        context: &mut Context,
        event: &Event,
        now: Instant,
    ) -> Verdict {
        let verdict = self.judge(context, event, now);
        let rolled_back = verdict == Verdict::Lost(LockLoss::RolledBack);
        if verdict != Verdict::Undecided && !rolled_back {
            // The key has another record than the one that was seen.
            context.store.key_mut().seen = None;
            context.store.refused = None;
        }
        if let Verdict::Held { revision, .. } = verdict {
            context.store.key_mut().stored = Some(revision);
        }
        verdict
    }

    fn judge(&mut self, context: &mut Context, event: &Event, now: Instant) -> Verdict {
        match (self.step, event) {
            (Step::Sent, Event::Written(written)) => return self.written(context, written, now),
            // The write was answered before, as a rule; if not, no answer will come any more.
            (Step::Sent, Event::Closed(why)) => {
                if let Some(write) = &mut self.write {
                    write.answered(Written::Unknown(why.clone()));
                }
                self.step = Step::Due(now);
            }
            (Step::Resolving, Event::Read(answer)) => {
                self.step = Step::Resolve(now.after(pause(context)));
                if let Ok(key_state) = answer {
                    return self.resolve(context, key_state);
                }
            }
            (Step::Resolving, Event::Closed(_)) => self.step = Step::Resolve(now),
            // A bucket opened again shows the key: enough to decide, if it has moved.
            (Step::Due(_) | Step::Resolve(_), Event::Opened(opened)) => {
                self.step = Step::Due(now);
                return self.resolve(context, &opened.key_states[context.store.seat.index()]);
            }
            (Step::Due(_) | Step::Sent | Step::Resolve(_) | Step::Resolving, _) => {}
        }
        Verdict::Undecided
    }

    fn written(&mut self, context: &mut Context, written: &Written, now: Instant) -> Verdict {
        let Some(write) = &mut self.write else { return Verdict::Undecided };
        let expected = self.expected;
        let mut again_at = now.max(write.last_sent.after(pause(context)));
        let outcome = match written {
            Written::Stored(_) if context.store.rolled_back => {
                return Verdict::Lost(LockLoss::RolledBack);
            }
            Written::Moved(Some(current)) if *current < expected => {
                context.roll_back(Rollback::KeyBehind(*current, expected), now);
                return Verdict::Lost(LockLoss::RolledBack);
            }
            Written::Stored(_) | Written::Moved(_) => write.answered(written.clone()),
            Written::Denied(StoreError { text: why, .. }) => {
                if context.store.refused.as_ref() != Some(why) {
                    context.report(Report::NotStored(why.clone()));
                    context.store.refused = Some(why.clone());
                }
                again_at = now.after(pause(context));
                // The server may have refused another copy, or stored it all the same.
                write.answered(Written::Unknown(why.clone()))
            }
            Written::Unknown(why) => {
                let refused = context.store.refused.take().is_some();
                let after = Ms(now.since(write.last_sent));
                let (why, again) = (why.clone(), write.is_unknown && !refused);
                context.report(Report::WriteUnanswered { after, why, again });
                write.answered(written.clone())
            }
        };
        match (outcome, written) {
            (Outcome::Held { revision, sent }, _) => return held(context, revision, sent),
            (Outcome::Lost, Written::Moved(Some(current))) => {
                return Verdict::Lost(LockLoss::MovedTo(*current, expected));
            }
            (Outcome::Lost | Outcome::Replaced, _) => {
                return Verdict::Lost(LockLoss::Moved(expected));
            }
            (Outcome::Read, _) => self.step = Step::Resolve(now),
            (Outcome::Repeat(_) | Outcome::Refused(_), _) => self.step = Step::Due(again_at),
        }
        Verdict::Undecided
    }

    /// Decides by the state of the key, after the store has refused a copy, or was opened again.
    /// The read may be older than the write.
    fn resolve(&self, context: &Context, key_state: &KeyState) -> Verdict {
        let revision = key_state.revision;
        if revision <= self.expected {
            return Verdict::Undecided;
        }
        let own = context.id.wrote(key_state).then(|| key_state.value.lease()).flatten();
        let read = |write: PendingWrite| write.read(revision, own.map(|lease| lease.nonce));
        match self.write.map(read) {
            Some(Outcome::Held { revision, sent }) => held(context, revision, sent),
            Some(_) | None => Verdict::Lost(LockLoss::Overwritten(revision, self.expected)),
        }
    }

    /// Hands the next step to the store when it is due and the store is free.
    pub(super) fn advance(&mut self, context: &mut Context, now: Instant) {
        if !context.store.is_idle() {
            return;
        }
        match self.step {
            Step::Due(at) if now >= at => {
                let new = PendingWrite::send(self.expected, self.attempt, now);
                self.write.get_or_insert(new).send_again(now);
                self.step = Step::Sent;
                let deadline =
                    now.after(context.config.timing.attempt()).min(self.give_up).max(now);
                let (expected, record) = (self.expected, self.record.clone());
                let seat = context.store.seat;
                let write = Effect::Write { seat, expected, record, deadline };
                context.store.request(write, &mut context.effects);
            }
            Step::Resolve(at) if now >= at => {
                self.step = Step::Resolving;
                context.read(now);
            }
            Step::Due(_) | Step::Resolve(_) | Step::Sent | Step::Resolving => {}
        }
    }

    pub(super) fn set_timers(&self, timers: &mut Timers, context: &Context) {
        if let Step::Due(at) | Step::Resolve(at) = self.step
            && context.store.is_idle()
        {
            timers.set(Timer::SendWrite, at);
        }
    }
}

/// Returns that the lock stands at this revision. The copy that is stored was sent at `sent`, at
/// the earliest.
fn held(context: &Context, revision: Revision, sent: Instant) -> Verdict {
    Verdict::Held { revision, valid_until: sent.after(context.config.timing.validity()) }
}

/// How long to wait after a request that failed at once.
pub(super) fn pause(context: &Context) -> Duration {
    context.config.timing.renewal() / 8
}
