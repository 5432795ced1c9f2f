//! The last line of an agent that ends at once because one of its threads has panicked.

use std::panic;
use std::process;
use std::time::Duration;

use ::log::Level;

use super::format::Destination;
use crate::sys;

/// How long a fatal exit waits for its last log line.
const WRITTEN_WITHIN: Duration = Duration::from_millis(100);

/// From now on a thread that panics writes the panic and ends the agent, in debug builds too: an
/// agent that has lost a thread is worse than none, and the guard stops the service without the
/// agent. The line is written without the log thread, which may have panicked itself, or wait for
/// its reader.
pub(crate) fn end_on_panic(destination: Destination, subject: &str) {
    let subject = subject.to_owned();
    panic::set_hook(Box::new(move |panicked| {
        // The disk of a file may stall. Without a thread to give, nothing limits the wait.
        let _ = sys::start_thread("putex-abort", || {
            sys::pause(WRITTEN_WITHIN);
            process::abort();
        });
        let text = format!("a bug in putex: {panicked}");
        destination.write_now(&destination.line(&subject, Level::Error, None, &text));
        process::abort();
    }));
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
