//! The start of a thread. Only the main thread of a process takes signals: in each other, all are
//! blocked before anything else. The handlers of many signals at once are run one inside another,
//! and need more stack than such a thread has.

use std::io;
use std::thread::{self, JoinHandle};

use super::raw::block_signals;

/// The stack of a thread that only waits and calls the system, in bytes. The guard keeps its memory
/// locked, so that of each thread counts.
const SMALL_STACK_BYTES: usize = 64 * 1024;

/// The highest priority that is not real-time.
pub const NICE_MIN: i32 = -20;

/// Gives this thread that priority, which the threads that it starts and the processes that they
/// spawn inherit: on a busy host the guard comes first, and the stop that it runs. Best effort: not
/// every user may. Returns the niceness before.
pub fn come_first() -> i32 {
    let before = rustix::process::getpriority_process(None).unwrap_or_default();
    let _ = rustix::process::setpriority_process(None, NICE_MIN);
    before
}

/// Starts a thread of this name.
///
/// # Errors
///
/// When the system has no thread to give.
pub fn start_thread(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(without_signals(work))
}

/// As [`start_thread`], a thread with a small stack, which only waits and calls the system.
///
/// # Errors
///
/// As those of [`start_thread`].
pub fn start_small_thread<R: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<R>> {
    let builder = thread::Builder::new().name(name.to_owned()).stack_size(SMALL_STACK_BYTES);
    builder.spawn(without_signals(work))
}

/// Returns the work of a thread that takes no signals.
fn without_signals<R>(work: impl FnOnce() -> R) -> impl FnOnce() -> R {
    || {
        block_signals();
        work()
    }
}

/// Runs all of these functions beside each other, each in a thread of its own. Returns their
/// results in the same order, without those of threads that have panicked.
///
/// # Panics
///
/// When the system has no thread to give.
pub fn run_beside_each_other<W, R>(works: impl Iterator<Item = W>) -> Vec<R>
where
    W: FnOnce() -> R + Send,
    R: Send,
{
    thread::scope(|scope| {
        let threads: Vec<_> = works.map(|work| scope.spawn(without_signals(work))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}
