//! What is done beside the ticket: the record of `--once`, and the end of `--hold`. Both take
//! place while the owner of the ticket rests, so that they hold up no renewal.

use super::Renewer;
use crate::core::tickets::{End, Input, Once, OnceState, ToFront};
use crate::core::{Instant, StoreErrorKind};
use crate::store::once;
use crate::sys;

impl Renewer {
    /// Takes note of what the front is to be told; returns what it is told now. The grant is kept
    /// back until it is known whether the ID has succeeded.
    pub(super) fn note(&mut self, message: ToFront) -> Option<ToFront> {
        match message {
            ToFront::Granted { .. } => {
                if let Some(id) = self.once_id.take() {
                    let now = sys::now();
                    self.once = Some(Once::new(id, now, now.after(self.validity)));
                }
                let state = self.once.as_ref().map(Once::state);
                if state == Some(&OnceState::Unknown) {
                    self.kept_back = Some(message);
                    return None;
                }
            }
            // Nothing is recorded without the lock.
            ToFront::Lost(_) | ToFront::Ended(_) => (self.once, self.kept_back) = (None, None),
            ToFront::Waiting { .. } | ToFront::HasSucceeded | ToFront::Recorded(_) => {}
        }
        Some(message)
    }

    /// Makes the request for the record that is due, if there is one; it ends by this instant.
    /// Returns whether there was one.
    pub(super) fn request_record(&mut self, now: Instant, by: Instant) -> bool {
        let Some(once) = self.once.as_mut().filter(|_| self.is_open) else { return false };
        if !once::advance(once, self.tickets.bucket(), &self.name, now, by) {
            return false;
        }
        let state = once.state().clone();
        self.tell_record(state);
        true
    }

    /// Tells the front what is known of the record.
    fn tell_record(&mut self, state: OnceState) {
        let grant = match state {
            OnceState::Unknown | OnceState::Recording => return,
            OnceState::New | OnceState::Succeeded => self.kept_back.take(),
            OnceState::Recorded | OnceState::Failed(_) => None,
        };
        match state {
            OnceState::Succeeded => self.tell(&ToFront::HasSucceeded),
            OnceState::Recorded => self.tell(&ToFront::Recorded(Ok(()))),
            OnceState::Failed(why) if self.kept_back.take().is_some() => {
                let end = End::Refused(StoreErrorKind::Unreachable, format!("--once: {why}"));
                self.tell(&ToFront::Ended(end));
                self.finish(sys::now());
            }
            OnceState::Failed(why) => self.tell(&ToFront::Recorded(Err(why))),
            OnceState::New | OnceState::Unknown | OnceState::Recording => {}
        }
        if let Some(grant) = grant {
            self.tell(&grant);
        }
    }

    /// The command and its group have ended.
    pub(super) fn command_has_ended(&mut self, succeeded: bool, now: Instant) {
        self.command = None;
        self.has_ended = true;
        if let Some(once) = self.once.as_mut().filter(|_| succeeded) {
            once.record(now, now.after(self.validity));
        }
    }

    /// Returns when the lock of a command that has ended is released. It was held for long enough
    /// then by the count of the front too, which begins later.
    fn release_at(&self) -> Option<Instant> {
        let held_from = self.known_at.or(self.granted_at);
        let held_from = held_from.filter(|_| self.has_ended && !self.is_ending)?;
        let is_recording = self.once.as_ref().is_some_and(|once| once.next_at().is_some());
        (!is_recording).then(|| held_from.after(self.hold))
    }

    /// Releases the lock of a command that has ended, if that is due.
    pub(super) fn release_in_time(&mut self, now: Instant) {
        if self.release_at().is_some_and(|at| now >= at) {
            self.finish(now);
        }
    }

    /// Returns when something is due.
    pub(super) fn after_at(&self) -> Option<Instant> {
        let request_at = self.once.as_ref().and_then(Once::next_at);
        request_at.into_iter().chain(self.release_at()).min()
    }

    /// The lock is not needed any more.
    pub(super) fn finish(&mut self, now: Instant) {
        self.is_ending = true;
        self.owner.handle(Input::Done, now);
    }
}
