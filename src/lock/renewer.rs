//! The renewer: the process that has the ticket in the store. One thread. Every request ends
//! before the command has to be killed.

mod after;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal};

use super::Request;
use super::held::HolderId;
use super::processes::{Alive, Older, Processes};
use super::protocol::{ToRenewer, Validity};
use crate::core::tickets::{End, Input, Seen, Step, Ticket, TicketOwner, ToFront};
use crate::core::{Incarnation, Instant, StoreErrorKind, Written};
use crate::guard::{receive, send};
use crate::log::{Destination, LogQueue};
use crate::store::tickets::Tickets;
use crate::store::{Bucket, Hint};
use crate::sys::{self, Alarm, PollFlags, Waker};

/// How long the end of a command is waited for that was killed because the front is dead.
const END_WITHIN: Duration = Duration::from_secs(5);

/// The pause before a command that was killed is killed again, or looked at again: first, and at
/// last.
const KILL_PAUSE: Duration = Duration::from_millis(20);
const KILL_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How often in succession nothing of a command is found before it has ended. A process that is
/// about to execute a program has no environment for a moment: in up to one look of fourteen.
const MISSES: u32 = 4;

/// How long to wait until the kernel may have memory for a message.
const SEND_PAUSE: Duration = Duration::from_millis(5);

/// The command, as the front has told of it.
struct Command {
    group: Pid,
    leader: OwnedFd,
}

struct Renewer {
    owner: TicketOwner,
    tickets: Tickets,
    /// The bucket was opened, and not lost since.
    is_open: bool,
    token: String,
    /// The front; `None` when it is dead.
    front: Option<OwnedFd>,
    /// The process of the front, if this one is its child, and the children it had before.
    front_process: Option<(Pid, Older)>,
    processes: Processes,
    holder: HolderId,
    /// V, as the front is told it.
    validity_told: Validity,
    /// The ticket is left to run out: a command may run that this process cannot end.
    is_abandoned: bool,
    command: Option<Command>,
    /// When the front was told that it has the lock.
    granted_at: Option<Instant>,
    /// When the front has known that at the latest, if it has run its command.
    known_at: Option<Instant>,
    /// The time within which a front that is not stopped runs its command.
    begins_within: Duration,
    /// How long the lock is held at least.
    hold: Duration,
    /// The command has ended, and the lock is held on.
    has_ended: bool,
    /// The ticket is to end.
    is_ending: bool,
    /// Never readable: what is waited for in the place of the front when that is dead.
    nothing: Waker,
    alarm: Alarm,
}

/// Keeps the ticket until it has ended.
pub(super) fn run(
    (front, validity_told): (OwnedFd, Validity),
    request: &Request,
    holder: HolderId,
    bucket: Box<dyn Bucket>,
    destination: Destination,
) {
    let log = LogQueue::start(&request.name.to_string(), request.level, destination);
    match Renewer::new(request, holder, bucket, validity_told) {
        Ok(mut renewer) => {
            // Before that, the front has started nothing.
            let processes = &renewer.processes;
            let parent = parent_of_pair(&front);
            renewer.front_process = parent.map(|it| (it, processes.older_children_of(it)));
            renewer.front = Some(front);
            let mut has_stderr = true;
            loop {
                renewer.hear_front();
                // Whoever reads stderr sees its end when the front ends.
                if has_stderr && (renewer.is_ending || renewer.front.is_none()) {
                    has_stderr = false;
                    leave_stderr(&log);
                }
                if !renewer.turn() {
                    break;
                }
            }
        }
        Err(error) => {
            let why = format!("cannot keep the lock: {error}");
            let ended = ToFront::Ended(End::Refused(StoreErrorKind::Unreachable, why));
            let packet = serde_json::to_vec(&ended).unwrap_or_default();
            let _ = send(front.as_fd(), &packet, None);
        }
    }
    drop(log);
}

/// Returns the process that has made a pair of sockets, if it is the parent of this one. Another
/// is the parent as soon as that has ended.
fn parent_of_pair(socket: &OwnedFd) -> Option<Pid> {
    let maker = rustix::net::sockopt::socket_peercred(socket).ok()?.pid;
    rustix::process::getppid().filter(|parent| *parent == maker)
}

/// Leaves stderr, after all lines were written.
fn leave_stderr(log: &io::Result<LogQueue>) {
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        // What is not left is left at the end of this process.
        let _ = rustix::stdio::dup2_stderr(&null);
        if let Ok(log) = log {
            log.leave_stderr();
        }
    }
}

