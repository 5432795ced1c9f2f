//! The metrics of the agent, which are written to a file. It may be on a disk that is full, or that
//! hangs: each write has a thread of its own, and the pump never waits for it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::metrics_file::MetricsFile;
use super::task::Task;
use crate::core::{Effect, Event, Instant, Metrics, Pump, Since, Timing};
use crate::guard::Identity;
use crate::sys;

/// Shortest time between two files of an agent whose state is unchanged: readers come less often.
const EVERY_MIN: Duration = Duration::from_secs(10);

/// How long the end of the agent waits until the file is removed.
const END_WITHIN: Duration = Duration::from_millis(200);

/// The metrics that are counted for the pump, and their file.
pub(super) struct MetricsHandle {
    metrics: Metrics,
    file: Arc<MetricsFile>,
    /// The write that is under way.
    writing: Option<Task<io::Result<()>>>,
    /// Why the file could not be written, as it was logged last.
    logged: Option<String>,
    /// How often the file is written at least.
    every: Duration,
    /// When the file is to be written.
    write_at: Instant,
}

impl MetricsHandle {
    /// Makes the handle. `dir` is the private directory of the agent.
    pub(super) fn new(path: &str, dir: &Path, agent: &Identity, timing: &Timing) -> MetricsHandle {
        MetricsHandle {
            metrics: Metrics::new(&agent.bucket, &agent.key, &agent.token),
            file: Arc::new(MetricsFile::new(path, dir)),
            writing: None,
            logged: None,
            every: timing.renewal().max(EVERY_MIN),
            write_at: sys::now(),
        }
    }

    /// Takes in an event of the pump.
    pub(super) fn handle_event(&mut self, event: &Event, now: Instant) {
        let unix_time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.metrics.handle_event(event, now, unix_time.unwrap_or_default());
    }

    /// Takes in an effect of the pump.
    pub(super) fn handle_effect(&mut self, effect: &Effect, now: Instant) {
        self.metrics.handle_effect(effect, now);
    }

    /// Returns when [`MetricsHandle::update`] has something to do. The end of a write is noticed in
    /// the next turn.
    pub(super) fn due(&self) -> Option<Instant> {
        self.writing.is_none().then_some(self.write_at)
    }

    /// Has the file written if the state of the agent has changed, or if that is due, but not
    /// before the last write has ended.
    pub(super) fn update(&mut self, pump: &Pump, since: &Since, now: Instant) {
        let valid = pump.valid_until().map_or(Duration::ZERO, |at| at.since(now));
        if self.metrics.update(pump.status(since, now), valid) {
            self.write_at = now;
        }
        if let Some(written) = self.writing.as_ref().and_then(Task::outcome) {
            self.writing = None;
            self.log(written);
        }
        if self.due().is_some_and(|due| now >= due) {
            self.write_at = now.after(self.every);
            let (file, metrics) = (Arc::clone(&self.file), self.metrics.clone());
            match Task::start("putex-metrics", move || file.write(&metrics.render())) {
                Ok(writing) => self.writing = Some(writing),
                Err(error) => self.log(Err(error)),
            }
        }
    }

    /// Logs a failure if its reason is not the one that was logged last.
    fn log(&mut self, written: io::Result<()>) {
        let failed = written.err().map(|error| error.to_string());
        match &failed {
            Some(why) if failed != self.logged => {
                log::warn!("the metrics cannot be written: {why}");
            }
            None if self.logged.is_some() => log::info!("the metrics are written again"),
            Some(_) | None => {}
        }
        self.logged = failed;
    }

    /// Removes the file, and waits for that, but not for long.
    pub(super) fn end(&self) {
        let has_ended = |write: &Task<_>| sys::is_ready_soon(&write.done, END_WITHIN);
        let file = Arc::clone(&self.file);
        if self.writing.as_ref().is_none_or(has_ended)
            && let Ok(removal) = Task::start("putex-metrics", move || file.remove())
        {
            sys::is_ready_soon(&removal.done, END_WITHIN);
        }
    }
}
