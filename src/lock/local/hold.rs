//! The process while the lock is held: it runs the command, and holds the lock on after it. The
//! record of `--once` is kept in the directory too.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use libc::SIGKILL;
use rustix::event::PollFd;

use super::{Granted, Local, NotGranted};
use crate::core::tickets::{Once, OnceState};
use crate::core::{Instant, StoreErrorKind};
use crate::exit::{Exit, LockExit, Refusal};
use crate::lock::Request;
use crate::lock::account::{Ending, Outcome};
use crate::lock::held;
use crate::lock::job::{Inspection, Job};
use crate::lock::listener::wait_for;
use crate::lock::process::{Process, exit_of};
use crate::lock::signals::Signals;
use crate::lock::terminal::Terminal;
use crate::store::dir::DirStore;
use crate::store::{Bucket, FirstKeys, once};
use crate::sys::{self, Alarm, PollFlags, raw};

/// How long one request for the record may take. A signal is noticed after it.
const REQUEST_MAX: Duration = Duration::from_secs(1);

/// The record of an ID.
pub(super) struct Record {
    bucket: DirStore,
    once: Once,
}

impl Local<'_> {
    /// Reads under the lock whether the ID has succeeded before, if there is one.
    pub(super) fn read_record(&self) -> Result<Option<Record>, NotGranted> {
        let Some(id) = &self.request.once else { return Ok(None) };
        let (base, bucket) = self.store;
        let now = sys::now();
        let until = now.after(self.request.timing.validity());
        let mut bucket = DirStore::new(base.to_owned(), bucket);
        bucket.open(FirstKeys::read(&[&once::key(&self.request.names[0])]), until)?;
        let mut record = Record { bucket, once: Once::new(id.clone(), now, until) };
        while let Some(at) = record.once.next_at() {
            wait_for([], self.signals.as_ref(), Some(at))?;
            self.advance(&mut record);
        }
        match record.once.state() {
            OnceState::Failed(why) => {
                Err(StoreErrorKind::Unreachable.error(format!("--once: {why}")).into())
            }
            OnceState::Unknown
            | OnceState::Succeeded
            | OnceState::New
            | OnceState::Recording
            | OnceState::Recorded => Ok(Some(record)),
        }
    }

    /// Makes the request that is due for a record, if there is one.
    fn advance(&self, record: &mut Record) {
        let now = sys::now();
        let by = now.after(REQUEST_MAX);
        once::advance(&mut record.once, &mut record.bucket, &self.request.names[0], now, by);
    }

    /// Runs the command, unless its ID has succeeded before; returns how the process is to end.
    pub(super) fn run(
        mut self,
        granted: Granted,
        record: Option<Record>,
    ) -> Result<Ending, Refusal> {
        self.account.granted(granted.term, &granted.epoch, granted.slot);
        let is_known = |it: &Record| it.once.state() == &OnceState::Succeeded;
        if record.as_ref().is_some_and(is_known) {
            self.account.skipped(self.request.once.as_deref().unwrap_or_default());
            drop(granted);
            self.account.released();
            return Ok(Ending::Status(Exit::Success as u8));
        }
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
        self.account.outcome = Outcome::Ran;
        self.account.command_status = Some(status);
        let stayed = self.stay(record, status == 0, &signals);
        stayed.map_err(Refusal::system("cannot hold the lock on: "))?;
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
        let names = &self.account.names;
        let variables = held::variables(self.request, names, (*term, *slot), epoch);
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

    /// Records the success of an ID, and holds the lock on for `--hold`. A signal ends both.
    fn stay(
        &mut self,
        record: Option<Record>,
        succeeded: bool,
        signals: &Signals,
    ) -> io::Result<()> {
        let Some(held_until) = self.account.stays(self.request, succeeded) else { return Ok(()) };
        self.account.tell_stay(held_until);
        raw::close_inherited();
        let mut record = record.filter(|_| succeeded);
        if let Some(record) = &mut record {
            let now = sys::now();
            record.once.record(now, now.after(self.request.timing.validity()));
        }
        let alarm = Alarm::new()?;
        loop {
            if let Some(record) = &mut record {
                self.advance(record);
                self.account.recorded = Some(record.once.state() == &OnceState::Recorded);
                if let OnceState::Failed(why) = record.once.state() {
                    self.account.why = Some(why.clone());
                }
            }
            let request_at = record.as_ref().and_then(|it| it.once.next_at());
            if request_at.is_none() && sys::now() >= held_until {
                break;
            }
            let until = Some(request_at.unwrap_or(held_until));
            alarm.wait([(signals.as_fd(), PollFlags::IN)], until)?;
            if signals.next_deadly().is_some() {
                break;
            }
        }
        self.account.warn_if_unrecorded();
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
