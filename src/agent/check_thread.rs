//! The check thread: runs the health check, passes its output on, reaps it.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::event::{PollFd, PollFlags};

use super::inbox::Post;
use super::threads::Threads;
use super::watchdog::Watchdog;
use crate::command::{Commands, OutputPipe, Process};
use crate::core::command::{Command, Outcome, Run};
use crate::core::event::Event;
use crate::log::{command_output, panic_if_asked};
use crate::sys::{self, Alarm, Waker};

/// The pump has one health check under way; twice that is room enough.
const RUNS_MAX: usize = 2;

/// The pump's end of the thread.
pub(super) struct CheckHandle {
    runs: Sender<Run>,
    waker: Arc<Waker>,
}

impl CheckHandle {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When the system has no pipe, descriptor or thread to give.
    pub(super) fn start(
        commands: Commands,
        watchdog: Arc<Watchdog>,
        post: Post,
        threads: Threads,
    ) -> io::Result<CheckHandle> {
        let (runs, queue) = bounded(RUNS_MAX);
        let waker = Arc::new(Waker::new()?);
        let thread = CheckThread {
            commands,
            output: OutputPipe::new(Command::Check)?,
            process: None,
            watchdog,
            queue,
            waker: Arc::clone(&waker),
            alarm: Alarm::new()?,
            post,
        };
        threads.start("putex-check", move || thread.work())?;
        Ok(CheckHandle { runs, waker })
    }

    /// Asks for a health check without waiting; returns whether there was room.
    pub(super) fn run(&self, run: Run) -> bool {
        let room = self.runs.try_send(run).is_ok();
        self.waker.wake();
        room
    }
}

struct CheckThread {
    commands: Commands,
    output: OutputPipe,
    process: Option<Process>,
    watchdog: Arc<Watchdog>,
    queue: Receiver<Run>,
    waker: Arc<Waker>,
    alarm: Alarm,
    post: Post,
}

impl CheckThread {
    /// Works until the agent has ended.
    fn work(mut self) {
        while self.turn().is_some() {}
    }

    fn turn(&mut self) -> Option<()> {
        if let Err(error) = self.wait() {
            log::error!("cannot wait for the health check: {error}");
        }
        panic_if_asked("putex-check");
        self.waker.clear();
        self.output.pass_on(&mut command_output);
        if let Some(process) = self.process.take_if(|process| process.has_ended()) {
            // Not reaped yet, so the group's number is still its own.
            let killed = self.watchdog.ended(process.group().as_raw_nonzero().get());
            let outcome = process.reap(killed);
            self.output.flush(&mut command_output);
            self.post.tell(Event::CheckEnded(outcome))?;
        }
        while let Ok(run) = self.queue.try_recv() {
            self.spawn(&run)?;
        }
        Some(())
    }

    /// Waits for a run, for output, or for the end of the health check.
    fn wait(&self) -> io::Result<()> {
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = vec![readable(self.waker.as_fd()), readable(self.output.as_fd())];
        let process = self.process.as_ref();
        fds.extend(process.map(|process| readable(process.as_fd())));
        self.alarm.poll(&mut fds, None)
    }

    /// This thread may have been held up since the pump asked: a check whose time is over is
    /// not begun.
    fn spawn(&mut self, run: &Run) -> Option<()> {
        if self.watchdog.is_over() {
            return self.post.tell(Event::CheckEnded(Outcome::Overran));
        }
        let prepared = self.commands.prepare(run, None, sys::now());
        let spawned = self.output.writer();
        match spawned.and_then(|writer| Process::spawn(prepared, &writer)) {
            Ok(process) => {
                self.watchdog.started(process.group().as_raw_nonzero().get());
                self.process = Some(process);
                Some(())
            }
            Err(error) => {
                let outcome = Outcome::Failed(format!("it could not be run: {error}"));
                self.post.tell(Event::CheckEnded(outcome))
            }
        }
    }
}
