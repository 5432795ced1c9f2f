//! The signal thread: SIGTERM and SIGINT end the agent, SIGHUP is harmless.

use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::inbox::Post;
use super::threads::{Threads, may_be_asked_to_panic};
use crate::core::event::Event;

/// Takes the signals over and starts the thread. Called before any other thread
/// is started, so that none of them inherits the defaults.
///
/// # Errors
///
/// When the system has no pipe or no thread to give.
pub(super) fn watch(post: Post, threads: Threads) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let heed = move || {
        for signal in signals.forever() {
            may_be_asked_to_panic("putex-signal");
            let name = match signal {
                SIGTERM => "SIGTERM",
                SIGINT => "SIGINT",
                _ => {
                    log::info!("SIGHUP: nothing to reload");
                    continue;
                }
            };
            if post.tell(Event::Shutdown(name)).is_none() {
                return;
            }
        }
    };
    threads.start("putex-signal", heed)?;
    Ok(())
}
