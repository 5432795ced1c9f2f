//! The messages between front and renewer: one packet of JSON a message, and V as a counter. Both
//! ends are one program, which has forked.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::EventfdFlags;
use serde::{Deserialize, Serialize};

use super::command::Event;
use crate::core::Instant;

pub(super) use crate::core::tickets::{End, ToFront};

/// A message of the front to the renewer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToRenewer {
    /// The command is to be started. It is a child of the renewer, which kills it when the front is
    /// dead or paused.
    Run(OfTerminal),
    /// The command has to end: a process that has left its group is sent SIGTERM.
    Terminate,
    /// The command and its group have ended. The renewer releases the lock when it was held for
    /// so long as is wanted.
    Ended,
    /// No command runs, nor will one: the lock is to be released at once, or not waited for any
    /// longer.
    Done,
}

/// The command's hold of the terminal when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum OfTerminal {
    /// Nothing: there is none, or another group has it.
    Nothing,
    /// The command is stopped when it reads, and given the terminal then.
    WhenItReads,
    /// The command is given the terminal.
    All,
}

/// A message of the renewer to the front.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromRenewer {
    Ticket(ToFront),
    Command(Event),
}

/// An end of the counter of the kernel by which the renewer tells the front V, again after each
/// renewal. A front that was stopped finds the last V in it, however many there were. Packets would
/// have filled their socket with V's of the past.
pub(super) struct Validity {
    pub(super) counter: OwnedFd,
    /// V, as far as this end has added or taken.
    until: Instant,
}

impl Validity {
    /// Makes an end, before the fork that gives the counter a second one.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub(super) fn new() -> io::Result<Validity> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let counter = rustix::event::eventfd(0, flags)?;
        Ok(Validity { counter, until: Instant::from_boot(Duration::ZERO) })
    }

    /// Tells V. One that is not later than the last changes nothing.
    pub(super) fn tell(&mut self, until: Instant) {
        let nanos = u64::try_from(until.since(self.until).as_nanos()).unwrap_or_default();
        if nanos > 0 && rustix::io::write(&self.counter, &nanos.to_ne_bytes()).is_ok() {
            self.until = until;
        }
    }

    /// Returns V if it was told since the last time.
    pub(super) fn take_told(&mut self) -> Option<Instant> {
        let mut nanos = [0; size_of::<u64>()];
        rustix::io::read(&self.counter, &mut nanos).ok()?;
        self.until = self.until.after(Duration::from_nanos(u64::from_ne_bytes(nanos)));
        Some(self.until)
    }
}
