//! The metrics thread: writes the metrics of the agent to a file, which may be on a disk that is
//! full, or that hangs. The pump never waits for it: a newer text replaces one that waits.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::inbox::{Inbox, NewestSender, newest_inbox};
use super::metrics_file::MetricsFile;
use crate::core::{Effect, Event, Instant, Metrics, Pump, Since};
use crate::log::panic_if_asked;
use crate::sys::{self, Waker};

/// Shortest time between two files of an agent whose state is unchanged: readers come less often.
const EVERY_MIN: Duration = Duration::from_secs(10);

/// How long the end of the agent waits until the file is removed.
const END_WITHIN: Duration = Duration::from_millis(200);

enum Order {
    Write(Box<Metrics>),
    /// The agent ends.
    Remove(Arc<Waker>),
}

/// The pump's end of the thread, with the metrics that are counted for it.
pub(super) struct MetricsHandle {
    metrics: Metrics,
    orders: NewestSender<Order>,
    /// How often the file is written at least.
    every: Duration,
    /// When [`MetricsHandle::update`] has something to do.
    pub(super) due: Instant,
}

impl MetricsHandle {
    /// Starts the thread. `dir` is the private directory of the agent, `renewal` is R.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or no thread to give.
    pub(super) fn start(
        path: &str,
        dir: &Path,
        metrics: Metrics,
        renewal: Duration,
    ) -> io::Result<MetricsHandle> {
        let (orders, ordered) = newest_inbox(1)?;
        let file = MetricsFile::new(path, dir);
        let work = move || serve(&file, &ordered);
        sys::start_thread("putex-metrics", work)?;
        let (every, due) = (renewal.max(EVERY_MIN), sys::now());
        Ok(MetricsHandle { metrics, orders, every, due })
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

    /// Has the file written if the state of the agent has changed, or if that is due.
    pub(super) fn update(&mut self, pump: &Pump, since: &Since, now: Instant) {
        let valid = pump.valid_until().map_or(Duration::ZERO, |at| at.since(now));
        if self.metrics.update(pump.status(since, now), valid) || now >= self.due {
            self.due = now.after(self.every);
            self.orders.send(Order::Write(Box::new(self.metrics.clone())));
        }
    }

    /// Has the file removed, and waits for the removal, but not for long.
    pub(super) fn end(&self) {
        let Ok(removed) = Waker::new().map(Arc::new) else { return };
        self.orders.send(Order::Remove(Arc::clone(&removed)));
        sys::is_ready_soon(&*removed, END_WITHIN);
    }
}

/// Writes the file until the agent ends, and then removes it. A failure is logged if its reason is
/// not the one that was logged last.
fn serve(file: &MetricsFile, orders: &Inbox<Order>) {
    let mut logged = None;
    loop {
        let order = orders.next();
        panic_if_asked("putex-metrics");
        match order {
            Order::Write(metrics) => match file.write(&metrics.render()) {
                Ok(()) => {
                    if logged.take().is_some() {
                        log::info!("the metrics are written again");
                    }
                }
                Err(error) => {
                    let text = error.to_string();
                    if logged.as_ref() != Some(&text) {
                        log::warn!("the metrics cannot be written: {text}");
                        logged = Some(text);
                    }
                }
            },
            Order::Remove(removed) => {
                file.remove();
                return removed.wake();
            }
        }
    }
}
