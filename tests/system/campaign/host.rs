//! A host: a network namespace, a name, a small disk, an agent, and a supervisor that starts the
//! agent again, sooner or later.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::lockers::Lockers;
use super::log::Log;
use super::namespaces;
use super::nodes::{Node, SERVERS};
use super::rng::Rng;
use super::server::{PORT, fill};
use super::service::{Flaw, Service};
use crate::rig::host::KEY;
use crate::rig::timing::Timing;
use crate::support::clock::{At, now};
use crate::support::process;

/// Size of the disk, which has the agent's file and sometimes its log.
const DISK_MEGABYTES: u32 = 8;

/// The bucket that the agents share.
pub(crate) const BUCKET: &str = "locks";

/// Makes what is below `/run/putex` the host's own and gives the host its name. `$0` is the
/// host's name, `$1` its disk.
const SETTLE: &str =
    "hostname \"$0\" && mount --bind \"$1/run\" /run/putex && shift && exec \"$@\"";

/// How often a supervisor starts its agent again at once.
const AT_ONCE: f64 = 0.5;

/// How often an agent's log is a file on the host's disk and no pipe.
const LOG_IN_FILE: f64 = 0.25;

/// Which program the agents are.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    pub(crate) binary: PathBuf,
    /// Whether it is 0.2.0, which has neither a last resort nor a guard.
    pub(crate) old: bool,
}

/// A host.
#[derive(Debug)]
pub(crate) struct Host {
    number: usize,
    node: Node,
    agent: Agent,
    timing: Timing,
    folder: PathBuf,
    pub(crate) service: Service,
    pub(crate) lockers: Option<Lockers>,
    running: Option<Child>,
    started_at: At,
    /// When the supervisor starts the agent; `None` when it does not.
    start_at: Option<At>,
    rng: Rng,
    log: Log,
    pub(crate) starts: usize,
}

impl Host {
    /// Prepares the host of that number below `folder`; its agent does not run.
    pub(crate) fn prepare(
        number: usize,
        agent: Agent,
        timing: Timing,
        folder: &Path,
        rng: Rng,
    ) -> Result<Host, String> {
        let node = Node::host(number);
        let folder = folder.join(node.name());
        let service = Service::make(&folder.join("service"))?;
        let host = Host {
            number,
            node,
            agent,
            timing,
            log: Log::open(&folder.join("log"))?,
            folder,
            service,
            lockers: None,
            running: None,
            started_at: now(),
            start_at: None,
            rng,
            starts: 0,
        };
        namespaces::mount_disk(&host.disk(), DISK_MEGABYTES)?;
        host.make_run()?;
        Ok(host)
    }

    fn disk(&self) -> PathBuf {
        self.folder.join("disk")
    }

    fn make_run(&self) -> Result<(), String> {
        let made = fs::create_dir_all(self.disk().join("run"));
        made.map_err(|error| format!("{}: {error}", self.disk().display()))
    }

    fn mark(&self) -> String {
        process::mark(&self.node.name())
    }

    /// Returns what its agents said.
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// Returns whether its agent runs, and was not told to be gone.
    pub(crate) fn is_up(&self) -> bool {
        self.running.is_some()
    }

    /// Returns for how long its agent has been running.
    pub(crate) fn up_for(&self) -> Duration {
        self.running.as_ref().map_or(Duration::ZERO, |_| now() - self.started_at)
    }

    /// Returns whether its agent is 0.2.0.
    pub(crate) fn is_old(&self) -> bool {
        self.agent.old
    }

    /// Makes the supervisor start the agent after `wait`.
    pub(crate) fn start_after(&mut self, wait: Duration) {
        self.start_at = Some(now() + wait);
    }

    /// Keeps the supervisor from starting the agent.
    pub(crate) fn hold_down(&mut self) {
        self.start_at = None;
    }

    /// Does what a supervisor does: notices that the agent has ended, and starts it again
    /// at once, soon or late.
    pub(crate) fn tend(&mut self) -> Result<(), String> {
        let ended = |child: &mut Child| child.try_wait().is_ok_and(|status| status.is_some());
        if self.running.as_mut().is_some_and(ended) {
            self.running = None;
            let wait = self.pause();
            self.log.note(&format!("the agent has ended; started again in {wait:?}"));
            self.start_after(wait);
        }
        if let Some(lockers) = &mut self.lockers {
            lockers.tend()?;
        }
        if self.start_at.is_some_and(|at| now() >= at) {
            self.start_at = None;
            self.start()?;
        }
        Ok(())
    }

