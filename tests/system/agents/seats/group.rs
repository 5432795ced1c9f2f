//! A group of agents with seats: five hosts with a proxy each, one server, and an observer of each
//! service in each seat.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode as FileMode, mknodat};
use rustix::process::Signal;

use crate::support::agent::Agent;
use crate::support::clock::{At, now, until, wait_until};
use crate::support::log::Log;
use crate::support::observer::Observer;
use crate::support::programs;
use crate::support::proxy::{Mode, Proxy};
use crate::support::sandbox::Sandbox;
use crate::support::server::Server;

/// R of all agents; F is 3 and C is 1.
pub(crate) const R: Duration = Duration::from_millis(600);

/// By then at the earliest another starts: T + C·R.
pub(crate) const TAKEOVER: Duration = Duration::from_millis(2400);

/// How long an agent lets each priority go first: R / 2.
pub(crate) const STEP: Duration = Duration::from_millis(300);

/// The service holds the read end of a named pipe of its seat, and of seat 0 where there is one.
const START: &str =
    "a=$D/alive.${PUTEX_SEAT:-0}; read p <$D/pid && test $a -ef /proc/$p/fd/0 && exit
    setsid sleep 86400 <>$a >/dev/null 2>&1 & p=$!; echo $p >$D/pid
    until test $a -ef /proc/$p/fd/0; do kill -0 $p || exit 1; done";

