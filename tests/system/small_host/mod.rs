//! A host with one service, which is a file, and an agent on a directory.

#![allow(dead_code, reason = "each suite is a crate of its own, and uses its own part of this")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::agent::Agent;
use crate::support::clock::until_true;
use crate::support::sandbox::{Run, Sandbox};

/// A host with one service: the file `up`.
pub(crate) struct Host {
    pub(crate) sandbox: Sandbox,
    pub(crate) key: String,
}

impl Host {
    pub(crate) fn new(name: &str) -> Host {
        let sandbox = Sandbox::new(name);
        let key = format!("host-{name}");
        Host { sandbox, key }
    }

    /// Prepares a command of putex with the options of this host's agent.
    pub(crate) fn putex(&self, verb: &str, stop: &str) -> Command {
        self.putex_at(&self.sandbox.join("lock"), verb, START, stop)
    }

    /// As [`Host::putex`], for another directory and start.
    pub(crate) fn putex_at(&self, dir: &Path, verb: &str, start: &str, stop: &str) -> Command {
        let mut command = self.sandbox.putex();
        command.args(self.words_at(dir, verb, start, stop)).env("D", self.sandbox.text());
        command
    }

    /// Returns the words of [`Host::putex`], for any program that runs it.
    pub(crate) fn words(&self, verb: &str, stop: &str) -> Vec<String> {
        self.words_at(&self.sandbox.join("lock"), verb, START, stop)
    }

    pub(crate) fn words_at(&self, dir: &Path, verb: &str, start: &str, stop: &str) -> Vec<String> {
        let dir = dir.display().to_string();
        let key = format!("--key={}", self.key);
        let words = [verb, &key, "--token", "one", "-r", "500ms", "-f", "4", "-c", "2"];
        let own = ["--dir", &dir, "--start", start, "--stop", stop];
        words.into_iter().chain(own).map(str::to_owned).collect()
    }

    pub(crate) fn agent(&self) -> Agent {
        Agent::start(&mut self.putex("agent", STOP))
    }

    /// Runs `putex finish` with this stop; returns its status and its log.
    pub(crate) fn finish(&self, stop: &str) -> (Option<i32>, String) {
        let Run { status, said, .. } = self.sandbox.run(&mut self.putex("finish", stop));
        (status, said)
    }

    /// Returns the guard of this host's agent.
    pub(crate) fn guard(&self) -> Pid {
        self.sandbox.guard(&self.key)
    }

    /// Returns the path of a file in the directory of this host's agent and guard.
    pub(crate) fn file_of_guard(&self, name: &str) -> PathBuf {
        file_in(&self.sandbox, name)
    }

    pub(crate) fn has(&self, file: &str) -> bool {
        self.sandbox.join(file).exists()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.has("up")
    }

    pub(crate) fn wait_until_up(&self) {
        until_true("the service", || self.is_up());
    }

    pub(crate) fn wait_until_down(&self) {
        until_true("the end of the service", || !self.is_up());
    }
}

/// The start command, which does not end while the file `hold` is there.
pub(crate) const START: &str = "env >$D/env; echo >$D/up; test ! -e $D/hold || exec sleep 100";

pub(crate) const STOP: &str = "rm -f $D/up";

/// Waits for the end of a guard, whichever process reaps it.
pub(crate) fn wait_for_end(guard: Pid) {
    let exe = format!("/proc/{guard}/exe");
    until_true("the end of the guard", || fs::metadata(&exe).is_err());
}

/// Kills a guard before it can act, and its agent.
pub(crate) fn kill_both(guard: Pid, agent: Agent) {
    kill_process(guard, Signal::STOP).expect("it runs");
    agent.kill();
    kill_process(guard, Signal::KILL).expect("it is stopped");
    wait_for_end(guard);
}

/// Returns the path of a file in the directory of the one agent and guard in a sandbox.
pub(crate) fn file_in(sandbox: &Sandbox, name: &str) -> PathBuf {
    let agents = sandbox.subfolder("run").join("putex/.agents");
    let mut entries = fs::read_dir(agents).expect("an agent was started");
    let dir = entries.next().expect("there is one").expect("an entry");
    dir.path().join(name)
}
