//! The thread that notes what no command may wait for: the disk that has the private directory may
//! hang. What is not noted then costs the next guard little: it runs stop although the service is
//! down, or beside a stop or a last resort of this guard.

use std::io;
use std::sync::Arc;

use crossbeam_channel::{Sender, bounded};
use rustix::process::Pid;

use super::note::Note;
use crate::core::{Command, Instant, Timing};
use crate::sys::start_small_thread;

/// Notes that may wait. More are lost.
const ORDERS_MAX: usize = 8;

/// What is to be noted.
enum Order {
    /// The service is down. Those starts, by their count, were noted before.
    Down(u64),
    /// The times under which the service may run.
    Times(Timing),
    /// A stop or a last resort, which was spawned since that instant.
    Command(Command, Pid, Instant),
}

/// The guard's end of the thread.
pub(super) struct NoteThread {
    pub(super) note: Arc<Note>,
    orders: Sender<Order>,
}

impl NoteThread {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When the system has no thread to give.
    pub(super) fn start(note: Note) -> io::Result<NoteThread> {
        let note = Arc::new(note);
        let own_note = Arc::clone(&note);
        let (orders, ordered) = bounded(ORDERS_MAX);
        let work = move || {
            for order in ordered {
                // A note that cannot be written is a lost one.
                let _ = match order {
                    Order::Down(starts) => own_note.down(starts),
                    Order::Times(times) => own_note.times(times),
                    Order::Command(command, process, since) => {
                        own_note.command(command, process, since)
                    }
                };
            }
        };
        start_small_thread("putex-note", work)?;
        Ok(NoteThread { note, orders })
    }

    /// Has it noted that the service is down.
    pub(super) fn down(&self) {
        let _ = self.orders.try_send(Order::Down(self.note.starts()));
    }

    /// Has the times under which the service may run noted; returns whether there is room.
    pub(super) fn times(&self, times: Timing) -> bool {
        self.orders.try_send(Order::Times(times)).is_ok()
    }

    /// Has a stop or a last resort noted that was spawned since then.
    pub(super) fn command(&self, command: Command, process: Pid, since: Instant) {
        let _ = self.orders.try_send(Order::Command(command, process, since));
    }
}