/// Stop ends a service of any seat, also one whose start was killed.
const STOP: &str =
    "for a in $D/alive.*; do for f in /proc/[0-9]*/fd/0; do test $a -ef $f || continue
    p=${f#/proc/}; kill -9 ${p%%/*} 2>/dev/null; while test $a -ef $f; do :; done; done; done";

/// A host of the group.
pub(crate) struct Host {
    pub(crate) sandbox: Sandbox,
    pub(crate) proxy: Proxy,
    pub(crate) priority: &'static str,
    pub(crate) agent: Option<Agent>,
    pub(crate) log: Log,
}

/// A group.
pub(crate) struct Group {
    // The hosts end before their server.
    pub(crate) hosts: Vec<Host>,
    pub(crate) observer: Observer,
    pub(crate) server: Server,
    pub(crate) seats: usize,
    flags: Vec<String>,
}

impl Group {
    /// Makes a group of hosts with these priorities, and starts no agent; `None`, after saying so,
    /// where there is no server.
    pub(crate) fn new(priorities: &[&'static str], seats: usize, flags: &[&str]) -> Option<Group> {
        let server = Server::start(&programs::nats_server()?, "");
        let host = |(number, priority): (usize, &&'static str)| {
            let sandbox = Sandbox::new(&format!("seat-{number}"));
            let pipe = |seat| sandbox.join(format!("alive.{seat}"));
            for seat in 0..seats {
                let mode = FileMode::RUSR | FileMode::WUSR;
                mknodat(CWD, pipe(seat), FileType::Fifo, mode, 0).expect("a named pipe");
            }
            std::fs::write(sandbox.join("pid"), "").expect("a file");
            let (proxy, log) = (Proxy::start(server.port()), Log::new());
            Host { sandbox, proxy, priority, agent: None, log }
        };
        let hosts: Vec<Host> = priorities.iter().enumerate().map(host).collect();
        let pipes = hosts
            .iter()
            .flat_map(|host| (0..seats).map(|seat| host.sandbox.join(format!("alive.{seat}"))));
        let observer = Observer::start(pipes.collect());
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Some(Group { hosts, observer, server, seats, flags })
    }

    /// Starts the agent of a host.
    pub(crate) fn start(&mut self, number: usize) {
        let mut command = self.command(number);
        let agent = Agent::start_into(&mut command, &self.hosts[number].log);
        self.hosts[number].agent = Some(agent.expect("the agent can be run"));
    }

    /// Starts the agent of a host with another boot id, as after a reboot; returns `false` where
    /// that cannot be shown.
    pub(crate) fn start_rebooted(&mut self, number: usize) -> bool {
        let command = self.command(number);
        let file = self.hosts[number].sandbox.join("boot_id");
        std::fs::write(&file, "00000000-0000-4000-8000-000000000001\n").expect("a file");
        let script = "mount --bind \"$1\" /proc/sys/kernel/random/boot_id && shift && exec \"$@\"";
        let in_namespace = |rest: &[&OsStr]| {
            let mut other = Command::new("unshare");
            other.args(["--mount", "sh", "-c", script, "sh"]).arg(&file).args(rest);
            other
        };
        if !in_namespace(&["true".as_ref()]).status().is_ok_and(|status| status.success()) {
            return false;
        }
        let mut rebooted = in_namespace(&[command.get_program()]);
        rebooted.args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => rebooted.env(name, value),
                None => rebooted.env_remove(name),
            };
        }
        let agent = Agent::start_into(&mut rebooted, &self.hosts[number].log);
        self.hosts[number].agent = Some(agent.expect("the agent can be run"));
        true
    }

    fn command(&self, number: usize) -> Command {
        let host = &self.hosts[number];
        let mut command = host.sandbox.putex();
        command
            .args(["agent", "--nats", &format!("nats://127.0.0.1:{}", host.proxy.port())])
            .args(["--key", "web", "--token", &format!("host-{number}")])
            .args(["--seats", &self.seats.to_string(), "--priority", host.priority])
            .args(["--start", START, "--stop", STOP, "-r", "600ms", "-c", "1"])
            .args(&self.flags)
            .env("D", host.sandbox.text());
        if !self.flags.iter().any(|flag| flag == "-f") {
            command.args(["-f", "3"]);
        }
        command
    }

    /// Starts the agents of all hosts, each when the one before stands by.
    pub(crate) fn start_all(&mut self) {
        for host in 0..self.hosts.len() {
            let since = now();
            self.start(host);
            self.wait_for_line(host, "-> standby", since);
        }
    }

    /// Stops the service of a host without its agent.
    pub(crate) fn stop_by_hand(&self, number: usize) {
        let sandbox = &self.hosts[number].sandbox;
        let status = sandbox.command("sh").args(["-c", STOP]).env("D", sandbox.text()).status();
        status.expect("it can be run");
    }

    /// Returns the host whose service runs in a seat.
    pub(crate) fn holder(&self, seat: usize) -> Option<usize> {
        let in_seat = |pipe: &usize| pipe % self.seats == seat;
        self.observer.active().into_iter().find(in_seat).map(|pipe| pipe / self.seats)
    }

    /// Waits until each seat has a holder; returns them.
    #[track_caller]
    pub(crate) fn wait_for_all(&self) -> Vec<usize> {
        until("a holder of each seat", || (0..self.seats).map(|seat| self.holder(seat)).collect())
    }

    /// Waits until another host than `but` has the seat, from `since` on; returns it, and when its
    /// service came up.
    #[track_caller]
    pub(crate) fn next_holder(&self, seat: usize, but: usize, since: At) -> (usize, At) {
        until("the next holder of the seat", || {
            let ups = self.observer.ups_since(since).into_iter();
            let mut ups = ups.map(|(at, pipe)| (pipe % self.seats, pipe / self.seats, at));
            let next = ups.find(|(in_seat, host, _)| *in_seat == seat && *host != but);
            next.map(|(_, host, at)| (host, at))
        })
    }

    /// Kills all processes of a host, as a power cut does; returns when its lock was renewed last.
    pub(crate) fn kill_host(&mut self, number: usize) -> At {
        self.kill_host_without_lock(number);
        self.hosts[number].proxy.last_renewal().expect("it had the lock").at
    }

    /// Kills all processes of a host, which may have no lock.
    pub(crate) fn kill_host_without_lock(&mut self, number: usize) {
        let host = &mut self.hosts[number];
        if let Some(agent) = &host.agent {
            agent.signal(Signal::KILL);
        }
        host.sandbox.kill_all();
        host.agent = None;
    }

    /// Freezes the link of a host; returns when its lock was renewed last, for all that it knows.
    pub(crate) fn freeze(&self, number: usize) -> At {
        let proxy = &self.hosts[number].proxy;
        proxy.turn(Mode::Freeze);
        proxy.last_renewal().expect("it had the lock").at
    }

    /// Checks that the log of a host comes to say `part`, from `since` on.
    #[track_caller]
    pub(crate) fn wait_for_line(&self, number: usize, part: &str, since: At) {
        let log = &self.hosts[number].log;
        let said = || log.since(since).iter().any(|line| line.contains(part)).then_some(());
        let seen = wait_until(now() + crate::support::clock::PATIENCE, said);
        assert!(seen.is_some(), "host {number} does not say {part:?}: {:?}", log.since(since));
    }

    /// Checks what must hold at each instant since the beginning: one service a seat, and one a
    /// host.
    #[track_caller]
    pub(crate) fn check_history(&self) {
        let (history, _) = self.observer.history();
        for (at, set) in history {
            let up: Vec<usize> = (0..32).filter(|pipe| set & (1 << pipe) != 0).collect();
            for one in 0..self.seats.max(self.hosts.len()) {
                let in_seat = up.iter().filter(|pipe| *pipe % self.seats == one).count();
                let on_host = up.iter().filter(|pipe| *pipe / self.seats == one).count();
                assert!(in_seat <= 1 && on_host <= 1, "at {at:?}: {up:?} of {} seats", self.seats);
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for host in &mut self.hosts {
            host.sandbox.kill_all();
            if let Some(agent) = host.agent.take() {
                agent.kill();
            }
            host.log.set_reading(true);
        }
    }
}
