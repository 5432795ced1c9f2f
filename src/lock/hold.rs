//! The process that the user has started while the lock is held: the command runs, is sent signals,
//! stops and goes on with its terminal, and is ended in time where the lock runs out.

use std::io;
use std::os::fd::AsFd;

use libc::{SIGCONT, SIGKILL, SIGTERM};
use rustix::process::Signal;

use super::account::{Ending, Outcome};
use super::command::{self, Event};
use super::front::{Front, NOT_RENEWED, RENEWER_ENDED};
use super::held::{self, Grant};
use super::job::{Inspection, Job, Stop};
use super::protocol::{FromRenewer, ToFront, ToRenewer, Validity};
use crate::core::tickets::{CommandEnd, EndSignal, KILL_LEAD, KILL_WAIT};
use crate::core::{Instant, Ms};
use crate::exit::{Exit, Refusal};
use crate::sys;

/// A lock that is held, and the command under it.
pub(super) struct Hold<'a> {
    front: Front<'a>,
    job: Job,
    inspection: Inspection,
    /// The end of the lock, if it is one that runs out.
    lease: Option<Lease>,
    /// No process is left that the command has started.
    nothing_left: bool,
}

/// The end of a lock that is renewed by another process.
struct Lease {
    end: CommandEnd,
    /// V, as last renewed.
    valid_until: Instant,
    /// V, as the renewer tells it.
    validity: Validity,
    /// Why the lock is lost, or will be.
    why: String,
}

impl<'a> Hold<'a> {
    /// Runs the command under a lock in a directory, which the command inherits, if `inherited` has
    /// it. Returns how the process is to end, when the lock was held for as long as it was to be.
    pub(super) fn run_local(
        front: Front<'a>,
        grant: &Grant,
        inherited: Option<impl AsFd>,
    ) -> Result<Ending, Refusal> {
        let variables = held::variables(&front.account.request, grant);
        let mut hold = Hold::new(front, None);
        let (words, terminal) = (&hold.front.account.request.command, hold.job.terminal_given());
        let inherited = inherited.as_ref().map(AsFd::as_fd);
        match command::spawn(words, &variables, inherited, terminal) {
            Ok(group) => hold.job.note(Event::Started(group.as_raw_pid())),
            Err(error) => return hold.not_started(error),
        }
        hold.run()
    }

    /// Has the renewer run the command under its lock, which is valid until V. Returns how the
    /// process is to end, when the lock was released.
    pub(super) fn run_renewed(
        front: Front<'a>,
        validity: Validity,
        valid_until: Instant,
    ) -> Result<Ending, Refusal> {
        let end = CommandEnd::new(front.account.request.timing.kill_times(valid_until));
        let lease = Lease { end, valid_until, validity, why: NOT_RENEWED.to_owned() };
        let mut hold = Hold::new(front, Some(lease));
        hold.end_in_time();
        if hold.is_lost() {
            return hold.finish();
        }
        hold.start();
        if let Some(number) = hold.job.error {
            return hold.not_started(io::Error::from_raw_os_error(number));
        }
        hold.job.give_terminal();
        hold.run()
    }

