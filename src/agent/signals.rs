//! The signal thread: SIGTERM and SIGINT end the agent; SIGHUP does when its terminal
//! is gone, and is what a service manager sends to have it reload otherwise.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::inbox::Post;
use super::service_manager::NotifySocket;
use super::threads::Threads;
use crate::core::event::Event;
use crate::log::panic_if_asked;

/// Takes the signals over and starts the thread. Called before any other thread
/// is started, so that none of them inherits the defaults.
///
/// # Errors
///
/// When the system has no pipe or no thread to give.
pub(super) fn watch(
    post: Post,
    notify_socket: Arc<NotifySocket>,
    threads: Threads,
) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let on_terminal = io::stdin().is_terminal();
    let heed = move || {
        for signal in signals.forever() {
            panic_if_asked("putex-signal");
            let name = match signal {
                SIGTERM => "SIGTERM",
                SIGINT => "SIGINT",
                // Nobody is there any more who could press Control-C.
                _ if on_terminal => "SIGHUP",
                _ => {
                    log::info!("SIGHUP: nothing to reload");
                    notify_socket.send_reloaded();
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
