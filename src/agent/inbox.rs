//! The queues between the agent's threads, each in the order of telling.
//!
//! A bounded channel carries the items; an eventfd wakes the receiver, which waits in poll(2),
//! beside descriptors and until a deadline. The channel's own wait would spin before it
//! sleeps, at several system calls an item.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::event::{PollFd, PollFlags};

use crate::core::Instant;
use crate::sys::{self, Alarm, Waker};

/// The receiver's end.
pub(super) struct Inbox<T> {
    items: Receiver<T>,
    /// Becomes readable when an item is sent.
    pub(super) waker: Arc<Waker>,
    alarm: Alarm,
}

/// A sender's end.
#[derive(Clone)]
pub(super) struct InboxSender<T> {
    items: Sender<T>,
    /// Has the receiver look at what else has changed.
    pub(super) waker: Arc<Waker>,
}

/// A sender's end of a queue that keeps the newest items.
pub(super) struct NewestSender<T> {
    sender: InboxSender<T>,
    oldest: Receiver<T>,
}

/// What a wait for an item has ended with.
pub(super) enum Waited<T> {
    /// The item.
    Item(T),
    /// One of the descriptors can be read.
    Readable,
    /// The deadline has passed.
    Passed,
}

/// Makes both ends of a queue that keeps so many of the newest items.
///
/// # Errors
///
/// When the process has no descriptor left.
pub(super) fn newest_inbox<T>(most: usize) -> io::Result<(NewestSender<T>, Inbox<T>)> {
    let (sender, inbox) = inbox(most)?;
    let oldest = inbox.items.clone();
    Ok((NewestSender { sender, oldest }, inbox))
}

/// Makes both ends of a queue in which so many items may wait.
///
/// # Errors
///
/// When the process has no descriptor left.
pub(super) fn inbox<T>(most: usize) -> io::Result<(InboxSender<T>, Inbox<T>)> {
    let (sent, items) = bounded(most);
    let waker = Arc::new(Waker::new()?);
    let sender = InboxSender { items: sent, waker: Arc::clone(&waker) };
    Ok((sender, Inbox { items, waker, alarm: Alarm::new()? }))
}

impl<T> InboxSender<T> {
    /// Sends an item, waiting for room; `None` when the receiver has ended.
    pub(super) fn tell(&self, item: T) -> Option<()> {
        self.items.send(item).ok()?;
        self.waker.wake();
        Some(())
    }

    /// Sends an item without waiting; returns it if there is no room.
    pub(super) fn offer(&self, item: T) -> Option<T> {
        let refused = self.items.try_send(item);
        self.waker.wake();
        refused.err().map(|refused| refused.into_inner())
    }
}

impl<T> NewestSender<T> {
    /// Sends an item without waiting. Returns the oldest one if it was dropped: there was no room.
    pub(super) fn send(&self, item: T) -> Option<T> {
        let refused = self.sender.offer(item)?;
        // The receiver may have made room meanwhile. No one else sends, so there is room now.
        let dropped = self.oldest.try_recv().ok();
        self.sender.offer(refused);
        dropped
    }

    /// Has the receiver look at what else has changed.
    pub(super) fn wake(&self) {
        self.sender.waker.wake();
    }
}

impl<T> Inbox<T> {
    /// Returns whether no item waits.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Takes the next item if there is one.
    pub(super) fn try_next(&self) -> Option<T> {
        self.items.try_recv().ok()
    }

    /// Waits for the next item, or until one of `fds` can be read, until `deadline` at the longest.
    /// A deadline that has passed already is looked at after the items that are there.
    pub(super) fn next_or<'a>(
        &'a self,
        fds: impl IntoIterator<Item = BorrowedFd<'a>> + Clone,
        deadline: Option<Instant>,
    ) -> Waited<T> {
        loop {
            if let Some(item) = self.try_next() {
                return Waited::Item(item);
            }
            if deadline.is_some_and(|at| sys::now() >= at) {
                return Waited::Passed;
            }
            // A kernel that refuses to wait leaves only to look again: the deadline ends that.
            if self.wait(fds.clone(), deadline).is_ok_and(|ready| ready) {
                return Waited::Readable;
            }
        }
    }

    /// Waits for an item, or until one of `fds` can be read, until `deadline` at the longest;
    /// returns whether one of `fds` can.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to wait.
    pub(super) fn wait<'a>(
        &'a self,
        fds: impl IntoIterator<Item = BorrowedFd<'a>>,
        deadline: Option<Instant>,
    ) -> io::Result<bool> {
        let fds = [self.waker.as_fd()].into_iter().chain(fds);
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds: Vec<_> = fds.map(readable).collect();
        self.alarm.poll(&mut fds, deadline)?;
        if !fds[0].revents().is_empty() {
            self.waker.clear();
        }
        Ok(fds[1..].iter().any(|fd| !fd.revents().is_empty()))
    }
}
