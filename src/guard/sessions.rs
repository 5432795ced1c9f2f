//! The thread that ends what start has left in its session: processes of other groups. It lists the
//! processes of the host, which may be many, so nobody with a deadline waits for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crossbeam_channel::{Sender, bounded};
use rustix::process::Pid;

use crate::command::Process;
use crate::sys::{SMALL_STACK_BYTES, Waker, end_session};

/// Sessions that may wait.
const SESSIONS_MAX: usize = 8;

/// A session, and its leader if that has ended and is to be reaped: until then the number of the
/// session is its own.
type Order = (Pid, Option<Process>);

/// The guard's end of the thread.
pub(super) struct Sessions {
    orders: Sender<Order>,
    /// Sessions that were not ended yet.
    left: Arc<AtomicUsize>,
}

impl Sessions {
    /// Starts the thread. `waker` is woken for each session that was ended.
    ///
    /// # Errors
    ///
    /// When the system has no thread to give.
    pub(super) fn start(waker: Arc<Waker>) -> io::Result<Sessions> {
        let (orders, ordered) = bounded::<Order>(SESSIONS_MAX);
        let left = Arc::new(AtomicUsize::new(0));
        let own_left = Arc::clone(&left);
        let work = move || {
            for (session, leader) in ordered {
                end_session(session);
                drop(leader.map(Process::reap));
                own_left.fetch_sub(1, Ordering::AcqRel);
                waker.wake();
            }
        };
        let builder = thread::Builder::new().name("putex-sessions".to_owned());
        builder.stack_size(SMALL_STACK_BYTES).spawn(work)?;
        Ok(Sessions { orders, left })
    }

    /// Has a session ended, and then its leader reaped, if there is one.
    pub(super) fn end(&self, session: Pid, leader: Option<Process>) {
        self.left.fetch_add(1, Ordering::AcqRel);
        if self.orders.try_send((session, leader)).is_err() {
            // So many ends of it are ordered already.
            self.left.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Returns whether all were ended.
    pub(super) fn are_ended(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }
}