    fn new(front: Front<'a>, lease: Option<Lease>) -> Hold<'a> {
        let (job, inspection) = (Job::new(), Inspection::default());
        Hold { front, job, inspection, lease, nothing_left: false }
    }

    /// Waits until the renewer has started the command or could not, or the lock is lost.
    fn start(&mut self) {
        let run = ToRenewer::Run(self.job.of_terminal());
        if !self.front.send(&run) {
            self.lose(RENEWER_ENDED);
        }
        loop {
            self.receive_all();
            self.end_in_time();
            if self.job.error.is_some() || self.is_lost() || self.job.group.is_some() {
                return;
            }
            self.front.poll_renewer(self.next_at());
        }
    }

    /// The command could not be started: the lock is free for others at once.
    fn not_started(mut self, error: io::Error) -> Result<Ending, Refusal> {
        self.job.reclaim_terminal();
        self.front.account.outcome = Outcome::NotStarted;
        let exit = command::exit_of(&error);
        if exit.is_some() {
            self.front.account.not_executed(&error);
        }
        if self.lease.is_some() {
            self.front.release();
        }
        match exit {
            Some(exit) => Ok(Ending::Status(exit as u8)),
            None => Err(Refusal::system("cannot start the command: ")(error)),
        }
    }

    /// Runs until the command and its group have ended; returns how the process is to end.
    fn run(mut self) -> Result<Ending, Refusal> {
        loop {
            // The end may have been heard together with the start.
            self.take_signals();
            if let Some(signal) = self.job.stopped_by.take() {
                self.stop(signal);
            }
            if self.has_ended() {
                return self.finish();
            }
            self.inspect();
            let now = sys::now();
            if self.lease.as_ref().is_some_and(|lease| lease.end.is_overdue(now)) {
                return Ok(self.give_up());
            }
            self.front.poll(self.next_at());
        }
    }

    /// Returns when something is due.
    fn next_at(&self) -> Option<Instant> {
        let due = self.lease.as_ref().map(|lease| lease.end.next_at());
        due.into_iter().chain(self.inspection.at).min()
    }

    fn is_lost(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.end.has_begun())
    }

    /// Takes in all that was heard of the lock and of the command, and passes the signals on.
    /// Returns whether the command was let go on by one of them.
    fn take_signals(&mut self) -> bool {
        let mut goes_on = false;
        loop {
            let signal = self.front.signals.next();
            // A SIGCHLD that was read wakes nobody again: the children are reaped after each read.
            self.receive_all();
            self.end_in_time();
            let Some(signal) = signal else { return goes_on };
            if self.has_ended() {
                // The signal is for the lock that is held on.
                self.front.signals.put_back(signal);
                return goes_on;
            }
            goes_on |= signal == SIGCONT;
            self.job.pass_on(signal);
        }
    }

    /// Takes in all that was heard of the lock and of the command.
    fn receive_all(&mut self) {
        self.renew();
        let had_renewer = self.front.renewer.is_some();
        while let Some(message) = self.front.next_message() {
            match message {
                FromRenewer::Ticket(ToFront::Waiting { .. } | ToFront::Granted { .. }) => {}
                FromRenewer::Ticket(ToFront::Lost(why)) => self.lose(&why),
                FromRenewer::Ticket(ToFront::Ended(_)) => self.lose("its ticket has ended"),
                FromRenewer::Command(event) => {
                    self.job.note(event);
                    self.nothing_left |= matches!(event, Event::NothingLeft | Event::NotStarted(_));
                    if event == Event::NotStarted(None) {
                        self.lose(NOT_RENEWED);
                    }
                }
            }
        }
        if had_renewer && self.front.renewer.is_none() {
            self.lose(RENEWER_ENDED);
        }
        if self.front.renewer.is_none() {
            let heard = self.front.children.reap();
            let group = self.job.group;
            let events = group.map(|group| command::events(&heard, group)).unwrap_or_default();
            events.into_iter().for_each(|event| self.job.note(event));
            self.nothing_left |= self.front.children.are_none;
        }
    }

    /// Takes in V, if it was told again.
    fn renew(&mut self) {
        if let Some(lease) = &mut self.lease
            && let Some(told) = lease.validity.take_told()
        {
            lease.valid_until = told;
            lease.end.renew(self.front.account.request.timing.kill_times(lease.valid_until));
        }
    }

    /// The lock is lost: the command is to end now.
    fn lose(&mut self, why: &str) {
        if let Some(lease) = self.lease.as_mut().filter(|lease| !lease.end.has_begun()) {
            why.clone_into(&mut lease.why);
            let timing = self.front.account.request.timing;
            lease.end.hasten(timing.kill_times_after_loss(sys::now(), lease.valid_until));
            self.end_in_time();
        }
    }

