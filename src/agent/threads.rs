//! How the agent's threads are started, and how all end at once when they are better
//! without.

use std::io;
use std::panic;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::core::event::Level;
use crate::exit::Exit;
use crate::guard::Voice;
use crate::sink::Sink;
use crate::sys::{self, Alarm, raw};

/// How long who ends at once may be held up by the file that it says so in.
const SAID_WITHIN: Duration = Duration::from_millis(100);

/// How the agent says why it ends at once: without the log thread, which may be the one
/// that panicked, or wait for its reader.
#[derive(Debug)]
pub(super) struct LastWord {
    /// Both are made beforehand: there may be no descriptor left.
    voice: Mutex<Voice>,
    alarm: Mutex<Alarm>,
}

impl LastWord {
    /// Prepares it. A thread that panics says it from now on and takes the agent along, in
    /// debug builds too: an agent that has lost a thread is worse than none, and the guard
    /// knows what to do without it.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor to give.
    pub(super) fn prepare(sink: Sink, key: &str) -> io::Result<Arc<LastWord>> {
        let word = Arc::new(LastWord {
            voice: Mutex::new(Voice::new(sink, key, 1)),
            alarm: Mutex::new(Alarm::new()?),
        });
        let of_hook = Arc::clone(&word);
        panic::set_hook(Box::new(move |panicked| {
            of_hook.end(&format!("a bug in putex: {panicked}"), || process::abort());
        }));
        Ok(word)
    }

    /// Ends the agent, whose guard then does what it cannot.
    pub(super) fn leave_to_guard(self: &Arc<LastWord>, why: &str) -> ! {
        self.end(why, || process::exit(Exit::System.status().into()))
    }

    fn end(self: &Arc<LastWord>, why: &str, end: fn() -> !) -> ! {
        let (word, own) = (Arc::clone(self), why.to_owned());
        let say = move || {
            word.say(&own);
            end()
        };
        if thread::Builder::new().spawn(say).is_err() {
            self.say(why);
            end();
        }
        let alarm = self.alarm.lock().unwrap_or_else(PoisonError::into_inner);
        // A wait that fails is one that is short.
        let _ = alarm.wait([], Some(sys::now().after(SAID_WITHIN)));
        end()
    }

    fn say(&self, why: &str) {
        let mut voice = self.voice.lock().unwrap_or_else(PoisonError::into_inner);
        voice.say(Level::Error, why);
    }
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
