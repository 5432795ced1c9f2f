//! The store thread: owns the store, opens it again when it is gone, answers the
//! pump's requests one by one, and passes hints on.

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
use crate::store::{OpenError, Store, Watched};
use crate::sys::{self, Alarm, Waker, Want};

/// The pump asks for one read or write at a time; announcements come beside them.
const ASKS_MAX: usize = 4;

/// How long one attempt to open the store may take. Nothing else can be done in
/// it, and the next attempt may find another server.
const OPEN_WITHIN: Duration = Duration::from_secs(2);

/// Shortest pause between two attempts to open the store.
const REOPEN_AFTER_MIN: Duration = Duration::from_millis(20);

/// Longest pause between two attempts to open the store.
const REOPEN_AFTER_MAX: Duration = Duration::from_secs(1);

/// What the pump asks of the store thread, and of which opening: the pump forgets
/// what it asked when the store was closed, so nothing of then is performed.
struct Asked {
    ask: Ask,
    opening: u64,
}

/// What the pump asks of the store thread.
pub(super) enum Ask {
    Read {
        deadline: Instant,
    },
    Write {
        expected: Revision,
        record: Record,
        deadline: Instant,
    },
    Announce(Notice),
}

/// The pump's end of the store thread.
pub(super) struct Keeper {
    asks: Sender<Asked>,
    waker: Arc<Waker>,
    /// How often the pump was told that the store is open.
    opening: u64,
}

impl Keeper {
    /// Starts the thread, which opens the store at once. `pause` is the time
    /// between two attempts.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or no thread to give.
    pub(super) fn start(
        store: Box<dyn Store>,
        pause: Duration,
        post: Post,
        threads: Threads,
    ) -> io::Result<Keeper> {
        let (asks, asked) = bounded(ASKS_MAX);
        let waker = Arc::new(Waker::new()?);
        let pause = pause.clamp(REOPEN_AFTER_MIN, REOPEN_AFTER_MAX);
        let shop = Shop {
            store,
            asked,
            opening: 0,
            waker: Arc::clone(&waker),
            alarm: Alarm::new()?,
            post,
            pause,
        };
        threads.start("putex-store", move || shop.serve())?;
        Ok(Keeper {
            asks,
            waker,
            opening: 0,
        })
    }

    /// The pump is about to learn that the store is open, or open again.
    pub(super) fn opened(&mut self) {
        self.opening += 1;
    }

    /// Asks without waiting; says whether there was room.
    pub(super) fn ask(&self, ask: Ask) -> bool {
        let opening = self.opening;
        let room = self.asks.try_send(Asked { ask, opening }).is_ok();
        self.waker.wake();
        room
    }
}

struct Shop {
    store: Box<dyn Store>,
    asked: Receiver<Asked>,
    /// How often the pump was told that the store is open.
    opening: u64,
    waker: Arc<Waker>,
    alarm: Alarm,
    post: Post,
    pause: Duration,
}

impl Shop {
    /// Opens, serves until the store is gone, and over again, until the agent ends.
    fn serve(mut self) {
        let mut told = None;
        loop {
            let failed = match self.store.open(sys::now().after(OPEN_WITHIN)) {
                Ok(opened) => {
                    told = None;
                    self.opening += 1;
                    let gone = self
                        .post
                        .tell(Event::Opened(opened))
                        .and_then(|()| self.serve_open());
                    if gone
                        .and_then(|why| self.post.tell(Event::Closed(why)))
                        .is_none()
                    {
                        return;
                    }
                    None
                }
                Err(OpenError::Unreachable(why)) => Some(Event::Closed(why)),
                Err(OpenError::Credentials(why)) => {
                    Some(Event::Rejected(Rejection::Credentials(why)))
                }
                Err(OpenError::Unsafe(why)) => Some(Event::Rejected(Rejection::Unsafe(why))),
            };
            if failed.is_some() && failed != told {
                told = failed;
                if told.clone().and_then(|event| self.report(event)).is_none() {
                    return;
                }
            }
            self.rest();
        }
    }

    /// Passes a failure to open on. The pump says that an open store was lost; that
    /// it stays out of reach is said here, once for each new reason.
    fn report(&self, failed: Event) -> Option<()> {
        if let Event::Closed(why) = &failed {
            log::warn!("store out of reach: {why}");
        }
        self.post.tell(failed)
    }

    /// Serves an open store until it is gone; returns why, `None` when the agent
    /// has ended.
    fn serve_open(&mut self) -> Option<String> {
        loop {
            self.answer()?;
            panic_if_asked("putex-store");
            let watched = self.store.watch(self.waker.as_fd(), None);
            match watched {
                Watched::Hint(revision) => self.post.tell(Event::Hint(revision))?,
                Watched::Twin(notice) => self.post.tell(Event::Twin(notice))?,
                Watched::Woken => self.waker.clear(),
                Watched::Elapsed => {}
                Watched::Gone(why) => return Some(why),
            }
        }
    }

    fn answer(&mut self) -> Option<()> {
        while let Ok(Asked { ask, opening }) = self.asked.try_recv() {
            if opening != self.opening {
                continue;
            }
            let event = match ask {
                Ask::Read { deadline } => Event::Read(self.store.read(deadline)),
                Ask::Write {
                    expected,
                    record,
                    deadline,
                } => Event::Written(self.store.write(expected, &record, deadline)),
                Ask::Announce(notice) => {
                    self.store.announce(&notice);
                    continue;
                }
            };
            self.post.tell(event)?;
        }
        Some(())
    }

    /// Pauses between two attempts to open. A request that crossed the closing on
    /// its way here ends the pause early; it is dropped at the next opening.
    fn rest(&self) {
        let until = sys::now().after(self.pause);
        // An early end of the rest does no harm, nor does a kernel that refuses it.
        let fds = [(self.waker.as_fd(), Want::Read)];
        let waited = self.alarm.wait(fds, Some(until));
        if waited.is_ok_and(|[woken]| woken) {
            self.waker.clear();
        }
    }
}
