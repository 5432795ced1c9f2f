//! A command of the guard: the thread that spawns it, its output, its process.
//!
//! Spawning returns only when the kernel has read the program, which a disk that hangs
//! prevents. So the guard's main thread, which has deadlines, never spawns: each command has
//! a thread for it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::note::Note;
use crate::command::{Commands, OutputPipe, Process};
use crate::core::command::{Command, Outcome, Run};
use crate::sys::{self, Waker};

/// Memory for the stack of a thread, which the guard keeps locked.
const STACK_BYTES: usize = 64 * 1024;

/// What the thread is asked to do: a run, and a note that the service is down.
const ORDERS_MAX: usize = 4;

/// An order to the thread.
enum Order {
    Run(Box<Spawn>),
    /// Note that the service is down.
    NoteDown,
}

/// A command that is to be spawned.
struct Spawn {
    commands: Arc<Commands>,
    run: Run,
    /// Enters the control group first.
    cgroup_entry: Option<String>,
    /// What the file of this name in /proc shall say of the process.
    oom_score: String,
}

/// On a busy host the guard comes first, and the stop that it runs.
const STOP_NICE: i32 = -20;

/// One command.
pub(super) struct Runner {
    command: Command,
    output: OutputPipe,
    orders: Sender<Order>,
    spawned: Receiver<io::Result<Process>>,
    process: Option<Process>,
    killed: bool,
}

impl Runner {
    /// Starts the thread. `waker` is woken when a process was spawned.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or thread to give.
    pub(super) fn start(command: Command, note: Note, waker: Arc<Waker>) -> io::Result<Runner> {
        let output = OutputPipe::new(command)?;
        let writer = output.writer()?;
        let (orders, ordered) = bounded(ORDERS_MAX);
        let (done, spawned) = bounded(1);
        let serve = move || {
            let mut noted_up = false;
            while let Ok(order) = ordered.recv() {
                match order {
                    Order::NoteDown => noted_up = note.service(false).is_err() && noted_up,
                    Order::Run(order) => {
                        let process = spawn(&order, &note, &mut noted_up, &writer);
                        if done.send(process).is_err() {
                            return;
                        }
                        waker.wake();
                    }
                }
            }
        };
        thread::Builder::new()
            .name(format!("putex-{}", command.name()))
            .stack_size(STACK_BYTES)
            .spawn(serve)?;
        Ok(Runner { command, output, orders, spawned, process: None, killed: false })
    }

    /// Has the command spawned; says whether the thread has room for the order.
    pub(super) fn run(
        &mut self,
        commands: &Arc<Commands>,
        run: Run,
        cgroup_entry: Option<String>,
        oom_score: &str,
    ) -> bool {
        self.killed = false;
        let order = Spawn {
            commands: Arc::clone(commands),
            run,
            cgroup_entry,
            oom_score: oom_score.to_owned(),
        };
        self.orders.try_send(Order::Run(Box::new(order))).is_ok()
    }

    /// Has it noted that the service is down.
    pub(super) fn note_down(&self) {
        // Without the note the next guard runs stop, which does no harm.
        let _ = self.orders.try_send(Order::NoteDown);
    }

    /// Takes the process that was spawned, if one was since the last call. An error says why
    /// there is none.
    pub(super) fn take_spawned(&mut self) -> Option<Result<(), Outcome>> {
        match self.spawned.try_recv().ok()? {
            Ok(process) => {
                self.process = Some(process);
                Some(Ok(()))
            }
            Err(error) => {
                let why = format!("it could not be run: {error}");
                Some(Err(Outcome::Failed(why)))
            }
        }
    }

    /// Returns which command it is.
    pub(super) fn command(&self) -> Command {
        self.command
    }

    /// Returns what becomes readable when the process ends, if there is one.
    pub(super) fn exit(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(AsFd::as_fd)
    }

    /// Returns what becomes readable when the command has written something.
    pub(super) fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    /// Passes on what the command has written.
    pub(super) fn pass_on(&mut self, line: &mut dyn FnMut(Command, &[u8])) {
        self.output.pass_on(line);
    }

    /// Lets the process begin.
    pub(super) fn release(&mut self) {
        if let Some(process) = &mut self.process {
            process.release();
        }
    }

    /// Kills the process with its group, if there is one.
    pub(super) fn kill(&mut self) {
        if let Some(process) = &self.process {
            self.killed = true;
            process.kill();
        }
    }

    /// Reaps the process if it has ended; returns how.
    pub(super) fn reap(&mut self, line: &mut dyn FnMut(Command, &[u8])) -> Option<Outcome> {
        let process = self.process.take_if(|process| process.has_ended())?;
        let outcome = process.reap(self.killed);
        self.output.flush(line);
        Some(outcome)
    }
}

/// Spawns a command, which waits for its release, and notes it. A start that could not be
/// noted is killed: the next guard would not know of it. A stop is run all the same.
fn spawn(
    order: &Spawn,
    note: &Note,
    noted_up: &mut bool,
    output: &io::PipeWriter,
) -> io::Result<Process> {
    let command = order.run.command;
    let is_start = command == Command::Start;
    if is_start && !*noted_up {
        note.service(true)?;
        *noted_up = true;
    }
    let entry = order.cgroup_entry.as_deref();
    let prepared = order.commands.prepare(&order.run, entry, sys::now());
    let process = Process::spawn(prepared, output)?;
    let group = process.group();
    // Best effort: what start leaves behind is the service, not the guard.
    let path = format!("/proc/{}/oom_score_adj", group.as_raw_nonzero());
    let _ = fs::write(path, &order.oom_score);
    let noted = note.command(command, group);
    if !is_start {
        let _ = rustix::process::setpriority_process(Some(group), STOP_NICE);
        return Ok(process);
    }
    match noted {
        Ok(()) => Ok(process),
        Err(error) => {
            process.kill();
            let _ = process.reap(true);
            Err(error)
        }
    }
}
