//! A command of the guard: its runner, its output, and the notes of it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::note::{Fact, NoteThread, NotedProcess};
use crate::command::{OutputPipe, Process, Runner, not_run};
use crate::core::{Command, GuardInput, Outcome};
use crate::log::command_output;
use crate::sys::Waker;

pub(super) struct ServiceCommand {
    pub(super) output: OutputPipe,
    pub(super) runner: Runner,
    notes: NoteThread,
}

impl ServiceCommand {
    /// Starts the runner. `waker` is woken when a process was spawned. `oom_score` is the content
    /// of the file of this name in /proc for the agent, and `priority` its niceness.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or thread to give.
    pub(super) fn start(
        output: OutputPipe,
        notes: NoteThread,
        waker: Arc<Waker>,
        oom_score: String,
        priority: i32,
    ) -> io::Result<ServiceCommand> {
        let command = output.command;
        let own_notes = notes.clone();
        let prepare = move |process: &Process| {
            // Best effort: the kernel is told how ready it is to kill the process.
            let path = format!("/proc/{}/oom_score_adj", process.group);
            let _ = fs::write(path, oom_score_of(command, &oom_score));
            if command != Command::Start {
                // A stop waits for no disk.
                return Ok(());
            }
            // The service has the niceness of the agent; the guard and its stop come before others.
            let _ = rustix::process::setpriority_process(Some(process.group), priority);
            // The next guard has to know of a start.
            own_notes.write(fact(command, process))
        };
        let runner = Runner::start(command, &output.writer, waker, prepare)?;
        Ok(ServiceCommand { output, runner, notes })
    }

    /// Returns, once, that the command was spawned, or could not be.
    pub(super) fn take_spawned(&mut self) -> Option<GuardInput> {
        let command = self.output.command;
        if let Err(error) = self.runner.take_spawned()? {
            return Some(self.ended(not_run(&error)));
        }
        if let Some(process) = self.runner.process.as_ref().filter(|_| command != Command::Start) {
            self.notes.order(fact(command, process));
        }
        Some(GuardInput::Spawned(command))
    }

    /// Returns the descriptors that become readable: one when the command has ended, if it runs,
    /// and one when it has written something, if its output is to be read.
    pub(super) fn events(&self, reads_output: bool) -> [Option<BorrowedFd<'_>>; 2] {
        [self.runner.exit(), reads_output.then(|| self.output.as_fd())]
    }

    /// Returns, once, that the command has ended, and passes on the rest of its output. A start
    /// that does not succeed has not ended before its session has.
    pub(super) fn take_ended(&mut self) -> Option<GuardInput> {
        let outcome = self.runner.reap()?;
        self.output.flush(&mut command_output);
        Some(self.ended(outcome))
    }

    fn ended(&self, outcome: Outcome) -> GuardInput {
        let command = self.output.command;
        if command == Command::Start {
            self.notes.order(Fact::StartEnded);
        }
        GuardInput::Ended(command, outcome)
    }
}

/// Returns the note of a command that was spawned just now.
fn fact(command: Command, process: &Process) -> Fact {
    Fact::Command(command, NotedProcess::spawned(process.group, process.ordered_at))
}

/// Returns the OOM score of a command of an agent of this score. A process that start leaves behind
/// is the service, which the kernel shall kill before the agent when memory runs out.
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
