//! Work in a thread of its own, which may wait for a disk: the agent does not.

use std::io;
use std::sync::Arc;

use crossbeam_channel::{Receiver, bounded};

use crate::sys::{Waker, start_thread};

/// The work, and its outcome when it is done.
pub(super) struct Task<T> {
    receiver: Receiver<T>,
    /// Becomes readable when the work is done.
    pub(super) done: Arc<Waker>,
}

impl<T: Send + 'static> Task<T> {
    /// Starts a thread of this name, which does the work.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or no thread to give.
    pub(super) fn start(
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Task<T>> {
        let (sender, receiver) = bounded(1);
        let done = Arc::new(Waker::new()?);
        let waker = Arc::clone(&done);
        start_thread(name, move || {
            // The receiver is gone when the agent ends.
            let _ = sender.send(work());
            waker.wake();
        })?;
        Ok(Task { receiver, done })
    }

    /// Returns the outcome, once, if the work is done.
    pub(super) fn outcome(&self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}
