//! A pause of all agents of a key: no agent starts, stops or takes over the service.
//!
//! The holder renews its lock as ever, and stops the service when the lock runs out, when the agent
//! is told to end, and when its watchdog device fails: a pause does not change the promise of a
//! lock. So nothing depends on which agents have learnt of a pause, or of its end.
//!
//! The rest of a pause is read by the clock of the store, which may go back. So an agent observes a
//! pause once, until the end that it has read first: the number of a pause that has ended is
//! remembered. A pause that was replaced has not ended: it is written again, with its number, where
//! not all acknowledge the longer one.

use super::deadline::{Timer, Timers};
use super::effects::Effects;
use crate::core::event::Pause;
use crate::core::report::Report;
use crate::core::text::sanitize_field;
use crate::core::time::{Instant, Ms};

/// The agent's knowledge of pauses.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    /// The pause that the agents of this key observe.
    present: Option<Pause>,
    /// The number of the last pause that has ended.
    ended: Option<u64>,
}

impl Pauses {
    /// Returns the pause that the agents of this key observe now.
    pub(super) fn present(&self) -> Option<&Pause> {
        self.present.as_ref()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.present.is_some()
    }

    /// Takes in the pause that stands in the store; `None` for none.
    pub(super) fn read(&mut self, pause: Option<&Pause>, effects: &mut Effects, now: Instant) {
        let is_over = |pause: &Pause| now >= pause.until || self.ended == Some(pause.number);
        let pause = pause.filter(|pause| !is_over(pause));
        let known = self.present.as_ref().map(|pause| pause.revision);
        if known == pause.map(|pause| pause.revision) {
            return;
        }
        effects.report(match pause {
            Some(Pause { until, by, reason, .. }) => {
                let reason = if reason.is_empty() { "" } else { &format!(": {reason}") };
                let by = sanitize_field(&format!("{by}{reason}"));
                Report::Paused(Ms(until.since(now)), by)
            }
            None => {
                self.ended = self.present.as_ref().map(|known| known.number);
                Report::Resumed
            }
        });
        self.present = pause.cloned();
    }

    /// Ends a pause whose time is over.
    pub(super) fn advance(&mut self, effects: &mut Effects, now: Instant) {
        if let Some(pause) = self.present.take_if(|pause| now >= pause.until) {
            self.ended = Some(pause.number);
            effects.report(Report::PauseOver);
        }
    }

    pub(super) fn set_timers(&self, timers: &mut Timers) {
        self.present.iter().for_each(|pause| timers.set(Timer::PauseOver, pause.until));
    }
}
