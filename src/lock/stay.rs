//! The front after its command: the renewer holds the lock on for `--hold`. No command runs any
//! more, so a loss ends nothing.

use std::io;

use super::front::{Front, RENEWER_ENDED};
use super::hold::Lease;
use super::protocol::{FromRenewer, ToFront, ToRenewer};
use crate::core::Instant;
use crate::sys::{self, raw};

impl Front<'_> {
    /// Waits until the renewer has released the lock. A signal makes it do that at once.
    pub(super) fn stay(&mut self, lease: &mut Lease) -> io::Result<()> {
        let Some(held_until) = self.account.stays(self.request) else {
            return self.release();
        };
        raw::close_inherited();
        self.send(&ToRenewer::Ended);
        self.account.tell_stay(held_until);
        self.wait_for_release(lease, held_until)
    }

    /// Holds a lock in a directory on. A signal ends that.
    pub(super) fn stay_local(&mut self) -> io::Result<()> {
        let Some(held_until) = self.account.stays(self.request) else { return Ok(()) };
        self.account.tell_stay(held_until);
        raw::close_inherited();
        while sys::now() < held_until && self.signals.next_deadly().is_none() {
            self.poll(Some(held_until))?;
        }
        Ok(())
    }

    fn wait_for_release(&mut self, lease: &mut Lease, held_until: Instant) -> io::Result<()> {
        let mut released_by = None;
        loop {
            // A renewal may be late: no command depends on it.
            let until = lease.valid_until.after(self.request.timing.renewal() * 2);
            let until = released_by.unwrap_or(until);
            self.poll(Some(until))?;
            let now = sys::now();
            if lease.take_told() {
                continue;
            }
            while let Some(message) = self.next_message() {
                if self.take_in(message) {
                    return Ok(());
                }
            }
            while self.signals.next_deadly().is_some() {
                if released_by.is_some() || !self.send(&ToRenewer::Done) {
                    return Ok(());
                }
                released_by = Some(sys::now().after(self.request.timing.renewal()));
            }
            if !self.has_renewer() && now < held_until {
                self.warn_of_loss(RENEWER_ENDED);
            } else if released_by.is_none() && self.has_renewer() && now >= until {
                self.warn_of_loss("not renewed in time");
            } else if self.has_renewer() && released_by.is_none_or(|by| now < by) {
                continue;
            }
            return Ok(());
        }
    }

    /// Has the lock released, and waits for that.
    pub(super) fn release(&mut self) -> io::Result<()> {
        self.send(&ToRenewer::Done);
        self.wait_for_end()?;
        self.account.released();
        Ok(())
    }

    /// Takes a message in; returns whether the stay is over.
    fn take_in(&mut self, message: FromRenewer) -> bool {
        let FromRenewer::Ticket(message) = message else { return false };
        match message {
            ToFront::Lost(why) => {
                self.warn_of_loss(&why);
                true
            }
            ToFront::Ended(_) => {
                self.account.released();
                true
            }
            ToFront::Waiting { .. } | ToFront::Granted { .. } => false,
        }
    }

    fn warn_of_loss(&mut self, why: &str) {
        self.send(&ToRenewer::Done);
        self.account.ended_at = Some(sys::now());
        let why = format!("the lock was lost after the command had ended: {why}");
        self.account.warn(&why);
        self.account.why = Some(why);
    }
}
