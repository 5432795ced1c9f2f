//! A host whose service is a process, and what of it must not change.

use std::fs;
use std::process::Command;
use std::time::Duration;

use rustix::process::Pid;

use crate::support::agent::Agent;
use crate::support::clock::{until, until_true};
use crate::support::process::lives;
use crate::support::sandbox::Sandbox;

/// Time that an agent waits for another of its identity: at least F·R without the drift.
pub(crate) const LOCK_TIME: Duration = Duration::from_millis(2900);

const STOP: &str = "echo x >>$D/stops; test ! -e $D/pid || kill -9 $(cat $D/pid); rm -f $D/pid";

/// A host with one service, which is a process.
pub(crate) struct Site {
    pub(crate) sandbox: Sandbox,
    start: String,
}

/// A service that runs, and all that a restart of its agent leaves alone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) service: u32,
    pub(crate) guard: Pid,
    pub(crate) term: String,
    pub(crate) stops: usize,
}

impl Running {
    /// The same service runs under the same term, and stop was not run; the guard may be another.
    pub(crate) fn assert_untouched_since(&self, before: &Running) {
        assert_eq!((self.service, &self.term), (before.service, &before.term));
        assert_eq!(self.stops, before.stops);
    }
}

impl Site {
    pub(crate) fn new(name: &str) -> Site {
        Site::with_service(name, "sleep 1000 >/dev/null 2>&1")
    }

    /// Makes a host with this service, which start runs in the background.
    pub(crate) fn with_service(name: &str, service: &str) -> Site {
        let start = format!(
            "echo $PUTEX_TERM >$D/new; mv $D/new $D/term; echo x >>$D/starts; \
             if test -e $D/pid; then read p <$D/pid; kill -0 $p 2>/dev/null && exit; fi; \
             setsid {service} & echo $! >$D/new; mv $D/new $D/pid"
        );
        let sandbox = Sandbox::new(name);
        Site { sandbox, start }
    }

    /// Starts the agent.
    pub(crate) fn agent(&self) -> Agent {
        Agent::start(&mut self.prepare(&self.start, STOP))
    }

    /// Starts the agent by another command, which is given the words of this one.
    pub(crate) fn agent_within(&self, outer: &[&str]) -> Agent {
        let inner = self.prepare(&self.start, STOP);
        let mut command = self.sandbox.command(outer[0]);
        command.args(&outer[1..]).arg(inner.get_program()).args(inner.get_args());
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Agent::start(&mut command)
    }

    /// Prepares an agent of the same identity with other commands.
    pub(crate) fn prepare(&self, start: &str, stop: &str) -> Command {
        let mut command = self.sandbox.agent(start, stop);
        command.args(["-r", "500ms", "-c", "1", "-f", "6"]);
        command
    }

    pub(crate) fn is_up(&self) -> bool {
        self.service().is_some_and(lives)
    }

    /// Waits for the service, and for the end of the start that has started it.
    pub(crate) fn wait_until_up(&self) -> Running {
        until_true("the service", || self.is_up());
        self.wait_for_starts(1);
        self.running()
    }

    /// Waits for a service other than this one. No guard may be there meanwhile: one ends, the
    /// next begins.
    pub(crate) fn wait_for_another(&self, before: u32) {
        let another = || self.service().is_some_and(|pid| pid != before && lives(pid));
        until_true("another service", another);
    }

    /// Waits for so many further starts.
    pub(crate) fn wait_for_starts(&self, count: usize) {
        let before = self.lines("starts");
        until_true("starts", || self.lines("starts") >= before + count);
    }

    pub(crate) fn running(&self) -> Running {
        Running {
            service: until("the service", || self.service()),
            guard: self.sandbox.guard("web"),
            term: self.read("term"),
            stops: self.lines("stops"),
        }
    }

    fn service(&self) -> Option<u32> {
        self.read("pid").trim().parse().ok()
    }

    fn lines(&self, name: &str) -> usize {
        self.read(name).lines().count()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.sandbox.join(name)).unwrap_or_default()
    }
}
