//! The health check: the process that runs, its output, its deadline and its end.
//!
//! The main thread spawns it, which waits neither for the kernel nor for a disk, and waits for it
//! beside its own events.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::command::{Commands, OutputPipe, Process, not_run};
use crate::core::{Command, Event, Instant, Outcome, Run};
use crate::log::command_output;
use crate::sys;

/// The health check of an agent, whether it runs or not.
pub(super) struct HealthCheck {
    commands: Commands,
    output: OutputPipe,
    running: Option<Running>,
}

struct Running {
    process: Process,
    /// When it is killed.
    deadline: Instant,
}

impl HealthCheck {
    /// Makes the health check of these commands.
    ///
    /// # Errors
    ///
    /// When the system has no pipe to give.
    pub(super) fn new(commands: Commands) -> io::Result<HealthCheck> {
        let output = OutputPipe::new(Command::Check, None)?;
        Ok(HealthCheck { commands, output, running: None })
    }

    /// Spawns the health check, which must not be running; returns its end if it does not begin.
    /// The agent may have been held up: a check whose time is over is not begun.
    pub(super) fn run(&mut self, run: Run) -> Option<Event> {
        let (now, deadline) = (sys::now(), run.deadline);
        if deadline <= now {
            return Some(Event::CheckEnded(Outcome::Overran));
        }
        let prepared = self.commands.prepare(&run, None, now);
        match Process::spawn(prepared, self.output.writer()) {
            Ok(process) => self.running = Some(Running { process, deadline }),
            Err(error) => return Some(Event::CheckEnded(not_run(&error))),
        }
        None
    }

    /// Moves the deadline of a check that runs.
    pub(super) fn extend(&mut self, deadline: Instant) {
        self.running.iter_mut().for_each(|running| running.deadline = deadline);
    }

    /// Kills the check if it runs.
    pub(super) fn kill(&mut self) {
        self.running.iter_mut().for_each(|running| running.process.kill());
    }

    /// Returns when to kill the check.
    pub(super) fn kill_at(&self) -> Option<Instant> {
        let running = self.running.as_ref()?;
        (!running.process.killed).then_some(running.deadline)
    }

    /// Returns what can be read when the check has written something, and when it has ended.
    pub(super) fn fds(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let exit = self.running.as_ref().map(|running| running.process.as_fd());
        [Some(self.output.as_fd()), exit]
    }

    /// Kills a check whose time is over.
    pub(super) fn kill_if_due(&mut self, now: Instant) {
        if self.kill_at().is_some_and(|at| at <= now) {
            self.kill();
        }
    }

    /// Passes on what the check has written, if it has, and reaps it if it has ended; returns its
    /// outcome then.
    pub(super) fn tend(&mut self, [has_written, has_ended]: [bool; 2]) -> Option<Event> {
        if has_ended && let Some(running) = self.running.take() {
            let outcome = running.process.reap();
            self.output.flush(&mut command_output);
            return Some(Event::CheckEnded(outcome));
        }
        if has_written {
            self.output.pass_on(&mut command_output);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{LockContext, Role};
    use crate::sys::{Alarm, PATIENCE, PollFlags};
    use std::time::Duration;

    /// Leaves its process group, says so and stays.
    const LEAVER: &str = "exec perl -e '
        setpgrp(0, getpgrp(getppid())) or die; open(F, \">\", $ARGV[0]); close(F); sleep 1000'";

    fn run(deadline: Instant) -> Run {
        let (command, context) = (Command::Check, LockContext::default());
        Run { command, role: Role::Standby, deadline, starting: false, context }
    }

    /// Makes this health check.
    fn check(script: &str) -> HealthCheck {
        let commands = Commands {
            check: Some(script.to_owned()),
            start: "true".to_owned(),
            stop: "true".to_owned(),
            last_resort: None,
            environment: None,
            on_change: None,
            key: "web".to_owned(),
            token: "one".to_owned(),
        };
        HealthCheck::new(commands).expect("a pipe")
    }

    /// Tends the check until it has ended; returns the outcome.
    fn end(check: &mut HealthCheck) -> Option<Event> {
        let (alarm, until) = (Alarm::new().expect("a descriptor"), sys::now().after(PATIENCE));
        while sys::now() < until {
            let [Some(output), Some(exit)] = check.fds() else { panic!("no check runs") };
            let deadline = check.kill_at().map_or(until, |at| at.min(until));
            let fds = [(output, PollFlags::IN), (exit, PollFlags::IN)];
            let ready = alarm.wait(fds, Some(deadline)).expect("it waits");
            check.kill_if_due(sys::now());
            if let Some(ended) = check.tend(ready) {
                return Some(ended);
            }
        }
        None
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
        let mut check = check(&format!("{LEAVER} {}", left.display()));
        assert_eq!(check.run(run(in_ms(1_000_000))), None);
        let patience = sys::now().after(PATIENCE);
        while !left.exists() {
            assert!(sys::now() < patience, "it does not leave");
        }
        std::fs::remove_file(&left).expect("it is there");
        check.extend(sys::now());
        let ended = end(&mut check);
        assert_eq!(ended, Some(Event::CheckEnded(Outcome::Overran)));
    }

    #[test]
    fn a_check_has_until_its_last_deadline() {
        let mut check = check("sleep 0.2");
        assert_eq!(check.run(run(in_ms(100))), None);
        check.extend(in_ms(1_000_000));
        let ended = end(&mut check);
        assert_eq!(ended, Some(Event::CheckEnded(Outcome::Succeeded)));
        let ended = check.run(run(sys::now()));
        assert_eq!(ended, Some(Event::CheckEnded(Outcome::Overran)), "it is not begun");
        assert_eq!(check.run(run(in_ms(1_000_000))), None);
        check.kill();
        let ended = end(&mut check);
        assert_eq!(ended, Some(Event::CheckEnded(Outcome::Overran)), "it was killed");
    }
}
