//! The store thread owns the store. It opens the store, opens it again after a loss,
//! answers the pump's requests one by one, and forwards hints.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use super::inbox::{Inbox, InboxSender, inbox};
use crate::core::{
    AgentStatus, Event, Instant, Record, Revision, Seat, StoreError, StoreErrorKind as Kind,
    Switchover, Timing, Written,
};
use crate::log::panic_if_asked;
use crate::store::LockKey;
use crate::store::reopening;
use crate::sys;

/// The pump has at most one read or write outstanding, and one read of the pause; requests for
/// switchover come beside them, and at most one status for all processes that have requested it.
const REQUESTS_MAX: usize = 6;

/// Longest that one attempt to open the store may take. The thread does nothing else meanwhile. A
/// store has shorter limits of its own: this one must not cut off a handshake with a server that
/// hashes the passwords of many agents at once.
const OPEN_WITHIN: Duration = Duration::from_secs(60);

/// Most warnings that are kept, so that each is logged once. One more clears them all.
const LOGGED_MAX: usize = 32;

/// A request with the generation of the open store that it was made for. The pump forgets
/// its requests when the store closes, so a request of an older generation is dropped.
type Queued = (u64, StoreRequest);

/// A request of the pump to the store thread.
pub(super) enum StoreRequest {
    Read { seat: Seat, deadline: Instant },
    Write { seat: Seat, expected: Revision, record: Record, deadline: Instant },
    ReadPause,
    RequestSwitchover(Switchover),
    SendStatus(Box<AgentStatus>),
}

/// The pump's handle to the store thread.
pub(super) struct StoreHandle {
    requests: InboxSender<Queued>,
    /// How many times the store was reported open to the pump.
    generation: u64,
}

impl StoreHandle {
    /// Starts the thread, which opens the store at once, and again after the pauses of
    /// [`reopening::pause`].
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or no thread to give.
    pub(super) fn start(
        store: LockKey,
        timing: Timing,
        events: InboxSender<Event>,
    ) -> io::Result<StoreHandle> {
        let (own, requests) = inbox(REQUESTS_MAX)?;
        let mut thread = StoreThread {
            store,
            requests,
            generation: 0,
            reported: None,
            logged: Vec::new(),
            events,
            timing,
        };
        let work = move || {
            while thread.open_and_serve().is_some() {
                thread.pause();
            }
        };
        sys::start_thread("putex-store", work)?;
        Ok(StoreHandle { requests: own, generation: 0 })
    }

    /// Counts a generation: the pump is about to handle that the store is open.
    pub(super) fn opened(&mut self) {
        self.generation += 1;
    }

    /// Queues a request without waiting; returns its answer if there is no room.
    pub(super) fn send(&self, request: StoreRequest) -> Option<Event> {
        let why = || "the store thread does not keep up".to_owned();
        let (_, refused) = self.requests.offer((self.generation, request))?;
        match refused {
            StoreRequest::Read { .. } => Some(Event::Read(Err(why()))),
            StoreRequest::Write { .. } => Some(Event::Written(Written::Unknown(why()))),
            // Best effort: they are requested again.
            StoreRequest::ReadPause
            | StoreRequest::RequestSwitchover(_)
            | StoreRequest::SendStatus(..) => None,
        }
    }
}

struct StoreThread {
    store: LockKey,
    requests: Inbox<Queued>,
    /// How many times the store was reported open to the pump.
    generation: u64,
    /// Why the store cannot be opened, as the pump was told last.
    reported: Option<Event>,
    /// The warnings that were logged since the store was last opened, or the pause last read.
    logged: Vec<String>,
    events: InboxSender<Event>,
    timing: Timing,
}

impl StoreThread {
    /// Opens the store and serves it until it is lost; `None` when the agent has ended. The
    /// pump logs the loss of an open store; why it cannot be opened is logged here, once for
    /// each new reason.
    fn open_and_serve(&mut self) -> Option<()> {
        let failed = match self.store.open(sys::now().after(OPEN_WITHIN)) {
            Ok(opened) => {
                self.reported = None;
                self.logged.clear();
                self.generation += 1;
                self.events.tell(Event::Opened(opened))?;
                let why = self.serve_open()?;
                return self.events.tell(Event::Closed(why));
            }
            Err(StoreError { kind: Kind::Unreachable | Kind::System | Kind::Unfit, text }) => {
                Event::Closed(text)
            }
            Err(error) => Event::Rejected(error),
        };
        if self.reported.as_ref() == Some(&failed) {
            return Some(());
        }
        if let Event::Closed(why) = &failed {
            self.warn_once(format!("store out of reach: {why}"));
        }
        self.reported = Some(failed.clone());
        self.events.tell(failed)
    }

    /// Serves an open store until it is lost and returns the reason; `None` when the
    /// agent has ended.
    fn serve_open(&mut self) -> Option<String> {
        loop {
            self.answer()?;
            panic_if_asked("putex-store");
            match self.store.watch(self.requests.waker.as_fd(), None) {
                Ok(Some(event)) => self.events.tell(event)?,
                Ok(None) => self.requests.waker.clear(),
                Err(why) => return Some(why),
            }
        }
    }

    /// Logs a warning, each one once.
    fn warn_once(&mut self, line: String) {
        if self.logged.contains(&line) {
            return;
        }
        log::warn!("{line}");
        if self.logged.len() == LOGGED_MAX {
            self.logged.clear();
        }
        self.logged.push(line);
    }

    fn answer(&mut self) -> Option<()> {
        while let Some((generation, request)) = self.requests.try_next() {
            if generation != self.generation {
                continue;
            }
            let event = match request {
                StoreRequest::Read { seat, deadline } => {
                    Event::Read(self.store.read(seat, deadline))
                }
                StoreRequest::Write { seat, expected, record, deadline } => {
                    Event::Written(self.store.write(seat, expected, &record, deadline))
                }
                StoreRequest::ReadPause => match self.store.read_pause() {
                    Ok(pause) => {
                        self.logged.clear();
                        Event::PauseRead(pause)
                    }
                    Err(error) => {
                        self.warn_once(format!("start waits until the pause is read: {error}"));
                        continue;
                    }
                },
                StoreRequest::RequestSwitchover(request) => {
                    self.store.request_switchover(&request);
                    continue;
                }
                StoreRequest::SendStatus(status) => {
                    self.store.send_status(&status);
                    continue;
                }
            };
            self.events.tell(event)?;
        }
        Some(())
    }

    /// Pauses between two attempts to open. A request that was sent before the pump
    /// learned of the loss ends the pause early; the next generation drops it.
    fn pause(&self) {
        let random = sys::random().unwrap_or_default();
        let pause = reopening::pause(&self.timing, self.store.is_held(), random);
        // A pause that ends early, or that the kernel refuses, does no harm.
        let _ = self.requests.wait([], Some(sys::now().after(pause)));
    }
}
