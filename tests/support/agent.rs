//! An agent that runs in a sandbox.

use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal};

use super::clock::{At, PATIENCE, now, until_true};
use super::log::Log;
use super::process;

/// A running agent, or another process whose log is kept. The process alone is killed when
/// this is dropped: its guard is ended by the sandbox.
#[derive(Debug)]
pub(crate) struct Agent {
    process: Child,
    pub(crate) log: Log,
    /// Ends when no process has the agent's stderr any more.
    reader: Option<JoinHandle<()>>,
}

impl Agent {
    /// Starts a command that a sandbox has prepared.
    pub(crate) fn start(command: &mut Command) -> Agent {
        Agent::start_into(command, &Log::new()).expect("the agent can be run")
    }

    /// As [`Agent::start`]; the log is not read before [`Agent::wait_end`].
    pub(crate) fn start_unread(command: &mut Command) -> Agent {
        let log = Log::new();
        log.set_reading(false);
        Agent::start_into(command, &log).expect("the agent can be run")
    }

    /// As [`Agent::start`]; stderr is added to a log that there is.
    ///
    /// # Errors
    ///
    /// When the command cannot be run.
    pub(crate) fn start_into(command: &mut Command, log: &Log) -> io::Result<Agent> {
        let mut agent = Agent::start_with_stderr(command, Stdio::piped())?;
        let pipe = agent.process.stderr.take();
        agent.reader = pipe.map(|pipe| log.read(pipe));
        agent.log = log.clone();
        Ok(agent)
    }

    /// As [`Agent::start`]; stderr goes elsewhere and is not read.
    ///
    /// # Errors
    ///
    /// When the command cannot be run.
    pub(crate) fn start_with_stderr(
        command: &mut Command,
        stderr: impl Into<Stdio>,
    ) -> io::Result<Agent> {
        let process = command.stdout(Stdio::null()).stderr(stderr).spawn()?;
        Ok(Agent { process, log: Log::new(), reader: None })
    }

    /// Returns its process number.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns its process number, for a system call.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        process::signal(self.id(), signal);
    }

    /// Returns whether it has not ended.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Kills it and waits for its end.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Waits for its end; `None` when it still runs at `deadline`.
    pub(crate) fn wait_exit(&mut self, deadline: At) -> Option<ExitStatus> {
        process::wait_exit(&mut self.process, deadline)
    }

    /// Waits for its end; returns the exit status, and the log of it and its guard.
    ///
    /// # Panics
    ///
    /// When it does not end within [`PATIENCE`].
    pub(crate) fn wait_end(&mut self) -> (Option<i32>, String) {
        self.log.set_reading(true);
        let Some(status) = self.wait_exit(now() + PATIENCE) else {
            panic!("it does not end:\n{}", self.log.text());
        };
        if let Some(reader) = self.reader.take() {
            until_true("the end of the log", || reader.is_finished());
        }
        (status.code(), self.log.text())
    }

    /// Waits until a line of its log contains one of `parts`.
    ///
    /// # Panics
    ///
    /// When there is no such line within [`PATIENCE`].
    #[track_caller]
    pub(crate) fn wait_for_any(&self, parts: &[&str]) {
        let deadline = now() + PATIENCE;
        let said = self.log.wait_for_any(parts, deadline);
        assert!(said, "not in the log: {parts:?}\n{}", self.log.text());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
