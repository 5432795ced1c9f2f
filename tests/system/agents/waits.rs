//! How a running agent waits: a deadline that passes while its host is suspended
//! must end the wait as soon as the host wakes up. A test cannot suspend its host,
//! but it can see what each thread waits by.

use std::fs;
use std::process::{Child, Command};
use std::time::Duration;

use crate::support::agent::Agent;
use crate::support::clock::{self, until_true};
use crate::support::process::{children_of, is_traced};
use crate::support::programs;
use crate::support::sandbox::Sandbox;
use crate::support::server::Server;
use crate::threads;
use rustix::process::Signal;

/// Renewal interval: two of them in a window.
const R: Duration = Duration::from_millis(500);

/// How long a process is looked at.
const WINDOW: Duration = Duration::from_secs(1);

/// Checks that no deadline of the process stands still with its host, and that the
/// threads which must have been seen waiting were.
fn check(pid: u32, threads: &[&str]) {
    let waits = threads::observe(pid, WINDOW).expect("it runs, and may be looked at");
    assert!(waits.wrong.is_empty(), "{:#?}", waits.wrong);
    assert!(waits.timers >= threads.len(), "{waits:?}");
    for thread in threads {
        assert!(waits.patient.contains(*thread), "no {thread}: {waits:?}");
    }
}

/// The threads of an agent that wait by a deadline.
const WITH_DEADLINES: [&str; 2] = [threads::MAIN, "putex-store"];

/// Returns an agent of a directory, with this renewal interval and health check.
fn agent_of(sandbox: &Sandbox, r: Duration, check: &str) -> Command {
    let mut command = sandbox.agent("echo up >$D/up", "true");
    command.args(["-c", "1", "-r", &r.as_millis().to_string(), "--healthcheck", check]);
    command
}

/// Starts an agent, and waits until it is active.
fn start(sandbox: &Sandbox, command: &mut Command) -> Agent {
    let agent = Agent::start(command);
    until_true("an active agent", || sandbox.join("up").exists());
    agent
}

/// Returns the children of an agent that are no program of their own yet.
fn unexecuted(agent: &Agent) -> usize {
    let of = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let own = agent.id();
    children_of(own).into_iter().filter(|child| of(*child) == of(own)).count()
}

/// An active agent whose health check the disk does not deliver.
struct Hanging {
    agent: Agent,
    disk: Child,
    command: Command,
    _sandbox: Sandbox,
}

/// Starts an agent with this renewal interval. Once it is active its disk hangs: the kernel does
/// not get to read the shell of its health check. `None` where strace cannot see to that.
fn hang_disk(name: &str, r: Duration) -> Option<Hanging> {
    let strace = programs::tool("strace").filter(|_| threads::can_observe())?;
    let sandbox = Sandbox::new(name);
    let mut command = agent_of(&sandbox, r, "true");
    let agent = start(&sandbox, &mut command);
    let mut disk = sandbox.command(strace);
    disk.args(["-f", "-qq", "-o", "/dev/null", "-e", "inject=execve:delay_enter=60s"]);
    let disk = disk.args(["-P", "/bin/sh", "-p", &agent.id().to_string()]).spawn();
    let disk = disk.expect("strace");
    until_true("strace", || is_traced(agent.id()));
    until_true("a health check that is not executed", || unexecuted(&agent) > 0);
    Some(Hanging { agent, disk, command, _sandbox: sandbox })
}

#[test]
fn an_agent_does_not_wait_for_the_disk_that_its_health_check_is_on() {
    let Some(mut hanging) = hang_disk("disk", R) else {
        return;
    };
    let agent = &mut hanging.agent;
    agent.wait_for_any(&["the health check did not end within"]);
    agent.wait_for_any(&["its previous run has not ended"]);
    assert!(unexecuted(agent) > 0);
    agent.signal(Signal::TERM);
    let ended = agent.wait_exit(clock::now() + clock::PATIENCE);
    let (_, _) = (hanging.disk.kill(), hanging.disk.wait());
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
}

/// A health check that the disk does not deliver would keep the locks and sockets of its agent.
#[test]
fn an_agent_that_dies_while_its_disk_hangs_is_started_again() {
    let Some(mut hanging) = hang_disk("disk-dead", Duration::from_secs(2)) else {
        return;
    };
    hanging.agent.kill();
    let again = Agent::start(&mut hanging.command);
    again.wait_for_any(&["the service goes on"]);
    let (_, _) = (hanging.disk.kill(), hanging.disk.wait());
    again.kill();
}

#[test]
fn an_agent_on_a_directory_waits_by_timers_that_count_suspend() {
    if threads::can_observe() {
        let sandbox = Sandbox::new("waits");
        let agent = start(&sandbox, &mut agent_of(&sandbox, R, "true"));
        check(agent.id(), &WITH_DEADLINES);
    }
}

#[test]
fn agents_on_a_server_wait_by_timers_that_count_suspend() {
    if !threads::can_observe() {
        return;
    }
    let Some(binary) = programs::nats_server() else { return };
    let mut server = Server::start(&binary, "");
    let sandboxes = ["one", "two"].map(Sandbox::new);
    let agents = ["one", "two"].map(|token| {
        let sandbox = &sandboxes[usize::from(token == "two")];
        let mut command = sandbox.putex();
        command.args(["agent", "--nats", &server.url("nats", "127.0.0.1"), "--key", "web"]);
        command.args(["--token", token, "--start", "true", "--stop", "true", "-r", "500ms"]);
        let agent = Agent::start(&mut command);
        agent.wait_for_any(&["the service runs here", "the lock is held by one"]);
        agent
    });
    for agent in &agents {
        check(agent.id(), &WITH_DEADLINES);
    }
    // The guard of a service that runs has a deadline; one that has nothing to guard
    // waits for its agent alone.
    for (sandbox, with_deadlines) in sandboxes.iter().zip([&[threads::MAIN][..], &[]]) {
        check(sandbox.guard("web").as_raw_nonzero().get().cast_unsigned(), with_deadlines);
    }
    // Without its server an agent waits for the next try to reach it.
    server.kill();
    agents[0].wait_for_any(&["the service is down"]);
    for agent in &agents {
        check(agent.id(), &WITH_DEADLINES);
    }
}
