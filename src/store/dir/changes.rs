//! How a process waits for changes in a folder, and for the ends of tickets that processes have.
//!
//! The system call that waits for the end of a ticket has no deadline: a thread calls it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use super::folder::Folder;
use super::text::Kind;
use super::tickets::wait_for_end;
use super::watch::Watch;
use crate::core::{Instant, Revision};
use crate::store::Hint;
use crate::sys::{self, Alarm, PollFlags, Waker};

/// The changes and ends that a process waits for.
pub(crate) struct Changes {
    /// Tells of changes; `None` where nothing but ends is waited for.
    pub(crate) watch: Option<Watch>,
    /// Woken by threads at the end of a ticket, or when one cannot wait for that.
    waker: Arc<Waker>,
    /// The keys of the tickets that have ended, which a thread sends before it wakes.
    ends: Receiver<io::Result<String>>,
    /// Cloned for each thread.
    end_sender: Sender<io::Result<String>>,
    /// The keys and revisions of the tickets for which there is a thread, or was one.
    added: BTreeSet<(String, Revision)>,
}

impl Changes {
    /// Returns the changes of which this tells.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub(crate) fn new(watch: Option<Watch>) -> io::Result<Changes> {
        let ((end_sender, ends), waker) = (mpsc::channel(), Arc::new(Waker::new()?));
        Ok(Changes { watch, waker, ends, end_sender, added: BTreeSet::new() })
    }

    /// Adds the ticket that stands under this key at this revision, in this file, unless it was
    /// added before: its end is waited for. Without a file it has ended.
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

    /// Adds the tickets that are subscribed to and that processes have, as they stand now. An end
    /// before that is told at once, or by the removal of the file.
    fn add_subscribed(&mut self, folder: &Folder) -> io::Result<()> {
        let keys = self.watch.iter().flat_map(Watch::keys);
        let keys = keys.filter(|key| Kind::of_entry(key) == Kind::Until);
        for key in keys.map(str::to_owned).collect::<Vec<_>>() {
            // A file that cannot be read is an error of the listing.
            if let Ok(Some((file, revision))) = folder.open_to_wait(&key) {
                self.add(&key, revision, Some(file))?;
            }
        }
        Ok(())
    }

    /// Waits for a change or an end, for `wake` to become readable, or for `deadline`.
    ///
    /// # Errors
    ///
    /// When the process cannot wait, or the file system has no locks.
    pub(crate) fn wait(
        &mut self,
        folder: &Folder,
        wake: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> io::Result<Hint> {
        self.add_subscribed(folder)?;
        loop {
            if let Some(hint) = self.next_hint(folder) {
                return Ok(hint);
            }
            // The ends are polled in the place of what is missing too.
            let (ends, queue) = (self.waker.as_fd(), self.watch.as_ref().and_then(Watch::queue));
            let polled = [wake, queue, None].map(|fd| (fd.unwrap_or(ends), PollFlags::IN));
            let [is_woken, has_changed, has_ended] = Alarm::new()?.wait(polled, deadline)?;
            if wake.is_some() && is_woken {
                return Ok(Hint::Woken);
            }
            if has_ended {
                self.waker.clear();
                if let Some(key) = self.ends.try_iter().collect::<io::Result<Vec<_>>>()?.pop() {
                    return Ok(Hint::Changed { key, revision: None, is_end: true });
                }
            }
            if let Some(watch) = self.watch.as_mut().filter(|_| has_changed) {
                watch.read_events(folder);
            }
            // Events of other keys must not extend the deadline.
            let is_over = deadline.is_some_and(|at| sys::now() >= at);
            if is_over || !has_changed && !has_ended {
                return Ok(self.next_hint(folder).unwrap_or(Hint::Elapsed));
            }
        }
    }

    fn next_hint(&mut self, folder: &Folder) -> Option<Hint> {
        self.watch.as_mut().and_then(|watch| watch.next_hint(folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lock was free, and its waiter and all behind that slept for ever.
    #[test]
    fn a_thread_that_cannot_wait_for_the_end_of_a_ticket_ends_the_wait() {
        let base = std::env::temp_dir().join(format!("putex-changes-{}", std::process::id()));
        let folder = Folder::open(&base, "b").expect("a bucket");
        let mut changes = Changes::new(None).expect("a descriptor");
        // A file that is not open for writing cannot be locked alone.
        let file = File::open("/dev/null").expect("a file");
        changes.add("lock.a.1", Revision(1), Some(file)).expect("a thread");
        let waited = changes.wait(&folder, None, Some(sys::now().after(sys::PATIENCE)));
        std::fs::remove_dir_all(base).expect("a folder");
        assert!(waited.is_err(), "{waited:?}");
    }
}
