//! The ends of tickets that processes have.
//!
//! The system call that waits for the end of a ticket has no deadline: a thread calls it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use super::tickets::wait_for_end;
use crate::core::Revision;
use crate::sys::{self, Waker};

/// The tickets whose ends a process waits for. Readable when one of them has ended, or a thread
/// cannot wait for that.
pub(crate) struct TicketEnds {
    waker: Arc<Waker>,
    /// The keys of the tickets that have ended, which a thread sends before it wakes.
    ends: Receiver<io::Result<String>>,
    /// Cloned for each thread.
    end_sender: Sender<io::Result<String>>,
    /// The keys and revisions of the tickets for which there is a thread, or was one.
    added: BTreeSet<(String, Revision)>,
}

impl TicketEnds {
    /// Returns the ends of no ticket.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub(crate) fn new() -> io::Result<TicketEnds> {
        let (end_sender, ends) = mpsc::channel();
        Ok(TicketEnds { waker: Arc::new(Waker::new()?), ends, end_sender, added: BTreeSet::new() })
    }

    /// Adds the ticket that stands under this key at this revision, in this file, unless it was
    /// added before. Without a file it has ended.
    ///
    /// # Errors
    ///
    /// When the system starts no thread.
    pub(crate) fn add(
        &mut self,
        key: &str,
        revision: Revision,
        file: Option<File>,
    ) -> io::Result<()> {
        let key = key.to_owned();
        if !self.added.insert((key.clone(), revision)) {
            return Ok(());
        }
        let (waker, end_sender) = (Arc::clone(&self.waker), self.end_sender.clone());
        let run = move || {
            let ended = file.map_or(Ok(()), wait_for_end).map(|()| key);
            // The receiver is gone when this process does not wait any more.
            let _ = end_sender.send(ended);
            waker.wake();
        };
        sys::start_small_thread("putex-ticket", run).map(drop)
    }

    /// Returns the key of one of the tickets that have ended since the last call; `None` if none
    /// has.
    ///
    /// # Errors
    ///
    /// When the file system has no such locks.
    pub(crate) fn ended(&self) -> io::Result<Option<String>> {
        self.waker.clear();
        Ok(self.ends.try_iter().collect::<io::Result<Vec<String>>>()?.pop())
    }
}

impl AsFd for TicketEnds {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Alarm, PollFlags};

    /// The lock was free, and its waiter and all behind that slept for ever.
    #[test]
    fn a_thread_that_cannot_wait_for_the_end_of_a_ticket_wakes_with_an_error() {
        let mut ends = TicketEnds::new().expect("a descriptor");
        // A file that is not open for writing cannot be locked alone.
        let file = File::open("/dev/null").expect("a file");
        ends.add("lock.a.1", Revision(1), Some(file)).expect("a thread");
        let alarm = Alarm::new().expect("a descriptor");
        let until = Some(sys::now().after(sys::PATIENCE));
        let woken = alarm.wait([(ends.as_fd(), PollFlags::IN)], until).expect("a wait");
        assert_eq!(woken, [true]);
        assert!(ends.ended().is_err());
        assert!(matches!(ends.ended(), Ok(None)) && !sys::is_ready(&ends));
    }
}
