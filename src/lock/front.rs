//! The front: waits for the lock, and has the command run while it is held. One thread, which
//! waits in one place for everything.

use std::env;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libc::SIGTSTP;
use log::Level;
use rustix::event::PollFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use rustix::process::Pid;

use super::held::{self, HELD};
use super::hold::Hold;
use super::protocol::{End, ToFront, ToRenewer};
use super::signals::{Signals, is_deadly};
use super::{Request, renewer};
use crate::core::{Instant, StoreError};
use crate::exit::{Exit, LockExit, Refusal};
use crate::guard::{receive, send};
use crate::log::Destination;
use crate::store::Bucket;
use crate::sys::{self, Alarm, PollFlags, raw};

/// What is said when the renewer ends before the ticket.
pub(super) const RENEWER_ENDED: &str = "the process that renews the lock has ended";

/// The lock, as it was granted first.
pub(super) struct Grant {
    pub(super) valid_until: Instant,
    pub(super) term: u64,
    pub(super) epoch: String,
    pub(super) slot: Option<u32>,
}

/// What the front waits with, for as long as it lives.
pub(super) struct Front<'a> {
    pub(super) request: &'a Request,
    pub(super) destination: Destination,
    /// The names, for people.
    pub(super) names: String,
    pub(super) signals: Signals,
    pub(super) alarm: Alarm,
    /// The renewer; `None` when it has ended.
    renewer: Option<OwnedFd>,
    /// The process of the renewer, if it is a child of this one.
    pub(super) renewer_process: Option<Pid>,
}

/// How the wait for the lock has ended.
enum Waited {
    Granted(Grant),
    Over(u8),
}

/// See [`super::run`].
pub(super) fn run(
    request: &Request,
    store: Box<dyn Bucket>,
    destination: Destination,
) -> Result<u8, Refusal> {
    held::check(&request.names, env::var_os(HELD).as_deref())?;
    let no_process = Refusal::system("cannot start the process that renews the lock: ");
    let signals = Signals::open().map_err(&no_process)?;
    let flags = SocketFlags::CLOEXEC;
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (own, renewers) = pair.map_err(|error| no_process(error.into()))?;
    let renewer_process = raw::fork().map_err(&no_process)?;
    if renewer_process.is_none() {
        drop((own, signals));
        if become_renewer().is_ok() {
            renewer::run(renewers, request, store, destination);
        }
        std::process::exit(0);
    }
    drop((renewers, store));
    serve(own, renewer_process, signals, request, destination)
}

/// Leaves the session of the user, and what the command reads and writes but for stderr.
fn become_renewer() -> io::Result<()> {
    rustix::process::setsid()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    raw::unblock_signals()
}

/// Plays the front to a renewer; returns the exit status.
pub(super) fn serve(
    renewer: OwnedFd,
    renewer_process: Option<Pid>,
    signals: Signals,
    request: &Request,
    destination: Destination,
) -> Result<u8, Refusal> {
    let names: Vec<_> = request.names.iter().map(ToString::to_string).collect();
    let mut front = Front {
        request,
        destination,
        names: names.join(","),
        signals,
        alarm: Alarm::new().map_err(Refusal::system("cannot wait: "))?,
        renewer: Some(renewer),
        renewer_process,
    };
    match front.wait()? {
        Waited::Granted(grant) => Hold::begin(front, grant)?.run(),
        Waited::Over(status) => Ok(status),
    }
}

