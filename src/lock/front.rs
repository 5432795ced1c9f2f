//! The front: waits for the lock, and has the command run while it is held. One thread, which
//! waits in one place for everything.

use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, WaitOptions};

use super::account::{Account, Ending, Outcome};
use super::command::{Children, RENEWER};
use super::held::Grant;
use super::hold::Hold;
use super::protocol::{End, FromRenewer, ToFront, ToRenewer, Validity};
use super::renewer;
use super::signals::{Signals, is_deadly};
use crate::core::{Instant, StoreErrorKind};
use crate::exit::{Exit, Refusal};
use crate::guard::{next_packet, send_json};
use crate::store::Bucket;
use crate::sys::{self, Alarm, raw};

/// The reason that is given when the renewer ends before the ticket.
pub(super) const RENEWER_ENDED: &str = "the process that renews the lock has ended";

/// Why a lock is lost unless the renewer has said another reason.
pub(super) const NOT_RENEWED: &str = "not renewed in time";

/// Why a lock may not be released when the renewer has not said another reason within R.
const NOT_ENDED: &str = "the own ticket may stand until it runs out: the store has not answered";

/// The process that the user has started.
pub(super) struct Front<'a> {
    /// The request, and the course of the lock, as it is said and reported.
    pub(super) account: &'a mut Account,
    pub(super) signals: Signals,
    pub(super) alarm: Alarm,
    /// The children of the front, and the processes that the command leaves behind.
    pub(super) children: Children,
    /// The renewer; `None` when it has ended, and for a lock in a directory: then the processes of
    /// the command are below this process.
    pub(super) renewer: Option<Renewer>,
}

/// The process that renews the lock, a child of the front.
pub(super) struct Renewer {
    pub(super) process: Pid,
    pub(super) socket: OwnedFd,
}

/// See [`super::run`].
pub(super) fn run(store: Box<dyn Bucket>, account: &mut Account) -> Result<Ending, Refusal> {
    let no_process = Refusal::system("cannot start the process that renews the lock: ");
    let signals = Signals::open().map_err(&no_process)?;
    let flags = SocketFlags::CLOEXEC;
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (socket, renewers) = pair.map_err(|error| no_process(error.into()))?;
    let validity = Validity::new().map_err(&no_process)?;
    let mut children = Children::adopt().map_err(&no_process)?;
    children.note_older();
    let Some(process) = raw::fork().map_err(&no_process)? else {
        drop((socket, signals, children, account.report.take()));
        // A signal that stops the process group of the user does not stop the renewal. The session
        // stays, so that the command, which the renewer starts, is on the terminal of the user. The
        // signals that the front takes stay blocked: a manager that sends SIGTERM to all processes
        // of a unit ends the front, and the renewer ends when it has released the lock.
        let is_apart = rustix::process::setpgid(None, None);
        if is_apart.and_then(|()| rustix::thread::set_name(RENEWER)).is_ok() {
            renewer::run((renewers, validity), account, store);
        }
        std::process::exit(0);
    };
    drop((renewers, store));
    let renewer = Some(Renewer { process, socket });
    Front::new(account, signals, children, renewer)?.run(validity)
}

