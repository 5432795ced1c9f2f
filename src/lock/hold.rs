//! The front while the lock is held: the command runs, is sent signals, stops and goes on with
//! its terminal, and is ended in time when the lock is not renewed.

use std::mem;
use std::os::fd::AsFd;

use libc::{SIGCONT, SIGKILL, SIGTERM};

use super::account::{Ending, Outcome};
use super::front::{Front, Grant, RENEWER_ENDED};
use super::held;
use super::job::{Inspection, Job};
use super::process::{Process, Start};
use super::processes::{Older, Processes};
use super::protocol::{ToFront, ToRenewer};
use super::terminal::Terminal;
use crate::core::tickets::{CommandEnd, EndSignal, KILL_WAIT};
use crate::core::{Instant, Ms};
use crate::exit::{Exit, LockExit, Refusal};
use crate::sys;

/// A lock that is held, and the command under it.
pub(super) struct Hold<'a> {
    front: Front<'a>,
    job: Job,
    start: Start,
    end: CommandEnd,
    /// V, as last renewed.
    valid_until: Instant,
    /// Why the lock is lost, or will be.
    why: String,
    inspection: Inspection,
    /// The command could not be executed.
    has_not_started: bool,
}

impl<'a> Hold<'a> {
    /// Spawns the command and tells the renewer of it.
    pub(super) fn begin(mut front: Front<'a>, grant: Grant) -> Result<Hold<'a>, Refusal> {
        let own = rustix::process::getpid();
        // What outlives its parent in the command's group becomes a child of this process.
        let adopts = rustix::process::set_child_subreaper(Some(own)).map_err(Into::into);
        let granted = (grant.term, grant.slot);
        let variables = held::variables(front.request, granted, &grant.epoch);
        let variables = [&variables[..], &[front.holder.variable()]].concat();
        let command = &front.request.command;
        let terminal = Terminal::open();
        let processes = mem::replace(&mut front.processes, (Processes::default(), Older::NONE));
        let spawned = adopts.and_then(|()| Process::spawn_held(command, &variables, processes));
        let (process, start) = match spawned {
            Ok(spawned) => spawned,
            Err(error) => {
                front.account.outcome = Outcome::NotStarted;
                // The refusal matters more.
                let _ = front.release();
                return Err(Refusal::system("cannot start the command: ")(error));
            }
        };
        let times = front.request.timing.kill_times(grant.valid_until);
        let wants_terminal = terminal.as_ref().is_some_and(Terminal::is_for_command);
        let mut hold = Hold {
            front,
            job: Job::new(process, terminal, wants_terminal),
            start,
            end: CommandEnd::new(times),
            valid_until: grant.valid_until,
            why: "not renewed in time".to_owned(),
            inspection: Inspection::default(),
            has_not_started: false,
        };
        hold.job.give_terminal();
        hold.release();
        Ok(hold)
    }

    /// Lets the command begin, if the renewer can kill it and there is time.
    fn release(&mut self) {
        let started = ToRenewer::Started(self.job.process.group.as_raw_pid());
        if !self.front.send(started, Some(self.start.pidfd.as_fd())) {
            self.lose(RENEWER_ENDED.to_owned());
        }
        self.end_in_time();
        if !self.end.has_begun() {
            self.start.release();
        }
    }

    /// Runs until the command and its group have ended; returns how the process is to end.
    pub(super) fn run(mut self) -> Result<Ending, Refusal> {
        loop {
            let deadline = self.end.next_at();
            let deadline = self.inspection.at().map_or(deadline, |at| at.min(deadline));
            if let Err(error) = self.front.poll(self.start.failure_fd(), Some(deadline)) {
                self.job.process.send(SIGKILL);
                return Err(Refusal::system("cannot wait for the command: ")(error));
            }
            self.receive();
            self.end_in_time();
            while let Some(signal) = self.front.signals.next() {
                self.job.pass_on(signal);
            }
            self.job.process.reap();
            if let Some(error) = self.start.take_failure() {
                self.front.account.not_executed(self.front.request, &error);
                self.has_not_started = true;
            }
            if let Some(signal) = self.job.process.take_stop() {
                self.stop(signal);
            }
            if self.has_ended() {
                return self.finish();
            }
            self.inspect();
            if self.end.is_overdue(sys::now()) {
                self.job.take_terminal_back();
                self.front.account.outcome = Outcome::MayRun;
                let (group, wait) = (self.job.process.group, Ms(KILL_WAIT));
                let text = format!("the command has not ended {wait} after SIGKILL: MAY STILL RUN");
                self.front.account.say(&format!("{text}: process group {group}"));
                return Ok(Ending::Status(Exit::NotStopped as u8));
            }
        }
    }

    /// Takes in all that the renewer has said, and its end.
    fn receive(&mut self) {
        self.renew();
        let had_renewer = self.front.has_renewer();
        while let Some(message) = self.front.next_message() {
            match message {
                ToFront::Waiting { .. } | ToFront::Granted { .. } => {}
                ToFront::Lost(why) => self.lose(why),
                ToFront::Ended(_) => self.lose("its ticket has ended".to_owned()),
            }
        }
        if had_renewer && !self.front.has_renewer() && !self.end.has_begun() {
            RENEWER_ENDED.clone_into(&mut self.why);
            let left = Ms(self.end.next_at().since(sys::now()));
            let text = format!("{RENEWER_ENDED}: the command can run for {left} more");
            self.front.account.warn(&text);
        }
    }

    /// Takes in V, if it was told again.
    fn renew(&mut self) {
        if let Some(valid_until) = self.front.take_validity() {
            self.valid_until = valid_until;
            self.end.renew(self.front.request.timing.kill_times(valid_until));
        }
    }

    /// The lock is lost: the command is to end now.
    fn lose(&mut self, why: String) {
        if !self.end.has_begun() {
            self.why = why;
            let timing = self.front.request.timing;
            self.end.hasten(timing.kill_times_after_loss(sys::now(), self.valid_until));
            self.end_in_time();
        }
    }

    /// Sends the signal that is due. This process may be stopped at any point: V is not read
    /// before the time that it is compared with.
    fn end_in_time(&mut self) {
        let now = sys::now();
        self.renew();
        let had_begun = self.end.has_begun();
        let Some(signal) = self.end.take_due(now) else { return };
        match signal {
            EndSignal::Terminate => {
                self.job.process.send_to_all(SIGTERM);
                self.job.process.send_to_all(SIGCONT);
            }
            EndSignal::Kill => self.job.process.send_to_all(SIGKILL),
        }
        if !had_begun {
            self.front.say_loss(&self.why);
        }
    }

    /// The leader was stopped, and this process may have stopped with it. The command goes on if
    /// the lock is still held.
    fn stop(&mut self, signal: i32) {
        if self.end.has_begun() {
            self.job.process.send(SIGCONT);
        } else if self.job.stop(signal, &self.front.signals) {
            self.receive();
            self.end_in_time();
            if !self.end.has_begun() {
                self.job.go_on();
            }
        }
    }

    /// Sets when the group is inspected next. What joined it after SIGKILL is killed too.
    fn inspect(&mut self) {
        let has_led = self.job.process.ended.is_some();
        if !(has_led || self.end.is_killed()) || !self.inspection.is_due(sys::now()) {
            return;
        }
        if has_led {
            self.job.leader_has_ended();
            if self.inspection.take_is_to_be_said() {
                self.front.account.group_is_left(self.job.process.group);
            }
        }
        if self.end.is_killed() {
            self.job.process.send_to_all(SIGKILL);
        }
        self.inspection.repeat(sys::now());
    }

    /// Returns whether the command and its group have ended. After a loss nothing may be left
    /// that the command has started: timeout(1), for one, makes a group of its own.
    fn has_ended(&mut self) -> bool {
        self.job.process.has_ended()
            && (!self.end.has_begun() || self.job.process.descendants().is_none())
    }

    /// The command and its group have ended: the lock is released, or held on. One whose
    /// command was not executed is free for others at once.
    fn finish(mut self) -> Result<Ending, Refusal> {
        let ending = self.job.end();
        let status = ending.status();
        let is_lost = self.end.has_begun();
        let account = &mut self.front.account;
        let has_run = self.start.has_begun() && !self.has_not_started;
        account.command_status = Some(status).filter(|_| has_run);
        account.outcome = match (is_lost, self.has_not_started) {
            (true, _) => Outcome::Lost,
            (false, true) => Outcome::NotStarted,
            (false, false) => Outcome::Ran,
        };
        let ended = match account.outcome == Outcome::Ran {
            true => self.front.stay(self.valid_until),
            false => self.front.release(),
        };
        ended.map_err(Refusal::system("cannot wait for the release: "))?;
        Ok(if is_lost { Ending::Status(LockExit::Lost as u8) } else { ending })
    }
}
