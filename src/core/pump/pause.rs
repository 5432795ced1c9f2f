//! A pause of all agents of a key: no agent starts, stops or takes over the service.
//!
//! The holder renews its lock as ever, and stops the service when the lock runs out, when the agent
//! is told to end, and when its watchdog device fails: a pause does not change the promise of a
//! lock. So nothing depends on which agents have learnt of a pause, or of its end.
//!
//! A pause ends at its time, by the clock of this host, or by an entry of a higher serial number.
//! An entry without a higher number changes nothing: a former leader may have answered the read,
//! the clock of the store may have moved, or the store may have lost entries.

use super::deadline::{Timer, Timers};
use crate::core::event::{Effect, Pause, PauseEntry};
use crate::core::report::Report;
use crate::core::text::sanitize_field;
use crate::core::time::{Instant, Ms};

/// The agent's knowledge of pauses.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    /// The entry of the highest serial number that was read, with its pause until that is over.
    latest: PauseEntry,
}

impl Pauses {
    /// Returns the highest serial number that was read.
    pub(super) fn serial(&self) -> u64 {
        self.latest.serial
    }

    pub(super) fn is_paused(&self) -> bool {
        self.latest.pause.is_some()
    }

    /// Takes in the entry that a read has shown.
    pub(super) fn read(&mut self, entry: &PauseEntry, effects: &mut Vec<Effect>, now: Instant) {
        if entry.serial <= self.latest.serial {
            return;
        }
        let PauseEntry { pause: before, .. } = std::mem::replace(&mut self.latest, entry.clone());
        self.latest.pause.take_if(|pause| now >= pause.until);
        if let Some(Pause { until, by, reason }) = &self.latest.pause {
            let reason = if reason.is_empty() { "" } else { &format!(": {reason}") };
            let by = sanitize_field(&format!("{by}{reason}"));
            effects.push(Effect::Report(Report::Paused(Ms(until.since(now)), by)));
        } else if before.is_some() {
            effects.push(Effect::Report(Report::Resumed));
        }
    }

    /// Ends a pause whose time is over.
    pub(super) fn advance(&mut self, effects: &mut Vec<Effect>, now: Instant) {
        if self.latest.pause.take_if(|pause| now >= pause.until).is_some() {
            effects.push(Effect::Report(Report::PauseOver));
        }
    }

    pub(super) fn set_timers(&self, timers: &mut Timers) {
        self.latest.pause.iter().for_each(|pause| timers.set(Timer::PauseOver, pause.until));
    }
}
