//! A pause of all agents of a key: no agent starts, stops or takes over the service.
//!
//! The holder renews its lock as ever, and stops the service when the lock runs out: a pause does
//! not change what a lock promises. So nothing depends on which agents have learnt of a pause, or
//! of its end.
//!
//! How long a pause lasts still is read by the clock of the store, which may go back. So an agent
//! observes a pause once, until the end that it has read first: the number of one that has ended is
//! remembered.

use super::context::Context;
use super::deadline::{Deadline, Timer};
use crate::core::event::Pause;
use crate::core::report::Report;
use crate::core::text::sanitize_field;
use crate::core::time::{Instant, Ms};

impl Context {
    /// Takes in what stands in the store.
    pub(super) fn handle_pause(&mut self, pause: Option<&Pause>, now: Instant) {
        let is_over = |pause: &Pause| now >= pause.until || self.ended_pause == Some(pause.number);
        let pause = pause.filter(|pause| !is_over(pause));
        let known = self.pause.as_ref().map(|pause| pause.revision);
        if known == pause.map(|pause| pause.revision) {
            return;
        }
        if let Some(known) = &self.pause
            && pause.is_none_or(|pause| pause.number != known.number)
        {
            self.ended_pause = Some(known.number);
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

    /// Ends a pause whose time is over.
    pub(super) fn end_pause(&mut self, now: Instant) {
        if let Some(pause) = self.pause.take_if(|pause| now >= pause.until) {
            self.ended_pause = Some(pause.number);
            self.report(Report::PauseOver);
        }
    }

    /// Returns when that is.
    pub(super) fn pause_deadline(&self) -> Option<Deadline> {
        self.pause.as_ref().map(|pause| Timer::PauseOver.at(pause.until))
    }
}
