//! How the agent's threads are started.

use std::io;
use std::thread;

use crate::sys::raw;

/// Starts a thread. A `realtime` one runs with real-time priority, as far as that is permitted.
///
/// # Errors
///
/// When the system has none to give.
pub(super) fn start(
    name: &str,
    realtime: bool,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let run = move || {
        if realtime {
            // The main thread has said why, where it is not permitted.
            let _ = raw::set_realtime();
        }
        body();
    };
    thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}
