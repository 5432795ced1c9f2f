//! One host: an agent, its proxy, its service.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::clock::{At, Timing, now, observe_for, wait_until};
use super::process;
use super::proxy::Proxy;
use super::runit::Supervisor;
use super::service::Service;

/// The key that the agents of a scene share.
pub(crate) const KEY: &str = "web";

/// How often a reader that does not read looks whether it may.
const NOT_READING: Duration = Duration::from_millis(2);

/// What distinguishes one host of a scene from another.
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
    agent: Option<Child>,
    supervisor: Option<Supervisor>,
    lines: Lines,
    /// Whether what the agents say is read.
    reading: Arc<AtomicBool>,
}

/// What the agent said, with the instant of arrival.
type Lines = Arc<Mutex<Vec<(At, String)>>>;

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
            lines: Arc::default(),
            reading: Arc::new(AtomicBool::new(true)),
        }
    }

    /// Starts the agent.
    pub(crate) fn start(&mut self) -> Result<(), String> {
        let command = self.command();
        self.spawn(command)
    }

    /// Has the agent started, and started again whenever it ends, by `runsv`.
    pub(crate) fn start_supervised(&mut self, runsv: &Path) -> Result<(), String> {
        let folder = self.service.private_folder("supervised");
        let supervisor = Supervisor::prepare(folder, &self.command())?;
        let mut command = Command::new(runsv);
        command.arg(supervisor.folder());
        self.equip(&mut command);
        self.supervisor = Some(supervisor);
        self.spawn(command)
    }

    fn spawn(&mut self, mut command: Command) -> Result<(), String> {
        let mut child = command
            .spawn()
            .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
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
            .args(["--nats", &url, "--bucket", &self.bucket, "--key", KEY])
            .args(["--token", &self.plan.token])
            .args(["--healthcheck", &self.service.check_command()])
            .args(["--start", &self.service.start_command()])
            .args(["--stop", &self.service.stop_command()])
            .args(["-r", &timing.r.as_millis().to_string()])
            .args(["-f", &timing.f.to_string(), "-c", &timing.c.to_string()])
            .args(&self.plan.flags);
        if self.plan.last_resort {
            command.args(["--last-resort", &self.service.last_resort_command()]);
        }
        self.equip(&mut command);
        command
    }

    /// Gives a command what every agent of this host has, started by whomever.
    fn equip(&self, command: &mut Command) {
        if let Some(thread) = self.plan.panic_thread {
            command
                .env("PUTEX_PANIC_THREAD", thread)
                .env("PUTEX_PANIC_FILE", self.service.panic_file());
        }
        command
            .env(process::MARK, self.mark())
            .env("XDG_RUNTIME_DIR", self.service.private_folder("run"))
            .env("TMPDIR", self.service.private_folder("tmp"))
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
    }

    fn collect(&self, stderr: impl Read + Send + 'static) {
        let (lines, reading) = (Arc::clone(&self.lines), Arc::clone(&self.reading));
        thread::spawn(move || {
            let mut reader = BufReader::new(stderr);
            let mut line = Vec::new();
            while wait_for_leave(&reading)
                && reader.read_until(b'\n', &mut line).is_ok_and(|got| got > 0)
            {
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

    /// Reads on what the agents say, or lets it pile up in their pipe.
    pub(crate) fn set_reading(&self, reading: bool) {
        self.reading.store(reading, Ordering::Relaxed);
    }

    /// Returns the agent's process number while it was not waited for.
    pub(crate) fn pid(&self) -> Option<u32> {
        if let Some(supervisor) = &self.supervisor {
            return supervisor.supervised();
        }
        self.agent.as_ref().map(Child::id)
    }

    /// Returns the guards of this host's agents.
    pub(crate) fn guards(&self) -> Vec<u32> {
        let mut guards = process::find_marked(&self.mark());
        guards.retain(|pid| process::is_guard(*pid, KEY));
        guards
    }

    /// Returns how many processes of this host there are.
    pub(crate) fn processes(&self) -> usize {
        process::find_marked(&self.mark()).len()
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
        self.supervisor = None;
        self.service.forget();
        at
    }

    /// Returns what the agents of this host said since `since`.
    pub(crate) fn said_since(&self, since: At) -> Vec<String> {
        let lines = self.lines.lock().expect("nobody panics with it");
        let late = lines.iter().filter(|(at, _)| *at >= since);
        late.map(|(_, line)| line.clone()).collect()
    }

    /// Returns what the agents of this host said, with when it came.
    pub(crate) fn said(&self) -> Vec<(At, String)> {
        self.lines.lock().expect("nobody panics with it").clone()
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

/// Waits until what an agent says may be read.
fn wait_for_leave(reading: &AtomicBool) -> bool {
    while !reading.load(Ordering::Relaxed) {
        observe_for(NOT_READING);
    }
    true
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
