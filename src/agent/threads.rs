//! How the agent's threads are started.

use std::io;
use std::thread;

use crate::sys::raw;

/// The settings of all threads but the log's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threads {
    /// They run with real-time priority, as far as that is permitted.
    pub(super) realtime: bool,
}

impl Threads {
    /// Starts a thread.
    ///
    /// # Errors
    ///
    /// When the system has none to give.
    pub(super) fn start(
        self,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<thread::JoinHandle<()>> {
        let realtime = self.realtime;
        let run = move || {
            if realtime {
                // The main thread has said why, where it is not permitted.
                let _ = raw::set_realtime();
            }
            body();
        };
        thread::Builder::new().name(name.to_owned()).spawn(run)
    }
}
