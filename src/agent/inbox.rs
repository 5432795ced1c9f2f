//! What the other threads tell the pump, in the order of telling.
//!
//! A bounded channel carries the events; an eventfd wakes the pump, which waits in
//! poll(2) like every other thread here. The channel's own wait would spin before
//! it sleeps, at several system calls an event.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::core::event::Event;
use crate::core::time::Instant;
use crate::sys::{self, Alarm, Waker, Want};

/// Events that may wait for the pump. It drains them faster than a server, three
/// commands and a person can make them; whoever finds it full waits.
const EVENTS_MAX: usize = 256;

/// The pump's end.
pub(super) struct Inbox {
    events: Receiver<Event>,
    waker: Arc<Waker>,
    alarm: Alarm,
}

/// A thread's end.
#[derive(Clone)]
pub(super) struct Post {
    events: Sender<Event>,
    waker: Arc<Waker>,
}

/// Makes both ends.
///
/// # Errors
///
/// When the process has no descriptor left.
pub(super) fn inbox() -> io::Result<(Post, Inbox)> {
    let (sender, events) = bounded(EVENTS_MAX);
    let waker = Arc::new(Waker::new()?);
    Ok((
        Post { events: sender, waker: Arc::clone(&waker) },
        Inbox { events, waker, alarm: Alarm::new()? },
    ))
}

impl Post {
    /// Tells the pump, waiting for room; `None` when the agent has ended.
    pub(super) fn tell(&self, event: Event) -> Option<()> {
        self.events.send(event).ok()?;
        self.waker.wake();
        Some(())
    }
}

impl Inbox {
    /// Takes the next event if there is one.
    pub(super) fn try_next(&self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Waits for the next event, until `deadline` at the longest; `None` when it
    /// has passed. A deadline that has passed already is looked at after the
    /// events that are there.
    pub(super) fn next(&self, deadline: Option<Instant>) -> Option<Event> {
        loop {
            if let Some(event) = self.try_next() {
                return Some(event);
            }
            // A kernel that refuses to wait leaves only to look again: the deadline
            // ends that.
            let fds = [(self.waker.as_fd(), Want::Read)];
            if self.alarm.wait(fds, deadline).is_ok_and(|[woken]| woken) {
                self.waker.clear();
            } else if deadline.is_some_and(|at| sys::now() >= at) {
                return None;
            }
        }
    }
}
