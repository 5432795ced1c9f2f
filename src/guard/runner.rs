//! A command of the guard: the thread that spawns it, its output, its process.
//!
//! Spawning returns only when the kernel has read the program, which a disk that hangs
//! prevents. So the guard's main thread, which has deadlines, never spawns: each command has
//! a thread for it.

use std::fs;
use std::io::{self, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::{self, Thread};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};

use super::note::Note;
use crate::command::{OutputPipe, Prepared, Process, not_run};
use crate::core::{Command, GrantTimes, GuardInput, Outcome};
use crate::log::command_output;
use crate::sys::{self, Waker};

/// Memory for the stack of a thread, which the guard keeps locked.
const STACK_BYTES: usize = 32 * 1024;

/// What the thread is ordered to do: a run, and notes.
const ORDERS_MAX: usize = 4;

/// The highest priority of those that are not real-time: on a busy host the guard comes first, and
/// the stop that it runs.
pub(super) const NICE_MIN: i32 = -20;

/// An order to the thread.
enum Order {
    Spawn(Box<Prepared>),
    /// Note that the service is down.
    NoteDown,
    /// Note the times of a grant.
    NoteTimes(GrantTimes),
}

/// One command.
pub(super) struct Runner {
    command: Command,
    pub(super) output: OutputPipe,
    orders: Sender<Order>,
    /// Is woken for each order.
    thread: Thread,
    spawned: Receiver<io::Result<Process>>,
    process: Option<Process>,
}

impl Runner {
    /// Starts the thread. `waker` is woken when a process was spawned. `oom_score` is what the file
    /// of this name in /proc says of the agent.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or thread to give.
    pub(super) fn start(
        output: OutputPipe,
        note: Note,
        waker: Arc<Waker>,
        oom_score: String,
    ) -> io::Result<Runner> {
        let command = output.command;
        let writer = output.writer().try_clone()?;
        let (orders, ordered) = bounded(ORDERS_MAX);
        let (done, spawned) = bounded(1);
        let serve = move || {
            while let Some(order) = next(&ordered) {
                match order {
                    // Without the note the next guard runs stop, which does no harm.
                    Order::NoteDown => drop(note.service(false)),
                    Order::NoteTimes(times) => drop(note.times(times)),
                    Order::Spawn(prepared) => {
                        let since = sys::now();
                        let mut process = spawn(*prepared, &oom_score, &writer);
                        let group = process.as_ref().ok().map(|process| process.group);
                        let noted = || group.map(|group| note.command(command, group, since));
                        // The next guard has to know of a start. A stop waits for no disk.
                        if command == Command::Start
                            && let Some(Err(error)) = noted()
                        {
                            process.into_iter().for_each(Process::end);
                            process = Err(error);
                        }
                        if done.send(process).is_err() {
                            return;
                        }
                        waker.wake();
                        if command != Command::Start {
                            noted();
                        }
                    }
                }
            }
        };
        let builder = thread::Builder::new().name(format!("putex-{}", command.name()));
        let thread = builder.stack_size(STACK_BYTES).spawn(serve)?.thread().clone();
        Ok(Runner { command, output, orders, thread, spawned, process: None })
    }

    /// Has the command spawned; says whether the thread has room for the order.
    pub(super) fn run(&mut self, prepared: Prepared) -> bool {
        self.order(Order::Spawn(Box::new(prepared)))
    }

    /// Has it noted that the service is down.
    pub(super) fn note_down(&self) {
        let _ = self.order(Order::NoteDown);
    }

    /// Has the times of a grant noted; returns whether the thread has room for the order.
    pub(super) fn note_times(&self, times: GrantTimes) -> bool {
        self.order(Order::NoteTimes(times))
    }

    fn order(&self, order: Order) -> bool {
        let has_room = self.orders.try_send(order).is_ok();
        self.thread.unpark();
        has_room
    }

    /// Returns what became of the spawning since the last call.
    pub(super) fn take_spawned(&mut self) -> Option<GuardInput> {
        match self.spawned.try_recv().ok()? {
            Ok(process) => {
                self.process = Some(process);
                Some(GuardInput::Spawned(self.command))
            }
            Err(error) => Some(GuardInput::Ended(self.command, not_run(&error))),
        }
    }

    /// Returns what becomes readable when the command has ended, if it runs, and when it has
    /// written something.
    pub(super) fn events(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [self.process.as_ref().map(|process| process.as_fd()), Some(self.output.as_fd())]
    }

    /// Passes on what the command has written.
    pub(super) fn pass_on(&mut self) {
        self.output.pass_on(&mut command_output);
    }

    /// Reaps the command if it has ended, with what it has written; returns how.
    pub(super) fn reap(&mut self) -> Option<(Command, Outcome)> {
        let process = self.process.take_if(|process| sys::is_ready(process))?;
        let outcome = process.reap();
        self.output.flush(&mut command_output);
        Some((self.command, outcome))
    }

    /// Lets the process begin.
    pub(super) fn release(&mut self) {
        self.process.iter_mut().for_each(Process::release);
    }

    /// Kills the process with its group, if there is one.
    pub(super) fn kill(&mut self) {
        self.process.iter_mut().for_each(Process::kill);
    }
}

/// Waits for the next order; `None` when there is no one to give one. The channel's own wait would
/// spin before it sleeps, at several system calls an order.
fn next(orders: &Receiver<Order>) -> Option<Order> {
    loop {
        match orders.try_recv() {
            Ok(order) => return Some(order),
            Err(TryRecvError::Empty) => thread::park(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
}

/// Spawns a command, which waits for its release.
fn spawn(prepared: Prepared, oom_score: &str, output: &PipeWriter) -> io::Result<Process> {
    let command = prepared.command;
    let process = Process::spawn(prepared, output)?;
    let group = process.group;
    let path = format!("/proc/{}/oom_score_adj", group.as_raw_nonzero());
    // Best effort.
    let _ = fs::write(path, oom_score_of(command, oom_score));
    if command != Command::Start {
        let _ = rustix::process::setpriority_process(Some(group), NICE_MIN);
    }
    Ok(process)
}

/// Returns the OOM score of a command of an agent of this score. What start leaves behind is the
/// service, which the kernel shall kill before the agent when memory runs out.
fn oom_score_of(command: Command, agents: &str) -> &str {
    if command == Command::Start && agents.starts_with('-') { "0" } else { agents }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_is_not_spared_when_memory_runs_out() {
        for (agents, starts) in [("-900\n", "0"), ("0\n", "0\n"), ("100\n", "100\n")] {
            assert_eq!(oom_score_of(Command::Start, agents), starts);
            assert_eq!(oom_score_of(Command::Stop, agents), agents);
        }
    }
}
