//! The store thread owns the store. It opens the store, opens it again after a loss,
//! answers the pump's requests one by one, and forwards hints.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::inbox::Post;
use super::threads::Threads;
use crate::core::event::{Event, Notice, Rejection};
use crate::core::record::{Record, Revision};
use crate::core::time::Instant;
use crate::log::panic_if_asked;
use crate::store::{LockKey, StoreError, Watched};
use crate::sys::{self, Alarm, Waker, Want};

/// The pump has at most one read or write outstanding; announcements come beside it.
const REQUESTS_MAX: usize = 4;

/// Longest that one attempt to open the store may take. The thread does nothing else
/// meanwhile, and the next attempt may reach another server.
const OPEN_WITHIN: Duration = Duration::from_secs(2);

/// Shortest pause between two attempts to open the store.
const REOPEN_AFTER_MIN: Duration = Duration::from_millis(20);

/// Longest pause between two attempts to open the store.
const REOPEN_AFTER_MAX: Duration = Duration::from_secs(1);

/// A request with the generation of the open store that it was made for. The pump forgets
/// its requests when the store closes, so a request of an older generation is dropped.
type Queued = (u64, StoreRequest);

/// A request of the pump to the store thread.
pub(super) enum StoreRequest {
    Read { deadline: Instant },
    Write { expected: Revision, record: Record, deadline: Instant },
    Announce(Notice),
}

/// The pump's handle to the store thread.
pub(super) struct StoreHandle {
    requests: Sender<Queued>,
    waker: Arc<Waker>,
    /// How many times the store was reported open to the pump.
    generation: u64,
}

impl StoreHandle {
    /// Starts the thread, which opens the store at once. `pause` is the time
    /// between two attempts to open it.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or no thread to give.
    pub(super) fn start(
        store: LockKey,
        pause: Duration,
        post: Post,
        threads: Threads,
    ) -> io::Result<StoreHandle> {
        let (requests, queue) = bounded(REQUESTS_MAX);
        let waker = Arc::new(Waker::new()?);
        let pause = pause.clamp(REOPEN_AFTER_MIN, REOPEN_AFTER_MAX);
        let thread = StoreThread {
            store,
            queue,
            generation: 0,
            waker: Arc::clone(&waker),
            alarm: Alarm::new()?,
            post,
            pause,
        };
        threads.start("putex-store", move || thread.serve())?;
        Ok(StoreHandle { requests, waker, generation: 0 })
    }

    /// Counts a generation: the pump is about to handle that the store is open.
    pub(super) fn opened(&mut self) {
        self.generation += 1;
    }

    /// Queues a request without waiting; returns whether the queue had room.
    pub(super) fn send(&self, request: StoreRequest) -> bool {
        let queued = (self.generation, request);
        let room = self.requests.try_send(queued).is_ok();
        self.waker.wake();
        room
    }
}

struct StoreThread {
    store: LockKey,
    queue: Receiver<Queued>,
    /// How many times the store was reported open to the pump.
    generation: u64,
    waker: Arc<Waker>,
    alarm: Alarm,
    post: Post,
    pause: Duration,
}

impl StoreThread {
    /// Opens the store, serves it until it is lost, and repeats until the agent ends.
    fn serve(mut self) {
        let mut reported = None;
        loop {
            let failed = match self.store.open(sys::now().after(OPEN_WITHIN)) {
                Ok(opened) => {
                    reported = None;
                    self.generation += 1;
                    let gone =
                        self.post.tell(Event::Opened(opened)).and_then(|()| self.serve_open());
                    if gone.and_then(|why| self.post.tell(Event::Closed(why))).is_none() {
                        return;
                    }
                    None
                }
                Err(StoreError::Unreachable(why)) => Some(Event::Closed(why)),
                Err(StoreError::Credentials(why)) => {
                    Some(Event::Rejected(Rejection::Credentials(why)))
                }
                Err(StoreError::Unsafe(why)) => Some(Event::Rejected(Rejection::Unsafe(why))),
            };
            if failed.is_some() && failed != reported {
                reported = failed;
                if reported.clone().and_then(|event| self.report(event)).is_none() {
                    return;
                }
            }
            self.pause();
        }
    }

    /// Reports a failed attempt to open. The pump logs the loss of an open store; this
    /// function logs why it cannot be opened again, once for each new reason.
    fn report(&self, failed: Event) -> Option<()> {
        if let Event::Closed(why) = &failed {
            log::warn!("store out of reach: {why}");
        }
        self.post.tell(failed)
    }

    /// Serves an open store until it is lost and returns the reason; `None` when the
    /// agent has ended.
    fn serve_open(&mut self) -> Option<String> {
        loop {
            self.answer()?;
            panic_if_asked("putex-store");
            let watched = self.store.watch(self.waker.as_fd(), None);
            match watched {
                Watched::Hint(revision) => self.post.tell(Event::Hint(revision))?,
                Watched::DuplicateToken(notice) => self.post.tell(Event::DuplicateToken(notice))?,
                Watched::Woken => self.waker.clear(),
                Watched::Elapsed => {}
                Watched::Gone(why) => return Some(why),
            }
        }
    }

    fn answer(&mut self) -> Option<()> {
        while let Ok((generation, request)) = self.queue.try_recv() {
            if generation != self.generation {
                continue;
            }
            let event = match request {
                StoreRequest::Read { deadline } => Event::Read(self.store.read(deadline)),
                StoreRequest::Write { expected, record, deadline } => {
                    Event::Written(self.store.write(expected, &record, deadline))
                }
                StoreRequest::Announce(notice) => {
                    self.store.announce(&notice);
                    continue;
                }
            };
            self.post.tell(event)?;
        }
        Some(())
    }

    /// Pauses between two attempts to open. A request that was sent before the pump
    /// learned of the loss ends the pause early; the next generation drops it.
    fn pause(&self) {
        let until = sys::now().after(self.pause);
        // A pause that ends early, or that the kernel refuses, does no harm.
        let fds = [(self.waker.as_fd(), Want::Read)];
        let waited = self.alarm.wait(fds, Some(until));
        if waited.is_ok_and(|[woken]| woken) {
            self.waker.clear();
        }
    }
}