    /// Returns after how long the agent is started again.
    pub(crate) fn pause(&mut self) -> Duration {
        let lock = self.timing.lock_time();
        if self.rng.chance(AT_ONCE) {
            return self.rng.between(Duration::ZERO, Duration::from_millis(30));
        }
        self.rng.between(Duration::ZERO, lock + Duration::from_secs(1))
    }

    fn start(&mut self) -> Result<(), String> {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.node.name(), "unshare", "--uts"])
            .args(["sh", "-c", SETTLE, &self.node.name()])
            .arg(self.disk())
            .arg(&self.agent.binary)
            .args(self.arguments())
            .env(process::MARK, self.mark())
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        use std::os::unix::process::CommandExt;
        command.process_group(0);
        let file = self.disk().join("log");
        let mut on_disk = self.rng.chance(LOG_IN_FILE);
        if on_disk {
            match fs::File::create(&file) {
                Ok(file) => command.stderr(file),
                // The disk is full.
                Err(_) => {
                    on_disk = false;
                    command.stderr(Stdio::piped())
                }
            };
        } else {
            command.stderr(Stdio::piped());
        }
        let mut child = command.spawn().map_err(|error| format!("ip: {error}"))?;
        self.starts += 1;
        self.started_at = now();
        if let Some(pipe) = child.stderr.take() {
            self.log.read_pipe(pipe);
        } else if on_disk {
            self.log.follow(&file)?;
        }
        self.running = Some(child);
        Ok(())
    }

    fn arguments(&self) -> Vec<String> {
        let urls: Vec<String> = (0..SERVERS)
            .map(|number| format!("nats://{}:{PORT}", Node::server(number).address()))
            .collect();
        // 0.2.0 takes one, and learns of the others from that.
        let urls = if self.agent.old { &urls[self.number..=self.number] } else { &urls };
        let timing = self.timing;
        let mut pairs = vec![
            ("--nats", urls.join(",")),
            ("--bucket", BUCKET.to_owned()),
            ("--key", KEY.to_owned()),
            ("--token", self.node.name()),
            ("--healthcheck", self.service.command("check")),
            ("--start", self.service.command("start")),
            ("--stop", self.service.command("stop")),
            ("-r", timing.r.as_millis().to_string()),
            ("-f", timing.f.to_string()),
            ("-c", timing.c.to_string()),
        ];
        if !self.agent.old {
            pairs.push(("--last-resort", self.service.command("last-resort")));
            pairs.push(("--replicas", SERVERS.to_string()));
        }
        let both = pairs.into_iter();
        both.flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
    }

    /// Returns the process number of the agent while it was not waited for.
    pub(crate) fn agent(&self) -> Option<u32> {
        self.running.as_ref().map(Child::id)
    }

    /// Returns the guards of this host's agents.
    pub(crate) fn guards(&self) -> Vec<u32> {
        let mut guards = process::find_marked(&self.mark());
        guards.retain(|pid| process::is_guard(*pid, KEY));
        guards
    }

    /// Sends `signal` to every process of the host.
    pub(crate) fn signal_all(&self, signal: Signal) {
        // Processes that were started while the first round went on are found by the second.
        for _ in 0..2 {
            for pid in process::find_marked(&self.mark()) {
                process::signal(pid, signal);
            }
        }
    }

    /// Ends everything, as a power cut does, and what a reboot forgets.
    pub(crate) fn crash(&mut self) -> Result<(), String> {
        self.hold_down();
        if let Some(lockers) = &mut self.lockers {
            lockers.crash();
        }
        if let Some(mut agent) = self.running.take() {
            let _ = agent.kill();
            process::kill_marked(&self.mark());
            let _ = agent.wait();
        }
        process::kill_marked(&self.mark());
        let _ = fs::remove_dir_all(self.disk().join("run"));
        self.make_run()
    }

    /// Fills the disk, or removes what filled it.
    pub(crate) fn fill_disk(&self, full: bool) {
        fill(&self.disk(), full);
    }

    /// Reads on what the agents say, or lets it pile up in their pipes.
    pub(crate) fn set_reading(&self, reading: bool) {
        self.service.set(Flaw::CheckChatters, !reading);
        self.log.set_reading(reading);
    }
}
