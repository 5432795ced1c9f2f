//! The process while the lock is held: it runs the command, and holds the lock on after it.

use std::io;
use std::os::fd::AsFd;

use libc::SIGKILL;
use rustix::event::PollFd;

use super::{Granted, Local};
use crate::core::Instant;
use crate::exit::{LockExit, Refusal};
use crate::lock::Request;
use crate::lock::account::{Ending, Outcome};
use crate::lock::held;
use crate::lock::job::{Inspection, Job};
use crate::lock::process::{Process, exit_of};
use crate::lock::signals::Signals;
use crate::lock::terminal::Terminal;
use crate::sys::{self, Alarm, PollFlags, raw};

impl Local<'_> {
    /// Runs the command; returns how the process is to end.
    pub(super) fn run(mut self, granted: Granted) -> Result<Ending, Refusal> {
        self.account.granted(granted.term, &granted.epoch, granted.slot);
        let started = self.start(&granted);
        let started = started.inspect_err(|_| self.account.outcome = Outcome::NotStarted)?;
        let (signals, mut job) = match started {
            Ok(started) => started,
            Err(exit) => {
                self.account.outcome = Outcome::NotStarted;
                drop(granted);
                self.account.released();
                return Ok(Ending::Status(exit as u8));
            }
        };
        let mut inspection = Inspection::default();
        while !job.process.has_ended() {
            if job.process.ended.is_some() && inspection.is_due(sys::now()) {
                job.leader_has_ended();
                if inspection.take_is_to_be_said() {
                    self.account.group_is_left(job.process.group);
                }
                inspection.repeat(sys::now());
            }
            if let Err(error) = wait_for_signal(&signals, inspection.at()) {
                job.process.send(SIGKILL);
                return Err(Refusal::system("cannot wait for the command: ")(error));
            }
            while let Some(signal) = signals.next() {
                job.pass_on(signal);
            }
            job.process.reap();
            if let Some(signal) = job.process.take_stop()
                && job.stop(signal, &signals)
            {
                job.go_on();
            }
        }
        let ending = job.end();
        let status = ending.status();
        if self.account.outcome != Outcome::NotStarted {
            self.account.outcome = Outcome::Ran;
            self.account.command_status = Some(status);
            let stayed = self.stay(&signals);
            stayed.map_err(Refusal::system("cannot hold the lock on: "))?;
        }
        // A thread that waits for another ticket has the file too, until this process ends.
        drop(granted);
        self.account.released();
        Ok(ending)
    }

    /// Starts the command; returns how env(1) would end if it cannot be executed.
    fn start(&mut self, granted: &Granted) -> Result<Result<(Signals, Job), LockExit>, Refusal> {
        let Request { command, .. } = self.request;
        let Granted { inherited, term, slot, epoch, .. } = granted;
        let signals = self.signals.take().map_or_else(Signals::open, Ok);
        let signals = signals.map_err(Refusal::system("cannot take signals: "))?;
        let variables = held::variables(self.request, (*term, *slot), epoch);
        let inherited = inherited.as_ref().map(AsFd::as_fd);
        let terminal = Terminal::open();
        let wants_terminal = terminal.as_ref().is_some_and(Terminal::is_for_command);
        let given = terminal.as_ref().filter(|_| wants_terminal).map(AsFd::as_fd);
        let spawned = Process::spawn(command, &variables, inherited, given);
        let error = match spawned {
            Ok(process) => return Ok(Ok((signals, Job::new(process, terminal, wants_terminal)))),
            Err(error) => error,
        };
        if wants_terminal {
            terminal.iter().for_each(Terminal::reclaim);
        }
        let Some(exit) = exit_of(&error) else {
            return Err(Refusal::system("cannot start the command: ")(error));
        };
        self.account.not_executed(self.request, &error);
        Ok(Err(exit))
    }

    /// Holds the lock on for `--hold`. A signal ends that.
    fn stay(&mut self, signals: &Signals) -> io::Result<()> {
        let Some(held_until) = self.account.stays(self.request) else { return Ok(()) };
        self.account.tell_stay(held_until);
        raw::close_inherited();
        let alarm = Alarm::new()?;
        while sys::now() < held_until && signals.next_deadly().is_none() {
            alarm.wait([(signals.as_fd(), PollFlags::IN)], Some(held_until))?;
        }
        Ok(())
    }
}

/// Waits for a signal, or until this instant.
fn wait_for_signal(signals: &Signals, until: Option<Instant>) -> io::Result<()> {
    match until {
        None => sys::poll(&mut [PollFd::new(signals, PollFlags::IN)]),
        Some(_) => Alarm::new()?.wait([(signals.as_fd(), PollFlags::IN)], until).map(drop),
    }
}
