//! The thread that spawns a command again and again, and the process that runs.
//!
//! Spawning returns only when the kernel has read the program, which a disk that hangs prevents. So
//! a thread with deadlines never spawns: it gives orders to a runner, waits for its waker and for
//! the end of the process in poll(2), and kills.

use std::io::{self, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::{self, Thread};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};

use super::{Prepared, Process};
use crate::core::{Command, Outcome};
use crate::sys::{Waker, start_small_thread};

/// One command: the thread that spawns it, and its process while it runs.
pub struct Runner {
    orders: Sender<Box<Prepared>>,
    /// Is woken for each order.
    thread: Thread,
    spawned: Receiver<io::Result<Process>>,
    is_spawning: bool,
    /// The process that was spawned last, until it is taken.
    pub process: Option<Process>,
}

impl Runner {
    /// Starts the thread. The command writes into `output`. `prepare` is called in the thread for
    /// each process before anybody else knows of it; one for which that fails is ended. `waker` is
    /// woken when a process was spawned, or could not be.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or thread to give.
    pub fn start(
        command: Command,
        output: &PipeWriter,
        waker: Arc<Waker>,
        mut prepare: impl FnMut(&Process) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Runner> {
        let output = output.try_clone()?;
        let (orders, ordered) = bounded(1);
        let (done, spawned) = bounded(1);
        let serve = move || {
            while let Some(prepared) = next(&ordered) {
                let process = Process::spawn(*prepared, &output);
                let process = process.and_then(|process| match prepare(&process) {
                    Ok(()) => Ok(process),
                    Err(error) => {
                        let _ = process.end();
                        Err(error)
                    }
                });
                if done.send(process).is_err() {
                    return;
                }
                waker.wake();
            }
        };
        let name = format!("putex-{}", command.name());
        let thread = start_small_thread(&name, serve)?.thread().clone();
        Ok(Runner { orders, thread, spawned, is_spawning: false, process: None })
    }

    /// Has the command spawned. Returns whether it will be: not before the previous process was
    /// spawned and taken.
    pub fn spawn(&mut self, prepared: Box<Prepared>) -> bool {
        if self.is_spawning || self.process.is_some() {
            return false;
        }
        self.is_spawning = self.orders.try_send(prepared).is_ok();
        self.thread.unpark();
        self.is_spawning
    }

    /// Returns, once, that the command was spawned, or why it could not be.
    pub fn take_spawned(&mut self) -> Option<io::Result<()>> {
        let spawned = self.spawned.try_recv().ok()?;
        self.is_spawning = false;
        Some(spawned.map(|process| self.process = Some(process)))
    }

    /// Returns what becomes readable when the command has ended, if it runs.
    pub fn exit(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(Process::as_fd)
    }

    /// Reaps the command if it has ended; returns how. One whose session has to end with it is left
    /// to [`Process::end`].
    pub fn reap(&mut self) -> Option<Outcome> {
        let is_over = |process: &mut Process| process.has_ended() && !process.session_must_end();
        self.process.take_if(is_over).map(Process::reap)
    }
}

/// Waits for the next order; `None` when there is no one to give one. The channel's own wait would
/// spin before it sleeps, at several system calls an order.
fn next(orders: &Receiver<Box<Prepared>>) -> Option<Box<Prepared>> {
    loop {
        match orders.try_recv() {
            Ok(order) => return Some(order),
            Err(TryRecvError::Empty) => thread::park(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
}
