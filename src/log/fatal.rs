//! The last line of an agent that ends at once, because it is better without.

use std::io;
use std::panic;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::direct::DirectLog;
use super::format::Destination;
use crate::core::level::Level;
use crate::sys::{self, Alarm};

/// How long a fatal exit waits for its last log line.
const WRITTEN_WITHIN: Duration = Duration::from_millis(100);

/// Writes why the agent ends at once: without the log thread, which may have panicked itself,
/// or wait for its reader.
#[derive(Debug)]
pub(crate) struct FatalLog {
    /// Both are made beforehand: there may be no descriptor left.
    log: Mutex<DirectLog>,
    alarm: Mutex<Alarm>,
}

impl FatalLog {
    /// Prepares it. From now on a thread that panics writes the panic here and ends the agent,
    /// in debug builds too: an agent that has lost a thread is worse than none, and the guard
    /// stops the service without it.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor to give.
    pub(crate) fn prepare(destination: Destination, key: &str) -> io::Result<Arc<FatalLog>> {
        let fatal = Arc::new(FatalLog {
            log: Mutex::new(DirectLog::new(destination, key, 1)),
            alarm: Mutex::new(Alarm::new()?),
        });
        let of_hook = Arc::clone(&fatal);
        panic::set_hook(Box::new(move |panicked| {
            of_hook.end(&format!("a bug in putex: {panicked}"), || process::abort());
        }));
        Ok(fatal)
    }

    fn end(self: &Arc<FatalLog>, why: &str, end: fn() -> !) -> ! {
        let (fatal, own) = (Arc::clone(self), why.to_owned());
        let say = move || {
            fatal.say(&own);
            end()
        };
        if thread::Builder::new().spawn(say).is_err() {
            self.say(why);
            end();
        }
        let alarm = self.alarm.lock().unwrap_or_else(PoisonError::into_inner);
        // A wait that fails is a short wait.
        let _ = alarm.wait([], Some(sys::now().after(WRITTEN_WITHIN)));
        end()
    }

    fn say(&self, why: &str) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.say(Level::Error, why);
    }
}

/// Panics in a debug build that a test has asked to: in the thread of that name, once the
/// file is there.
pub(crate) fn panic_if_asked(_thread: &str) {
    #[cfg(debug_assertions)]
    if std::env::var("PUTEX_PANIC_THREAD").is_ok_and(|name| name == _thread)
        && std::env::var_os("PUTEX_PANIC_FILE")
            .is_some_and(|path| std::path::Path::new(&path).exists())
    {
        panic!("asked to");
    }
}
