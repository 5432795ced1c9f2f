//! The renewer: the process that has the ticket in the store, and the command as its child. One
//! thread. Every request ends before the command has to be killed.

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use libc::{SIGCHLD, SIGKILL, SIGTTIN};
use rustix::io::Errno;
use rustix::process::Pid;

use super::account::Account;
use super::command::{self, Children, Event};
use super::held::Grant;
use super::protocol::{FromRenewer, OfTerminal, ToRenewer, Validity};
use super::terminal::Terminal;
use super::{Request, held};
use crate::core::tickets::{Asker, End, Input, KILL_LEAD, Step, Ticket, TicketOwner, ToFront};
use crate::core::{Incarnation, Instant, StoreErrorKind, Written};
use crate::guard::{next_packet, send_json};
use crate::log::LogQueue;
use crate::store::Bucket;
use crate::store::tickets::Tickets;
use crate::sys::{self, Alarm, PollFlags, raw};

/// How long the end of a command is waited for that was killed because the front is dead.
const END_WITHIN: Duration = Duration::from_secs(5);

/// How long the renewers of locks inside of such a command may take to release them.
const RELEASE_WITHIN: Duration = Duration::from_secs(2);

/// The pause before a command that was killed is killed again, or looked at again: first, and at
/// last.
const KILL_PAUSE: Duration = Duration::from_millis(20);
const KILL_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long to wait until the kernel may have memory for a message.
const SEND_PAUSE: Duration = Duration::from_millis(5);

/// How far the command is.
enum Progress {
    /// The lock is waited for, or held since the front was told so, and no command was started.
    NotStarted(Option<(Grant, Instant)>),
    /// The command was started at this instant, and leads this group.
    Runs { group: Pid, began: Instant },
    /// The command has ended, and the lock is held on until then.
    Stays(Instant),
    /// The ticket is to end.
    Ends,
    /// The ticket is left to run out: a command may run that this process cannot end.
    Abandoned,
}

struct Renewer<'a> {
    request: &'a Request,
    owner: TicketOwner,
    tickets: Tickets,
    /// The front; `None` when it is dead.
    front: Option<OwnedFd>,
    /// The log of this process.
    log: Option<LogQueue>,
    /// This process has the input, the output and the files that the command inherits.
    has_files: bool,
    /// V, as the front is told it.
    validity_told: Validity,
    progress: Progress,
    children: Children,
    /// Readable when a child has ended or stopped.
    child_signals: OwnedFd,
    /// Readable when the front has said something or has ended, and with the other one.
    wakes: OwnedFd,
    alarm: Alarm,
}

/// Keeps the ticket until it has ended.
pub(super) fn run(
    (front, validity_told): (OwnedFd, Validity),
    account: &Account,
    bucket: Box<dyn Bucket>,
) {
    let Account { request, destination, .. } = account;
    let log = LogQueue::start(&request.name.to_string(), request.level, *destination).ok();
    match Renewer::new(request, bucket, validity_told) {
        Ok(mut renewer) => {
            // Before that, the front has started nothing.
            renewer.set_front(front);
            renewer.has_files = true;
            renewer.log = log;
            while renewer.turn() {}
        }
        Err(error) => {
            let why = StoreErrorKind::System.error(format!("cannot keep the lock: {error}"));
            let ended = ToFront::Ended(End::Refused(why));
            let _ = send_json(front.as_fd(), &FromRenewer::Ticket(ended), None);
        }
    }
}

