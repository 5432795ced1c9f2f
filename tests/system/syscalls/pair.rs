//! Two hosts that share a directory: a holder and a challenger.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::Pace;
use crate::record::RecordWatch;
use crate::rig::host::KEY;
use crate::rig::service::Service;
use crate::support::agent::Agent;
use crate::support::clock::{At, now, observe_for, wait_until};
use crate::support::folder::Folder;
use crate::support::observer::{Observer, is_held};
use crate::support::process;
use crate::support::programs::putex;

/// How long anything may take before a case gives up on it.
const WITHIN: Duration = Duration::from_secs(20);

/// Runs a command that finds no hierarchy of control groups.
const HIDE_CGROUPS: &str = "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"";

/// The tokens of the holder and of the challenger.
pub(crate) const TOKENS: [&str; 2] = ["one", "two"];

/// A host of the pair.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) service: Service,
    pub(crate) agent: Agent,
    lock: PathBuf,
    token: &'static str,
    without_cgroup: bool,
    /// The agent was told to end, or killed: it is not started again.
    gone: bool,
    /// How often the agent was started again.
    pub(crate) restarts: usize,
}

impl Host {
    fn start(lock: &Path, token: &'static str, without_cgroup: bool) -> Host {
        let service = Service::new();
        let agent = Agent::start(&mut agent_command(&service, lock, token, without_cgroup));
        Host {
            service,
            agent,
            lock: lock.to_owned(),
            token,
            without_cgroup,
            gone: false,
            restarts: 0,
        }
    }

    /// Starts an agent again that has ended by itself, as a service manager does.
    fn tend(&mut self) {
        if self.gone || self.agent.runs() {
            return;
        }
        let log = self.agent.log.clone();
        let mut command = agent_command(&self.service, &self.lock, self.token, self.without_cgroup);
        if let Ok(agent) = Agent::start_into(&mut command, &log) {
            self.agent = agent;
            self.restarts += 1;
        }
    }

    /// Sends the agent a signal that ends it.
    pub(crate) fn end(&mut self, signal: Signal) {
        self.gone = true;
        self.agent.signal(signal);
    }

    /// Returns the number of the guard's process.
    pub(crate) fn guard(&self) -> Option<u32> {
        self.service.sandbox.guards(KEY).first().copied()
    }
}

fn agent_command(service: &Service, lock: &Path, token: &str, without_cgroup: bool) -> Command {
    let mut command = if without_cgroup {
        let mut command = service.sandbox.command("/bin/sh");
        command.args(["-c", HIDE_CGROUPS, "sh"]).arg(putex());
        command
    } else {
        service.sandbox.putex()
    };
    command
        .args(["agent", "-v", "--key", KEY, "--token", token])
        .args(["-r", &Pace::R.as_millis().to_string()])
        .args(["-f", &Pace::F.to_string(), "-c", &Pace::C.to_string()])
        .args(["--drift", &Pace::DRIFT_PERCENT.to_string()])
        .args(["--healthcheck", &service.check_command()])
        .args(["--start", &service.start_command()])
        .args(["--stop", &service.stop_command()])
        .args(["--last-resort", &service.last_resort_command()])
        .arg("--dir")
        .arg(lock);
    command
}

/// A directory in which a key may be taken at once: it is older than T + C * R.
#[derive(Debug)]
pub(crate) struct Template {
    folder: Folder,
    /// The agents are to find no hierarchy of control groups.
    without_cgroup: bool,
}

impl Template {
    /// Makes the directory.
    ///
    /// # Errors
    ///
    /// What did not come about.
    pub(crate) fn make(without_cgroup: bool) -> Result<Template, String> {
        let folder = Folder::new("template");
        let host = Host::start(&folder.join("lock"), "template", without_cgroup);
        let opened = || {
            let epoch = find(&folder.join("lock"), "epoch");
            epoch.is_some().then_some(())
        };
        if wait_until(now() + WITHIN, opened).is_none() {
            return Err(format!("no directory is made:\n{}", host.agent.log.text()));
        }
        drop(host);
        for name in [format!("{KEY}.key"), format!("{KEY}.first")] {
            if let Some(file) = find(&folder.join("lock"), &name) {
                let _ = fs::remove_file(file);
            }
        }
        observe_for(Pace::R * (Pace::F + Pace::C));
        Ok(Template { folder, without_cgroup })
    }

