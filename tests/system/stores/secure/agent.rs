//! An agent that uses a server of a test.

use std::fs;

use rustix::process::Signal;

use crate::support::agent;
use crate::support::sandbox::Sandbox;

/// An agent, told to end when dropped. It has a sandbox of its own.
pub(crate) struct Agent {
    agent: agent::Agent,
    _sandbox: Sandbox,
}

impl Agent {
    /// Starts an agent of `key` in the bucket locks whose R is 500 ms, and whose token
    /// no other agent has.
    pub(crate) fn start(key: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Agent {
        let sandbox = Sandbox::new("secure");
        let mut command = sandbox.putex();
        let usual =
            [("-r", "500"), ("--token", sandbox.name()), ("--start", "true"), ("--stop", "true")];
        let usual = usual.into_iter().filter(|(option, _)| !arguments.contains(option));
        command
            .args(["agent", "--bucket", "locks", "--key", key])
            .args(usual.flat_map(|(option, value)| [option, value]))
            .args(arguments)
            .envs(environment.iter().copied());
        Agent { agent: agent::Agent::start(&mut command), _sandbox: sandbox }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.agent.id()
    }

    /// Returns whether it has not ended.
    pub(crate) fn runs(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    /// Returns the log so far.
    pub(crate) fn heard(&self) -> String {
        self.agent.log.text()
    }

    /// Waits until the log has `part` in a line.
    pub(crate) fn await_line(&self, part: &str) {
        self.agent.wait_for_any(&[part]);
    }

    /// Waits until the agent has opened its bucket and runs: a refusal that comes before ends
    /// it. The log says so in so many words only if that took less than R; otherwise it says
    /// who holds the lock.
    pub(crate) fn await_open(&self) {
        self.agent.wait_for_any(&[
            "the bucket is open",
            "the lock is held by",
            "the service runs here",
        ]);
    }

    /// Waits until the agent ends by itself; returns its status and its log.
    pub(crate) fn await_end(mut self) -> (Option<i32>, String) {
        self.agent.wait_end()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Others of the same key wait for its release.
        if self.agent.runs() {
            self.agent.signal(Signal::TERM);
            let _ = self.agent.wait_end();
        }
    }
}