impl<'a> Renewer<'a> {
    fn new(
        request: &'a Request,
        bucket: Box<dyn Bucket>,
        validity_told: Validity,
    ) -> io::Result<Renewer<'a>> {
        let ticket = Ticket {
            lifetime: request.timing.lifetime(),
            incarnation: Incarnation(sys::random()?),
            ..Ticket::new(request.name.clone(), request.mode, request.token.clone())
        };
        let clock = sys::host_clock::name();
        let tickets = Tickets::new(bucket, &ticket, &clock);
        let (asker, wait) = (Asker::Command(request.soft), request.wait);
        let (nonce, now) = (sys::random()?, sys::now());
        let owner = TicketOwner::new(request.timing, ticket, nonce, asker, wait, now);
        let mut children = Children::adopt()?;
        children.note_older();
        let child_signals = raw::take_signals(&[SIGCHLD])?;
        let wakes = sys::ready_set()?;
        sys::add_to_set(&wakes, &child_signals)?;
        Ok(Renewer {
            request,
            owner: owner.with_notes(&clock),
            tickets,
            front: None,
            log: None,
            has_files: false,
            validity_told,
            progress: Progress::NotStarted(None),
            children,
            child_signals,
            wakes,
            alarm: Alarm::new()?,
        })
    }

    fn set_front(&mut self, front: OwnedFd) {
        // Where its end is not heard of, it is noticed with the next wake.
        let _ = sys::add_to_set(&self.wakes, &front);
        self.front = Some(front);
    }

    /// Takes one step; says whether there is another.
    fn turn(&mut self) -> bool {
        self.hear_front();
        self.hear_children();
        if let Progress::Abandoned = self.progress {
            return false;
        }
        let now = sys::now();
        self.kill_in_time(now);
        self.notice_stopped_front(now);
        if self.release_at().is_some_and(|at| now >= at) {
            self.finish(now);
        }
        let step = self.owner.next(now);
        self.tell_front();
        if step == Step::Exit {
            return false;
        }
        let input = self.perform(step, now);
        let was_renewed = self.owner.why_unrenewed().is_none();
        self.owner.handle(input, sys::now());
        if let Some(why) = self.owner.why_unrenewed().filter(|_| was_renewed) {
            log::warn!("not renewed: {why}; it is tried again");
        }
        self.tell_front();
        true
    }

    /// Performs a step that begins at `now`, and returns its result.
    fn perform(&mut self, step: Step, now: Instant) -> Input {
        if let Step::Rest(until) = step {
            return self.rest(until, now);
        }
        let element = self.owner.key_element();
        let input = self.tickets.perform(&step, &element, &self.request.token);
        if let (Step::Remove(other, _), Some(Input::Written(Written::Stored(_)))) = (&step, &input)
        {
            log::warn!("{} has not renewed its lock in time: it was removed", other.describe());
        }
        input.unwrap_or(Input::Rested)
    }

    /// Waits until this instant, for a hint, or for the front. The command was killed at `now`
    /// if that was due.
    fn rest(&mut self, until: Instant, now: Instant) -> Input {
        let kill_at = self.owner.kill_times().map(|times| times.kill_at);
        let again = |at| now.after((now.since(at) / 8).clamp(KILL_PAUSE, KILL_PAUSE_MAX));
        let kill_at = kill_at.map(|at| if at > now { at } else { again(at) });
        let begins_by = self.begins_by().filter(|at| *at > now);
        let due = kill_at.into_iter().chain(begins_by).chain(self.release_at());
        self.tickets.rest(self.wakes.as_fd(), due.fold(until, Instant::min))
    }

    fn tell_front(&mut self) {
        for message in self.owner.take_messages() {
            if let ToFront::Granted { valid_until, term, epoch, slot } = &message {
                self.validity_told.tell(*valid_until);
                // All but V is unchanged.
                let Progress::NotStarted(None) = self.progress else { continue };
                let grant = Grant { term: *term, epoch: epoch.clone(), slot: *slot };
                self.progress = Progress::NotStarted(Some((grant, sys::now())));
            }
            let is_lost = matches!(message, ToFront::Lost(_));
            self.tell(&FromRenewer::Ticket(message));
            // A front would say so.
            if is_lost && self.front.is_none() {
                self.finish(sys::now());
            }
        }
    }

    fn tell(&self, message: &FromRenewer) {
        let Some(front) = &self.front else { return };
        while let Err(Errno::NOBUFS | Errno::NOMEM) = send_json(front.as_fd(), message, None) {
            let _ = self.alarm.wait([], Some(sys::now().after(SEND_PAUSE)));
        }
    }

    /// Takes in all that the front has said, and its end.
    fn hear_front(&mut self) {
        while let Some(front) = &self.front
            && let Some((packet, _)) = next_packet(front.as_fd())
        {
            match serde_json::from_slice(&packet) {
                Ok(ToRenewer::Run(of_terminal)) => self.start(of_terminal),
                Ok(ToRenewer::Terminate) => self.children.terminate(),
                Ok(ToRenewer::Ended) => self.stays(),
                Ok(ToRenewer::Done) => self.finish(sys::now()),
                Err(_) => {
                    self.front_is_dead();
                    self.leave_stderr();
                }
            }
        }
    }

    /// Takes in the events of the command and of the processes that it has left behind.
    fn hear_children(&mut self) {
        while sys::next_signal(&self.child_signals).is_some() {}
        let Progress::Runs { group, .. } = self.progress else { return };
        let mut events = command::events(&self.children.reap(), group);
        if self.children.are_none {
            events.push(Event::NothingLeft);
        }
        for event in events {
            self.tell(&FromRenewer::Command(event));
        }
    }

    /// Starts the command, if the lock is valid for long enough.
    fn start(&mut self, of_terminal: OfTerminal) {
        let now = sys::now();
        let has_time = self.owner.kill_times().is_some_and(|times| now < times.terminate_at);
        let mut event = Event::NotStarted(None);
        if let Progress::NotStarted(Some((grant, _))) = &self.progress
            && has_time
        {
            let variables = held::variables(self.request, grant);
            if of_terminal == OfTerminal::WhenItReads {
                raw::restore_default(SIGTTIN);
            }
            let is_given = of_terminal == OfTerminal::All;
            let terminal = is_given.then(Terminal::open).flatten();
            let terminal = terminal.as_ref().map(|it| it.file.as_fd());
            event = match command::spawn(&self.request.command, &variables, None, terminal) {
                Ok(group) => {
                    self.progress = Progress::Runs { group, began: now };
                    Event::Started(group.as_raw_pid())
                }
                Err(error) => Event::NotStarted(Some(error.raw_os_error().unwrap_or_default())),
            };
        }
        self.leave_files();
        self.tell(&FromRenewer::Command(event));
    }

    /// Leaves the input, the output and all files of the command: a reader of a pipe of the command
    /// sees its end when the command ends.
    fn leave_files(&mut self) {
        if !mem::take(&mut self.has_files) {
            return;
        }
        if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            // A descriptor that is not left here is left at the end of this process.
            let _ = rustix::stdio::dup2_stdin(&null);
            let _ = rustix::stdio::dup2_stdout(&null);
        }
        raw::close_inherited();
    }

    /// Leaves stderr, after all lines were written: a reader sees its end when the front ends.
    fn leave_stderr(&self) {
        if let Some(log) = &self.log
            && let Ok(null) = File::options().write(true).open("/dev/null")
        {
            // A descriptor that is not left here is left at the end of this process.
            let _ = rustix::stdio::dup2_stderr(&null);
            log.leave_stderr();
        }
    }

    /// Kills the command, which nobody else watches any more. Then the lock is held for as long as
    /// is wanted. A command that cannot be killed keeps the ticket until it runs out.
    fn front_is_dead(&mut self) {
        self.front = None;
        self.leave_files();
        let now = sys::now();
        let Progress::Runs { group, .. } = self.progress else {
            if !matches!(self.progress, Progress::Stays(_)) {
                self.finish(now);
            }
            return;
        };
        let kill_at = self.owner.kill_times().map_or(now, |times| times.kill_at);
        self.children.kill(now.after(RELEASE_WITHIN).min(kill_at));
        let until = now.after(END_WITHIN);
        loop {
            command::send(group, SIGKILL);
            self.children.reap();
            if self.children.are_none {
                return self.stays();
            }
            if sys::now() >= until {
                log::error!("the command cannot be killed: MAY STILL RUN");
                self.progress = Progress::Abandoned;
                return;
            }
            let soon = Some(sys::now().after(KILL_PAUSE));
            let children = (self.child_signals.as_fd(), PollFlags::IN);
            let _ = self.alarm.wait([children], soon);
            while sys::next_signal(&self.child_signals).is_some() {}
        }
    }

    /// The command has ended: the lock is held for as long as is wanted. The front counts from a
    /// later instant.
    fn stays(&mut self) {
        if let Progress::Runs { began, .. } = self.progress {
            self.progress = Progress::Stays(began.after(self.request.hold));
        }
    }

    /// Returns when a front that has the lock and has run no command counts as stopped.
    fn begins_by(&self) -> Option<Instant> {
        let Progress::NotStarted(Some((_, granted))) = &self.progress else { return None };
        Some(granted.after(self.request.timing.renewal()))
    }

    /// A front that runs no command is stopped, and holds up the others. Its lock is not renewed
    /// any more. The ticket is ended after V only: until then the front may go on and run it.
    fn notice_stopped_front(&mut self, now: Instant) {
        if self.begins_by().is_none_or(|at| now < at) {
            return;
        }
        self.owner.handle(Input::Unused, now);
        if self.owner.valid_until().is_none_or(|until| now >= until) {
            self.owner.handle(Input::Done, now);
        }
    }

    /// Kills the command if its time is over. As a rule the front has done that.
    fn kill_in_time(&mut self, now: Instant) {
        if let (Progress::Runs { group, .. }, Some(times)) =
            (&self.progress, self.owner.kill_times())
            && now >= times.kill_at
        {
            command::send(*group, SIGKILL);
            self.children.kill(times.kill_at.after(KILL_LEAD / 2));
        }
    }

    /// Returns when the lock of a command that has ended is released.
    fn release_at(&self) -> Option<Instant> {
        if let Progress::Stays(until) = self.progress { Some(until) } else { None }
    }

    /// The lock is not needed any more.
    fn finish(&mut self, now: Instant) {
        self.leave_files();
        self.leave_stderr();
        self.progress = Progress::Ends;
        self.owner.handle(Input::Done, now);
    }
}

#[cfg(test)]
mod tests;