    /// Copies the directory.
    fn copy(&self, to: &Folder) -> Result<PathBuf, String> {
        let lock = to.join("lock");
        let copied = Command::new("cp").arg("-a").arg(self.folder.join("lock")).arg(&lock).status();
        match copied {
            Ok(status) if status.success() => Ok(lock),
            Ok(_) | Err(_) => Err("the directory cannot be copied".to_owned()),
        }
    }
}

/// Finds a file of a bucket below the base.
fn find(base: &Path, name: &str) -> Option<PathBuf> {
    let buckets = fs::read_dir(base).ok()?.flatten();
    let mut files = buckets.map(|bucket| bucket.path().join(name));
    files.find(|file| file.exists())
}

/// A holder and a challenger.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) hosts: [Host; 2],
    pub(crate) observer: Observer,
    pub(crate) records: RecordWatch,
    _folder: Folder,
}

impl Pair {
    /// Starts both: the first host holds the lock, and the second one is a candidate.
    ///
    /// # Errors
    ///
    /// What did not come about.
    pub(crate) fn start(template: &Template) -> Result<Pair, String> {
        let folder = Folder::new("pair");
        let lock = template.copy(&folder)?;
        let epoch = find(&lock, "epoch").ok_or("the copy has no bucket")?;
        let records = RecordWatch::start(epoch.with_file_name(format!("{KEY}.key")));
        let without_cgroup = template.without_cgroup;
        let one = Host::start(&lock, TOKENS[0], without_cgroup);
        let pipe = one.service.pipe();
        let held = || is_held(&pipe).then_some(());
        if wait_until(now() + WITHIN, held).is_none() {
            return Err(format!("no service:\n{}", one.agent.log.text()));
        }
        let two = Host::start(&lock, TOKENS[1], without_cgroup);
        let pipes = vec![one.service.pipe(), two.service.pipe()];
        let pair =
            Pair { hosts: [one, two], observer: Observer::start(pipes), records, _folder: folder };
        let candidate = ["a candidate"];
        if !pair.hosts[1].agent.log.wait_for_any(&candidate, now() + WITHIN) {
            return Err(format!("no candidate:\n{}", pair.hosts[1].agent.log.text()));
        }
        observe_for(Pace::R);
        Ok(pair)
    }

    /// Returns whether start runs in a control group.
    pub(crate) fn has_cgroup(&self) -> bool {
        !self.hosts[0].agent.log.text().contains("no control group")
    }

    /// Kills the holder's guard.
    pub(crate) fn kill_guard(&self) {
        if let Some(guard) = self.hosts[0].guard() {
            process::signal(guard, Signal::KILL);
        }
    }

    /// Waits until the service runs on `host` and nowhere else; returns whether it does within
    /// `within`.
    pub(crate) fn wait_active(&mut self, host: usize, within: Duration) -> bool {
        let active = || (self.tend() == Some(host)).then_some(());
        wait_until(now() + within, active).is_some()
    }

    /// Waits until the service runs on one host; returns which.
    pub(crate) fn wait_any_active(&mut self, within: Duration) -> Option<usize> {
        wait_until(now() + within, || self.tend())
    }

    /// Starts agents again that have ended; returns the host whose service runs alone.
    fn tend(&mut self) -> Option<usize> {
        self.hosts.iter_mut().for_each(Host::tend);
        self.observer.only_active()
    }

    /// Returns what both hosts said, in the order of time, counted from `since`.
    pub(crate) fn said(&self, since: At) -> String {
        let mut lines = Vec::new();
        for (host, token) in self.hosts.iter().zip(TOKENS) {
            let said = host.agent.log.lines().into_iter();
            lines.extend(said.map(|(at, line)| (at, format!("{token}: {line}"))));
        }
        let (changes, _) = self.observer.history();
        let set = |set: u32| (0..2).filter(move |host| set & (1 << host) != 0);
        lines.extend(changes.iter().map(|(at, up)| {
            let up: Vec<_> = set(*up).map(|host| TOKENS[host]).collect();
            (*at, format!("--- the service runs on: {}", up.join(" and ")))
        }));
        lines.sort();
        let shown = |(at, line): &(At, String)| {
            format!("    {:8.3} {line}\n", at.as_secs_f64() - since.as_secs_f64())
        };
        lines.iter().map(shown).collect()
    }
}
