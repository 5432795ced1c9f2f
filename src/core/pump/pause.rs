//! A pause of all agents of a key: no agent starts, stops or takes over the service.
//!
//! The holder renews its lock as ever, and stops the service when the lock runs out: a pause does
//! not change what a lock promises. So nothing depends on which agents have learnt of a pause, or
//! of its end.

use super::context::Context;
use super::deadline::{Deadline, Timer};
use crate::core::event::Pause;
use crate::core::report::Report;
use crate::core::text::sanitize_field;
use crate::core::time::{Instant, Ms};

impl Context {
    /// Takes in what stands in the store.
    pub(super) fn handle_pause(&mut self, pause: Option<&Pause>, now: Instant) {
        let pause = pause.filter(|pause| now < pause.until);
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
}