    /// Sends the signal that is due. This process may be stopped at any point: V is not read
    /// before the time that it is compared with.
    fn end_in_time(&mut self) {
        let now = sys::now();
        self.renew();
        let Some(lease) = &mut self.lease else { return };
        let had_begun = lease.end.has_begun();
        let Some(signal) = lease.end.take_due(now) else { return };
        match signal {
            EndSignal::Terminate => {
                self.job.send(SIGTERM);
                self.job.send(SIGCONT);
                if !self.front.send(&ToRenewer::Terminate) {
                    self.front.children.terminate();
                }
            }
            EndSignal::Kill => {
                self.job.send(SIGKILL);
                // The lock is not valid any more. Without the renewer, the processes that the
                // command has left behind come to this process, which goes on until none is left.
                if let Some(renewer) = &self.front.renewer {
                    let _ = rustix::process::kill_process(renewer.process, Signal::KILL);
                }
                self.front.children.kill(now.after(KILL_LEAD / 2));
            }
        }
        if !had_begun {
            self.front.account.lost(&lease.why);
        }
    }

    /// The leader was stopped, and this process stops with it. The command goes on with this
    /// process, if the lock is still held.
    fn stop(&mut self, signal: i32) {
        if self.is_lost() {
            return self.job.send(SIGCONT);
        }
        let Some(stop) = self.job.stop(signal) else { return };
        // The command is not sent SIGCONT twice: it may be stopped again in between.
        if !self.take_signals() && !self.is_lost() && !self.has_ended() {
            match stop {
                Stop::ByTerminal => self.job.go_on(),
                Stop::ByProgram => self.job.give_terminal(),
            }
        }
    }

    /// Sets when the group is inspected next. A process that joined the group after SIGKILL is
    /// killed too.
    fn inspect(&mut self) {
        let is_killed = self.lease.as_ref().is_some_and(|lease| lease.end.is_killed());
        let has_led = self.job.ended.is_some();
        if !(has_led || is_killed) || !self.inspection.is_due(sys::now()) {
            return;
        }
        if has_led {
            self.job.leader_has_ended();
        }
        if is_killed {
            self.job.send(SIGKILL);
        }
        if self.inspection.repeat(sys::now())
            && has_led
            && let Some(group) = self.job.group
        {
            let left = format!("others in its process group {group} have not");
            let text = format!("the command has ended, {left}: the lock is kept");
            self.front.account.warn(&text);
        }
    }

    /// Returns whether the command and its group have ended. After a loss nothing may be left
    /// that the command has started: timeout(1), for one, makes a group of its own.
    fn has_ended(&self) -> bool {
        if self.is_lost() { self.nothing_left } else { self.job.has_ended() }
    }

    /// The command and its group have ended: the lock is held on, or released.
    fn finish(mut self) -> Result<Ending, Refusal> {
        let ending = self.job.end();
        let is_lost = self.is_lost();
        let account = &mut self.front.account;
        account.command_status = self.job.ended.map(Ending::status);
        account.outcome = if is_lost { Outcome::Lost } else { Outcome::Ran };
        match &mut self.lease {
            Some(_) if is_lost => self.front.release(),
            Some(lease) => self.front.stay(&mut lease.validity, lease.valid_until),
            None => self.front.stay_local(),
        }
        Ok(if is_lost { Ending::Status(Exit::Lost as u8) } else { ending })
    }

    /// The command was killed, and has not ended.
    fn give_up(self) -> Ending {
        self.job.take_terminal_back();
        let account = self.front.account;
        account.outcome = Outcome::MayRun;
        let wait = Ms(KILL_WAIT);
        let text = format!("the command has not ended {wait} after SIGKILL: MAY STILL RUN");
        let group = self.job.group.map(|group| format!(": process group {group}"));
        account.say(&format!("{text}{}", group.unwrap_or_default()));
        Ending::Status(Exit::NotStopped as u8)
    }
}
