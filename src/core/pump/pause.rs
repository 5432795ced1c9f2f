//! A pause of all agents of a key: no agent starts, stops or takes over the service.
//!
//! The holder renews its lock as ever, and stops the service when the lock runs out: a pause does
//! not change what a lock promises. In a pause that keeps the service running the holder publishes
//! a longer lock time instead: the service may run for as long as a renewal at the end of the pause
//! would let it. Whoever follows waits for that, as for each lock time, whether the pause is known
//! there or not. So nothing depends on which agents have learnt of a pause, or of its end.
//!
//! A record can be deleted by hand, or lost with what the servers have stored. Where no record
//! tells a lock time, the entry of the pause does, and each agent remembers that entry: nobody
//! takes such a lock before the service of a holder is down that this pause, or one before it,
//! kept running.

use std::time::Duration;

use super::context::Context;
use super::deadline::{Deadline, Timer};
use super::store_view::Seen;
use crate::core::event::{Effect, Kept, Pause, PauseEntry};
use crate::core::record::KeyState;
use crate::core::report::Report;
use crate::core::seat::Seat;
use crate::core::text::sanitize_field;
use crate::core::time::{Instant, Ms};

impl Context {
    /// Takes in what stands in the store.
    pub(super) fn handle_pause(&mut self, entry: &PauseEntry, now: Instant) {
        self.handle_kept(entry, now);
        let pause = entry.pause.as_ref().filter(|pause| now < pause.until);
        let known = self.pause.as_ref().map(|pause| pause.revision);
        if known == pause.map(|pause| pause.revision) {
            return;
        }
        self.report(match pause {
            Some(Pause { until, by, reason, .. }) => {
                let reason = if reason.is_empty() { "" } else { &format!(": {reason}") };
                let by = sanitize_field(&format!("{by}{reason}"));
                Report::Paused(Ms(until.since(now)), by)
            }
            None => Report::Resumed,
        });
        self.pause = pause.cloned();
    }

    /// Takes in until when the entry lets a holder keep its service running. An entry of another
    /// bucket, of before the one that is known, or none, shows that the store has lost that one.
    fn handle_kept(&mut self, entry: &PauseEntry, now: Instant) {
        let timing = self.config.timing;
        let slowest = self.slowest_holder();
        let is_slower = self.kept_by != Some(slowest);
        self.kept_by = Some(slowest);
        self.kept_entry = entry.kept_until.map(|_| entry.clone());
        let (lock_time, grace) = slowest;
        let longer = grace.saturating_sub(timing.confirmation());
        let shown = entry.kept_until.and_then(|at| {
            let left = at.after(timing.validity_of(lock_time)).since(now);
            let wait = timing.takeover_wait(timing.lock_time_of(left) + longer);
            let (epoch, revision, until) = (entry.epoch.clone(), entry.revision, now.after(wait));
            (!left.is_zero()).then_some(Kept { epoch, revision, until })
        });
        let is_lost = |kept: &Kept| kept.epoch != entry.epoch || entry.revision < kept.revision;
        let known = self.kept.clone().filter(|kept| now < kept.until);
        let kept = match (known, shown) {
            (Some(known), shown) if is_lost(&known) => {
                let until = shown.map_or(known.until, |shown| shown.until.max(known.until));
                Some(Kept { until, ..known })
            }
            (Some(known), shown) if entry.revision == known.revision => {
                let shown = shown.filter(|_| is_slower).map_or(known.until, |shown| shown.until);
                Some(Kept { until: shown.max(known.until), ..known })
            }
            (_, shown) => shown,
        };
        let lost = kept.as_ref().is_some_and(is_lost);
        if (&self.kept, self.kept_lost) == (&kept, lost) {
            return;
        }
        if self.kept != kept {
            self.want(Effect::NoteKept(kept.clone()));
        }
        (self.kept, self.kept_lost) = (kept, lost);
        for seat in Seat::all(self.config.seats) {
            let Some(seen) = self.store.keys[seat.index()].seen.clone() else { continue };
            let takeover = self.takeover(seat, &seen.key_state, now);
            self.store.keys[seat.index()].seen = Some(Seen { takeover, ..seen });
        }
    }

    /// A record may show that a holder runs its service for longer after the pause than the entry
    /// did.
    pub(super) fn extend_kept(&mut self, now: Instant) {
        if self.kept_entry.is_some()
            && self.kept_by != Some(self.slowest_holder())
            && let Some(entry) = self.kept_entry.take()
        {
            self.handle_kept(&entry, now);
        }
    }

    /// Returns the largest F*R and C*R of this agent and of all holders that were seen since it
    /// knows a pause.
    fn slowest_holder(&self) -> (Duration, Duration) {
        let timing = self.config.timing;
        let known = self.kept_by.unwrap_or((timing.lock_time(), timing.confirmation()));
        let holders = self.store.keys.iter().map(|key| key.holders.last());
        holders.fold(known, |(lock, grace), times| {
            (lock.max(times.usual_lock), grace.max(times.grace))
        })
    }

    /// Returns until when a holder whose record `key_state` does not show may run its service
    /// because of a pause.
    pub(super) fn kept_until(&self, key_state: &KeyState) -> Option<Instant> {
        let kept = self.kept.as_ref()?;
        // Where an older copy of the bucket was restored, a record of before the pause is not the
        // last one of its holder.
        let is_older = self.kept_lost && key_state.revision < kept.revision;
        (is_older || key_state.value.lease().is_none()).then_some(kept.until)
    }

    /// Ends a pause whose time is over.
    pub(super) fn end_pause(&mut self, now: Instant) {
        if self.pause.as_ref().is_some_and(|pause| now >= pause.until) {
            self.pause = None;
            self.report(Report::PauseOver);
        }
    }

    /// Returns when that is.
    pub(super) fn pause_deadline(&self) -> Option<Deadline> {
        self.pause.as_ref().map(|pause| Timer::PauseOver.at(pause.until))
    }

    /// Returns whether the service is to run on in the pause without a store.
    pub(super) fn keeps_running(&self) -> bool {
        self.pause.as_ref().is_some_and(|pause| pause.keep_running)
    }

    /// Returns until when a service is to run on in the pause without a store.
    pub(super) fn pause_covers(&self) -> Option<Instant> {
        let pause = self.pause.as_ref().filter(|pause| pause.keep_running)?;
        Some(pause.until.after(self.config.timing.validity()))
    }
}
