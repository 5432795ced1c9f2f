//! One write of the lock until it is known what became of it.
//!
//! An unknown outcome is resolved by repeating the same compare-and-set with the
//! same nonce. Stored: the repeat won, and the first copy can never apply any
//! more. Moved: if an earlier copy may have been stored, a read tells by the
//! nonce whether it was. Until then the holder's old validity stands.

use std::time::Duration;

use super::context::Context;
use super::deadline::{Timer, Timers};
use super::store_view::Attempt;
use crate::core::event::{Effect, Event, Written};
use crate::core::record::{KeyState, KeyValue, Lease, Record, RecordState, Revision};
use crate::core::report::{LockLoss, Report, Rollback};
use crate::core::time::{Instant, Ms};

/// What differs from write to write.
#[derive(Clone, Debug)]
pub(super) struct NewWrite {
    pub(super) expected: Revision,
    pub(super) state: RecordState,
    pub(super) term: Option<Revision>,
    /// Grace that the holder before was promised, while it may still need it.
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
    let nonce = context.next_nonce();
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
        lock_time: timing.lock_time(),
        grace: write.grace.max(timing.confirmation()),
        term: write.term,
        state: write.state,
        priority: Some(context.config.priority),
        released_to: write.released_to,
    };
    let token = match write.state {
        RecordState::Taking | RecordState::Active => context.id.token.clone(),
        RecordState::Released => String::new(),
    };
    Pending {
        expected: write.expected,
        validity: timing.validity(),
        record: Record { token, lease: Some(lease) },
        first_sent: None,
        sent: now,
        give_up,
        step: Step::Due(now),
        outcome_unknown: false,
    }
}

/// A write that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    expected: Revision,
    record: Record,
    /// How long the lock is valid after the write was sent.
    validity: Duration,
    /// When the first copy was sent: if it is not known which copy was stored, the lock counts
    /// from here. No refusal moves it: the server may have refused another copy, or stored it all
    /// the same.
    first_sent: Option<Instant>,
    /// When the last copy was sent.
    sent: Instant,
    /// No copy is useful after this.
    pub(super) give_up: Instant,
    step: Step,
    /// A copy's outcome is unknown. That of a copy that was refused is, too.
    outcome_unknown: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Not handed to the store: another request is under way, or it is closed.
    Due(Instant),
    /// With the store.
    Sent,
    /// Refused after a doubtful copy: a read must tell by this instant or later.
    Resolve(Instant),
    /// That read is with the store.
    Resolving,
}

/// What is known of a [`Pending`] after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing yet.
    Undecided,
    /// The lock stands at this revision as this agent wrote it, and is valid until V, by the
    /// earliest copy that may be the stored one.
    Held { revision: Revision, valid_until: Instant },
    /// The lock is somebody else's, or the store no longer has what it said was stored.
    Lost(LockLoss),
}

impl Pending {
    /// Takes in an event, and notes what it means for what is known of the key.
    pub(super) fn receive(
        &mut self,
        context: &mut Context,
        event: &Event,
        now: Instant,
    ) -> Verdict {
        let verdict = self.judge(context, event, now);
        let rolled_back = verdict == Verdict::Lost(LockLoss::RolledBack);
        if verdict != Verdict::Undecided && !rolled_back {
            // Another record stands there than the one that was seen.
            context.store.key_mut().seen = None;
            context.store.refused = None;
        }
        if let Verdict::Held { revision, .. } = verdict {
            context.store.key_mut().stored = Some(revision);
        }
        verdict
    }

    fn judge(&mut self, context: &mut Context, event: &Event, now: Instant) -> Verdict {
        match self.step {
            Step::Sent => {
                if let Event::Written(written) = event {
                    return self.written(context, written, now);
                }
                // Answered before, as a rule; if not, nothing will come any more.
                if let Event::Closed(_) = event {
                    self.outcome_unknown = true;
                    self.step = Step::Due(now);
                }
            }
            Step::Resolving => {
                if let Event::Read(answer) = event {
                    // Another answer is out of date: the write was refused, so the key has moved.
                    let moved = answer.as_ref().ok().filter(|key| key.revision > self.expected);
                    if let Some(key_state) = moved {
                        return self.resolve(key_state);
                    }
                    self.step = Step::Resolve(now.after(pause(context)));
                } else if let Event::Closed(_) = event {
                    self.step = Step::Resolve(now);
                }
            }
            Step::Due(_) | Step::Resolve(_) => {
                // A bucket opened again shows the key: enough to decide, if it has moved.
                if let Event::Opened(opened) = event {
                    let key_state = &opened.key_states[context.store.seat.index()];
                    if key_state.revision > self.expected {
                        return self.resolve(key_state);
                    }
                    self.step = Step::Due(now);
                }
            }
        }
        Verdict::Undecided
    }

    fn written(&mut self, context: &mut Context, written: &Written, now: Instant) -> Verdict {
        match written {
            Written::Stored(_) if context.store.rolled_back => Verdict::Lost(LockLoss::RolledBack),
            Written::Stored(revision) => self.held(*revision, self.sent),
            Written::Moved(Some(current)) if *current < self.expected => {
                context.roll_back(Rollback::KeyBehind(*current, self.expected), now);
                Verdict::Lost(LockLoss::RolledBack)
            }
            Written::Moved(current) => {
                if self.outcome_unknown {
                    self.step = Step::Resolve(now);
                    return Verdict::Undecided;
                }
                let expected = self.expected;
                Verdict::Lost(match *current {
                    Some(current) => LockLoss::MovedTo(current, expected),
                    None => LockLoss::Moved(expected),
                })
            }
            Written::Denied(why) => {
                if context.store.refused.as_ref() != Some(why) {
                    context.report(Report::NotStored(why.clone()));
                    context.store.refused = Some(why.clone());
                }
                self.outcome_unknown = true;
                self.step = Step::Due(now.after(pause(context)));
                Verdict::Undecided
            }
            Written::Unknown(why) => {
                let refused = context.store.refused.take().is_some();
                let after = Ms(now.since(self.sent));
                let (why, again) = (why.clone(), self.outcome_unknown && !refused);
                context.report(Report::WriteUnanswered { after, why, again });
                self.outcome_unknown = true;
                self.step = Step::Due(now.max(self.sent.after(pause(context))));
                Verdict::Undecided
            }
        }
    }

    /// The key has moved: mine by the nonce, or not.
    fn resolve(&self, key_state: &KeyState) -> Verdict {
        let revision = key_state.revision;
        if self.wrote(&key_state.value) {
            return self.held(revision, self.first_sent.unwrap_or(self.sent));
        }
        Verdict::Lost(LockLoss::Overwritten(revision, self.expected))
    }

    fn held(&self, revision: Revision, sent: Instant) -> Verdict {
        Verdict::Held { revision, valid_until: sent.after(self.validity) }
    }

    fn wrote(&self, found: &KeyValue) -> bool {
        let attempt = |lease: &Lease| (lease.incarnation, lease.nonce);
        found.lease().map(attempt) == self.record.lease.as_ref().map(attempt)
    }

    /// Hands the next step to the store when it is due and the store is free.
    pub(super) fn advance(&mut self, context: &mut Context, now: Instant) {
        if !context.store.is_idle() {
            return;
        }
        match self.step {
            Step::Due(at) if now >= at => {
                self.first_sent = self.first_sent.or(Some(now));
                self.sent = now;
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

/// How long to wait after a request that failed at once.
pub(super) fn pause(context: &Context) -> Duration {
    context.config.timing.renewal() / 8
}