impl Renewer {
    fn new(
        request: &Request,
        holder: HolderId,
        bucket: Box<dyn Bucket>,
        validity_told: Validity,
    ) -> io::Result<Renewer> {
        let wait = match request.wait {
            super::Wait::Forever => None,
            super::Wait::For(time) => Some(time),
        };
        let ticket = Ticket {
            name: request.name.clone(),
            mode: request.mode,
            slot: None,
            lifetime: request.timing.lifetime(),
            token: request.token.clone(),
            incarnation: Incarnation(sys::random()?),
            attempt: 0,
            seen: Seen::default(),
        };
        let clock = sys::host_clock::name();
        let tickets = Tickets::new(bucket, &ticket).with_notes_of(&clock);
        let owner = TicketOwner::new(request.timing, ticket, sys::random()?, wait, sys::now())
            .with_notes(clock);
        Ok(Renewer {
            owner: owner.with_soft(request.soft),
            tickets,
            is_open: false,
            token: request.token.clone(),
            front: None,
            front_process: None,
            processes: Processes::open()?,
            holder,
            validity_told,
            is_abandoned: false,
            command: None,
            granted_at: None,
            known_at: None,
            begins_within: request.timing.renewal(),
            hold: request.hold,
            has_ended: false,
            is_ending: false,
            nothing: Waker::new()?,
            alarm: Alarm::new()?,
        })
    }

    /// Takes one step; says whether there is another.
    fn turn(&mut self) -> bool {
        self.hear_front();
        if self.is_abandoned {
            return false;
        }
        let now = sys::now();
        self.kill_in_time(now);
        self.notice_stopped_front(now);
        self.release_in_time(now);
        let step = self.owner.next(now);
        self.tell_front();
        if step == Step::Exit {
            return false;
        }
        let input = self.perform(step, now);
        self.owner.handle(input, sys::now());
        self.tell_front();
        true
    }

    /// Performs a step that begins at `now`, and returns its result.
    fn perform(&mut self, step: Step, now: Instant) -> Input {
        let element = self.owner.key_element();
        let input = self.tickets.perform(&step, &element, &self.token, now);
        if let (Step::Remove(other, _), Some(Input::Written(Written::Stored(_), _))) =
            (&step, &input)
        {
            log::warn!("{} has not renewed its lock in time: it was removed", other.describe());
        }
        if let Some(Input::Opened(opened)) = &input {
            self.is_open = opened.is_ok();
        }
        match (input, step) {
            (Some(input), _) => input,
            (None, Step::Rest(until)) => self.rest(until, now),
            (None, _) => Input::Rested,
        }
    }

    /// Waits until this instant, for a hint, or for the front. The command was killed at `now`
    /// if that was due.
    fn rest(&mut self, until: Instant, now: Instant) -> Input {
        let kill_at = self.owner.kill_times().map(|times| times.kill_at);
        let kill_at =
            kill_at.map(|at| if at > now { at } else { now.after(kill_pause(now.since(at))) });
        let until = kill_at.map_or(until, |at| at.min(until));
        let begins_by = self.begins_by().filter(|at| *at > now);
        let until = begins_by.map_or(until, |at| at.min(until));
        let until = self.release_at().map_or(until, |at| at.min(until));
        let front = self.front.as_ref().map_or(self.nothing.as_fd(), AsFd::as_fd);
        if !self.is_open {
            // A wait that fails is a short wait.
            let _ = self.alarm.wait([(front, PollFlags::IN)], Some(until));
            return Input::Rested;
        }
        match self.tickets.wait(front, until) {
            Hint::Changed { revision, .. } => Input::Hint(revision),
            Hint::Announced { .. } | Hint::StatusRequested | Hint::Woken | Hint::Elapsed => {
                Input::Rested
            }
            Hint::Gone(why) => {
                self.is_open = false;
                Input::Gone(why)
            }
        }
    }

    fn tell_front(&mut self) {
        for message in self.owner.take_messages() {
            self.tell(&message);
        }
    }

    fn tell(&mut self, message: &ToFront) {
        if let ToFront::Granted { valid_until, .. } = message {
            self.validity_told.tell(*valid_until);
            // All but V is what it was.
            if self.granted_at.is_some() {
                return;
            }
            self.granted_at = Some(sys::now());
        }
        let Some(front) = &self.front else { return };
        // Everything in a message has a form in JSON.
        let packet = serde_json::to_vec(message).unwrap_or_default();
        while let Err(Errno::NOBUFS | Errno::NOMEM) = send(front.as_fd(), &packet, None) {
            let _ = self.alarm.wait([], Some(sys::now().after(SEND_PAUSE)));
        }
    }

