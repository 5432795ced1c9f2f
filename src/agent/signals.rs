//! The signal thread: SIGTERM and SIGINT end the agent, SIGUSR2 has it execute its program
//! anew. SIGHUP ends it when its terminal is gone; otherwise a service manager sends it to
//! have the agent reload.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
use signal_hook::iterator::Signals;

use super::inbox::Post;
use super::service_manager::NotifySocket;
use super::threads::Threads;
use crate::core::event::Event;
use crate::log::panic_if_asked;
use crate::sys::raw;

/// The signals that an agent takes.
pub(super) const TAKEN: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGUSR2];

/// Takes the signals over and starts the thread. Called before any other thread
/// is started, so that none of them inherits the defaults.
///
/// # Errors
///
/// When the system has no pipe or no thread to give.
pub(super) fn watch(
    post: Post<Event>,
    notify_socket: Arc<NotifySocket>,
    threads: Threads,
) -> io::Result<()> {
    let mut signals = Signals::new(TAKEN)?;
    // The instance before has blocked them until now where it has executed this program.
    raw::unblock_signals(&TAKEN)?;
    let on_terminal = io::stdin().is_terminal();
    let serve = move || {
        for signal in signals.forever() {
            panic_if_asked("putex-signal");
            let name = match signal {
                SIGUSR2 => {
                    if post.tell(Event::Upgrade).is_none() {
                        return;
                    }
                    continue;
                }
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
    threads.start("putex-signal", serve)?;
    Ok(())
}
