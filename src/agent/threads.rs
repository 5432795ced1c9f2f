//! How the agent's threads are started, and what becomes of all when one panics.

use std::io;
use std::panic;
use std::process;
use std::thread;

use crate::core::event::Level;
use crate::guard::Voice;
use crate::sink::Sink;
use crate::sys::raw;

/// A thread that panics takes the agent along, in debug builds too: an agent that
/// has lost a thread is worse than none, and the guard knows what to do without it.
pub(super) fn end_all_when_one_panics(sink: Sink, key: &str) {
    let key = key.to_owned();
    panic::set_hook(Box::new(move |panicked| {
        // The log thread may be the one that panicked, or wait for its reader.
        Voice::new(sink, &key, 1).say(Level::Error, &format!("a bug in putex: {panicked}"));
        process::abort();
    }));
}

/// Panics in a debug build that was asked to, so that a test can see what becomes
/// of it: in the thread of that name, once the file is there.
pub(super) fn may_be_asked_to_panic(_thread: &str) {
    #[cfg(debug_assertions)]
    if std::env::var("PUTEX_PANIC_THREAD").is_ok_and(|name| name == _thread)
        && std::env::var_os("PUTEX_PANIC_FILE")
            .is_some_and(|path| std::path::Path::new(&path).exists())
    {
        panic!("asked to");
    }
}

/// What all threads have in common but the log's.
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