    /// Takes in all that the front has said, and its end.
    fn hear_front(&mut self) {
        while let Some(front) = &self.front {
            let (packet, descriptor) = match receive(front.as_fd(), RecvFlags::DONTWAIT) {
                Ok((packet, descriptor)) => (packet, descriptor),
                Err(Errno::AGAIN) => return,
                // Told once, when the front has ended with a message unread.
                Err(Errno::CONNRESET) => continue,
                Err(_) => (Vec::new(), None),
            };
            match (serde_json::from_slice(&packet), descriptor) {
                (Ok(ToRenewer::Started(group)), Some(leader)) => {
                    self.command = Pid::from_raw(group).map(|group| Command { group, leader });
                    self.known_at = Some(sys::now());
                }
                (Ok(ToRenewer::Ended), _) => self.command_has_ended(),
                (Ok(ToRenewer::Done | ToRenewer::Cancel), _) => {
                    self.command = None;
                    self.finish(sys::now());
                }
                // There was no room for the descriptor. The front lives, and its command too.
                (Ok(ToRenewer::Started(_)), None) => {
                    log::error!("no descriptor is left for the command: the lock will run out");
                    self.front = None;
                    self.is_abandoned = true;
                }
                (Err(_), _) => self.front_is_dead(),
            }
        }
    }

    /// Kills the command, which nobody else watches any more. Then the lock is held for as long as
    /// is wanted. A command that cannot be killed keeps the ticket until it runs out.
    fn front_is_dead(&mut self) {
        self.front = None;
        if let Some(command) = self.command.take() {
            let until = sys::now().after(END_WITHIN);
            let mut misses = 0;
            while misses < MISSES {
                if sys::now() >= until {
                    log::error!("the command cannot be killed: MAY STILL RUN");
                    self.is_abandoned = true;
                    return;
                }
                misses = if self.kill_left(&command) { 0 } else { misses + 1 };
                let soon = Some(sys::now().after(KILL_PAUSE));
                let _ = self.alarm.wait([], soon);
            }
            self.command_has_ended();
        } else if !self.has_ended {
            self.finish(sys::now());
        }
    }

    /// Kills what a dead front has left of its command; returns whether there was anything. What
    /// has left the group descends from the front no more, but has its environment.
    fn kill_left(&self, command: &Command) -> bool {
        let has_ended = command.has_ended(&self.processes);
        if !has_ended {
            command.kill();
        }
        // The command is started after the front was told of the lock.
        let since = self.granted_at.unwrap_or(Instant::from_boot(Duration::ZERO));
        let left = self.processes.of_command(&self.holder, since);
        left.send(Signal::KILL);
        !has_ended || !left.is_none()
    }

    /// Returns when a front that has the lock and has run no command counts as stopped.
    fn begins_by(&self) -> Option<Instant> {
        let has_none = self.command.is_none() && !self.has_ended;
        let granted_at = self.granted_at.filter(|_| has_none);
        granted_at.map(|at| at.after(self.begins_within))
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
    fn kill_in_time(&self, now: Instant) {
        if let (Some(command), Some(times)) = (&self.command, self.owner.kill_times())
            && now >= times.kill_at
        {
            command.kill();
            self.descendants_of_front().send(Signal::KILL);
        }
    }

    /// Returns the processes that descend from the front. While that lives, what the command has
    /// started and left behind becomes a child of it.
    fn descendants_of_front(&self) -> Alive {
        let Some((front, older)) = &self.front_process else { return Alive::default() };
        let below = self.processes.below(*front, older);
        // Its number may be that of a stranger since it has ended.
        let is_parent = rustix::process::getppid() == Some(*front);
        if is_parent { below } else { Alive::default() }
    }
}

/// Returns how long to wait before a command is killed again that was to be killed so long ago.
fn kill_pause(since: Duration) -> Duration {
    (since / 8).clamp(KILL_PAUSE, KILL_PAUSE_MAX)
}

impl Command {
    /// Returns whether the leader has ended and nobody is in the group any more.
    fn has_ended(&self, processes: &Processes) -> bool {
        sys::is_ready(&self.leader) && processes.is_empty(self.group)
    }

    fn kill(&self) {
        sys::kill_with_group(self.group, &self.leader);
    }
}

#[cfg(test)]
mod tests;
