//! The health check, and the watchdog thread that kills it when its time is over.
//!
//! The watchdog never waits for the check: a runner spawns the check, and the main thread reads its
//! output. Between deadline and kill the watchdog takes no lock and no memory.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::event::{PollFd, PollFlags};

use super::inbox::InboxSender;
use crate::command::{Commands, OutputPipe, Prepared, Runner, not_run};
use crate::core::{Command, Event, Instant, Outcome, Run};
use crate::log::command_output;
use crate::sys::{self, Alarm, Waker};

/// Time for the watchdog to kill a check, at the end of the agent.
const KILLED_WITHIN: Duration = Duration::from_millis(100);

/// The main thread's end of the health check.
pub(super) struct HealthCheck {
    commands: Commands,
    pub(super) output: OutputPipe,
    runs: Sender<Box<Prepared>>,
    shared: Arc<Shared>,
    /// The outcome of the check was not taken in yet.
    is_running: bool,
}

/// State shared by the main thread and the watchdog thread.
struct Shared {
    /// When the check is killed, in nanoseconds since boot.
    deadline: AtomicU64,
    /// Wakes the watchdog.
    waker: Arc<Waker>,
    /// Readable when the check that was to be killed runs no more.
    killed: Waker,
}

impl Shared {
    fn set_deadline(&self, deadline: Instant) {
        let nanos = u64::try_from(deadline.since_boot().as_nanos()).unwrap_or(u64::MAX);
        self.deadline.store(nanos, Ordering::Release);
    }

    fn deadline(&self) -> Instant {
        Instant::from_boot(Duration::from_nanos(self.deadline.load(Ordering::Acquire)))
    }
}

impl HealthCheck {
    /// Starts the watchdog of the health check of these commands.
    ///
    /// # Errors
    ///
    /// When the system has no pipe, descriptor or thread to give.
    pub(super) fn new(commands: Commands, events: InboxSender<Event>) -> io::Result<HealthCheck> {
        let output = OutputPipe::new(Command::Check, None)?;
        let waker = Arc::new(Waker::new()?);
        let (deadline, killed) = (AtomicU64::default(), Waker::new()?);
        let shared = Arc::new(Shared { deadline, waker: Arc::clone(&waker), killed });
        let (runs, ordered) = bounded(1);
        let runner = Runner::start(Command::Check, &output.writer, waker, |_process| Ok(()))?;
        let mut watchdog = Watchdog {
            runner,
            ordered,
            shared: Arc::clone(&shared),
            alarm: Alarm::new()?,
            events,
            is_awaited: false,
        };
        let work = move || while watchdog.turn().is_some() {};
        sys::start_thread("putex-watchdog", work)?;
        Ok(HealthCheck { commands, output, runs, shared, is_running: false })
    }

    /// Runs the health check, which must not be running; returns its end if it does not begin: its
    /// deadline may have passed while the agent was suspended.
    pub(super) fn run(&mut self, run: Run) -> Option<Event> {
        let now = sys::now();
        if run.deadline <= now {
            return Some(Event::CheckEnded(Outcome::Overran));
        }
        let prepared = Box::new(self.commands.prepare(&run, None, now));
        self.shared.killed.clear();
        self.shared.set_deadline(run.deadline);
        // The previous outcome was taken in, and so was the order: there is room.
        self.is_running = self.runs.try_send(prepared).is_ok();
        self.shared.waker.wake();
        None
    }

    /// Moves the deadline of a check that runs.
    pub(super) fn extend(&mut self, deadline: Instant) {
        if self.is_running {
            self.shared.set_deadline(deadline);
            self.shared.waker.wake();
        }
    }

    /// Has the check killed if it runs.
    pub(super) fn kill(&mut self) {
        self.extend(Instant::from_boot(Duration::ZERO));
    }

    /// Has the check killed if it runs, and waits for its end, but not for long: this process ends.
    pub(super) fn end(&mut self) {
        self.kill();
        if self.is_running {
            sys::is_ready_soon(&self.shared.killed, KILLED_WITHIN);
        }
    }

    /// Passes on the rest of the output of the check, if this event is its end.
    pub(super) fn note(&mut self, event: &Event) {
        if matches!(event, Event::CheckEnded(_)) && std::mem::take(&mut self.is_running) {
            self.output.flush(&mut command_output);
        }
    }
}

/// The watchdog thread.
struct Watchdog {
    runner: Runner,
    ordered: Receiver<Box<Prepared>>,
    shared: Arc<Shared>,
    alarm: Alarm,
    events: InboxSender<Event>,
    /// A check was ordered, and its outcome not told yet.
    is_awaited: bool,
}

impl Watchdog {
    /// Waits, then does what is due; `None` when the main thread has ended.
    fn turn(&mut self) -> Option<()> {
        self.wait();
        self.shared.waker.clear();
        if self.is_awaited && sys::now() >= self.shared.deadline() {
            // A check that is still being spawned is killed after that.
            match self.runner.process {
                None => self.tell(Outcome::Overran)?,
                Some(_) => self.kill(),
            }
        }
        if let Ok(prepared) = self.ordered.try_recv() {
            self.is_awaited = true;
            if !self.runner.spawn(prepared) {
                self.tell(Outcome::Failed("its previous run has not ended".to_owned()))?;
            }
        }
        match self.runner.take_spawned() {
            Some(Err(error)) if self.is_awaited => self.tell(not_run(&error))?,
            // The outcome of the check was told before.
            Some(Ok(())) if !self.is_awaited => self.kill(),
            Some(_) | None => {}
        }
        match self.runner.reap() {
            Some(outcome) if self.is_awaited => self.tell(outcome),
            Some(_) | None => Some(()),
        }
    }

    /// Waits for an order, a spawned process or its end, or until the time of the check is over.
    fn wait(&self) {
        let is_killed = self.runner.process.as_ref().is_some_and(|process| process.killed);
        let waker = self.shared.waker.as_fd();
        let mut fds = [waker, self.runner.exit().unwrap_or(waker), waker];
        if self.is_awaited && !is_killed {
            let deadline = self.shared.deadline();
            if sys::now() >= deadline || self.alarm.set(deadline).is_err() {
                return;
            }
            fds[2] = self.alarm.as_fd();
        }
        // If the kernel refuses to wait, the caller looks again at once.
        let _ = sys::poll(&mut fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    }

    fn kill(&mut self) {
        if let Some(process) = self.runner.process.as_mut().filter(|process| !process.killed) {
            process.kill();
            self.shared.killed.wake();
        }
    }

    fn tell(&mut self, outcome: Outcome) -> Option<()> {
        self.is_awaited = false;
        self.shared.killed.wake();
        self.events.tell(Event::CheckEnded(outcome))
    }
}

#[cfg(test)]
mod tests;
