//! A group of agents, and the operator who commands it.

use std::process::{Child, Command, Stdio};

use super::group::Group;
use crate::support::clock::now;
use crate::support::sandbox::{Run, Sandbox};

/// A group, and the host of an operator, which is none of its hosts.
pub(crate) struct Site {
    pub(crate) operator: Sandbox,
    pub(crate) group: Group,
}

impl Site {
    /// Starts a group of which all agents are fit.
    pub(crate) fn new(priorities: &[&'static str], flags: &[&str]) -> Option<Site> {
        let mut group = Group::new(priorities, 1, flags)?;
        group.start_all();
        group.wait_for_all();
        Some(Site { operator: Sandbox::new("operator"), group })
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.operator.putex();
        command.arg(words[0]).args(["--nats", &self.group.server.url("nats", "127.0.0.1")]);
        command.args(&words[1..]);
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Run {
        self.operator.run(&mut self.command(words))
    }

    pub(crate) fn begin(&self, words: &[&str]) -> Child {
        let mut command = self.command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be run")
    }

    pub(crate) fn holder(&self) -> usize {
        self.group.wait_for_all()[0]
    }

    /// Waits until one service runs, and checks what must hold at each instant.
    #[track_caller]
    pub(crate) fn check_end(&self) -> usize {
        let holder = self.holder();
        self.group.check_history();
        holder
    }

    /// Starts the agent of a host that is dead.
    pub(crate) fn start_again(&mut self, host: usize) {
        let since = now();
        self.group.start(host);
        self.group.wait_for_line(host, "-> standby", since);
    }
}

/// Returns the token of the agent of a host.
pub(crate) fn token(host: usize) -> String {
    format!("host-{host}")
}
