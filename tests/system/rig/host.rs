//! A host: an agent, its proxy, its service.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use rustix::process::Signal;

use super::runit::Supervisor;
use super::service::Service;
use super::timing::Timing;
use crate::support::agent::Agent;
use crate::support::clock::{At, now, wait_until};
use crate::support::log::Log;
use crate::support::process;
use crate::support::proxy::Proxy;

/// The key that the agents of a scene share.
pub(crate) const KEY: &str = "web";

/// The properties of a host of a scene.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) agent: PathBuf,
    pub(crate) token: String,
    /// Flags beside the usual ones.
    pub(crate) flags: Vec<String>,
    /// Whether stop has something to fall back on.
    pub(crate) last_resort: bool,
    /// The thread that panics when [`Service::set_panic`] says so; debug builds only.
    pub(crate) panic_thread: Option<&'static str>,
}

/// A host. All its processes end when this is dropped.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) plan: Plan,
    pub(crate) proxy: Proxy,
    pub(crate) service: Service,
    bucket: String,
    timing: Timing,
    agent: Option<Agent>,
    supervisor: Option<Supervisor>,
    /// Log of all agents of this host.
    pub(crate) log: Log,
}

impl Host {
    /// Makes a host whose agent does not run yet.
    pub(crate) fn new(plan: Plan, server_port: u16, bucket: &str, timing: Timing) -> Host {
        Host {
            plan,
            proxy: Proxy::start(server_port),
            service: Service::new(),
            bucket: bucket.to_owned(),
            timing,
            agent: None,
            supervisor: None,
            log: Log::new(),
        }
    }

    /// Starts the agent.
    pub(crate) fn start(&mut self) -> Result<(), String> {
        let mut command = self.service.sandbox.command(&self.plan.agent);
        command.args(self.arguments());
        self.spawn(command)
    }

    /// Has the agent started, and started again whenever it ends, by `runsv`.
    pub(crate) fn start_supervised(&mut self, runsv: &Path) -> Result<(), String> {
        let folder = self.service.sandbox.subfolder("supervised");
        let mut command = self.service.sandbox.command(runsv);
        command.arg(&folder);
        let supervisor = Supervisor::prepare(folder, &self.plan.agent, &self.arguments())?;
        self.supervisor = Some(supervisor);
        self.spawn(command)
    }

    fn spawn(&mut self, mut command: Command) -> Result<(), String> {
        if let Some(thread) = self.plan.panic_thread {
            command
                .env("PUTEX_PANIC_THREAD", thread)
                .env("PUTEX_PANIC_FILE", self.service.panic_file());
        }
        let agent = Agent::start_into(&mut command, &self.log);
        let failed = |error| format!("{}: {error}", command.get_program().display());
        self.agent = Some(agent.map_err(failed)?);
        Ok(())
    }

    fn arguments(&self) -> Vec<String> {
        let (timing, service) = (self.timing, &self.service);
        let mut pairs = vec![
            ("--nats", format!("nats://127.0.0.1:{}", self.proxy.port())),
            ("--bucket", self.bucket.clone()),
            ("--key", KEY.to_owned()),
            ("--token", self.plan.token.clone()),
            ("--healthcheck", service.check_command()),
            ("--start", service.start_command()),
            ("--stop", service.stop_command()),
            ("-r", timing.r.as_millis().to_string()),
            ("-f", timing.f.to_string()),
            ("-c", timing.c.to_string()),
        ];
        if self.plan.last_resort {
            pairs.push(("--last-resort", service.last_resort_command()));
        }
        let words = pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
        words.chain(self.plan.flags.iter().cloned()).collect()
    }

    /// Reads on what the agents say, or lets it pile up in their pipe.
    pub(crate) fn set_reading(&self, reading: bool) {
        self.log.set_reading(reading);
    }

    /// Returns the agent's process number while it was not waited for.
    pub(crate) fn pid(&self) -> Option<u32> {
        if let Some(supervisor) = &self.supervisor {
            return supervisor.supervised();
        }
        self.agent.as_ref().map(Agent::id)
    }

    /// Returns the guards of this host's agents.
    pub(crate) fn guards(&self) -> Vec<u32> {
        self.service.sandbox.guards(KEY)
    }

    /// Returns how many processes of this host there are.
    pub(crate) fn processes(&self) -> usize {
        self.service.sandbox.processes().len()
    }

    /// Sends `signal` to the agent alone, and returns when.
    pub(crate) fn signal_agent(&self, signal: Signal) -> At {
        let at = now();
        if let Some(pid) = self.pid() {
            process::signal(pid, signal);
        }
        at
    }

    /// Waits for the agent's end; `None` when it still runs at `deadline`.
    pub(crate) fn wait_exit(&mut self, deadline: At) -> Option<ExitStatus> {
        let status = self.agent.as_mut()?.wait_exit(deadline)?;
        self.agent = None;
        Some(status)
    }

    /// Returns whether the agent has neither ended nor been ended.
    pub(crate) fn agent_runs(&mut self) -> bool {
        self.agent.as_mut().is_some_and(Agent::runs)
    }

    /// Kills the agent, all it started and the service, as a power cut does, and
    /// returns when it began to.
    pub(crate) fn kill_host(&mut self) -> At {
        let at = now();
        if let Some(agent) = &self.agent {
            agent.signal(Signal::KILL);
        }
        self.service.sandbox.kill_all();
        self.agent = None;
        self.supervisor = None;
        self.service.forget();
        at
    }

    /// Returns what the agents of this host said since `since`.
    pub(crate) fn said_since(&self, since: At) -> Vec<String> {
        self.log.since(since)
    }

    /// Returns what the agents of this host said, with when it came.
    pub(crate) fn said(&self) -> Vec<(At, String)> {
        self.log.lines()
    }

    /// Returns the first line with `part` in it, in whatever case, that was said
    /// since `since`; `None` when there is none at `deadline`.
    pub(crate) fn wait_for_line(&self, part: &str, since: At, deadline: At) -> Option<String> {
        let part = part.to_lowercase();
        wait_until(deadline, || {
            let mut lines = self.said_since(since).into_iter();
            lines.find(|line| line.to_lowercase().contains(&part))
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill_host();
        self.set_reading(true);
    }
}

/// Returns `count` plans of the same agent with a token each.
pub(crate) fn plans(agent: &Path, count: usize) -> Vec<Plan> {
    let plan = |number: usize| Plan {
        agent: agent.to_owned(),
        token: format!("host-{number}"),
        flags: Vec::new(),
        last_resort: false,
        panic_thread: None,
    };
    (0..count).map(plan).collect()
}
