//! One host: an agent, its proxy, its service.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::Signal;

use super::clock::{At, Timing, ms, now, wait_until};
use super::process;
use super::proxy::Proxy;
use super::service::Service;

/// The bucket that the agents of a scene share.
pub(crate) const BUCKET: &str = "locks";
/// The key that the agents of a scene share.
pub(crate) const KEY: &str = "web";

/// What distinguishes one host of a scene from another.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) agent: PathBuf,
    pub(crate) token: String,
    /// Flags beside the usual ones.
    pub(crate) flags: Vec<String>,
}

/// A host. All its processes end when this is dropped.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) plan: Plan,
    pub(crate) proxy: Proxy,
    pub(crate) service: Service,
    timing: Timing,
    agent: Option<Child>,
    lines: Lines,
}

/// What the agent said, with the instant of arrival.
type Lines = Arc<Mutex<Vec<(At, String)>>>;

impl Host {
    /// Makes a host whose agent does not run yet.
    pub(crate) fn new(plan: Plan, server_port: u16, timing: Timing) -> Host {
        Host {
            plan,
            proxy: Proxy::start(server_port),
            service: Service::new(),
            timing,
            agent: None,
            lines: Arc::default(),
        }
    }

    /// Starts the agent.
    pub(crate) fn start(&mut self) -> Result<(), String> {
        let mut child = self
            .command()
            .spawn()
            .map_err(|error| format!("{}: {error}", self.plan.agent.display()))?;
        if let Some(stderr) = child.stderr.take() {
            self.collect(stderr);
        }
        self.agent = Some(child);
        Ok(())
    }

    fn command(&self) -> Command {
        let timing = self.timing;
        let url = format!("nats://127.0.0.1:{}", self.proxy.port());
        let mut command = Command::new(&self.plan.agent);
        command
            .args(["--nats", &url, "--bucket", BUCKET, "--key", KEY])
            .args(["--token", &self.plan.token])
            .args(["--healthcheck", &self.service.check_command()])
            .args(["--start", &self.service.start_command()])
            .args(["--stop", &self.service.stop_command()])
            .args(["-r", &timing.r.as_millis().to_string()])
            .args(["-f", &timing.f.to_string(), "-c", &timing.c.to_string()])
            .args(&self.plan.flags)
            .env(process::MARK, self.mark())
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }

    fn collect(&self, stderr: impl Read + Send + 'static) {
        let lines = Arc::clone(&self.lines);
        thread::spawn(move || {
            let mut reader = BufReader::new(stderr);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|got| got > 0) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                lines
                    .lock()
                    .expect("nobody panics with it")
                    .push((now(), text));
                line.clear();
            }
        });
    }

    fn mark(&self) -> String {
        process::mark(self.service.name())
    }

    /// Returns the agent's process number while it was not waited for.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.agent.as_ref().map(Child::id)
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
        let status = process::wait_exit(self.agent.as_mut()?, deadline)?;
        self.agent = None;
        Some(status)
    }

    /// Returns whether the agent has neither ended nor been ended.
    pub(crate) fn agent_runs(&mut self) -> bool {
        let agent = self.agent.as_mut();
        agent.is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Kills the agent, all it started and the service, as a power cut does, and
    /// returns when it began to.
    pub(crate) fn kill_host(&mut self) -> At {
        let at = now();
        if let Some(agent) = &mut self.agent {
            let _ = agent.kill();
        }
        process::kill_marked(&self.mark());
        if let Some(mut agent) = self.agent.take() {
            let _ = agent.wait();
        }
        self.service.forget();
        at
    }

    /// Returns what the agents of this host said since `since`.
    pub(crate) fn said_since(&self, since: At) -> Vec<String> {
        let lines = self.lines.lock().expect("nobody panics with it");
        let late = lines.iter().filter(|(at, _)| *at >= since);
        late.map(|(_, line)| line.clone()).collect()
    }

    /// Returns the last lines that the agents of this host said, at most `count`, with
    /// how long ago they came.
    pub(crate) fn said_last(&self, count: usize) -> Vec<String> {
        let (lines, now) = (self.lines.lock().expect("nobody panics with it"), now());
        let skipped = lines.len().saturating_sub(count);
        let last = lines.iter().skip(skipped);
        last.map(|(at, line)| format!("{:.0} ms ago: {line}", ms(now.saturating_sub(*at))))
            .collect()
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
    }
}

/// Returns `count` plans of the same agent with a token each.
pub(crate) fn plans(agent: &Path, count: usize) -> Vec<Plan> {
    let plan = |number: usize| Plan {
        agent: agent.to_owned(),
        token: format!("host-{number}"),
        flags: Vec::new(),
    };
    (0..count).map(plan).collect()
}
