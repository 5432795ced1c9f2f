//! The front: waits for the lock, and has the command run while it is held. One thread, which
//! waits in one place for everything.

use std::env;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use super::account::{Account, Ending, Outcome};
use super::held::{self, HELD, HolderId};
use super::hold::Hold;
use super::processes::{Older, Processes, RENEWER};
use super::protocol::{End, ToFront, ToRenewer, Validity};
use super::report::Report;
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
    pub(super) holder: HolderId,
    /// What is said of the lock.
    pub(super) account: &'a mut Account,
    pub(super) signals: Signals,
    pub(super) alarm: Alarm,
    /// The renewer; `None` when it has ended.
    renewer: Option<OwnedFd>,
    /// V, as the renewer tells it.
    validity: Validity,
    /// The processes, and the children from before the command. Opened while nobody waits for that.
    pub(super) processes: (Processes, Older),
}

/// How the wait for the lock has ended.
enum Waited {
    Granted(Grant),
    Over(Ending),
}

/// See [`super::run`].
pub(super) fn run(
    request: &Request,
    store: Box<dyn Bucket>,
    destination: Destination,
    account: &mut Account,
    report: &mut Option<Report>,
) -> Result<Ending, Refusal> {
    held::check(&request.name, env::var_os(HELD).as_deref())?;
    let no_process = Refusal::system("cannot start the process that renews the lock: ");
    let signals = Signals::open().map_err(&no_process)?;
    let flags = SocketFlags::CLOEXEC;
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (own, renewers) = pair.map_err(|error| no_process(error.into()))?;
    let validity = Validity::new().map_err(&no_process)?;
    let holder = HolderId::random().map_err(&no_process)?;
    if raw::fork().map_err(&no_process)?.is_none() {
        drop((own, signals, report.take()));
        if become_renewer().is_ok() {
            renewer::run((renewers, validity), request, holder, store, destination);
        }
        std::process::exit(0);
    }
    drop((renewers, store));
    serve((own, validity), signals, request, holder, account)
}

/// Leaves the session of the user, and all files of the command but for stderr: whoever reads a
/// pipe of the command sees its end when the command ends. The signals that the front takes stay
/// blocked: a manager that sends SIGTERM to all processes of a unit ends the front, and the
/// renewer ends when it has released the lock.
fn become_renewer() -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::thread::set_name(RENEWER)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    raw::close_inherited();
    Ok(())
}

/// Plays the front to a renewer; returns how the process is to end.
pub(super) fn serve(
    (renewer, validity): (OwnedFd, Validity),
    signals: Signals,
    request: &Request,
    holder: HolderId,
    account: &mut Account,
) -> Result<Ending, Refusal> {
    let processes = Processes::open()
        .map_err(|error| Refusal::system("cannot start the command: ")(error.into()))?;
    let older = processes.older_children_of(rustix::process::getpid());
    let mut front = Front {
        request,
        holder,
        account,
        signals,
        alarm: Alarm::new().map_err(Refusal::system("cannot wait: "))?,
        renewer: Some(renewer),
        validity,
        processes: (processes, older),
    };
    match front.wait()? {
        Waited::Granted(grant) => Hold::begin(front, grant)?.run(),
        Waited::Over(ending) => Ok(ending),
    }
}

impl Front<'_> {
    /// Waits for the lock, and for the end of the ticket after a signal.
    fn wait(&mut self) -> Result<Waited, Refusal> {
        let mut cancelled: Option<(i32, Instant)> = None;
        loop {
            let until = cancelled.map(|(_, until)| until);
            self.poll(None, until).map_err(Refusal::system("cannot wait: "))?;
            while let Some(signal) = self.signals.next_deadly() {
                // Nobody who asks twice is made to wait.
                if cancelled.is_some() || !self.send(ToRenewer::Cancel, None) {
                    return Ok(self.interrupted(signal));
                }
                let within = self.request.timing.renewal();
                cancelled = Some((signal, sys::now().after(within)));
            }
            while let Some(message) = self.next_message() {
                match (message, cancelled) {
                    (ToFront::Waiting { ahead, why }, None) => {
                        self.account.waits(usize::try_from(ahead).unwrap_or(usize::MAX), &why);
                    }
                    (ToFront::Granted { valid_until, term, epoch, slot }, None) => {
                        if self.is_credible(valid_until) {
                            self.account.granted(term, &epoch, slot);
                            return Ok(Waited::Granted(Grant { valid_until, term, epoch, slot }));
                        }
                    }
                    (ToFront::Lost(why), None) => {
                        self.account.outcome = Outcome::Lost;
                        self.say_loss(&why);
                        return Ok(Waited::Over(Ending::Status(LockExit::Lost as u8)));
                    }
                    (ToFront::Ended(end), None) => return self.not_had(end),
                    (ToFront::Ended(_), Some((signal, _))) => {
                        return Ok(self.interrupted(signal));
                    }
                    (_, Some(_)) => {}
                }
            }
            match cancelled {
                Some((signal, until)) if self.renewer.is_none() || sys::now() >= until => {
                    return Ok(self.interrupted(signal));
                }
                None if self.renewer.is_none() => return self.not_had(End::Released),
                Some(_) | None => {}
            }
        }
    }

    /// The wait was ended by a signal.
    fn interrupted(&mut self, signal: i32) -> Waited {
        Waited::Over(self.account.interrupted(signal))
    }

    /// The ticket has ended without a lock.
    fn not_had(&mut self, end: End) -> Result<Waited, Refusal> {
        match end {
            End::Released => {
                let text = format!("{}: {RENEWER_ENDED}", self.account.name);
                Err(Refusal::new(Exit::System, text))
            }
            End::NotHad(text) => {
                Ok(Waited::Over(self.account.not_had(&text, self.request.busy_status)))
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

    /// Returns V if the renewer has told it since the last time, and if it can be true.
    pub(super) fn take_validity(&mut self) -> Option<Instant> {
        self.validity.take_told().filter(|until| self.is_credible(*until))
    }

    /// Returns whether a V can be true: a later one is of another clock.
    fn is_credible(&self, valid_until: Instant) -> bool {
        let is_credible = valid_until <= sys::now().after(self.request.timing.validity());
        if !is_credible {
            self.account.warn("a validity that cannot be is ignored");
        }
        is_credible
    }

    /// Says that the lock is lost.
    pub(super) fn say_loss(&mut self, why: &str) {
        self.account.why = Some(why.to_owned());
        self.account.say(&format!("the lock is lost: {why}"));
    }
}

#[cfg(test)]
mod tests;