impl<'a> Front<'a> {
    /// Returns one with this renewer.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub(super) fn new(
        account: &'a mut Account,
        signals: Signals,
        children: Children,
        renewer: Option<Renewer>,
    ) -> Result<Front<'a>, Refusal> {
        let alarm = Alarm::new().map_err(Refusal::system("cannot wait: "))?;
        Ok(Front { account, signals, alarm, children, renewer })
    }

    /// Waits for the lock, and has the command run while it is held; returns how the process is to
    /// end. A signal ends the wait, and the ticket.
    fn run(mut self, validity: Validity) -> Result<Ending, Refusal> {
        loop {
            self.poll(None);
            if let Some(signal) = self.signals.next_deadly() {
                self.send(&ToRenewer::Done);
                let _ = self.wait_for_end();
                return Ok(self.account.interrupted(signal));
            }
            while let Some(message) = self.next_message() {
                // No command runs yet.
                let FromRenewer::Ticket(message) = message else { continue };
                match message {
                    ToFront::Waiting { ahead, why } => self.account.waits(ahead, &why),
                    ToFront::Granted { valid_until, term, epoch, slot } => {
                        self.account.granted(Grant { term, epoch, slot });
                        return Hold::run_renewed(self, validity, valid_until);
                    }
                    ToFront::Lost(why) => {
                        self.account.outcome = Outcome::Lost;
                        self.account.lost(&why);
                        return Ok(Ending::Status(Exit::Lost as u8));
                    }
                    ToFront::Ended(end) => return self.not_had(end),
                }
            }
            if self.renewer.is_none() {
                return self.not_had(End::Released);
            }
        }
    }

    /// The ticket has ended without a lock.
    fn not_had(&mut self, end: End) -> Result<Ending, Refusal> {
        match end {
            // Only a lock that was had is lost.
            End::Released | End::Lost(_) => {
                let text = format!("{}: {RENEWER_ENDED}", self.account.request.name);
                Err(Refusal::new(Exit::System, text))
            }
            // Only a script has another ticket.
            End::NotHad(text) | End::Overlaps(text) => Ok(self.account.not_had(&text)),
            End::Refused(error) => Err(error.into()),
        }
    }

    /// Waits until the renewer has ended the ticket, for at most R, and returns how the ticket has
    /// ended. A signal ends the wait: `None` while the release is under way.
    pub(super) fn wait_for_end(&mut self) -> Option<End> {
        let mut ended = None;
        let until = sys::now().after(self.account.request.timing.renewal());
        while let Some(renewer) = &self.renewer
            && sys::now() < until
        {
            let process = renewer.process;
            self.poll(Some(until));
            while let Some(message) = self.next_message() {
                if let FromRenewer::Ticket(ToFront::Ended(end)) = message {
                    ended = Some(end);
                }
            }
            if let Some(End::Refused(_)) = ended {
                // The renewer goes on.
                return ended;
            }
            if self.renewer.is_none() {
                // The times of the command are those of its child, as time(1) counts.
                let _ = rustix::process::waitpid(Some(process), WaitOptions::empty());
                break;
            }
            while let Some(signal) = self.signals.next() {
                if is_deadly(signal) {
                    return ended;
                }
            }
        }
        let why = if self.renewer.is_some() { NOT_ENDED } else { RENEWER_ENDED };
        Some(ended.unwrap_or_else(|| End::Refused(StoreErrorKind::Unreachable.error(why))))
    }

    /// Waits for the renewer, or a signal. When the kernel refuses to wait, the callers look at
    /// everything again after a pause.
    pub(super) fn poll(&self, until: Option<Instant>) {
        let renewer = self.renewer.iter().map(|it| it.socket.as_fd());
        let _ = self.alarm.wait_to_read(renewer.chain([self.signals.fd.as_fd()]), until);
    }

    /// Waits for the renewer alone, as [`Front::poll`] does.
    pub(super) fn poll_renewer(&self, until: Option<Instant>) {
        let renewer = self.renewer.iter().map(|it| it.socket.as_fd());
        let _ = self.alarm.wait_to_read(renewer, until);
    }

    /// Returns the next message of the renewer, if there is one, and notices its end.
    pub(super) fn next_message(&mut self) -> Option<FromRenewer> {
        let (packet, _) = next_packet(self.renewer.as_ref()?.socket.as_fd())?;
        let message = serde_json::from_slice(&packet).ok();
        if message.is_none() {
            self.renewer = None;
        }
        message
    }

    /// Tells the renewer; returns whether it lives.
    pub(super) fn send(&mut self, message: &ToRenewer) -> bool {
        let renewer = self.renewer.as_ref();
        renewer.is_some_and(|it| send_json(it.socket.as_fd(), message, None).is_ok())
    }
}

#[cfg(test)]
mod tests;
