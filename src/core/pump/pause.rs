//! A pause of all agents of a key: no agent starts, stops or takes over the service.
//!
//! The holder renews its lock as ever, and stops the service when the lock runs out, when the agent
//! is told to end, and when its watchdog device fails: a pause does not change the promise of a
//! lock. So nothing depends on which agents have learnt of a pause, or of its end.
//!
//! A pause ends at its time, by the clock of this host, or by an entry of a later revision. A read
//! that shows no later one changes nothing: a server that was the leader before may have answered
//! it, the clock of the store may have moved, and a bucket that was lost shows no entry. The first
//! entry that is read after a loss may be one of long before: it ends no pause, and shortens none.

use super::deadline::{Timer, Timers};
use super::effects::Effects;
use crate::core::event::{Pause, PauseEntry};
use crate::core::record::Revision;
use crate::core::report::Report;
use crate::core::text::sanitize_field;
use crate::core::time::{Instant, Ms};

/// The agent's knowledge of pauses.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    /// The pause that the agents of this key observe.
    present: Option<Pause>,
    /// The latest revision of the entry that was read since the store has lost what it had;
    /// `None` for not read since.
    read: Option<Revision>,
}

impl Pauses {
    /// Returns the revision of the pause that this agent observes now.
    pub(super) fn observed(&self) -> Option<Revision> {
        self.present.as_ref().map(|_| self.read.unwrap_or_default())
    }

    pub(super) fn is_paused(&self) -> bool {
        self.present.is_some()
    }

    /// The store has lost what it had: its next entry may have any revision.
    pub(super) fn roll_back(&mut self) {
        self.read = None;
    }

    /// Takes in what stands in the store.
    pub(super) fn read(&mut self, entry: &PauseEntry, effects: &mut Effects, now: Instant) {
        if self.read.is_some_and(|read| entry.revision <= read) {
            return;
        }
        let is_first = self.read.replace(entry.revision).is_none();
        let pause = entry.pause.clone().filter(|pause| now < pause.until);
        let until = |pause: &Option<Pause>| pause.as_ref().map(|pause| pause.until);
        if is_first && until(&pause) <= until(&self.present) {
            return;
        }
        let before = std::mem::replace(&mut self.present, pause);
        if let Some(Pause { until, by, reason }) = &self.present {
            let reason = if reason.is_empty() { "" } else { &format!(": {reason}") };
            let by = sanitize_field(&format!("{by}{reason}"));
            effects.report(Report::Paused(Ms(until.since(now)), by));
        } else if before.is_some() {
            effects.report(Report::Resumed);
        }
    }

    /// Ends a pause whose time is over.
    pub(super) fn advance(&mut self, effects: &mut Effects, now: Instant) {
        if self.present.take_if(|pause| now >= pause.until).is_some() {
            effects.report(Report::PauseOver);
        }
    }

    pub(super) fn set_timers(&self, timers: &mut Timers) {
        self.present.iter().for_each(|pause| timers.set(Timer::PauseOver, pause.until));
    }
}
