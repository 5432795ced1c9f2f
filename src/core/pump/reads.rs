//! When the keys of all seats are read on standby, and when the states of their locks are reported.

use super::context::Context;
use super::deadline::{Timer, Timers};
use super::write::pause;
use crate::core::event::Event;
use crate::core::record::Revision;
use crate::core::report::{LockState, Reason, Report};
use crate::core::seat::Seat;
use crate::core::time::Instant;

/// How much later than R the key is read while hints come, as a divisor of R.
const HINT_SPREAD: u32 = 4;

/// The reads of the key of each seat.
#[derive(Clone, Debug)]
pub(super) struct Reads(Vec<KeyReads>);

/// The reads of the key of one seat.
#[derive(Clone, Debug)]
struct KeyReads {
    /// When the key is read again if no hint comes before.
    read_at: Instant,
    /// The last read followed a hint.
    hint_led: bool,
    /// The state of the lock that was reported last.
    reported: Option<LockState>,
    /// An agent that only observes has reported that it would take the lock from this revision.
    would_take: Option<Revision>,
}

impl Reads {
    /// Returns the reads of keys that are read for the first time at `read_at`.
    pub(super) fn new(seats: u32, read_at: Instant) -> Reads {
        let reads = KeyReads { read_at, hint_led: false, reported: None, would_take: None };
        Reads(vec![reads; seats as usize])
    }

    /// Sets the time of the next read after an answer, and reports a change of the holder.
    pub(super) fn receive(&mut self, context: &mut Context, event: &Event, now: Instant) {
        let asked = &mut self.0[context.store.seat.index()];
        if let Event::Opened(_) = event {
            self.0.iter_mut().for_each(|key| key.put_off(context, now));
        } else if let Event::Read(Ok(_)) = event {
            asked.put_off(context, now);
        } else if let Event::Read(Err(_)) = event {
            asked.read_at = now.after(pause(context));
        } else if let Event::Written(_) = event {
            // The answer is that of a take that was given up: a read tells its outcome.
            asked.read_at = now;
        }
        for (seat, key) in Seat::all(context.config.seats).zip(&mut self.0) {
            key.report_lock(context, seat);
        }
    }

    /// Reads the key of a seat if that is due: a key with a hint, or else the one that waits for
    /// longest. While a takeover of the seat `to_take` is due, only the key of this seat is read,
    /// and not for a hint: with many seats, many hints or a slow store, another read is always due
    /// too.
    pub(super) fn advance(&mut self, context: &mut Context, to_take: Option<Seat>, now: Instant) {
        let read_at = |seat: &Seat| self.0[seat.index()].read_at;
        let seats = || Seat::all(context.config.seats);
        let is_hinted = |seat: &Seat| context.store.key_of(*seat).is_hinted();
        let hinted = seats().filter(|seat| to_take.is_none() && is_hinted(seat));
        let next = to_take.or_else(|| seats().min_by_key(read_at));
        let next = next.filter(|next| now >= read_at(next));
        let seat = hinted.min_by_key(read_at).or(next).filter(|_| context.store.is_idle());
        if let Some(seat) = seat {
            let key = &mut self.0[seat.index()];
            key.hint_led = now < key.read_at;
            context.store.seat = seat;
            context.read(now);
        }
    }

    pub(super) fn set_timers(&self, timers: &mut Timers, context: &Context) {
        if context.store.is_idle() {
            self.0.iter().for_each(|key| timers.set(Timer::ReadKey, key.read_at));
        }
    }

    /// Returns whether an agent that only observes has reported that it would take this lock.
    pub(super) fn has_reported_take(&self, seat: Seat, revision: Revision) -> bool {
        self.0[seat.index()].would_take == Some(revision)
    }

    /// Reports that this agent, which only observes, would take this lock.
    pub(super) fn report_take(&mut self, context: &mut Context, seat: Seat) {
        let Some(seen) = &context.store.key_of(seat).seen else { return };
        self.0[seat.index()].would_take = Some(seen.key_state.revision);
        let why = Reason::of_take(seen.takeover.lock.clone(), seen.takeover.wait);
        context.report(Report::WouldTake { lock: context.lock_name(seat), why });
    }
}

impl KeyReads {
    /// Sets the next read, R after this one. If a hint led to this read, the next one is a little
    /// later: after R exactly, every renewal would be read twice while hints come.
    fn put_off(&mut self, context: &Context, now: Instant) {
        let r = context.config.timing.renewal();
        self.read_at = now.after(if self.hint_led { r + r / HINT_SPREAD } else { r });
    }

    fn report_lock(&mut self, context: &mut Context, seat: Seat) {
        let Some(seen) = &context.store.key_of(seat).seen else { return };
        let (state, revision) = (seen.takeover.lock.clone(), seen.key_state.revision);
        if self.reported.as_ref() != Some(&state) {
            self.reported = Some(state.clone());
            let (lock, again) = (context.lock_name(seat), context.store.refused.is_some());
            context.report(match state {
                LockState::Free(free) => Report::IsFree { lock, free, revision, again },
                LockState::Held(holder) => Report::HeldBy { lock, holder, revision, again },
            });
        }
    }
}
