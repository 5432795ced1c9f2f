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
use rustix::process::Signal;

/// Renewal interval.
const R: Duration = Duration::from_millis(500);

/// The number of CLOCK_BOOTTIME.
const CLOCK_BOOTTIME: &str = "7";

/// Checks that each timer of a process, of which there is one at least, counts suspend. By a rule
/// of `tests/tidy` no thread waits by anything else.
fn check_timers(pid: u32) {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("it runs");
    // A descriptor that was closed meanwhile is none of this.
    let texts = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let clocks: Vec<String> = texts
        .filter_map(|text| {
            let clock = text.lines().find_map(|line| line.strip_prefix("clockid:"))?;
            Some(clock.trim().to_owned())
        })
        .collect();
    assert!(!clocks.is_empty() && clocks.iter().all(|clock| clock == CLOCK_BOOTTIME), "{clocks:?}");
}

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
    let strace = programs::tool("strace")?;
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
fn the_timers_of_agents_and_guards_count_suspend() {
    let Some(binary) = programs::nats_server() else { return };
    let server = Server::start(&binary, "");
    let sandbox = Sandbox::new("waits");
    let mut command = sandbox.putex();
    command.args(["agent", "--nats", &server.url("nats", "127.0.0.1"), "--key", "web"]);
    command.args(["--token", "one", "--start", "true", "--stop", "true", "-r", "500ms"]);
    let agent = Agent::start(&mut command);
    agent.wait_for_any(&["the service runs here"]);
    check_timers(agent.id());
    check_timers(sandbox.guard("web").as_raw_nonzero().get().cast_unsigned());
}