impl Front<'_> {
    /// Waits for the lock, and for the end of the ticket after a signal.
    fn wait(&mut self) -> Result<Waited, Refusal> {
        let mut cancelled: Option<(i32, Instant)> = None;
        let mut last_shown = String::new();
        loop {
            let until = cancelled.map(|(_, until)| until);
            self.poll(None, until).map_err(Refusal::system("cannot wait: "))?;
            while let Some(signal) = self.signals.next() {
                if signal == SIGTSTP {
                    raw::act_by_default(signal);
                } else if is_deadly(signal) {
                    // Nobody who asks twice is made to wait.
                    if cancelled.is_some() || !self.send(ToRenewer::Cancel, None) {
                        return Ok(Waited::Over(die_by(signal)));
                    }
                    let within = self.request.timing.renewal();
                    cancelled = Some((signal, sys::now().after(within)));
                }
            }
            while let Some(message) = self.next_message() {
                match (message, cancelled) {
                    (ToFront::Waiting { ahead, why }, None) => {
                        self.show_wait(ahead, &why, &mut last_shown);
                    }
                    (ToFront::Granted { valid_until, term, epoch, slot }, None) => {
                        if self.is_credible(valid_until) {
                            let grant = Grant { valid_until, term, epoch, slot };
                            return Ok(Waited::Granted(grant));
                        }
                    }
                    (ToFront::Lost(why), None) => {
                        self.say_loss(&why);
                        return Ok(Waited::Over(LockExit::Lost as u8));
                    }
                    (ToFront::Ended(end), None) => return self.not_had(end),
                    (ToFront::Ended(_), Some((signal, _))) => {
                        return Ok(Waited::Over(die_by(signal)));
                    }
                    (_, Some(_)) => {}
                }
            }
            match cancelled {
                Some((signal, until)) if self.renewer.is_none() || sys::now() >= until => {
                    return Ok(Waited::Over(die_by(signal)));
                }
                None if self.renewer.is_none() => return self.not_had(End::Released),
                Some(_) | None => {}
            }
        }
    }

    fn show_wait(&self, ahead: u64, why: &str, last: &mut String) {
        let place = if ahead > 0 { format!(", {ahead} ahead") } else { String::new() };
        let text = format!("{}: waiting{place}: {why}", self.names);
        if *last != text && (self.is_verbose() || io::stderr().is_terminal()) {
            self.destination.tell(&text);
        }
        *last = text;
    }

    /// The ticket has ended without a lock.
    fn not_had(&self, end: End) -> Result<Waited, Refusal> {
        match end {
            End::Released => {
                let text = format!("{}: {RENEWER_ENDED}", self.names);
                Err(Refusal::new(Exit::System, text))
            }
            End::NotHad(text) => {
                if self.request.level >= Level::Warn as u64 {
                    self.say(&format!("not had: {text}"));
                }
                Ok(Waited::Over(self.request.busy_status))
            }
            End::Refused(kind, text) => Err(StoreError { kind, text }.into()),
        }
    }

    /// Waits until the ticket has ended, for at most R. A signal ends that.
    pub(super) fn wait_for_end(&mut self) -> io::Result<()> {
        let until = sys::now().after(self.request.timing.renewal());
        while self.renewer.is_some() && sys::now() < until {
            self.poll(None, Some(until))?;
            while let Some(message) = self.next_message() {
                if matches!(message, ToFront::Ended(_)) {
                    return Ok(());
                }
            }
            while let Some(signal) = self.signals.next() {
                if is_deadly(signal) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Waits for the renewer, a signal, or this descriptor.
    pub(super) fn poll(
        &self,
        other: Option<BorrowedFd<'_>>,
        until: Option<Instant>,
    ) -> io::Result<()> {
        let all = [self.renewer.as_ref().map(AsFd::as_fd), Some(self.signals.as_fd()), other];
        let all = all.into_iter().flatten();
        let mut polled = Vec::with_capacity(4);
        polled.extend(all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        self.alarm.poll(&mut polled, until)
    }

    /// Returns the next message of the renewer, if there is one, and notices its end.
    pub(super) fn next_message(&mut self) -> Option<ToFront> {
        loop {
            let packet = match receive(self.renewer.as_ref()?.as_fd(), RecvFlags::DONTWAIT) {
                Ok((packet, _)) => packet,
                Err(Errno::AGAIN) => return None,
                // Told once, when the renewer has ended with a message unread.
                Err(Errno::CONNRESET) => continue,
                Err(_) => Vec::new(),
            };
            let message = serde_json::from_slice(&packet).ok();
            if message.is_none() {
                self.renewer = None;
            }
            return message;
        }
    }

    /// Tells the renewer; returns whether it lives.
    pub(super) fn send(&mut self, message: ToRenewer, with: Option<BorrowedFd<'_>>) -> bool {
        let Some(renewer) = &self.renewer else { return false };
        // Everything in a message has a form in JSON.
        let packet = serde_json::to_vec(&message).unwrap_or_default();
        let is_sent = send(renewer.as_fd(), &packet, with).is_ok();
        if !is_sent {
            self.renewer = None;
        }
        is_sent
    }

    /// Returns whether the renewer lives.
    pub(super) fn has_renewer(&self) -> bool {
        self.renewer.is_some()
    }

    /// Returns whether a V can be true: a later one is of another clock.
    pub(super) fn is_credible(&self, valid_until: Instant) -> bool {
        let is_credible = valid_until <= sys::now().after(self.request.timing.validity());
        if !is_credible {
            self.destination.warn(&format!("{}: a validity that cannot be is ignored", self.names));
        }
        is_credible
    }

    /// Returns whether what goes well is said too.
    pub(super) fn is_verbose(&self) -> bool {
        self.request.level >= Level::Info as u64
    }

    /// Says what cannot go unsaid.
    pub(super) fn say(&self, text: &str) {
        let text = format!("{}: {text}", self.names);
        self.destination.refuse(&Refusal::new(Exit::System, text));
    }

    /// Says that the lock is lost.
    pub(super) fn say_loss(&self, why: &str) {
        self.say(&format!("the lock is lost: {why}"));
    }
}

/// Ends this process as a signal does; the status is for a signal that does not.
fn die_by(signal: i32) -> u8 {
    raw::act_by_default(signal);
    u8::try_from(signal).unwrap_or_default().saturating_add(128)
}

#[cfg(test)]
mod tests;
