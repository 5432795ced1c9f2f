//! The thread that writes all notes, one after another: none is written over a later one.
//!
//! The disk that has the private directory may hang. A thread that has a deadline leaves its notes
//! to this one. A note that is late or lost then costs the next guard little: it runs stop although
//! the service is down, or beside a stop or a last resort of this guard, or it ends the session of
//! a start that has ended by itself, and with it a service that is still in that session.

use std::io;

use crossbeam_channel::{Sender, bounded};

use super::note::{Fact, Note};
use crate::sys::start_small_thread;

/// Notes that may wait. More are lost.
const ORDERS_MAX: usize = 8;

/// A fact to note, and the receiver of the result.
struct Order {
    fact: Fact,
    written: Option<Sender<io::Result<()>>>,
}

/// The guard's end of the thread.
#[derive(Clone)]
pub(super) struct NoteThread {
    orders: Sender<Order>,
}

impl NoteThread {
    /// Starts the thread. The thread keeps the lock.
    ///
    /// # Errors
    ///
    /// When the system has no thread to give.
    pub(super) fn start(mut note: Note) -> io::Result<NoteThread> {
        let (orders, ordered) = bounded::<Order>(ORDERS_MAX);
        let work = move || {
            for Order { fact, written } in ordered {
                let result = note.enter(fact);
                if let Some(written) = written {
                    let _ = written.send(result);
                }
            }
        };
        start_small_thread("putex-note", work)?;
        Ok(NoteThread { orders })
    }

    /// Has a fact noted; returns whether there is room. A note that cannot be written is lost.
    pub(super) fn order(&self, fact: Fact) -> bool {
        self.orders.try_send(Order { fact, written: None }).is_ok()
    }

    /// Has a fact noted, and waits until it is written, which a disk that hangs prevents.
    ///
    /// # Errors
    ///
    /// When the file system fails or is full.
    pub(super) fn write(&self, fact: Fact) -> io::Result<()> {
        let (written, result) = bounded(1);
        let order = Order { fact, written: Some(written) };
        let _ = self.orders.send(order);
        result.recv().unwrap_or_else(|_| Err(io::Error::other("the thread that notes has ended")))
    }
}
