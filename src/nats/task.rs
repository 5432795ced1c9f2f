//! A call in a thread of its own, for what cannot be interrupted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crossbeam_channel::{Receiver, bounded};

use crate::sys::{Waker, start_thread};

/// A call that runs or has ended.
pub(super) struct Task<T> {
    done: Arc<Waker>,
    result: Receiver<T>,
}

impl<T: Send + 'static> Task<T> {
    /// Begins a call in a new thread of this name. The thread outlives a task that is dropped.
    pub(super) fn start(
        name: &str,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Task<T>> {
        let done = Arc::new(Waker::new()?);
        let (sender, result) = bounded(1);
        let waker = Arc::clone(&done);
        let work = move || {
            let _ = sender.send(call());
            waker.wake();
        };
        start_thread(name, work)?;
        Ok(Task { done, result })
    }

    /// Returns a call that has ended already.
    pub(super) fn ended(result: T) -> io::Result<Task<T>> {
        let (sender, ended) = bounded(1);
        let _ = sender.send(result);
        let done = Arc::new(Waker::new()?);
        done.wake();
        Ok(Task { done, result: ended })
    }

    /// Returns a descriptor that is readable when the call has ended.
    pub(super) fn done(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }

    pub(super) fn is_done(&self) -> bool {
        !self.result.is_empty()
    }

    /// Returns the result of a call that has ended; `None` when its thread died.
    pub(super) fn into_result(self) -> Option<T> {
        // The thread sends before it wakes: an empty channel means that it died.
        self.result.try_recv().ok()
    }
}
