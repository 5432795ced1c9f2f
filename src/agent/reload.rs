//! The settings that an agent reads again when it is told to: SIGHUP.
//!
//! They are read in a thread: a file on a disk that hangs must not delay a renewal.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::inbox::InboxSender;
use crate::core::{Event, Reloadable};
use crate::log::OncePerSecond;
use crate::sys;

/// The settings as they are found now.
pub struct Reloaded {
    /// Those that may change while the agent runs.
    pub reloadable: Reloadable,
    /// A text for each of them that differs from the one that was read last.
    pub changed: Vec<String>,
    /// The names of the others that have changed since the agent was started.
    pub for_restart: Vec<String>,
}

/// Reads the settings again. The error is why they cannot be used.
pub type Reload = Box<dyn FnMut() -> Result<Reloaded, String> + Send>;

/// What reads the settings again, one time after the other.
pub(super) struct Reloader {
    settings: Arc<Mutex<Settings>>,
    events: InboxSender<Event>,
    state: State,
    again_line: OncePerSecond,
}

/// How settings are read, and those that were read last.
struct Settings {
    read: Reload,
    last: Reloadable,
    nothing_line: OncePerSecond,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Reading,
    /// They are being read, and may have changed since that began.
    Again,
}

impl Reloader {
    /// `last` are the settings of the start.
    pub(super) fn new(read: Reload, last: Reloadable, events: InboxSender<Event>) -> Reloader {
        let settings =
            Arc::new(Mutex::new(Settings { read, last, nothing_line: OncePerSecond::default() }));
        Reloader { settings, events, state: State::Idle, again_line: OncePerSecond::default() }
    }

    /// Has the settings read; an [`Event::Reloaded`] follows.
    pub(super) fn begin(&mut self) {
        if self.state != State::Idle {
            if std::mem::replace(&mut self.state, State::Again) == State::Reading
                && self.again_line.is_due(sys::now())
            {
                log::info!("SIGHUP: the settings are still being read; then once more");
            }
            return;
        }
        self.state = State::Reading;
        let (settings, events) = (Arc::clone(&self.settings), self.events.clone());
        let work = move || {
            let reloadable = settings.lock().unwrap_or_else(PoisonError::into_inner).reload();
            events.tell(Event::Reloaded(reloadable));
        };
        if let Err(error) = thread::Builder::new().name("putex-reload".to_owned()).spawn(work) {
            log::error!("SIGHUP: the settings stay as they are: {error}");
            let last = self.settings.lock().unwrap_or_else(PoisonError::into_inner).last;
            // One that has no room has others before it.
            let _ = self.events.offer(Event::Reloaded(last));
        }
    }

    /// Takes in that an [`Event::Reloaded`] has come; returns whether that was the last one.
    pub(super) fn has_ended(&mut self) -> bool {
        let state = std::mem::replace(&mut self.state, State::Idle);
        if state == State::Again {
            self.begin();
        }
        self.is_idle()
    }

    /// Returns whether no settings are being read.
    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }
}

impl Settings {
    /// Reads the settings, logs what has changed, and returns what may change while the agent
    /// runs: as before when they cannot be used.
    fn reload(&mut self) -> Reloadable {
        let Reloaded { reloadable, changed, for_restart } = match (self.read)() {
            Ok(reloaded) => reloaded,
            Err(why) => {
                log::error!("SIGHUP: the settings stay as they are: {why}");
                return self.last;
            }
        };
        if !for_restart.is_empty() {
            let names = for_restart.join(", ");
            log::warn!("SIGHUP: changed, but read only at a start, as by SIGUSR2: {names}");
        }
        if !changed.is_empty() {
            log::info!("SIGHUP: from now on {}", changed.join(", "));
        } else if for_restart.is_empty() && self.nothing_line.is_due(sys::now()) {
            log::info!("SIGHUP: nothing to reload");
        }
        self.last = reloadable;
        reloadable
    }
}
