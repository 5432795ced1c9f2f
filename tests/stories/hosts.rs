//! Two hosts with an agent each, which share a store, and an observer of their services.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;

use crate::service::Service;
use crate::support::agent::Agent;
use crate::support::clock::{At, until, until_true};
use crate::support::log::Log;
use crate::support::observer::Observer;
use crate::support::programs;
use crate::support::sandbox::{Run, Sandbox};
use crate::support::server::Server;

/// R 1 s, T 3 s, C * R 1 s: a host that is loaded by other work holds its lock all the same.
const TIMES: [&str; 6] = ["-r", "1s", "-f", "3", "-c", "1"];

/// T + C * R of [`TIMES`].
pub(crate) const TAKEOVER: At = At::from_secs(4);

/// The key of the agents.
const KEY: &str = "web";

static TURN: Mutex<()> = Mutex::new(());

/// Returns what a story holds while it runs.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where locks are.
pub(crate) enum Store {
    Directory(Sandbox),
    Server(Box<Server>),
}

impl Store {
    /// Returns a new directory.
    pub(crate) fn directory() -> Store {
        Store::Directory(Sandbox::new("store"))
    }

    /// Starts a server; `None`, after a line that says so, when the host has none.
    pub(crate) fn server() -> Option<Store> {
        Some(Store::Server(Box::new(Server::start(&programs::nats_server()?, ""))))
    }

    /// Returns the option that names the store.
    pub(crate) fn option(&self) -> [String; 2] {
        match self {
            Store::Directory(folder) => {
                ["--dir".to_owned(), folder.join("locks").display().to_string()]
            }
            Store::Server(server) => ["--nats".to_owned(), server.url("nats", "127.0.0.1")],
        }
    }

    /// Returns the server.
    ///
    /// # Panics
    ///
    /// When the store is a directory.
    pub(crate) fn server_mut(&mut self) -> &mut Server {
        match self {
            Store::Server(server) => server,
            Store::Directory(_) => panic!("a directory has no server"),
        }
    }
}

/// A host with an agent. All its processes end when this is dropped.
pub(crate) struct Host {
    pub(crate) service: Service,
    pub(crate) agent: Option<Agent>,
    /// The lines of all agents and guards of this host.
    pub(crate) log: Log,
    token: &'static str,
}

impl Host {
    fn sandbox(&self) -> &Sandbox {
        &self.service.sandbox
    }

    /// Returns whether a line of its log has this part.
    pub(crate) fn has_said(&self, part: &str) -> bool {
        self.log.text().contains(part)
    }

    /// Waits for a line of its log with this part.
    #[track_caller]
    pub(crate) fn wait_for(&self, part: &str) {
        until_true(part, || self.has_said(part));
    }

    /// Sends its agent a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        self.agent.as_ref().expect("its agent runs").signal(signal);
    }

    /// Kills its agent alone.
    pub(crate) fn kill_agent(&mut self) {
        self.agent.take().expect("its agent runs").kill();
    }

    /// Kills all its processes at once, as a power cut does.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.sandbox().kill_all();
        self.agent = None;
        self.service.forget();
    }

    /// Waits for the end of its agent; returns the exit status.
    #[track_caller]
    pub(crate) fn wait_end(&mut self) -> Option<i32> {
        self.agent.take().expect("its agent runs").wait_end().0
    }
}

/// Two hosts, `one` and `two`, their store and the observer of their services.
pub(crate) struct Pair {
    pub(crate) hosts: [Host; 2],
    pub(crate) observer: Observer,
    pub(crate) store: Store,
    /// Whether the agents have a last resort.
    pub(crate) has_last_resort: bool,
}

impl Pair {
    /// Makes two hosts whose agents do not run yet.
    pub(crate) fn new(store: Store) -> Pair {
        let hosts = ["one", "two"].map(|token| Host {
            service: Service::new(),
            agent: None,
            log: Log::new(),
            token,
        });
        let pipes = hosts.iter().map(|host| host.service.pipe()).collect();
        Pair { observer: Observer::start(pipes), hosts, store, has_last_resort: false }
    }

    /// As [`Pair::new`]; the agents run, and the service runs at the first.
    #[track_caller]
    pub(crate) fn running(store: Store) -> Pair {
        let mut pair = Pair::new(store);
        pair.start_both();
        pair
    }

    /// Starts both agents, so that the service runs at the first.
    #[track_caller]
    pub(crate) fn start_both(&mut self) {
        self.start(0);
        self.wait_active(0);
        self.start(1);
        self.hosts[1].wait_for("-> standby");
    }

    /// Starts the agent of a host.
    pub(crate) fn start(&mut self, number: usize) {
        let host = &self.hosts[number];
        let service = &host.service;
        let mut command = service.sandbox.putex();
        command
            .arg("agent")
            .args(self.store.option())
            .args(["--key", KEY, "--token", host.token])
            .args(["--healthcheck", &service.check_command()])
            .args(["--start", &service.start_command(), "--stop", &service.stop_command()])
            .args(TIMES);
        if self.has_last_resort {
            command.args(["--last-resort", &service.last_resort_command()]);
        }
        let agent = Agent::start_into(&mut command, &host.log).expect("it can be run");
        self.hosts[number].agent = Some(agent);
    }

    /// Waits until the service of this host, and no other, runs.
    #[track_caller]
    pub(crate) fn wait_active(&self, number: usize) {
        until("the service", || (self.observer.only_active() == Some(number)).then_some(()));
    }

    /// Waits until no service runs.
    #[track_caller]
    pub(crate) fn wait_none(&self) {
        until_true("no service", || self.observer.active().is_empty());
    }

    /// Waits until an agent has renewed the lock twice.
    #[track_caller]
    pub(crate) fn wait_two_strokes(&self, number: usize) {
        let checks = || self.hosts[number].service.checks();
        let before = checks();
        until_true("two strokes", || checks() >= before + 2);
    }

    /// Runs a command of the operator on a host of its own, to its end.
    pub(crate) fn operate(&self, words: &[&str]) -> Run {
        let operator = Sandbox::new("operator");
        let mut command = operator.putex();
        command.arg(words[0]).args(self.store.option()).args(&words[1..]);
        operator.run(&mut command)
    }

    /// Expects that two services have never run at once.
    #[track_caller]
    pub(crate) fn end(self) {
        let said = || {
            let [one, two] = &self.hosts;
            format!("one:\n{}two:\n{}", one.log.text(), two.log.text())
        };
        assert!(self.observer.overlaps().is_empty(), "two services ran at once\n{}", said());
    }
}
