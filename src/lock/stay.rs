//! The front after its command: the renewer holds the lock on for `--hold`. No command runs any
//! more, so a loss ends nothing.

use super::front::{Front, NOT_RENEWED, RENEWER_ENDED};
use super::protocol::{FromRenewer, ToFront, ToRenewer, Validity};
use crate::core::Instant;
use crate::sys::{self, raw};

impl Front<'_> {
    /// Waits until the renewer has released the lock, which was valid until V. A signal makes it do
    /// that at once.
    pub(super) fn stay(&mut self, validity: &mut Validity, mut valid_until: Instant) {
        let Some(held_until) = self.account.stays() else {
            return self.release();
        };
        raw::close_inherited();
        self.send(&ToRenewer::Ended);
        self.account.tell_stay(held_until);
        loop {
            // A renewal may be late: no command depends on it.
            let until = valid_until.after(self.account.request.timing.renewal() * 2);
            self.poll(Some(until));
            while let Some(message) = self.next_message() {
                match message {
                    FromRenewer::Ticket(ToFront::Lost(why)) => return self.warn_of_loss(&why),
                    FromRenewer::Ticket(ToFront::Ended(end)) => {
                        return self.account.released(Some(end));
                    }
                    FromRenewer::Ticket(ToFront::Waiting { .. } | ToFront::Granted { .. })
                    | FromRenewer::Command(_) => {}
                }
            }
            if self.signals.next_deadly().is_some() {
                return self.release();
            }
            if let Some(told) = validity.take_told() {
                valid_until = told;
            } else if self.renewer.is_none() || sys::now() >= until {
                self.warn_of_loss(if self.renewer.is_some() { NOT_RENEWED } else { RENEWER_ENDED });
                return;
            }
        }
    }

    /// Holds a lock in a directory on. A signal ends that.
    pub(super) fn stay_local(&mut self) {
        let Some(held_until) = self.account.stays() else { return };
        self.account.tell_stay(held_until);
        raw::close_inherited();
        while sys::now() < held_until && self.signals.next_deadly().is_none() {
            self.poll(Some(held_until));
        }
    }

    /// Has the lock released, and waits for that.
    pub(super) fn release(&mut self) {
        self.send(&ToRenewer::Done);
        let ended = self.wait_for_end();
        self.account.released(ended);
    }

    fn warn_of_loss(&mut self, why: &str) {
        self.send(&ToRenewer::Done);
        self.account.ended_at = Some(sys::now());
        let why = format!("the lock was lost after the command had ended: {why}");
        self.account.warn(&why);
        self.account.why = Some(why);
    }
}
