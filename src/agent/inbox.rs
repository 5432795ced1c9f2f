//! The queues between the agent's threads, each in the order of sending.
//!
//! A bounded channel carries the items; an eventfd wakes the receiver, which waits in poll(2),
//! beside descriptors and until a deadline. The channel's own wait would spin before it
//! sleeps, at several system calls an item.

use std::io;
use std::iter;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::core::Instant;
use crate::sys::{Alarm, Waker};

/// The receiver's end.
pub(super) struct Inbox<T> {
    pub(super) items: Receiver<T>,
    /// Becomes readable when an item is sent.
    pub(super) waker: Arc<Waker>,
    alarm: Alarm,
}

/// A sender's end.
#[derive(Clone)]
pub(super) struct InboxSender<T> {
    items: Sender<T>,
    /// Wakes the receiver without an item.
    pub(super) waker: Arc<Waker>,
}

/// Makes both ends of a queue in which `most` items may wait.
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

impl<T> Inbox<T> {
    /// Takes the items that are there: all that were sent before the last wait has ended.
    pub(super) fn take_all(&self) -> impl Iterator<Item = T> {
        iter::from_fn(|| self.try_next()).take(self.items.len())
    }

    /// Takes the next item if there is one.
    pub(super) fn try_next(&self) -> Option<T> {
        self.items.try_recv().ok()
    }

    /// Waits for an item that was sent since the last wait, or until one of `fds` can be read,
    /// until `deadline` at the longest; returns which of `fds` can.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to wait.
    pub(super) fn wait<const N: usize>(
        &self,
        fds: [Option<BorrowedFd<'_>>; N],
        deadline: Option<Instant>,
    ) -> io::Result<[bool; N]> {
        let awaited = iter::once(self.waker.as_fd()).chain(fds.into_iter().flatten());
        let mut ready = self.alarm.wait_to_read(awaited, deadline)?.into_iter();
        if ready.next() == Some(true) {
            self.waker.clear();
        }
        Ok(fds.map(|fd| fd.is_some() && ready.next() == Some(true)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    /// A flood of requests for the status must not keep a signal from the agent.
    #[test]
    fn items_that_wait_hide_no_descriptor_and_none_is_left_behind() {
        let (sender, inbox) = inbox(3).expect("descriptors");
        let other = Waker::new().expect("a descriptor");
        let patience = || Some(sys::now().after(sys::PATIENCE));
        for round in 0..3 {
            assert_eq!(sender.offer(round), None);
            assert_eq!(sender.offer(round), None);
            other.wake();
            assert!(
                inbox.wait([None, Some(other.as_fd())], patience()).is_ok_and(|[_, ready]| ready)
            );
            assert_eq!(inbox.take_all().collect::<Vec<_>>(), [round, round]);
            other.clear();
        }
        let now = Some(sys::now());
        assert!(inbox.wait([Some(other.as_fd())], now).is_ok_and(|[ready]| !ready));
    }
}
