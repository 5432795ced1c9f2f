//! The check thread: runs the health check, passes its output on, kills it at its deadline and
//! reaps it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::inbox::{Inbox, InboxSender, inbox};
use crate::command::{Commands, OutputPipe, Process};
use crate::core::{Command, Event, Instant, Outcome, Run};
use crate::log::{command_output, panic_if_asked};
use crate::sys;

/// The pump has one health check under way; twice that is room enough.
const RUNS_MAX: usize = 2;

/// The pump's end of the thread.
pub(super) struct CheckHandle {
    runs: InboxSender<Run>,
    check: Arc<Mutex<Check>>,
}

/// The health check that runs, or is about to.
struct Check {
    /// When it is killed.
    deadline: Instant,
    process: Option<Process>,
}

struct CheckThread {
    commands: Commands,
    output: OutputPipe,
    check: Arc<Mutex<Check>>,
    runs: Inbox<Run>,
    events: InboxSender<Event>,
}

impl CheckHandle {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When the system has no pipe, descriptor or thread to give.
    pub(super) fn start(commands: Commands, events: InboxSender<Event>) -> io::Result<CheckHandle> {
        let (own, runs) = inbox(RUNS_MAX)?;
        let none = Check { deadline: sys::now(), process: None };
        let check = Arc::new(Mutex::new(none));
        let output = OutputPipe::new(Command::Check, None)?;
        let mut thread = CheckThread { commands, output, check: Arc::clone(&check), runs, events };
        let work = move || while thread.turn().is_some() {};
        thread::Builder::new().name("putex-check".to_owned()).spawn(work)?;
        Ok(CheckHandle { runs: own, check })
    }

    /// Asks for a health check without waiting; returns its end if there is no room.
    pub(super) fn run(&self, run: Run) -> Option<Event> {
        lock(&self.check).deadline = run.deadline;
        self.runs.offer(run)?;
        let why = "too many checks are under way".to_owned();
        Some(Event::CheckEnded(Outcome::Failed(why)))
    }

    /// Moves the deadline of the check, whether it runs already or is about to.
    pub(super) fn extend(&self, deadline: Instant) {
        let before = std::mem::replace(&mut lock(&self.check).deadline, deadline);
        if deadline < before {
            self.runs.waker.wake();
        }
    }

    /// Kills the check now, or has it killed as soon as it runs.
    pub(super) fn kill(&self) {
        let mut check = lock(&self.check);
        check.deadline = Instant::from_boot(Duration::ZERO);
        check.kill();
    }
}

fn lock(check: &Mutex<Check>) -> MutexGuard<'_, Check> {
    check.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Check {
    fn kill(&mut self) {
        self.process.iter_mut().for_each(Process::kill);
    }

    /// Takes the process if it has ended; kills one whose time is over.
    fn take_ended(&mut self) -> Option<Process> {
        let ended = self.process.take_if(|process| sys::is_ready(&process.exit));
        if self.kill_at().is_some_and(|at| at <= sys::now()) {
            self.kill();
        }
        ended
    }

    /// Returns when to kill the process.
    fn kill_at(&self) -> Option<Instant> {
        let process = self.process.as_ref()?;
        (!process.killed).then_some(self.deadline)
    }

    /// Returns the end of the process, and when to kill it before that.
    fn awaited(&self) -> (Option<Arc<OwnedFd>>, Option<Instant>) {
        (self.process.as_ref().map(|process| Arc::clone(&process.exit)), self.kill_at())
    }
}

impl CheckThread {
    fn turn(&mut self) -> Option<()> {
        let (exit, deadline) = lock(&self.check).awaited();
        let exit = exit.as_ref().map(AsFd::as_fd);
        if let Err(error) = self.runs.wait([self.output.as_fd()].into_iter().chain(exit), deadline)
        {
            log::error!("cannot wait for the health check: {error}");
        }
        panic_if_asked("putex-check");
        let ended = lock(&self.check).take_ended();
        if let Some(process) = ended {
            let outcome = process.reap();
            self.output.flush(&mut command_output);
            self.events.tell(Event::CheckEnded(outcome))?;
        } else {
            self.output.pass_on(&mut command_output);
        }
        while let Some(run) = self.runs.try_next() {
            if let Err(outcome) = self.spawn(&run) {
                self.events.tell(Event::CheckEnded(outcome))?;
            }
        }
        Some(())
    }

    /// This thread may have been held up since the pump asked: a check whose time is over is
    /// not begun.
    fn spawn(&mut self, run: &Run) -> Result<(), Outcome> {
        let now = sys::now();
        if lock(&self.check).deadline <= now {
            return Err(Outcome::Overran);
        }
        let prepared = self.commands.prepare(run, None, now);
        let spawned = Process::spawn(prepared, self.output.writer());
        let process =
            spawned.map_err(|error| Outcome::Failed(format!("it could not be run: {error}")))?;
        lock(&self.check).process = Some(process);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{LockContext, Role};

    /// Leaves its process group, says so and stays.
    const LEAVER: &str = "exec perl -e '
        setpgrp(0, getpgrp(getppid())) or die; open(F, \">\", $ARGV[0]); close(F); sleep 100'";

    fn run(deadline: Instant) -> Run {
        let (command, context) = (Command::Check, LockContext::default());
        Run { command, role: Role::Standby, deadline, starting: false, context }
    }

    /// Starts a thread with this health check.
    fn start(check: &str) -> (CheckHandle, Inbox<Event>) {
        let commands = Commands {
            check: Some(check.to_owned()),
            start: "true".to_owned(),
            stop: "true".to_owned(),
            last_resort: None,
            on_change: None,
            key: "web".to_owned(),
            token: "one".to_owned(),
        };
        let (events, inbox) = inbox(8).expect("a descriptor");
        (CheckHandle::start(commands, events).expect("a thread"), inbox)
    }

    fn next(events: &Inbox<Event>) -> Option<Event> {
        events.next_or([], Some(in_ms(20_000)), || None)
    }

    fn in_ms(ms: u64) -> Instant {
        sys::now().after(Duration::from_millis(ms))
    }

    #[test]
    fn a_check_that_left_its_process_group_is_killed_at_its_deadline() {
        if !std::path::Path::new("/usr/bin/perl").exists() {
            println!("skipped: no perl");
            return;
        }
        let name = format!("putex-left-{}", std::process::id());
        let left = std::env::temp_dir().join(name);
        let (check, events) = start(&format!("{LEAVER} {}", left.display()));
        assert_eq!(check.run(run(in_ms(60_000))), None);
        let patience = in_ms(20_000);
        while !left.exists() {
            assert!(sys::now() < patience, "it does not leave");
        }
        std::fs::remove_file(&left).expect("it is there");
        check.extend(sys::now());
        let ended = next(&events);
        assert_eq!(ended, Some(Event::CheckEnded(Outcome::Overran)));
    }

    #[test]
    fn a_check_has_until_its_last_deadline() {
        let (check, events) = start("sleep 0.2");
        assert_eq!(check.run(run(in_ms(100))), None);
        check.extend(in_ms(60_000));
        let ended = next(&events);
        assert_eq!(ended, Some(Event::CheckEnded(Outcome::Succeeded)));
        assert_eq!(check.run(run(sys::now())), None);
        let ended = next(&events);
        assert_eq!(ended, Some(Event::CheckEnded(Outcome::Overran)), "it is not begun");
        assert_eq!(check.run(run(in_ms(60_000))), None);
        check.kill();
        let ended = next(&events);
        assert_eq!(ended, Some(Event::CheckEnded(Outcome::Overran)), "it was killed");
    }
}
